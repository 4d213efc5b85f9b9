"""A cache of results that `jax.clear_caches` empties together with the caches of JAX, because jaxprs and programs can be large."""

import functools
from collections.abc import Callable

from jax._src import util as _util

# JAX has no public name for this. Without it, results remain until others replace them.
_register = getattr(_util, "register_cache", None)


def remembered(count: int) -> Callable[[Callable], Callable]:
    """Decorator that caches the results of the latest calls.

    Args:
        count: Number of cached results.
    """

    def decorate(function: Callable) -> Callable:
        cached = functools.lru_cache(maxsize=count)(function)
        if _register is not None:
            _register(cached, function.__name__)
        return cached

    return decorate
