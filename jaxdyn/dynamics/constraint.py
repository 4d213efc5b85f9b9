"""Base class of constraints, which close loops or couple coordinates; the available kinds are in `jaxdyn.constraints`.

A constraint is a set of equations phi = 0 between the poses of bodies and the coordinates of a tree. The Jacobian of a constraint,
its rates and its forces follow from phi by differentiation (`constraint_motion`, `constraint_forces`).
"""

import abc
from collections.abc import Iterable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics.kinematics import BodyMotion, Coordinates, Poses, Velocities
from jaxdyn.mechanism.components import error_with_part
from jaxdyn.mechanism.model import Model


class Constraint(eqx.Module):
    """Equations between the poses of bodies and the coordinates of joints. To add a kind of constraint, also in user code, define a
    final subclass of this class.

    Class attributes:
        name: Name of the constraint in messages, files and results; unique within a system.
        table_name: Name of the tables of a mechanism file that describe constraints of this kind; None if files cannot contain
            them.
        ends: Names of the fields with indices of bodies, if the equations depend only on the poses (and velocities) of these
            bodies and on the values of the constraint; None otherwise. Constraints of one form with `ends` are evaluated at once.
    """

    table_name: ClassVar[str | None] = None
    ends: ClassVar[tuple[str, ...] | None] = None

    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def residual(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "m"]:
        """Residual phi, which is zero where the constraint is satisfied. There, phi must be smooth and have a nonzero gradient.

        Args:
            model: Mechanism, for its topology. Compute quantities that depend on the motion from `q` and `poses`.
            q: Generalized coordinates.
            poses: Poses of the bodies at q; `kinematics.point_on_body` gives the positions of points.

        Source: theory.md (N7).
        """

    def branches(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "_"] | None:
        """Values that are positive on the desired branch if phi = 0 has several solutions; None if all solutions are valid."""
        return None

    def units(self, model: Model) -> tuple[str, ...] | None:
        """Unit "m" or "rad" of each equation, for messages; the rates of a `VelocityConstraint` are in these units per second. None
        if the units are unknown."""
        return None

    def describe(self, model: Model) -> str:
        """Short description of the connected bodies or coordinates, for `System.summary`."""
        return type(self).__name__

    def validate(self, model: Model) -> str | None:
        """Error message with a remedy if this constraint does not fit a model, else None. `System` calls this method once."""
        bodies = [getattr(self, name) for name in self.ends or ()]
        if len(bodies) == 2 and bodies[0] == bodies[1]:
            return (
                f"{self.name!r} connects {model.topology.body_name(bodies[0])} with itself; give two different bodies"
            )
        wrong = error_with_part(self, model)
        return None if wrong is None else f"{self.name!r}: {wrong}"


class VelocityConstraint(Constraint):
    """Equations that are linear in the velocities and do not follow from equations between coordinates: nonholonomic constraints,
    such as rolling without slip. They restrict velocities only; every configuration is permitted.

    Class attributes:
        equations: Number of equations.
    """

    equations: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def rate(self, model: Model, q: Coordinates, poses: Poses, bodies: BodyMotion, v: Velocities) -> Float[Array, "m"]:
        """Values that are zero where the constraint is satisfied, linear in the velocities, m/s or rad/s.

        Args:
            model: Mechanism, for its topology.
            q: Generalized coordinates.
            poses: Poses of the bodies at q.
            bodies: Angular velocities and velocities of the origins of the bodies, ground axes.
            v: Generalized velocities.

        Source: theory.md (N18).
        """

    def residual(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "m"]:
        return jnp.zeros(self.equations, q.dtype)


def holonomic(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """The constraints that restrict positions."""
    return tuple(constraint for constraint in constraints if not isinstance(constraint, VelocityConstraint))
