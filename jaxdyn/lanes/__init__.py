"""The lane compiler: small per-sample functions as machine code, one sample per SIMD lane.

The lane compiler is independent of mechanics.
"""

from types import ModuleType as _Module

from jaxdyn.lanes import announcements as announcements  # listens for long compilations
from jaxdyn.lanes import rules as rules  # registers the rules of the primitives
from jaxdyn.lanes.batched import Backend as Backend
from jaxdyn.lanes.batched import batched as batched
from jaxdyn.lanes.batched import check_backend as check_backend
from jaxdyn.lanes.batched import lane_function as lane_function
from jaxdyn.lanes.batched import operations_of as operations_of
from jaxdyn.lanes.batched import run as run
from jaxdyn.lanes.columns import lane_columns as lane_columns
from jaxdyn.lanes.cpu import set_threads as set_threads
from jaxdyn.lanes.devices import lane_mesh as lane_mesh
from jaxdyn.lanes.flatten import CannotFlatten as CannotFlatten
from jaxdyn.lanes.record import Record as Record
from jaxdyn.lanes.record import Served as Served
from jaxdyn.lanes.record import records as records
from jaxdyn.lanes.stored import compiled_outside_jit as compiled_outside_jit
from jaxdyn.lanes.stored import stored_jit as stored_jit
from jaxdyn.lanes.stored import stored_outside_jit as stored_outside_jit
from jaxdyn.lanes.stored import within_jit as within_jit
from jaxdyn.lanes.tracing import KEEPS as KEEPS
from jaxdyn.lanes.tracing import keep as keep
from jaxdyn.lanes.tracing import keep_triangle as keep_triangle
from jaxdyn.lanes.tracing import writing_out as writing_out

__all__ = sorted(name for name, item in globals().items() if not name.startswith("_") and not isinstance(item, _Module))


def __dir__() -> list[str]:
    return __all__
