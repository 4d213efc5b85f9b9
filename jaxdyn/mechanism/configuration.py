"""Configuration space of a mechanism, a product of joint manifolds. Only this module slices q and v into the parts of joints.

The coordinates q (nq components) describe the configuration; the velocities v (nv components) are components of joint twists. A
step in the tangent space has nv components. `integrate` adds a step to coordinates, and `difference` is its inverse; for angles the
two functions are addition and subtraction.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.compute import kernel_function, sweeps, traced_once
from jaxdyn.compute.arrays import rows_at, zero_safe_norm
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.messages import described
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.transform import RigidTransform


def check_coordinates(model: Model, q: Float[Array, "nq"]) -> None:
    """Raise an error, at trace time, if coordinates have the wrong shape or type.

    Raises:
        ValueError: The message states the mechanism and the shapes, and suggests `jax.vmap` if `q` is a batch.
    """
    _check_vector(model, q, "q", "nq", model.nq, "coordinate")


def check_velocities(model: Model, **vectors: Float[Array, "nv"]) -> None:
    """Raise an error, at trace time, if velocities, accelerations or forces have the wrong shape or type."""
    for name, value in vectors.items():
        _check_vector(model, value, name, "nv", model.nv, "velocity")


def _check_vector(model: Model, value: Array, name: str, length_name: str, length: int, concept: str) -> None:
    if not isinstance(value, jax.Array | np.ndarray):
        raise ValueError(f"{name} is a {type(value).__name__}; give an array, jnp.asarray({name})")
    shape = value.shape
    if shape != (length,):
        message = (
            f"{name} has shape {shape}, but mechanism {model.name!r} has {length_name} = {length}: "
            f"give one value per {concept} component, shape ({length},)"
        )
        if len(shape) > 1 and shape[-1] == length:
            message += "; for a batch, wrap the function in jax.vmap"
        raise ValueError(message)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"{name} has the type {value.dtype}; give floating-point numbers")


def _by_group(model: Model, method, coordinates=(), velocities=()) -> list:
    """Call method(joint, *q's, *v's) for all joints, vectorized over each stack of joints.

    Returns a list with one entry per stack.
    """
    topology = model.topology
    results = []
    for (kind, bodies), joint in zip(topology.groups, model.joints, strict=True):
        q_index = topology.q_starts[bodies][:, None] + np.arange(kind.nq)
        v_index = topology.v_starts[bodies][:, None] + np.arange(kind.nv)
        rows = (*(rows_at(q, q_index) for q in coordinates), *(rows_at(v, v_index) for v in velocities))
        results.append(sweeps.of_each(method, joint, *rows, count=len(bodies), looped=tree.is_looped(topology)))
    return results


@traced_once
def _integrated(joint: Joint, q: Float[Array, "_"], step: Float[Array, "_"]) -> Float[Array, "_"]:
    return joint.integrate(q, step)


@traced_once
def _difference(joint: Joint, q0: Float[Array, "_"], q1: Float[Array, "_"]) -> Float[Array, "_"]:
    return joint.difference(q0, q1)


def _to_bodies(model: Model, per_group: list):
    """Reorder results per stack, with joints on the leading axis, to one array per body."""
    order = np.argsort(np.concatenate([bodies for _, bodies in model.topology.groups]))
    return jax.tree.map(lambda *parts: rows_at(jnp.concatenate(parts), order), *per_group)


def _to_vector(model: Model, per_group: list[Float[Array, "_ _ *rest"]], starts: np.ndarray) -> Float[Array, "..."]:
    """Reorder components per stack and joint to the order of q or v."""
    shapes = [part.shape for part in per_group]
    groups = zip(model.topology.groups, shapes, strict=True)
    index = [(starts[bodies][:, None] + np.arange(shape[1])).ravel() for (_, bodies), shape in groups]
    flat = [part.reshape(shape[0] * shape[1], *shape[2:]) for part, shape in zip(per_group, shapes, strict=True)]
    return rows_at(jnp.concatenate(flat), np.argsort(np.concatenate(index)))


def _to_blocks(model: Model, per_group: list, zero: Float[Array, "..."], axes: int = 2) -> Float[Array, "..."]:
    """Blocks per stack and joint on the diagonal of an array of zeros, whose first axes are those of velocity components."""
    for (kind, bodies), blocks in zip(model.topology.groups, per_group, strict=True):
        columns = model.topology.v_starts[bodies][:, None] + np.arange(kind.nv)
        shapes = [[kind.nv if k == axis else 1 for k in range(axes)] for axis in range(axes)]
        zero = zero.at[tuple(columns.reshape(len(bodies), *shape) for shape in shapes)].set(blocks)
    return zero


def joint_transforms(model: Model, q: Float[Array, "nq"]) -> RigidTransform:
    """Placement of each body frame in its joint frame, which is fixed in the parent; leading axis nb."""
    return _to_bodies(model, _by_group(model, lambda joint, q: joint.transform(q), (q,)))


def motion_columns(model: Model, q: Float[Array, "nq"]) -> Float[Array, "nv 6"]:
    """Columns of all joint motion subspaces, on the axes and at the origin of the body that each column moves."""
    columns = _by_group(model, lambda joint, q: joint.motion_subspace(q).T, (q,))
    return _to_vector(model, columns, model.topology.v_starts)


def subspace_rates(model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nb 6"] | None:
    """The acceleration dS/dt v that a changing motion subspace S causes in every joint, on child axes; None if every S is constant.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
    """
    if has_constant_subspaces(model):
        return None
    return _to_bodies(model, _by_group(model, lambda joint, q, v: joint.subspace_rate(q, v), (q,), (v,)))


def subspace_derivatives(model: Model, q: Float[Array, "nq"]) -> Float[Array, "nv nv 6"] | None:
    """Derivative [alpha, beta] of motion column beta along velocity component alpha of the same joint, on child axes.

    The derivative is relative to the child, and zero for different joints. The result is None if all joints have constant motion
    subspaces.
    """
    if has_constant_subspaces(model):
        return None

    def of_joint(joint, q):
        def along(unit):
            rate = joint.coordinate_rate(q, unit)
            return jax.jvp(lambda at: joint.motion_subspace(at).T, (q,), (rate,))[1]

        return jax.vmap(along)(jnp.asarray(np.eye(joint.nv), q.dtype))

    return _to_blocks(model, _by_group(model, of_joint, (q,)), jnp.zeros((model.nv, model.nv, 6), q.dtype))


def structure_coefficients(model: Model, q: Float[Array, "nq"]) -> Float[Array, "nv nv nv"]:
    """Structure coefficients k[alpha, beta, delta] of the Lie brackets [X_alpha, X_beta] = k^delta X_delta of velocity directions.

    A coefficient is zero unless its three indices belong to one joint whose velocities are not coordinate rates. Source: theory.md
    (D3), (G16).
    """
    check_coordinates(model, q)
    per_group = _by_group(model, lambda joint, q: joint.structure_coefficients(q), (q,))
    return _to_blocks(model, per_group, jnp.zeros((model.nv, model.nv, model.nv), q.dtype), axes=3)


def drive_columns(model: Model, q: Float[Array, "nq"]) -> Float[Array, "nv 6"]:
    """Wrench (moment; force) of the drives in the joints per unit of each generalized force, on child axes at the child origin."""
    columns = _by_group(model, lambda joint, q: joint.drive_columns(q).T, (q,))
    return _to_vector(model, columns, model.topology.v_starts)


def driven_columns(model: Model, q: Float[Array, "nq"]) -> dict[int, Float[Array, "6 _"]]:
    """Columns of the prescribed twist of each body whose joint has prescribed motion, on child axes at the child origin."""
    found: dict[int, Array] = {}
    groups = zip(model.topology.groups, _by_group(model, lambda joint, q: joint.driven_columns(q), (q,)), strict=True)
    for (_, bodies), columns in groups:
        if columns.shape[-1]:
            found |= dict(zip(bodies.tolist(), columns, strict=True))
    return found


def has_constant_subspaces(model: Model) -> bool:
    """True if the motion subspaces of all joints are constant on child axes."""
    return all(kind.subspace_rate is Joint.subspace_rate for kind, _ in model.topology.groups)


def is_prescribed(model: Model) -> bool:
    """True if the motion of some joint is prescribed as a function of time."""
    return any(kind.drift is not Joint.drift for kind, _ in model.topology.groups)


def prescribed_twists(
    model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]
) -> tuple[Float[Array, "nb 6"], Float[Array, "nb 6"]]:
    """Relative twist that prescribed motion causes in every joint at v = 0, and the time derivative of this twist, on child axes.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
    """
    own = _to_bodies(model, _by_group(model, lambda joint, q: joint.drift(q), (q,)))
    return own, _to_bodies(model, _by_group(model, lambda joint, q, v: joint.drift_rate(q, v), (q,), (v,)))


@kernel_function
def integrate(model: Model, q: Float[Array, "nq"], step: Float[Array, "nv"]) -> Float[Array, "nq"]:
    """Coordinates after a motion from q for unit time with constant joint velocities `step`.

    For revolute and prismatic joints this is q + step.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        step: Step in the tangent space (rad or m).

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn
        from jaxdyn import configuration

        model = jaxdyn.library.gyroscope()
        q = configuration.integrate(model, configuration.neutral(model), jnp.array([0.1, 0.0, 0.0, 0.5]))
        ```
    """
    check_coordinates(model, q)
    check_velocities(model, step=step)
    moved = _by_group(model, _integrated, (q,), (step,))
    return _to_vector(model, moved, model.topology.q_starts)


def advance(
    model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], a: Float[Array, "nv"], dt: Float[Array, ""] | float
) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
    """Coordinates and velocities after a semi-implicit Euler step: v' = v + dt a, then the motion with v' during dt.

    The components of linear velocities on rotating axes (free and planar joints) rotate exactly, so the linear momentum of a free
    body is constant.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).
        dt: Length of the step (s).

    Source: theory.md (I13).
    """
    if all(kind.advance is Joint.advance for kind, _ in model.topology.groups):
        later = v + dt * a
        return integrate(model, q, dt * later), later
    moved = _by_group(model, lambda joint, q, v, a: joint.advance(q, v, a, dt), (q,), (v, a))
    coordinates, velocities = zip(*moved, strict=True)
    topology = model.topology
    later = _to_vector(model, list(velocities), topology.v_starts)
    return _to_vector(model, list(coordinates), topology.q_starts), later


@kernel_function
def difference(model: Model, q0: Float[Array, "nq"], q1: Float[Array, "nq"]) -> Float[Array, "nv"]:
    """Step (rad or m) from q0 to q1: integrate(model, q0, difference(model, q0, q1)) = q1.

    Args:
        model: Mechanism.
        q0, q1: Generalized coordinates (rad or m).

    Example:
        ```python
        import jaxdyn
        from jaxdyn import configuration

        model = jaxdyn.library.double_pendulum()
        step = configuration.difference(model, configuration.neutral(model), 0.1 + configuration.neutral(model))
        ```
    """
    check_coordinates(model, q0)
    check_coordinates(model, q1)
    step = _by_group(model, _difference, (q0, q1))
    return _to_vector(model, step, model.topology.v_starts)


@kernel_function
def interpolate(
    model: Model, q0: Float[Array, "nq"], q1: Float[Array, "nq"], s: Float[Array, ""]
) -> Float[Array, "nq"]:
    """Coordinates at the fraction s of the way from q0 to q1: integrate(q0, s difference(q0, q1)).

    Args:
        model: Mechanism.
        q0, q1: Generalized coordinates (rad or m).
        s: Fraction of the way, 0 at q0 and 1 at q1.
    """
    return integrate(model, q0, s * difference(model, q0, q1))


@kernel_function
def distance(
    model: Model, q0: Float[Array, "nq"], q1: Float[Array, "nq"], weights: Float[Array, "nv"] | None = None
) -> Float[Array, ""]:
    """Length sqrt(sum w d^2) of the step d from q0 to q1.

    The gradient of the distance is undefined at q0 = q1 and set to zero there.

    Args:
        model: Mechanism.
        q0, q1: Generalized coordinates (rad or m).
        weights: Positive weight w of each velocity component, which also relates meters to radians; 1 if None.
    """
    step = difference(model, q0, q1)
    return zero_safe_norm(step if weights is None else jnp.sqrt(weights) * step)[0]


@kernel_function
def normalize(model: Model, q: Float[Array, "nq"]) -> Float[Array, "nq"]:
    """The same configuration with quaternions of norm 1.

    No function requires normalized quaternions, but normalized coordinates are easier to compare.
    """
    check_coordinates(model, q)
    return _to_vector(model, _by_group(model, lambda joint, q: joint.normalize(q), (q,)), model.topology.q_starts)


@kernel_function
def coordinate_rate(model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
    """Rates dq/dt at velocities v: rad/s, m/s, and 1/s for quaternions (synonym: q-rate map).

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Source: theory.md section (d).
    """
    check_coordinates(model, q)
    check_velocities(model, v=v)
    rates = _by_group(model, lambda joint, q, v: joint.coordinate_rate(q, v), (q,), (v,))
    return _to_vector(model, rates, model.topology.q_starts)


@kernel_function
def velocity_of_rate(model: Model, q: Float[Array, "nq"], rate: Float[Array, "nq"]) -> Float[Array, "nv"]:
    """Velocities at which dq/dt = rate, the inverse of `coordinate_rate`. A change of the norm of a quaternion is ignored.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        rate: Coordinate rates dq/dt (rad/s, m/s, or 1/s for quaternions).
    """
    check_coordinates(model, q)
    if all(kind.velocity_is_rate for kind, _ in model.topology.groups):
        return rate
    indexed = _by_group(model, lambda joint, q, rate: joint.velocity_of_rate(q, rate), (q, rate))
    return _to_vector(model, indexed, model.topology.v_starts)


def step_rate(
    model: Model, q: Float[Array, "nq"], step: Float[Array, "nv"], v: Float[Array, "nv"]
) -> Float[Array, "nv"]:
    """Time derivative of `step` if the configuration integrate(model, q, step) moves with velocities v at constant q.

    This is the inverse derivative of the exponential map. The rate equals v if all velocities are coordinate rates.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        step: Step in the tangent space at q (rad or m).
        v: Generalized velocities at the end of the step (rad/s or m/s).
    """
    if all(kind.velocity_is_rate for kind, _ in model.topology.groups):
        return v
    moved = integrate(model, q, step)

    def step_after(time):
        return difference(model, q, integrate(model, moved, time * v))

    return jax.jvp(step_after, (jnp.zeros((), v.dtype),), (jnp.ones((), v.dtype),))[1]


_Jacobians = tuple[Float[Array, "nv nv"], Float[Array, "nv nv"]]


@kernel_function
def integrate_jacobians(model: Model, q: Float[Array, "nq"], step: Float[Array, "nv"]) -> _Jacobians:
    """Jacobians of `integrate` with respect to q and to `step`, in tangent coordinates: velocity components, nv by nv.

        integrate(integrate(q, dq), step + dstep) = integrate(integrate(q, step), J_q dq + J_step dstep) + (second order)

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        step: Step in the tangent space at q (rad or m).

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn
        from jaxdyn import configuration

        model = jaxdyn.library.gyroscope()
        by_start, by_step = configuration.integrate_jacobians(model, configuration.neutral(model), 0.3 * jnp.ones(model.nv))
        ```

    Source: theory.md (D6).
    """
    check_coordinates(model, q)
    check_velocities(model, step=step)

    def of_joint(joint, q, step):
        end, zero = joint.integrate(q, step), jnp.zeros_like(step)

        def moved(dq, d_step):
            return joint.difference(end, joint.integrate(joint.integrate(q, dq), step + d_step))

        return jax.jacfwd(moved, (0, 1))(zero, zero)

    return _by_blocks(model, _by_group(model, of_joint, (q,), (step,)))


@kernel_function
def difference_jacobians(model: Model, q0: Float[Array, "nq"], q1: Float[Array, "nq"]) -> _Jacobians:
    """Jacobians of `difference` with respect to q0 and to q1, in tangent coordinates: velocity components, nv by nv.

        difference(integrate(q0, d0), integrate(q1, d1)) = difference(q0, q1) + J_0 d0 + J_1 d1 + (second order)

    Args:
        model: Mechanism.
        q0: Generalized coordinates at the start (rad or m).
        q1: Generalized coordinates at the end (rad or m); its rotations differ by less than half a turn from those at the start.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn
        from jaxdyn import configuration

        model = jaxdyn.library.gyroscope()
        q = configuration.neutral(model)
        by_start, by_end = configuration.difference_jacobians(model, q, configuration.integrate(model, q, 0.3 * jnp.ones(model.nv)))
        ```

    Source: theory.md (D7).
    """
    check_coordinates(model, q0)
    check_coordinates(model, q1)

    def of_joint(joint, q0, q1):
        def between(d0, d1):
            return joint.difference(joint.integrate(q0, d0), joint.integrate(q1, d1))

        zero = jnp.zeros(joint.nv, q0.dtype)
        return jax.jacfwd(between, (0, 1))(zero, zero)

    return _by_blocks(model, _by_group(model, of_joint, (q0, q1)))


def _by_blocks(model: Model, per_group: list) -> _Jacobians:
    """Block-diagonal matrices of pairs of matrices per stack and joint."""
    zero = jnp.zeros((model.nv, model.nv), model.dtype)
    first, second = ([pair[k] for pair in per_group] for k in (0, 1))
    return _to_blocks(model, first, zero), _to_blocks(model, second, zero)


@kernel_function
def to_primitives(model: Model, q: Float[Array, "nq"]) -> Float[Array, "nv"]:
    """Coordinates of the decomposed mechanism (`jaxdyn.decompose_joints`) in the configuration q of the mechanism.

    Source: theory.md section (d).
    """
    check_coordinates(model, q)
    coordinates = _by_group(model, lambda joint, q: joint.to_primitives(q), (q,))
    return _to_vector(model, coordinates, model.topology.v_starts)


@kernel_function
def from_primitives(model: Model, c: Float[Array, "nv"]) -> Float[Array, "nq"]:
    """Coordinates q of the mechanism from the coordinates c of its decomposed form, the inverse of `to_primitives`."""
    check_velocities(model, c=c)
    coordinates = _by_group(model, lambda joint, c: joint.from_primitives(c), (), (c,))
    return _to_vector(model, coordinates, model.topology.q_starts)


def to_released(
    model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], a: Float[Array, "nv"]
) -> tuple[Float[Array, "n"], Float[Array, "m"], Float[Array, "m"]]:
    """Coordinates, velocities and accelerations of `jaxdyn.release_joints(model)` in the same motion as (q, v, a) of `model`.

    Joints with prescribed motion have their prescribed values at the time of the model; all other joints keep the values (q, v, a).

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (I4).
    """
    check_coordinates(model, q)
    check_velocities(model, v=v, a=a)
    topology = model.topology
    parts = []
    for body, kind in enumerate(topology.joint_classes):
        start, column = topology.q_starts[body], topology.v_starts[body]
        own = (q[start : start + kind.nq], v[column : column + kind.nv], a[column : column + kind.nv])
        prescribed = model.joint(body).prescribed()
        parts.append(own if prescribed is None else prescribed)
    coordinates, velocities, accelerations = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    return coordinates, velocities, accelerations


def neutral(model: Model) -> Float[Array, "nq"]:
    """Coordinates at which every body frame coincides with its joint frame: zero angles and displacements."""
    coordinates = _by_group(model, lambda joint: jnp.asarray(joint.neutral(), model.dtype))
    return _to_vector(model, coordinates, model.topology.q_starts)


def check_key(key: PRNGKeyArray) -> None:
    """Raise an error unless the argument is a random key, typed or in the raw form of `jax.random.PRNGKey`."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise TypeError(f"key is {described(key)}; give a random key, jax.random.key(0)")


def random(model: Model, key: PRNGKeyArray, *, spread: float | Float[Array, ""] = 1.0) -> Float[Array, "nq"]:
    """Random coordinates: uniform between joint limits if both are finite, otherwise the neutral coordinates plus a normal step.

    The coordinates are statistically independent.

    Args:
        model: Mechanism.
        key: Random key.
        spread: Standard deviation of the step for coordinates without limits (rad or m); for coordinates with limits, the fraction
            (at most 1) of the range, about its middle, from which they are drawn.
    """
    check_key(key)
    return _random(model, key, spread)


@kernel_function
def _random(model: Model, key: PRNGKeyArray, spread: float | Float[Array, ""]) -> Float[Array, "nq"]:
    normal_key, uniform_key = jax.random.split(key)
    step = spread * jax.random.normal(normal_key, (model.nv,), model.dtype)
    free = integrate(model, neutral(model), step)
    lower, upper = model.limits.lower, model.limits.upper
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
    half = jnp.where(bounded, 0.5 * jnp.minimum(spread, 1.0) * (upper - lower), 0.0)
    middle = jnp.where(bounded, 0.5 * (upper + lower), 0.0)
    inside = middle + half * jax.random.uniform(uniform_key, (model.nq,), model.dtype, -1.0, 1.0)
    return jnp.where(bounded, inside, free)


__all__ = [
    "advance",
    "coordinate_rate",
    "difference",
    "difference_jacobians",
    "distance",
    "from_primitives",
    "integrate",
    "integrate_jacobians",
    "interpolate",
    "joint_transforms",
    "motion_columns",
    "neutral",
    "normalize",
    "random",
    "structure_coefficients",
    "to_primitives",
    "to_released",
    "velocity_of_rate",
]


def __dir__() -> list[str]:
    return __all__
