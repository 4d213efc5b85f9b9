"""Base class of drives, and motors in single joints; theory.md (H6)."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.dynamics.forces import OverStep, Scalar
from jaxdyn.dynamics.kinematics import Motion
from jaxdyn.mechanism.components import component_names, error_with_part
from jaxdyn.mechanism.joints import Free
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import Quantity, invalid, plain, quantity

Coordinates = Float[Array, "nq"]


Velocities = Float[Array, "nv"]


Controls = Float[Array, "nu"]


States = Float[Array, "nz"]


class Drives(eqx.Module):
    """Map from the controls u of a system to generalized forces, perhaps with states z."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of controls."""

    @abc.abstractmethod
    def forces(self, model: Model, q: Coordinates, v: Velocities, u: Controls) -> Velocities:
        """Generalized force of the controls u, N m or N by the kinds of joints."""

    def over_step(self, model: Model, moving: Motion, u: Float[Array, "nu"], step: Scalar | float) -> OverStep:
        """Linear law with which implicit integrators evaluate the forces at the end of a step of length `step` (s); by default the
        forces at the start."""
        return OverStep(self.forces(model, moving.q, moving.v, u))

    def body_forces(self, model: Model, moving: Motion, u: Controls) -> Float[Array, "nb 6"]:
        """The part of the forces that acts at points of bodies, as of a `BodyForce`; the rest, by default all of it, acts within
        the joints."""
        return jnp.zeros_like(moving.velocity)

    @property
    def state_count(self) -> int:
        """Number of states z of these drives, such as those of a lag."""
        return 0

    @property
    def state_bounds(self) -> tuple[States, States] | None:
        """Lower and upper bounds at which the states stop; None if there are none."""
        return None

    def rates(self, model: Model, q: Coordinates, v: Velocities, z: States, u: Controls) -> States:
        """Rates dz/dt (1/s) of the states within their bounds."""
        return jnp.zeros_like(z)

    def states_over_step(
        self, model: Model, q: Coordinates, v: Velocities, z: States, u: Controls, step: Scalar | float
    ) -> tuple[States, States]:
        """Means of the states over a step of length `step` (s) that starts at z, and the states at its end, with constant controls;
        by default those of an explicit Euler step."""
        rates = self.rates(model, q, v, z, u)
        return z + 0.5 * step * rates, z + step * rates

    def steady_states(self, u: Controls) -> States | None:
        """States after a long time with constant controls; None if they depend on the states before."""
        return None

    def acting(self, z: States, u: Controls) -> Controls:
        """The vector that all methods for forces take as u, if there are states."""
        return u

    @property
    def driven(self) -> tuple[int, ...] | None:
        """Velocity component of each control whose force is proportional to this control; None if the law is another one."""
        return None

    @property
    def unbounded(self) -> "Drives":
        """These drives without bounds of the controls and of the forces, so that the forces are affine in the controls."""
        return self

    @property
    def control_bounds(self) -> tuple[Float[Array, "nu"], Float[Array, "nu"]] | None:
        """Lower and upper bounds at which these drives clip the controls; None if they do not."""
        return None

    def control_names(self, model: Model) -> tuple[str, ...]:
        """Name of each control, which is the name of its velocity component or else its index."""
        if self.driven is None:
            return tuple(str(k) for k in range(self.count))
        known = component_names(model, Quantity(along="velocity"))
        return tuple(known[column] for column in self.driven)

    def row_names(self, model: Model, axis: str) -> tuple[str, ...] | None:
        """Names of the rows of a field along an axis of its annotation, such as "nu"; None for an unknown axis.

        Args:
            model: The mechanism.
            axis: Name of the axis.
        """
        return {"nu": self.control_names(model), "nv": component_names(model, Quantity(along="velocity"))}.get(axis)

    def validate(self, model: Model) -> str | None:
        """Error message with a remedy if these drives do not fit a model, else None. `System` calls this method once."""
        return error_with_part(self, model)


class JointDrives(Drives):
    """Motors in some of the joints: tau = gear * u on the driven velocity components, 0 on the remaining components
    (underactuation).

    Attributes:
        columns: Index of the driven velocity component of each control.
        gear: Generalized force per unit of control.

    Source: theory.md (H6).
    """

    columns: tuple[int, ...] = eqx.field(static=True, converter=plain)
    gear: Float[Array, "nu"] = eqx.field(converter=floating, metadata=quantity("1"))

    @property
    def count(self) -> int:
        return len(self.columns)

    @property
    def driven(self) -> tuple[int, ...]:
        return self.columns

    def validate(self, model: Model) -> str | None:
        wrong = model.topology.error_with_columns(self.columns)
        return wrong or invalid(self, {"nu": len(self.columns)})

    def forces(self, model: Model, q: Coordinates, v: Velocities, u: Controls) -> Velocities:
        return self.generalized_forces(model, u)

    def generalized_forces(self, model: Model, u: Float[Array, "nu"]) -> Float[Array, "nv"]:
        """Generalized force of the controls u, which does not depend on the state."""
        selection = np.equal.outer(np.arange(model.nv), np.array(self.columns)).astype(u.dtype)
        return dot(selection, self.gear * u)  # (H6)


def drives_of_joints(model: Model) -> JointDrives | None:
    """One control per velocity component, the generalized force, except for those of free joints: floating bases have no motors.

    It is None, which has the same meaning, for a mechanism without free joints.

    Args:
        model: The mechanism.
    """
    kinds = [model.topology.joint_classes[body] for body in model.topology.body_of_column]
    driven = tuple(column for column, kind in enumerate(kinds) if not issubclass(kind, Free))
    return None if len(driven) == model.nv else JointDrives(driven, jnp.ones(len(driven), model.dtype))
