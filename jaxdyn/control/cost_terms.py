"""Bases of predefined costs and constraints of mechanisms.

A cost is a function cost(dynamics, t, x, u). The values of running costs are integrated over time; the values of final costs are
added once, at the end. A subclass of `CostTerm` or `ConstraintTerm` with a class variable `kind` can be selected in configs of
`jaxdyn optimize` by a table with the same `kind`. The fields of the class are the other keys of the table; `quantity` declares
their units and bounds. Arrays with the annotation "nq", "nv", "nx" or "nu" have one value for each coordinate, velocity component,
tangent coordinate of the state, or control, respectively.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.control.problem import AnyState, Controls, Dynamics, Equality, Inequality, MultibodyDynamics, Time
from jaxdyn.mechanism.quantity import check_settings

Residuals = tuple[Float[Array, "m"], Float[Array, "m"]]
"""The residuals of a least-squares cost and their weights."""


class CostTerm(eqx.Module):
    """Base of predefined costs.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A value is out of its bounds.
    """

    def __check_init__(self):
        check_settings(self)

    @abc.abstractmethod
    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        """The cost at time t, s, in state x under controls u."""


class LeastSquares(CostTerm):
    """Base of least-squares costs 1/2 sum of w_i r_i^2 with residuals r and weights w.

    Solvers of Gauss-Newton type approximate the Hessian by J' w J, where J is the Jacobian of r; this matrix is positive
    semidefinite.

    Source: theory.md (S6).
    """

    @abc.abstractmethod
    def residuals(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Residuals:
        """The residuals r and their weights w at time t (s), in state x, under controls u."""

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        residuals, weights = self.residuals(dynamics, t, x, u)
        return 0.5 * jnp.sum(weights * residuals**2)


class ConstraintTerm(eqx.Module):
    """Base of predefined constraint functions, which return m values.

    `relation(term)` is the constraint on these values: `Equality` (values = 0) or `Inequality` (values <= 0).

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A value is out of its bounds.
    """

    relation: ClassVar[type[Equality] | type[Inequality]] = Equality

    def __check_init__(self):
        check_settings(self)

    @abc.abstractmethod
    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, "m"]:
        """The values at time t, s, in state x under controls u."""


def multibody(dynamics: Dynamics, term: eqx.Module) -> MultibodyDynamics:
    """The dynamics, if they are those of a mechanism.

    Raises:
        TypeError: They are other dynamics; the message names the term.
    """
    if not isinstance(dynamics, MultibodyDynamics):
        raise TypeError(f"{type(term).__name__} needs MultibodyDynamics; it was called with {type(dynamics).__name__}")
    return dynamics
