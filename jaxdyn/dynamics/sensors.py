"""Readings of the sensors of a machine at one instant, from the motion, the accelerations and the loads in the joints.

A sensor is a small class with an equation. `observe` reads several of them at once; their accelerations are those of the equations
of motion at the state, and are computed once for all of them. The parameters of sensors, such as a bias, are arrays, so that
readings have derivatives with respect to them, and fits can estimate them. To add a sensor, derive from `Sensor`, and define `read`
and `labels`.
"""

import abc
import functools
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum, floating, on_device
from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.constraint_forces import ConstraintForces, forces_by_constraint
from jaxdyn.dynamics.contact.points import contacts_at, names_of_contacts
from jaxdyn.dynamics.equations_of_motion import Instant, acceleration_and_multipliers, drive_forces, instant
from jaxdyn.dynamics.reactions import drives_of_loads, loads_in_joints
from jaxdyn.dynamics.system import State, System, Time, dynamic_function
from jaxdyn.errors import check_name
from jaxdyn.mechanism.components import component_names, units_along
from jaxdyn.mechanism.messages import MechanismError, check_instance, checked_list
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import EFFORT, POSITION, VELOCITY, Quantity, check_settings, invalid, plain, quantity
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import force_at_point

Labels = tuple[tuple[str, str], ...]

_EFFORT = Quantity(EFFORT, "velocity")


class DrivenInstant:
    """A system in one state under given controls. Motion, accelerations and loads are computed when a sensor first needs them.

    Attributes:
        system: Mechanism with its forces, drives and constraints.
        state: Coordinates and velocities.
        u: Controls; zero if None.
        t: Time, s.
    """

    def __init__(self, system: System, state: State, u: Float[Array, "nu"] | None, t: Time):
        self.system, self.state, self.u, self.t = system, state, u, t

    @functools.cached_property
    def now(self) -> Instant:
        """The model and its motion at this instant."""
        return instant(self.system, self.state, self.t)

    @functools.cached_property
    def _solution(self) -> tuple[Float[Array, "nv"], Float[Array, "m"]]:
        return acceleration_and_multipliers(self.system, self.now, self.u)

    @functools.cached_property
    def accelerations(self) -> Float[Array, "nb 6"]:
        """Spatial accelerations of the bodies about the reference point P, ground axes, gravity not included."""
        return kinematics.accelerations(self.now.model, self.now.motion, self._solution[0])

    @functools.cached_property
    def loads(self) -> Float[Array, "nb 6"]:
        """Load that each joint transmits to its body: (moment about the reference point P; force), ground axes."""
        return loads_in_joints(self.system, self.now, self.u, *self._solution)

    @functools.cached_property
    def of_constraints(self) -> dict[str, ConstraintForces]:
        """Forces of the constraints, by their names."""
        return forces_by_constraint(self.system, self.now, self._solution[1])


class Sensor(eqx.Module):
    """Base class of sensors, whose readings are functions of a system, its state, the controls and time."""

    def __check_init__(self):
        check_settings(self)
        wrong = invalid(self, {})
        if wrong is not None:
            raise MechanismError(f"{type(self).__name__}: {wrong}")

    @abc.abstractmethod
    def read(self, driven: DrivenInstant) -> Float[Array, "readings"]:
        """The readings at an instant.

        Args:
            driven: System in a state under controls.
        """

    @abc.abstractmethod
    def labels(self, system: System) -> Labels:
        """Name and unit of each reading.

        Args:
            system: Mechanism with its forces.
        """

    def row_names(self, model: Model, axis: str) -> tuple[str, ...] | None:
        """Names of the rows of a field along an axis of its annotation; None for an unknown axis.

        Args:
            model: The mechanism.
            axis: Name of the axis.
        """
        return tuple("xyz") if axis == "3" else None


@dynamic_function
def observe(
    system: System,
    sensors: tuple[Sensor, ...],
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
) -> Float[Array, "readings"]:
    """Readings of sensors, one after the other, without noise.

    All sensors see the same instant: the accelerations satisfy the equations of motion at the state and under the controls u. With
    stiff forces, the mean accelerations of the steps of an implicit integrator differ from them.

    Args:
        system: Mechanism with its forces, drives and constraints.
        sensors: Sensors.
        state: Coordinates and velocities.
        u: Controls; zero if None.
        t: Time (s).

    Raises:
        TypeError: An entry of `sensors` is not a sensor.
        UnknownName: A sensor is on a body, frame, joint or contact that does not exist.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn
        from jaxdyn.dynamics import Accelerometer, JointEncoders, observe

        system = jaxdyn.library.system("acrobot")
        at_rest = system.at_rest(jnp.array([0.3, -0.5]))
        readings = observe(system, (JointEncoders(), Accelerometer("tip")), at_rest, jnp.array([2.0]))
        ```

    Source: theory.md (E22), (M3)-(M5).
    """
    remedy = 'Accelerometer("imu")'
    check_instance("the argument sensors of observe", sensors, tuple | list, f"a tuple, ({remedy},)")
    checked_list("sensors", sensors, Sensor, remedy)
    driven = DrivenInstant(system, state, u, t)
    return jnp.concatenate([jnp.zeros(0, state.v.dtype), *(sensor.read(driven) for sensor in sensors)])


def _names(given: Any) -> tuple[str, ...] | None:
    """Names that a user gives in any sequence; None means all."""
    return None if given is None else checked_list("names of a sensor", given, str, '"shoulder"')


def _axes(name: str, unit: str) -> Labels:
    return tuple((f"{name} {axis}", unit) for axis in "xyz")


def _of_joints(topology: Topology, joints: tuple[str, ...] | None, starts: np.ndarray, end: int) -> list[int]:
    """Indices of the components of joints, whose components begin at these indices."""
    known, bounds = topology.joint_names, [*starts.tolist(), end]
    for joint in joints or ():
        check_name("joint", joint, known, where=f"mechanism {topology.name!r}")
    bodies = range(topology.nb) if joints is None else [known.index(joint) for joint in joints]
    return [k for body in bodies for k in range(bounds[body], bounds[body + 1])]


def _columns(topology: Topology, joints: tuple[str, ...] | None) -> list[int]:
    return _of_joints(topology, joints, topology.v_starts, topology.nv)


def _labels_of(model: Model, declared: Quantity, rows: list[int]) -> Labels:
    names, units = component_names(model, declared), units_along(model, declared)
    return tuple((names[k], units[k]) for k in rows)


_JOINTS = eqx.field(static=True, converter=_names, default=None)


class JointEncoders(Sensor):
    """Coordinates or velocities of joints, as measured by encoders or tachometers, rad or m, rad/s or m/s.

    Attributes:
        joints: Names of the joints, in this order; None for all joints.
        velocities: If true, velocities are read instead of coordinates.
    """

    joints: tuple[str, ...] | None = _JOINTS
    velocities: bool = eqx.field(static=True, converter=plain, default=False, kw_only=True)

    def _rows(self, topology: Topology) -> list[int]:
        if self.velocities:
            return _columns(topology, self.joints)
        return _of_joints(topology, self.joints, topology.q_starts, topology.nq)

    def read(self, driven: DrivenInstant) -> Float[Array, "readings"]:
        values = driven.state.v if self.velocities else driven.state.q
        return values if self.joints is None else values[np.array(self._rows(driven.system.model.topology), int)]

    def labels(self, system: System) -> Labels:
        declared = Quantity(VELOCITY, "velocity") if self.velocities else Quantity(POSITION, "coordinate")
        return _labels_of(system.model, declared, self._rows(system.model.topology))


class JointTorqueSensors(Sensor):
    """Generalized forces that joints transmit along their motion, as measured between gear and link; N m or N.

    They are the sum of controls, friction, springs, limits and couplings in the joint, minus the armature times the acceleration
    and minus the forces of rotors: the part of the load of `joint_reactions` along the motion.

    Attributes:
        joints: Names of the joints, in this order; None for all joints.

    Source: theory.md (M5), (R3).
    """

    joints: tuple[str, ...] | None = _JOINTS

    def read(self, driven: DrivenInstant) -> Float[Array, "readings"]:
        drives = drives_of_loads(driven.now, driven.loads)
        return drives[np.array(_columns(driven.system.model.topology, self.joints), int)]

    def labels(self, system: System) -> Labels:
        return _labels_of(system.model, _EFFORT, _columns(system.model.topology, self.joints))


class MotorCurrents(Sensor):
    """Currents of motors: generalized force of the drives in each joint, divided by the torque constant; A.

    The force of the drives is that of the controls alone, before friction and the inertia of rotors.

    Attributes:
        torque_constant: Generalized force in the joint, behind the gear, per current; N m/A or N/A, one value for each velocity
            component of the joints.
        joints: Names of the joints, in this order; None for all joints.

    Source: theory.md (H6), (H16).
    """

    torque_constant: Float[Array, "motors"] = eqx.field(converter=floating, metadata=quantity("N m/A", positive=True))
    joints: tuple[str, ...] | None = _JOINTS

    def read(self, driven: DrivenInstant) -> Float[Array, "readings"]:
        columns = _columns(driven.system.model.topology, self.joints)
        if self.torque_constant.shape != (len(columns),):
            raise ValueError(
                f"MotorCurrents: there are {self.torque_constant.size} torque constants; give {len(columns)}, one for each "
                "velocity component of the joints"
            )
        return drive_forces(driven.system, driven.state, driven.u)[np.array(columns, int)] / self.torque_constant

    def labels(self, system: System) -> Labels:
        names = self.row_names(system.model, "motors")
        return tuple((f"current {name}", "A") for name in names or ())

    def row_names(self, model: Model, axis: str) -> tuple[str, ...] | None:
        return tuple(name for name, _ in _labels_of(model, _EFFORT, _columns(model.topology, self.joints)))


class ForceTorqueSensor(Sensor):
    """Force and moment that the parent body exerts on the body of a frame through its joint, on the axes of the frame; N, N m.

    The moment is about the origin of the frame. A fixed joint of a file is a part of a body; the load is that of
    the movable joint that carries the body. With the name of a constraint, such as a loop joint, it is the load that this
    constraint exerts on the body.

    Attributes:
        frame: Name of the body or of a frame on it.
        component: "both" for the force, then the moment, or one of them.
        constraint: Name of a constraint of the system; None for the joint of the body.

    Source: theory.md (M3), (M4), (N11).
    """

    frame: str = eqx.field(static=True)
    component: Literal["both", "force", "moment"] = eqx.field(static=True, default="both", kw_only=True)
    constraint: str | None = eqx.field(static=True, default=None, kw_only=True)

    def read(self, driven: DrivenInstant) -> Float[Array, "readings"]:
        now = driven.now
        carrier = kinematics.frame_carrier(now.model, self.frame)
        if carrier == GROUND:
            raise ValueError(f"ForceTorqueSensor: {self.frame!r} is on the ground, which no joint carries; give a body")
        load = self._load(driven, carrier)
        # A wrench is a motion with the two parts exchanged: the moment depends on the point as a velocity does.
        exchanged = jnp.concatenate([load[3:], load[:3]])[None]
        return self._chosen(kinematics.at_frame(now.model, now.motion.placements, self.frame, exchanged, "local")[0])

    def labels(self, system: System) -> Labels:
        place = self.frame if self.constraint is None else f"{self.constraint} {self.frame}"
        return self._chosen(_axes(f"force {place}", "N") + _axes(f"moment {place}", "N m"))

    def _load(self, driven: DrivenInstant, carrier: int) -> Float[Array, "6"]:
        """Moment about the reference point P and force on the body, ground axes."""
        if self.constraint is None:
            return driven.loads[carrier]
        check_name("constraint", self.constraint, tuple(constraint.name for constraint in driven.system.constraints))
        found = driven.of_constraints[self.constraint]
        return force_at_point(driven.now.motion.placements.offset[carrier], found.force[carrier], found.moment[carrier])

    def _chosen(self, both: Any) -> Any:
        return both if self.component == "both" else both[:3] if self.component == "force" else both[3:]


def _matrix() -> Any:
    return eqx.field(
        converter=floating, default_factory=lambda: on_device(np.eye(3)), kw_only=True, metadata=quantity("1")
    )


def _bias(unit: str) -> Any:
    return eqx.field(
        converter=floating, default_factory=lambda: on_device(np.zeros(3)), kw_only=True, metadata=quantity(unit)
    )


class Gyroscope(Sensor):
    """Angular velocity of a frame on its own axes: y = matrix R' omega + bias, rad/s.

    Attributes:
        frame: Name of the body or frame.
        matrix: Scale factors (diagonal) and misalignment of the axes (off the diagonal).
        bias: Reading at rest.

    Source: theory.md (E22).
    """

    frame: str = eqx.field(static=True)
    matrix: Float[Array, "3 3"] = _matrix()
    bias: Float[Array, "3"] = _bias("rad/s")

    def read(self, driven: DrivenInstant) -> Float[Array, "3"]:
        return dot(self.matrix, _of_frame(driven, self.frame, accelerated=False)[0][:3]) + self.bias  # (E22)

    def labels(self, system: System) -> Labels:
        return _axes(f"gyroscope {self.frame}", "rad/s")


class Accelerometer(Sensor):
    """Specific force at the origin of a frame on its own axes: y = matrix R' (acceleration - g) + bias, m/s^2.

    At rest on level ground, the vertical axis reads +9.81; in free fall, all axes read zero.

    Attributes:
        frame: Name of the body or frame.
        matrix: Scale factors (diagonal) and misalignment of the axes (off the diagonal).
        bias: Reading in free fall.

    Source: theory.md (E22).
    """

    frame: str = eqx.field(static=True)
    matrix: Float[Array, "3 3"] = _matrix()
    bias: Float[Array, "3"] = _bias("m/s^2")

    def read(self, driven: DrivenInstant) -> Float[Array, "3"]:
        velocity, spatial = _of_frame(driven, self.frame, accelerated=True)
        return dot(self.matrix, spatial[3:] + cross(velocity[:3], velocity[3:])) + self.bias  # (E21), (E22)

    def labels(self, system: System) -> Labels:
        return _axes(f"accelerometer {self.frame}", "m/s^2")


def _of_frame(driven: DrivenInstant, frame: str, *, accelerated: bool) -> Float[Array, "n 6"]:
    """Velocity of a frame, and its spatial acceleration minus gravity, about its origin and on its axes."""
    model, moving = driven.now.model, driven.now.motion
    carrier = kinematics.frame_carrier(model, frame)
    rest = jnp.zeros(6, moving.v.dtype)
    motions = [rest if carrier == GROUND else moving.velocity[carrier]]
    if accelerated:
        motions.append((rest if carrier == GROUND else driven.accelerations[carrier]).at[3:].add(-model.gravity))
    return kinematics.at_frame(model, moving.placements, frame, jnp.stack(motions), "local")


class ContactSensors(Sensor):
    """Contact forces, as measured by force plates and by sensors in feet; N.

    Attributes:
        contacts: Names of the contacts, those of the bodies that touch. All contacts of the same name are summed. None for all
            names, in their order in the system.
        component: "force" for the components along x, y, z of the ground; "normal" for the normal force.

    Source: theory.md (T5), (T6).
    """

    contacts: tuple[str, ...] | None = eqx.field(static=True, converter=_names, default=None)
    component: Literal["force", "normal"] = eqx.field(static=True, default="force", kw_only=True)

    def _chosen(self, system: System) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names that are read, and names of all contacts."""
        known = names_of_contacts(system)
        for name in self.contacts or ():
            check_name("contact", name, known, where=f"mechanism {system.model.name!r}")
        return tuple(dict.fromkeys(known)) if self.contacts is None else self.contacts, known

    def read(self, driven: DrivenInstant) -> Float[Array, "readings"]:
        points = contacts_at(driven.system, driven.now.model, driven.now.motion)
        names, known = self._chosen(driven.system)
        chosen = np.equal.outer(np.array(names), np.array(known)).astype(points.force.dtype)
        if self.component == "normal":
            return dot(chosen, einsum("ci,ci->c", points.force, points.normal))
        return dot(chosen, points.force).ravel()

    def labels(self, system: System) -> Labels:
        names = self._chosen(system)[0]
        if self.component == "normal":
            return tuple((f"normal force {name}", "N") for name in names)
        return tuple(label for name in names for label in _axes(f"contact force {name}", "N"))


class Markers(Sensor):
    """Positions of points of bodies, as measured by cameras; ground axes, m.

    Attributes:
        frames: Names of the bodies or frames that carry the points.
        points: Position of each point on the axes of its body or frame; the origins if None.
    """

    frames: tuple[str, ...] = eqx.field(static=True, converter=_names)
    points: Float[Array, "markers 3"] = eqx.field(converter=floating, default=None, metadata=quantity("m"))

    def __init__(self, frames: Any, points: Any = None):
        self.frames = _names(frames) or ()
        self.points = on_device(np.zeros((len(self.frames), 3))) if points is None else floating(points)

    def __check_init__(self):
        if self.points.ndim == 2 and len(self.points) != len(self.frames):
            raise MechanismError(
                f"Markers: there are {len(self.points)} points; give {len(self.frames)}, one per frame"
            )

    def read(self, driven: DrivenInstant) -> Float[Array, "readings"]:
        model, placed = driven.now.model, driven.now.motion.placements
        located = [model.locate(frame, point) for frame, point in zip(self.frames, self.points, strict=True)]
        return jnp.concatenate([jnp.add(*kinematics.point_on_body(placed, *where)) for where in located])

    def labels(self, system: System) -> Labels:
        return tuple(label for frame in self.frames for label in _axes(f"marker {frame}", "m"))

    def row_names(self, model: Model, axis: str) -> tuple[str, ...] | None:
        return self.frames
