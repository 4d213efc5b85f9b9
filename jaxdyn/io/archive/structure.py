"""The structure of a system as plain JSON values; its arrays are stored separately, by name.

    an array              {"array": "float64", "shape": [7, 3]}; the array is stored under its path, such as "model.com"
    an object             {"class": "Spring", "body_a": 0, ...} with every field
    a tuple, list, dict   [...], {"list": [...]}, {"dict": {...}}
    a class               {"type": "Revolute"}
    a function            {"function": "height"}
    an infinite number    {"float": "inf"}

The conversion is generic: no dataclass of jaxdyn needs a separate function for it.
"""

import dataclasses
import inspect
import math
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.contact.material import ContactMaterial
from jaxdyn.dynamics.contact.surfaces import Surface
from jaxdyn.dynamics.drives import Drives
from jaxdyn.dynamics.forces import Force
from jaxdyn.dynamics.paths import Path
from jaxdyn.dynamics.sensors import Sensor
from jaxdyn.dynamics.system import State, System
from jaxdyn.errors import Error, suggestion
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mechanism.parts import part_classes
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.model import Limits, Model
from jaxdyn.mechanism.named_classes import named_subclasses, subclasses
from jaxdyn.mechanism.prescribed import PrescribedMotion
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.mechanism.topology import Topology
from jaxdyn.spatial.transform import RigidTransform

# Bases of classes that a file may name. Their concrete subclasses in jaxdyn need no further registration.
_BASES = (Force, Drives, Constraint, Joint, PrescribedMotion, Surface, Sensor)
# Classes of the other parts of a system.
_PARTS = (System, State, ContactMaterial, Path, Model, Topology, Limits, Rotors, RigidTransform)


class StructureError(Error, ValueError):
    """Error of a structure that cannot be written or read; the message contains the path of the part and the remedy."""


def known_classes(own: Iterable[Any] = ()) -> dict[str, Any]:
    """Classes that an archive may contain, by name: the concrete dataclasses of jaxdyn, the classes that mechanism files support,
    and further classes of the user.

    Args:
        own: User-defined classes, and user-defined functions that objects contain, such as the function of a sensor.

    Raises:
        ConfigError: A class of the user is not a dataclass, or has the name of another class.
    """
    of_jaxdyn = [cls for base in _BASES for cls in subclasses(base) if cls.__module__.startswith("jaxdyn.")]
    found: dict[str, Any] = {cls.__name__: cls for cls in (*_PARTS, *of_jaxdyn) if not _is_abstract(cls)}
    of_files = part_classes()
    for base in (Joint, PrescribedMotion, Surface):
        of_files |= named_subclasses(base)
    candidates: list[Any] = [item for item in of_files.values() if item.__name__ not in found]
    for item in (*candidates, *own):
        is_class = isinstance(item, type) and dataclasses.is_dataclass(item) and not _is_abstract(item)
        if not is_class and not inspect.isfunction(item):
            raise ConfigError(
                f"classes contains {item!r}, which is not a concrete dataclass or a function; "
                "give classes such as your subclass of jaxdyn.JointForce"
            )
        if found.setdefault(item.__name__, item) is not item:
            raise ConfigError(f"there are two classes called {item.__name__}; rename your own")
    return found


def _is_abstract(kind: type) -> bool:
    """Whether the class has abstract methods or abstract class variables, as equinox defines them."""
    return inspect.isabstract(kind) or bool(getattr(kind, "__abstractclassvars__", ()))


def structure_of(value: Any, path: str, classes: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Convert an object to JSON values; its arrays are put into `arrays` under their paths.

    Args:
        value: Object to convert.
        path: Dotted path of the value.
        classes: Classes by name, see `known_classes`.
        arrays: Arrays by path; this function adds to them.

    Raises:
        StructureError: A part cannot be stored in an archive.
    """

    def inner(part: Any, key: str) -> Any:
        return structure_of(part, f"{path}.{key}" if path else key, classes, arrays)

    def name_of(kind: Any) -> str:
        if classes.get(kind.__name__) is not kind:
            what = "class" if isinstance(kind, type) else "function"
            raise StructureError(
                f"{path}: {what} {kind.__name__} does not belong to jaxdyn; give classes=({kind.__name__},)"
            )
        return kind.__name__

    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, jax.Array | np.ndarray):
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise StructureError(f"{path}: an array of type {array.dtype} cannot be stored in an archive; convert it")
        arrays[path] = array
        return {"array": str(array.dtype), "shape": list(array.shape)}
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, tuple | list):
        parts = [inner(part, str(i)) for i, part in enumerate(value)]
        return parts if isinstance(value, tuple) else {"list": parts}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: inner(part, key) for key, part in value.items()}}
    if isinstance(value, type):
        return {"type": name_of(value)}
    if inspect.isfunction(value):
        return {"function": name_of(value)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: inner(getattr(value, field.name), field.name) for field in dataclasses.fields(value)}
        return {"class": name_of(type(value))} | fields
    raise StructureError(f"{path}: a {type(value).__name__} cannot be stored in an archive; leave it out")


def value_of(node: Any, path: str, classes: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Convert JSON values to the object that they describe; arrays are taken out of `arrays`.

    Args:
        node: JSON values.
        path: Dotted path of the value.
        classes: Classes by name, see `known_classes`.
        arrays: Arrays by path; this function removes the arrays that it uses.

    Raises:
        StructureError: The values were not written by `structure_of`, or an array is missing or has another type or shape.
    """

    def inner(part: Any, key: str) -> Any:
        return value_of(part, f"{path}.{key}" if path else key, classes, arrays)

    def class_of(name: Any) -> type:
        if not isinstance(name, str) or not isinstance(classes.get(name), type):
            raise StructureError(f"{path}: class {name!r} is unknown; if it is your own, pass it as classes=(...,)")
        return classes[name]

    if node is None or isinstance(node, bool | str | int | float):
        return node
    if isinstance(node, list):
        return tuple(inner(part, str(i)) for i, part in enumerate(node))
    match node:
        case {"class": name, **parts}:
            values = {key: inner(part, key) for key, part in parts.items()}
            if name == "Sensors" and inspect.isfunction(values.get("observe")):  # of the user, in older files
                own = _instance(class_of("StateFunction"), {"function": values["observe"]}, path)
                values["observe"] = (own,)
            return _instance(class_of(name), values, path)
        case {"array": dtype, "shape": shape, **rest} if not rest:
            return _array(arrays.pop(path, None), dtype, shape, path)
        case {"list": list(parts), **rest} if not rest:
            return [inner(part, str(i)) for i, part in enumerate(parts)]
        case {"dict": dict(parts), **rest} if not rest:
            return {key: inner(part, key) for key, part in parts.items()}
        case {"type": name, **rest} if not rest:
            return class_of(name)
        case {"function": name, **rest} if not rest and not isinstance(classes.get(name, object), type):
            return classes[name]
        case {"float": ("inf" | "-inf" | "nan") as number, **rest} if not rest:
            return float(number)
    raise StructureError(f"{path}: {', '.join(map(repr, node))} is not a part of an archive; write the file again")


def arrays_of(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by their paths, as in an archive; `with_arrays` puts them back."""
    return {_path_of(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def with_arrays(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """A tree of the same structure with other arrays, which are given by their paths.

    Raises:
        StructureError: The arrays are those of another tree.
    """
    paths, structure = jax.tree.flatten_with_path(tree)
    names = [_path_of(path) for path, _ in paths]
    if set(names) != set(arrays):
        raise StructureError("the arrays are those of another tree; write the file again")
    return jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in names])


def _path_of(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _array(array: np.ndarray | None, dtype: Any, shape: Any, path: str) -> jax.Array:
    if array is None:
        raise StructureError(f"{path}: this array is missing from the npz file; keep the two files together")
    if [str(array.dtype), list(array.shape)] != [dtype, shape]:
        raise StructureError(
            f"{path}: the npz file has {array.dtype} of shape {array.shape}, not {dtype} of shape {shape}; "
            "keep the two files together"
        )
    if array.dtype.newbyteorder("=") != array.dtype or array.dtype.kind not in "fiub":
        raise StructureError(f"{path}: it is not a plain numeric array; write the file again")
    if array.dtype.itemsize == 8 and not jax.config.read("jax_enable_x64"):
        raise StructureError(
            f"{path}: it is in double precision, which is disabled in JAX; use jax.config.update('jax_enable_x64', True)"
        )
    return jnp.asarray(array)


# Fields that were added after the first version of the format; older files do not contain them.
_ADDED = {
    ("System", "unused_colliders"),
    ("State", "z"),
    *(("Actuators", name) for name in ("stateful", "integrates", "time_constant", "state_range", "delayed", "delay")),
    ("ForceTorqueSensor", "constraint"),
    ("GroundContact", "axes"),
    ("Uncertainty", "undetermined"),
    ("Uncertainty", "held_out"),
}

# Fields of earlier versions, which are left out if they are empty.
_REMOVED = {("Processing", "markers")}


def _instance(kind: type, values: dict[str, Any], path: str) -> Any:
    """Create an object with these fields without calling its constructor.

    The checks of the constructor are not run, because they expect user input and refuse batches.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name, field in fields.items():
        if name not in values and (kind.__name__, name) in _ADDED:
            values[name] = field.default
        if name not in values:
            raise StructureError(f"{path}: field {name} of {kind.__name__} is missing; write the file again")
    values = {
        name: value for name, value in values.items() if value is not None or (kind.__name__, name) not in _REMOVED
    }
    for name, value in values.items():
        if name not in fields:
            raise StructureError(f"{path}: {kind.__name__} has no field {name!r}; {suggestion(name, fields)}")
        if not _fits(value, fields[name].type):
            shown = " ".join(repr(value).split())[:40]
            raise StructureError(f"{path}.{name}: {shown} does not fit this field; write the file again".lstrip("."))
    instance = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def _fits(value: Any, annotation: Any) -> bool:
    """Whether objects and static values match the type of a field; `archive.checks` checks the arrays."""
    if annotation in (int, bool, str):
        return type(value) is annotation
    if annotation is types.NoneType:
        return value is None
    if annotation is float:
        return type(value) in (int, float)
    if get_origin(annotation) is Literal:
        return value in get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(annotation))
    if get_origin(annotation) is tuple:
        return isinstance(value, tuple) and all(_fits(entry, get_args(annotation)[0]) for entry in value)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return isinstance(value, annotation)
    return True
