"""The table [rates] of `jaxdyn optimize`: the problem whose controls are the rates of the controls, and its plans.

The solver is given the problem of `with_rates`, whose states (x, u) contain the controls. All files, pictures and metrics describe
the plan of the mechanism, with states x and controls u.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import ControlProblem, MultibodyDynamics
from jaxdyn.control.rates import with_rates, without_rates
from jaxdyn.control.solution import Solution
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.component_values import check_bounds, each
from jaxdyn.jobs.optimize.config import OptimizeConfig, RatesConfig


def with_rates_of(config: OptimizeConfig, problem: ControlProblem) -> ControlProblem:
    """The problem that the solver solves: the problem of the mechanism, with rates as controls if the config has a table [rates].

    Raises:
        ConfigError: A value of the table does not fit the mechanism, or the solver cannot be used with rates.
    """
    if config.rates is None:
        return problem
    if config.solver.kind == "collocation":
        raise ConfigError(
            'solver: "collocation" changes the controls within the time steps, so that they do not follow from [rates]; use '
            '"multiple_shooting"'
        )
    weights, initial, lower, upper = _values(config.rates, problem)
    below, above = np.asarray(problem.lower), np.asarray(problem.upper)
    check_bounds(lower, upper, "rates")
    outside = (initial < below) | (initial > above)
    if np.any(outside):
        k = int(np.argmax(outside))
        raise ConfigError(
            f"rates.initial: {initial[k]:g} of control {k} is not within its bounds, {below[k]:g} to {above[k]:g}; "
            "change it or the bounds"
        )
    weights, initial, lower, upper = (
        jnp.asarray(part, problem.lower.dtype) for part in (weights, initial, lower, upper)
    )
    return with_rates(problem, weights, initial, lower=lower, upper=upper)


def limited(config: OptimizeConfig, problem: ControlProblem, controls: np.ndarray) -> np.ndarray:
    """Controls that begin with the initial controls of the table [rates] and follow the given ones as fast as the bounds allow.

    Without the table, the given controls are returned. Controls have the shape (plans, N, nu).
    """
    if config.rates is None:
        return controls
    _, initial, lower, upper = _values(config.rates, problem)
    h = float(problem.dt)
    wanted = np.clip(controls, np.asarray(problem.lower), np.asarray(problem.upper))
    found = [np.broadcast_to(initial, wanted[:, 0].shape)]
    for k in range(1, problem.steps):
        found.append(found[-1] + np.clip(wanted[:, k] - found[-1], h * lower, h * upper))
    return np.stack(found, axis=1)


def of_mechanism(problem: ControlProblem, found: Solution) -> Solution:
    """The solution of the problem of the mechanism, from the solution of the problem with rates.

    The feedback gains of the solution are zero: the feedback of the rates depends on earlier deviations of the controls, so that it
    cannot be written as u_k + K_k (x - x_k).
    """
    states, u = without_rates(found.value.states)
    gains = jnp.zeros_like(found.feedback[:, :, : problem.dynamics.nx])
    plan = Plan(states, u, found.value.design)
    return eqx.tree_at(lambda s: (s.value, s.feedback), found, (plan, gains))


def _values(rates: RatesConfig, problem: ControlProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Weights, initial controls, and lower and upper bounds of the rates, one value for each control."""
    assert isinstance(problem.dynamics, MultibodyDynamics)
    system = problem.dynamics.system
    return (
        each(rates.weights, "nu", system, "rates.weights"),
        each(rates.initial, "nu", system, "rates.initial"),
        each(rates.lower, "nu", system, "rates.lower", -np.inf),
        each(rates.upper, "nu", system, "rates.upper", np.inf),
    )
