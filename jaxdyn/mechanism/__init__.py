"""What a mechanism is: joints, topology, the numbers of a model, its configuration space, and the sweeps over its tree."""
