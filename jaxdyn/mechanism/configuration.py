"""The configuration space of a mechanism: a product of joint manifolds. This is the only file that slices q and v.

Coordinates q (nq numbers) locate the mechanism; velocities v (nv numbers) are components of joint twists. A step in the
tangent space has nv components, and `integrate` and `difference` go between steps and coordinates, as + and - do for plain angles.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.mechanism.joints import Joint
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.transform import RigidTransform


def check_coordinates(model: Model, q: Float[Array, "nq"]) -> None:
    """Refuse, at trace time, coordinates of the wrong shape or type.

    Raises:
        ValueError: the message names the mechanism, the shapes, and `jax.vmap` if `q` is a batch.
    """
    _check_vector(model, q, "q", "nq", model.nq, "coordinate")


def check_velocities(model: Model, **vectors: Float[Array, "nv"]) -> None:
    """Refuse, at trace time, velocities, accelerations or forces of the wrong shape or type, as `check_coordinates`."""
    for name, value in vectors.items():
        _check_vector(model, value, name, "nv", model.nv, "velocity")


def _check_vector(model: Model, value: Array, name: str, length_name: str, length: int, concept: str) -> None:
    if not isinstance(value, jax.Array | np.ndarray):
        raise ValueError(f"{name} is a {type(value).__name__}; give an array, jnp.asarray({name})")
    shape = value.shape
    if shape != (length,):
        message = (
            f"{name} has shape {shape}, but mechanism {model.name!r} has {length_name} = {length}: "
            f"give one number per {concept} component, shape ({length},)"
        )
        if len(shape) > 1 and shape[-1] == length:
            message += "; for a batch, wrap the function in jax.vmap"
        raise ValueError(message)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"{name} holds {value.dtype} numbers; give floating-point numbers")


def _by_class(model: Model, method, coordinates=(), velocities=()) -> list:
    """method(joint, *q's, *v's), vmapped over the joints of each class; one entry per class."""
    topology = model.topology
    results = []
    for (kind, bodies), joint in zip(topology.bodies_of_class.items(), model.joints, strict=True):
        q_index = topology.q_starts[bodies][:, None] + np.arange(kind.nq)
        v_index = topology.v_starts[bodies][:, None] + np.arange(kind.nv)
        # The size is given because a joint without numbers, and a method of it without arguments, have no axis to show it.
        batched = jax.vmap(method, axis_size=len(bodies))
        results.append(batched(joint, *(q[q_index] for q in coordinates), *(v[v_index] for v in velocities)))
    return results


def _to_bodies(model: Model, per_class: list):
    """Reorder results per class, each with its joints on the leading axis, to one array per body."""
    order = np.argsort(np.concatenate(list(model.topology.bodies_of_class.values())))
    return jax.tree.map(lambda *parts: _take(jnp.concatenate(parts), order), *per_class)


def _to_vector(model: Model, per_class: list[Float[Array, "_ _ *rest"]], starts: np.ndarray) -> Float[Array, "..."]:
    """Reorder numbers per class, joint and component to the order of q or v."""
    bodies = model.topology.bodies_of_class.values()
    index = [(starts[b][:, None] + np.arange(part.shape[1])).ravel() for b, part in zip(bodies, per_class, strict=True)]
    flat = jnp.concatenate([part.reshape(-1, *part.shape[2:]) for part in per_class])
    return _take(flat, np.argsort(np.concatenate(index)))


def _take(x: Array, order: np.ndarray) -> Array:
    return x if np.array_equal(order, np.arange(len(order))) else x[order]


def joint_transforms(model: Model, q: Float[Array, "nq"]) -> RigidTransform:
    """(nb,) placement of each body frame in its joint frame, which is fixed in the parent."""
    return _to_bodies(model, _by_class(model, lambda joint, q: joint.transform(q), (q,)))


def motion_columns(model: Model, q: Float[Array, "nq"]) -> Float[Array, "nv 6"]:
    """Columns of all joint motion subspaces, in the axes and at the origin of each column's own body."""
    columns = _by_class(model, lambda joint, q: joint.motion_subspace(q).T, (q,))
    return _to_vector(model, columns, model.topology.v_starts)


def subspace_rates(model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nb 6"] | None:
    """dS/dt v of every joint in child axes, or None if every class present has a constant motion subspace."""
    if all(kind.subspace_rate is Joint.subspace_rate for kind in model.topology.bodies_of_class):
        return None
    return _to_bodies(model, _by_class(model, lambda joint, q, v: joint.subspace_rate(q, v), (q,), (v,)))


def integrate(model: Model, q: Float[Array, "nq"], step: Float[Array, "nv"]) -> Float[Array, "nq"]:
    """Coordinates reached from q by moving for unit time with constant joint velocities `step` (rad, m).

    For revolute and prismatic joints this is q + step.
    """
    check_coordinates(model, q)
    check_velocities(model, step=step)
    moved = _by_class(model, lambda joint, q, step: joint.integrate(q, step), (q,), (step,))
    return _to_vector(model, moved, model.topology.q_starts)


def difference(model: Model, q0: Float[Array, "nq"], q1: Float[Array, "nq"]) -> Float[Array, "nv"]:
    """Step (rad, m) that takes q0 to q1: integrate(model, q0, difference(model, q0, q1)) = q1."""
    check_coordinates(model, q0)
    check_coordinates(model, q1)
    step = _by_class(model, lambda joint, q0, q1: joint.difference(q0, q1), (q0, q1))
    return _to_vector(model, step, model.topology.v_starts)


def step_rate(
    model: Model, q: Float[Array, "nq"], step: Float[Array, "nv"], v: Float[Array, "nv"]
) -> Float[Array, "nv"]:
    """Rate of `step` when integrate(model, q, step) moves with velocities v: the inverse derivative of the exponential.

    It is v itself unless a joint's velocities are no coordinate rates.
    """
    if all(kind.velocity_is_rate for kind in model.topology.bodies_of_class):
        return v
    moved = integrate(model, q, step)

    def step_after(time):
        return difference(model, q, integrate(model, moved, time * v))

    return jax.jvp(step_after, (jnp.zeros((), v.dtype),), (jnp.ones((), v.dtype),))[1]


def neutral(model: Model) -> Float[Array, "nq"]:
    """Coordinates at which every body frame coincides with its joint frame: zero angles and displacements."""
    coordinates = _by_class(model, lambda joint: joint.neutral().astype(model.dtype))
    return _to_vector(model, coordinates, model.topology.q_starts)


def random(model: Model, key: PRNGKeyArray, *, spread: float = 1.0) -> Float[Array, "nq"]:
    """Random coordinates: uniform between joint limits where both are finite, else a normal step from neutral.

    Each coordinate has its own random number.

    Args:
        spread: standard deviation of the step where there are no limits (rad, m); also the fraction of the
            range between limits, about its middle, that is used (at most 1).
    """
    normal_key, uniform_key = jax.random.split(key)
    step = spread * jax.random.normal(normal_key, (model.nv,), model.dtype)
    free = integrate(model, neutral(model), step)
    lower, upper = model.limits.lower, model.limits.upper
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
    half = jnp.where(bounded, 0.5 * min(spread, 1.0) * (upper - lower), 0.0)
    middle = jnp.where(bounded, 0.5 * (upper + lower), 0.0)
    inside = middle + half * jax.random.uniform(uniform_key, (model.nq,), model.dtype, -1.0, 1.0)
    return jnp.where(bounded, inside, free)
