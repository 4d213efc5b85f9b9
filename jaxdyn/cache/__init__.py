"""Storage of compiled programs between processes.

A later process that runs the same function on the same structure reads the program instead of tracing and compiling it again. The
folder is `jaxdyn` in the user's cache folder. The environment variable `JAXDYN_CACHE_DIR` selects another folder, and an empty
value disables the cache; `set_directory` selects the folder at run time.
"""

from jaxdyn.cache.location import directory as directory
from jaxdyn.cache.location import set_directory as set_directory

__all__ = ["directory", "set_directory"]


def __dir__() -> list[str]:
    return __all__
