"""Files in and out: mechanisms, configs, run directories. Everything read here may come from a stranger."""

from jaxdyn.io.vectors import system_from_dict as system_from_dict
