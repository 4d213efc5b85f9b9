"""Declarations of fields: the unit, the axis and the bounds of a value, stated once, in the class that owns it.

    class JointSpring(JointForce):
        '''Springs in the joints.

        Attributes:
            stiffness: spring constant k.
            rest: coordinates at which the springs are relaxed.
        '''

        stiffness: Float[Array, "nv"] = quantity(STIFFNESS, along="velocity", minimum=0.0)
        rest: Float[Array, "nq"] = quantity(POSITION, along="coordinate")

Mechanism files, configs, their help, checks, and the labels of parameters and plots are derived from these declarations. The
meaning of a field is its line in the docstring of the class, see `meanings`.
"""

import dataclasses
import inspect
import re
from typing import Any, Literal, NamedTuple

import numpy as np


class ComponentUnit(NamedTuple):
    """Units of a quantity along a component of a joint, which either turns or shifts."""

    rotation: str
    translation: str


POSITION = ComponentUnit("rad", "m")
VELOCITY = ComponentUnit("rad/s", "m/s")
EFFORT = ComponentUnit("N m", "N")
ARMATURE = ComponentUnit("kg m^2", "kg")
STIFFNESS = ComponentUnit("N m/rad", "N/m")
DAMPING = ComponentUnit("N m s/rad", "N s/m")
DRAG = ComponentUnit("N m s^2/rad^2", "N s^2/m^2")
LEVER = ComponentUnit("m", "1")

# The components that a value along an axis of a joint has: one per velocity component, or one per coordinate.
Along = Literal["velocity", "coordinate"]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What is declared of a field.

    Attributes:
        unit: SI unit; None for text and counts.
        along: the components of joints that the values belong to, if they do.
        minimum, maximum: bounds of every value; None for none.
        exclusive: whether the minimum itself is excluded.
        infinite: whether infinite values are allowed.
        broadcast: whether one value may stand for a tuple.
    """

    unit: str | ComponentUnit | None = None
    along: Along | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive: bool = False
    infinite: bool = False
    broadcast: bool = False

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
    default: Any = dataclasses.MISSING,
    minimum: float | None = None,
    maximum: float | None = None,
    positive: bool = False,
    infinite: bool = False,
    broadcast: bool = False,
    static: bool = False,
) -> Any:
    """A field of an equinox module with its unit and its bounds; its value becomes a floating-point array unless it is static.

    Args:
        unit: SI unit, or a `ComponentUnit` for values along components of joints; None for text and counts.
        along: "velocity" for values per velocity component, "coordinate" for values per coordinate.
        default: value of the field if none is given; without one the field is required.
        minimum, maximum: bounds of every value.
        positive: excludes zero and all negative values.
        infinite: allows infinite values.
        broadcast: in files, one value may stand for a tuple.
        static: the value is part of the structure and not an array, as in `equinox.field`.
    """
    # Imported here, so that configs and their help, which declare their fields too, need no JAX.
    import equinox as eqx

    declared = Quantity(unit, along, 0.0 if positive else minimum, maximum, positive, infinite, broadcast)
    given = {} if default is dataclasses.MISSING else {"default": default}
    kind = {"static": True} if static else {"converter": _floating_or_none}
    return eqx.field(metadata=metadata(declared), **kind, **given)


def metadata(declared: Quantity) -> dict[str, Quantity]:
    """The metadata of a dataclass field that is declared so, for classes that are not equinox modules."""
    return {_KEY: declared}


def _floating_or_none(x: Any) -> Any:
    from jaxdyn.spatial.arrays import floating

    return None if x is None else floating(x)


def quantity_of(field: dataclasses.Field) -> Quantity:
    """What is declared of a field; nothing is if it was made without `quantity`."""
    return field.metadata.get(_KEY, Quantity())


def quantities(cls: type) -> dict[str, Quantity]:
    """The fields of a class that are declared by `quantity`, by name."""
    return {field.name: quantity_of(field) for field in dataclasses.fields(cls) if _KEY in field.metadata}


def meanings(cls: type) -> dict[str, str]:
    """The meaning of each field of a class, from the section "Attributes:" of its docstring and of those of its bases.

    Raises:
        AttributeError: a class has no docstring of its own.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        section = re.search(r"^Attributes:\n((?: .*\n?|\n)+)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE)
        entries = re.findall(r"^ {4}([\w, ]+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE) if section else []
        for names, text in entries:
            found |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return found
