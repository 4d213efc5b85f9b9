"""Base classes of joints with an axis, and of joints whose velocities are coordinate rates."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.mechanism.joint import Joint

_AXIS_TOLERANCE = 1e-6


PARALLEL_TOLERANCE = 1e-3


Axis = Float[Array, "*batch 3"]


def unit(axis: Axis) -> Axis:
    """The axis divided by its norm, so that an axis whose length an optimizer has changed still defines a direction."""
    return axis / jnp.sqrt(dot(axis, axis))


def axis_problem(axis: Axis | np.ndarray, called: str = "axis") -> str | None:
    """Error message with a remedy if `axis` is not a unit vector, else None."""
    components = np.asarray(axis, np.float64)
    if components.shape != (3,) or not np.all(np.isfinite(components)):
        return f"its {called} is {components.tolist()}; give three finite components"
    norm = float(np.linalg.norm(components))
    if norm == 0.0:
        return f"its {called} is zero; give a unit vector such as (0, 0, 1)"
    if abs(norm - 1.0) > _AXIS_TOLERANCE:
        unit = tuple(round(float(x), 9) for x in components / norm)
        return f"its {called} has length {norm:.6g}; give the unit vector {unit}"
    return None


class WithRates(Joint):
    """A joint whose coordinates are scalars and whose velocities are their rates."""

    velocity_is_rate: ClassVar[bool] = True

    def integrate(self, q: Float[Array, "nq"], step: Float[Array, "nv"]) -> Float[Array, "nq"]:
        return q + step

    def difference(self, q0: Float[Array, "nq"], q1: Float[Array, "nq"]) -> Float[Array, "nv"]:
        return q1 - q0

    def neutral(self) -> Float[np.ndarray, "nq"]:
        return np.zeros(self.nq)


class Axial(WithRates):
    """A joint with an axis, which has the same components on joint and child axes."""

    axis: eqx.AbstractVar[Axis]

    def validate(self) -> str | None:
        return axis_problem(self.axis)
