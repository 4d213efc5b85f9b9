"""Transformed mechanisms: joints decomposed into primitives, joints without their prescribed motions, or locked joints.

All functions return a new model, whose parameters are differentiable functions of those of the given model.
`configuration.to_primitives`, `from_primitives` and `to_released` convert the coordinates.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from jaxdyn.compute.arrays import einsum
from jaxdyn.errors import check_name
from jaxdyn.mechanism.joint import Joint, groups, stack
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Limits, Model, as_dtype
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.inertia import inertia_from_planar, planar_from_inertia, symmetric_entries, symmetric_matrix
from jaxdyn.spatial.transform import RigidTransform


def decompose_joints(model: Model) -> Model:
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
    for body, kind in enumerate(topology.joint_classes):
        start = topology.v_starts[body]
        own = model.armature[start : start + kind.nv]
        if not kind.velocity_is_rate and not isinstance(own, Tracer) and np.any(own):
            raise MechanismError(
                f"joint {topology.joint_names[body]!r} of mechanism {model.name!r} has armature {np.asarray(own).tolist()}, which "
                "has no equivalent in primitive joints; set it to 0 first"
            )

    def of_primitives(body, own):
        return model.joint(body).to_primitives(own) if topology.joint_classes[body].velocity_is_rate else None

    return _with_chains(model, [model.joint(body).primitives() for body in range(model.nb)], of_primitives)


def release_joints(model: Model) -> Model:
    """The mechanism without prescribed motions: each rheonomic joint is replaced by the joint that it drives.

    Source: theory.md (I4).
    """
    joints = [model.joint(body).released() for body in range(model.nb)]

    def kept(body, own):
        return own if type(joints[body]) is model.topology.joint_classes[body] else None

    return _with_chains(model, [(joint,) for joint in joints], kept)


def _with_chains(
    model: Model, chains: Sequence[tuple[Joint, ...]], convert: Callable[[int, Array], Array | None]
) -> Model:
    """The mechanism with a chain of joints instead of each joint, and massless bodies between them.

    Args:
        model: The mechanism.
        chains: Joints of each body; the last one carries the body.
        convert: Function of a body and of its values per coordinate or velocity that returns those of its chain; None for default
            values.
    """
    topology, dtype = model.topology, model.dtype
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
    count = len(joints)
    heads = last - np.array([len(chain) - 1 for chain in chains])  # the first joint has the placement of the old one
    identity = RigidTransform(
        jnp.tile(jnp.asarray([1.0, 0.0, 0.0, 0.0], dtype), (count, 1)), jnp.zeros((count, 3), dtype)
    )

    def of_last(x):
        return jnp.zeros((count, *x.shape[1:]), dtype).at[last].set(x)

    def of_chains(values, per, default):
        parts = []
        for body, (kind, chain) in enumerate(zip(topology.joint_classes, chains, strict=True)):
            size, starts = (kind.nv, topology.v_starts) if per == "nv" else (kind.nq, topology.q_starts)
            own = values[starts[body] : starts[body] + size]
            found = convert(body, own)
            parts.append(jnp.full(sum(getattr(x, per) for x in chain), default, dtype) if found is None else found)
        return jnp.concatenate(parts)

    new = dataclasses.replace(
        topology,
        body_names=tuple(names),
        joint_names=tuple(joint_names),
        parents=tuple(parents),
        joint_classes=tuple(type(joint) for joint in joints),
        joint_groups=groups(joints),
        frame_bodies=tuple(body if body == GROUND else int(last[body]) for body in topology.frame_bodies),
    )
    rotors, driven = model.rotors, topology.body_of_column
    return dataclasses.replace(
        model,
        topology=new,
        joints=_stacked(joints),
        placement=jax.tree.map(lambda all_, own: all_.at[heads].set(own), identity, model.placement),
        mass=of_last(model.mass),
        com=of_last(model.com),
        inertia=of_last(model.inertia),
        armature=of_chains(model.armature, "nv", 0.0),
        rotors=dataclasses.replace(
            rotors,
            carriers=tuple(GROUND if carrier == GROUND else int(last[carrier]) for carrier in rotors.carriers),
            # The driven joints still have one component.
            columns=tuple(int(new.v_starts[last[driven[column]]]) for column in rotors.columns),
        ),
        limits=Limits(
            lower=of_chains(model.limits.lower, "nq", -jnp.inf),
            upper=of_chains(model.limits.upper, "nq", jnp.inf),
            velocity=of_chains(model.limits.velocity, "nv", jnp.inf),
            effort=of_chains(model.limits.effort, "nv", jnp.inf),
        ),
    )


def lock_joints(model: Model, positions: Mapping[str, Array | np.ndarray | Sequence[float] | float]) -> Model:
    """Reduced mechanism in which joints are fixed at given positions (synonyms: lock, freeze).

    The body of a locked joint becomes a part of the body that carries it, as with a `Fixed` joint, and remains a frame with its
    name. The rotors that a locked joint drives do not spin, and its armature and limits are gone. The coordinates and velocities of
    the other joints keep their order. `jaxdyn.io.lock_joints` locks joints of a `System`.

    Args:
        model: The mechanism.
        positions: Coordinates by the name of the joint, rad or m; a list for a joint with several coordinates. The result is a
            differentiable function of them.

    Raises:
        UnknownName: There is no joint of this name; the message lists the existing names.
        MechanismError: A joint has another number of coordinates, or no joint would be left.

    Example:
        ```python
        import jaxdyn

        model = jaxdyn.library.double_pendulum()
        bent = jaxdyn.mechanism.lock_joints(model, {"elbow": 0.3})  # one degree of freedom
        ```

    Source: theory.md (E1), (E2), (F6).
    """
    topology = model.topology
    fixed = {topology.joint_names.index(name): q for name, q in _checked_positions(model, positions).items()}
    if len(fixed) == model.nb:
        raise MechanismError(f"all joints of mechanism {model.name!r} are locked; leave one out")
    kept = [body for body in range(model.nb) if body not in fixed]
    number = {body: k for k, body in enumerate(kept)}
    origin = RigidTransform.identity(model.dtype)
    # The body that carries each of the old ones, and its place in it.
    carriers, inside = {GROUND: GROUND}, {GROUND: origin}
    parents, placements = [], []
    for body, parent in enumerate(topology.parents):
        placement = inside[parent].compose(model.placement.row(body))
        if body in fixed:
            joint = model.joint(body)
            carriers[body] = carriers[parent]
            inside[body] = placement.compose(joint.transform(joint.normalize(fixed[body])))
        else:
            carriers[body], inside[body] = number[body], origin
            parents.append(carriers[parent])
            placements.append(placement)
    joints = [model.joint(body) for body in kept]
    frames = [(c, inside[c].compose(model.frames.row(k))) for k, c in enumerate(topology.frame_bodies)]
    frames += [(body, inside[body]) for body in fixed]
    new = dataclasses.replace(
        topology,
        body_names=tuple(topology.body_names[body] for body in kept),
        joint_names=tuple(topology.joint_names[body] for body in kept),
        parents=tuple(parents),
        joint_classes=tuple(type(joint) for joint in joints),
        joint_groups=groups(joints),
        frame_names=(*topology.frame_names, *(topology.body_names[body] for body in fixed)),
        frame_bodies=tuple(carriers[body] for body, _ in frames),
    )
    spins = [row for row, c in enumerate(model.rotors.columns) if topology.body_of_column[c] not in fixed]
    axes = [quaternion.rotate(inside[model.rotors.carriers[row]].quaternion, model.rotors.axis[row]) for row in spins]
    rotors = Rotors(
        tuple(model.rotors.names[row] for row in spins),
        tuple(carriers[model.rotors.carriers[row]] for row in spins),
        tuple(int(new.v_starts[number[topology.body_of_column[model.rotors.columns[row]]]]) for row in spins),
        jnp.stack(axes) if axes else model.rotors.axis[:0],
        *(values[np.array(spins, int)] for values in (model.rotors.inertia, model.rotors.ratio)),
    )
    of_q, of_v = (np.isin(x, kept) for x in (topology.body_of_coordinate, topology.body_of_column))
    limits = model.limits
    mass, com, inertia = _merged(model, [carriers[body] for body in range(model.nb)], _stack(list(inside.values())[1:]))
    return dataclasses.replace(
        model,
        topology=new,
        joints=_stacked(joints),
        placement=_stack(placements),
        mass=mass,
        com=com,
        inertia=inertia,
        armature=model.armature[of_v],
        rotors=rotors,
        limits=Limits(limits.lower[of_q], limits.upper[of_q], limits.velocity[of_v], limits.effort[of_v]),
        frames=_stack([placement for _, placement in frames]) if frames else model.frames,
    )


def _checked_positions(model: Model, positions: Mapping) -> dict[str, Array]:
    topology, found = model.topology, {}
    for name, value in positions.items():
        check_name("joint", name, topology.joint_names)
        kind = topology.joint_classes[topology.joint_names.index(name)]
        found[name] = jnp.atleast_1d(jnp.asarray(value, model.dtype))
        if found[name].shape != (kind.nq,):
            raise MechanismError(
                f"joint {name!r} is locked at values of the shape {found[name].shape}; give its {kind.nq} coordinates"
            )
    return found


def _merged(model: Model, carriers: list[int], inside: RigidTransform) -> tuple[Array, Array, Array]:
    """Masses, centers and central inertias of the bodies that carry the given ones; see `_lump` of the builder. Source: (F6)."""
    owner, count = np.array(carriers), max(carriers) + 1
    joined = np.equal.outer(np.arange(count), owner)
    first = [int(np.flatnonzero(row)[0]) for row in joined]  # the body itself precedes those that it carries
    alone = joined.sum(axis=1) == 1  # keeps its given values, free of rounding
    share = joined.astype(model.dtype)
    centers = jax.vmap(RigidTransform.apply)(inside, model.com)
    mass = einsum("kb,b->k", share, model.mass)
    moment = einsum("kb,b,bi->ki", share, model.mass, centers)
    com = jnp.where(alone[:, None], model.com[np.array(first)], moment / jnp.where(mass == 0.0, 1.0, mass)[:, None])
    arms = centers - com[owner]  # those of bodies on the ground belong to no body
    planar = jax.vmap(lambda six: planar_from_inertia(symmetric_matrix(six)))(model.inertia)
    turned = einsum("bij,bjk,blk->bil", inside.rotation, planar, inside.rotation)
    about = einsum("kb,bij->kij", share, turned + einsum("b,bi,bj->bij", model.mass, arms, arms))  # (F6)
    inertia = jax.vmap(lambda planar: symmetric_entries(inertia_from_planar(planar)))(about)
    return mass, com, jnp.where(alone[:, None], model.inertia[np.array(first)], inertia)


def _stack(placements: list[RigidTransform]) -> RigidTransform:
    return jax.tree.map(lambda *rows: jnp.stack(rows), *placements)


def _stacked(joints: list[Joint]) -> tuple[Joint, ...]:
    numbers = groups(joints)
    return tuple(
        stack([joint for joint, k in zip(joints, numbers, strict=True) if k == number])
        for number in range(max(numbers) + 1)
    )
