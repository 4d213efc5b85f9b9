"""Addresses of parameters: dotted paths to arrays of a pytree, names of their rows (bodies, joints or inputs), and their units."""

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from jaxdyn.compute.arrays import on_device
from jaxdyn.constraints.kinds import Coupling
from jaxdyn.dynamics.contact import Contact
from jaxdyn.dynamics.sensors import Sensor
from jaxdyn.dynamics.system import System
from jaxdyn.errors import Error, UnknownName, check_name
from jaxdyn.identify.measurement import Plant
from jaxdyn.mechanism.components import component_units, numbered, units_along
from jaxdyn.mechanism.messages import described
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.prescribed import PrescribedMotion
from jaxdyn.mechanism.quantity import Quantity, dimensions, quantities
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.spatial.transform import RigidTransform


class ParameterError(Error, ValueError):
    """Error of a parameter that is not valid or does not exist in a pytree; the message names the parameter and the remedy."""


INERTIA = ("mass", "com", "inertia")


def leaf_at(tree: PyTree, leaf: tuple[str, ...], name: str) -> Array:
    """The array at a path.

    Args:
        tree: Pytree that contains the array.
        leaf: Path to the array, as a tuple of its parts.
        name: Name of the parameter, for messages.

    Raises:
        UnknownName: The path does not exist; the message lists the existing names.
        ParameterError: There is no array of floating-point values at the path.
    """
    here: Any = tree
    for k, part in enumerate(leaf):
        before = ".".join(leaf[:k]) or "the subject"
        if isinstance(here, tuple | list):
            if not part.isdigit() or int(part) >= len(here):
                raise UnknownName("entry", part, range(len(here)), f"parameter {name!r}: {before}")
            here = here[int(part)]
            continue
        known = [field.name for field in dataclasses.fields(here)] if dataclasses.is_dataclass(here) else []
        check_name("field", part, known, where=f"parameter {name!r}: {before}")
        here = getattr(here, part)
    if not eqx.is_inexact_array(here):
        raise ParameterError(
            f"parameter {name!r}: {'.'.join(leaf)} is {described(here)}, not an array of floating-point values; name such an array"
        )
    return here


def entry_names(subject: PyTree, leaf: tuple[str, ...], length: int) -> list[str]:
    """Names of the rows of an array: the names of bodies, joints, frames, inputs or recordings if possible, otherwise indices."""
    if leaf[-2:] == ("sensors", "zeros"):
        return [f"recording {k}" for k in range(length)]
    path = _path(subject, leaf)
    indices = [str(k) for k in range(length)]
    plant, system, model = (_innermost(path, kind) for kind in (Plant, System, Model))
    if model is not None:
        return _names_in_model(model, leaf[-len(path) + 1 + path.index(model) :], indices)
    system = plant.system if system is None and plant is not None else system
    if system is None:
        return indices
    if isinstance(path[-2], Coupling):
        return [f"c{k}" for k in range(length)]
    if isinstance(path[-2], Sensor):
        return list(path[-2].row_names(system.model, _axis(path[-2], leaf[-1])) or indices)
    contact = _innermost(path, Contact)
    if contact is not None:
        return _names_in_contact(contact, system.model, leaf[-1], indices)
    drives, columns = system.drives, _column_names(system.model)
    of_drives = drives is not None and any(here is drives for here in path)
    if of_drives or (plant is not None and leaf[-2:-1] == ("inputs",)):
        if drives is None:
            return columns
        if drives.driven is not None:
            return [columns[column] for column in drives.driven]
        axis = _axis(path[-2], leaf[-1]) if of_drives else "nu"
        return list(drives.row_names(system.model, axis) or indices)
    return columns if length == system.model.nv else indices


def declared_at(subject: PyTree, leaf: tuple[str, ...]) -> Quantity:
    """The declaration of an array by `quantity` in the class that contains it; without one, an empty declaration."""
    owner = _path(subject, leaf)[-2]
    return quantities(type(owner)).get(leaf[-1], Quantity()) if dataclasses.is_dataclass(owner) else Quantity()


def units_of(subject: PyTree, leaf: tuple[str, ...]) -> Callable[[int, int], str]:
    """The unit of each value of an array, as the class that contains it declares by `quantity`; "" if nothing is declared.

    Returns:
        Function unit(row, part) that returns the unit; part is the index of a value within its row.
    """
    path = _path(subject, leaf)
    owner = path[-2]
    if isinstance(owner, RigidTransform):  # the classes of spatial algebra have no declarations
        return lambda row, part: {"translation": "m", "quaternion": "1"}[leaf[-1]]
    declared = declared_at(subject, leaf)
    plant, system, model = (_innermost(path, kind) for kind in (Plant, System, Model))
    model = system.model if model is None and system is not None else model
    if plant is not None and declared.along in ("input", "measurement"):
        # Rows belong to single recordings, or to a covariance, whose entries do not have a common unit.
        units = [] if leaf[-1] == "noise" and path[-1].ndim == 2 else plant.units_along(declared)
        return lambda row, part: "" if not units else units[part if path[-1].ndim == 2 else row]
    if isinstance(owner, PrescribedMotion) and model is not None:
        members = model.topology.groups[int(leaf[leaf.index("joints") + 1])][1]
        columns = path[-1].shape[-1]
        driven = [component_units(model.joint(body).released(), declared) for body in members.tolist()]
        return lambda row, part: driven[row][part % columns] if declared.along else declared.unit_of(turns=True)
    if isinstance(owner, Rotors) and declared.along == "rotor" and model is not None:
        driving = units_along(model, dataclasses.replace(declared, along="velocity"))
        return lambda row, part: driving[owner.columns[row]]
    if isinstance(owner, Coupling) and model is not None:
        coefficients = owner.coefficient_units(model)
        return lambda row, part: coefficients[row]
    if declared.along in ("coordinate", "velocity") and model is not None:
        along = units_along(model, declared)
        return lambda row, part: along[row]
    return lambda row, part: declared.unit_of(turns=True)


def _path(subject: PyTree, leaf: tuple[str, ...]) -> list[Any]:
    """The objects along the path to an existing array, from the subject to the array."""
    path = [subject]
    for part in leaf:
        path.append(path[-1][int(part)] if isinstance(path[-1], tuple | list) else getattr(path[-1], part))
    return path


def _axis(owner: Any, name: str) -> str:
    """First axis in the annotation of an array field; empty if it has none."""
    field = next(field for field in dataclasses.fields(owner) if field.name == name)
    return (dimensions(field) or ("",))[0]


def _innermost(path: list[Any], kind: type) -> Any:
    """The last object of a kind on a path; None if there is no such object."""
    return next((here for here in reversed(path) if isinstance(here, kind)), None)


def _names_in_contact(contact: Contact, model: Model, field: str, indices: list[str]) -> list[str]:
    """Names of the contacts, with an index for several contacts of the same bodies."""
    if field == "normal":
        return list("xyz")
    names = list(contact.names(model))
    if field not in ("radii", "centers", "radii_a", "centers_a", "radii_b", "centers_b") or len(names) != len(indices):
        return indices
    return [name if k is None else f"{name} {k}" for name, k in zip(names, numbered(names), strict=True)]


def _names_in_model(model: Model, leaf: tuple[str, ...], indices: list[str]) -> list[str]:
    topology = model.topology
    if leaf[0] in (*INERTIA, "placement"):
        return list(topology.body_names)
    if leaf[0] == "joints":
        return [topology.joint_names[body] for body in topology.groups[int(leaf[1])][1]]
    if leaf[0] == "frames":
        return list(topology.frame_names)
    if leaf[0] == "rotors":
        return list(model.rotors.names)
    if leaf[0] == "gravity":
        return list("xyz")
    return _column_names(model) if len(indices) == model.nv else indices


def _column_names(model: Model) -> list[str]:
    """Names of the velocity components: the names of the joints, with an index for joints with several components."""
    columns = model.topology.body_of_column.tolist()
    names = [model.topology.joint_names[body] for body in columns]
    return [name if k is None else f"{name} {k}" for name, k in zip(names, numbered(columns), strict=True)]


def rows_of(
    subject: PyTree, leaves: tuple[tuple[str, ...], ...], entries: Sequence[str | int] | None, name: str
) -> tuple[int, ...] | None:
    """Indices of the selected rows; None for all rows.

    Raises:
        UnknownName: A path or an entry does not exist.
        ParameterError: The arrays do not have the same rows.
    """
    if entries is None:
        for leaf in leaves:
            leaf_at(subject, leaf, name)
        return None
    shapes = {leaf_at(subject, leaf, name).shape[:1] for leaf in leaves}
    if len(shapes) != 1 or shapes == {()}:
        raise ParameterError(f"parameter {name!r}: its arrays do not have the same rows; omit entries")
    ((length,),) = shapes
    known = entry_names(subject, leaves[0], length)
    rows = []
    for entry in entries:
        if isinstance(entry, str) and entry in known:
            rows.append(known.index(entry))
        elif isinstance(entry, numbers.Integral) and 0 <= int(entry) < length:
            rows.append(int(entry))
        else:
            raise UnknownName("entry", entry, known, f"parameter {name!r}")
    return tuple(rows)


def gather(
    subject: PyTree, leaves: tuple[tuple[str, ...], ...], rows: tuple[int, ...] | None
) -> Float[Array, "values"]:
    """Collect the values of the selected rows of some arrays in one vector."""
    parts = [_path(subject, leaf)[-1] for leaf in leaves]
    is_traced = any(isinstance(part, Tracer) for part in parts)
    if not is_traced:
        parts = [np.asarray(part) for part in parts]  # the selection of rows by JAX would be compiled
    parts = [(part if rows is None else part[np.array(rows)]).ravel() for part in parts]
    return jnp.concatenate(parts) if is_traced else on_device(np.concatenate(parts))


def scatter(
    subject: PyTree, leaves: tuple[tuple[str, ...], ...], rows: tuple[int, ...] | None, values: Float[Array, "values"]
) -> PyTree:
    """Return the subject with new values in the selected rows of some arrays; the inverse of `gather`."""
    at = 0
    for leaf in leaves:
        old = _path(subject, leaf)[-1]
        chosen = old if rows is None else old[np.array(rows)]
        part = values[at : at + chosen.size].reshape(chosen.shape)
        at += chosen.size
        new = part if rows is None else old.astype(part.dtype).at[np.array(rows)].set(part)
        subject = eqx.tree_at(lambda tree, leaf=leaf: _path(tree, leaf)[-1], subject, new)
    return subject


def with_ones(subject: PyTree, leaves: tuple[tuple[str, ...], ...], rows: tuple[int, ...] | None) -> PyTree:
    """Return the subject with ones in the selected rows of some arrays."""
    for leaf in leaves:
        array = np.array(_path(subject, leaf)[-1])
        array[... if rows is None else np.array(rows)] = 1.0
        subject = eqx.tree_at(lambda tree, leaf=leaf: _path(tree, leaf)[-1], subject, on_device(array))
    return subject
