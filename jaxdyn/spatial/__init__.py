"""Rotations, rigid transforms, 6-vectors and inertia: the algebra of one rigid body, independent of mechanisms."""
