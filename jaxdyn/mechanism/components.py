"""The components of joints, which turn or shift: the units of values along them, and whether parts of a system fit a model."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.model import Limits, Model
from jaxdyn.mechanism.quantity import POSITION, ComponentUnit, Quantity, invalid, quantities

_COORDINATE = quantities(Limits)["lower"]
AnyJoint = Joint | type[Joint]  # the class is enough if it says which components turn


def turning(joint: AnyJoint) -> tuple[bool, ...]:
    """Whether each velocity component of a joint turns the child, rad/s, or only shifts it, m/s."""
    if joint.turns is not None:
        return joint.turns
    assert isinstance(joint, Joint)
    columns = np.asarray(joint.motion_subspace(jnp.asarray(joint.neutral(), float)))
    return tuple(np.any(columns[:3] != 0.0, axis=0).tolist())


def component_units(joint: AnyJoint, declared: Quantity) -> tuple[str, ...]:
    """Unit of a quantity for each component of a joint that it belongs to; components of quaternions have the unit "1".

    Args:
        declared: A quantity along velocity components or along coordinates.
    """
    turns = turning(joint)
    if declared.along != "coordinate":
        return tuple(declared.unit_of(x) for x in turns)
    if not isinstance(declared.unit, ComponentUnit):
        return (declared.unit_of(turns=True),) * joint.nq
    if joint.coordinate_units is not None:  # the quantity is a coordinate or a rate of one
        given = {"rad": declared.unit_of(turns=True), "m": declared.unit_of(turns=False)}
        return tuple(
            given.get(unit, unit if declared.unit == POSITION else f"{unit}/s") for unit in joint.coordinate_units
        )
    return tuple(declared.unit_of(x) for x in turns) if joint.velocity_is_rate else ("1",) * joint.nq


def joint_of(model: Model, body: int) -> AnyJoint:
    """The joint of a body, or its class if that says which components turn: to take a joint out of its stack is slow."""
    kind = model.topology.joint_classes[body]
    return model.joint(body) if kind.turns is None else kind


def units_along(model: Model, declared: Quantity) -> tuple[str, ...]:
    """Unit of a quantity for each velocity component or coordinate of a mechanism, in their order."""
    return tuple(unit for body in range(model.nb) for unit in component_units(joint_of(model, body), declared))


def component_names(model: Model, declared: Quantity) -> tuple[str, ...]:
    """Name of each velocity component or coordinate: its joint, with an index where the joint has several."""
    topology, names = model.topology, []
    for name, kind in zip(topology.joint_names, topology.joint_classes, strict=True):
        count = kind.nq if declared.along == "coordinate" else kind.nv
        names += [name] if count == 1 else [f"{name}[{k}]" for k in range(count)]
    return tuple(names)


def coordinate_names(model: Model) -> tuple[str, ...]:
    """Name of each coordinate: its joint, with an index where the joint has several."""
    return component_names(model, _COORDINATE)


def coordinate_units(model: Model) -> tuple[str, ...]:
    """Unit of each coordinate: "rad", "m", or "1" for a component of a quaternion."""
    return units_along(model, _COORDINATE)


def error_with_part(part: Any, model: Model) -> str | None:
    """Which declared field of a part of a system does not fit the model, and how to mend it; or None."""
    bodies = [name for name, declared in quantities(type(part)).items() if declared.refers == "body"]
    wrong = model.topology.error_with_bodies(*(getattr(part, name) for name in bodies))
    return wrong or invalid(part, {"nb": model.nb, "nq": model.nq, "nv": model.nv})
