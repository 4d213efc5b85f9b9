"""Forces and constraints as tables of mechanism files, read and written according to the declarations of their classes.

    [[spring]]                                  [joint_friction]
    body_a = "ground"                           viscous = {elbow = 0.1}
    point_a = [0, 0, 1]                         coulomb = {elbow = "0.3 N m"}
    ...                                         velocity_scale = {elbow = 0.05}

Every class with the attribute `table_name` has a table, including user-defined classes. A force in the joints has one table, in
which every field is a table by joint names. Any other force or constraint has a list of tables with a key for every field. The
tables of applied forces, loop joints and couplings differ from the fields of their classes; functions of this module read and write
them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.constraints import kinds, nonholonomic
from jaxdyn.constraints.kinds import Coupling, LoopJoint
from jaxdyn.constraints.nonholonomic import KnifeEdge, Rolling, Touching
from jaxdyn.dynamics import contact, forces
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.contact import GroundContact, SphereContact, shape_axes
from jaxdyn.dynamics.contact.surfaces import HalfSpace, Surface
from jaxdyn.dynamics.forces import AppliedForce, Force, JointForce, friction, joint_limits, tendons
from jaxdyn.dynamics.forces.tendons import Tendon
from jaxdyn.dynamics.paths import joints_of_arms
from jaxdyn.errors import UnknownName
from jaxdyn.io.config import record
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mechanism.entries import (
    AppliedForceEntry,
    CouplingEntry,
    GroundContactEntry,
    KnifeEdgeEntry,
    LoopEntry,
    RollingEntry,
    SphereContactEntry,
    SphereEntry,
    TendonEntry,
)
from jaxdyn.io.mechanism.joints import (
    component_index,
    joint_index,
    table_by_joint,
    table_of_kind,
    values_by_joint,
)
from jaxdyn.io.placements import placement_table
from jaxdyn.io.tables import Place, check_keys, keys_of, made, read_keys, read_kind, read_value
from jaxdyn.mechanism import checks, configuration
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.named_classes import named_subclasses, subclasses
from jaxdyn.mechanism.quantity import Quantity, quantities, quantity_of
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

# The modules of jaxdyn that define forces and constraints; importing them registers the classes.
_MODULES = (forces, friction, joint_limits, tendons, contact, kinds, nonholonomic)

_ORIGIN = (0.0, 0.0, 0.0)

# Order of the parts of a system, on which paths such as "system.forces.0.viscous" depend; others follow as they are defined.
_ORDER = (
    *("spring", "damper", "applied_force", "gravity_compensation", "box_drag", "ellipsoid_drag", "tendon"),
    *("joint_friction", "joint_stribeck_friction", "joint_asymmetric_friction", "joint_load_friction"),
    *("joint_bearing_friction", "joint_quadratic_drag", "joint_spring", "joint_limits", "joint_servo"),
    *("ground_contact", "sphere_contact"),
    *("loop", "rod", "coupling", "touching", "rolling", "knife_edge"),
)


def part_classes() -> dict[str, Any]:
    """Classes of forces and constraints with tables in mechanism files, including user-defined ones, by the names of their tables.

    Raises:
        ConfigError: A user-defined class uses the table name of a class of jaxdyn.
    """
    found: dict[str, Any] = {}
    for cls in (*subclasses(Force), *subclasses(Constraint)):
        name = cls.__dict__.get("table_name")
        if name is None:
            continue
        if name in _ORDER and name in found:
            raise ConfigError(
                f"class {cls.__name__} has the table_name {name!r} of {found[name].__name__}; rename its table"
            )
        found[name] = cls
    return {name: found[name] for name in (*_ORDER, *(name for name in found if name not in _ORDER))}


def read_parts(model: Model, tables: dict[str, Any], file: Place) -> tuple[tuple[Force, ...], tuple[Constraint, ...]]:
    """Read forces and constraints from the tables of a file.

    Args:
        model: The mechanism.
        tables: Tables of the file by name.
        file: Location of the file, for messages.

    Raises:
        ConfigError: A key, body or joint is unknown, or a value is not valid.
        MechanismError: A value is not valid for this mechanism.
    """
    parts: list[Any] = []
    for key, cls in part_classes().items():
        if key not in tables:
            continue
        table, place = tables[key], file.key(key)
        if issubclass(cls, JointForce):
            parts.append(_joint_force(model, cls, table, place))
        elif isinstance(table, list):
            names = [entry.get("name") if isinstance(entry, dict) else None for entry in table]
            places = [place.item(i, name) for i, name in enumerate(names)]
            parts += [_part(model, cls, entry, where) for entry, where in zip(table, places, strict=True)]
        else:
            raise place.error(f"it is not a list of tables; write [[{key}]]")
    for part in parts:
        wrong = part.validate(model)
        if wrong is not None:
            raise MechanismError(f"{file.file}: {type(part).__name__}: {wrong}")
    return (
        tuple(part for part in parts if isinstance(part, Force)),
        tuple(part for part in parts if isinstance(part, Constraint)),
    )


def part_table(model: Model, part: Force | Constraint, file: Place) -> tuple[str, dict[str, Any]]:
    """Name and content of the table of a force or a constraint.

    Args:
        model: The mechanism.
        part: Force or constraint.
        file: Location of the file, for messages.

    Raises:
        ConfigError: The part cannot be written to a mechanism file.
    """
    cls = type(part)
    name = cls.__dict__.get("table_name")
    if name is None:
        what = "force" if isinstance(part, Force) else "constraint"
        raise file.error(
            f"a {what} of class {cls.__name__} cannot be written to a mechanism file; remove it and add it after loading"
        )
    write = None if cls not in _FORMS else _FORMS[cls].write
    if write is not None:
        return name, write(model, part, file)
    table: dict[str, Any] = {}
    for field in dataclasses.fields(part):
        declared, value = quantity_of(field), getattr(part, field.name)
        if declared.along is not None:
            table[field.name] = (
                {} if value is None else _named_only(field, table_by_joint(model, value, declared), file)
            )
        elif declared.refers == "body":
            table[field.name] = model.topology.body_name(value)
        elif isinstance(value, jax.Array):
            table[field.name] = record(value)
        elif isinstance(value, Surface):
            table[field.name] = _surface_table(value, file)
        elif value is not None:
            table[field.name] = value
    return name, table


def part_tables() -> dict[str, Any]:
    """For each table of forces and constraints, by its heading such as "[joint_spring]" or "[[rod]]", the class of its keys."""
    return {
        f"[{name}]" if issubclass(cls, JointForce) else f"[[{name}]]": _FORMS[cls].entry if cls in _FORMS else cls
        for name, cls in part_classes().items()
    }


def _named_only(field: dataclasses.Field, table: dict[str, Any], file: Place) -> dict[str, Any]:
    """Select the entries of joints with finite values.

    An infinite value means that an optional field does not apply to the joint.
    """
    if not quantity_of(field).infinite:
        return table
    named = {name: values for name, values in table.items() if np.any(np.isfinite(values))}
    for name, values in named.items():
        if not np.all(np.isfinite(values)):
            raise file.error(
                f"{field.name} of joint {name!r} is finite for some of its components only; give finite values for all of them or "
                "for no component"
            )
    return named


def _joint_force(model: Model, cls: Any, value: Any, place: Place) -> JointForce:
    """Read a force in the joints. Values that the file omits are those of `cls.of(model)` if the class has this function."""
    declared = quantities(cls)
    table = read_value(dict[str, dict[str, Any]], value, place)
    check_keys(table, declared, place)
    derived = cls.of(model) if hasattr(cls, "of") else None
    for name, quantity in declared.items():
        for needing in quantity.needed_by:
            for joint in table.get(needing, {}):
                if joint not in table.get(name, {}):
                    raise place.key(name).error(f"missing for {joint!r}, for which {needing} is given; add it")
    optional = {field.name for field in dataclasses.fields(cls) if field.default is None}
    values = {}
    for name, quantity in declared.items():
        if name in optional and not table.get(name):
            continue
        default = getattr(derived, name) if derived is not None else _missing(model, quantity)
        values[name] = values_by_joint(
            model, table.get(name, {}), quantity, np.asarray(default, float), place.key(name)
        )
    return made(cls, values, place)


def _missing(model: Model, declared: Quantity) -> Any:
    if declared.missing is None:
        return configuration.neutral(model)
    return np.full(model.nq if declared.along == "coordinate" else model.nv, declared.missing)


def _part(model: Model, cls: Any, value: Any, place: Place) -> Force | Constraint:
    if cls in _FORMS:
        form = _FORMS[cls]
        return form.read(model, read_value(form.entry, value, place), place)
    values, fields = read_keys(keys_of(cls), value, place), {field.name: field for field in dataclasses.fields(cls)}
    points = {quantity_of(field).on: name for name, field in fields.items()}
    for name, field in fields.items():
        if quantity_of(field).refers == "body":
            point = points.get(name, "")
            values[name], frame = _located(model, values[name], values.get(point, _ORIGIN), place.key(name))
            values |= {point: frame.translation} if point in values else {}
            vectors = [key for key in values if quantity_of(fields[key]).axes == name]
            turned = quaternion.to_matrix(frame.quaternion).T
            values |= {key: jnp.asarray(values[key], float) @ turned for key in vectors}
    return made(cls, values, place)


def _located(
    model: Model, name: str, position: Any, place: Place, orientation: Any = (1.0, 0.0, 0.0, 0.0)
) -> tuple[int, RigidTransform]:
    """Body that carries the body or frame `name`, and the placement in this body of a frame that is given relative to `name`."""
    frame = RigidTransform(jnp.asarray(orientation, float), jnp.asarray(position, float))
    try:
        return model.locate_frame(name, frame)
    except UnknownName as error:
        raise place.error(str(error)) from None


def _read_applied_force(model: Model, entry: AppliedForceEntry, place: Place) -> AppliedForce:
    body, frame = _located(model, entry.body, entry.point, place.key("body"))
    force, torque = jnp.asarray(entry.force, float), jnp.asarray(entry.torque, float)
    fixed = entry.axes == "body"
    if fixed:
        force, torque = quaternion.rotate(frame.quaternion, force), quaternion.rotate(frame.quaternion, torque)
    return AppliedForce(body, frame.translation, force, torque, fixed)


def _write_applied_force(model: Model, force: AppliedForce, _: Place) -> dict[str, Any]:
    axes = {"body": model.topology.body_name(force.body), "axes": "body" if force.body_fixed else "ground"}
    return axes | {key: record(getattr(force, key)) for key in ("point", "force", "torque")}


def _read_tendon(model: Model, entry: TendonEntry, place: Place) -> Tendon:
    try:
        return Tendon.of(model, **{field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)})
    except (UnknownName, ValueError) as error:
        raise place.error(str(error)) from None


def _write_tendon(model: Model, tendon: Tendon, _: Place) -> dict[str, Any]:
    path = tendon.path
    joints = joints_of_arms(model.topology, path.columns, np.asarray(path.arms).tolist())
    values = {key: x for key, x in record(tendon).items() if key != "path"}
    return {"joints": record(joints), "path": changed_fields(path.waypoints(model))} | values


def changed_fields(value: Any) -> Any:
    """TOML values of dataclasses, which may be in tuples, without the fields that have their defaults."""
    if isinstance(value, tuple):
        return list(map(changed_fields, value))
    if not dataclasses.is_dataclass(value):
        return record(value)
    fields = {field.name: (getattr(value, field.name), field.default) for field in dataclasses.fields(value)}
    return {name: changed_fields(x) for name, (x, default) in fields.items() if x not in (default, {})}


def _read_loop(model: Model, entry: LoopEntry, place: Place) -> LoopJoint:
    markers: list[Any] = []
    for marker, where in ((entry.a, place.key("a")), (entry.b, place.key("b"))):
        checks.checked_placement(f"{where.file}: {where.entry}", marker.position, marker.quaternion)
        markers += _located(model, marker.body, marker.position, where.key("body"), marker.quaternion)
    return LoopJoint(entry.name, entry.kind, *markers)


def _write_loop(model: Model, loop: LoopJoint, _: Place) -> dict[str, Any]:
    a = {"body": model.topology.body_name(loop.body_a)} | placement_table(loop.frame_a)
    b = {"body": model.topology.body_name(loop.body_b)} | placement_table(loop.frame_b)
    return {"name": loop.name, "kind": loop.kind, "a": a, "b": b}


def _read_coupling(model: Model, entry: CouplingEntry, place: Place) -> Coupling:
    driven = _coordinate(model, entry.driven, entry.driven_component, "driven", place)
    driver = _coordinate(model, entry.driver, entry.driver_component, "driver", place)
    units = Coupling(entry.name, driven, driver, np.zeros(len(entry.coefficients))).coefficient_units(model)
    coefficients = [
        read_value(float, x, place.key("coefficients"), Quantity(unit))
        for x, unit in zip(entry.coefficients, units, strict=True)
    ]
    return Coupling(entry.name, driven, driver, coefficients)


def _coordinate(model: Model, joint: str, component: int | None, key: str, place: Place) -> int:
    """Index of a coordinate of a joint."""
    body = joint_index(model, joint, place.key(key))
    where, several = place.key(f"{key}_component"), "coordinates: give the index of one, from 0"
    index = component_index(joint, model.topology.joint_classes[body].nq, component, where, "coordinate", several)
    return int(model.topology.q_starts[body]) + index


def _write_coupling(model: Model, coupling: Coupling, _: Place) -> dict[str, Any]:
    table: dict[str, Any] = {"name": coupling.name, "coefficients": record(coupling.coefficients)}
    for key, coordinate in {"driven": coupling.driven, "driver": coupling.driver}.items():
        body = model.topology.body_of_coordinate[coordinate]
        table |= {key: model.topology.joint_names[body]}
        table |= {f"{key}_component": coordinate - int(model.topology.q_starts[body])}
    return table


def _read_ground_contact(model: Model, entry: GroundContactEntry, place: Place) -> GroundContact:
    bodies, centers, radii = _spheres(model, entry.points, place.key("points"))
    axes = shape_axes(model, [(entry.body, entry.axes) for entry in entry.points])
    return GroundContact(bodies, centers, radii, entry.material(model), _surface(entry.surface, place), axes)


def _surface(given: dict[str, Any] | None, place: Place) -> Surface:
    if given is None:
        return HalfSpace()
    kinds = named_subclasses(Surface)
    kind, table = read_kind(kinds, given, place.key("surface"))
    return read_value(kinds[kind], table, place.key("surface"))


def _surface_table(surface: Surface, file: Place) -> dict[str, Any]:
    return table_of_kind(surface, Surface, "surface", file, remedy="replace it with a HeightGrid")


def _reader_of(cls: type[Touching] | type[Rolling]) -> Callable[[Model, RollingEntry, Place], Touching | Rolling]:
    def read(model: Model, entry: RollingEntry, place: Place) -> Touching | Rolling:
        (body,), centers, radii = _spheres(model, [entry], place)
        axes = shape_axes(model, [(entry.body, entry.axes)])
        return cls(
            entry.name,
            body,
            centers[0],
            radii[0],
            jnp.zeros((3, 3)) if axes is None else axes[0],
            _surface(entry.surface, place),
        )

    return read


def _read_knife_edge(model: Model, entry: KnifeEdgeEntry, place: Place) -> KnifeEdge:
    body, frame = _located(model, entry.body, entry.point, place.key("body"))
    direction = quaternion.rotate(frame.quaternion, jnp.asarray(entry.direction, float))
    return KnifeEdge(entry.name, body, frame.translation, direction)


def _write_ground_contact(model: Model, contact: GroundContact, file: Place) -> dict[str, Any]:
    points = _sphere_tables(model, contact.bodies, contact.centers, contact.radii)
    if contact.axes is not None:
        points = [point | {"axes": axes} for point, axes in zip(points, record(contact.axes), strict=True)]
    return {"points": points, "surface": _surface_table(contact.surface, file)} | record(contact.material)


def _read_sphere_contact(model: Model, entry: SphereContactEntry, place: Place) -> SphereContact:
    bodies_a, centers_a, radii_a = _spheres(model, [pair.a for pair in entry.pairs], place.key("pairs"))
    bodies_b, centers_b, radii_b = _spheres(model, [pair.b for pair in entry.pairs], place.key("pairs"))
    return SphereContact(bodies_a, centers_a, radii_a, bodies_b, centers_b, radii_b, entry.material(model))


def _write_sphere_contact(model: Model, contact: SphereContact, _: Place) -> dict[str, Any]:
    a = _sphere_tables(model, contact.bodies_a, contact.centers_a, contact.radii_a)
    b = _sphere_tables(model, contact.bodies_b, contact.centers_b, contact.radii_b)
    pairs = [{"a": of_a, "b": of_b} for of_a, of_b in zip(a, b, strict=True)]
    return {"pairs": pairs} | record(contact.material)


def _spheres(
    model: Model, entries: Sequence[SphereEntry], place: Place
) -> tuple[tuple[int, ...], jax.Array, jax.Array]:
    """Bodies, centers and radii of spheres."""
    located = [_located(model, entry.body, entry.center, place) for entry in entries]
    centers = np.array([np.asarray(frame.translation) for _, frame in located]).reshape(-1, 3)
    radii = jnp.asarray([entry.radius for entry in entries], float)
    return tuple(body for body, _ in located), jnp.asarray(centers, float), radii


def _sphere_tables(model: Model, bodies: Sequence[int], centers: jax.Array, radii: jax.Array) -> list[dict[str, Any]]:
    return [
        {"body": model.topology.body_name(body), "center": center, "radius": radius}
        for body, center, radius in zip(bodies, record(centers), record(radii), strict=True)
    ]


class _Form(NamedTuple):
    """A table whose keys differ from the fields of its class: the class of the keys, and the functions that read and write it.

    Without a function that writes the table, its keys are the fields of the class.
    """

    entry: type
    read: Callable[[Model, Any, Place], Any]
    write: Callable[[Model, Any, Place], dict[str, Any]] | None = None


_FORMS: dict[type, _Form] = {
    AppliedForce: _Form(AppliedForceEntry, _read_applied_force, _write_applied_force),
    Tendon: _Form(TendonEntry, _read_tendon, _write_tendon),
    LoopJoint: _Form(LoopEntry, _read_loop, _write_loop),
    Coupling: _Form(CouplingEntry, _read_coupling, _write_coupling),
    Touching: _Form(RollingEntry, _reader_of(Touching)),
    Rolling: _Form(RollingEntry, _reader_of(Rolling)),
    KnifeEdge: _Form(KnifeEdgeEntry, _read_knife_edge),
    GroundContact: _Form(GroundContactEntry, _read_ground_contact, _write_ground_contact),
    SphereContact: _Form(SphereContactEntry, _read_sphere_contact, _write_sphere_contact),
}
