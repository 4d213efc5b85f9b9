"""Units of values along the angular and linear components of joints, and checks that parts of a system fit a model."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.model import Limits, Model
from jaxdyn.mechanism.quantity import POSITION, ComponentUnit, Quantity, invalid, quantities
from jaxdyn.mechanism.topology import Topology

_COORDINATE, _VELOCITY = (quantities(Limits)[name] for name in ("lower", "velocity"))
Mechanism = Model | Topology
AnyJoint = Joint | type[Joint]  # the class is sufficient if it declares which components are angular


def topology_of(mechanism: Mechanism) -> Topology:
    """Topology of a model, or the given topology itself."""
    return mechanism.topology if isinstance(mechanism, Model) else mechanism


def turning(joint: AnyJoint) -> tuple[bool, ...]:
    """For each velocity component of a joint: True if it rotates the child (rad/s), False if it only translates it (m/s)."""
    if joint.turns is not None:
        return joint.turns
    assert isinstance(joint, Joint)
    columns = np.asarray(joint.motion_subspace(jnp.asarray(joint.neutral(), float)))
    return tuple(np.any(columns[:3] != 0.0, axis=0).tolist())


def component_units(joint: AnyJoint, declared: Quantity) -> tuple[str, ...]:
    """Unit of a quantity for each component of a joint; components of quaternions have the unit "1".

    If only the class of a joint is given and it does not declare which components are angular, the units are unknown and returned
    as "".

    Args:
        joint: Joint or class of joints.
        declared: Declaration of a quantity that has one value per velocity component or per coordinate.
    """
    if joint.turns is None and isinstance(joint, type):
        return ("",) * (joint.nq if declared.along == "coordinate" else joint.nv)
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


def joint_of(mechanism: Mechanism, body: int) -> AnyJoint:
    """Joint of a body, or only the class of the joint if the class declares the angular components.

    Taking a joint from its stack is slow.
    """
    kind = topology_of(mechanism).joint_classes[body]
    return mechanism.joint(body) if kind.turns is None and isinstance(mechanism, Model) else kind


def units_along(mechanism: Mechanism, declared: Quantity) -> tuple[str, ...]:
    """Unit of a quantity for each velocity component or coordinate of a mechanism, in order."""
    joints = (joint_of(mechanism, body) for body in range(mechanism.nb))
    return tuple(unit for joint in joints for unit in component_units(joint, declared))


def component_names(mechanism: Mechanism, declared: Quantity) -> tuple[str, ...]:
    """Name of each velocity component or coordinate: the name of its joint, with an index if the joint has several."""
    return _names(mechanism, lambda kind: (kind.nq if declared.along == "coordinate" else kind.nv, ()))


def _names(mechanism: Mechanism, counted: Callable[[type[Joint]], tuple[int, tuple[str, ...]]]) -> tuple[str, ...]:
    """Names of components by the number of components of each kind of joint and their labels, if they have any."""
    topology, names = topology_of(mechanism), []
    for name, kind in zip(topology.joint_names, topology.joint_classes, strict=True):
        count, labels = counted(kind)
        endings = [f".{label}" for label in labels] or [f"[{k}]" for k in range(count)]
        names += [name] if count == 1 else [name + ending for ending in endings]
    return tuple(names)


def numbered(names: Sequence[Hashable]) -> list[int | None]:
    """Position of each name among its equals, from 0; None for a name that occurs once."""
    counts, positions = Counter(names), defaultdict(itertools.count)
    return [next(positions[name]) if counts[name] > 1 else None for name in names]


def coordinate_names(mechanism: Mechanism) -> tuple[str, ...]:
    """Name of each coordinate of a motion: the name of its joint, with a label or an index if the joint has several coordinates."""
    return _names(mechanism, lambda kind: (kind.nq, kind.coordinate_labels))


def coordinate_units(mechanism: Mechanism) -> tuple[str, ...]:
    """Unit of each coordinate: "rad", "m", or "1" for a component of a quaternion."""
    return units_along(mechanism, _COORDINATE)


def velocity_names(mechanism: Mechanism) -> tuple[str, ...]:
    """Name of each velocity component of a motion: the name of its joint, with a label or an index if the joint has several."""
    return _names(mechanism, lambda kind: (kind.nv, kind.velocity_labels))


def velocity_units(mechanism: Mechanism) -> tuple[str, ...]:
    """Unit of each velocity component: "rad/s" or "m/s"."""
    return units_along(mechanism, _VELOCITY)


def error_with_part(part: Any, model: Model, **sizes: int) -> str | None:
    """Error message with a remedy if a field that a part of a system declares with `quantity` does not fit the model, else None.

    Args:
        part: Part of a system.
        model: The mechanism.
        sizes: Lengths of further axes that annotations of the part name.
    """
    bodies = [name for name, declared in quantities(type(part)).items() if declared.refers == "body"]
    wrong = model.topology.error_with_bodies(*(getattr(part, name) for name in bodies))
    return wrong or invalid(part, {"nb": model.nb, "nq": model.nq, "nv": model.nv} | sizes)
