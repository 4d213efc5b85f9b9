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

Automatic differentiation computes exact derivatives of the functions at each point, for all points at once. These derivatives are
then placed in the sparse Jacobian and Hessian.
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
from jaxdyn.compute.arrays import einsum
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


class Transcription(eqx.Module):
    """A control problem as a nonlinear program by a collocation scheme, with state variables relative to an initial guess.

    Attributes:
        problem: The control problem.
        origins: The N S + 1 states of the initial guess, from which the state variables are steps.
        points: Collocation points of the scheme, as fractions of an interval.
        straight: The Jacobian (nx, 2 nx) of difference(a, b) with respect to steps of a and b if this Jacobian is constant, as for
            vector states; None for states on manifolds.
    """

    problem: ControlProblem
    origins: AnyState
    points: tuple[float, ...] = eqx.field(static=True)
    straight: tuple[tuple[float, ...], ...] | None = eqx.field(static=True)

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

    def parts(self, z: Float[Array, "n"]) -> tuple[Array, Array, Array]:
        """Splits the variables z into the steps of the states, the controls, and the design parameters."""
        (states, controls), nx, nu = self.counts, self.problem.dynamics.nx, self.problem.dynamics.nu
        ends = states * nx, states * nx + controls * nu
        return z[: ends[0]].reshape(states, nx), z[ends[0] : ends[1]].reshape(controls, nu), z[ends[1] :]

    def whole(self, states, controls, design) -> np.ndarray:
        """Joins states, controls and design parameters to the variables z; the inverse of `parts`."""
        return np.concatenate([np.asarray(part, np.float64).ravel() for part in (states, controls, design)])

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Indices in z of the arguments y of `step` (N, S, 2 nx), of `flow` (N, s, lead + nx + nu + P), and of `first` and `last`.

        The array of indices for `first` and `last` has the shape (2, nx + P).
        """
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

    # --- functions at single points ---

    def step(self, before: AnyState, there: AnyState, y: Float[Array, "both"]) -> Float[Array, "nx"]:
        """The displacement xi between two states of an interval; y holds the steps of the first and second state."""
        return difference_after(self.problem.dynamics, before, there, y)

    def flow(self, number, before: AnyState, here: AnyState, y: Float[Array, "ny"]) -> tuple[Array, Array, Array]:
        """Scaled time derivative F, running cost and path constraints at a collocation point.

        Args:
            number: Time of the point, in units of h.
            before: Origin of the state at the left node of the interval.
            here: Origin of the state at the point.
            y: The variables of the point: step of the left node (`lead` entries), step of the state, controls, design parameters.
        """
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
        """Residual of the initial condition: the difference between the initial state of the problem and the first state."""
        nx, dynamics = self.problem.dynamics.nx, self.problem.dynamics
        placed = self.problem.with_design(y[nx:])
        return dynamics.difference(placed.initial, dynamics.retract(_at(self.origins, 0), y[:nx]))

    def last(self, y: Float[Array, "ne"]) -> tuple[Array, Array]:
        """Final cost, and values of the final constraints."""
        nx = self.problem.dynamics.nx
        placed = self.problem.with_design(y[nx:])
        x = placed.dynamics.retract(_at(self.origins, -1), y[:nx])
        return final_cost(placed, x), end_constraints(placed, x)

    # --- functions at all points ---

    def of_steps(self, function: Callable, z: Array, *rest: Array) -> Any:
        """Values of `function(before, there, y, *rest)` for all unknown states, (N, S, ...)."""
        layout = self.layout
        before = _at(self.origins, np.repeat(layout.start, layout.place.shape[1]))
        there = _at(self.origins, layout.place.ravel())
        return self._mapped(function, layout.place.shape, (before, there, z[_rows(self.columns()[0])]), rest)

    def of_flows(self, function: Callable, z: Array, *rest: Array) -> Any:
        """Values of `function(number, before, here, y, *rest)` at all collocation points, (N, s, ...)."""
        layout = self.layout
        number = jnp.asarray(np.arange(self.problem.steps)[:, None] + np.array(self.points), z.dtype).ravel()
        before = _at(self.origins, np.repeat(layout.start, layout.point.shape[1]))
        here = _at(self.origins, layout.point.ravel())
        return self._mapped(function, layout.point.shape, (number, before, here, z[_rows(self.columns()[1])]), rest)

    def _mapped(self, function, shape, args, rest):
        size = shape[0] * shape[1]
        rest = tuple(a.reshape(size, *a.shape[2:]) for a in rest)
        each = per_sample(function, name=f"collocation, {function.__name__}")
        return jax.tree.map(lambda a: a.reshape(*shape, *a.shape[1:]), jax.vmap(each)(*args, *rest))

    def program(self) -> NonlinearProgram:
        """Bounds, functions and sparsity patterns in the form that a solver of nonlinear programs takes.

        Raises:
            ValueError: Bounds of the controls depend on the design parameters.
        """
        problem = self.problem
        lower, upper, slope = _bounds(problem)
        if problem.size and np.any(slope):
            raise ValueError(
                "bounds of the controls depend on the design parameters; state them as Inequality constraints instead"
            )
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
        """Converts values to an array in the floating-point type of the problem."""
        return jnp.asarray(values, self.problem.lower.dtype)

    def start(self, controls: Float[Array, "N nu"], design: Float[Array, "P"]) -> np.ndarray:
        """The variables of the initial guess: all steps of states are zero, and controls are constant in each interval.

        The controls at a node that two intervals share are the mean of the controls of both intervals.
        """
        (states, count), layout = self.counts, self.layout
        sums, times = np.zeros((count, self.problem.dynamics.nu)), np.zeros((count, 1))
        np.add.at(sums, layout.control, np.asarray(controls)[:, None])
        np.add.at(times, layout.control, 1.0)
        return self.whole(np.zeros((states, self.problem.dynamics.nx)), sums / times, design)

    def split(self, g: Any) -> tuple[Any, Any, Any, Any]:
        """Splits constraint values or their multipliers by kind.

        Returns:
            The values for the initial condition (nx,), defects (N, S, nx), path constraints (counted points, m), and final
            constraints (e,).
        """
        nx, layout = self.problem.dynamics.nx, self.layout
        motion = nx + layout.place.size * nx
        path = motion + int(layout.counted.sum()) * len(inequalities(self.problem)[0])
        return (
            g[:nx],
            g[nx:motion].reshape(*layout.place.shape, nx),
            g[motion:path].reshape(int(layout.counted.sum()), -1),
            g[path:],
        )

    # --- sparse assembly ---

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
    """The cost, and all constraint values: initial condition, defects, path constraints, final constraints."""
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
    """Gradient of the cost, and nonzero entries of the Jacobian of the constraints."""
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
    """Nonzero entries of the Hessian of the Lagrangian, cost_weight * cost + multipliers . constraints (lower triangle)."""
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


def _constant_jacobian(dynamics: Dynamics, x: AnyState) -> tuple[tuple[float, ...], ...] | None:
    """The Jacobian of a difference with respect to steps of both states, or None if it depends on the states.

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
    """Rows, columns and values of dense blocks, restricted to the entries of a sparsity pattern if it is given."""
    keep = np.ones(block.shape[-2:], bool) if pattern is None else pattern
    i, j = np.nonzero(keep)
    return rows[..., i], columns[..., j], block[..., i, j]


def _triangle(columns: np.ndarray, blocks) -> tuple:
    """Rows, columns and values of the lower triangle of a sum of symmetric blocks."""
    i, j = np.tril_indices(columns.shape[-1])
    a, b = columns[..., i], columns[..., j]
    # If a variable occurs twice in a block, the entries (i, j) and (j, i) both add to the same diagonal entry of the sum.
    twice = np.where((a == b) & (i != j), 2.0, 1.0)
    return np.maximum(a, b), np.minimum(a, b), blocks[..., i, j] * jnp.asarray(twice, blocks.dtype)


def _places(blocks: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = (np.concatenate([block[part].ravel() for block in blocks]) for part in (0, 1))
    return rows, columns


def _values(blocks: list[tuple]) -> Array:
    return jnp.concatenate([block[2].ravel() for block in blocks])
