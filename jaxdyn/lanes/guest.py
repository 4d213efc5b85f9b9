"""The lane compiler as a guest of `jaxdyn.compute`, which imports this module at its first need of a compiler."""

from typing import TYPE_CHECKING

from jaxdyn.compute import announcements
from jaxdyn.lanes import cpu, self_test
from jaxdyn.lanes.stored import kernel_function as kernel_function
from jaxdyn.lanes.stored import stored_jit as stored_jit
from jaxdyn.lanes.stored import stored_outside_jit as stored_outside_jit
from jaxdyn.lazy import lazy_names

if reason := self_test.obstacle():
    raise ImportError(reason)

announcements.WAITS.append(cpu.wait_for_code)

# These modules make programs; to load programs of earlier processes they are not imported.
if TYPE_CHECKING:
    from jaxdyn.lanes.c_code import machine_code as machine_code
    from jaxdyn.lanes.direct import direct as direct
    from jaxdyn.lanes.entry import operations_of as operations_of
    from jaxdyn.lanes.entry import run as run
    from jaxdyn.lanes.reference import Reference as Reference
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
