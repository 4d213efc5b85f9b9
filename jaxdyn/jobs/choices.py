"""Allowed names of precisions, devices, integrators and other choices in configs and arguments.

This module does not import JAX, so that an invalid config is refused without delay.
"""

from typing import Literal

Precision = Literal["float32", "float64"]
DeviceChoice = Literal["one", "all"]
HostChoice = Literal["one", "all", "hosts"]
BackendName = Literal["auto", "lanes", "xla"]
BaseName = Literal["fixed", "free"]
ContactName = Literal["none", "ground"]
MethodName = Literal["auto", "cholesky", "articulated_body", "contravariant"]
IntegratorName = Literal[
    "explicit_euler",
    "semi_implicit_euler",
    "semi_implicit_euler_explicit_damping",
    "runge_kutta_4",
    "implicit_midpoint",
    "variational",
    "projected",
]
