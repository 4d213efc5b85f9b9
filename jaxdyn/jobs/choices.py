"""Names that configs and arguments choose from.

The modules that they stand for import JAX, which a config that is refused should not wait for.
"""

from typing import Literal

Precision = Literal["float32", "float64"]
DeviceChoice = Literal["one", "all", "hosts"]
BackendName = Literal["auto", "lanes", "xla"]
MethodName = Literal["cholesky", "articulated_body", "contravariant"]
CollocationName = Literal["trapezoid", "hermite_simpson", "legendre_gauss"]
IntegratorName = Literal[
    "explicit_euler",
    "semi_implicit_euler",
    "semi_implicit_euler_explicit_damping",
    "runge_kutta_4",
    "implicit_midpoint",
    "variational",
    "projected",
]
