"""Sparse nonlinear programs, and their solution by Ipopt, an interior-point method, through CasADi.

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


# Ipopt's statuses; for all other ones the plan is not a solution.
_RESULTS = {
    "Solve_Succeeded": ControlResult.SUCCESSFUL,
    "Infeasible_Problem_Detected": ControlResult.INFEASIBLE,
    "Maximum_Iterations_Exceeded": ControlResult.OUT_OF_STEPS,
    "Invalid_Number_Detected": ControlResult.NOT_FINITE,
}


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
        ImportError: CasADi is not installed.
        ValueError: There are more equations than free variables.

    Source: Waechter and Biegler 2006.
    """
    casadi = require_casadi()
    n, m = len(start), len(program.g_lower)
    errors: list[BaseException] = []
    # Ipopt requests the parts of a result separately.
    values, slopes = (_remembered(function) for function in (program.values, program.slopes))
    of_jacobian = _Pattern.of(program.jacobian_places, (m, n))
    rows, columns = program.hessian_places
    of_hessian = _Pattern.of((columns, rows), (n, n))  # CasADi expects the upper triangle

    def function(name, inputs, outputs):
        """A function of CasADi. An input has a name and a length; an output has a name, a sparsity pattern and a function."""

        class Evaluated(casadi.Callback):
            def get_n_in(self):
                return len(inputs)

            def get_n_out(self):
                return len(outputs)

            def get_name_in(self, i):
                return inputs[i][0]

            def get_name_out(self, i):
                return outputs[i][0]

            def get_sparsity_in(self, i):
                return casadi.Sparsity.dense(inputs[i][1])

            def get_sparsity_out(self, i):
                return outputs[i][1]

            def has_eval_buffer(self):
                return True

            def eval_buffer(self, arguments, results):
                given = [None if x is None else np.frombuffer(x) for x in arguments]
                for (_, _, numbers), result in zip(outputs, results, strict=True):
                    if result is None:  # not requested
                        continue
                    filled = np.frombuffer(result)
                    filled[:] = np.nan
                    # An error must not pass through Ipopt, which would ignore it: NaN stops Ipopt, and the error is raised below.
                    try:
                        if not errors:
                            filled[:] = numbers(*given)
                    except BaseException as error:
                        errors.append(error)
                return 0

        found = Evaluated()
        found.construct(name, {})
        return found

    def sparsity(pattern):
        return casadi.Sparsity(*pattern.shape, pattern.starts.tolist(), pattern.rows.tolist())

    one, of_z, of_g = (casadi.Sparsity.dense(size) for size in (1, n, m))
    point = [("x", n), ("p", 0)]
    f = ("f", one, lambda z, _: values(z)[0])
    g = ("g", of_g, lambda z, _: values(z)[1])
    gradient = ("grad_f_x", of_z, lambda z, _: slopes(z)[0])
    jacobian = ("jac_g_x", sparsity(of_jacobian), lambda z, _: of_jacobian.summed(slopes(z)[1]))

    def of_lagrangian(z, _, weight, multipliers):
        return of_hessian.summed(program.curvature(z, weight.item(), multipliers))

    hessian = ("hess_gamma_x_x", sparsity(of_hessian), of_lagrangian)
    # CasADi does not keep these functions alive. It reports values that are not finite to Ipopt, whose own check of them
    # (check_derivatives_for_naninf) must stay off: after a reported failure it reads constraints that nobody has written.
    oracle = function("nlp", point, [f, g])
    derivatives = {
        "grad_f": function("nlp_grad_f", point, [f, gradient]),
        "jac_g": function("nlp_jac_g", point, [g, jacobian]),
        "hess_lag": function("nlp_hess_l", [*point, ("lam_f", 1), ("lam_g", m)], [hessian]),
    }
    solver = casadi.nlpsol(
        "solver",
        "ipopt",
        oracle,
        derivatives
        | {
            "no_nlp_grad": True,
            "print_time": False,
            "show_eval_warnings": False,
            "ipopt": {
                "tol": tolerance,
                "constr_viol_tol": feasibility,
                "acceptable_iter": 0,  # approximate solutions are not accepted
                "honor_original_bounds": "yes",
                "max_iter": max_steps,
                "print_level": print_level,
                "sb": "yes",
            },
        },
    )
    bounds = {"lbx": program.lower, "ubx": program.upper, "lbg": program.g_lower, "ubg": program.g_upper}
    found, stats = solver(x0=start, **bounds), solver.stats()
    if errors:
        raise errors[0]
    if stats["return_status"] == "NonIpopt_Exception_Thrown":  # CasADi looks for signals, too
        raise KeyboardInterrupt
    if stats["return_status"] == "Not_Enough_Degrees_Of_Freedom":
        equations, free = int(np.sum(program.g_lower == program.g_upper)), int(np.sum(program.lower < program.upper))
        raise ValueError(
            f"{equations} equations, including the dynamics, for {free} free variables; remove or relax a constraint"
        )
    z, multipliers = (found[name].full().ravel() for name in ("x", "lam_g"))
    cost, constraints = values(z)
    off = np.maximum(program.g_lower - np.asarray(constraints), np.asarray(constraints) - program.g_upper)
    result = _RESULTS.get(stats["return_status"], ControlResult.STUCK)
    return Minimum(z, float(cost), float(np.max(off, initial=0.0)), multipliers, result, stats["iter_count"])


class _Pattern(NamedTuple):
    """Places of the nonzero values of a matrix, column by column; values with the same row and column are added."""

    shape: tuple[int, int]
    starts: np.ndarray
    rows: np.ndarray
    place: np.ndarray

    @staticmethod
    def of(places: Places, shape: tuple[int, int]) -> "_Pattern":
        at, place = np.unique(np.ravel_multi_index(places[::-1], shape[::-1]), return_inverse=True)
        columns, rows = np.divmod(at, shape[0])
        return _Pattern(shape, np.searchsorted(columns, np.arange(shape[1] + 1)), rows, place)

    def summed(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.place, values, len(self.rows))


def require_casadi() -> Any:
    """Import the optional module casadi.

    Raises:
        ImportError: CasADi is not installed.
    """
    try:
        import casadi
    except ImportError:
        raise ImportError('Collocation needs Ipopt; install it with pip install "jaxdyn[nlp]"') from None
    return casadi


def _remembered(function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """The function with a cache of its last result."""
    last = lru_cache(maxsize=1)(lambda content: function(np.frombuffer(content)))
    return lambda z: last(z.tobytes())
