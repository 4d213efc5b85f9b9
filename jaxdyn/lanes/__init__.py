"""The lane compiler: small per-sample functions as machine code, one sample per SIMD lane.

The lane compiler is independent of mechanics. Mechanics does not know it either: `jaxdyn.compute` calls it for the functions that
it supports.
"""

from types import ModuleType as _Module

from jaxdyn.compute import internals as _internals

if _internals.MISSING:
    raise ImportError(f"the lane compiler needs parts of JAX that this version lacks: {', '.join(_internals.MISSING)}")

from jaxdyn.lanes import rules as rules  # registers the rules of the primitives
from jaxdyn.lanes.cpu import set_threads as set_threads
from jaxdyn.lanes.flatten import CannotFlatten as CannotFlatten
from jaxdyn.lanes.record import Record as Record
from jaxdyn.lanes.record import records as records

__all__ = sorted(name for name, item in globals().items() if not name.startswith("_") and not isinstance(item, _Module))


def __dir__() -> list[str]:
    return __all__
