"""Construction of a model body by body.

The builder checks every value (`checks`) and orders the bodies so that parents precede their children.

Fixed joints are merged: the mass and inertia of the child are added to the body that carries it, and its frame stays available
under the name of the child.
"""

import dataclasses
import heapq

import numpy as np
from jax.typing import DTypeLike

from jaxdyn.compute.arrays import on_device
from jaxdyn.errors import check_name
from jaxdyn.mechanism import checks
from jaxdyn.mechanism.checks import Values
from jaxdyn.mechanism.joint import Joint, groups, stack
from jaxdyn.mechanism.joints import Fixed
from jaxdyn.mechanism.messages import MasslessBody, MechanismError
from jaxdyn.mechanism.model import Limits, Model, as_dtype
from jaxdyn.mechanism.null_motion import null_motion
from jaxdyn.mechanism.range import problem_with_range
from jaxdyn.mechanism.rotors import GivenRotor, Rotors, checked_rotor, place_rotors
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.inertia import inertia_from_planar, planar_from_inertia, symmetric_entries
from jaxdyn.spatial.plain import rotation_quaternion
from jaxdyn.spatial.transform import RigidTransform

STANDARD_GRAVITY = (0.0, 0.0, -9.81)


@dataclasses.dataclass(frozen=True)
class _Body:
    """A checked body. Placement of its joint frame in the parent as a 4x4 homogeneous matrix, inertia as a 3x3 tensor."""

    name: str
    parent: str
    joint: Joint
    joint_name: str
    placement: np.ndarray
    mass: float
    com: np.ndarray
    inertia: np.ndarray
    armature: np.ndarray
    position_limits: np.ndarray
    velocity_limit: np.ndarray
    effort_limit: np.ndarray

    def without_mass(self) -> "_Body":
        return dataclasses.replace(
            self, mass=0.0, com=np.zeros(3), inertia=np.zeros((3, 3)), armature=np.zeros_like(self.armature)
        )


@dataclasses.dataclass(frozen=True)
class _Frame:
    """A checked frame. Placement in its body as a 4x4 homogeneous matrix."""

    name: str
    body: str
    placement: np.ndarray


class MechanismBuilder:
    """Builder of a `Model` from bodies, frames and rotors.

    Bodies may be added in any order; the parent "ground" is the fixed world.

    Args:
        name: Name of the mechanism, for messages.
        gravity: Gravitational acceleration on ground axes, m/s^2.

    Example:
        ```python
        from jaxdyn import MechanismBuilder, Revolute

        builder = MechanismBuilder("pendulum")
        builder.add_body("rod", joint=Revolute((0, 1, 0)), mass=1.0, com=(0, 0, -0.5), inertia=(0.08, 0.08, 0.001))
        builder.add_frame("tip", body="rod", position=(0, 0, -1))
        model = builder.build()
        ```
    """

    def __init__(self, name: str = "mechanism", gravity: Values = STANDARD_GRAVITY):
        self.name = name
        self._gravity = checks.values(gravity, (3,), f"mechanism {name!r}", "gravity")
        self._bodies: dict[str, _Body] = {}
        self._joint_names: set[str] = set()
        self._frames: dict[str, _Frame] = {}
        self._rotors: dict[str, GivenRotor] = {}

    def add_body(
        self,
        name: str,
        *,
        joint: Joint,
        parent: str = "ground",
        position: Values = (0.0, 0.0, 0.0),
        orientation: Values = (1.0, 0.0, 0.0, 0.0),
        mass: Values = 0.0,
        com: Values = (0.0, 0.0, 0.0),
        inertia: Values = (0.0, 0.0, 0.0),
        armature: Values = 0.0,
        joint_name: str | None = None,
        position_limits: Values | None = None,
        velocity_limit: Values = np.inf,
        effort_limit: Values = np.inf,
        unphysical: checks.Unphysical = "refuse",
    ) -> None:
        """Add a body and the joint that connects it to its parent.

        Args:
            name: Unique name of the body.
            joint: Joint, such as `Revolute(axis)`, `Prismatic(axis)`, `Fixed()` or any other `Joint`.
            parent: Name of the parent body, which may also be added after this body.
            position: Origin of the joint frame on parent axes, m.
            orientation: Rotation of the joint frame in the parent: unit quaternion (w, x, y, z) or 3x3 rotation matrix.
            mass: Mass, kg.
            com: Center of mass relative to the body origin (the joint point O'), body axes, m.
            inertia: Inertia tensor about the center of mass, body axes, kg m^2: (xx, yy, zz), (xx, yy, zz, xy, xz, yz) whose last
                three are tensor entries (not products of inertia), or a symmetric 3x3 matrix.
            armature: Reflected rotor inertia, kg m^2 or kg; one value, or one per velocity component of the joint.
            joint_name: Name of the joint; "<name>_joint" if None.
            position_limits: Limits (lower, upper) of all coordinates of the joint, or one such pair per coordinate, rad or m.
                Limits do not apply to quaternions.
            velocity_limit, effort_limit: Largest speed (rad/s or m/s) and drive force (N m or N); one value, or one per velocity
                component.
            unphysical: "repair" replaces an inertia that no body can have, such as one from an estimate, by the nearest one that is
                physical: without negative principal second moments.

        Raises:
            UnknownName: There is no such choice of `unphysical`.
            MechanismError: The name is already used, or a value is not physically valid.
        """
        where = f"body {name!r}"
        checks.check_new_name(name, self._bodies, self._frames)
        checks.check_joint(where, f"joint of {where}", joint)
        mass_, com_, inertia_ = checks.checked_inertia(where, mass, com, inertia, unphysical)
        placement = checks.checked_placement(where, position, orientation)
        drive = checks.checked_drive(where, joint, armature, position_limits, velocity_limit, effort_limit)
        joint_name = f"{name}_joint" if joint_name is None else joint_name
        if joint_name in self._joint_names:
            raise MechanismError(f"{where}: there are two joints called {joint_name!r}; rename one")
        self._joint_names.add(joint_name)
        self._bodies[name] = _Body(name, parent, joint, joint_name, placement, mass_, com_, inertia_, *drive)

    def add_frame(
        self,
        name: str,
        *,
        body: str,
        position: Values = (0.0, 0.0, 0.0),
        orientation: Values = (1.0, 0.0, 0.0, 0.0),
    ) -> None:
        """Add a named frame fixed in a body or in the ground, such as a flange or a sensor.

        Args:
            name: Unique name of the frame.
            body: Name of the body that carries the frame, or "ground".
            position: Origin of the frame on body axes, m.
            orientation: Unit quaternion (w, x, y, z) or 3x3 rotation matrix, body axes.

        Raises:
            MechanismError: The name is already used, or a value is not finite.
        """
        checks.check_new_name(name, self._bodies, self._frames)
        self._frames[name] = _Frame(name, body, checks.checked_placement(f"frame {name!r}", position, orientation))

    def add_rotor(
        self,
        name: str,
        *,
        carrier: str,
        joint: str,
        inertia: Values,
        ratio: Values,
        axis: Values | None = None,
    ) -> None:
        """Add the rotor of a geared drive, which rotates in its carrier at `ratio` times the rate of a joint.

        The mass and the inertia of the carrier must include those of the rotor as if it were fixed in the carrier. `axis` may be
        omitted if the rotor rotates about the axis of its joint and is carried by the parent or the child of this joint.

        Args:
            name: Unique name of the rotor.
            carrier: Name of the body that carries the rotor, or "ground".
            joint: Name of the driven joint, or of its body; the joint must have one velocity component.
            inertia: Moment of inertia about the axis of the rotor, kg m^2.
            ratio: Rate of the rotor relative to the carrier divided by the rate of the joint; rad/m if the joint is prismatic. The
                ratio is negative if rotor and joint rotate in opposite directions.
            axis: Unit vector on axes of the carrier; the axis of the joint if None.

        Raises:
            MechanismError: The name is already used, or a value is not physically valid.

        Source: theory.md (R1).
        """
        if name in self._rotors:
            raise MechanismError(f"there are two rotors called {name!r}; rename one")
        self._rotors[name] = checked_rotor(name, carrier, joint, inertia, ratio, axis)

    def build(self, *, dtype: DTypeLike | None = None, kinematic: bool = False) -> Model:
        """Model in which parents precede their children and fixed joints are merged.

        Args:
            dtype: Floating-point type of the parameters; the default of JAX if None.
            kinematic: If true, the model has no masses, inertias, armatures and rotors, and they need not be given. Kinematics and
                pictures of such a model are available; functions that need masses raise an error.

        Raises:
            UnknownName: There is no body or joint of a given name.
            MechanismError: Parents form a cycle, no body can move, a joint moves no mass, a rotor does not
                fit, or inertias underflow or overflow in the floating-point type.
        """
        bodies, rotors = self._sorted_bodies(), list(self._rotors.values())
        if kinematic:
            bodies, rotors = [body.without_mass() for body in bodies], []
        return self._assembled(bodies, rotors, dtype or float, needs_mass=not kinematic)

    def _sorted_bodies(self) -> list[_Body]:
        """Sort the bodies so that parents precede their children; otherwise they keep the order in which they were added."""
        known = ["ground", *self._bodies]
        for item, carrier, role in [(b.name, b.parent, "parent") for b in self._bodies.values()] + [
            (f.name, f.body, "body") for f in self._frames.values()
        ]:
            check_name("body", carrier, known, where=f"{item!r}: its {role}")
        given = list(self._bodies.values())
        children: dict[str, list[int]] = {name: [] for name in known}
        for i, body in enumerate(given):
            children[body.parent].append(i)
        # The first of the bodies that are ready is next, so bodies keep the order of addition as far as possible.
        ready, order = children["ground"], []
        while ready:
            order.append(given[heapq.heappop(ready)])
            for i in children[order[-1].name]:
                heapq.heappush(ready, i)
        if len(order) < len(given):
            sound = {body.name for body in order}
            cycle = ", ".join(name for name in self._bodies if name not in sound)
            raise MechanismError(
                f"mechanism {self.name!r}: bodies {cycle} are their own ancestors (a cycle of parents); "
                "give one of them a parent that leads to the ground"
            )
        return order

    def _assembled(self, bodies: list[_Body], rotors: list[GivenRotor], dtype: DTypeLike, needs_mass: bool) -> Model:
        """The model of sorted bodies, in which fixed joints are merged."""
        # The moving body (or ground, -1) that carries each named body or frame, and the placement in this body.
        carriers: dict[str, tuple[int, np.ndarray]] = {"ground": (GROUND, np.eye(4))}
        moving: list[_Body] = []
        lumped: list[
            list[tuple[_Body, np.ndarray]]
        ] = []  # the bodies that form each moving body, the moving body first
        parents: list[int] = []
        placements: list[np.ndarray] = []
        named_frames: list[tuple[str, int, np.ndarray]] = []
        for body in bodies:
            carrier, carrier_placement = carriers[body.parent]
            placement = carrier_placement @ body.placement
            if isinstance(body.joint, Fixed):
                carriers[body.name] = (carrier, placement)
                named_frames.append((body.name, carrier, placement))
                if carrier != GROUND:
                    lumped[carrier].append((body, placement))
                continue
            carriers[body.name] = (len(moving), np.eye(4))
            moving.append(body)
            lumped.append([(body, np.eye(4))])
            parents.append(carrier)
            placements.append(placement)
        if not moving:
            raise MechanismError(
                f"mechanism {self.name!r} has no moving body; add a body with a joint that is not fixed"
            )
        for frame in self._frames.values():
            carrier, placement = carriers[frame.body]
            named_frames.append((frame.name, carrier, placement @ frame.placement))

        topology = Topology(
            name=self.name,
            body_names=tuple(b.name for b in moving),
            joint_names=tuple(b.joint_name for b in moving),
            parents=tuple(parents),
            joint_classes=tuple(type(b.joint) for b in moving),
            joint_groups=groups([b.joint for b in moving]),
            frame_names=tuple(f[0] for f in named_frames),
            frame_bodies=tuple(f[1] for f in named_frames),
        )
        mass, com, inertia = (np.stack(column) for column in zip(*map(_lump, lumped), strict=True))
        placed_rotors = place_rotors(rotors, topology, [b.joint for b in moving], placements, carriers, inertia)
        if needs_mass:
            _check_motions_are_resisted(topology, moving, placements, mass, com, inertia, placed_rotors)

        armature = np.concatenate([b.armature for b in moving])
        # Uses the given double-precision values, because they may already underflow in single precision.
        offsets = np.stack(placements)[:, :3, 3]
        problem = problem_with_range(topology, offsets, mass, com, inertia, armature, placed_rotors, dtype)
        if problem is not None:
            raise MechanismError(problem)

        position_limits = np.concatenate([b.position_limits for b in moving])
        model = Model(
            topology=topology,
            joints=tuple(stack([moving[i].joint for i in bodies]) for _, bodies in topology.groups),
            placement=_rigid_transforms(placements),
            mass=on_device(mass),
            com=on_device(com),
            inertia=on_device(inertia),
            armature=on_device(armature),
            rotors=placed_rotors,
            gravity=on_device(self._gravity),
            limits=Limits(
                lower=on_device(position_limits[:, 0]),
                upper=on_device(position_limits[:, 1]),
                velocity=on_device(np.concatenate([b.velocity_limit for b in moving])),
                effort=on_device(np.concatenate([b.effort_limit for b in moving])),
            ),
            frames=_rigid_transforms([f[2] for f in named_frames]),
        )
        return as_dtype(model, dtype)


def _rigid_transforms(matrices: list[np.ndarray]) -> RigidTransform:
    """Convert 4x4 homogeneous matrices to a batch of transforms."""
    stacked = np.array(matrices).reshape(-1, 4, 4)
    quaternions = [_standard(rotation_quaternion(g[:3, :3])) for g in stacked]
    return RigidTransform(on_device(np.array(quaternions).reshape(-1, 4)), on_device(stacked[:, :3, 3]))


def _standard(quaternion: np.ndarray) -> np.ndarray:
    """Choose between q and -q, which are the same rotation: the first significant component of the result is positive."""
    first = quaternion[np.argmax(np.abs(quaternion) > 1e-12)]
    return np.copysign(1.0, first) * quaternion


def _lump(parts: list[tuple[_Body, np.ndarray]]) -> tuple[float, np.ndarray, np.ndarray]:
    """Total mass, center of mass, and inertia about it, of bodies that are fixed to one another, on the axes of the first one."""
    if len(parts) == 1:  # no merge: keep the given values, free of rounding
        body = parts[0][0]
        return body.mass, body.com, symmetric_entries(body.inertia)
    masses = np.array([body.mass for body, _ in parts])
    centers = np.array([g[:3, :3] @ body.com + g[:3, 3] for body, g in parts])
    mass = float(masses.sum())
    com = (masses / mass) @ centers if mass > 0 else np.zeros(3)
    # Computed about the common center of mass: no large terms cancel, and a point mass stays a point mass.
    second_moments = np.zeros((3, 3))
    for (body, g), arm in zip(parts, centers - com, strict=True):
        turned = g[:3, :3] @ planar_from_inertia(body.inertia) @ g[:3, :3].T
        second_moments += turned + body.mass * np.outer(arm, arm)  # (F6)
    return mass, com, symmetric_entries(inertia_from_planar(second_moments))


def _check_motions_are_resisted(
    topology: Topology,
    moving: list[_Body],
    placements: list[np.ndarray],
    mass: np.ndarray,
    com: np.ndarray,
    inertia: np.ndarray,
    rotors: Rotors,
) -> None:
    """Check that inertia resists every motion; otherwise the mass matrix is singular everywhere (D1)."""
    turning = {column for column, ratio in zip(rotors.columns, np.asarray(rotors.ratio), strict=True) if ratio != 0}
    columns = [range(start, start + body.joint.nv) for start, body in zip(topology.v_starts, moving, strict=True)]
    resisted = [
        np.any(body.armature > 0) or not turning.isdisjoint(own) for body, own in zip(moving, columns, strict=True)
    ]
    found = null_motion(
        topology, [body.joint for body in moving], placements, mass, com, inertia, np.array(resisted, bool)
    )
    if found is None:
        return
    first = next(iter(found))
    motions = [f"of joint {moving[body].joint_name!r} {_motion_text(twist)}" for body, twist in found.items()]
    reason = (
        "no body beyond its joint has mass"
        if not np.any(mass[topology.precedes[first]])
        else f"no inertia resists the motion {' together with the motion '.join(motions)}"
    )
    raise MasslessBody(
        f"body {moving[first].name!r}: {reason}, so its acceleration is undefined; give the body a mass and an inertia that resist "
        "this motion, give the joint an armature, or use a joint without this motion, such as a fixed joint"
    )


def _motion_text(twist: np.ndarray) -> str:
    parts = [("about", twist[:3]), ("along", twist[3:])]
    return " and ".join(f"{word} ({', '.join(f'{x:.3g}' for x in axis)})" for word, axis in parts if np.any(axis))
