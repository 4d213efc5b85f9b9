"""Direct collocation: states and controls are the variables of a sparse nonlinear program, which is solved by Ipopt."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute import stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.control.nonlinear_program import Minimum, minimized, require_casadi
from jaxdyn.control.plan import Multipliers, Plan
from jaxdyn.control.problem import AnyState, ControlProblem, Controls, Dynamics, Time, inequalities
from jaxdyn.control.scheme import SchemeName, collocation_points, polynomial, scheme_of
from jaxdyn.control.solution import Solution, Solver, Stats
from jaxdyn.control.transcription import Transcription, program_of, rates_at_points, transcribed
from jaxdyn.control.verification import PARTS
from jaxdyn.mechanism.quantity import POSITIVE, plain, quantity


class CollocatedSolution(Solution):
    """A solution of direct collocation, with its states and controls in continuous time.

    Attributes:
        dynamics: Dynamics of the problem, evaluated at the design parameters of the plan.
        duration: Duration T (s).
        points: Collocation points, as fractions of the length h of an interval.
        point_controls: Controls at the collocation points of each interval.
        rates: Time derivatives of the state at the collocation points, multiplied by the length h of an interval, in tangent
            coordinates at the left node of the interval.
    """

    dynamics: Dynamics
    duration: Float[Array, ""]
    points: tuple[float, ...] = eqx.field(static=True, converter=plain)
    point_controls: Float[Array, "N s nu"]
    rates: Float[Array, "N s nx"]

    def control(self, t: Time | float) -> Controls:
        """Controls u(t): the polynomial through the controls at the collocation points. Between them it may violate bounds."""
        k, fraction = self._place(t)
        return polynomial(scheme_of(self.points).values, fraction, self.point_controls[k])

    def state(self, t: Time | float) -> AnyState:
        """State x(t): the state at the left node plus the integral of the polynomial through the time derivatives of the state."""
        k, fraction = self._place(t)
        step = polynomial(scheme_of(self.points).integrals, fraction, self.rates[k])
        return self.dynamics.retract(jax.tree.map(lambda leaf: leaf[k], self.value.states), step)

    def motion(self, problem: ControlProblem) -> tuple[ControlProblem, Plan, Float[Array, "N nu nx"]]:
        """The controls vary within an interval, so that the motion is checked in several steps for each of them."""
        steps, dtype = PARTS * problem.steps, self.rates.dtype
        middle = (jnp.arange(steps, dtype=dtype) + 0.5) * self.duration / steps
        states = jax.vmap(self.state)(jnp.arange(steps + 1, dtype=dtype) * self.duration / steps)
        plan = Plan(states, jax.vmap(self.control)(middle), self.value.design)
        return dataclasses.replace(problem, steps=steps), plan, jnp.repeat(self.feedback, PARTS, axis=0)

    def _place(self, t: Time | float) -> tuple[Array, Array]:
        N = self.rates.shape[0]
        where = jnp.asarray(t, self.rates.dtype) * N / self.duration
        k = jnp.clip(where.astype(int), 0, N - 1)
        return k, where - k.astype(where.dtype)


class Collocation(Solver):
    """Direct collocation, solved by the interior-point method Ipopt.

    The duration T is divided into N intervals. The dynamics (`Dynamics.rate`) and the path constraints are satisfied at the
    collocation points of each interval, and running costs are integrated by the quadrature of these points. The schemes "trapezoid"
    (order 2) and "hermite_simpson" (order 4) have points at both ends of each interval, so that controls are continuous. The scheme
    "legendre_gauss" (order 2 * degree) has only interior points, so that controls may jump between intervals. For states on
    manifolds the schemes have the same orders.

    The plan of a solution holds the mean controls of each interval; `CollocatedSolution` describes the motion in continuous time.

    Ipopt runs outside JAX, so `solve` cannot be transformed (`jit`, `vmap`, `grad`). The derivatives are compiled once for all
    problems with the same cost, constraint and dynamics functions. The tolerances require double precision. Ipopt needs CasADi:
    `pip install "jaxdyn[nlp]"`.

    Attributes:
        scheme: Collocation scheme, which relates the states in an interval to their time derivatives.
        degree: Number of collocation points in each interval of "legendre_gauss"; it does not affect the other schemes.
        tolerance: Largest residual of the KKT conditions that a solution may have, as scaled by Ipopt.
        feasibility: Largest violation of dynamics and constraints that a solution may have.
        print_level: Amount of output of Ipopt, from 0 to 12.

    Source: Betts 2010; Kelly 2017; Waechter and Biegler 2006 (Ipopt).
    """

    kind: ClassVar[str] = "collocation"

    scheme: SchemeName = eqx.field(static=True, kw_only=True, default="legendre_gauss")
    degree: int = eqx.field(static=True, converter=plain, kw_only=True, default=3, metadata=POSITIVE)
    tolerance: float = eqx.field(static=True, converter=plain, kw_only=True, default=1e-9, metadata=POSITIVE)
    feasibility: float = eqx.field(static=True, converter=plain, kw_only=True, default=1e-8, metadata=POSITIVE)
    print_level: int = eqx.field(
        static=True, converter=plain, kw_only=True, default=0, metadata=quantity(minimum=0.0, maximum=12.0)
    )

    def __check_init__(self):
        collocation_points(self.scheme, self.degree)

    def check(self, problem: ControlProblem) -> None:
        if problem.lower.dtype != jnp.float64:
            raise ValueError("collocation needs double precision; build the problem from float64 arrays")
        require_casadi()

    @announced_as("the search")
    def solve(self, problem: ControlProblem, initial: Plan, max_steps: int) -> CollocatedSolution:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((problem, initial))):
            raise TypeError(
                "Collocation runs Ipopt outside JAX and cannot be transformed by jit, vmap or grad; "
                "call solve directly, in a loop for several plans"
            )
        if initial.controls.shape != (problem.steps, problem.dynamics.nu):
            raise ValueError(
                f"controls of the plan have shape {initial.controls.shape}; "
                f"give shape {(problem.steps, problem.dynamics.nu)}, one row for each time step"
            )
        points = collocation_points(self.scheme, self.degree)
        transcription = transcribed(problem, initial, points)
        found = minimized(
            program_of(transcription),
            transcription.start(initial.controls, initial.design),
            tolerance=self.tolerance,
            feasibility=self.feasibility,
            max_steps=max_steps,
            print_level=self.print_level,
        )
        return _solution(transcription, found)


def _solution(t: Transcription, found: Minimum) -> CollocatedSolution:
    plan, multipliers, placed, controls, rates = _read(t, found.z, found.multipliers)
    N, nu, nx = t.problem.steps, t.problem.dynamics.nu, t.problem.dynamics.nx
    return CollocatedSolution(
        plan,
        jnp.zeros((N, nu, nx), rates.dtype),
        multipliers,
        jnp.asarray(found.cost),
        jnp.asarray(found.violation),
        jnp.asarray(found.result.value),
        Stats(jnp.asarray(found.iterations)),
        placed.dynamics,
        placed.duration,
        t.points,
        controls,
        rates,
    )


@stored_jit
def _read(t: Transcription, z: Float[Array | np.ndarray, "n"], multipliers: Float[Array | np.ndarray, "m"]):
    """Plan, multipliers, problem with the design parameters, controls at points, and scaled time derivatives at points."""
    steps, controls, design = t.parts(z)
    layout, weights = t.layout, jnp.asarray(t.scheme.weights, z.dtype)
    nodes = np.append(layout.start, layout.place[-1, -1])
    origins = jax.tree.map(lambda leaf: leaf[nodes], t.origins)
    states = jax.vmap(t.problem.dynamics.retract)(origins, steps[nodes])
    at_points = controls[layout.control]
    means = jnp.sum(weights[None, :, None] * at_points, axis=1)
    intervals, m = np.nonzero(layout.counted)[0], len(inequalities(t.problem)[0])
    path_begins = (1 + layout.place.size) * t.problem.dynamics.nx
    path, end = jnp.split(multipliers[path_begins:], [len(intervals) * m])
    path = jnp.zeros((t.problem.steps, m), z.dtype).at[intervals].add(path.reshape(len(intervals), m))
    found = Multipliers(path, end, jnp.zeros((), z.dtype))
    return Plan(states, means, design), found, t.problem.with_design(design), at_points, rates_at_points(t, z)
