"""Mechanism files: readable TOML files that describe a mechanism and the forces on it.

    name = "pendulum"
    source = "weighed on a kitchen scale"
    gravity = [0, 0, -9.81]

    [[body]]
    name = "rod"
    joint = {kind = "revolute", axis = [0, 1, 0], position_limits = ["-90 deg", "90 deg"]}
    mass = "350 g"
    com = [0, 0, -0.5]
    inertia = [0.08, 0.08, 0.001]

    [joint_friction]
    viscous = {rod_joint = 0.01}

Values are in SI units, or texts with another unit such as "350 g"; limits may be `inf`. The kinds of joints, with their geometry:

    revolute, prismatic, cylindrical (axis), screw (axis, pitch), universal (first_axis, second_axis),
    planar (normal, direction), spherical, free, fixed

A joint with prescribed motion has the additional key `motion`:

    {kind = "constant_rate", rate, start}, {kind = "sinusoid", amplitude, angular_frequency, phase, offset},
    {kind = "spline", values, interval, start}

Quantities of a joint are given as one value for all its components, or as a list in the order of its coordinates or velocity
components, see `jaxdyn.mechanism.joints`.

The other tables are [[frame]], [[rotor]], [[spring]], [[damper]], [[applied_force]], [[tendon]], [joint_friction] and the other
terms of friction of `jaxdyn.dynamics.forces.friction`, [joint_spring], [joint_servo], [joint_limits], [[ground_contact]],
[[sphere_contact]], [drives], [[actuator]] for servos and motors with ranges, and for closed loops [[loop]], [[rod]] and
[[coupling]]; configs/README.md lists the keys of all tables. An empty table [joint_limits] adds stops at the position limits of
all joints, with a stiffness that is derived from masses and effort limits. Points may be given on any body or frame, by name:

    [[loop]]
    name = "crosshead"
    kind = "revolute" # about z of both markers
    a = {body = "rod", position = [0, 0, -0.5], rpy = ["90 deg", 0, 0]}
    b = {body = "slide", rpy = ["90 deg", 0, 0]}
"""

from pathlib import Path

from jaxdyn.dynamics.system import System
from jaxdyn.io.files import write_content
from jaxdyn.io.mechanism.reader import system_from_tables
from jaxdyn.io.mechanism.writer import tables_of_system
from jaxdyn.io.reading import calculable
from jaxdyn.io.tables import Place
from jaxdyn.io.toml import read_toml, toml_text


def load_mechanism(path: Path | str) -> System:
    """Read the system that a mechanism file describes, in JAX's default precision.

    Forces are ordered as springs, dampers, applied forces, terms of friction, joint springs, joint limits, servos, contacts;
    constraints as loops, rods, couplings.

    Raises:
        ConfigError: The file or one of its entries cannot be used; the message is one line with the file, the entry and the remedy.
        MechanismError: A value is not valid for `MechanismBuilder`; the message is one line with the file, the body and the remedy.
    """
    path = Path(path)
    tables = read_toml(path)
    with calculable(path):
        return system_from_tables(tables, Place(path))


def save_mechanism(system: System, path: Path | str, *, source: str = "written by jaxdyn.io.save_system") -> None:
    """Write a system as a mechanism file; `load_mechanism` restores every array of the system.

    The forces and the constraints are ordered by their classes, as in `jaxdyn convert --help`; those of one class keep their order.
    A path such as `system.forces.1` may therefore mean another force after loading.
    Bodies that were merged with their parents are written as frames. Quaternions are restored with norm 1 and a non-negative scalar
    part, like those of `MechanismBuilder`. The algorithm `system.method` and the rate `system.stabilization` are not properties of
    the mechanism and are not written. If an error is raised, nothing is written. `jaxdyn.io.save_archive` writes any system, bit by
    bit.

    Args:
        system: System to write.
        path: Path of the file.
        source: Origin of the values, for example a data sheet.

    Raises:
        ConfigError: The system is a batch, or has a joint, a force or a constraint that the file format cannot express.
        MechanismError: The parameters are not physically valid, so that the file could not be loaded.
    """
    path = Path(path)
    tables = tables_of_system(system, source, Place(path))
    system_from_tables(tables, Place(path))
    write_content(path, toml_text(tables))
