"""Writer of systems as URDF, for the use of identified or generated mechanisms in other programs.

The root link is "ground". Quantities that URDF does not support (armature, springs in joints, gravity, loops, drives) are written
to the <jaxdyn> element that `jaxdyn.io.urdf` describes; other readers ignore it.
"""

import math
from pathlib import Path
from typing import Any, TypeVar
from xml.sax.saxutils import quoteattr

import numpy as np
from jaxtyping import Array

from jaxdyn.constraints.kinds import Coupling, Distance, LoopJoint
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.drives import JointDrives, drives_of_joints
from jaxdyn.dynamics.forces import Force, JointSpring
from jaxdyn.dynamics.forces.friction import JointFriction
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_content
from jaxdyn.io.placements import rpy_from_quaternion
from jaxdyn.io.urdf.elements import INERTIA_ENTRIES, JOINT_TYPES, across
from jaxdyn.io.urdf.reader import system_from_robot
from jaxdyn.io.xml import parse_xml, problem_with_name, shortened, unused
from jaxdyn.mechanism.joints import Planar, Prismatic, Revolute
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.transform import RigidTransform

_OneForce = TypeVar("_OneForce", bound=Force)
# Value for "no limit", for readers that do not support infinity; `load_urdf` reads it as no limit.
_UNLIMITED = 1e30


def save_urdf(system: System, path: Path | str) -> None:
    """Write a system as URDF; `load_urdf` reads it back with every value accurate to 1e-12.

    Bodies keep their names and become links; frames become links without mass on fixed joints. In the system that is read back,
    forces of friction precede springs. The algorithm `system.method` and the rate `system.stabilization` are not properties of the
    mechanism and are not written.

    Args:
        system: System to write.
        path: Path of the file.

    Raises:
        ConfigError: A name, a joint, a rotor, a force or a constraint cannot be written as URDF, or the model is a batch; the
            message is one line with the name and the remedy. In this case nothing is written.
        MechanismError: The parameters are not physically valid, so that the file could not be loaded.
    """
    path = Path(path)
    text = _Writer(system, path).text()
    system_from_robot(parse_xml(text.encode(), path))  # refuses values that readers would not accept
    write_content(path, text)


class _Writer:
    def __init__(self, system: System, path: Path):
        self.system, self.path = system, path
        self.model: Model = system.model
        self.topology = system.model.topology
        if self.model.mass.ndim != 1:
            raise ConfigError(
                f"{path}: the model is a batch of shape {self.model.mass.shape[:-1]}; write one mechanism per file"
            )
        for name in self.model.rotors.names:
            raise self.refused(f"rotor {name!r} cannot be written as URDF; save as TOML")
        self.friction = self._only(JointFriction)
        self.spring = self._only(JointSpring)
        for force in system.forces:
            if not isinstance(force, JointFriction | JointSpring):
                raise self.refused(
                    f"a force of class {type(force).__name__} cannot be written as URDF; remove it or save as TOML"
                )
        # Mimic joints are couplings of first degree that have the name of the driven joint. They are read before all other
        # constraints, in the order of the joints; other couplings of this form keep their position.
        self.mimics: dict[int, Coupling] = {}
        for constraint in system.constraints:
            if not isinstance(constraint, Coupling) or not self._is_next_mimic(constraint):
                break
            self.mimics[constraint.driven] = constraint
        self._check_names()

    def refused(self, message: str) -> ConfigError:
        return ConfigError(f"{self.path}: {message}")

    def _is_next_mimic(self, coupling: Coupling) -> bool:
        is_mimic = len(coupling.coefficients) == 2 and coupling.name == self._joint_at(coupling.driven)
        return is_mimic and all(driven < coupling.driven for driven in self.mimics)

    def _check_names(self) -> None:
        topology = self.topology
        constraints = [constraint.name for constraint in self.system.constraints]
        for name in (self.model.name, *topology.body_names, *topology.joint_names, *topology.frame_names, *constraints):
            problem = problem_with_name(name)
            if problem is not None:
                raise self.refused(f"the name {shortened(name)!r} {problem}")

    def _only(self, kind: type[_OneForce]) -> _OneForce | None:
        found = [force for force in self.system.forces if isinstance(force, kind)]
        if len(found) > 1:
            raise self.refused(f"the system has two forces of class {kind.__name__}; combine them into one")
        return found[0] if found else None

    def _joint_at(self, coordinate: int) -> str:
        return self.topology.joint_names[self.topology.body_of_coordinate[coordinate]]

    def text(self) -> str:
        parts = [_element("link", name="ground")]
        for body in range(self.model.nb):
            parts += [self._link(body), self._joint(body)]
        for index, (name, body) in enumerate(zip(self.topology.frame_names, self.topology.frame_bodies, strict=True)):
            ends = self._ends(body, name, self.model.frames.row(index))
            parts.append(_element("link", name=name))
            parts.append(
                _element("joint", *ends, name=unused(f"{name}_fixed", self.topology.joint_names), type="fixed")
            )
        robot = _element("robot", *parts, _element("jaxdyn", *self._extension()), name=self.model.name)
        return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', *robot, ""])

    def _ends(self, parent: int, child: str, frame: RigidTransform) -> list[list[str]]:
        """The links that a joint connects, and its placement."""
        names = {"parent": self.topology.body_name(parent), "child": child}
        ends = [_element(role, link=name) for role, name in names.items()]
        return [*ends, _element("origin", **_placement(frame))]

    def _link(self, body: int) -> list[str]:
        model = self.model
        name = self.topology.body_names[body]
        if not model.mass[body]:
            return _element("link", name=name)
        inertia = _element("inertia", **dict(zip(INERTIA_ENTRIES, model.inertia[body], strict=True)))
        center, mass = _element("origin", xyz=model.com[body]), _element("mass", value=model.mass[body])
        return _element("link", _element("inertial", center, mass, inertia), name=name)

    def _joint(self, body: int) -> list[str]:
        model, topology = self.model, self.topology
        name, kind = topology.joint_names[body], topology.joint_classes[body]
        types = [of_type for of_type, joint in JOINT_TYPES.items() if joint is kind]
        if not types:
            raise self.refused(
                f"joint {name!r} is of class {kind.__name__}, which URDF does not support; save as TOML, or "
                "write jaxdyn.decompose_joints(model)"
            )
        q, columns = int(topology.q_starts[body]), topology.body_of_column == body
        lower, upper = float(model.limits.lower[q]), float(model.limits.upper[q])
        effort, velocity = (np.asarray(x)[columns] for x in (model.limits.effort, model.limits.velocity))
        bounded = math.isfinite(lower) or math.isfinite(upper)
        type_ = "continuous" if kind is Revolute and not bounded else types[0]
        parts = self._ends(topology.parents[body], topology.body_names[body], model.placement.row(body))
        joint = model.joint(body)
        if isinstance(joint, Planar):
            normal, across_it = (np.asarray(axis, np.float64) for axis in (joint.normal, joint.direction))
            if not np.allclose(across(normal), across_it, atol=1e-12):
                raise self.refused(
                    f"planar joint {name!r} has a direction that URDF cannot express; rotate its placement"
                )
            parts.append(_element("axis", xyz=joint.normal))
        if isinstance(joint, Revolute | Prismatic):
            parts.append(_element("axis", xyz=joint.axis))
            numbers = {"lower": lower, "upper": upper} if type_ != "continuous" else {}
            numbers |= {"effort": float(effort[0]), "velocity": float(velocity[0])}
            parts.append(_element("limit", **{key: _limit(x) for key, x in numbers.items()}))
        elif bounded or np.any(np.isfinite([effort, velocity])):
            raise self.refused(
                f"joint {name!r} is {type_} and has limits, which URDF cannot express; remove them or save as TOML"
            )
        if self.friction is not None:
            words = self._common(body, "damping", self.friction.viscous)
            words |= self._common(body, "friction", self.friction.coulomb)
            parts += [_element("dynamics", **words)] if words else []
        if q in self.mimics:
            coupling = self.mimics[q]
            offset, multiplier = coupling.coefficients
            driver = self._joint_at(coupling.driver)
            parts.append(_element("mimic", joint=driver, multiplier=multiplier, offset=offset))
        return _element("joint", *parts, name=name, type=type_)

    def _extension(self) -> list[list[str]]:
        model, topology = self.model, self.topology
        parts = [_element("gravity", xyz=model.gravity)]
        for body, (name, kind) in enumerate(zip(topology.joint_names, topology.joint_classes, strict=True)):
            words = self._common(body, "armature", model.armature, single=True)
            if self.friction is not None:
                words |= self._common(body, "velocity_scale", self.friction.velocity_scale)
            if self.spring is not None:
                words |= self._common(body, "stiffness", self.spring.stiffness, single=True)
                rest = self.spring.rest[topology.q_starts[body]]
                if kind in (Revolute, Prismatic) and rest:
                    words.setdefault("stiffness", 0.0)
                    words["rest"] = float(rest)
            if words:
                parts.append(_element("joint", name=name, **words))
        parts += self._drives()
        return [*parts, *map(self._constraint, self.system.constraints[len(self.mimics) :])]

    def _drives(self) -> list[list[str]]:
        """Elements of the drives; none if they are those of a file without such elements."""
        drives, usual = self.system.drives, drives_of_joints(self.model)
        if drives is None:
            return [] if usual is None else [_element("drives", joints="all")]
        if type(drives) is not JointDrives:
            raise self.refused(f"drives of class {type(drives).__name__} cannot be written as URDF; save as JSON")
        if usual is not None and drives.columns == usual.columns and np.array_equal(drives.gear, usual.gear):
            return []
        if not drives.columns:
            return [_element("drives", joints="none")]
        topology, parts = self.topology, []
        for column, gear in zip(drives.columns, drives.gear, strict=True):
            body = topology.body_of_column[column]
            if topology.joint_classes[body] not in (Revolute, Prismatic):
                raise self.refused(
                    f"a drive of joint {topology.joint_names[body]!r} cannot be written as URDF; save as TOML"
                )
            parts.append(_element("drive", joint=topology.joint_names[body], gear=gear))
        return parts

    def _common(self, body: int, attribute: str, values: Array, *, single: bool = False) -> dict[str, float]:
        """The common value of all components of a joint as an attribute, none if it is zero.

        Args:
            body: Index of the body that the joint moves.
            attribute: Name of the attribute.
            values: Values of all velocity components of the mechanism.
            single: Whether the joint must have one degree of freedom.
        """
        name, kind = self.topology.joint_names[body], self.topology.joint_classes[body]
        own = {float(x) for x in np.asarray(values)[self.topology.body_of_column == body]}
        if own == {0.0}:
            return {}
        if len(own) > 1 and attribute in ("damping", "friction"):
            raise self.refused(
                f"joint {name!r} has different values of {attribute} for its components, but URDF has one value for all; "
                "save as TOML"
            )
        if len(own) > 1 or (single and kind not in (Revolute, Prismatic)):
            raise self.refused(f"{attribute} of joint {name!r} cannot be written as URDF; save as TOML")
        return {attribute: own.pop()}

    def _constraint(self, constraint: Constraint) -> list[str]:
        match constraint:
            case Coupling():
                driven, driver = (self._joint_at(i) for i in (constraint.driven, constraint.driver))
                joints = {"joint": driven, "driver": driver}
                return _element("coupling", name=constraint.name, **joints, coefficients=constraint.coefficients)
            case Distance():
                links = self._links(constraint, {"xyz": constraint.point_a}, {"xyz": constraint.point_b})
                return _element("rod", *links, name=constraint.name, length=constraint.length)
            case LoopJoint():
                links = self._links(constraint, _placement(constraint.frame_a), _placement(constraint.frame_b))
                return _element("loop_joint", *links, name=constraint.name, type=constraint.kind)
        raise self.refused(f"a constraint of class {type(constraint).__name__} cannot be written as URDF; remove it")

    def _links(self, constraint: Distance | LoopJoint, *places: dict[str, Any]) -> list[list[str]]:
        """The two bodies that a constraint connects."""
        names = [self.topology.body_name(body) for body in (constraint.body_a, constraint.body_b)]
        return [
            _element(f"link{k}", link=name, **place)
            for k, (name, place) in enumerate(zip(names, places, strict=True), 1)
        ]


def _element(tag: str, *children: list[str], **attributes: Any) -> list[str]:
    """Lines of an element; its attributes are texts, or values that are written with all digits."""
    words = "".join(f" {key}={quoteattr(_text(value))}" for key, value in attributes.items())
    if not children:
        return [f"<{tag}{words}/>"]
    return [f"<{tag}{words}>", *(f"  {line}" for child in children for line in child), f"</{tag}>"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(repr(float(x)) for x in np.atleast_1d(np.asarray(value)))


def _limit(x: float) -> float:
    return x if math.isfinite(x) else math.copysign(_UNLIMITED, x)


def _placement(frame: RigidTransform) -> dict[str, Any]:
    return {"xyz": frame.translation, "rpy": rpy_from_quaternion(np.asarray(frame.quaternion, np.float64))}
