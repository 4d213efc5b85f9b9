"""Functions of one sample that keep their own derived forms: programs, derivatives, batches.

All these can be large, and are freed together with the function. A cache elsewhere, however short, would keep functions alive: some
megabytes for each gradient of a rollout.
"""

import collections
import contextlib
import functools
from collections.abc import Callable
from typing import Any, ClassVar

from jax.extend import core as jex

from jaxdyn.compute import internals


def referred_to_weakly(cls: type) -> type:
    """Decorator of a class whose objects are parameters of equations: the caches of JAX do not keep them alive.

    JAX has no public name for this. Without it, the objects remain until thousands of other calls replace them in the caches.
    """
    getattr(internals.util, "weakref_cache_key_types", set()).add(cls)
    return cls


@referred_to_weakly
class SampleJaxpr(jex.ClosedJaxpr):
    """A closed jaxpr of one sample.

    Attributes:
        derived: Results of the functions that are decorated with `remembered`, by function and further arguments.
    """

    def __init__(self, closed: jex.ClosedJaxpr):
        super().__init__(closed.jaxpr, closed.consts)
        self.derived: dict[Any, Any] = {}


def remembered(function: Callable) -> Callable:
    """Decorator of a function (jaxpr, further arguments) whose results are kept by the jaxpr if it is a `SampleJaxpr`."""

    @functools.wraps(function)
    def of(jaxpr: jex.ClosedJaxpr, *arguments: Any, **options: Any) -> Any:
        kept = getattr(jaxpr, "derived", {})
        key = (function, arguments, *options.items())
        if key not in kept:
            kept[key] = function(jaxpr, *arguments, **options)
        return kept[key]

    return of


class Programs:
    """A table of the latest programs by key. `jax.clear_caches` empties it together with the caches of JAX.

    Attributes:
        most: Maximum number of programs in each table, and of public functions that are batched outside of `jit`. A program takes
            from a hundred kilobytes to some megabytes.
    """

    most: ClassVar[int] = 40

    def __init__(self, name: str):
        self._table: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        if hasattr(internals.util, "register_cache"):
            internals.util.register_cache(self, name)

    def get(self, key: Any) -> Any:
        program = self._table.get(key)
        if program is not None:
            with contextlib.suppress(KeyError):  # another thread may have removed it
                self._table.move_to_end(key)
        return program

    def put(self, key: Any, program: Any) -> None:
        """Add a program, and remove the one that was not used for the longest time if there are too many."""
        self._table[key] = program
        while len(self._table) > self.most:
            self._table.popitem(last=False)

    def cache_clear(self) -> None:
        self._table.clear()
