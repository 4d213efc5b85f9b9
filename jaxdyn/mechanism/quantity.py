"""Declarations of fields: the unit, the axis and the bounds of a value, stated once, in the class that owns it.

    class JointSpring(JointForce):
        '''Springs in the joints.

        Attributes:
            stiffness: Spring constant k.
            rest: Coordinates at which the springs are relaxed.
        '''

        stiffness: Float[Array, "nv"] = eqx.field(metadata=quantity(STIFFNESS, minimum=0.0))
        rest: Float[Array, "nq"] = eqx.field(metadata=quantity(POSITION, along="coordinate"))

Mechanism files, configs, their help, checks, and the labels of parameters and plots are derived from these declarations. The
meaning of a field is its line in the docstring of the class, see `meanings`.
"""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np


class ComponentUnit(NamedTuple):
    """Units of a quantity along a component of a joint, which either turns or shifts."""

    rotation: str
    translation: str


POSITION = ComponentUnit("rad", "m")
VELOCITY = ComponentUnit("rad/s", "m/s")
ACCELERATION = ComponentUnit("rad/s^2", "m/s^2")
EFFORT = ComponentUnit("N m", "N")
ARMATURE = ComponentUnit("kg m^2", "kg")
STIFFNESS = ComponentUnit("N m/rad", "N/m")
DAMPING = ComponentUnit("N m s/rad", "N s/m")
DRAG = ComponentUnit("N m s^2/rad^2", "N s^2/m^2")
LEVER = ComponentUnit("m", "1")

# What each of several values belongs to: a velocity component or a coordinate of a joint, an input or a measurement of a plant.
Along = Literal["velocity", "coordinate", "input", "measurement"]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What is declared of a field.

    Attributes:
        unit: SI unit; None for text and counts.
        along: The components of joints that the values belong to, if they do.
        minimum, maximum: Bounds of every value; None for none.
        exclusive: Whether the minimum itself is excluded.
        infinite: Whether infinite values are allowed.
        broadcast: Whether one value may stand for a tuple.
        missing: Value of the joints that a file does not name; the neutral coordinates if it is None.
        needed_by: Fields without which a file need not give this one for a joint.
        refers: "body" for the index of a body, which files give by its name.
        on: Field with the body on whose axes a point is given.
        alias: Earlier name of the key in configs, which is read too.
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
    alias: str | None = None

    def unit_of(self, turns: bool) -> str:
        """The unit along a component that turns, or one that shifts."""
        if isinstance(self.unit, ComponentUnit):
            return self.unit.rotation if turns else self.unit.translation
        return self.unit or ""

    @property
    def allowed(self) -> str | None:
        """The bounds in words, such as "positive" or "from 0 to 1"; None without bounds."""
        if self.minimum is None:
            return None if self.maximum is None else f"{self.maximum:g} or less"
        if self.maximum is not None:
            return f"{'above' if self.exclusive else 'from'} {self.minimum:g} to {self.maximum:g}"
        if self.minimum == 0.0:
            return "positive" if self.exclusive else "not negative"
        return f"above {self.minimum:g}" if self.exclusive else f"{self.minimum:g} or more"

    def admits(self, values: Any) -> bool:
        """Whether all values are within the bounds. NaN is not, if there are bounds."""
        array = np.asarray(values)
        above = self.minimum is None or np.all(array > self.minimum if self.exclusive else array >= self.minimum)
        return bool(above and (self.maximum is None or np.all(array <= self.maximum)))


_KEY = "quantity"


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
    alias: str | None = None,
) -> dict[str, Quantity]:
    """The metadata of a dataclass field that declare its unit, its axis and its bounds.

    Args:
        unit: SI unit, or a `ComponentUnit` for values along components of joints; None for text and counts.
        along: "velocity" for values per velocity component, as is usual with a `ComponentUnit`; "coordinate" for values per
            coordinate, "input" for values per input of a plant, "measurement" for values per measurement, whose unit they have if
            no other is given.
        minimum, maximum: Bounds of every value.
        positive: Excludes zero and all negative values.
        infinite: Allows infinite values.
        broadcast: In files, one value may stand for a tuple.
        missing: In files, the value of joints that are not named.
        needed_by: In files, a joint that is named in one of these fields must be named in this one.
        on: Field with the body on whose axes a point is given; in files, the point may be on a frame of a body.
        alias: Earlier name of the key in configs, which is read too.
    """
    least = 0.0 if positive else minimum
    if isinstance(unit, ComponentUnit) and along is None:
        along = "velocity"
    return metadata(
        Quantity(unit, along, least, maximum, positive, infinite, broadcast, missing, needed_by, on=on, alias=alias)
    )


def body_index() -> dict[str, Quantity]:
    """The metadata of a field with the index of a body, -1 for the ground; files give the name of the body."""
    return metadata(Quantity(refers="body"))


def metadata(declared: Quantity) -> dict[str, Quantity]:
    """The metadata of a dataclass field that is declared so."""
    return {_KEY: declared}


def quantity_of(field: dataclasses.Field) -> Quantity:
    """What is declared of a field; nothing is if it was made without `quantity`."""
    return field.metadata.get(_KEY, Quantity())


def quantities(cls: type) -> dict[str, Quantity]:
    """The fields of a class that are declared by `quantity`, by name."""
    return {field.name: quantity_of(field) for field in dataclasses.fields(cls) if _KEY in field.metadata}


def meanings(cls: type) -> dict[str, str]:
    """The meaning of each field of a class, from the section "Attributes:" of its docstring and of those of its bases.

    Raises:
        AttributeError: A class has no docstring of its own.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        section = re.search(r"^Attributes:\n((?: .*\n?|\n)+)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE)
        entries = re.findall(r"^ {4}([\w, ]+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE) if section else []
        for names, text in entries:
            found |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return found


def dimensions(field: dataclasses.Field) -> tuple[str, ...] | None:
    """The axes of an array that its annotation names, batch axes left out: ("nv",), ("3",), (); None for other fields."""
    annotations = (field.type, *get_args(field.type))
    text = next((getattr(x, "dim_str") for x in annotations if hasattr(x, "dim_str")), None)  # noqa: B009 (of jaxtyping's classes)
    return None if text is None else tuple(name for name in text.split() if not name.startswith(("*", "...")))


def invalid(part: Any, sizes: Mapping[str, int]) -> str | None:
    """Which declared value of a part has a wrong shape or is out of its bounds, and what to give instead; or None.

    Values that are traced are not compared with their bounds.

    Args:
        part: Object of a class whose fields are declared by `quantity`.
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
