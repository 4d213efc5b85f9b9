"""Results of fits and of searches for plans, made by hand instead of by a search."""

from typing import Any

import jax
import jax.numpy as jnp
from recorded import pendulum_plant

from jaxdyn import State
from jaxdyn.control import ControlResult, Plan, Solution
from jaxdyn.control.plan import Multipliers
from jaxdyn.control.solution import Stats
from jaxdyn.identify import FitResult, Parameter, Parameters
from jaxdyn.identify.fitting import Fit
from jaxdyn.identify.least_squares import Unknowns
from jaxdyn.identify.solver import Search


class Ended(Search):
    """A search with given results."""

    unknowns: Unknowns
    loss: jax.Array
    iterations: jax.Array
    result: jax.Array


def ended_fit(loss: Any = 2.5, result: Any = FitResult.SUCCESSFUL.value, history: Any = None) -> Fit:
    """A fit of mass and offset of a pendulum with these losses and codes, after 7 steps."""
    parameters = Parameters(pendulum_plant(), [Parameter("system.model.mass"), Parameter("inputs.offset")])
    loss = jnp.asarray(loss)
    x = jnp.broadcast_to(parameters.initial + 0.5, (*loss.shape, 2))
    return Fit(parameters, Ended(Unknowns(x, None), loss, jnp.full(loss.shape, 7), jnp.asarray(result)), history)


def unfinished_solution() -> Solution:
    """A plan of five steps for a mechanism with two joints, after 7 iterations; the cost is 1.25."""
    plan = Plan(State(jnp.zeros((6, 2)), jnp.zeros((6, 2))), jnp.ones((5, 2)), jnp.zeros(0))
    multipliers = Multipliers(jnp.zeros((5, 0)), jnp.zeros(2), jnp.asarray(1.0))
    result, stats = jnp.asarray(ControlResult.OUT_OF_STEPS.value), Stats(jnp.asarray(7))
    return Solution(plan, jnp.zeros((5, 2, 4)), multipliers, jnp.asarray(1.25), jnp.asarray(1e-3), result, stats)
