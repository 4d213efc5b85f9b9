"""Declarations of the unit, the axis and the bounds of a field, stated once in the class that owns the field.

    class JointSpring(JointForce):
        '''Springs in the joints.

        Attributes:
            stiffness: Spring constant k.
            rest: Coordinates at which the springs are relaxed.
        '''

        stiffness: Float[Array, "nv"] = eqx.field(metadata=quantity(STIFFNESS, minimum=0.0))
        rest: Float[Array, "nq"] = eqx.field(metadata=quantity(POSITION, along="coordinate"))

Mechanism files, configs, their help texts, checks, and the labels of parameters and plots are derived from these declarations. The
meaning of a field is its entry in the docstring of the class, see `meanings`.
"""

import dataclasses
import inspect
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np

from jaxdyn.errors import UnknownName
from jaxdyn.mechanism.messages import constructed, described


class ComponentUnit(NamedTuple):
    """Units of a quantity along angular and along linear components of joints."""

    rotation: str
    translation: str


POSITION = ComponentUnit("rad", "m")
VELOCITY = ComponentUnit("rad/s", "m/s")
ACCELERATION = ComponentUnit("rad/s^2", "m/s^2")
EFFORT = ComponentUnit("N m", "N")
EFFORT_RATE = ComponentUnit("N m/s", "N/s")
ARMATURE = ComponentUnit("kg m^2", "kg")
STIFFNESS = ComponentUnit("N m/rad", "N/m")
DAMPING = ComponentUnit("N m s/rad", "N s/m")
DRAG = ComponentUnit("N m s^2/rad^2", "N s^2/m^2")
LEVER = ComponentUnit("m", "1")
GEAR_RATIO = ComponentUnit("1", "rad/m")

# Owner of each component of a vector: a velocity component or a coordinate of a joint, a rotor, which has the units of the velocity
# component that drives it, or an input or a measurement of a plant.
Along = Literal["velocity", "coordinate", "rotor", "input", "measurement"]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """Declaration of a field.

    Attributes:
        unit: SI unit; None for text and counts.
        along: Kind of components, each of which has one value; None if the values do not belong to components.
        minimum, maximum: Bounds of every value; None for no bound.
        exclusive: True if the minimum itself is excluded.
        infinite: True if infinite values are allowed.
        broadcast: True if files may give one value that applies to all entries of a tuple.
        missing: Value for joints that a file does not name; the neutral coordinates if None.
        needed_by: Names of other fields. Files must give this field only for joints for which they give one of the other fields.
        refers: "body" if the value is the index of a body; files then give the name of the body.
        on: Name of the field that contains the body on whose axes a point is given.
        axes: Name of the field that contains the body on whose axes vectors, one or the rows of a matrix, are given.
    """

    unit: str | ComponentUnit | None = None
    along: Along | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive: bool = False
    infinite: bool = False
    broadcast: bool = False
    missing: float | None = None
    needed_by: tuple[str, ...] = ()
    refers: Literal["body"] | None = None
    on: str | None = None
    axes: str | None = None

    def unit_of(self, turns: bool) -> str:
        """Unit along an angular component (`turns` is true) or along a linear component."""
        if isinstance(self.unit, ComponentUnit):
            return self.unit.rotation if turns else self.unit.translation
        return self.unit or ""

    @property
    def unit_text(self) -> str:
        """The SI unit, or the units of angular and linear components, such as "rad or m"; empty for a quantity without a unit."""
        if isinstance(self.unit, ComponentUnit):
            return " or ".join(dict.fromkeys(self.unit))
        return "" if self.unit in (None, "1") else self.unit

    @property
    def allowed(self) -> str | None:
        """Bounds in words, such as "positive" or "from 0 to 1"; None without bounds."""
        if self.minimum is None:
            return None if self.maximum is None else f"{self.maximum:.10g} or less"
        if self.maximum is not None:
            return f"{'above' if self.exclusive else 'from'} {self.minimum:.10g} to {self.maximum:.10g}"
        if self.minimum == 0.0:
            return "positive" if self.exclusive else "not negative"
        return f"above {self.minimum:.10g}" if self.exclusive else f"{self.minimum:.10g} or more"

    def admits(self, values: Any) -> bool:
        """True if all values are within the bounds. NaN is outside of any bounds."""
        array = np.asarray(values)
        above = self.minimum is None or np.all(array > self.minimum if self.exclusive else array >= self.minimum)
        return bool(above and (self.maximum is None or np.all(array <= self.maximum)))


_KEY = "quantity"
_OWNER = "stated by"


def quantity(
    unit: str | ComponentUnit | None = None,
    *,
    along: Along | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    positive: bool = False,
    infinite: bool = False,
    broadcast: bool = False,
    missing: float | None = None,
    needed_by: tuple[str, ...] = (),
    on: str | None = None,
    axes: str | None = None,
) -> dict[str, Quantity]:
    """Metadata that declare the unit, the axis and the bounds of a dataclass field.

    Args:
        unit: SI unit, or a `ComponentUnit` for values along components of joints; None for text and counts.
        along: "velocity" for values per velocity component (the default with a `ComponentUnit`), "coordinate" for values per
            coordinate, "rotor" for values per rotor, which have the unit of the component that drives the rotor, "input" for values
            per input of a plant, "measurement" for values per measurement, which have the unit of the measurement if no other
            unit is given.
        minimum, maximum: Bounds of every value.
        positive: Excludes zero and all negative values.
        infinite: Allows infinite values.
        broadcast: Allows files to give one value that applies to all entries of a tuple.
        missing: Value for joints that a file does not name.
        needed_by: Names of other fields. A joint for which a file gives one of the other fields must also have a value of this
            field.
        on: Name of the field that contains the body on whose axes a point is given; in files, the point may be on a frame of a
            body.
        axes: Name of the field that contains the body on whose axes vectors, one or the rows of a matrix, are given; in files, they
            may be on those of a frame.
    """
    least = 0.0 if positive else minimum
    if isinstance(unit, ComponentUnit) and along is None:
        along = "velocity"
    return metadata(
        Quantity(unit, along, least, maximum, positive, infinite, broadcast, missing, needed_by, on=on, axes=axes)
    )


def plain(value: Any) -> Any:
    """Converter of static fields, which are compared and hashed: scalars and arrays of NumPy and JAX become values and tuples of
    Python, also within tuples and lists.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(map(plain, value)) if type(value) in (tuple, list) else value


def body_index() -> dict[str, Quantity]:
    """Metadata of a field with the index of a body, -1 for the ground; files give the name of the body."""
    return metadata(Quantity(refers="body"))


def metadata(declared: Quantity) -> dict[str, Quantity]:
    """Metadata of a dataclass field with this declaration."""
    return {_KEY: declared}


POSITIVE = quantity(positive=True)
"""Metadata of a positive setting without a unit."""


def quantity_of(field: dataclasses.Field) -> Quantity:
    """Declaration of a field; empty if the field was defined without `quantity`."""
    return field.metadata.get(_KEY, Quantity())


def quantities(cls: type) -> dict[str, Quantity]:
    """Declarations of the fields of a class that are defined with `quantity`, by name."""
    return {field.name: quantity_of(field) for field in dataclasses.fields(cls) if _KEY in field.metadata}


def stated_by(owner: type) -> dict[str, type]:
    """Metadata of a field whose meaning is that of the field with the same name of another class, see `meanings`."""
    return {_OWNER: owner}


def first_sentence(cls: type) -> str:
    """The first paragraph of the docstring of a class on one line, without the section "Source:"."""
    return " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split()).split(" Source: ")[0]


def meanings(cls: type) -> dict[str, str]:
    """Meaning of each field of a class, from the sections "Attributes:" of the docstrings of the class and of its bases.

    If they do not explain a field, its meaning is that in the class of `stated_by`.
    """
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    owners = {field.name: field.metadata.get(_OWNER) for field in fields}
    found = {name: meanings(owner).get(name, "") for name, owner in owners.items() if owner is not None}
    for base in reversed(cls.__mro__):
        section = re.search(r"^Attributes:\n((?: .*\n?|\n)+)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE)
        entries = re.findall(r"^ {4}([\w, ]+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE) if section else []
        for names, text in entries:
            found |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return found


def dimensions(field: dataclasses.Field) -> tuple[str, ...] | None:
    """Axes in the annotation of an array field, without batch axes, such as ("nv",), ("3",) or (); None for other fields."""
    return axes_of(field.type)


def axes_of(annotation: Any) -> tuple[str, ...] | None:
    """Axes in the annotation of an array, or of the first array in a union, see `dimensions`; None for other annotations."""
    annotations = (annotation, *get_args(annotation))
    text = next((getattr(x, "dim_str") for x in annotations if hasattr(x, "dim_str")), None)  # noqa: B009 (of jaxtyping's classes)
    return None if text is None else tuple(name for name in text.split() if not name.startswith(("*", "...")))


def check_settings(part: Any) -> None:
    """Check the fields of an object by their annotations and declarations.

    A field whose annotation is a class of JAXdyn must hold an instance, and a static field with the annotation `Literal` or `bool`
    one of these values. Values that are declared with `quantity` must be within their bounds; None, and values that JAX traces, are
    left out.

    Raises:
        TypeError: A value has the wrong type; the message states the remedy.
        UnknownName: A word is not an allowed one.
        ValueError: A value is not finite, or is out of its bounds.
    """
    for field in dataclasses.fields(part):
        value, place = getattr(part, field.name), f"{field.name} of {type(part).__name__}"
        kinds = get_args(field.type) if get_origin(field.type) in (Union, types.UnionType) else (field.type,)
        _check_kind(place, value, kinds, bool(field.metadata.get("static")))
        if _KEY in field.metadata and value is not None:
            plain = field.metadata.get("static") or field.type is float  # a float may be an input of compiled code
            _check_values(place, value, quantity_of(field), kinds if plain else None)


def _check_kind(place: str, value: Any, kinds: tuple[Any, ...], static: bool) -> None:
    """Check that a value is an instance of a class, or one of the values, that an annotation names."""
    options = [option for kind in kinds if get_origin(kind) is Literal for option in get_args(kind)]
    classes = tuple(kind for kind in kinds if isinstance(kind, type))
    others = [kind for kind in classes if kind not in (bool, types.NoneType)]
    choices = static and bool(options or bool in classes)
    instances = all(dataclasses.is_dataclass(kind) and kind.__module__.startswith("jaxdyn.") for kind in others)
    known = all(isinstance(kind, type) or get_origin(kind) is Literal for kind in kinds)
    # Named tuples may be replaced by similar objects.
    fields = [getattr(kind, "_fields", ()) for kind in others]
    if any(names and all(hasattr(value, name) for name in names) for names in fields) and not isinstance(value, type):
        return
    if not known or not (choices or (others and instances)) or isinstance(value, classes):
        return
    if any(isinstance(value, type(option)) and value == option for option in options):
        return
    if isinstance(value, type) and issubclass(value, tuple(others)):
        raise TypeError(f"{place} is {described(value)}; give an instance, {constructed(value)}")
    allowed = [repr(option) for option in (*options, *((True, False) if bool in classes else ()))]
    allowed += [f"an instance of {kind.__name__}" for kind in others] + ["None"] * (types.NoneType in classes)
    listed = f"{', '.join(allowed[:-1])} or {allowed[-1]}" if len(allowed) > 1 else allowed[0]
    if isinstance(value, str) and options:
        raise UnknownName(place, value, (*options, *allowed[len(options) :]))
    raise TypeError(f"{place} is {repr(value) if isinstance(value, str) else described(value)}; give {listed}")


def _check_values(place: str, value: Any, declared: Quantity, kinds: tuple[Any, ...] | None) -> None:
    """Check the types and the bounds of values. The annotation of a static field is given, and None for other fields."""
    from jax import Array
    from jax.core import Tracer

    values = value if isinstance(value, tuple) else (value,)
    if kinds is None:  # entries of a tree, which may be traced or replaced by other objects
        numbers = [x for x in values if isinstance(x, int | float | np.number | np.ndarray | Array)]
        known = [x for x in numbers if not isinstance(x, Tracer)]
        if len(known) == len(values) and not all(map(declared.admits, known)):
            shown = value if isinstance(value, tuple) else np.asarray(value).tolist()
            raise ValueError(f"{place} is {shown}; give values that are {declared.allowed}")
        return
    if not all(isinstance(entry, int | float | np.number) and not isinstance(entry, bool) for entry in values):
        raise TypeError(f"{place} is {value!r}; give a number")
    counts = int in kinds and float not in kinds
    if counts and not isinstance(value, int | np.integer):
        raise TypeError(f"{place} is {value!r}; give an integer")
    if not declared.admits(values) or not (declared.infinite or np.all(np.isfinite(values))):
        wanted = "an integer" if counts else "a finite value"
        wanted += f" that is {declared.allowed}" if declared.allowed else ""
        raise ValueError(f"{place} is {value!r}; give {wanted}")


def invalid(part: Any, sizes: Mapping[str, int]) -> str | None:
    """Error message with a remedy if a declared field of `part` has a wrong shape or a value out of its bounds, else None.

    Values that JAX traces are not compared with their bounds.

    Args:
        part: Object of a class whose fields are declared with `quantity`.
        sizes: Lengths of the axes that annotations name, such as "nv".
    """
    from jax.core import Tracer

    for field in dataclasses.fields(part):
        declared, value, axes = quantity_of(field), getattr(part, field.name), dimensions(field)
        if _KEY not in field.metadata or axes is None or value is None:
            continue
        expected = tuple(int(name) if name.isdecimal() else sizes.get(name) for name in axes)
        shape = np.shape(value)
        last = shape[len(shape) - len(expected) :]
        if len(shape) < len(expected) or any(
            want not in (None, have) for want, have in zip(expected, last, strict=True)
        ):
            wanted = f"{expected[0]} values" if len(expected) == 1 else f"shape {expected}"
            return f"{field.name} has shape {shape}; give {wanted}"
        if not isinstance(value, Tracer) and not declared.admits(value):
            return f"{field.name} is {np.asarray(value).tolist()}; give values that are {declared.allowed}"
    return None
