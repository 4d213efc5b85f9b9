"""Exact files: archives of systems and plants, which are read back bit by bit."""
