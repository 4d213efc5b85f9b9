"""Direct collocation: a control problem as a sparse nonlinear program.

The variables are states, controls and design parameters. States are steps w in tangent coordinates from those of a first plan, at
the nodes and, in each interval, at the points within it. With x_k the state at the node before, X_j the state at point or end j,
xi_j = difference(x_k, X_j), and F_j the rate of xi_j times h at points,

    steps xi = rates F                                 (matrices of the scheme, a row for each X_j to find)
    cost = sum over k, j of weights_j h l(t_j, X_j, u_j) + phi(T, x_N)

Derivatives are exact: those of single points, which the lane compiler takes many at once, are put in their places.
Source: Hargraves and Paris 1987; Betts 2010; Munthe-Kaas 1999 (steps on manifolds).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.control.nonlinear_program import NonlinearProgram
from jaxdyn.control.plan import Plan
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
from jaxdyn.lanes import Backend, lane_function, stored_jit
from jaxdyn.spatial.arrays import einsum


class Layout(NamedTuple):
    """Which states and controls belong to which of N intervals, with s points and S places of states to find in each.

    Attributes:
        start: Index of the state at the start of each interval (N,).
        place: Indices of the states to find (N, S).
        point, control: Indices of states and controls at the points (N, s).
        counted: Points whose constraints count; at nodes, those of one of the two adjacent intervals (N, s).
    """

    start: np.ndarray
    place: np.ndarray
    point: np.ndarray
    control: np.ndarray
    counted: np.ndarray


class Transcription(eqx.Module):
    """A control problem about a first plan, by a collocation scheme.

    Attributes:
        problem: Problem that is transcribed.
        origins: States from which steps are measured, N S + 1 of them.
        points: Points of the scheme.
        straight: The Jacobian (nx, 2 nx) of a difference by the steps of both states where it is constant, as it is of
            vectors; None on manifolds.
        backend: Compiler of the derivatives, see `lanes`.
    """

    problem: ControlProblem
    origins: AnyState
    points: tuple[float, ...] = eqx.field(static=True)
    straight: tuple[tuple[float, ...], ...] | None = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)

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
        """Numbers of states and of controls."""
        layout = self.layout
        return int(layout.place[-1, -1]) + 1, int(layout.control[-1, -1]) + 1

    @property
    def lead(self) -> int:
        """Number of coordinates by which a rate also depends on the state before it: only on manifolds."""
        return 0 if self.straight is not None else self.problem.dynamics.nx

    def parts(self, z: Float[Array, "n"]) -> tuple[Array, Array, Array]:
        """Steps of the states, controls, design."""
        (states, controls), nx, nu = self.counts, self.problem.dynamics.nx, self.problem.dynamics.nu
        ends = states * nx, states * nx + controls * nu
        return z[: ends[0]].reshape(states, nx), z[ends[0] : ends[1]].reshape(controls, nu), z[ends[1] :]

    def whole(self, states, controls, design) -> np.ndarray:
        """The variables z of these parts."""
        return np.concatenate([np.asarray(part, np.float64).ravel() for part in (states, controls, design)])

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The indices in z of steps (2 nx), of flows (lead + nx + nu + P) and of the end (nx + P) are."""
        (states, controls), nx, nu = self.counts, self.problem.dynamics.nx, self.problem.dynamics.nu
        layout, P = self.layout, self.problem.size
        s, S = layout.point.shape[1], layout.place.shape[1]

        def of_state(indices):
            return indices[..., None] * nx + np.arange(nx)

        of_control = states * nx + layout.control[..., None] * nu + np.arange(nu)
        design = states * nx + controls * nu + np.arange(P)
        start = of_state(layout.start)
        steps = np.concatenate([np.repeat(start[:, None], S, axis=1), of_state(layout.place)], axis=2)
        before = np.repeat(start[:, None, : self.lead], s, axis=1)
        tiled = np.broadcast_to(design, (*layout.point.shape, P))
        flows = np.concatenate([before, of_state(layout.point), of_control, tiled], axis=2)
        ends = np.stack([np.concatenate([of_state(np.array(k)), design]) for k in (0, states - 1)])
        return steps, flows, ends

    # --- functions of single points ---

    def step(self, before: AnyState, there: AnyState, y: Float[Array, "both"]) -> Float[Array, "nx"]:
        """The difference xi after both states have been moved by their parts of y."""
        return difference_after(self.problem.dynamics, before, there, y)

    def flow(self, number, before: AnyState, here: AnyState, y: Float[Array, "ny"]) -> tuple[Array, Array, Array]:
        """h times the rate of xi, the running cost and the constraint values at a point that has been moved by y."""
        nx, nu, lead = self.problem.dynamics.nx, self.problem.dynamics.nu, self.lead
        u, design = y[lead + nx : lead + nx + nu], y[lead + nx + nu :]
        placed = self.problem.with_design(design)
        dynamics, dt = placed.dynamics, placed.dt
        x = dynamics.retract(here, y[lead : lead + nx])
        origin = dynamics.retract(before, y[:lead]) if lead else before
        rate = dynamics.rate(x, u, number * dt)

        def after(time):
            return dynamics.difference(origin, dynamics.retract(x, time * rate))

        _, seen = jax.jvp(after, (jnp.zeros((), u.dtype),), (jnp.ones((), u.dtype),))
        return dt * seen, running_cost(placed, number, x, u), path_constraints(placed, number, x, u)

    def first(self, y: Float[Array, "ne"]) -> Float[Array, "nx"]:
        """Difference between the initial state of the problem and the first state."""
        nx, dynamics = self.problem.dynamics.nx, self.problem.dynamics
        placed = self.problem.with_design(y[nx:])
        return dynamics.difference(placed.initial, dynamics.retract(_at(self.origins, 0), y[:nx]))

    def last(self, y: Float[Array, "ne"]) -> tuple[Array, Array]:
        """Cost and constraint values at the end."""
        nx = self.problem.dynamics.nx
        placed = self.problem.with_design(y[nx:])
        x = placed.dynamics.retract(_at(self.origins, -1), y[:nx])
        return final_cost(placed, x), end_constraints(placed, x)

    # --- all of them ---

    def of_steps(self, function: Callable, z: Array, *rest: Array) -> Any:
        """function(before, there, y, *rest) of each place, (N, S, ...)."""
        layout = self.layout
        before = _at(self.origins, np.repeat(layout.start, layout.place.shape[1]))
        there = _at(self.origins, layout.place.ravel())
        return self._mapped(function, layout.place.shape, (before, there, z[_rows(self.columns()[0])]), rest)

    def of_flows(self, function: Callable, z: Array, *rest: Array) -> Any:
        """Values of `function(number, before, here, y, *rest)` at all points, (N, s, ...)."""
        layout = self.layout
        number = jnp.asarray(np.arange(self.problem.steps)[:, None] + np.array(self.points), z.dtype).ravel()
        before = _at(self.origins, np.repeat(layout.start, layout.point.shape[1]))
        here = _at(self.origins, layout.point.ravel())
        return self._mapped(function, layout.point.shape, (number, before, here, z[_rows(self.columns()[1])]), rest)

    def _mapped(self, function, shape, args, rest):
        size = shape[0] * shape[1]
        rest = tuple(a.reshape(size, *a.shape[2:]) for a in rest)
        each = lane_function(function, backend=self.backend, name=f"collocation, {function.__name__}")
        return jax.tree.map(lambda a: a.reshape(*shape, *a.shape[1:]), jax.vmap(each)(*args, *rest))

    def program(self) -> NonlinearProgram:
        """The nonlinear program of it.

        Raises:
            ValueError: Bounds of the controls depend on the design.
        """
        problem = self.problem
        lower, upper, slope = _bounds(problem)
        if problem.size and np.any(slope):
            raise ValueError("bounds of the controls depend on the design; make them Inequality constraints")
        (states, controls), none = self.counts, np.zeros(0)
        free = np.full(states * problem.dynamics.nx, np.inf)
        design = (none, none) if problem.design is None else (problem.design.lower, problem.design.upper)
        inequality_path, inequality_end = inequalities(problem)
        counted = int(self.layout.counted.sum())
        equations = (states) * problem.dynamics.nx
        g_lower = np.concatenate(
            [
                np.zeros(equations),
                np.tile(np.where(inequality_path, -np.inf, 0.0), counted),
                np.where(inequality_end, -np.inf, 0.0),
            ]
        )
        m, e = len(inequality_path), len(inequality_end)
        return NonlinearProgram(
            self.whole(-free, np.tile(lower, controls), design[0]),
            self.whole(free, np.tile(upper, controls), design[1]),
            g_lower,
            np.zeros_like(g_lower),
            lambda z: values(self, self.typed(z)),
            lambda z: slopes(self, self.typed(z)),
            lambda z, cost_weight, multipliers: curvature(
                self, self.typed(z), self.typed(cost_weight), self.typed(multipliers)
            ),
            _places(self._jacobian(*self._blank_jacobians(m, e))),
            _places(self._hessian(*self._blank_hessians())),
        )

    def typed(self, values) -> Array:
        """Values as an array in the precision of the problem."""
        return jnp.asarray(values, self.problem.lower.dtype)

    def start(self, controls: Float[Array, "N nu"], design: Float[Array, "P"]) -> np.ndarray:
        """The first plan: no steps of the states, controls that are held, at nodes the mean of both sides."""
        (states, count), layout = self.counts, self.layout
        sums, times = np.zeros((count, self.problem.dynamics.nu)), np.zeros((count, 1))
        np.add.at(sums, layout.control, np.asarray(controls)[:, None])
        np.add.at(times, layout.control, 1.0)
        return self.whole(np.zeros((states, self.problem.dynamics.nx)), sums / times, design)

    def split(self, g: Any) -> tuple[Any, Any, Any, Any]:
        """Conditions, or their multipliers: of the first state, of motion (N, S, nx), along the path, at the end."""
        nx, layout = self.problem.dynamics.nx, self.layout
        motion = nx + layout.place.size * nx
        path = motion + int(layout.counted.sum()) * len(inequalities(self.problem)[0])
        return (
            g[:nx],
            g[nx:motion].reshape(*layout.place.shape, nx),
            g[motion:path].reshape(int(layout.counted.sum()), -1),
            g[path:],
        )

    # --- derivatives in their places ---

    def _blank_jacobians(self, m: int, e: int):
        nx, (steps, flows, ends) = self.problem.dynamics.nx, self.columns()
        return (
            np.zeros((*steps.shape[:2], nx, 2 * nx)),
            np.zeros((*flows.shape[:2], nx + 1 + m, flows.shape[2])),
            np.zeros((nx, ends.shape[1])),
            np.zeros((e, ends.shape[1])),
        )

    def _blank_hessians(self):
        return tuple(np.zeros((*c.shape, c.shape[-1])) for c in self.columns())

    def _jacobian(self, steps, flows, first, last) -> list[tuple]:
        """Rows, columns and values of the Jacobian of the constraints, block by block."""
        nx, (step_columns, flow_columns, end_columns) = self.problem.dynamics.nx, self.columns()
        layout, scheme = self.layout, self.scheme
        pattern = np.ones((nx, 2 * nx), bool) if self.straight is None else np.array(self.straight) != 0.0
        count, m = int(layout.counted.sum()), flows.shape[2] - nx - 1
        total = nx + layout.place.size * nx + count * m + last.shape[0]
        first_rows, motion, path, end_rows = self.split(np.arange(total))
        blocks = [_block(first_rows, end_columns[0], first)]
        for r in range(layout.place.shape[1]):
            for i in np.flatnonzero(scheme.steps[r]):
                blocks.append(_block(motion[:, r], step_columns[:, i], scheme.steps[r, i] * steps[:, i], pattern))
            for j in np.flatnonzero(scheme.rates[r]):
                blocks.append(_block(motion[:, r], flow_columns[:, j], -scheme.rates[r, j] * flows[:, j, :nx]))
        some = layout.counted
        blocks.append(_block(path, flow_columns[some][:, self.lead :], flows[some][:, nx + 1 :, self.lead :]))
        blocks.append(_block(end_rows, end_columns[1], last))
        return blocks

    def _hessian(self, steps, flows, ends) -> list[tuple]:
        """Rows, columns and values of the lower triangle of the Hessian, block by block."""
        step_columns, flow_columns, end_columns = self.columns()
        blocks = [_triangle(flow_columns, flows), _triangle(end_columns, ends)]
        if self.straight is None:
            blocks.append(_triangle(step_columns, steps))
        return blocks


@stored_jit
def values(transcription: Transcription, z: Float[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, "m"]]:
    """Cost, and constraint values: those of the first state, of motion, along the path and at the end."""
    t = transcription
    xi = t.of_steps(t.step, z)
    F, cost, constraints = t.of_flows(t.flow, z)
    _, _, ends = t.columns()
    end_cost, end = t.last(z[ends[1]])
    scheme, dtype = t.scheme, z.dtype
    steps, rates, weights = (jnp.asarray(a, dtype) for a in (scheme.steps, scheme.rates, scheme.weights))
    motion = einsum("ri,kia->kra", steps, xi) - einsum("rj,kja->kra", rates, F)
    path = constraints[np.nonzero(t.layout.counted)]
    g = jnp.concatenate([t.first(z[ends[0]]), motion.ravel(), path.ravel(), end])
    return jnp.sum(cost @ weights) + end_cost, g


@stored_jit
def slopes(transcription: Transcription, z: Float[Array, "n"]) -> tuple[Float[Array, "n"], Float[Array, "entries"]]:
    """Gradient of the cost, and values of the Jacobian of the constraints."""
    t = transcription
    nx = t.problem.dynamics.nx

    def first_order_flow(number, before, here, y):
        def rows(y):
            F, cost, constraints = t.flow(number, before, here, y)
            return jnp.concatenate([F, cost[None], constraints])

        return jax.jacfwd(rows)(y)

    def first_order_step(before, there, y):
        return jax.jacfwd(lambda y: t.step(before, there, y))(y)

    flows = t.of_flows(first_order_flow, z)
    if t.straight is None:
        steps = t.of_steps(first_order_step, z)
    else:
        constant = jnp.asarray(np.array(t.straight), z.dtype)
        steps = jnp.broadcast_to(constant, (*t.layout.place.shape, nx, 2 * nx))
    _, flow_columns, ends = t.columns()
    end_slope, end_jacobian = jax.jacfwd(t.last)(z[ends[1]])
    blocks = t._jacobian(steps, flows, jax.jacfwd(t.first)(z[ends[0]]), end_jacobian)
    weights = jnp.asarray(t.scheme.weights, z.dtype)
    gradient = jnp.zeros_like(z).at[flow_columns].add(weights[None, :, None] * flows[:, :, nx])
    return gradient.at[ends[1]].add(end_slope), _values(blocks)


@stored_jit
def curvature(
    transcription: Transcription, z: Float[Array, "n"], cost_weight: Float[Array, ""], multipliers: Float[Array, "m"]
) -> Float[Array, "entries"]:
    """Values of the Hessian of cost_weight * cost + multipliers . constraints."""
    t = transcription
    first_multipliers, motion_multipliers, path_multipliers, end_multipliers = t.split(multipliers)
    scheme = t.scheme
    steps, rates = jnp.asarray(scheme.steps, z.dtype), jnp.asarray(scheme.rates, z.dtype)
    step_multipliers, rate_multipliers = (
        einsum("ri,kra->kia", steps, motion_multipliers),
        -einsum("rj,kra->kja", rates, motion_multipliers),
    )
    shape = t.layout.point.shape
    weight = cost_weight * jnp.broadcast_to(jnp.asarray(scheme.weights, z.dtype), shape)
    counted = np.nonzero(t.layout.counted)
    path_weights = jnp.zeros((*shape, path_multipliers.shape[1]), z.dtype).at[counted].set(path_multipliers)

    def second_order_flow(number, before, here, y, weight, rate_multipliers, path_weights):
        def weighted(y):
            F, cost, constraints = t.flow(number, before, here, y)
            return weight * cost + F @ rate_multipliers + constraints @ path_weights

        return jax.hessian(weighted)(y)

    def second_order_step(before, there, y, multipliers):
        return jax.hessian(lambda y: t.step(before, there, y) @ multipliers)(y)

    def weighted_last(y):
        cost, constraints = t.last(y)
        return cost_weight * cost + constraints @ end_multipliers

    ends = t.columns()[2]
    first = jax.hessian(lambda y: t.first(y) @ first_multipliers)(z[ends[0]])
    last = jax.hessian(weighted_last)(z[ends[1]])
    flows = t.of_flows(second_order_flow, z, weight, rate_multipliers, path_weights)
    steps = None if t.straight is not None else t.of_steps(second_order_step, z, step_multipliers)
    return _values(t._hessian(steps, flows, jnp.stack([first, last])))


def transcribed(problem: ControlProblem, plan: Plan, points: tuple[float, ...], backend: Backend) -> Transcription:
    """The problem about a plan, with states between its nodes on the shortest way."""
    straight = _constant_jacobian(problem.dynamics, problem.initial)
    origins = _between(problem.dynamics, plan.states, scheme_of(points).places)
    return Transcription(problem, origins, points, straight, backend)


@stored_jit
def _between(dynamics: Dynamics, states: AnyState, places: tuple[float | Array, ...]) -> AnyState:
    def interval(x, following):
        step = dynamics.difference(x, following)
        return [dynamics.retract(x, c * step) for c in places]

    inner = jax.vmap(interval)(_at(states, slice(-1)), _at(states, slice(1, None)))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves, 1).reshape(-1, *leaves[0].shape[1:]), *inner)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[:1], rest]), states, stacked)


def difference_after(dynamics: Dynamics, a: AnyState, b: AnyState, y: Float[Array, "both"]) -> Float[Array, "nx"]:
    """Difference from a to b after both have been moved by their halves of y."""
    nx = dynamics.nx
    return dynamics.difference(dynamics.retract(a, y[:nx]), dynamics.retract(b, y[nx:]))


def _constant_jacobian(dynamics: Dynamics, x: AnyState) -> tuple[tuple[float, ...], ...] | None:
    """The Jacobian of a difference by steps of both states if it is constant, as its program shows."""
    jacobian = jax.jacfwd(lambda a, b, y: difference_after(dynamics, a, b, y), argnums=2)
    y = jnp.zeros(2 * dynamics.nx, jax.tree.leaves(x)[0].dtype)
    program = jax.make_jaxpr(jacobian)(x, x, y).jaxpr
    moving = set(program.invars)
    for equation in program.eqns:
        if any(v in moving for v in equation.invars if not hasattr(v, "val")):
            moving.update(equation.outvars)
    if any(v in moving for v in program.outvars if not hasattr(v, "val")):
        return None
    return tuple(tuple(row) for row in np.asarray(stored_jit(jacobian)(x, x, y)).tolist())


@stored_jit
def _bounds(problem: ControlProblem) -> tuple[Array, Array, Array]:
    def of(design):
        placed = problem.with_design(design)
        return placed.lower, placed.upper

    design = jnp.zeros(0, problem.lower.dtype) if problem.design is None else problem.design.initial
    lower, upper = of(design)
    return lower, upper, jnp.stack(jax.jacfwd(of)(design))


def _at(states: AnyState, index) -> AnyState:
    return jax.tree.map(lambda leaf: leaf[index], states)


def _rows(columns: np.ndarray) -> np.ndarray:
    return columns.reshape(columns.shape[0] * columns.shape[1], columns.shape[2])


def _block(rows: np.ndarray, columns: np.ndarray, block, pattern: np.ndarray | None = None) -> tuple:
    """Rows, columns and values of blocks; of those entries only that a pattern has."""
    keep = np.ones(block.shape[-2:], bool) if pattern is None else pattern
    i, j = np.nonzero(keep)
    return rows[..., i], columns[..., j], block[..., i, j]


def _triangle(columns: np.ndarray, blocks) -> tuple:
    """Rows, columns and values of the lower triangle of a sum of symmetric blocks."""
    i, j = np.tril_indices(columns.shape[-1])
    a, b = columns[..., i], columns[..., j]
    # If a variable occurs twice in a block, two off-diagonal entries belong to the same diagonal entry of the sum.
    twice = np.where((a == b) & (i != j), 2.0, 1.0)
    return np.maximum(a, b), np.minimum(a, b), blocks[..., i, j] * jnp.asarray(twice, blocks.dtype)


def _places(blocks: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = (np.concatenate([block[part].ravel() for block in blocks]) for part in (0, 1))
    return rows, columns


def _values(blocks: list[tuple]) -> Array:
    return jnp.concatenate([block[2].ravel() for block in blocks])
