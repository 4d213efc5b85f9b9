"""Rotations, rigid transforms, 6-vectors and inertia: the algebra of one rigid body. Knows nothing of mechanisms."""
