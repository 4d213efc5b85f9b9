"""Version of the installed package; pyproject.toml states it."""

import importlib.metadata

__version__ = importlib.metadata.version("jaxdyn")
