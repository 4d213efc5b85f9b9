"""MJCF files, MuJoCo's own format."""
