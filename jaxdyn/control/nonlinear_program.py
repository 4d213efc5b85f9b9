"""Sparse nonlinear programs, and their solution by Ipopt, an interior-point method, through ipyopt.

    minimize    f(z)
    such that   lower <= z <= upper,   g_lower <= g(z) <= g_upper

Sparse derivatives are given as triplets (row, column, value); values with the same row and column are added.
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from jaxdyn.control.solution import ControlResult

Places = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class NonlinearProgram:
    """A nonlinear program in n variables z with m constraints g.

    Attributes:
        lower, upper: Bounds of z; infinite where z is not bounded.
        g_lower, g_upper: Bounds of g; they are equal for equality constraints.
        values: Function values(z) that returns f and g.
        slopes: Function slopes(z) that returns the gradient of f and the nonzero values of the Jacobian of g.
        curvature: Function curvature(z, weight, multipliers) that returns the nonzero values in the lower triangle of the Hessian
            of the Lagrangian weight f + multipliers . g.
        jacobian_places, hessian_places: Rows and columns of the nonzero values of the Jacobian and of the Hessian.
    """

    lower: np.ndarray
    upper: np.ndarray
    g_lower: np.ndarray
    g_upper: np.ndarray
    values: Callable[[np.ndarray], tuple[Any, Any]]
    slopes: Callable[[np.ndarray], tuple[Any, Any]]
    curvature: Callable[[np.ndarray, float, np.ndarray], Any]
    jacobian_places: Places
    hessian_places: Places


class Minimum(NamedTuple):
    """The point at which a search by Ipopt ended.

    Attributes:
        z: Variables.
        cost: Value of f.
        violation: Largest violation of a constraint.
        multipliers: Multipliers of g, positive where g is at its upper bound.
        result: Outcome of the search.
        iterations: Number of iterations.
    """

    z: np.ndarray
    cost: float
    violation: float
    multipliers: np.ndarray
    result: ControlResult
    iterations: int


# Ipopt's ApplicationReturnStatus; for all other values the plan is not a solution.
_RESULTS = {
    0: ControlResult.SUCCESSFUL,
    2: ControlResult.INFEASIBLE,
    -1: ControlResult.OUT_OF_STEPS,
    -13: ControlResult.NOT_FINITE,
}
_TOO_FEW_NUMBERS = -10


def minimized(
    program: NonlinearProgram,
    start: np.ndarray,
    *,
    tolerance: float,
    feasibility: float,
    max_steps: int,
    print_level: int = 0,
) -> Minimum:
    """Solve a nonlinear program by Ipopt.

    Args:
        program: Program to solve.
        start: Initial guess of z.
        tolerance: Largest error of the optimality conditions that a solution may have, as scaled by Ipopt.
        feasibility: Largest violation of a constraint that a solution may have.
        max_steps: Maximum number of iterations.
        print_level: Amount of output of Ipopt, 0 to 12.

    Raises:
        ImportError: ipyopt is not installed.
        ValueError: There are more equations than free variables.

    Source: Waechter and Biegler 2006.
    """
    ipyopt = require_ipyopt()
    # Ipopt requests the parts of a result separately.
    values, slopes = (_remembered(function) for function in (program.values, program.slopes))
    done, errors = [0], []

    def guarded(function):
        # An error must not pass through Ipopt, which would ignore it: NaN stops Ipopt, and the error is raised below.
        def numbers(*given):
            if errors:
                return np.nan
            try:
                return np.asarray(function(*given))
            except BaseException as error:
                errors.append(error)
                return np.nan

        return numbers

    def filled(function):
        numbers = guarded(function)

        def fill(*given):
            given[-1][:] = numbers(*given[:-1])

        return fill

    def count(mode, iteration, *_):
        done[0] = iteration
        return not errors

    cost = guarded(lambda z: values(z)[0])
    m = len(program.g_lower)
    problem = ipyopt.Problem(
        len(start),
        program.lower,
        program.upper,
        m,
        program.g_lower,
        program.g_upper,
        program.jacobian_places,
        program.hessian_places,
        lambda z: float(cost(z)),
        filled(lambda z: slopes(z)[0]),
        filled(lambda z: values(z)[1]),
        filled(lambda z: slopes(z)[1]),
        filled(lambda z, multipliers, fraction: program.curvature(z, fraction, multipliers)),
        intermediate_callback=count,
        ipopt_options={
            "tol": tolerance,
            "constr_viol_tol": feasibility,
            "acceptable_iter": 0,  # approximate solutions are not accepted
            "honor_original_bounds": "yes",
            "check_derivatives_for_naninf": "yes",
            "max_iter": max_steps,
            "print_level": print_level,
            "sb": "yes",
        },
    )
    z, multipliers = np.array(start, np.float64), np.zeros(m)
    status = problem.solve(z, mult_g=multipliers, mult_x_L=np.zeros(len(z)), mult_x_U=np.zeros(len(z)))[2]
    if errors:
        raise errors[0]
    if status == _TOO_FEW_NUMBERS:
        equations, free = int(np.sum(program.g_lower == program.g_upper)), int(np.sum(program.lower < program.upper))
        raise ValueError(
            f"{equations} equations, including the dynamics, for {free} free variables; remove or relax a constraint"
        )
    f, g = values(z)
    off = np.maximum(program.g_lower - np.asarray(g), np.asarray(g) - program.g_upper)
    violation = float(np.max(off, initial=0.0))
    return Minimum(z, float(f), violation, multipliers, _RESULTS.get(status, ControlResult.STUCK), done[0])


def require_ipyopt() -> Any:
    """Import the optional module ipyopt.

    Raises:
        ImportError: ipyopt is not installed.
    """
    try:
        import ipyopt
    except ImportError:
        raise ImportError('Collocation needs Ipopt; install it with pip install "jaxdyn[nlp]"') from None
    return ipyopt


def _remembered(function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """The function with a cache of its last result."""
    last = lru_cache(maxsize=1)(lambda content: function(np.frombuffer(content)))
    return lambda z: last(z.tobytes())
