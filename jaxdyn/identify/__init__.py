"""System identification: physical parameters from recorded motion, with exact derivatives and uncertainty."""
