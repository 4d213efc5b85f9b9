"""The mechanics: kinematics, metric tensor, Christoffel symbols, forces, inverse and forward dynamics, energy. Per sample, pure."""
