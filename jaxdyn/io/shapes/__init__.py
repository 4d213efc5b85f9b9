"""Shapes of bodies, which pictures show and which touch the ground."""
