"""Base class of constraints, which close loops or couple coordinates; the available kinds are in `jaxdyn.constraints`.

A constraint is a set of equations phi = 0 between the poses of bodies and the coordinates of a tree. The Jacobian of a constraint,
its rates and its forces follow from phi by differentiation (`constraint_motion`, `constraint_forces`).
"""

import abc
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from jaxdyn.dynamics.kinematics import Coordinates, Poses
from jaxdyn.mechanism.components import error_with_part
from jaxdyn.mechanism.model import Model


class Constraint(eqx.Module):
    """Equations between the poses of bodies and the coordinates of joints. To add a kind of constraint, also in user code, define a
    final subclass of this class.

    Class attributes:
        name: Name of the constraint in messages, files and results; unique within a system.
        table_name: Name of the tables of a mechanism file that describe constraints of this kind; None if files cannot contain
            them.
    """

    table_name: ClassVar[str | None] = None

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

    def describe(self, model: Model) -> str:
        """Short description of the connected bodies or coordinates, for `System.summary`."""
        return type(self).__name__

    def validate(self, model: Model) -> str | None:
        """Error message with a remedy if this constraint does not fit a model, else None. `System` calls this method once."""
        wrong = error_with_part(self, model)
        return None if wrong is None else f"{self.name!r}: {wrong}"
