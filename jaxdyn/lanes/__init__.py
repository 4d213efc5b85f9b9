"""The lane compiler: small per-sample functions as machine code, one sample per SIMD lane.

The lane compiler is independent of mechanics. Mechanics does not know it either: `jaxdyn.compute` calls it for the functions that
it supports.
"""

from typing import TYPE_CHECKING

from jaxdyn.compute import internals as _internals
from jaxdyn.lazy import lazy_names

if _internals.MISSING:
    raise ImportError(f"the lane compiler needs parts of JAX that this version lacks: {', '.join(_internals.MISSING)}")

# A process whose programs are all in the cache imports only the modules that load them.
if TYPE_CHECKING:
    from jaxdyn.lanes.cpu import set_threads as set_threads
    from jaxdyn.lanes.flatten import CannotFlatten as CannotFlatten
    from jaxdyn.lanes.record import Record as Record
    from jaxdyn.lanes.record import records as records
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
