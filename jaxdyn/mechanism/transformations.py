"""Transformed mechanisms: joints decomposed into primitives, or joints without their prescribed motions.

Both functions return a new model, whose parameters are differentiable functions of those of the given model.
`configuration.to_primitives`, `from_primitives` and `released_motion` convert the coordinates.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.mechanism.joint import Joint, groups, stack
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Limits, Model, as_dtype
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.transform import RigidTransform


def decomposed(model: Model) -> Model:
    """Equivalent mechanism with joints of one degree of freedom only, and massless bodies between them.

        universal = R R,  cylindrical = P R,  spherical = R R R,  planar = P P R,  free = P P P R R R

    All velocities of this mechanism are coordinate rates, so textbook Christoffel symbols and products of exponentials apply.
    However, the mass matrix of this mechanism is singular where the second of three successive rotations is a quarter turn. The
    last primitive of a joint carries the body and its name; the others are called "<body>/1", "<body>/2", ...

    Raises:
        MechanismError: A spherical, planar or free joint has an armature, which has no equivalent in the primitive joints.

    Source: theory.md section (d).
    """
    topology = model.topology
    dtype = model.dtype
    chains = [model.joint(body).primitives() for body in range(model.nb)]
    last = np.cumsum([len(chain) for chain in chains]) - 1  # new index of each body
    names, joint_names, parents, joints = [], [], [], []
    for body, chain in enumerate(chains):
        before = topology.parents[body]
        first = len(joints)
        for k, joint in enumerate(chain):
            suffix = "" if k == len(chain) - 1 else f"/{k + 1}"
            names.append(topology.body_names[body] + suffix)
            joint_names.append(topology.joint_names[body] + suffix)
            parents.append((GROUND if before == GROUND else int(last[before])) if k == 0 else first + k - 1)
            joints.append(as_dtype(joint, dtype))
    carriers = tuple(body if body == GROUND else int(last[body]) for body in topology.frame_bodies)
    count = len(joints)
    heads = last - np.array([len(chain) - 1 for chain in chains])  # the first primitive has the placement of the joint
    identity = RigidTransform(
        jnp.tile(jnp.asarray([1.0, 0.0, 0.0, 0.0], dtype), (count, 1)), jnp.zeros((count, 3), dtype)
    )

    def of_last(x):
        return jnp.zeros((count, *x.shape[1:]), dtype).at[last].set(x)

    new = dataclasses.replace(
        topology,
        body_names=tuple(names),
        joint_names=tuple(joint_names),
        parents=tuple(parents),
        joint_classes=tuple(type(joint) for joint in joints),
        joint_groups=groups(joints),
        frame_bodies=carriers,
    )
    return Model(
        topology=new,
        joints=_stacked(joints),
        placement=jax.tree.map(lambda all_, own: all_.at[heads].set(own), identity, model.placement),
        mass=of_last(model.mass),
        com=of_last(model.com),
        inertia=of_last(model.inertia),
        armature=_of_primitives(model, model.armature, 0.0, "armature"),
        rotors=_renumbered(model, new, last),
        gravity=model.gravity,
        limits=Limits(
            lower=_of_primitives(model, model.limits.lower, -jnp.inf),
            upper=_of_primitives(model, model.limits.upper, jnp.inf),
            velocity=_of_primitives(model, model.limits.velocity, jnp.inf),
            effort=_of_primitives(model, model.limits.effort, jnp.inf),
        ),
        frames=model.frames,
    )


def _renumbered(model: Model, new: Topology, number: Sequence[int] | np.ndarray) -> Rotors:
    """Rotors in a topology in which bodies have other indices; the driven joints still have one component."""
    rotors, driven = model.rotors, model.topology.body_of_column
    return dataclasses.replace(
        rotors,
        carriers=tuple(GROUND if carrier == GROUND else int(number[carrier]) for carrier in rotors.carriers),
        columns=tuple(int(new.v_starts[number[driven[column]]]) for column in rotors.columns),
    )


def _of_primitives(model: Model, numbers: Float[Array, "_"], default: float, refused: str | None = None) -> Array:
    """Values per coordinate or velocity in the order of the primitives; the default for those of quasi-velocities."""
    topology = model.topology
    per_velocity = len(numbers) == model.nv
    parts = []
    for body, kind in enumerate(topology.joint_classes):
        size, start = (kind.nv, topology.v_starts[body]) if per_velocity else (kind.nq, topology.q_starts[body])
        own = numbers[start : start + size]
        if kind.velocity_is_rate:
            parts.append(model.joint(body).to_primitives(own))
            continue
        if refused is not None and not isinstance(own, Tracer) and np.any(np.asarray(own) != default):
            raise MechanismError(
                f"joint {topology.joint_names[body]!r} of mechanism {model.name!r} has {refused} {np.asarray(own).tolist()}, which "
                f"has no equivalent in primitive joints; set it to {default:g} first"
            )
        parts.append(jnp.full(kind.nv, default, numbers.dtype))
    return jnp.concatenate(parts)


def released(model: Model) -> Model:
    """The mechanism without prescribed motions: each rheonomic joint is replaced by the joint that it drives.

    Source: theory.md (I4).
    """
    topology = model.topology
    kinds = topology.joint_classes
    joints = [model.joint(body).released() for body in range(model.nb)]

    def widened(numbers, sizes, starts, attribute, default):
        """Values of the ordinary joints, and `default` for the released joints."""
        parts = []
        for body, joint in enumerate(joints):
            own = numbers[starts[body] : starts[body] + sizes[body]]
            parts.append(own if type(joint) is kinds[body] else jnp.full(getattr(joint, attribute), default, own.dtype))
        return jnp.concatenate(parts)

    per_q = ([kind.nq for kind in kinds], topology.q_starts, "nq")
    per_v = ([kind.nv for kind in kinds], topology.v_starts, "nv")
    limits = Limits(
        lower=widened(model.limits.lower, *per_q, -jnp.inf),
        upper=widened(model.limits.upper, *per_q, jnp.inf),
        velocity=widened(model.limits.velocity, *per_v, jnp.inf),
        effort=widened(model.limits.effort, *per_v, jnp.inf),
    )
    classes = tuple(type(joint) for joint in joints)
    new = dataclasses.replace(topology, joint_classes=classes, joint_groups=groups(joints))
    return dataclasses.replace(
        model,
        topology=new,
        joints=_stacked(joints),
        armature=widened(model.armature, *per_v, 0.0),
        rotors=_renumbered(model, new, range(model.nb)),
        limits=limits,
    )


def _stacked(joints: list[Joint]) -> tuple[Joint, ...]:
    numbers = groups(joints)
    return tuple(
        stack([joint for joint, k in zip(joints, numbers, strict=True) if k == number])
        for number in range(max(numbers) + 1)
    )
