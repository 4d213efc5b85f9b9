"""Checks that a system from an archive is consistent: its topology, and the shapes of all its arrays.

Physical validity is not checked, because an archived system may be a batch or an intermediate result of an optimization.
"""

import dataclasses
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.system import System
from jaxdyn.io.archive.structure import StructureError
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.quantity import dimensions, quantities
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.mechanism.topology import GROUND, Topology


def check_system(system: Any) -> None:
    """Check that the parts of a system have consistent shapes and structures.

    Raises:
        StructureError: A part is inconsistent with the others; the message contains its path.
    """
    if not isinstance(system, System):
        raise StructureError("it is not a System; write the file again")
    model, topology = system.model, system.model.topology
    _check_topology(topology)
    sizes = {"nb": topology.nb, "nq": topology.nq, "nv": topology.nv}
    groups = topology.groups
    if [type(joint) for joint in model.joints] != [kind for kind, _ in groups]:
        raise StructureError("model.joints: they do not match the topology; write the file again")
    for k, (_, bodies) in enumerate(groups):
        _check_shapes(model.joints[k], f"model.joints.{k}", sizes, (len(bodies),))
    _check_shapes(model.placement, "model.placement", sizes, (topology.nb,))
    _check_shapes(model.frames, "model.frames", sizes, (len(topology.frame_names),))
    _check_rotors(model.rotors, topology, sizes)
    check_fields(model, "model", sizes, (), leave_out=("topology", "joints", "placement", "frames", "rotors"))
    for field in dataclasses.fields(system):
        if field.name != "model":
            _check_shapes(getattr(system, field.name), field.name, sizes, ())
    try:
        _within_bounds(system).__check_init__()
    except MechanismError as error:
        raise StructureError(str(error)) from None


def _within_bounds(system: System) -> System:
    """The system with values moved into the declared bounds, because an identified system may have estimates outside of them."""

    def moved(part: Any) -> Any:
        for name, declared in quantities(type(part)).items():
            value = getattr(part, name)
            if isinstance(value, jax.Array) and not declared.admits(value):
                least = None if declared.minimum is None else declared.minimum + declared.exclusive
                inside = jnp.clip(value, least, declared.maximum)
                part = eqx.tree_at(lambda part, name=name: getattr(part, name), part, inside)
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(value, eqx.Module):
                part = eqx.tree_at(lambda part, name=field.name: getattr(part, name), part, moved(value))
        return part

    drives = None if system.drives is None else moved(system.drives)
    constraints = tuple(map(moved, system.constraints))
    return system.changed(forces=tuple(map(moved, system.forces)), drives=drives, constraints=constraints)


def _check_topology(topology: Topology) -> None:
    if not isinstance(topology.joint_classes, tuple):
        raise StructureError("model.topology.joint_classes: they are not a tuple; write the file again")
    count = len(topology.parents)
    lengths = [len(getattr(topology, name)) for name in ("body_names", "joint_names", "joint_classes", "joint_groups")]
    groups, first = topology.joint_groups, {}
    for group, kind in zip(groups, topology.joint_classes, strict=False):
        first.setdefault(group, kind)
    is_sound = (
        count > 0
        and set(lengths) == {count}
        and all(GROUND <= parent < i for i, parent in enumerate(topology.parents))
        and all(isinstance(kind, type) and issubclass(kind, Joint) for kind in topology.joint_classes)
        and list(first) == list(range(len(first)))
        and all(first[group] is kind for group, kind in zip(groups, topology.joint_classes, strict=True))
        and len(topology.frame_bodies) == len(topology.frame_names)
        and all(GROUND <= body < count for body in topology.frame_bodies)
    )
    if not is_sound:
        raise StructureError("model.topology: its tuples do not fit together; write the file again")


def _check_rotors(rotors: Rotors, topology: Topology, sizes: dict[str, int]) -> None:
    is_sound = (
        len(rotors.names) == len(rotors.carriers) == len(rotors.columns)
        and all(GROUND <= carrier < topology.nb for carrier in rotors.carriers)
        and all(0 <= column < topology.nv for column in rotors.columns)
        and all(topology.joint_classes[topology.body_of_column[column]].nv == 1 for column in rotors.columns)
    )
    if not is_sound:
        raise StructureError("model.rotors: their tuples do not match the topology; write the file again")
    _check_shapes(rotors, "model.rotors", sizes | {"nr": rotors.count}, ())


def _check_shapes(part: Any, path: str, sizes: dict[str, int], stacked: tuple[int, ...]) -> None:
    """Check that the shape of every array ends with the axes of its annotation, preceded by the axes of its stack."""
    if isinstance(part, tuple):
        for i, inner in enumerate(part):
            _check_shapes(inner, f"{path}.{i}", sizes, stacked)
    elif isinstance(part, eqx.Module):
        check_fields(part, path, sizes, stacked)


def check_fields(
    part: Any, path: str, sizes: dict[str, int], stacked: tuple[int, ...] = (), leave_out: tuple[str, ...] = ()
) -> None:
    """Check the shapes of the arrays of an object; an axis that `sizes` does not contain has one length in all its fields.

    Args:
        part: Object whose fields have annotations.
        path: Path of the object, for messages.
        sizes: Lengths of the axes that annotations name.
        stacked: Axes of the stack to which the object belongs.
        leave_out: Names of fields that are not checked.

    Raises:
        StructureError: An array has another shape; the message contains its path.
    """
    sizes = dict(sizes)
    for field in dataclasses.fields(part):
        if field.name in leave_out:
            continue
        value, where = getattr(part, field.name), f"{path}.{field.name}"
        names = dimensions(field)
        if names is None or (value is None and type(None) in get_args(field.type)):
            _check_shapes(value, where, sizes, stacked)
            continue
        expected = (*stacked, *(int(name) if name.isdecimal() else sizes.get(name) for name in names))
        shape = np.shape(value) if isinstance(value, jax.Array | float | int) else None
        last = shape[len(shape) - len(expected) :] if shape is not None and len(shape) >= len(expected) else None
        if last is None or any(want not in (None, have) for want, have in zip(expected, last, strict=True)):
            wanted = ", ".join("any" if want is None else str(want) for want in expected)
            raise StructureError(
                f"{where}: it has shape {shape}, which does not end with ({wanted}); write the file again"
            )
        found = zip(names, last[len(last) - len(names) :], strict=True)
        sizes |= {name: length for name, length in found if name != "_"}
