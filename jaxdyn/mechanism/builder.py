"""Building a model body by body. All checks of values are here.

The checks run once, eagerly, in NumPy double precision, and every message names the body and the remedy. Fixed joints are merged:
the child's mass and inertia are added to its carrier, and its frame stays available under the child's name.
"""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.mechanism import joints as joint_kinds
from jaxdyn.mechanism.joints import Fixed, Joint
from jaxdyn.mechanism.model import Limits, Model, as_dtype
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.inertia import SpatialInertia, inertia_from_planar, symmetric_entries, symmetric_matrix
from jaxdyn.spatial.transform import RigidTransform

# Whatever NumPy turns into numbers. The checks below say more than a type could.
Numbers: TypeAlias = Any

STANDARD_GRAVITY = (0.0, 0.0, -9.81)

# A measured inertia that misses the triangle inequality by less than this fraction of its trace is rounding, not error.
_TRIANGLE_TOLERANCE = 1e-9
_UNIT_TOLERANCE = 1e-6


class MechanismError(ValueError):
    """A mechanism that cannot be built; the message names the body and the remedy."""


@dataclasses.dataclass(frozen=True)
class _Body:
    name: str
    parent: str
    joint: Joint
    joint_name: str
    placement: RigidTransform
    mass: np.ndarray
    com: np.ndarray
    inertia: np.ndarray
    armature: np.ndarray
    limits: Limits


@dataclasses.dataclass(frozen=True)
class _Frame:
    name: str
    body: str
    placement: RigidTransform


class MechanismBuilder:
    """Collects bodies and frames and turns them into a `Model`.

        builder = MechanismBuilder("pendulum")
        builder.add_body("rod", joint=Revolute((0, 1, 0)), mass=1.0, com=(0, 0, -0.5), inertia=(0.08, 0.08, 0.001))
        model = builder.build()

    Bodies may be added in any order; "ground" is the fixed world.

    Args:
        name: name of the mechanism, used in messages.
        gravity: gravitational acceleration in ground axes, m/s^2.
    """

    def __init__(self, name: str = "mechanism", gravity: Numbers = STANDARD_GRAVITY):
        self.name = name
        self._gravity = _numbers(gravity, (3,), f"mechanism {name!r}", "gravity")
        self._bodies: dict[str, _Body] = {}
        self._frames: dict[str, _Frame] = {}

    def add_body(
        self,
        name: str,
        *,
        joint: Joint,
        parent: str = "ground",
        position: Numbers = (0.0, 0.0, 0.0),
        orientation: Numbers = (1.0, 0.0, 0.0, 0.0),
        mass: Numbers = 0.0,
        com: Numbers = (0.0, 0.0, 0.0),
        inertia: Numbers = (0.0, 0.0, 0.0),
        armature: Numbers = 0.0,
        joint_name: str | None = None,
        position_limits: Numbers | None = None,
        velocity_limit: float = np.inf,
        effort_limit: float = np.inf,
    ) -> None:
        """Add a body and the joint that carries it.

        Args:
            name: unique name of the body.
            joint: `Revolute(axis)`, `Prismatic(axis)`, `Fixed()` or any other `Joint`.
            parent: the body that carries the joint, added before or later.
            position: origin of the joint frame in parent axes, m.
            orientation: rotation of the joint frame in the parent: unit quaternion (w, x, y, z) or 3x3 rotation matrix.
            mass: kg.
            com: mass centre from the body origin (the joint point O'), body axes, m.
            inertia: inertia tensor about the mass centre, body axes, kg m^2: (xx, yy, zz), (xx, yy, zz, xy, xz, yz)
                with tensor entries off the diagonal, or a symmetric 3x3 matrix.
            armature: reflected rotor inertia, kg m^2 or kg; one number, or one per velocity of the joint.
            joint_name: name of the joint; "<name>_joint" if not given.
            position_limits: (lower, upper) of every coordinate of the joint, rad or m.
            velocity_limit, effort_limit: largest speed and drive force, rad/s, m/s, N m, N.

        Raises:
            MechanismError: the name is taken, or a value is not physical.
        """
        where = f"body {name!r}"
        if name == "ground":
            raise MechanismError('a body cannot be called "ground", which is the fixed world; choose another name')
        if name in self._bodies or name in self._frames:
            raise MechanismError(f"there are two bodies or frames called {name!r}; rename one")
        if not isinstance(joint, Joint):
            raise MechanismError(f"{where}: joint is {joint!r}; give a Joint such as Revolute((0, 0, 1))")
        problem = joint.problem()
        if problem is not None:
            raise MechanismError(f"the {type(joint).__name__.lower()} joint of {where}: {problem}")
        mass_, com_, inertia_ = _checked_inertia(where, mass, com, inertia)
        armature_ = _numbers(np.broadcast_to(armature, (joint.nv,)), (joint.nv,), where, "armature")
        if np.any(armature_ < 0):
            raise MechanismError(f"{where}: armature is {armature_.tolist()}; a rotor inertia is positive or zero")
        placement = _checked_placement(where, position, orientation)
        limits = _checked_limits(where, joint, position_limits, velocity_limit, effort_limit)
        joint_name = f"{name}_joint" if joint_name is None else joint_name
        if joint_name in {body.joint_name for body in self._bodies.values()}:
            raise MechanismError(f"{where}: there are two joints called {joint_name!r}; rename one")
        self._bodies[name] = _Body(
            name, parent, joint, joint_name, placement, mass_, com_, inertia_, armature_, limits
        )

    def add_frame(
        self,
        name: str,
        *,
        body: str,
        position: Numbers = (0.0, 0.0, 0.0),
        orientation: Numbers = (1.0, 0.0, 0.0, 0.0),
    ) -> None:
        """Add a named frame fixed in a body or in the ground, such as a flange or a sensor.

        Args:
            position: origin of the frame in body axes, m.
            orientation: unit quaternion (w, x, y, z) or 3x3 rotation matrix, body axes.

        Raises:
            MechanismError: the name is taken, or a value is not finite.
        """
        if name in self._bodies or name in self._frames or name == "ground":
            raise MechanismError(f"there are two bodies or frames called {name!r}; rename one")
        self._frames[name] = _Frame(name, body, _checked_placement(f"frame {name!r}", position, orientation))

    def build(self, dtype=None) -> Model:
        """The model, with parents before children and fixed joints merged.

        Args:
            dtype: floating-point type of the numbers; JAX's default if not given.

        Raises:
            MechanismError: unknown parent, a cycle, no moving body, or a moving leaf without mass.
        """
        with jax.enable_x64(True):  # merging is done once, in double precision, whatever the final type
            model = _assemble(self.name, self._gravity, self._sorted_bodies(), list(self._frames.values()))
            numbers = jax.tree.map(np.asarray, eqx.filter(model, eqx.is_array))
        default = jnp.zeros(()).dtype
        return as_dtype(
            eqx.combine(jax.tree.map(lambda x: jnp.asarray(x, dtype or default), numbers), model), dtype or default
        )

    def _sorted_bodies(self) -> list[_Body]:
        """Bodies in an order with parents first, otherwise as added."""
        known = ["ground", *self._bodies]
        for item, carrier, role in [(b.name, b.parent, "parent") for b in self._bodies.values()] + [
            (f.name, f.body, "body") for f in self._frames.values()
        ]:
            if carrier not in known:
                close = difflib.get_close_matches(carrier, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"the names are {', '.join(known)}"
                raise MechanismError(f"{item!r}: its {role} {carrier!r} is unknown; {hint}")
        done: dict[str, _Body] = {}
        waiting = list(self._bodies.values())
        while waiting:
            ready = [b for b in waiting if b.parent == "ground" or b.parent in done]
            if not ready:
                cycle = ", ".join(b.name for b in waiting)
                raise MechanismError(
                    f"mechanism {self.name!r}: bodies {cycle} are their own ancestors (a cycle of parents); "
                    "give one of them a parent that leads to the ground"
                )
            # Only the first one ready: bodies keep the order in which they were added as far as possible.
            done[ready[0].name] = ready[0]
            waiting.remove(ready[0])
        return list(done.values())


def model_from_arrays(
    parents: Sequence[int],
    kinds: Sequence[str],
    axes: Sequence[Numbers],
    joint_offsets: Sequence[Numbers],
    com_offsets: Sequence[Numbers],
    masses: Sequence[Numbers],
    inertias: Sequence[Numbers],
    *,
    gravity: Numbers = STANDARD_GRAVITY,
    orientations: Sequence[Numbers] | None = None,
    name: str = "mechanism",
    dtype=None,
) -> Model:
    """Model from the arrays of theory.md, in its numbering: bodies 1..n in order, parent 0 is the ground.

    Args:
        parents: par(i) < i.
        kinds: "revolute" or "prismatic".
        axes: (n, 3) unit vectors e_i in joint-frame components.
        joint_offsets: (n, 3) l_i from O'_par(i) to O_i in parent axes, m.
        com_offsets: (n, 3) c_i from O'_i to C_i in body axes, m.
        masses: (n,) m_i, kg.
        inertias: (n, 6) entries (xx, yy, zz, xy, xz, yz) or (n, 3, 3), J_i about C_i in body axes, kg m^2.
        gravity: in ground axes, m/s^2.
        orientations: (n, 4) or (n, 3, 3) constant rotations F_i of the joint frames (E3); none if not given.

    Raises:
        MechanismError: lengths differ, or a value is refused by `MechanismBuilder`.

    Source: theory.md, sections 0 and (e).
    """
    n = len(parents)
    arrays = {"kinds": kinds, "axes": axes, "joint_offsets": joint_offsets, "com_offsets": com_offsets}
    arrays |= {"masses": masses, "inertias": inertias}
    if orientations is not None:
        arrays["orientations"] = orientations
    for label, array in arrays.items():
        if len(array) != n:
            raise MechanismError(f"{label} has {len(array)} entries but parents has {n}; give one per body")
    builder = MechanismBuilder(name, gravity)
    for i, parent in enumerate(parents):
        if not 0 <= parent <= n:
            raise MechanismError(f"body {i + 1}: parent {parent} does not exist; use 0 (the ground) to {n}")
        builder.add_body(
            str(i + 1),
            joint=joint_kinds.joint_of_kind(kinds[i], axes[i]),
            parent="ground" if parent == 0 else str(parent),
            position=joint_offsets[i],
            orientation=(1.0, 0.0, 0.0, 0.0) if orientations is None else orientations[i],
            mass=masses[i],
            com=com_offsets[i],
            inertia=inertias[i],
        )
    return builder.build(dtype)


def _assemble(name: str, gravity: np.ndarray, bodies: list[_Body], frames: list[_Frame]) -> Model:
    # The moving body (or ground, -1) that carries each named body or frame, and its placement there.
    carriers: dict[str, tuple[int, RigidTransform]] = {"ground": (GROUND, RigidTransform.identity(float))}
    moving: list[_Body] = []
    inertias: list[SpatialInertia] = []
    parents: list[int] = []
    placements: list[RigidTransform] = []
    frame_list: list[tuple[str, int, RigidTransform]] = []
    for body in bodies:
        carrier, carrier_placement = carriers[body.parent]
        placement = carrier_placement.compose(body.placement)
        if isinstance(body.joint, Fixed):
            carriers[body.name] = (carrier, placement)
            frame_list.append((body.name, carrier, placement))
            if carrier != GROUND:
                inertias[carrier] = jax.tree.map(jnp.add, inertias[carrier], _inertia_in_carrier(body, placement))
            continue
        carriers[body.name] = (len(moving), RigidTransform.identity(float))
        moving.append(body)
        parents.append(carrier)
        placements.append(placement)
        inertias.append(_inertia_in_carrier(body, RigidTransform.identity(float)))
    if not moving:
        raise MechanismError(f"mechanism {name!r} has no moving body; add a body with a joint that is not fixed")
    for frame in frames:
        carrier, placement = carriers[frame.body]
        frame_list.append((frame.name, carrier, placement.compose(frame.placement)))

    topology = Topology(
        name=name,
        body_names=tuple(b.name for b in moving),
        joint_names=tuple(b.joint_name for b in moving),
        parents=tuple(parents),
        joint_classes=tuple(type(b.joint) for b in moving),
        frame_names=tuple(f[0] for f in frame_list),
        frame_bodies=tuple(f[1] for f in frame_list),
    )
    _check_leaves_have_inertia(topology, moving, inertias)
    mass, com, inertia = zip(*(_mass_com_inertia(x) for x in inertias), strict=True)
    stacked_frames = [f[2] for f in frame_list]
    none = RigidTransform(jnp.zeros((0, 4)), jnp.zeros((0, 3)))
    return Model(
        topology=topology,
        joints=tuple(
            joint_kinds.stack([moving[i].joint for i in bodies]) for bodies in topology.bodies_of_class.values()
        ),
        placement=_stack(placements),
        mass=jnp.stack(mass),
        com=jnp.stack(com),
        inertia=jnp.stack(inertia),
        armature=jnp.concatenate([jnp.asarray(b.armature) for b in moving]),
        gravity=jnp.asarray(gravity),
        limits=jax.tree.map(lambda *x: jnp.concatenate(x), *(b.limits for b in moving)),
        frames=_stack(stacked_frames) if stacked_frames else none,
    )


def _stack(transforms: list[RigidTransform]) -> RigidTransform:
    return jax.tree.map(lambda *x: jnp.stack(x), *transforms)


def _inertia_in_carrier(body: _Body, placement: RigidTransform) -> SpatialInertia:
    """Inertia of a body about the origin and on the axes of the body that carries it."""
    rotation = placement.rotation
    tensor = rotation @ symmetric_matrix(jnp.asarray(body.inertia)) @ rotation.T
    return SpatialInertia.of_body(jnp.asarray(body.mass), placement.apply(jnp.asarray(body.com)), tensor)


def _mass_com_inertia(total: SpatialInertia):
    """Mass, mass centre and inertia entries about it; a massless body has its mass centre at its origin."""
    massless = total.mass == 0
    com = jnp.where(massless, 0.0, total.first_moment / jnp.where(massless, 1.0, total.mass))
    planar = total.planar - jnp.outer(total.first_moment, com)
    return total.mass, com, symmetric_entries(inertia_from_planar(planar))


def _check_leaves_have_inertia(topology: Topology, moving: list[_Body], inertias: list[SpatialInertia]) -> None:
    """Every joint must move some inertia, or the mass matrix is singular everywhere (D1)."""
    for i, body in enumerate(moving):
        subtree = np.flatnonzero(topology.precedes[i])
        empty = all(float(inertias[k].mass) == 0 and not np.any(np.asarray(inertias[k].planar)) for k in subtree)
        if empty and not np.all(body.armature > 0):
            raise MechanismError(
                f"body {body.name!r}: nothing beyond its joint has mass or inertia, so its acceleration is undefined; "
                "give the body a mass, give the joint an armature, or make it fixed"
            )


def _numbers(value, shape: tuple[int, ...], where: str, what: str) -> np.ndarray:
    """`value` as a finite float64 array of the given shape."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise MechanismError(f"{where}: {what} is {value!r}; give numbers") from None
    if array.shape != shape:
        expected = "one number" if shape == () else f"{' x '.join(map(str, shape))} numbers"
        raise MechanismError(f"{where}: {what} has shape {array.shape}; give {expected}")
    if not np.all(np.isfinite(array)):
        raise MechanismError(f"{where}: {what} is {array.tolist()}; give finite numbers")
    return array


def _checked_placement(where: str, position, orientation) -> RigidTransform:
    translation = _numbers(position, (3,), where, "position")
    if np.shape(orientation) == (3, 3):
        matrix = _numbers(orientation, (3, 3), where, "orientation")
        if not np.allclose(matrix @ matrix.T, np.eye(3), atol=_UNIT_TOLERANCE) or np.linalg.det(matrix) < 0:
            raise MechanismError(
                f"{where}: orientation is no rotation matrix (R R^T = 1, det R = +1); check its signs and its transpose"
            )
        with jax.enable_x64(True):
            return RigidTransform(quaternion.from_matrix(jnp.asarray(matrix)), jnp.asarray(translation))
    unit = _numbers(orientation, (4,), where, "orientation")
    norm = float(np.linalg.norm(unit))
    if abs(norm - 1.0) > _UNIT_TOLERANCE:
        raise MechanismError(f"{where}: orientation quaternion has norm {norm:.6g}; divide it by its norm")
    with jax.enable_x64(True):
        return RigidTransform(jnp.asarray(unit / norm), jnp.asarray(translation))


def _checked_inertia(where: str, mass, com, inertia) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mass = _numbers(mass, (), where, "mass")
    com = _numbers(com, (3,), where, "com")
    if mass < 0:
        raise MechanismError(f"{where}: mass is {mass:g} kg; a mass is positive or zero")
    if np.shape(inertia) == (3,):
        tensor = np.diag(_numbers(inertia, (3,), where, "inertia"))
    elif np.shape(inertia) == (6,):
        tensor = np.asarray(symmetric_matrix(_numbers(inertia, (6,), where, "inertia")))
    else:
        tensor = _numbers(inertia, (3, 3), where, "inertia")
        if not np.allclose(tensor, tensor.T, atol=1e-9 * max(1e-300, np.abs(tensor).max())):
            raise MechanismError(f"{where}: inertia matrix is not symmetric; give 6 numbers (xx, yy, zz, xy, xz, yz)")
    # Principal second moments w_k of the body: eigenvalues of Pi = 1/2 tr(J) 1 - J, all >= 0 for real bodies (B10).
    trace = float(np.trace(tensor))
    second_moments = 0.5 * trace - np.linalg.eigvalsh(tensor)
    if np.min(second_moments) < -_TRIANGLE_TOLERANCE * max(abs(trace), 1e-300):
        principal = np.sort(np.linalg.eigvalsh(tensor))
        raise MechanismError(
            f"{where}: principal moments of inertia {', '.join(f'{x:.6g}' for x in principal)} kg m^2 break the triangle "
            "inequality (each at most the sum of the others, none negative), so no body has them; check units, signs of the "
            "off-diagonal entries, and that the tensor is about the mass centre"
        )
    if mass == 0 and np.any(tensor):
        raise MechanismError(f"{where}: it has inertia but mass 0 kg; give its mass, or use armature for a rotor")
    return mass, com, np.asarray(symmetric_entries(tensor))


def _checked_limits(where: str, joint: Joint, position_limits, velocity_limit, effort_limit) -> Limits:
    lower, upper = (-np.inf, np.inf) if position_limits is None else _numbers(position_limits, (2,), where, "position_limits")
    if not lower < upper:
        raise MechanismError(f"{where}: position_limits are ({lower:g}, {upper:g}); give (lower, upper) with lower < upper")
    for what, value in (("velocity_limit", velocity_limit), ("effort_limit", effort_limit)):
        if not value > 0:
            raise MechanismError(f"{where}: {what} is {value!r}; give a positive number, or leave it out for no limit")
    with jax.enable_x64(True):
        return Limits(
            lower=jnp.full(joint.nq, float(lower)),
            upper=jnp.full(joint.nq, float(upper)),
            velocity=jnp.full(joint.nv, float(velocity_limit)),
            effort=jnp.full(joint.nv, float(effort_limit)),
        )
