"""The protocol of a constraint, which closes a loop or couples coordinates; the kinds are in `jaxdyn.constraints`.

A constraint is a set of equations phi(q) = 0 between the coordinates of a tree. Everything else, its Jacobian, the rates and the
forces that keep it, follows from phi by differentiation (`multipliers`).
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from jaxdyn.dynamics.kinematics import Coordinates, Placements
from jaxdyn.mechanism.model import Model


class Constraint(eqx.Module):
    """Equations between coordinates; a new kind is a final subclass of this class in any file, user code included.

    Class attributes:
        name: what the constraint is called in messages and files.
    """

    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def residual(self, model: Model, q: Coordinates, placed: Placements) -> Float[Array, "m"]:
        """phi(q), zero where the constraint is satisfied; smooth there, with a gradient that does not vanish. Source: (N7)."""

    def branches(self, model: Model, q: Coordinates, placed: Placements) -> Float[Array, "_"] | None:
        """Numbers that are positive on the right one of several solutions of phi(q) = 0; None if all are right."""
        return None

    def describe(self, model: Model) -> str:
        """What it connects, for `System.summary`."""
        return type(self).__name__

    def problem(self, model: Model) -> str | None:
        """Why this constraint does not fit a model and how to mend it, or None. Called once, by `System`."""
        return None
