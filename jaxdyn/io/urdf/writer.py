"""Writer of systems as URDF, for the use of identified or generated mechanisms in other programs.

The root link is "ground". Parts that URDF does not support (gravity, armature, rotors, drives, loops, and all forces but viscous
and dry friction) are written to the <jaxdyn> element that `jaxdyn.io.urdf` describes; other readers ignore it.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxdyn.constraints.kinds import Coupling
from jaxdyn.dynamics.drives import Actuators, drives_of_joints
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.dynamics.forces.friction import HOLDING_SCALE, JointFriction
from jaxdyn.dynamics.system import System
from jaxdyn.io.files import write_content
from jaxdyn.io.mechanism.joints import joint_limits_table
from jaxdyn.io.mechanism.parts import part_table
from jaxdyn.io.mechanism.writer import drive_tables, rotor_tables
from jaxdyn.io.placements import rpy_from_quaternion
from jaxdyn.io.shapes.mesh_files import Color
from jaxdyn.io.shapes.visuals import Shape, Visual
from jaxdyn.io.tables import Place
from jaxdyn.io.toml import toml_value
from jaxdyn.io.urdf.elements import INERTIA_ENTRIES, JOINT_TYPES, SIZES, across
from jaxdyn.io.urdf.reader import system_from_robot
from jaxdyn.io.writing import Writer, element, stated_shapes, table_name
from jaxdyn.io.xml import parse_xml, unused
from jaxdyn.mechanism.builder import STANDARD_GRAVITY
from jaxdyn.mechanism.joints import Planar, Prismatic, Revolute
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.transform import RigidTransform


def save_urdf(system: System, path: Path | str, *, drop: Sequence[str] = (), visuals: Sequence[Visual] = ()) -> None:
    """Write a system as URDF; `load_urdf` reads it back with every value accurate to 1e-12.

    Bodies keep their names and become links; frames become links without mass on fixed joints. In the system that is read back,
    viscous and dry friction that URDF can express precedes all other forces. The algorithm `system.method` and the rate
    `system.stabilization` are not properties of the mechanism and are not written.

    Args:
        system: System to write.
        path: Path of the file.
        drop: Parts that are left out, because URDF lacks them: names of tables such as "actuator", or "gravity", "joint" (armature,
            and limits of joints with several coordinates), the name of a class of the user, or "jaxdyn" for all of them, which
            makes a plain URDF file. One `IgnoredContent` warning names them.
        visuals: Shapes of bodies, as `load_visuals` returns them, which become elements <visual>. Mesh files are not copied: the
            file names them by their paths from its folder. Other shapes, such as ellipsoids and meshes of an MJCF file with refpos
            or refquat, are left out with a warning.

    Raises:
        ConfigError: A name, a joint, or a force, constraint or drive of a class of the user cannot be written as URDF, or the model
            is a batch; the message is one line with the name and the remedy. In this case nothing is written.
        UnknownName: There is no such table to drop.
        MechanismError: The parameters are not physically valid, so that the file could not be loaded.
    """
    path = Path(path)
    writer = _Writer(system, path, drop, visuals)
    text = writer.text()
    system_from_robot(parse_xml(text.encode(), path))  # refuses values that readers would not accept
    write_content(path, text)
    writer.warn()


class _Writer(Writer):
    format = "URDF"

    def __init__(self, system: System, path: Path, drop: Sequence[str], visuals: Sequence[Visual]):
        super().__init__(system, path, drop, ("jaxdyn", "gravity", "joint", "rotor", "drives", "actuator"))
        self.drawn: dict[int, list[list[str]]] = {}
        for (body, position, turn, shape), colors in stated_shapes(visuals).items():
            self._draw(body, RigidTransform(jnp.asarray(turn), jnp.asarray(position)), shape, colors)
        frictions = (force for force in system.forces if isinstance(force, JointFriction))
        self.friction = next(filter(self._is_native, frictions), None)
        # Mimic joints are couplings of first degree that have the name of the driven joint. They are read before all other
        # constraints, in the order of the joints; other couplings of this form keep their position.
        self.mimics: dict[int, Coupling] = {}
        for constraint in system.constraints:
            if not isinstance(constraint, Coupling) or not self._is_next_mimic(constraint):
                break
            self.mimics[constraint.driven] = constraint

    def _is_next_mimic(self, coupling: Coupling) -> bool:
        is_mimic = len(coupling.coefficients) == 2 and coupling.name == self._joint_at(coupling.driven)
        return is_mimic and all(driven < coupling.driven for driven in self.mimics)

    def _is_native(self, force: JointFriction) -> bool:
        """Whether friction has one value for all components of each joint, which URDF can express; readers would leave out
        friction that is zero everywhere.
        """
        if not (np.any(force.viscous) or np.any(force.coulomb)):
            return False
        rows, owners = np.stack([force.viscous, force.coulomb, force.velocity_scale]), self.topology.body_of_column
        return all(np.all(own == own[:, :1]) for own in (rows[:, owners == body] for body in range(self.model.nb)))

    def _joint_at(self, coordinate: int) -> str:
        return self.topology.joint_names[self.topology.body_of_coordinate[coordinate]]

    def text(self) -> str:
        parts = [element("link", *self.drawn.get(GROUND, []), name="ground")]
        for body in range(self.model.nb):
            parts += [self._link(body), self._joint(body)]
        for index, (name, body) in enumerate(zip(self.topology.frame_names, self.topology.frame_bodies, strict=True)):
            ends = self._ends(body, name, self.model.frames.row(index))
            parts.append(element("link", name=name))
            parts.append(element("joint", *ends, name=unused(f"{name}_fixed", self.topology.joint_names), type="fixed"))
        extension = self._extension()
        parts += [element("jaxdyn", *extension)] if extension else []
        robot = element("robot", *parts, name=self.model.name)
        return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', *robot, ""])

    def _ends(self, parent: int, child: str, frame: RigidTransform) -> list[list[str]]:
        """The links that a joint connects, and its placement."""
        names = {"parent": self.topology.body_name(parent), "child": child}
        ends = [element(role, link=name) for role, name in names.items()]
        return [*ends, element("origin", **_placement(frame))]

    def _link(self, body: int) -> list[str]:
        model = self.model
        name = self.topology.body_names[body]
        drawn = self.drawn.get(body, [])
        if not model.mass[body]:
            return element("link", *drawn, name=name)
        inertia = element("inertia", **dict(zip(INERTIA_ENTRIES, model.inertia[body], strict=True)))
        center, mass = element("origin", xyz=model.com[body]), element("mass", value=model.mass[body])
        return element("link", element("inertial", center, mass, inertia), *drawn, name=name)

    def _draw(self, body: int, frame: RigidTransform, shape: Shape, colors: set[Color]) -> None:
        """Add an element <visual>; a mesh file with several colors states them itself."""
        kind, sizes, file = shape
        if file is not None:
            drawn = element("mesh", filename=self.name_of_file(file), scale=sizes)
        elif kind in SIZES and kind != "mesh":
            words = SIZES[kind]
            drawn = element(kind, **({words[0]: sizes} if len(words) == 1 else dict(zip(words, sizes, strict=True))))
        else:
            self.dropped.append(f"visual {kind}")
            return
        parts = [element("origin", **_placement(frame)), element("geometry", drawn)]
        own = self.drawn.setdefault(body, [])
        if len(colors) == 1:
            color = element("color", rgba=next(iter(colors)))
            parts.append(element("material", color, name=f"color {len(own)} of {self.topology.body_name(body)}"))
        own.append(element("visual", *parts))

    def _joint(self, body: int) -> list[str]:
        model, topology = self.model, self.topology
        name, kind = topology.joint_names[body], topology.joint_classes[body]
        types = [of_type for of_type, joint in JOINT_TYPES.items() if joint is kind]
        if not types:
            raise self.refused_joint(name, kind)
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
            parts.append(element("axis", xyz=joint.normal))
        if isinstance(joint, Revolute | Prismatic):
            parts.append(element("axis", xyz=joint.axis))
            numbers = {"lower": lower, "upper": upper} if type_ != "continuous" else {}
            numbers |= {"effort": float(effort[0]), "velocity": float(velocity[0])}
            parts.append(element("limit", **numbers))
        if self.friction is not None and columns.any():
            own = {"damping": self.friction.viscous[columns][0], "friction": self.friction.coulomb[columns][0]}
            parts += [element("dynamics", **own)] if any(own.values()) else []
        if q in self.mimics:
            coupling = self.mimics[q]
            offset, multiplier = coupling.coefficients
            driver = self._joint_at(coupling.driver)
            parts.append(element("mimic", joint=driver, multiplier=multiplier, offset=offset))
        return element("joint", *parts, name=name, type=type_)

    def _extension(self) -> list[list[str]]:
        """Children of <jaxdyn>; those that are dropped are noted."""
        system, model, file = self.system, self.model, Place(self.path)
        parts: list[list[str]] = []
        if not np.array_equal(model.gravity, STANDARD_GRAVITY) and self.stays("gravity"):
            parts.append(element("gravity", xyz=model.gravity))
        for body, name in enumerate(self.topology.joint_names):
            words = self._joint_words(body)
            if words and self.stays("joint"):
                parts.append(element("joint", name=name, **words))
        tables: dict[str, Any] = {}
        if model.rotors.names and self.stays("rotor"):
            tables["rotor"] = rotor_tables(model)
        kind = "actuator" if type(system.drives) is Actuators and system.drives.count else "drives"
        if not eqx.tree_equal(system.drives, drives_of_joints(model)) and self.stays(kind):
            tables |= drive_tables(system, file)
        parts += [self._table(name, table) for name, table in tables.items()]
        for part in (*system.forces, *system.constraints[len(self.mimics) :]):
            if part is not self.friction and self.stays(table_name(part)):
                name, table = part_table(model, part, file)
                parts.append(self._table(name, table if isinstance(part, JointForce) else [table]))
        return parts

    def _table(self, name: str, value: Any) -> list[str]:
        text = toml_value(value)
        if not text.isprintable():
            raise self.refused(
                f"a name in the table {name!r} has line breaks or other invisible characters; remove them"
            )
        return element("table", name=name, toml=text)

    def _joint_words(self, body: int) -> dict[str, Any]:
        """Attributes of a joint that URDF lacks: armature, limits of several coordinates, and scale of the friction."""
        kind, table = self.topology.joint_classes[body], joint_limits_table(self.model, body)
        table = {key: x for key, x in table.items() if key != "armature" or np.any(x)}
        if kind in (Revolute, Prismatic):
            words = {key: x for key, x in table.items() if key == "armature"}
        else:
            words = {"toml": toml_value(table)} if table else {}
        if self.friction is not None:
            own = self.friction.velocity_scale[self.topology.body_of_column == body]
            words |= {"velocity_scale": float(own[0])} if np.any(own != HOLDING_SCALE) else {}
        return words


def _placement(frame: RigidTransform) -> dict[str, Any]:
    return {"xyz": frame.translation, "rpy": rpy_from_quaternion(np.asarray(frame.quaternion, np.float64))}
