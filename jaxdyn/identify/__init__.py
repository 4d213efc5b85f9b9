"""System identification: the numbers of a mechanism from its recorded motion."""
