"""Run directories: config, provenance, results and claims of one run in one folder."""
