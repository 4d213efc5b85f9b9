"""Mechanism files: readable TOML files, for people, with units."""
