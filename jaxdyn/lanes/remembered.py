"""Results that are remembered until `jax.clear_caches`, as JAX's own are: they hold jaxprs and programs of many thousand operations."""

import functools
from collections.abc import Callable

from jax._src import util as _util

# JAX has no public way to take part. Without it the results stay until others replace them.
_register = getattr(_util, "register_cache", None)


def remembered(count: int) -> Callable[[Callable], Callable]:
    """Decorator: remembers the results of the latest calls.

    Args:
        count: how many.
    """

    def decorate(function: Callable) -> Callable:
        cached = functools.lru_cache(maxsize=count)(function)
        if _register is not None:
            _register(cached, function.__name__)
        return cached

    return decorate
