"""MJCF files, MuJoCo's own format, read with the `mujoco` package (the extra "mjcf").

MuJoCo compiles the file, which resolves defaults and includes and computes inertias from geoms and meshes. jaxdyn takes over
bodies, joints with armature, damping, dry friction and springs, tendons likewise (`mjcf.tendons`), equality constraints, gravity
compensation, the forces of a medium, and actuators (`mjcf.actuators`). A body with several joints becomes
a chain of bodies, one per joint. Only the last body of the chain has mass; its origin is at the last joint. Coordinates are in
MuJoCo's order, and have their neutral values in the pose that the file describes; `MujocoOrder` converts states. The armature of a
free joint is a part of the mass of its body, since it is a mass without weight at the origin and a rotor.

An element that affects the free motion and has no counterpart in jaxdyn (armature of tendons, muscles, adhesion
...) is refused with its name and line, or left out if the argument `ignore` contains its name or its kind. One
`IgnoredContent` warning names all that is left out, and counts the geoms whose contacts are not read.
"""

import collections
import importlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.constraints.kinds import Coupling, LoopJoint
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.drives import drives_of_joints
from jaxdyn.dynamics.forces import AppliedForce, BoxDrag, EllipsoidDrag, Force, GravityCompensation, JointSpring
from jaxdyn.dynamics.forces.friction import HOLDING_SCALE, JointFriction
from jaxdyn.dynamics.forces.tendons import Tendon
from jaxdyn.dynamics.sensors import Sensor
from jaxdyn.dynamics.system import State, System, check_system
from jaxdyn.errors import UnknownName, one_line
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mjcf.actuators import ActuatorReader, bounded
from jaxdyn.io.mjcf.colliders import mjcf_collider_count, with_mjcf_contact
from jaxdyn.io.mjcf.files import OTHER_PLACEHOLDER, PLACEHOLDER, MjcfFiles, read_mjcf
from jaxdyn.io.mjcf.geoms import MjcfGeoms, collides, semiaxes
from jaxdyn.io.mjcf.sensors import sensors_of
from jaxdyn.io.reading import MOST_BODIES, calculable
from jaxdyn.io.shapes.colliders import ContactUse, check_contact
from jaxdyn.io.shapes.visuals import Omitted
from jaxdyn.io.state_orders import MujocoOrder
from jaxdyn.io.xml import KINEMATIC, Element, IgnoredContent, unused
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.builder import MechanismBuilder
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Fixed, Free, Prismatic, Revolute, Spherical
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.plain import rotation_matrix
from jaxdyn.spatial.transform import RigidTransform

_FREE, _BALL, _SLIDE, _HINGE = range(4)  # mujoco.mjtJoint
# Kinds of elements that affect the motion and that can be left out.
KINDS = ("actuator", "tendon", "equality", "spring", "armature", "gravcomp", "medium", "plugin")
# Properties of tendons and their flags, and those without a counterpart.
_PASSIVE = {"stiffness": "SPRING", "damping": "DAMPER", "frictionloss": "FRICTIONLOSS"}
_NONLINEAR = ("armature", "stiffnesspoly", "dampingpoly", "springyield")
_MOST_SHOWN = 20  # file names in a message
_LEAST = 1e-15  # mjMINVAL
_UNTURNED = np.array([1.0, 0.0, 0.0, 0.0])


def load_mjcf(
    path: Path | str,
    *,
    contact: ContactUse = "none",
    folder: Path | str | None = None,
    kinematic: bool = False,
    ignore: Sequence[str] = (),
) -> System:
    """Read the system that an MJCF file describes, in JAX's default precision.

    Args:
        path: MJCF file.
        contact: "ground" turns the geoms of moving bodies into contacts with the planes and height fields of the world, see
            `shapes.colliders`. Friction is that of the file; stiffness and damping are derived from the mechanism and
            not from solref and solimp. Colliders that are left out are named in one `IgnoredContent` warning. With "none",
            `System.summary` states how many colliders are not simulated.
        folder: Folder of the included files and meshes; by default the folder of the file. Files outside of this folder are not
            opened, even if links point to them.
        kinematic: If true, masses and inertias are not read, so that a file without them can be used for kinematics and pictures.
            Elements that are not supported are then left out.
        ignore: Elements that are left out if they are not supported, by their names or by their kinds: "actuator", "tendon",
            "equality", "spring", "armature", "gravcomp", "medium", "plugin". One `IgnoredContent` warning names them.

    Raises:
        ImportError: The `mujoco` package is not installed.
        ConfigError: MuJoCo refuses the file, the file refers to a file outside of the folder, is too large, or contains an element
            that affects the motion and that jaxdyn does not support.
        MechanismError: A value is not physically valid; the message is one line with the file, the body and the remedy.
    """
    check_contact(contact, kinematic, path)
    mujoco, path = mujoco_package(), Path(path)
    text, files = read_mjcf(path, None if folder is None else Path(folder))
    compiled = compiled_text(mujoco, path, text, files.assets, kinematic)
    if files.missing and not kinematic:
        _check_that_no_mass_depends_on(files, mujoco, path, text, compiled)
    with calculable(path):
        try:
            reader = _Reader(compiled, kinematic, contact, ignore, files.root)
            system = reader.system(reader.name or path.stem)
        except (ConfigError, MechanismError) as error:
            raise type(error)(f"{path}: {error}") from None
        except ValueError as error:  # for example an invalid rotation
            raise ConfigError(f"{path}: its values do not describe a mechanism, {error}; correct them") from None
        reader.warn()
        return reader.with_contact(system, files.missing, str(path))


def load_keyframes(
    system: System, path: Path | str, *, folder: Path | str | None = None
) -> dict[str, tuple[State, Float[Array, "nu"]]]:
    """Read the keyframes of an MJCF file, such as its home pose.

    Args:
        system: The system that `load_mjcf` has read from the file.
        path: MJCF file, or name of a robot, see `load_system`.
        folder: See `load_mjcf`.

    Returns:
        State and controls of each keyframe by its name; `act` gives the states z. Controls and z are zero if the file has no
        actuators.

    Raises:
        ImportError: The `mujoco` package is not installed.
        ConfigError: The file cannot be read, or the system does not have all of its controls.
        MechanismError: The system does not have the joints of the file.

    Example:
        ```python
        from pathlib import Path
        import jaxdyn

        leg = '<body><joint/><inertial pos="0 0 -1" mass="1" diaginertia="1 1 1"/></body>'
        keys = '<key name="home" qpos="0.3"/>'
        text = f"<mujoco><worldbody>{leg}</worldbody><keyframe>{keys}</keyframe></mujoco>"
        Path("leg.xml").write_text(text)
        system = jaxdyn.io.load_system("leg.xml")
        state, u = jaxdyn.io.load_keyframes(system, "leg.xml")["home"]
        ```
    """
    check_system(system, "load_keyframes")
    text, files = read_mjcf(Path(path), None if folder is None else Path(folder))
    compiled, found = compiled_text(mujoco_package(), Path(path), text, files.assets, kinematic=True), {}
    order = MujocoOrder(system.model, compiled)
    for what, theirs, ours in (("controls", compiled.nu, system.nu), ("activations", compiled.na, system.nz)):
        if compiled.nu and theirs != ours:
            raise ConfigError(f"{path}: it has {theirs} {what}, but the system has {ours}; load all actuators")
    for key in range(compiled.nkey):
        q = order.q_from(jnp.asarray(compiled.key_qpos[key], float))
        z = jnp.asarray(compiled.key_act[key] if compiled.nu else np.zeros(system.nz), float) if system.nz else None
        state = State(q, order.v_from(q, jnp.asarray(compiled.key_qvel[key], float)), z)
        controls = compiled.key_ctrl[key] if compiled.nu else np.zeros(system.nu)
        found[compiled.key(key).name or f"keyframe {key}"] = state, jnp.asarray(controls, float)
    return found


def load_sensors(
    path: Path | str, *, folder: Path | str | None = None, ignore: Sequence[str] = ()
) -> tuple[Sensor, ...]:
    """Read the sensors of an MJCF file, in the order of the file.

    They are accelerometer, gyro, force and torque; framepos of a site or xbody without reference; jointpos of a joint without ref,
    and jointvel. Their names are those in the system that `load_mjcf` has read from the file.

    Args:
        path: MJCF file, or name of a robot, see `load_system`.
        folder: See `load_mjcf`.
        ignore: Names or kinds, such as "touch", of sensors that are left out.

    Raises:
        ImportError: The `mujoco` package is not installed.
        ConfigError: The file cannot be read, or a sensor has no counterpart.
        UnknownName: There is no sensor of a name or kind to ignore.

    Example:
        ```python
        from pathlib import Path
        import jaxdyn

        leg = '<body><joint name="hip"/><inertial pos="0 0 -1" mass="1" diaginertia="1 1 1"/></body>'
        sensors = '<jointpos joint="hip"/><jointvel joint="hip"/>'
        Path("leg.xml").write_text(f"<mujoco><worldbody>{leg}</worldbody><sensor>{sensors}</sensor></mujoco>")
        system, sensors = jaxdyn.io.load_system("leg.xml"), jaxdyn.io.load_sensors("leg.xml")
        readings = jaxdyn.dynamics.observe(system, sensors, jaxdyn.neutral_state(system))
        ```
    """
    mujoco, path = mujoco_package(), Path(path)
    text, files = read_mjcf(path, None if folder is None else Path(folder), sensors=True)
    reader = _Reader(compiled_text(mujoco, path, text, files.assets, kinematic=True), kinematic=True)
    reader.system(path.stem)
    try:
        return sensors_of(mujoco, reader.compiled, reader.sites, reader.carriers, ignore)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def compiled_geoms(path: Path, model: Model, folder: Path | None, omitted: Omitted) -> MjcfGeoms:
    """The geoms of an MJCF file; masses of the compiled model may differ from those of the file.

    Args:
        path: MJCF file.
        model: The mechanism of this file.
        folder: See `load_mjcf`.
        omitted: Collects the geoms that are left out.

    Raises:
        ImportError: The `mujoco` package is not installed.
    """
    mujoco = mujoco_package()
    text, files = read_mjcf(path, folder)
    reader = _Reader(compiled_text(mujoco, path, text, files.assets, kinematic=True), kinematic=True)
    reader.system(path.stem)
    # A mesh that its element moves is not that of its file, and the compiled model does not hold this displacement.
    models = (text, *(data.decode(errors="replace") for name, data in files.assets.items() if name.endswith(".xml")))
    moved = any(word in model for model in models for word in ("refpos", "refquat"))
    paths = {} if moved else {name: file for file, name in files.names.items()}
    return MjcfGeoms(mujoco, reader.compiled, model, reader.carriers, files.missing, omitted, paths)


def mujoco_package() -> Any:
    """The module `mujoco`.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return importlib.import_module("mujoco")
    except ImportError:
        raise ImportError('MJCF files are read and written through MuJoCo; pip install "jaxdyn[mjcf]"') from None


def compiled_text(mujoco: Any, path: Path, text: str, assets: dict[str, bytes], kinematic: bool = False) -> Any:
    """Model that MuJoCo compiles from a text and the files that it names; without masses if `kinematic`.

    Raises:
        ConfigError: MuJoCo refuses the text.
    """
    try:
        if not kinematic:
            return mujoco.MjModel.from_xml_string(text, assets)
        given = mujoco.MjSpec.from_string(text, assets=assets)
        # MuJoCo refuses bodies without mass; these are not read.
        given.compiler.boundmass = given.compiler.boundinertia = 1.0
        return given.compile()
    except (ValueError, RuntimeError, mujoco.FatalError) as error:
        remedy = f"; give the masses, or {KINEMATIC}" if "mjMINVAL" in str(error) else ""
        raise ConfigError(f"{path}: MuJoCo refuses it: {' '.join(str(error).split())}{remedy}") from None


def _check_that_no_mass_depends_on(files: MjcfFiles, mujoco: Any, path: Path, text: str, compiled: Any) -> None:
    """Warn of meshes whose files do not exist; a body whose inertia changes with their shapes is refused."""
    old, new = PLACEHOLDER, OTHER_PLACEHOLDER
    assets = {name: data.replace(old.encode(), new.encode()) for name, data in files.assets.items()}
    other = compiled_text(mujoco, path, text.replace(old, new), assets)
    for body in np.flatnonzero(compiled.body_weldid):
        fields = ("body_mass", "body_inertia", "body_ipos", "body_iquat")
        if all(np.array_equal(getattr(compiled, name)[body], getattr(other, name)[body]) for name in fields):
            continue
        meshes = compiled.geom_dataid[(compiled.geom_bodyid == body) & (compiled.geom_dataid >= 0)]
        names = {compiled.mesh(mesh).name for mesh in meshes}
        lost = [file for name, file in files.missing.items() if name in names] or list(files.missing.values())
        raise ConfigError(
            one_line(
                f"{path}: the mass or inertia of body {compiled.body(body).name!r} depends on "
                f"the mesh file {', '.join(lost[:3])}, and there is no file of this name; add it, or give the body an <inertial>"
            )
        )
    shown = ", ".join(list(files.missing.values())[:_MOST_SHOWN]) + ", ..." * (len(files.missing) > _MOST_SHOWN)
    warnings.warn(
        one_line(
            f"{path}: ignored {len(files.missing)} meshes whose files do not exist, no mass depends on them: {shown}"
        ),
        IgnoredContent,
        stacklevel=3,
    )


def system_from_mujoco(
    compiled: Any,
    *,
    contact: ContactUse = "none",
    kinematic: bool = False,
    ignore: Sequence[str] = (),
) -> System:
    """The system of a compiled model, a `mujoco.MjModel`; `load_mjcf` describes which elements are supported.

    Args:
        compiled: The compiled model.
        contact: Use of the colliders, see `load_mjcf`.
        kinematic: If true, masses and inertias are not read.
        ignore: Elements that are left out if they are not supported, see `load_mjcf`.
    """
    check_contact(contact, kinematic, "mechanism")
    reader = _Reader(compiled, kinematic, contact, ignore)
    system = reader.system(reader.name or "mechanism")
    reader.warn()
    return reader.with_contact(system, {}, system.model.name)


class _Reader:
    """Reader of one compiled model. For each MuJoCo body, `carriers` holds the name of the jaxdyn body and the origin on it.

    For each site with a name, `sites` holds the name of the frame. `_weightless` holds the armatures of free joints.
    """

    def __init__(
        self,
        compiled: Any,
        kinematic: bool,
        contact: ContactUse = "none",
        ignore: Sequence[str] = (),
        root: Element | None = None,
    ):
        self.mujoco: Any = importlib.import_module("mujoco")
        self.compiled, self.kinematic, self.contact = compiled, kinematic, contact
        self.carriers: dict[int, tuple[str, np.ndarray]] = {0: ("ground", np.zeros(3))}
        self.sites: dict[int, str] = {}
        self.actuators = ActuatorReader(self.mujoco, compiled, self.carriers, self._leave_out)
        self.root, self.used = root, set[str]()
        self.ignore = KINDS if kinematic else tuple(ignore)
        self.ignored: list[str] = []
        self._weightless: dict[int, float] = collections.defaultdict(float)
        self._taken = {"ground"}

    def system(self, name: str) -> System:
        self._refuse()
        compiled = self.compiled
        gravity = (0.0, 0.0, 0.0) if self._is_off("GRAVITY") else np.array(compiled.opt.gravity)
        builder = MechanismBuilder(name, gravity)
        for body in range(1, compiled.nbody):
            self._add_body(builder, body)
        for site in range(compiled.nsite):
            given = compiled.site(site).name
            if given:
                carrier, origin = self.carriers[compiled.site_bodyid[site]]
                position, turn = compiled.site_pos[site] + origin, np.array(compiled.site_quat[site])
                self.sites[site] = self._unused(given)
                builder.add_frame(self.sites[site], body=carrier, position=position, orientation=turn)
        model = builder.build(kinematic=self.kinematic)
        self._count()
        constraints = () if self._is_off("EQUALITY") else self._constraints(model)
        drives = drives_of_joints(model) if not self.actuators.count else self.actuators.drives(model)
        return System(model, self._forces(model), drives, constraints=constraints)

    def _is_off(self, flag: str) -> bool:
        """Whether the file switches a part of the physics off; CONSTRAINT includes EQUALITY and FRICTIONLOSS."""
        flags = [flag] + ["CONSTRAINT"] * (flag in ("EQUALITY", "FRICTIONLOSS"))
        bits = (getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{name}", 0) for name in flags)
        return any(self.compiled.opt.disableflags & bit for bit in bits)

    def with_contact(self, system: System, missing: dict[str, str], path: str) -> System:
        """The system with the contacts of its colliders if they are used, and otherwise with the number of colliders."""
        if self.contact == "none":
            return system.changed(unused_colliders=mjcf_collider_count(self.compiled))
        return with_mjcf_contact(self.mujoco, self.compiled, system, self.carriers, missing, path)

    @property
    def name(self) -> str:
        """Name of the model, with which the buffer of names begins; it may be empty."""
        return self.compiled.names.split(b"\0", 1)[0].decode(errors="replace")

    def warn(self) -> None:
        """Warn of all that is left out.

        Raises:
            UnknownName: `ignore` contains a name of no element that would have been refused.
        """
        unknown = [name for name in self.ignore if name not in KINDS and name not in self.used]
        if unknown:
            raise UnknownName("element to ignore", unknown[0], (*KINDS, *self.used))
        if self.ignored:
            said = one_line(f"{self.name or 'MJCF file'}: ignored {', '.join(dict.fromkeys(self.ignored))}")
            warnings.warn(said, IgnoredContent, stacklevel=4)

    def _unused(self, name: str) -> str:
        name = unused(name, self._taken)
        self._taken.add(name)
        return name

    # --- tree of bodies ---

    def _add_body(self, builder: MechanismBuilder, body: int) -> None:
        compiled = self.compiled
        parent, origin = self.carriers[compiled.body_parentid[body]]
        position, turn = compiled.body_pos[body] + origin, np.array(compiled.body_quat[body])
        name = self._unused(compiled.body(body).name or f"body {body}")
        first, count = int(compiled.body_jntadr[body]), int(compiled.body_jntnum[body])
        joints = [self._joint(index) for index in range(first, first + count)] or [(Fixed(), np.zeros(3), {})]
        anchor = np.zeros(3)  # vector from the origin of the MuJoCo body to the origin of the jaxdyn body
        for k, (joint, point, numbers) in enumerate(joints, 1):
            shift = np.zeros(3) if isinstance(joint, Free | Prismatic) else point - anchor
            anchor = anchor + shift
            # All joints but the last one are carried by separate bodies without mass.
            last = k == len(joints)
            carrier = name if last else self._unused(f"{name}/{numbers['joint_name']}")
            if last and compiled.body_weldid[body]:
                numbers |= self._inertia(body, anchor)
            position = position + rotation_matrix(turn) @ shift
            builder.add_body(carrier, parent=parent, joint=joint, position=position, orientation=turn, **numbers)
            parent, position, turn = carrier, np.zeros(3), _UNTURNED
        self.carriers[body] = (name, -anchor)

    def _joint(self, index: int) -> tuple[Joint, np.ndarray, dict[str, Any]]:
        """A joint, its point on the axes of the MuJoCo body, and its name, limits and armature for the builder."""
        compiled = self.compiled
        kind, axis = int(compiled.jnt_type[index]), np.array(compiled.jnt_axis[index])
        coordinate, column = compiled.jnt_qposadr[index], compiled.jnt_dofadr[index]
        numbers: dict[str, Any] = {"joint_name": compiled.joint(index).name or f"joint {index}"}
        if compiled.jnt_limited[index]:
            if kind in (_HINGE, _SLIDE):
                numbers["position_limits"] = bounded(compiled.jnt_range[index] - compiled.qpos0[coordinate])
            else:
                self.ignored.append(f"limits of joint {numbers['joint_name']!r}")
        joint = {_FREE: Free(), _BALL: Spherical(), _SLIDE: Prismatic(axis), _HINGE: Revolute(axis)}[kind]
        armature = compiled.dof_armature + self.actuators.reflected("actuator_armature")
        numbers["armature"] = armature[column : column + joint.nv]
        if kind == _FREE:
            numbers["armature"] = np.repeat([self._weightless[int(compiled.jnt_bodyid[index])], 0.0], 3)
        if compiled.jnt_actfrclimited[index] and joint.nv == 1:
            low, high = compiled.jnt_actfrcrange[index]
            if -low == high and high > 0:
                numbers["effort_limit"] = high
        return joint, compiled.jnt_pos[index], numbers

    def _inertia(self, body: int, anchor: np.ndarray) -> dict[str, Any]:
        compiled = self.compiled
        frame = rotation_matrix(np.array(compiled.body_iquat[body]))
        tensor = frame @ np.diag(compiled.body_inertia[body]) @ frame.T
        mass = float(compiled.body_mass[body])
        com = compiled.body_ipos[body] - anchor if mass else np.zeros(3)
        if added := self._weightless[body]:  # at the origin
            tensor += mass * added / (mass + added) * (com @ com * np.eye(3) - np.outer(com, com))
            mass, com = mass + added, com * mass / (mass + added)
        return {"mass": mass, "com": com, "inertia": 0.5 * (tensor + tensor.T)}

    # --- forces, drives, constraints ---

    def _forces(self, model: Model) -> tuple[Force, ...]:
        compiled = self.compiled
        forces: list[Force] = []
        damping = compiled.dof_damping + self.actuators.reflected("actuator_damping")
        damping, dry = (
            damping * (not self._is_off("DAMPER")),
            compiled.dof_frictionloss * (not self._is_off("FRICTIONLOSS")),
        )
        if np.any(damping) or np.any(dry):
            forces.append(JointFriction(damping, dry, np.full(model.nv, HOLDING_SCALE)))
        if np.any(compiled.jnt_stiffness) and not self._is_off("SPRING"):
            stiffness, rest = np.zeros(model.nv), np.array(configuration.neutral(model))
            for joint in range(compiled.njnt):
                column, start = compiled.jnt_dofadr[joint], compiled.jnt_qposadr[joint]
                kind = model.topology.joint_classes[model.topology.body_of_column[column]]
                if kind is Free:
                    continue
                stiffness[column : column + kind.nv] = compiled.jnt_stiffness[joint]
                reference = compiled.qpos0[start] if kind.nq == 1 else 0.0
                rest[start : start + kind.nq] = compiled.qpos_spring[start : start + kind.nq] - reference
            forces.append(JointSpring(stiffness, rest))
        return (*forces, *self._forces_on_bodies(model), *self._tendons(model))

    def _forces_on_bodies(self, model: Model) -> Iterator[Force]:
        """Gravity compensation, and the forces of a medium on ellipsoids and on boxes with the inertia of the bodies."""
        compiled, option = self.compiled, self.compiled.opt
        passive = not (self._is_off("SPRING") and self._is_off("DAMPER"))  # both flags switch all passive forces off
        in_medium = passive and bool(option.density or option.viscosity)
        compensated = compiled.body_gravcomp * passive
        ellipsoids = compiled.geom_bodyid[compiled.geom_fluid[:, 0] > 0.0]
        # Mass, share of the weight and center of mass of the parts of each moving body.
        parts: dict[int, list[tuple[float, float, Array]]] = {}
        for body in map(int, np.flatnonzero(compiled.body_weldid)):
            if self.kinematic or not (in_medium or np.any(compensated) or any(self._weightless.values())):
                return
            mass = float(compiled.body_mass[body])
            index, frame = self._placed(model, body, compiled.body_ipos[body], compiled.body_iquat[body])
            parts.setdefault(index, []).append((mass, float(compensated[body]), frame.translation))
            parts[index].append((self._weightless[body], 1.0, jnp.zeros(3)))
            if in_medium and mass > 0.0 and index != GROUND and body not in ellipsoids:
                a, b, c = compiled.body_inertia[body]
                lengths = np.sqrt(np.maximum([b + c - a, a + c - b, a + b - c], _LEAST) / mass * 6.0)
                edges = lengths[:, None] * np.array(quaternion.to_matrix(frame.quaternion)).T
                yield BoxDrag(index, frame.translation, edges, option.density, option.viscosity, option.wind)
        for geom in map(int, np.flatnonzero(in_medium * compiled.geom_fluid[:, 0])):
            body = int(compiled.geom_bodyid[geom])
            index, frame = self._placed(model, body, compiled.geom_pos[geom], compiled.geom_quat[geom])
            if index != GROUND and not self.kinematic and compiled.body_mass[body] >= _LEAST:
                share, *coefficients = compiled.geom_fluid[geom]
                edges = 2.0 * semiaxes(compiled, geom)[:, None] * np.array(quaternion.to_matrix(frame.quaternion)).T
                medium = share * option.density, share * option.viscosity, option.wind
                entrained = np.split(np.array(coefficients[5:]), 2)
                yield EllipsoidDrag(index, frame.translation, edges, *medium, *coefficients[:5], *entrained)
        parts.pop(GROUND, None)  # mocap bodies
        for index, held in parts.items():
            shares = {share for mass, share, _ in held if mass}
            if len(shares) == 1:
                yield from [GravityCompensation(index, share) for share in shares if share]
                continue
            for mass, share, center in held:
                if mass * share:
                    yield AppliedForce(index, center, -share * mass * model.gravity, np.zeros(3), body_fixed=False)

    def _tendons(self, model: Model) -> list[Tendon]:
        compiled, reader, found = self.compiled, self.actuators.tendons, []
        for tendon in range(compiled.ntendon):
            name = compiled.tendon(tendon).name or f"tendon {tendon}"
            given = {key: _values(compiled, f"tendon_{key}")[tendon] for key in (*_PASSIVE, *_NONLINEAR)}
            law: dict[str, Any] = {key: float(given[key]) for key, flag in _PASSIVE.items() if not self._is_off(flag)}
            nonlinear = any(np.any(given[key]) for key in _NONLINEAR)
            problem = "has armature or a nonlinear spring or damper" if nonlinear else reader.problem(tendon)
            if compiled.tendon_limited[tendon]:
                self.ignored.append(f"limits of tendon {name!r}")
            if problem and (nonlinear or any(law.values())):
                self._leave_out("tendon", "tendon", tendon, name, problem)
            elif any(law.values()):
                joints, neutral = self.actuators.arms(model, reader.joints(tendon), np.ones(3))
                law["rest"] = tuple((compiled.tendon_lengthspring[tendon] - neutral).tolist())
                law["friction"] = law.pop("frictionloss", None) or None
                found.append(Tendon.of(model, joints, reader.waypoints(tendon), **law))
        return found

    def _constraints(self, model: Model) -> tuple[Constraint, ...]:
        found = [self._constraint(model, index) for index in map(int, np.flatnonzero(self.compiled.eq_active0))]
        return tuple(constraint for constraint in found if constraint is not None)

    def _constraint(self, model: Model, index: int) -> Constraint | None:
        compiled, mujoco = self.compiled, self.mujoco
        name = compiled.equality(index).name or f"equality {index}"
        first, second, data = int(compiled.eq_obj1id[index]), int(compiled.eq_obj2id[index]), compiled.eq_data[index]
        match int(compiled.eq_type[index]):
            case mujoco.mjtEq.mjEQ_JOINT.value:
                return self._coupling(name, index, [(first, 1.0)], [(second, 1.0)] if second >= 0 else None, data[:5])
            case mujoco.mjtEq.mjEQ_TENDON.value:
                reader = self.actuators.tendons
                driver = reader.joints(second) if second >= 0 else None
                return self._coupling(name, index, reader.joints(first), driver, data[:5])
            case mujoco.mjtEq.mjEQ_CONNECT.value:
                kind, offsets = "spherical", [(data[0:3], _UNTURNED), (data[3:6], _UNTURNED)]
            case mujoco.mjtEq.mjEQ_WELD.value:
                kind, offsets = "fixed", [(data[3:6], np.array(data[6:10])), (data[0:3], _UNTURNED)]
            case other:
                self._leave_out("equality", "equality", index, name, f"is of type {mujoco.mjtEq(other).name}")
                return None
        if compiled.eq_objtype[index] == mujoco.mjtObj.mjOBJ_SITE:
            # Sites carry their own frames, so the data above are not used.
            sites = [(compiled.site_pos[i], np.array(compiled.site_quat[i])) for i in (first, second)]
            bodies, offsets = [compiled.site_bodyid[i] for i in (first, second)], sites
        else:
            bodies = [first, second]
        ends = []
        for body, (position, turn) in zip(bodies, offsets, strict=True):
            ends.append(self._placed(model, max(int(body), 0), position, turn))
        (body_a, frame_a), (body_b, frame_b) = ends
        if body_a == body_b:
            self.ignored.append(f"equality {name!r} within one body")
            return None
        return LoopJoint(name, kind, body_a, frame_a, body_b, frame_b)

    def _placed(self, model: Model, body: int, position: Any, turn: Any) -> tuple[int, RigidTransform]:
        """A frame of a MuJoCo body: index of the body in jaxdyn, and the placement in it."""
        carrier, origin = self.carriers[body]
        return model.locate_frame(
            carrier, RigidTransform(jnp.asarray(turn, float), jnp.asarray(position + origin, float))
        )

    def _coupling(
        self,
        name: str,
        index: int,
        driven: list[tuple[int, float]],
        driver: list[tuple[int, float]] | None,
        polynomial: np.ndarray,
    ) -> Constraint | None:
        """The length of one path of joints as a polynomial of the length of another, or of no other; at most two joints."""
        coefficients = np.array(polynomial[:1] if driver is None else polynomial)
        if len(driven) == 2 and driver is None:  # c1 q1 + c2 q2 = p0
            driven, driver, coefficients = driven[:1], driven[1:], np.array([coefficients[0], -1.0])
        terms = [*driven, *(driver or ())]
        scalar = all(int(self.compiled.jnt_type[joint]) in (_HINGE, _SLIDE) for joint, _ in terms)
        if not (scalar and len(driven) == 1 and (driver is None or len(driver) == 1) and driven[0][1]):
            self._leave_out("equality", "equality", index, name, "is not of one or two revolute or prismatic joints")
            return None
        (own, arm), (other, along) = terms[0], terms[-1]
        coefficients = np.trim_zeros(coefficients * along ** np.arange(len(coefficients)) / arm, "b")
        at = self.compiled.jnt_qposadr
        return Coupling(name, int(at[own]), int(at[other]), coefficients if len(coefficients) else [0.0])

    # --- elements without a counterpart ---

    def _leave_out(self, kind: str, section: str, index: int, name: str, problem: str) -> None:
        """Note an element that `ignore` contains by its kind or its name; refuse any other one."""
        if kind in self.ignore or name in self.ignore:
            self.used.add(name)
            self.ignored.append(f"{kind} {name!r}")
            return
        raise ConfigError(
            f"{self._place(section, index, name)}{kind} {name!r} {problem}, which is not supported; remove it, "
            f"or leave it out with ignore=({kind!r},) or ignore=({name!r},), on the command line --ignore {kind}"
        )

    def _place(self, section: str, index: int, name: str) -> str:
        """Line of an element; empty if it is not known."""
        if self.root is None:
            return ""
        parts = self.root.all(section)
        inside = [element for part in parts for element in part.below() if element is not part]
        found = [element for element in inside if element.attributes.get("name") == name]
        if not found and section != "worldbody":
            found = inside[index : index + 1] if section == "actuator" else parts
        return f"line {found[0].line}: " if found else ""

    def _refuse(self) -> None:
        compiled = self.compiled
        if compiled.nbody > MOST_BODIES:
            raise ConfigError(f"it has {compiled.nbody} bodies, but at most {MOST_BODIES} are read; split it")
        if compiled.nflex:
            raise ConfigError(f"it has {compiled.nflex} flexes, which are not supported; remove them")
        for joint in range(compiled.njnt):
            own, name = compiled.dof_jntid == joint, compiled.joint(joint).name or f"joint {joint}"
            is_free = int(compiled.jnt_type[joint]) == _FREE
            if is_free and np.ptp([compiled.dof_damping[own], compiled.dof_frictionloss[own]], axis=1).any():
                raise ConfigError(
                    f"joint {name!r} is free, and its damping or friction differs between axes; give equal values"
                )
            if is_free and np.ptp(compiled.dof_armature[own]):
                self._leave_out("armature", "worldbody", joint, name, "of a free joint differs between axes")
            elif is_free:  # a mass without weight at the origin, and an isotropic rotor
                self._weightless[int(compiled.jnt_bodyid[joint])] = float(compiled.dof_armature[own][0])
            nonlinear = [_values(compiled, "jnt_stiffnesspoly")[joint], _values(compiled, "dof_dampingpoly")[own]]
            nonlinear.append(_values(compiled, "jnt_springyield")[joint])
            if np.any(np.concatenate([np.ravel(x) for x in nonlinear])):
                self._leave_out("spring", "worldbody", joint, name, "is a nonlinear spring or damper of this joint")
            compensated = np.any(compiled.body_gravcomp) and compiled.jnt_actfrclimited[joint]
            if compensated and _values(compiled, "jnt_actgravcomp")[joint]:
                self._leave_out("gravcomp", "worldbody", joint, name, "is provided by actuators whose force is limited")
            if is_free and compiled.jnt_stiffness[joint]:
                self._leave_out("spring", "worldbody", joint, name, "is of a free joint")
        for plugin in range(compiled.nplugin):
            self._leave_out("plugin", "extension", plugin, compiled.plugin(plugin).name or f"plugin {plugin}", "is one")

    def _count(self) -> None:
        compiled = self.compiled
        counts = {
            "geoms with contact": 0 if self.contact == "ground" else int(np.sum(collides(compiled))),
            "contact pairs": compiled.npair,
            "mocap bodies, which do not move": compiled.nmocap,
        }
        self.ignored += [f"{count} {what}" for what, count in counts.items() if count]
        for index in map(int, np.flatnonzero(compiled.eq_active0 == 0)):
            name = compiled.equality(index).name or f"equality {index}"
            self.ignored.append(f"equality {name!r}, which is switched off")


def _values(compiled: Any, name: str) -> Any:
    """Array of a model; zeros for versions of MuJoCo that do not have it."""
    return getattr(compiled, name, np.zeros(max(compiled.njnt, compiled.nv, compiled.ntendon)))
