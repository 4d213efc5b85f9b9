"""From the tables of a mechanism file to a system."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.constraints.kinds import Coupling, Distance, LoopJoint
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.forces import AppliedForce, Damper, Force, JointDrives, JointServo, JointSpring, Spring
from jaxdyn.dynamics.joint_limits import JointLimits
from jaxdyn.dynamics.system import System
from jaxdyn.io.config import Place, read_value
from jaxdyn.io.mechanism_entries import (
    AppliedForceEntry,
    CouplingEntry,
    DrivesEntry,
    JointLimitsEntry,
    JointServoEntry,
    JointSpringEntry,
    MarkerEntry,
    MechanismEntry,
    PairEntry,
)
from jaxdyn.io.mechanism_friction import FRICTION_TERMS, friction_force
from jaxdyn.io.mechanism_joints import (
    UNBOUNDED,
    component_numbers,
    component_units,
    joint_from_entry,
    joint_index,
    joint_numbers,
    numbers_per_joint,
)
from jaxdyn.io.reading import MOST_BODIES
from jaxdyn.mechanism import checks, configuration
from jaxdyn.mechanism.builder import MechanismBuilder
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import Quantity
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform


def system_from_tables(tables: dict[str, Any], file: Place) -> System:
    """The system that the tables of a mechanism file describe, in JAX's default precision.

    Args:
        file: the place of the whole file, for messages.

    Raises:
        ConfigError, MechanismError: see `load_mechanism`.
    """
    entry = read_value(MechanismEntry, tables, file)
    if len(entry.body) > MOST_BODIES:
        raise file.error(
            f"it has {len(entry.body)} bodies, more than the {MOST_BODIES} that are read; split the mechanism"
        )
    try:
        model = _model(entry, file)
    except MechanismError as error:
        raise MechanismError(f"{file.file}: {error}") from None
    forces: list[Force] = []
    for i, spring in enumerate(entry.spring):
        ends = _ends(model, spring, file.key("spring").item(i))
        forces.append(Spring(*ends, spring.stiffness, spring.free_length))
    for i, damper in enumerate(entry.damper):
        forces.append(Damper(*_ends(model, damper, file.key("damper").item(i)), damper.coefficient))
    for i, applied in enumerate(entry.applied_force):
        forces.append(_applied_force(model, applied, file.key("applied_force").item(i)))
    for key, term in FRICTION_TERMS.items():
        friction = getattr(entry, key)
        if friction is not None:
            forces.append(friction_force(model, term, friction, file.key(key)))
    if entry.joint_spring is not None:
        forces.append(_joint_spring(model, entry.joint_spring, file.key("joint_spring")))
    if entry.joint_limits is not None:
        forces.append(_joint_limits(model, entry.joint_limits, file.key("joint_limits")))
    if entry.joint_servo is not None:
        forces.append(_joint_servo(model, entry.joint_servo, file.key("joint_servo")))
    drives = None if entry.drives is None else _drives(model, entry.drives, file.key("drives"))
    return System(model, tuple(forces), drives, constraints=_constraints(model, entry, file))


def _model(entry: MechanismEntry, file: Place) -> Model:
    builder = MechanismBuilder(entry.name, entry.gravity)
    for i, body in enumerate(entry.body):
        place = file.key("body").item(i, body.name)
        joint = joint_from_entry(body.joint, place.key("joint"))
        builder.add_body(
            body.name,
            joint=joint,
            parent=body.parent,
            position=body.position,
            orientation=body.quaternion,
            mass=body.mass,
            com=body.com,
            inertia=_inertia(body.inertia, place.key("inertia")),
            joint_name=body.joint.name,
            **joint_numbers(body.joint, joint, place.key("joint")),
        )
    for frame in entry.frame:
        builder.add_frame(frame.name, body=frame.body, position=frame.position, orientation=frame.quaternion)
    for rotor in entry.rotor:
        builder.add_rotor(**dataclasses.asdict(rotor))
    return builder.build()


def _inertia(value: Any, place: Place) -> tuple:
    """Rows of a matrix, or a list whose length the builder checks."""
    if value is None:
        return (0.0, 0.0, 0.0)
    row = tuple[float, float, float]
    is_matrix = isinstance(value, list) and any(isinstance(entry, list) for entry in value)
    return read_value(tuple[row, row, row] if is_matrix else tuple[float, ...], value, place, Quantity("kg m^2"))


def _located(model: Model, name: str, point: tuple[float, float, float], place: Place) -> tuple[int, jax.Array]:
    try:
        return model.locate(name, jnp.asarray(point, float))
    except KeyError as error:
        raise place.error(f"{error.args[0]}; use one of them") from None


def _ends(model: Model, pair: PairEntry, place: Place) -> tuple[int, jax.Array, int, jax.Array]:
    a = _located(model, pair.body_a, pair.point_a, place.key("body_a"))
    return (*a, *_located(model, pair.body_b, pair.point_b, place.key("body_b")))


def _constraints(model: Model, entry: MechanismEntry, file: Place) -> tuple[Constraint, ...]:
    constraints: list[Constraint] = []
    for i, loop in enumerate(entry.loop):
        place = file.key("loop").item(i, loop.name)
        markers = *_marker(model, loop.a, place.key("a")), *_marker(model, loop.b, place.key("b"))
        constraints.append(LoopJoint(loop.name, loop.kind, *markers))
    for i, rod in enumerate(entry.rod):
        ends = _ends(model, rod, file.key("rod").item(i, rod.name))
        constraints.append(Distance(rod.name, *ends, jnp.asarray(rod.length, float)))
    for i, coupling in enumerate(entry.coupling):
        constraints.append(_coupling(model, coupling, file.key("coupling").item(i, coupling.name)))
    for constraint in constraints:
        problem = constraint.validate(model)
        if problem is not None:
            raise MechanismError(f"{file.file}: {type(constraint).__name__}: {problem}")
    return tuple(constraints)


def _marker(model: Model, entry: MarkerEntry, place: Place) -> tuple[int, RigidTransform]:
    checks.checked_placement(f"{place.file}: {place.entry}", entry.position, entry.quaternion)
    frame = RigidTransform(jnp.asarray(entry.quaternion, float), jnp.asarray(entry.position, float))
    try:
        return model.locate_frame(entry.body, frame)
    except KeyError as error:
        raise place.key("body").error(f"{error.args[0]}; use one of them") from None


def _coupling(model: Model, entry: CouplingEntry, place: Place) -> Coupling:
    driven, unit = _coordinate(model, entry.driven, entry.driven_component, "driven", place)
    driver, _ = _coordinate(model, entry.driver, entry.driver_component, "driver", place)
    units = (unit, *["1"] * (len(entry.coefficients) - 1))  # the first one is a coordinate, the others have mixed units
    coefficients = component_numbers(list(entry.coefficients), units, place.key("coefficients"))
    return Coupling(entry.name, driven, driver, coefficients)


def _coordinate(model: Model, joint: str, component: int | None, key: str, place: Place) -> tuple[int, str]:
    """Number and unit of a coordinate of a joint."""
    body = joint_index(model, joint, place.key(key))
    units = component_units(model.topology.joint_classes[body], "position")
    if component is None and len(units) > 1:
        raise place.key(f"{key}_component").error(
            f"missing; joint {joint!r} has {len(units)} coordinates: give the number of one, from 0"
        )
    if component is not None and component >= len(units):
        raise place.key(f"{key}_component").error(
            f"joint {joint!r} has no coordinate {component}; use 0 to {len(units) - 1}"
        )
    return int(model.topology.q_starts[body]) + (component or 0), units[component or 0]


def _applied_force(model: Model, entry: AppliedForceEntry, place: Place) -> AppliedForce:
    body, point = _located(model, entry.body, entry.point, place.key("body"))
    force, torque = jnp.asarray(entry.force, float), jnp.asarray(entry.torque, float)
    fixed = entry.axes == "body"
    if fixed and entry.body in model.topology.frame_names:
        turn = model.frames.quaternion[model.topology.frame_names.index(entry.body)]
        force, torque = quaternion.rotate(turn, force), quaternion.rotate(turn, torque)
    return AppliedForce(body, point, force, torque, fixed)


def _joint_spring(model: Model, entry: JointSpringEntry, place: Place) -> JointSpring:
    stiffness, rest = place.key("stiffness"), place.key("rest")
    return JointSpring(
        numbers_per_joint(model, entry.stiffness, "stiffness", np.zeros(model.nv), stiffness, Quantity(minimum=0.0)),
        numbers_per_joint(model, entry.rest, "position", np.asarray(configuration.neutral(model), np.float64), rest),
    )


def _joint_limits(model: Model, entry: JointLimitsEntry, place: Place) -> JointLimits:
    derived = JointLimits.of(model)
    quantities = {"stiffness": "stiffness", "damping": "viscous", "width": "displacement"}
    numbers = {
        key: numbers_per_joint(
            model,
            getattr(entry, key),
            quantity,
            np.asarray(getattr(derived, key), np.float64),
            place.key(key),
            **({"positive": True} if key == "width" else {"non_negative": True}),
        )
        for key, quantity in quantities.items()
    }
    return JointLimits(**numbers)


def _joint_servo(model: Model, entry: JointServoEntry, place: Place) -> JointServo:
    def numbers(key: str, quantity: str, default: np.ndarray, bounds: Quantity = UNBOUNDED) -> np.ndarray:
        return numbers_per_joint(model, getattr(entry, key), quantity, default, place.key(key), bounds)

    return JointServo(
        numbers("stiffness", "stiffness", np.zeros(model.nv), Quantity(minimum=0.0)),
        numbers("damping", "viscous", np.zeros(model.nv), Quantity(minimum=0.0)),
        numbers("target", "position", np.asarray(configuration.neutral(model), np.float64)),
        numbers("effort", "effort", np.full(model.nv, np.inf), Quantity(minimum=0.0)) if entry.effort else None,
    )


def _drives(model: Model, entry: DrivesEntry, place: Place) -> JointDrives:
    bodies = [joint_index(model, name, place.key("joints")) for name in entry.joints]
    counts = [model.topology.joint_classes[body].nv for body in bodies]
    if entry.components is None:
        for name, count in zip(entry.joints, counts, strict=True):
            if count > 1:
                raise place.key("components").error(
                    f"missing; joint {name!r} has {count} velocity components: give the driven one of every entry of joints, from 0"
                )
    components = (0,) * len(bodies) if entry.components is None else entry.components
    gear = (1.0,) * len(bodies) if entry.gear is None else entry.gear
    for key, values in (("components", components), ("gear", gear)):
        if len(values) != len(bodies):
            raise place.key(key).error(
                f"the list has {len(values)} entries; give {len(bodies)}, one per entry of joints"
            )
    for name, component, count in zip(entry.joints, components, counts, strict=True):
        if component >= count:
            raise place.key("components").error(f"joint {name!r} has no component {component}; use 0 to {count - 1}")
    columns = (int(model.topology.v_starts[body]) + k for body, k in zip(bodies, components, strict=True))
    return JointDrives(tuple(columns), gear)
