"""The protocol of a constraint, which closes a loop or couples coordinates; the kinds are in `jaxdyn.constraints`.

A constraint is a set of equations phi = 0 between the poses of bodies and the coordinates of a tree. Everything else, its Jacobian,
the rates and the forces that keep it, follows from phi by differentiation (`constraint_motion`, `constraint_forces`).
"""

import abc
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from jaxdyn.dynamics.kinematics import Coordinates, Poses
from jaxdyn.mechanism.components import error_with_part
from jaxdyn.mechanism.model import Model


class Constraint(eqx.Module):
    """Equations between poses and coordinates; a new kind is a final subclass of this class in any file, user code included.

    Class attributes:
        name: what the constraint is called in messages, files and results; unlike that of every other constraint of a system.
        table_name: name of the tables of a mechanism file that describe such a constraint; None if files have none.
    """

    table_name: ClassVar[str | None] = None

    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def residual(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "m"]:
        """phi, zero where the constraint is satisfied; smooth there, with a gradient that does not vanish.

        Args:
            model: for its topology; what of phi moves must come from the next two.
            q: generalized coordinates.
            poses: where the bodies are at q; points by `kinematics.point_on_body`.

        Source: theory.md (N7).
        """

    def branches(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "_"] | None:
        """Numbers that are positive on the right one of several solutions of phi = 0; None if all are right."""
        return None

    def describe(self, model: Model) -> str:
        """What it connects, for `System.summary`."""
        return type(self).__name__

    def validate(self, model: Model) -> str | None:
        """Why this constraint does not fit a model and how to mend it, or None. Called once, by `System`."""
        wrong = error_with_part(self, model)
        return None if wrong is None else f"{self.name!r}: {wrong}"
