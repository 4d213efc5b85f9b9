"""Inverse kinematics: coordinates with which frames of a mechanism reach target poses, within the position limits of its joints.

The search is a projected Levenberg-Marquardt method in tangent coordinates. The mechanism needs no masses. The constraints of a
system join the targets; if not all of them can be satisfied, the constraints prevail, by the method of multipliers.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.compute.damped import FIRST_DAMPING, Damped, judged
from jaxdyn.dynamics import constraint_motion
from jaxdyn.dynamics.constraint import Constraint, holonomic
from jaxdyn.dynamics.doors import kinematic_function
from jaxdyn.dynamics.forces.joint_limits import along_columns
from jaxdyn.dynamics.kinematics import Coordinates, frame_placement, jacobian_at, placements
from jaxdyn.dynamics.system import State, System, Time, or_system, system_function
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.mechanism.model import Limits, Model
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.results import ResultCode, raising
from jaxdyn.spatial import factorizations, quaternion
from jaxdyn.spatial.rotation import Vector3
from jaxdyn.spatial.transform import RigidTransform

_SPREAD = 2.0  # rad or m, of the random configurations of joints without limits
_MOST_DAMPING = 1e6  # relative to the mean diagonal entry of J'J
_LEAST_DECREASE = 0.1  # relative decrease of |r|^2 in a step, below which the search begins again elsewhere
# Steps of the method of multipliers, and of Newton's method for the constraints alone.
_CLOSING_STEPS, _CLOSURES = 60, 4


def three(x) -> Vector3:
    """Array with one value per axis, from three values or from one value for all three axes."""
    x = floating(x)
    return jnp.broadcast_to(x, (3,)) if x.ndim == 0 else x


class FrameTarget(eqx.Module):
    """Target pose of a body or frame, with a weight for each axis.

    The error is (position * (p - p*), rotation * a). Here p is the origin of the frame and p* the origin of the target, in world
    coordinates, and a is the rotation vector from the orientation of the target to that of the frame, on the axes of the target.

    Attributes:
        frame: Name of a body or frame.
        pose: Target pose in world coordinates.
        position: Weights of the deviations along the world axes; zero for an axis along which the position is free.
        rotation: Weights of the rotations about the axes of the target; zero for an axis about which the frame may turn.

    Example:
        ```python
        import jax.numpy as jnp
        from jaxdyn.dynamics import FrameTarget
        from jaxdyn.spatial.transform import RigidTransform

        point = RigidTransform(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([1.2, 0.0, 0.5]))
        target = FrameTarget("tip", point, rotation=0.0)  # a position with any orientation
        ```
    """

    frame: str = eqx.field(static=True)
    pose: RigidTransform
    position: Vector3 = eqx.field(converter=three, default=1.0, metadata=quantity("1/m", minimum=0.0))
    rotation: Vector3 = eqx.field(converter=three, default=1.0, metadata=quantity("1/rad", minimum=0.0))

    def __check_init__(self):
        check_instance("the frame of FrameTarget", self.frame, str, "the name of a body or frame")
        remedy = "RigidTransform(quaternion, position) of jaxdyn.spatial.transform"
        check_instance("the pose of FrameTarget", self.pose, RigidTransform, remedy)

    @property
    def weights(self) -> Float[Array, "6"]:
        """The three weights of the position, followed by the three weights of the rotation."""
        return jnp.concatenate([self.position, self.rotation])

    def error(self, model: Model, q: Coordinates) -> Float[Array, "6"]:
        """Weighted error of the pose of the frame (6,): the error of the position, then that of the rotation.

        Args:
            model: Mechanism.
            q: Generalized coordinates (rad or m).
        """
        return self.weights * pose_error(frame_placement(model, q, self.frame), self.pose)


def pose_error(placed: RigidTransform, target: RigidTransform) -> Float[Array, "6"]:
    """Deviation of a pose from a target (6,): p - p* on world axes (m), then the rotation vector on axes of the target (rad).

    Args:
        placed: Pose.
        target: Target pose.
    """
    turned = quaternion.multiply(quaternion.inverse(target.quaternion), placed.quaternion)
    return jnp.concatenate([placed.translation - target.translation, quaternion.logarithm(turned)])


class InverseKinematicsResult(ResultCode):
    """Outcome of `inverse_kinematics`."""

    SUCCESSFUL = 0, "All targets are reached.", True
    NOT_REACHED = (
        1,
        "A target is not reached, or the constraints are not satisfied; the target may be out of reach or in conflict with another "
        "target or a limit, or increase max_steps and restarts.",
    )


class InverseKinematicsStats(NamedTuple):
    """Quality of a solution of inverse kinematics.

    Attributes:
        error: Largest component of the weighted errors of all targets, m or rad.
    """

    error: Float[Array, ""]


class InverseKinematics(NamedTuple):
    """Result of `inverse_kinematics`.

    Attributes:
        q: Coordinates.
        error: Largest component of the weighted errors of all targets, m or rad.
        reached: True if all targets are reached and all constraints of a system are satisfied.
    """

    q: Float[Array, "nq"]
    error: Float[Array, ""]
    reached: Bool[Array, ""]

    @property
    def value(self) -> Float[Array, "nq"]:
        """The coordinates, `q`, under the name that the results of fits and of solvers also have."""
        return self.q

    @property
    def result(self) -> Int[Array, ""]:
        """Code of `InverseKinematicsResult`."""
        codes = InverseKinematicsResult
        return jnp.where(self.reached, codes.SUCCESSFUL.value, codes.NOT_REACHED.value).astype(jnp.int32)

    @property
    def stats(self) -> InverseKinematicsStats:
        """Quality of the solution."""
        return InverseKinematicsStats(self.error)


@system_function
def _of_system(
    system: System,
    state: State,
    targets: FrameTarget | Sequence[FrameTarget],
    t: Time = 0.0,
    *,
    limits: bool = True,
    restarts: int = 16,
    max_steps: int = 300,
) -> InverseKinematics:
    """Result of `inverse_kinematics` for a system."""
    model, constraints = system.model.at(jnp.asarray(t, state.q.dtype)), holonomic(system.constraints)
    task = _Task(model, _checked_targets(targets), model.limits if limits else None, constraints, None)
    return _solution(task, state.q, restarts, max_steps)


@raising(InverseKinematicsResult)
@or_system(_of_system)
@kinematic_function
def inverse_kinematics(
    model: Model,
    q: Coordinates,
    targets: FrameTarget | Sequence[FrameTarget],
    *,
    limits: bool = True,
    restarts: int = 16,
    max_steps: int = 300,
    throw: bool = True,
) -> InverseKinematics:
    """Coordinates within the position limits that minimize 1/2 |r|^2, where r are the weighted errors of the target poses.

        step = -(J'J + mu 1)^-1 J' r  on the components that no limit blocks,   q <- clip(q (+) step)

    J is the derivative of r in tangent coordinates, and mu the damping of Levenberg and Marquardt, which decreases after a
    successful step and increases after an unsuccessful one. A search that does not reach the targets is repeated from random
    configurations. If no search reaches the targets, the result is the configuration of smallest error.

    With a `System` and a state as the guess, inverse_kinematics(system, state, targets, t=0.0), the result also satisfies the
    constraints, phi(q) = 0 at time t (s), as closely as `assemble` does. If not all targets can be reached, it is a configuration
    of smallest error that satisfies the constraints, whenever the search finds one. The velocity of the state has no effect.

    Derivatives with respect to targets, model and constraints follow from the condition J' r = 0 of a minimum, for a system
    J' r + G' lam = 0 and phi = 0, with the components held that a limit blocks (first derivatives only). For a redundant mechanism,
    these derivatives are those of the smallest displacement; the displacement along free directions depends on the search, which
    is not differentiated. The derivative with respect to the initial guess is zero.

    Args:
        model: Mechanism, which needs no masses, or a `System`.
        q: Initial guess (rad or m); for a system, a `State`.
        targets: Target pose of a frame, or several of them.
        limits: If true, the result is within the position limits of the model.
        restarts: Largest number of random configurations from which the search is repeated; 0 to search from q only.
        max_steps: Largest total number of steps. A search ends when the error of the targets is at the level of rounding.
        throw: If true, an error is raised outside of `jit` if a target is not reached; if false, the result is the configuration of
            smallest error, and `InverseKinematics.reached` is false.

    Raises:
        UnsuccessfulError: `throw` is true, and a target is not reached.
        TypeError: A target is not a `FrameTarget`, or the guess for a system is not a `State`.
        ValueError: There is no target, or q has the wrong shape.
        UnknownName: No body or frame has the name of a target; the message lists the existing names.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn
        from jaxdyn.dynamics import FrameTarget
        from jaxdyn.spatial.transform import RigidTransform

        model = jaxdyn.library.double_pendulum()
        there = jaxdyn.frame_placement(model, jnp.array([0.3, -0.5]), "tip")
        found = jaxdyn.inverse_kinematics(model, jnp.zeros(2), FrameTarget("tip", there, rotation=0.0))
        assert found.reached
        ```

    Source: Levenberg 1944; Marquardt 1963; Bertsekas 1982 (projected Newton methods).
    """
    task = _Task(model, _checked_targets(targets), model.limits if limits else None, (), None)
    return _solution(task, q, restarts, max_steps)


class _Task(NamedTuple):
    """Targets and constraints of a search. Constraints are targets with the errors phi + shift.

    Attributes:
        model: Mechanism.
        wanted: Targets.
        bounds: Position limits; None if they do not matter.
        constraints: Constraints phi = 0.
        shift: Multipliers of the constraints. The method of multipliers adds phi to it until phi vanishes (Hestenes 1969, Powell
            1969). None without constraints.
    """

    model: Model
    wanted: tuple[FrameTarget, ...]
    bounds: Limits | None
    constraints: tuple[Constraint, ...]
    shift: Float[Array, "m"] | None

    def moved(self, q: Coordinates, step: Float[Array, "nv"]) -> Coordinates:
        """Normalized coordinates within the bounds after a step."""
        q = configuration.normalize(self.model, configuration.integrate(self.model, q, step))
        return q if self.bounds is None else jnp.clip(q, self.bounds.lower, self.bounds.upper)

    def residuals(self, q: Coordinates) -> Float[Array, "m"]:
        """Residuals phi of the constraints."""
        return constraint_motion.residuals_at(self.model, self.constraints, q)

    def rows(self, q: Coordinates) -> Float[Array, "m nv"]:
        """Jacobian G of the constraints."""
        return constraint_motion.jacobian(self.model, self.constraints, q, placements(self.model, q))

    def is_on_wrong_branch(self, q: Coordinates) -> Bool[Array, ""]:
        """True if a constraint is not on its desired branch."""
        poses = placements(self.model, q).poses
        found = [constraint.branches(self.model, q, poses) for constraint in self.constraints]
        return jnp.any(jnp.array([jnp.any(branches <= 0.0) for branches in found if branches is not None], bool))


def _solution(task: _Task, q: Coordinates, restarts: int, max_steps: int) -> InverseKinematics:
    """Result of `inverse_kinematics`, for a task without a shift."""
    eps, zero, constraints = float(jnp.finfo(q.dtype).eps), jnp.zeros(task.model.nv, q.dtype), task.constraints
    # The search is not differentiated: one more step of Newton's method provides the derivative.
    fixed, start = jax.lax.stop_gradient((task, q))
    if constraints:
        fixed = fixed._replace(shift=jnp.zeros_like(fixed.residuals(start)))
    best, lam = _searched(fixed, start, restarts, max_steps)
    free = ~_blocked(fixed.model, fixed.bounds, best, _slope(fixed._replace(shift=lam), best, zero))

    def closer(q, _):
        rows = fixed.rows(q)
        step = _solved_on(free, dot(rows.T, rows), eps ** (2 / 3), dot(rows.T, fixed.residuals(q)))
        return fixed.moved(q, -step), None

    def conditions(task, step):
        """J' r + G' lam and phi after a step, which are zero at a minimum that satisfies the constraints."""
        slope, q = _slope(task._replace(shift=None), best, step), configuration.integrate(task.model, best, step)
        return (slope, None) if lam is None else (slope + dot(task.rows(q).T, lam), task.residuals(q))

    if constraints:
        best = jax.lax.scan(closer, best, None, length=_CLOSURES)[0]
    curvature, rows = jax.jacfwd(functools.partial(conditions, fixed))(zero)
    slope, phi = conditions(task, zero)
    step = -_solved_on(free, curvature, eps**0.5, slope, rows, phi)
    q = configuration.integrate(fixed.model, best, _derivative_of(step))
    error = jnp.max(jnp.abs(_errors(task, q)))
    reached = error < _tolerance(q.dtype)
    if constraints:
        reached = reached & (jnp.max(jnp.abs(task.residuals(q))) < eps**0.5) & ~task.is_on_wrong_branch(q)
    return InverseKinematics(q, error, reached)


@jax.custom_jvp
def _derivative_of(step: Float[Array, "nv"]) -> Float[Array, "nv"]:
    """Zero with the derivative of a step, so that a step is computed for derivatives only."""
    return jnp.zeros_like(step)


_derivative_of.defjvp(lambda primals, tangents: (_derivative_of(*primals), *tangents))


def _errors(task: _Task, q: Coordinates) -> Float[Array, "m"]:
    """Weighted errors r of all targets, and of the constraints if they have a shift."""
    errors = [target.error(task.model, q) for target in task.wanted]
    return jnp.concatenate(errors if task.shift is None else [*errors, task.residuals(q) + task.shift])


def _linearized(task: _Task, q: Coordinates) -> tuple[Float[Array, "m"], Float[Array, "m nv"]]:
    """Weighted errors r of all targets, and their derivative J along the velocity components, from (E4), (E5)."""
    model, placed = task.model, placements(task.model, q)
    errors, rows = [], []
    for target in task.wanted:
        pose, jacobian = frame_placement(model, q, target.frame), jacobian_at(model, placed, target.frame)
        turned = quaternion.multiply(quaternion.inverse(target.pose.quaternion), pose.quaternion)

        def rotation(turn, turned=turned):
            return quaternion.logarithm(quaternion.multiply(quaternion.exponential(turn), turned))

        on_target = dot(quaternion.to_matrix(target.pose.quaternion).T, jacobian[:3])
        turning = dot(jax.jacfwd(rotation)(jnp.zeros(3, q.dtype)), on_target)
        weights = target.weights
        errors.append(weights * pose_error(pose, target.pose))
        rows.append(weights[:, None] * jnp.concatenate([jacobian[3:], turning]))
    if task.shift is not None:
        errors.append(task.residuals(q) + task.shift)
        rows.append(task.rows(q))
    return jnp.concatenate(errors), jnp.concatenate(rows)


def _slope(task: _Task, q: Coordinates, step: Float[Array, "nv"]) -> Float[Array, "nv"]:
    """J' r after a step in tangent coordinates."""
    r, J = _linearized(task, configuration.integrate(task.model, q, step))
    return dot(J.T, r)


class _Search(NamedTuple):
    """State of the search.

    Attributes:
        taken: Number of steps so far.
        done: True if further steps have no effect.
        q: Coordinates.
        square: |r|^2 there; infinite where it is not known yet.
        damping: The damping mu, relative to the mean diagonal entry of J'J.
        started: Number of random configurations from which the search has been repeated; one more once it has returned to the best
            configuration.
        best: Best coordinates of earlier searches.
        best_square: |r|^2 there; infinite on a wrong branch of a constraint.
        shift: Shift of the constraints.
    """

    taken: Int[Array, ""]
    done: Bool[Array, ""]
    q: Float[Array, "nq"]
    square: Float[Array, ""]
    damping: Float[Array, ""]
    started: Int[Array, ""]
    best: Float[Array, "nq"]
    best_square: Float[Array, ""]
    shift: Float[Array, "m"] | None


def _searched(
    task: _Task, q: Coordinates, restarts: int, max_steps: int
) -> tuple[Coordinates, Float[Array, "m"] | None]:
    """Coordinates of smallest error in a projected Levenberg-Marquardt search, and the multipliers of the constraints.

    A search that stalls begins again at the next random configuration. After the last of them it continues from the best one. With
    constraints, additional steps continue from the best configuration, and shift the constraints whenever they stall.
    """
    dtype, model = q.dtype, task.model
    eps = float(jnp.finfo(dtype).eps)

    def square(q, shift):
        r = _errors(task._replace(shift=shift), q)
        return dot(r, r)

    def graded(q, square):
        return jnp.where(task.is_on_wrong_branch(q), jnp.inf, square) if task.constraints else square

    def drawn(_, key):
        return None, configuration.random(model, key, spread=_SPREAD)

    guesses = jax.lax.scan(drawn, None, jax.random.split(jax.random.key(0), restarts + 1))[1]

    def improve(search: _Search) -> _Search:
        index, shift = search.taken, search.shift
        r, J = _linearized(task._replace(shift=shift), search.q)
        before = jnp.minimum(search.square, dot(r, r))  # other rounding errors are not an improvement
        gradient = dot(J.T, r)
        free = ~_blocked(model, task.bounds, search.q, gradient)
        candidate = task.moved(search.q, -_solved_on(free, dot(J.T, J), search.damping, gradient))
        q, now, damping, _ = judged(Damped(search.q, before, search.damping), candidate, square(candidate, shift))
        better, fast = now < before, now < (1.0 - _LEAST_DECREASE) * before
        # The error of targets that can be reached decreases faster and faster; otherwise the search is near another minimum.
        slow = ~fast & (better | (damping > _MOST_DAMPING))
        grade, solved = graded(q, now), now <= _tolerance(dtype) ** 2
        leaves = jnp.where(solved, grade > now, slow) & (search.started <= restarts)
        # An error this small is that of rounding once a step does not decrease it; a larger one, once no step does.
        done = ~fast & ~leaves & ((now <= eps**1.5) | (damping > _MOST_DAMPING))
        best = jnp.where(grade < search.best_square, q, search.best)
        best_square = jnp.where(grade < search.best_square, grade, search.best_square)
        to = jnp.where(search.started < restarts, guesses[search.started], best)
        begins = leaves
        if shift is not None:
            leaves = jnp.where(index < max_steps, leaves, index == max_steps)
            to = jnp.where(index < max_steps, to, best)
            begins = leaves | (slow & (index > max_steps))
            done = done & solved & (grade <= now) & (index < max_steps)
            shift = jnp.where(begins & ~leaves, shift + task.residuals(q), shift)
        return _Search(
            index + 1,
            done,
            jnp.where(leaves, to, q),
            jnp.where(begins, jnp.inf, now),
            jnp.where(begins, FIRST_DAMPING, damping),
            jnp.where(leaves, search.started + 1, search.started),
            best,
            best_square,
            shift,
        )

    q, zero = task.moved(q, jnp.zeros(model.nv, dtype)), jnp.zeros((), jnp.int32)
    damping, worst = jnp.asarray(FIRST_DAMPING, dtype), jnp.asarray(jnp.inf, dtype)
    first = _Search(zero, jnp.asarray(False), q, worst, damping, zero, q, worst, task.shift)
    most = max_steps + _CLOSING_STEPS if task.constraints else max_steps
    last = jax.lax.while_loop(lambda search: ~search.done & (search.taken < most), improve, first)
    return last.best if task.shift is None else last.q, last.shift


def _solved_on(
    free: Bool[Array, "nv"],
    matrix: Float[Array, "nv nv"],
    damping: Float[Array, ""] | float,
    right: Float[Array, "nv"],
    rows: Float[Array, "m nv"] | None = None,
    error: Float[Array, "m"] | None = None,
) -> Float[Array, "nv"]:
    """Solution of (matrix + damping) x = right on the free components; zero on the others. The damping is relative.

    With rows, x solves (matrix + damping) x + rows' lam = right, rows x = error; the rows may be redundant.
    """
    both = free[:, None] & free[None, :]
    unit = jnp.identity(matrix.shape[0], matrix.dtype)
    # A mechanism without influence on the targets has a zero matrix, which must not make the system singular.
    scale = jnp.maximum(jnp.mean(jnp.abs(jnp.diagonal(matrix))), jnp.finfo(matrix.dtype).tiny ** 0.5)
    softened, wanted = jnp.where(both, matrix + damping * scale * unit, scale * unit), jnp.where(free, right, 0.0)
    if rows is None or error is None:
        return factorizations.solve(softened, wanted)
    rows = jnp.where(free[None], rows, 0.0)
    # The negative multiple of the identity makes the matrix regular if rows are redundant; a refinement removes both errors.
    little = float(jnp.finfo(matrix.dtype).eps) ** (2 / 3) * jnp.mean(rows**2) / scale
    corner = little * jnp.identity(rows.shape[0], matrix.dtype)
    regular = jnp.block([[softened, rows.T], [rows, -corner]])
    exact = jnp.block([[jnp.where(both, matrix, softened), rows.T], [rows, 0.0 * corner]])
    wanted = jnp.concatenate([wanted, error])
    x = factorizations.solve(regular, wanted)
    return (x + factorizations.solve(regular, wanted - dot(exact, x)))[: matrix.shape[0]]


def _blocked(model: Model, bounds: Limits | None, q: Coordinates, gradient: Float[Array, "nv"]) -> Bool[Array, "nv"]:
    """Components at a limit that a step against the gradient would leave.

    Only the coordinates of joints whose velocities are coordinate rates block components; those of others are clipped.
    """
    if bounds is None:
        return jnp.zeros(model.nv, bool)
    at_upper = along_columns(model, jnp.where(q >= bounds.upper, 1.0, 0.0)) > 0.0
    at_lower = along_columns(model, jnp.where(q <= bounds.lower, 1.0, 0.0)) > 0.0
    return (at_upper & (gradient < 0.0)) | (at_lower & (gradient > 0.0))


def _tolerance(dtype) -> float:
    """Largest error (m or rad) with which a target counts as reached."""
    return 1e-6 if dtype == jnp.float64 else 1e-4


def _checked_targets(targets: FrameTarget | Sequence[FrameTarget]) -> tuple[FrameTarget, ...]:
    several = tuple(targets) if isinstance(targets, Sequence) else (targets,)
    if not several:
        raise ValueError("inverse_kinematics: there is no target; give a FrameTarget, or a list of them")
    for target in several:
        check_instance(
            "inverse_kinematics: a target", target, FrameTarget, "FrameTarget(frame, pose), or a list of them"
        )
    return several
