"""Writer of systems as MJCF, for the use of identified or generated mechanisms in MuJoCo.

MuJoCo compiles the text, and the system that `mjcf.reader` finds in the compiled model is compared with the given one before the
file is written. The text has all digits; MuJoCo's own writer rounds them to six.

Each body becomes a body with the same origin and axes, and each frame a site. A body without mass that carries another one becomes
a joint of the latter. Motors and servos become general actuators, loop joints and couplings equalities, and contacts with planes
the geoms that `load_mjcf(contact="ground")` reads. MuJoCo enforces limits of positions and efforts, which are data in a system, and
has other laws for dry friction, loops and contacts.
"""

import collections
import copy
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.constraints.kinds import Coupling, LoopJoint
from jaxdyn.dynamics import equations_of_motion
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.contact import GroundContact
from jaxdyn.dynamics.contact.material import ContactMaterial
from jaxdyn.dynamics.contact.surfaces import HalfSpace
from jaxdyn.dynamics.drives import Actuator, Actuators, JointDrives
from jaxdyn.dynamics.forces import Force, GravityCompensation, JointSpring
from jaxdyn.dynamics.forces.friction import HOLDING_SCALE, JointFriction
from jaxdyn.dynamics.paths import joints_of_arms
from jaxdyn.dynamics.system import State, System
from jaxdyn.errors import Error
from jaxdyn.io.files import write_content
from jaxdyn.io.mjcf.geoms import FACTORS
from jaxdyn.io.mjcf.reader import compiled_text, mujoco_package, system_from_mujoco
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.io.writing import Writer, element, stated_shapes, table_name
from jaxdyn.io.xml import IgnoredContent, unused
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Free, Prismatic, Revolute, Spherical
from jaxdyn.mechanism.model import as_dtype
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.inertia import symmetric_matrix
from jaxdyn.spatial.plain import rotation_matrix, rotation_quaternion

_JOINTS: dict[type[Joint], str] = {Revolute: "hinge", Prismatic: "slide", Spherical: "ball", Free: "free"}
_LOOPS = {"spherical": "connect", "fixed": "weld"}
_SECTIONS = ("asset", "tendon", "equality", "actuator")
_MESHES = (".stl", ".obj", ".msh")
_UNTURNED = np.eye(3)
_LEAST = 1e-14  # kg m^2, 10 mjMINVAL; m/s^2
_STATES = 3  # at which the written system is compared
_TOLERANCE = 1e-7  # of the accelerations, relative to the largest one
Lines = list[str]


class _Lacking(Error):
    """Reason why a part has no counterpart in MJCF."""


def save_mjcf(system: System, path: Path | str, *, drop: Sequence[str] = (), visuals: Sequence[Visual] = ()) -> None:
    """Write a system as MJCF; accelerations of the system that `load_mjcf` reads agree to rounding.

    Args:
        system: System to write.
        path: Path of the file.
        drop: Parts that are left out if MJCF lacks them: names of tables such as "joint_limits", "actuator", "armature", "drives",
            "rotor", or the name of a class of the user. One `IgnoredContent` warning names them.
        visuals: Shapes of bodies, as `load_visuals` returns them, which become geoms without contact. Mesh files are not copied:
            the file names them by their paths from its folder. Meshes that MuJoCo does not read are left out with a warning.

    Raises:
        ImportError: The `mujoco` package is not installed.
        ConfigError: MJCF cannot express a part that is not dropped, MuJoCo refuses the model or computes something else, or the
            model is a batch; the message is one line with the name and the remedy. In this case nothing is written.
        UnknownName: There is no such part to drop.
    """
    path, mujoco = Path(path), mujoco_package()
    with jax.enable_x64(True):
        writer = _Writer(as_dtype(system, jnp.float64), path, drop, visuals)
        writer.check(mujoco)
        text = writer.text()
    write_content(path, text)
    writer.warn()


class _Writer(Writer):
    """Collects the lines of bodies by their indices, and those of sections by their names.

    `kept` is the system without the parts that are dropped, and without contacts. A method `write_<table>` writes the force or
    constraint of a table, and returns it if MJCF changes it.
    """

    format = "MJCF"

    def __init__(self, system: System, path: Path, drop: Sequence[str], visuals: Sequence[Visual]):
        super().__init__(system, path, drop, ("actuator", "armature", "drives", "effort_range", "rotor"))
        model, topology = self.model, self.topology
        for name, kind in zip(topology.joint_names, topology.joint_classes, strict=True):
            if kind not in _JOINTS:
                raise self.refused_joint(name, kind)
        self.lines: dict[Any, list[Lines]] = collections.defaultdict(list)
        self.names: dict[str, str] = {}  # by the content of the element
        self.columns = {key: np.zeros(model.nv) for key in ("armature", "damping", "frictionloss", "stiffness")}
        self.rest, self.compensated = np.array(configuration.neutral(model)), np.zeros(model.nb)
        for index, (name, body) in enumerate(zip(topology.frame_names, topology.frame_bodies, strict=True)):
            frame = model.frames.row(index)
            self._site(body, frame.translation, frame.quaternion, name)
        for (body, position, turn, (kind, sizes, file)), colors in stated_shapes(visuals).items():
            words = {"pos": position, "quat": turn} | ({"rgba": next(iter(colors))} if len(colors) == 1 else {})
            if kind in FACTORS:
                self._geom(body, type=kind, size=np.divide(sizes, FACTORS[kind]), **words)
            elif file is not None and file.suffix.lower() in _MESHES:
                self._geom(body, mesh=self._mesh(file=self.name_of_file(file), scale=sizes), **words)
            else:
                self.dropped.append(f"visual {kind if file is None else file.name}")
        self.dropped += ["velocity limits"] * bool(np.any(np.isfinite(model.limits.velocity)))
        self.kept = self._kept()

    def _written(self, name: str, what: str, part: Any = None, write: Callable[[Any], Any] | None = None) -> list[Any]:
        """The part as it is written; nothing if it is dropped, because it has no counterpart."""
        before = copy.deepcopy((self.lines, self.names, self.columns)) if name in self.drop else None
        try:
            if write is None:
                raise _Lacking
            return [write(part) or part]
        except _Lacking as lacking:
            if self.stays(name):
                remedy = f"leave it out with drop=({name!r},), on the command line --drop {name}"
                raise self.refused(f"MJCF has no counterpart of {f'{what} {lacking}'.strip()}; {remedy}") from None
            self.lines, self.names, self.columns = before or (self.lines, self.names, self.columns)
            return []

    # --- forces and constraints ---

    def _kept(self) -> System:
        model, kept = self.model, []
        for name in model.rotors.names:
            self._written("rotor", f"rotor {name!r}")
        self._written("armature", "armature", model.armature, lambda values: self._add("armature", values))
        for part in (*self.system.forces, *self.system.constraints):
            name = table_name(part)
            what = f"{name} {getattr(part, 'name', '')!r}".removesuffix(" ''")
            kept += self._written(name, what, part, getattr(self, f"write_{name}", None))
        forces = tuple(part for part in kept if isinstance(part, Force) and type(part) is not GroundContact)
        constraints = tuple(part for part in kept if isinstance(part, Constraint))
        rotors = Rotors((), (), (), np.zeros((0, 3)), np.zeros(0), np.zeros(0))
        model = dataclasses.replace(model, armature=jnp.asarray(self.columns["armature"]), rotors=rotors)
        return System(model, forces, self._drives(), constraints=constraints)

    def _add(self, key: str, values: Any) -> None:
        """Add values per velocity component; MJCF has one for each joint, and neither stiffness nor armature for free joints."""
        for body, kind in enumerate(self.topology.joint_classes):
            own = np.asarray(values)[self.topology.body_of_column == body]
            absent = kind is Free and key in ("armature", "stiffness") and np.any(own)
            if absent or (kind in (Free, Spherical) and np.ptp(own)):
                raise _Lacking(f"{own.tolist()} of joint {self.topology.joint_names[body]!r}")
        self.columns[key] += values

    def write_joint_friction(self, part: JointFriction) -> JointFriction:
        self._add("damping", part.viscous)
        self._add("frictionloss", part.coulomb)
        is_other = np.any((part.coulomb != 0.0) & ~np.isclose(part.velocity_scale, HOLDING_SCALE))
        self.dropped += ["velocity_scale of dry friction"] * bool(is_other)
        return JointFriction(part.viscous, part.coulomb, np.full(self.model.nv, HOLDING_SCALE))

    def write_joint_spring(self, part: JointSpring) -> None:
        of_ball = [self.topology.joint_classes[body] is Spherical for body in self.topology.body_of_coordinate]
        is_turned = np.any((part.rest != self.rest) & np.array(of_ball))
        _refuse({"with a turned spherical joint": is_turned, "twice": np.any(self.columns["stiffness"])})
        self._add("stiffness", part.stiffness)
        self.rest = np.asarray(part.rest)

    def write_gravity_compensation(self, part: GravityCompensation) -> None:
        self.compensated[part.body] += part.share

    def write_loop(self, part: LoopJoint) -> None:
        _refuse({f"of kind {part.kind}": part.kind not in _LOOPS})
        ends = (part.body_a, part.frame_a), (part.body_b, part.frame_b)
        sites = [self._site(body, frame.translation, frame.quaternion) for body, frame in ends]
        self.lines["equality"].append(element(_LOOPS[part.kind], name=part.name, site1=sites[0], site2=sites[1]))

    def write_coupling(self, part: Coupling) -> None:
        _refuse({"of a degree above 4": len(part.coefficients) > 5})
        names = [self.topology.joint_names[self.topology.body_of_coordinate[k]] for k in (part.driven, part.driver)]
        driver = {"joint2": names[1]} if part.driver != part.driven else {}
        polynomial = np.pad(part.coefficients, (0, 5 - len(part.coefficients)))
        self.lines["equality"].append(element("joint", name=part.name, joint1=names[0], **driver, polycoef=polynomial))

    def write_ground_contact(self, part: GroundContact) -> None:
        if not isinstance(part.surface, HalfSpace):
            raise _Lacking(f"with {part.surface.describe()}")
        normal = np.asarray(part.surface.normal) / np.linalg.norm(part.surface.normal)
        position, without = float(part.surface.height) * normal, {"contype": "1", "conaffinity": "0"}
        plane = element("geom", type="plane", pos=position, zaxis=normal, size=(0, 0, 1), **without)
        _refuse({"with a second plane": self.lines["ground"] not in ([], [plane])})
        self.lines["ground"] = [plane]
        law = ContactMaterial.of(
            self.model, friction=part.material.friction, torsion_radius=part.material.torsion_radius
        )
        is_other = not all(map(np.allclose, jax.tree.leaves(law), jax.tree.leaves(part.material)))
        self.dropped += ["stiffness, damping, onset and slip speed of contacts"] * is_other
        # Each geom touches the plane and no other geom, with its own friction.
        friction, torsion = float(part.material.friction), float(part.material.torsion_radius)
        words = {"conaffinity": "1", "group": "3", "priority": "1", "condim": "4" if torsion else "3"}
        words |= {"friction": (friction, friction * torsion, 1e-4)}
        axes = np.zeros((len(part.bodies), 3, 3)) if part.axes is None else part.axes
        others: dict[Any, list[np.ndarray]] = collections.defaultdict(list)
        for body, center, radius, rows in zip(
            part.bodies, *map(np.asarray, (part.centers, part.radii, axes)), strict=True
        ):
            sizes, normal = np.linalg.norm(rows, axis=1), np.cross(rows[0], rows[1])
            if radius and not np.any(sizes):
                self._geom(body, type="sphere", pos=center, size=radius, **words)
            elif np.all(sizes) and not radius:
                turn = rotation_quaternion(_turn(rows / sizes[:, None]))
                self._geom(body, type="ellipsoid", pos=center, quat=turn, size=sizes, **words)
            else:  # corners of a mesh, or rims of a cylinder, which have the normal and a point of the axis in common
                axis = normal / (np.linalg.norm(normal) or 1.0)
                nearest = (center - axis * (center @ axis)) * bool(sizes[0])
                others[body, radius, sizes[0], *np.round([*axis, *nearest], 8)].append(center)
        for (body, radius, size, *_), points in others.items():
            is_flat = np.linalg.matrix_rank(points - points[0], 1e-6) < 3
            where = f"on body {self.topology.body_names[body]!r}"
            _refuse({f"with a tire {where}": radius, f"with a disc {where}": size and len(points) != 2})
            _refuse({f"with points in one plane {where}": not size and is_flat})
            if size:
                self._geom(body, type="cylinder", size=size, fromto=np.ravel(points), **words)
            else:
                self._geom(body, mesh=self._mesh(vertex=np.ravel(points)), **words)

    # --- drives ---

    def _drives(self) -> Actuators:
        drives, model, topology = self.system.drives, self.model, self.topology
        actuators, self.efforts, kept = [], {}, []
        if drives is None:
            drives = JointDrives(tuple(range(model.nv)), np.ones(model.nv))
        if isinstance(drives, Actuators):
            actuators, self.efforts = drives.descriptions(model), drives.effort_ranges(model)
        elif isinstance(drives, JointDrives):
            for name, column, gear in zip(
                drives.control_names(model), drives.columns, drives.gear.tolist(), strict=True
            ):
                name = unused(name, [actuator.name for actuator in actuators])  # of two drives of one joint
                actuators.append(Actuator(name, joints_of_arms(topology, [column], [gear])))
        else:
            self._written("drives", f"drives of class {type(drives).__name__}")
        self.dropped += ["that no joint is driven"] * (not actuators)
        for name, kind, column in zip(topology.joint_names, topology.joint_classes, topology.v_starts, strict=True):
            effort = float(model.limits.effort[column])
            if kind.nv == 1 and 0.0 < effort < np.inf:
                self.efforts.setdefault(name, (-effort, effort))
            elif kind.nv > 1:
                own = model.limits.effort[column : column + kind.nv]
                self.dropped += ["effort limits of spherical and free joints"] * bool(np.any(np.isfinite(own)))
                if name in self.efforts:
                    self._written("effort_range", f"effort_range of joint {name!r}")
                    del self.efforts[name]
        for actuator in actuators:
            kept += self._written("actuator", f"actuator {actuator.name!r}", actuator, self._write_actuator)
        driven = {name for actuator in kept for name in actuator.joints}
        return Actuators.of(model, kept, {name: pair for name, pair in self.efforts.items() if name in driven})

    def _write_actuator(self, x: Actuator) -> None:
        arms = list(x.joints.values())
        is_other = x.path or x.body == "ground" or (len(arms) > 1 and any(len(arm) > 1 for arm in arms))
        _refuse({"along points, on the ground, or on a free or spherical joint and others": is_other})
        _refuse({"with a delay": x.delay, "with a stall force": x.stall_force < np.inf})
        _refuse({"with the integral of a scaled control": x.integrates and x.time_constant != 1.0})
        gain = x.gain + x.stiffness * x.position_target + x.damping * x.velocity_target
        words: dict[str, Any] = dict.fromkeys(("gaintype", "biastype"), "affine")
        words["gainprm"] = gain, -x.controlled_stiffness, -x.controlled_damping
        words["biasprm"] = x.offset, -x.stiffness, -x.damping
        ranges = {"ctrlrange": x.control_range, "forcerange": x.force_range, "actrange": x.state_range}
        words |= {key: bounds for key, bounds in ranges.items() if np.any(np.isfinite(bounds))}
        if x.time_constant:
            words |= {"dyntype": "integrator" if x.integrates else "filterexact", "dynprm": x.time_constant}
        if x.body:
            body, point = self.model.locate(x.body, x.point)
            words |= {"site": self._site(body, point), "gear": (*x.force, *x.torque)}
        elif len(arms) == 1 and len(arms[0]) == 6:  # of a free joint: moment and force at the origin of the body
            body = self.topology.joint_names.index(next(iter(x.joints)))
            words |= {"site": self._site(body, np.zeros(3)), "gear": (*arms[0][3:], *arms[0][:3])}
        elif len(arms) == 1:
            words |= {"joint": next(iter(x.joints)), "gear": arms[0]}
        else:
            parts = [element("joint", joint=joint, coef=arm) for joint, arm in x.joints.items()]
            words["tendon"] = self._named("tendon", "fixed", *parts)
        self.lines["actuator"].append(element("general", name=x.name, **words))

    # --- elements ---

    def _named(self, where: Any, tag: str, *children: Lines, given: str = "", **words: Any) -> str:
        """Name of an element; without a given name, that of an element with the same content if there is one."""
        content = f"{where} {element(tag, *children, **words)}"
        if given or content not in self.names:
            name = given or unused(f"{tag} {len(self.names)}", self.topology.frame_names)
            self.names.setdefault(content, name)
            self.lines[where].append(element(tag, *children, name=name, **words))
        return self.names[content]

    def _site(self, body: int, position: Any, turn: Any = (1.0, 0.0, 0.0, 0.0), given: str = "") -> str:
        return self._named(body, "site", given=given, pos=position, quat=np.round(turn, 15))

    def _mesh(self, **words: Any) -> str:
        return self._named("asset", "mesh", **words, inertia="shell")

    def _geom(self, body: int, **words: Any) -> None:
        """A geom without mass; a mesh without contact unless `words` state something else."""
        usual = {"type": "mesh", "contype": "0", "conaffinity": "0", "group": "2", "mass": "0"}
        self.lines[body].append(element("geom", **usual | words))

    def text(self, **compiler: str) -> str:
        """The file, with further settings of the compiler."""
        parts = [
            element("compiler", angle="radian", inertiafromgeom="false", **compiler),
            element("option", gravity=self.model.gravity),
            element("worldbody", *self.lines["ground"], *self.lines[GROUND], *self._carried(GROUND)),
            *(element(key, *self.lines[key]) for key in _SECTIONS if self.lines[key]),
        ]
        return "\n".join([*element("mujoco", *parts, model=self.model.name), ""])

    def _carried(self, body: int, *placed: Any) -> list[Lines]:
        return [self._body(child, *placed) for child, parent in enumerate(self.topology.parents) if parent == body]

    def _body(self, body: int, turn: Any = _UNTURNED, position: Any = 0.0, before: Sequence[Any] = ()) -> Lines:
        """Lines of a body.

        Args:
            body: The body.
            turn, position: Placement of its parent on the axes of the body of the file that carries both.
            before: Bodies without mass between both, and axes and origin of each of them on the axes of the parent.
        """
        model, name = self.model, self.topology.body_names[body]
        own = rotation_matrix(np.asarray(model.placement.quaternion[body]))
        shift = np.asarray(model.placement.translation[body])
        turn, position = turn @ own, position + turn @ shift
        joints = [(other, axes @ own, (point - shift) @ own) for other, axes, point in before]
        joints.append((body, _UNTURNED, np.zeros(3)))
        if not model.mass[body] and not self.lines[body] and self.topology.parents.count(body) == 1:
            return self._carried(body, turn, position, joints)[0]
        parts = [self._joint(*joint) for joint in joints]
        if model.mass[body]:
            moments, axes = np.linalg.eigh(symmetric_matrix(np.asarray(model.inertia[body])))
            moments = np.maximum(moments, _LEAST)  # MuJoCo refuses zero, and flat bodies after rounding
            moments[2] = min(moments[2], moments[0] + moments[1])
            words = {"pos": model.com[body], "mass": model.mass[body], "diaginertia": moments}
            parts.append(element("inertial", **words, quat=rotation_quaternion(_turn(axes.T))))
        words = {"pos": position, "quat": rotation_quaternion(turn), "gravcomp": self.compensated[body]}
        return element("body", *parts, *self.lines[body], *self._carried(body), name=name, **words)

    def _joint(self, body: int, axes: np.ndarray, point: np.ndarray) -> Lines:
        """Joint of a body whose axes are the rows of `axes`, and whose origin is `point`."""
        joint, name, column = self.model.joint(body), self.topology.joint_names[body], self.topology.v_starts[body]
        words: dict[str, Any] = {key: values[column] for key, values in self.columns.items() if values[column]}
        if isinstance(joint, Revolute | Prismatic):
            start, limits = self.topology.q_starts[body], self.model.limits
            bounds = [float(limits.lower[start]), float(limits.upper[start])]
            words |= {"axis": np.asarray(joint.axis) @ axes, "springref": self.rest[start]}
            words |= {"range": bounds} if np.any(np.isfinite(bounds)) else {}
            words |= {"actuatorfrcrange": self.efforts[name]} if name in self.efforts else {}
        return element("joint", name=name, type=_JOINTS[type(joint)], pos=point, **words)

    # --- the way back ---

    def check(self, mujoco: Any) -> None:
        """Compare accelerations of the system that is read back at random states with those of the given one.

        Raises:
            ConfigError: MuJoCo refuses the file, or accelerations differ.
        """
        compiled = compiled_text(mujoco, self.path, self.text(meshdir=str(self.path.parent.resolve())), {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IgnoredContent)
            back = system_from_mujoco(compiled)
        own, their = self.topology, back.model.topology
        bodies = [their.joint_names.index(name) for name in own.joint_names]
        owners = their.body_of_coordinate, their.body_of_column
        at_q, at_v = (np.concatenate([np.flatnonzero(of == body) for body in bodies]) for of in owners)

        acceleration = jax.jit(equations_of_motion.acceleration)
        for key in jax.random.split(jax.random.key(0), _STATES):
            q = configuration.random(self.model, key)
            v, u, z = (jax.random.normal(key, (count,)) for count in (own.nv, self.kept.nu, self.kept.nz))
            u, z = u if u.size else None, z if z.size else None  # a file without actuators is read with drives
            ours = acceleration(self.kept, State(q, v, z), u)
            theirs = acceleration(back, State(q.at[at_q].set(q), v.at[at_v].set(v), z), u)[at_v]
            error, largest = np.max(np.abs(ours - theirs)), max(np.max(np.abs(ours)), _LEAST)
            if not error <= _TOLERANCE * largest:
                raise self.refused(f"accelerations in MuJoCo differ by {error / largest:.0e}; save as TOML or URDF")


def _refuse(problems: dict[str, Any]) -> None:
    """Refuse a part for the first reason that holds."""
    for problem, holds in problems.items():
        if holds:
            raise _Lacking(problem)


def _turn(rows: np.ndarray) -> np.ndarray:
    """Rotation matrix from the axes in the rows of a matrix; the last one is turned round if they are left-handed."""
    return (rows * [[1.0], [1.0], [np.sign(np.linalg.det(rows))]]).T
