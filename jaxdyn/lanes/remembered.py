"""A cache of results that `jax.clear_caches` empties, as it empties JAX's own; jaxprs and scalar programs can be large."""

import functools
from collections.abc import Callable

from jax._src import util as _util

# JAX has no public name for this. Without it results stay until others replace them.
_register = getattr(_util, "register_cache", None)


def remembered(count: int) -> Callable[[Callable], Callable]:
    """Decorator: remembers the results of the latest calls.

    Args:
        count: How many.
    """

    def decorate(function: Callable) -> Callable:
        cached = functools.lru_cache(maxsize=count)(function)
        if _register is not None:
            _register(cached, function.__name__)
        return cached

    return decorate
