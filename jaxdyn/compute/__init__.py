"""How a function of one sample becomes a program: hints to compilers, programs, devices, announcements.

Mechanics imports this package and knows no compiler. The lane compiler (`jaxdyn.lanes`) is a guest that makes itself known here.
"""

from jaxdyn.compute.announcements import announced_as as announced_as
from jaxdyn.compute.devices import lane_mesh as lane_mesh
from jaxdyn.compute.hints import KEEPS as KEEPS
from jaxdyn.compute.hints import keep as keep
from jaxdyn.compute.hints import keep_triangle as keep_triangle
from jaxdyn.compute.hints import traced_once as traced_once
from jaxdyn.compute.hints import writing_out as writing_out
from jaxdyn.compute.kernels import kernel as kernel
from jaxdyn.compute.programs import Served as Served
from jaxdyn.compute.programs import batched as batched
from jaxdyn.compute.programs import columnwise as columnwise
from jaxdyn.compute.programs import kernel_function as kernel_function
from jaxdyn.compute.programs import machine_code as machine_code
from jaxdyn.compute.programs import operations_of as operations_of
from jaxdyn.compute.programs import per_sample as per_sample
from jaxdyn.compute.programs import reference as reference
from jaxdyn.compute.programs import run as run
from jaxdyn.compute.programs import stored_jit as stored_jit
from jaxdyn.compute.programs import stored_outside_jit as stored_outside_jit
from jaxdyn.compute.programs import within_jit as within_jit
from jaxdyn.compute.switch import Backend as Backend
from jaxdyn.compute.switch import CannotCompile as CannotCompile
from jaxdyn.compute.switch import backend as backend
from jaxdyn.compute.switch import chosen_backend as chosen_backend

# Names for users; the other ones are for the packages of mechanics.
__all__ = [
    "Backend",
    "CannotCompile",
    "backend",
    "batched",
    "columnwise",
    "kernel",
    "kernel_function",
    "lane_mesh",
    "per_sample",
    "reference",
    "stored_jit",
]


def __dir__() -> list[str]:
    return __all__
