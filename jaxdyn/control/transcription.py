"""Direct collocation: a control problem as a sparse nonlinear program.

The decision variables z are the states, the controls and the design parameters. The N intervals of length h are separated by nodes
(knots) t_k; the collocation scheme defines the collocation points t_j of an interval. Since states may lie on manifolds, each state
is represented by a step w in tangent coordinates, which leads from the state of the initial guess (its origin) to the state. Each
node and each collocation point inside an interval has one step w.

In interval k let x_k be the state at the left node, X_j the other states of the interval (collocation points and right node),
xi_j = difference(x_k, X_j) their displacements from x_k in tangent coordinates, and F_j = h d(xi_j)/dt the scaled time derivatives
at the collocation points. The defect constraints and the cost are

    sum over i of steps[r, i] xi_i - sum over j of rates[r, j] F_j = 0       for each row r of the scheme's matrices
    cost = sum over k, j of weights[j] h l(t_j, X_j, u_j) + phi(T, x_N)

The cost and all constraints are fixed linear combinations of the values of functions of a few variables each: one `Group` of them
belongs to the first state, one to the displacements, one to the collocation points and one to the last state. Automatic
differentiation computes exact derivatives of these functions, for all members of a group at once.
Source: Hargraves and Paris 1987; Betts 2010; Munthe-Kaas 1999 (steps on manifolds).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.control.nonlinear_program import NonlinearProgram
from jaxdyn.control.plan import Plan, initial_design
from jaxdyn.control.problem import (
    AnyState,
    ControlProblem,
    Dynamics,
    end_constraints,
    final_cost,
    inequalities,
    path_constraints,
    running_cost,
)
from jaxdyn.control.scheme import Scheme, scheme_of


class Layout(NamedTuple):
    """Indices of the states and controls of N intervals, each of which has s collocation points and S unknown states.

    The unknown states of an interval are those after its left node: states at interior points, and the state at the right node.

    Attributes:
        start: Index of the state at the left node of each interval (N,).
        place: Indices of the unknown states of each interval (N, S).
        point: Indices of the states at the collocation points (N, s).
        control: Indices of the controls at the collocation points (N, s).
        counted: Mask of the points whose path constraints are imposed (N, s). At a node that two intervals share, path constraints
            are imposed once.
    """

    start: np.ndarray
    place: np.ndarray
    point: np.ndarray
    control: np.ndarray
    counted: np.ndarray


class Group(NamedTuple):
    """Values function(data, y) of many members, each of which depends on a few of the variables z.

    Attributes:
        function: The function, which returns a vector.
        data: Its first arguments, with a leading axis of members.
        columns: Indices of y in z (members, length of y).
    """

    function: Callable[[Any, Array], Array]
    data: Any
    columns: np.ndarray


class Transcription(eqx.Module):
    """A control problem as a nonlinear program by a collocation scheme, with state variables relative to an initial guess.

    Attributes:
        problem: The control problem.
        origins: The N S + 1 states of the initial guess, from which the state variables are steps.
        points: Collocation points of the scheme, as fractions of an interval.
        straight: The nonzero entries of the Jacobian (nx, 2 nx) of difference(a, b) with respect to steps of a and b if this
            Jacobian is constant, as for vector states; None for states on manifolds.
    """

    problem: ControlProblem
    origins: AnyState
    points: tuple[float, ...] = eqx.field(static=True)
    straight: tuple[tuple[bool, ...], ...] | None = eqx.field(static=True)

    @property
    def scheme(self) -> Scheme:
        return scheme_of(self.points)

    @property
    def layout(self) -> Layout:
        scheme, N = self.scheme, self.problem.steps
        s, S = len(scheme.points), len(scheme.places)
        stride = s - 1 if scheme.at_nodes else s
        start = np.arange(N) * S
        counted = np.ones((N, s), bool)
        counted[:-1, -1] = not scheme.at_nodes
        return Layout(
            start,
            start[:, None] + 1 + np.arange(S),
            start[:, None] + np.arange(s) + (0 if scheme.at_nodes else 1),
            stride * np.arange(N)[:, None] + np.arange(s),
            counted,
        )

    @property
    def counts(self) -> tuple[int, int]:
        """The number of states and the number of control vectors in the variables z."""
        layout = self.layout
        return int(layout.place[-1, -1]) + 1, int(layout.control[-1, -1]) + 1

    @property
    def lead(self) -> int:
        """Number of coordinates of the left node on which F_j depends: nx on manifolds; 0 for vectors, where F_j = h f(X_j)."""
        return 0 if self.straight is not None else self.problem.dynamics.nx

    @property
    def curved(self) -> tuple[int, ...]:
        """Indices of the groups with second derivatives."""
        return (0, 1, 2, 3) if self.straight is None else (0, 2, 3)

    def parts(self, z: Any) -> tuple[Any, Any, Any]:
        """Splits the variables z into the steps of the states, the controls, and the design parameters."""
        (states, controls), nx, nu = self.counts, self.problem.dynamics.nx, self.problem.dynamics.nu
        ends = states * nx, states * nx + controls * nu
        return z[: ends[0]].reshape(states, nx), z[ends[0] : ends[1]].reshape(controls, nu), z[ends[1] :]

    def groups(self) -> tuple[Group, Group, Group, Group]:
        """The first state, all displacements xi in the order (N, S), all collocation points in the order (N, s), the last state."""
        (states, controls), nx, nu = self.counts, self.problem.dynamics.nx, self.problem.dynamics.nu
        layout = self.layout
        place, point, control = (indices.ravel() for indices in (layout.place, layout.point, layout.control))
        before_place, before_point = (np.repeat(layout.start, a.shape[1]) for a in (layout.place, layout.point))
        time = (np.arange(self.problem.steps)[:, None] + np.array(self.points)).ravel()
        ends = np.array([0, states - 1])
        z = np.arange(states * nx + controls * nu + self.problem.size)
        steps, u, design = self.parts(z)
        designs = np.broadcast_to(design, (len(point), len(design)))
        first, last = np.concatenate([steps[ends], np.stack([design] * 2)], axis=1)[:, None]
        between = np.concatenate([steps[before_place], steps[place]], axis=1)
        at_points = np.concatenate([steps[before_point, : self.lead], steps[point], u[control], designs], axis=1)
        return (
            Group(self.first, _at(self.origins, ends[:1]), first),
            Group(self.step, (_at(self.origins, before_place), _at(self.origins, place)), between),
            Group(self.flow, (time, _at(self.origins, before_point), _at(self.origins, point)), at_points),
            Group(self.last, _at(self.origins, ends[1:]), last),
        )

    def first(self, origin: AnyState, y: Float[Array, "ne"]) -> Float[Array, "nx"]:
        """Residual of the initial condition: the difference between the initial state of the problem and the first state."""
        nx, dynamics = self.problem.dynamics.nx, self.problem.dynamics
        placed = self.problem.with_design(y[nx:])
        return dynamics.difference(placed.initial, dynamics.retract(origin, y[:nx]))

    def step(self, origins: tuple[AnyState, AnyState], y: Float[Array, "both"]) -> Float[Array, "nx"]:
        """The displacement xi between two states of an interval; y holds the steps of the first and second state."""
        return difference_after(self.problem.dynamics, *origins, y)

    def flow(self, data: tuple[Array, AnyState, AnyState], y: Float[Array, "ny"]) -> Float[Array, "values"]:
        """Running cost, scaled time derivative F, and path constraints at a collocation point.

        Args:
            data: Time of the point, in units of h, and the origins of the states at the left node of the interval and at the point.
            y: The variables of the point: step of the left node (`lead` entries), step of the state, controls, design parameters.
        """
        time, before, here = data
        nx, nu, lead = self.problem.dynamics.nx, self.problem.dynamics.nu, self.lead
        u, design = y[lead + nx : lead + nx + nu], y[lead + nx + nu :]
        placed = self.problem.with_design(design)
        dynamics, dt = placed.dynamics, placed.dt
        x = dynamics.retract(here, y[lead : lead + nx])
        origin = dynamics.retract(before, y[:lead]) if lead else before
        rate = dynamics.rate(x, u, time * dt)

        def after(time):
            return dynamics.difference(origin, dynamics.retract(x, time * rate))

        _, seen = jax.jvp(after, (jnp.zeros((), u.dtype),), (jnp.ones((), u.dtype),))
        cost, constraints = running_cost(placed, time, x, u), path_constraints(placed, time, x, u)
        return jnp.concatenate([cost[None], dt * seen, constraints])

    def last(self, origin: AnyState, y: Float[Array, "ne"]) -> Float[Array, "values"]:
        """Final cost, and values of the final constraints."""
        nx = self.problem.dynamics.nx
        placed = self.problem.with_design(y[nx:])
        x = placed.dynamics.retract(origin, y[:nx])
        return jnp.concatenate([final_cost(placed, x)[None], end_constraints(placed, x)])

    def start(self, controls: Float[Array, "N nu"], design: Float[Array, "P"]) -> np.ndarray:
        """The variables of the initial guess: all steps of states are zero, and controls are constant in each interval.

        The controls at a node that two intervals share are the mean of the controls of both intervals.
        """
        (states, count), layout = self.counts, self.layout
        sums, times = np.zeros((count, self.problem.dynamics.nu)), np.zeros((count, 1))
        np.add.at(sums, layout.control, np.asarray(controls)[:, None])
        np.add.at(times, layout.control, 1.0)
        steps = np.zeros(states * self.problem.dynamics.nx)
        return np.concatenate([steps, (sums / times).ravel(), np.asarray(design)])


class Sums:
    """The cost and the constraints of a transcription as linear combinations of the values of its groups.

    Attributes:
        entries: Indices of the values of each group, (members, values of one member), among the values of all groups.
        cost: Factor of each value in the cost.
        row, entry, factor: The terms of the constraints: constraint `row` contains `factor` times the value `entry`.
        equations: The number of constraints of the motion, before those along the path: initial condition and defects.
        path: The number of constraints along the path, before those at the end.
    """

    def __init__(self, t: Transcription, m: int, e: int):
        scheme, layout, nx = t.scheme, t.layout, t.problem.dynamics.nx
        (N, S), s = layout.place.shape, layout.point.shape[1]
        shapes = [(1, nx), (N * S, nx), (N * s, 1 + nx + m), (1, 1 + e)]
        starts = np.cumsum([0, *(a * b for a, b in shapes)])
        self.entries = [
            start + np.arange(a * b).reshape(a, b) for start, (a, b) in zip(starts[:-1], shapes, strict=True)
        ]
        first, step, flow, last = self.entries
        step, flow = step.reshape(N, S, nx), flow.reshape(N, s, 1 + nx + m)
        self.cost = np.zeros(starts[-1])
        self.cost[flow[:, :, 0]] = scheme.weights
        self.cost[last[0, 0]] = 1.0
        path = flow[layout.counted][:, 1 + nx :]
        self.equations, self.path = nx + step.size, path.size
        motion = nx + np.arange(step.size).reshape(step.shape)[:, :, None]
        terms = [
            (np.arange(nx), first[0], 1.0),
            (motion, step[:, None], scheme.steps[:, :, None]),
            (motion, flow[:, None, :, 1 : 1 + nx], -scheme.rates[:, :, None]),
            (self.equations + np.arange(path.size).reshape(path.shape), path, 1.0),
            (self.equations + path.size + np.arange(e), last[0, 1:], 1.0),
        ]
        row, entry, factor = zip(*(map(np.ravel, np.broadcast_arrays(*term)) for term in terms), strict=True)
        used = np.flatnonzero(np.concatenate(factor))
        self.row, self.entry, self.factor = (np.concatenate(part)[used] for part in (row, entry, factor))
        self.count = self.equations + path.size + e

    def multipliers(self, cost_weight: float, multipliers: np.ndarray) -> list[np.ndarray]:
        """Multipliers of the values of each group in cost_weight * cost + multipliers . constraints."""
        pulled = np.bincount(self.entry, self.factor * multipliers[self.row], len(self.cost))
        return [(cost_weight * self.cost + pulled)[entries] for entries in self.entries]


def program_of(t: Transcription) -> NonlinearProgram:
    """Bounds, functions and sparsity patterns in the form that a solver of nonlinear programs takes.

    Raises:
        ValueError: Bounds of the controls depend on the design parameters.
    """
    problem, groups = t.problem, t.groups()
    lower, upper, slope = _bounds(problem)
    if problem.size and np.any(slope):
        raise ValueError(
            "bounds of the controls depend on the design parameters; state them as Inequality constraints instead"
        )
    (states, controls), nx, design = t.counts, problem.dynamics.nx, problem.design_bounds
    free = np.full(states * nx, np.inf)
    may_path, may_end = inequalities(problem)
    sums = Sums(t, len(may_path), len(may_end))
    at_points = np.resize(np.where(may_path, -np.inf, 0.0), sums.path)
    g_lower = np.concatenate([np.zeros(sums.equations), at_points, np.where(may_end, -np.inf, 0.0)])

    # The Jacobian of the values of all groups, one nonzero entry after the other, in the order of the values.
    pairs = list(zip(groups, sums.entries, strict=True))
    nonzero = [np.ones((*entries.shape, group.columns.shape[1]), bool) for group, entries in pairs]
    if t.straight is not None:
        nonzero[1][:] = t.straight
    at = [np.broadcast_arrays(entries[:, :, None], group.columns[:, None]) for group, entries in pairs]
    value, column = (np.concatenate([both[k][mask] for both, mask in zip(at, nonzero, strict=True)]) for k in (0, 1))
    count = np.bincount(value, minlength=len(sums.cost))
    terms = count[sums.entry]  # of each term of the constraints
    which = np.repeat(np.cumsum(count)[sums.entry] - np.cumsum(terms), terms) + np.arange(terms.sum())
    factor = np.repeat(sums.factor, terms)
    triangles = [_triangle(groups[k].columns) for k in t.curved]
    rows, columns = (np.concatenate([triangle[k].ravel() for triangle in triangles]) for k in (0, 1))

    def values(z):
        found = np.concatenate([np.ravel(part) for part in _values(t, z)])
        return found @ sums.cost, np.bincount(sums.row, sums.factor * found[sums.entry], sums.count)

    def slopes(z):
        found = np.concatenate([np.asarray(part)[mask] for part, mask in zip(_slopes(t, z), nonzero, strict=True)])
        gradient = np.bincount(column, sums.cost[value] * found, len(z))
        return gradient, factor * found[which]

    def curvature(z, cost_weight, multipliers):
        found = _curvature(t, z, sums.multipliers(cost_weight, multipliers))
        parts = [np.asarray(H)[:, i, j] * twice for H, (_, _, i, j, twice) in zip(found, triangles, strict=True)]
        return np.concatenate([part.ravel() for part in parts])

    return NonlinearProgram(
        np.concatenate([-free, np.tile(lower, controls), design[0]]),
        np.concatenate([free, np.tile(upper, controls), design[1]]),
        g_lower,
        np.zeros_like(g_lower),
        values,
        slopes,
        curvature,
        (np.repeat(sums.row, terms), column[which]),
        (rows, columns),
    )


@stored_jit
def _values(t: Transcription, z: Float[Array | np.ndarray, "n"]) -> list[Array]:
    return [_of(group, lambda f: f, z) for group in t.groups()]


@stored_jit
def _slopes(t: Transcription, z: Float[Array | np.ndarray, "n"]) -> list[Array]:
    return [_of(group, lambda f: lambda data, y: jax.jacfwd(lambda y: f(data, y))(y), z) for group in t.groups()]


@stored_jit
def _curvature(
    t: Transcription, z: Float[Array | np.ndarray, "n"], multipliers: list[Array | np.ndarray]
) -> list[Array]:
    """Hessians of the values of all groups with second derivatives, weighted by multipliers."""

    def weighted(f):
        return lambda data, y, weights: jax.hessian(lambda y: f(data, y) @ weights)(y)

    groups = t.groups()
    return [_of(groups[k], weighted, z, multipliers[k]) for k in t.curved]


def _of(group: Group, derived: Callable[[Callable], Callable], z: Any, *rest: Any) -> Array:
    """Values of a function derived from that of a group, for all members."""
    each = per_sample(derived(group.function), name=f"collocation, {group.function.__name__}")
    return jax.vmap(each)(group.data, z[group.columns], *rest)


def rates_at_points(t: Transcription, z: Float[Array | np.ndarray, "n"]) -> Float[Array, "N s nx"]:
    """The scaled time derivatives F at all collocation points."""
    flows = _of(t.groups()[2], lambda f: f, z)
    return flows[:, 1 : 1 + t.problem.dynamics.nx].reshape(*t.layout.point.shape, -1)


def transcribed(problem: ControlProblem, plan: Plan, points: tuple[float, ...]) -> Transcription:
    """The transcription of a problem with a plan as initial guess; states at interior points are interpolated between nodes."""
    straight = _constant_jacobian(problem.dynamics, problem.initial)
    origins = _between(problem.dynamics, plan.states, scheme_of(points).places)
    return Transcription(problem, origins, points, straight)


@stored_jit
def _between(dynamics: Dynamics, states: AnyState, places: tuple[float | Array, ...]) -> AnyState:
    def interval(x, following):
        step = dynamics.difference(x, following)
        return [dynamics.retract(x, c * step) for c in places]

    inner = jax.vmap(interval)(_at(states, slice(-1)), _at(states, slice(1, None)))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves, 1).reshape(-1, *leaves[0].shape[1:]), *inner)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[:1], rest]), states, stacked)


def difference_after(dynamics: Dynamics, a: AnyState, b: AnyState, y: Float[Array, "both"]) -> Float[Array, "nx"]:
    """The difference from a to b after each has been changed by a step; y holds the step of a, followed by the step of b."""
    nx = dynamics.nx
    return dynamics.difference(dynamics.retract(a, y[:nx]), dynamics.retract(b, y[nx:]))


def _constant_jacobian(dynamics: Dynamics, x: AnyState) -> tuple[tuple[bool, ...], ...] | None:
    """Nonzero entries of the Jacobian of a difference with respect to steps of both states, or None if it depends on the states.

    The traced program of the Jacobian decides: it is constant if no output depends on an input.
    """
    jacobian = jax.jacfwd(lambda a, b, y: difference_after(dynamics, a, b, y), argnums=2)
    y = jnp.zeros(2 * dynamics.nx, jax.tree.leaves(x)[0].dtype)
    program = jax.make_jaxpr(jacobian)(x, x, y).jaxpr
    moving = set(program.invars)
    for equation in program.eqns:
        if any(v in moving for v in equation.invars if not hasattr(v, "val")):
            moving.update(equation.outvars)
    if any(v in moving for v in program.outvars if not hasattr(v, "val")):
        return None
    return tuple(tuple(row) for row in (np.asarray(stored_jit(jacobian)(x, x, y)) != 0.0).tolist())


@stored_jit
def _bounds(problem: ControlProblem) -> tuple[Array, Array, Array]:
    def of(design):
        placed = problem.with_design(design)
        return placed.lower, placed.upper

    design = initial_design(problem)
    lower, upper = of(design)
    return lower, upper, jnp.stack(jax.jacfwd(of)(design))


def _at(states: AnyState, index) -> AnyState:
    return jax.tree.map(lambda leaf: leaf[index], states)


def _triangle(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and columns of the lower triangles of symmetric blocks, the indices i and j of their entries in a block, and factors.

    If a variable occurs twice in a block, the entries (i, j) and (j, i) both add to the same diagonal entry of the sum.
    """
    i, j = np.tril_indices(columns.shape[-1])
    a, b = columns[:, i], columns[:, j]
    return np.maximum(a, b), np.minimum(a, b), i, j, np.where((a == b) & (i != j), 2.0, 1.0)
