"""MJCF files, MuJoCo's own format, read with the `mujoco` package (the extra "mjcf").

MuJoCo compiles the file, which resolves defaults and includes and computes inertias from geoms and meshes. jaxdyn takes over
bodies, joints with armature, damping, dry friction and springs, equality constraints and motors. A body with several joints becomes
a chain of bodies, one per joint. Only the last body of the chain has mass; its origin is at the last joint. Coordinates are in
MuJoCo's order, and have their neutral values in the pose that the file describes; `MujocoOrder` converts states.

Elements without a counterpart in jaxdyn (contacts, limits of tendons, actuators other than motors ...) are counted in one
`IgnoredContent` warning if they do not affect the free motion. If such an element affects the free motion, the file is refused, and
the message names the element.
"""

import collections
import importlib
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdyn.constraints.kinds import Coupling, LoopJoint
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.forces import Force, JointDrives, JointSpring
from jaxdyn.dynamics.friction import HOLDING_SCALE, JointFriction
from jaxdyn.dynamics.system import System
from jaxdyn.errors import one_line
from jaxdyn.io.colliders import ContactUse, check_contact
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.limits import LimitsUse, check_limits, with_limits
from jaxdyn.io.mjcf_colliders import mjcf_collider_count, with_mjcf_contact
from jaxdyn.io.mjcf_files import OTHER_PLACEHOLDER, PLACEHOLDER, MjcfFiles, read_mjcf
from jaxdyn.io.mjcf_geoms import MjcfGeoms
from jaxdyn.io.reading import MOST_BODIES, calculable
from jaxdyn.io.visuals import Omitted
from jaxdyn.io.xml import KINEMATIC, IgnoredContent, unused
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.builder import MechanismBuilder
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Fixed, Free, Prismatic, Revolute, Spherical
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_matrix
from jaxdyn.spatial.transform import RigidTransform

_FREE, _BALL, _SLIDE, _HINGE = range(4)  # mujoco.mjtJoint
_MOST_SHOWN = 20  # file names in a message
_UNTURNED = np.array([1.0, 0.0, 0.0, 0.0])


def load_mjcf(
    path: Path | str,
    *,
    velocity_scale: float = HOLDING_SCALE,
    limits: LimitsUse = "data",
    contact: ContactUse = "none",
    folder: Path | str | None = None,
    kinematic: bool = False,
) -> System:
    """Read the system that an MJCF file describes, in JAX's default precision.

    Args:
        path: MJCF file.
        velocity_scale: Speed at which the friction force reaches 76 % of `frictionloss`, rad/s or m/s; see `load_urdf`.
        limits: "enforced" stops joints at their position limits by `JointLimits`, whose stiffness is derived from the mechanism
            and not from solref and solimp of the file; "data" only stores the limits in `Model.limits`.
        contact: "ground" turns the geoms of moving bodies into contacts with the planes and height fields of the world, see
            `colliders` and `mjcf_colliders`. Friction is that of the file; stiffness and damping are derived from the mechanism and
            not from solref and solimp. Colliders that are left out are named in one `IgnoredContent` warning. With "none",
            `System.summary` states how many colliders are not simulated.
        folder: Folder of the included files and meshes; by default the folder of the file. Files outside of this folder are not
            opened, even if links point to them.
        kinematic: If true, masses and inertias are not read, so that a file without them can be used for kinematics and pictures.

    Raises:
        ImportError: The `mujoco` package is not installed.
        ConfigError: MuJoCo refuses the file, the file refers to a file outside of the folder, is too large, or contains an element
            that affects the motion and that jaxdyn does not support.
        MechanismError: A value is not physically valid; the message is one line with the file, the body and the remedy.
    """
    check_limits(limits, path)
    check_contact(contact, kinematic, path)
    mujoco, path = _mujoco(), Path(path)
    text, files = read_mjcf(path, None if folder is None else Path(folder))
    compiled = _compiled(mujoco, path, text, files.assets, kinematic)
    if files.missing and not kinematic:
        _check_that_no_mass_depends_on(files, mujoco, path, text, compiled)
    with calculable(path):
        try:
            reader = _Reader(compiled, velocity_scale, kinematic, contact)
            system = reader.system(reader.name or path.stem)
        except (ConfigError, MechanismError) as error:
            raise type(error)(f"{path}: {error}") from None
        except ValueError as error:  # for example an invalid rotation
            raise ConfigError(f"{path}: its values do not describe a mechanism, {error}; correct them") from None
        reader.warn()
        return with_limits(reader.with_contact(system, files.missing, str(path)), limits)


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
    mujoco = _mujoco()
    text, files = read_mjcf(path, folder)
    reader = _Reader(_compiled(mujoco, path, text, files.assets, kinematic=True), velocity_scale=1.0, kinematic=True)
    reader.system(path.stem)
    return MjcfGeoms(mujoco, reader.compiled, model, reader.carriers, files.missing, omitted)


def _mujoco() -> Any:
    try:
        return importlib.import_module("mujoco")
    except ImportError:
        raise ImportError('MJCF files are read through MuJoCo; pip install "jaxdyn[mjcf]"') from None


def _compiled(mujoco: Any, path: Path, text: str, assets: dict[str, bytes], kinematic: bool = False) -> Any:
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
    other = _compiled(mujoco, path, text.replace(old, new), assets)
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
    velocity_scale: float = HOLDING_SCALE,
    contact: ContactUse = "none",
    kinematic: bool = False,
) -> System:
    """The system of a compiled model, a `mujoco.MjModel`; `load_mjcf` describes which elements are supported.

    Args:
        compiled: The compiled model.
        velocity_scale: Speed at which the friction force reaches 76 % of `frictionloss`, rad/s or m/s.
        contact: Use of the colliders, see `load_mjcf`.
        kinematic: If true, masses and inertias are not read.
    """
    check_contact(contact, kinematic, "mechanism")
    reader = _Reader(compiled, velocity_scale, kinematic, contact)
    system = reader.system(reader.name or "mechanism")
    reader.warn()
    return reader.with_contact(system, {}, system.model.name)


class _Reader:
    """Reader of one compiled model. For each MuJoCo body, `carriers` holds the name of the jaxdyn body and the origin on it."""

    def __init__(self, compiled: Any, velocity_scale: float, kinematic: bool, contact: ContactUse = "none"):
        self.mujoco: Any = importlib.import_module("mujoco")
        self.compiled, self.velocity_scale, self.kinematic, self.contact = compiled, velocity_scale, kinematic, contact
        self.carriers: dict[int, tuple[str, np.ndarray]] = {0: ("ground", np.zeros(3))}
        self.ignored: collections.Counter[str] = collections.Counter()
        self._taken = {"ground"}

    def system(self, name: str) -> System:
        self._refuse()
        compiled = self.compiled
        no_gravity = compiled.opt.disableflags & self.mujoco.mjtDisableBit.mjDSBL_GRAVITY
        builder = MechanismBuilder(name, (0.0, 0.0, 0.0) if no_gravity else np.array(compiled.opt.gravity))
        for body in range(1, compiled.nbody):
            self._add_body(builder, body)
        for site in range(compiled.nsite):
            given = compiled.site(site).name
            if given:
                carrier, origin = self.carriers[compiled.site_bodyid[site]]
                position, turn = compiled.site_pos[site] + origin, np.array(compiled.site_quat[site])
                builder.add_frame(self._unused(given), body=carrier, position=position, orientation=turn)
        model = builder.build(kinematic=self.kinematic)
        self._count()
        constraints = [self._constraint(model, i) for i in range(compiled.neq) if compiled.eq_active0[i]]
        return System(model, self._forces(model), self._drives(), constraints=tuple(constraints))

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
        if self.ignored:
            parts = ", ".join(f"{count} {what}" for what, count in self.ignored.items())
            said = one_line(f"{self.name or 'MJCF file'}: ignored {parts}")
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
                numbers["position_limits"] = tuple(compiled.jnt_range[index] - compiled.qpos0[coordinate])
            else:
                self.ignored["limits of spherical joints"] += 1
        joint = {_FREE: Free(), _BALL: Spherical(), _SLIDE: Prismatic(axis), _HINGE: Revolute(axis)}[kind]
        numbers["armature"] = np.array(compiled.dof_armature[column : column + joint.nv])
        if compiled.jnt_actfrclimited[index] and joint.nv == 1:
            low, high = compiled.jnt_actfrcrange[index]
            if -low == high and high > 0:
                numbers["effort_limit"] = high
            else:
                self.ignored["effort limits that differ by direction"] += 1
        return joint, compiled.jnt_pos[index], numbers

    def _inertia(self, body: int, anchor: np.ndarray) -> dict[str, Any]:
        compiled = self.compiled
        frame = rotation_matrix(np.array(compiled.body_iquat[body]))
        tensor = frame @ np.diag(compiled.body_inertia[body]) @ frame.T
        mass = float(compiled.body_mass[body])
        com = compiled.body_ipos[body] - anchor if mass else np.zeros(3)
        return {"mass": mass, "com": com, "inertia": 0.5 * (tensor + tensor.T)}

    # --- forces, drives, constraints ---

    def _forces(self, model: Model) -> tuple[Force, ...]:
        compiled = self.compiled
        forces: list[Force] = []
        if np.any(compiled.dof_damping) or np.any(compiled.dof_frictionloss):
            scale = np.full(model.nv, self.velocity_scale)
            forces.append(JointFriction(np.array(compiled.dof_damping), np.array(compiled.dof_frictionloss), scale))
        if np.any(compiled.jnt_stiffness):
            stiffness, rest = np.zeros(model.nv), np.array(configuration.neutral(model))
            for joint in range(compiled.njnt):
                column, start = compiled.jnt_dofadr[joint], compiled.jnt_qposadr[joint]
                kind = model.topology.joint_classes[model.topology.body_of_column[column]]
                if kind is Free:
                    if compiled.jnt_stiffness[joint]:
                        self.ignored["springs of free joints"] += 1
                    continue
                stiffness[column : column + kind.nv] = compiled.jnt_stiffness[joint]
                reference = compiled.qpos0[start] if kind.nq == 1 else 0.0
                rest[start : start + kind.nq] = compiled.qpos_spring[start : start + kind.nq] - reference
            forces.append(JointSpring(stiffness, rest))
        return tuple(forces)

    def _drives(self) -> JointDrives | None:
        compiled, mujoco = self.compiled, self.mujoco
        columns, gear = [], []
        for actuator in range(compiled.nactuator if hasattr(compiled, "nactuator") else compiled.nu):
            joint = compiled.actuator_trnid[actuator, 0]
            drives_joint = compiled.actuator_trntype[actuator] == mujoco.mjtTrn.mjTRN_JOINT and joint >= 0
            is_motor = (
                compiled.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_FIXED
                and compiled.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE
                and compiled.actuator_dyntype[actuator] == mujoco.mjtDyn.mjDYN_NONE
            )
            if not (drives_joint and is_motor and int(compiled.jnt_type[joint]) in (_HINGE, _SLIDE)):
                self.ignored["actuators other than joint motors"] += 1
                continue
            columns.append(int(compiled.jnt_dofadr[joint]))
            gear.append(float(compiled.actuator_gear[actuator, 0] * compiled.actuator_gainprm[actuator, 0]))
        return JointDrives(tuple(columns), gear) if columns else None

    def _constraint(self, model: Model, index: int) -> Constraint:
        compiled, mujoco = self.compiled, self.mujoco
        name = compiled.equality(index).name or f"equality {index}"
        first, second, data = int(compiled.eq_obj1id[index]), int(compiled.eq_obj2id[index]), compiled.eq_data[index]
        match int(compiled.eq_type[index]):
            case mujoco.mjtEq.mjEQ_JOINT.value:
                return self._coupling(name, first, second, data[:5])
            case mujoco.mjtEq.mjEQ_CONNECT.value:
                kind, offsets = "spherical", [(data[0:3], _UNTURNED), (data[3:6], _UNTURNED)]
            case mujoco.mjtEq.mjEQ_WELD.value:
                kind, offsets = "fixed", [(data[3:6], np.array(data[6:10])), (data[0:3], _UNTURNED)]
            case other:
                raise ConfigError(
                    f"equality {name!r} is of type {mujoco.mjtEq(other).name}, which has no counterpart; remove it"
                )
        if compiled.eq_objtype[index] == mujoco.mjtObj.mjOBJ_SITE:
            # Sites carry their own frames, so the data above are not used.
            sites = [(compiled.site_pos[i], np.array(compiled.site_quat[i])) for i in (first, second)]
            bodies, offsets = [compiled.site_bodyid[i] for i in (first, second)], sites
        else:
            bodies = [first, second]
        ends = []
        for body, (position, turn) in zip(bodies, offsets, strict=True):
            carrier, origin = self.carriers[max(int(body), 0)]
            placed = RigidTransform(jnp.asarray(turn, float), jnp.asarray(position + origin, float))
            ends.append(model.locate_frame(carrier, placed))
        (body_a, frame_a), (body_b, frame_b) = ends
        return LoopJoint(name, kind, body_a, frame_a, body_b, frame_b)

    def _coupling(self, name: str, driven: int, driver: int, coefficients: np.ndarray) -> Constraint:
        compiled = self.compiled
        if driver < 0 or any(int(compiled.jnt_type[joint]) not in (_HINGE, _SLIDE) for joint in (driven, driver)):
            raise ConfigError(
                f"equality {name!r} does not couple two revolute or prismatic joints; make the joint fixed instead"
            )
        own, other = (int(compiled.jnt_qposadr[joint]) for joint in (driven, driver))
        return Coupling(name, own, other, np.trim_zeros(np.array(coefficients), "b") if np.any(coefficients) else [0.0])

    # --- elements without a counterpart ---

    def _refuse(self) -> None:
        compiled = self.compiled
        if compiled.nbody > MOST_BODIES:
            raise ConfigError(f"it has {compiled.nbody} bodies, but at most {MOST_BODIES} are read; split it")
        free = [joint for joint in range(compiled.njnt) if int(compiled.jnt_type[joint]) == _FREE]
        changes_motion = {
            # In MuJoCo it is a mass along ground axes, without weight; in jaxdyn it acts along the axes of the body.
            "free joints with armature": sum(bool(compiled.dof_armature[compiled.jnt_dofadr[joint]]) for joint in free),
            "flexes": compiled.nflex,
            "tendons with armature": np.sum(getattr(compiled, "tendon_armature", 0.0) > 0),
            "actuators with armature": np.sum(getattr(compiled, "actuator_armature", 0.0) > 0),
        }
        for what, count in changes_motion.items():
            if count:
                raise ConfigError(
                    f"it has {int(count)} {what}, which affect the inertia and are not supported; remove them"
                )

    def _count(self) -> None:
        compiled = self.compiled
        collides = (compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0)
        counts = {
            "geoms with contact": 0 if self.contact == "ground" else int(np.sum(collides)),
            "contact pairs": compiled.npair,
            "tendons": compiled.ntendon,
            "equalities that are switched off": int(np.sum(compiled.eq_active0 == 0)),
            "mocap bodies, which do not move": compiled.nmocap,
            "bodies with gravity compensation": int(np.sum(compiled.body_gravcomp != 0)),
            "plugins": compiled.nplugin,
            "nonlinear springs and dampers": sum(
                int(np.sum(np.any(getattr(compiled, key) != 0, axis=-1)))
                for key in ("jnt_stiffnesspoly", "dof_dampingpoly")
                if hasattr(compiled, key)
            ),
            "media (density, viscosity, wind)": int(
                bool(compiled.opt.density or compiled.opt.viscosity or np.any(compiled.opt.wind))
            ),
        }
        for what, count in counts.items():
            if count:
                self.ignored[what] += int(count)
