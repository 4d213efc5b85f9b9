"""The version of the package that is installed; pyproject.toml states it."""

import importlib.metadata

__version__ = importlib.metadata.version("jaxdyn")
