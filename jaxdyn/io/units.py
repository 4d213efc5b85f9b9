"""Physical quantities as text: "2 s", "30 deg", "5 N m" are converted to SI units."""

import itertools
import math
import re

from jaxdyn.mechanism.quantity import ACCELERATION, ARMATURE, DAMPING, DRAG, EFFORT_RATE, STIFFNESS, ComponentUnit

# For each SI unit, the units that may be given instead of it, each with its value in the SI unit.
_SCALES: dict[str, dict[str, float]] = {
    "1": {"1": 1.0},
    "rad": {"rad": 1.0, "deg": math.pi / 180.0},
    "s": {"s": 1.0, "ms": 1e-3, "min": 60.0},
    "Hz": {"Hz": 1.0, "kHz": 1e3},
    "m": {"m": 1.0, "cm": 1e-2, "mm": 1e-3},
    "m/rad": {"m/rad": 1.0, "mm/rad": 1e-3, "mm/turn": 5e-4 / math.pi},
    "kg": {"kg": 1.0, "g": 1e-3},
    "N": {"N": 1.0, "kN": 1e3},
    "N m": {"N m": 1.0, "Nm": 1.0},
    "rad/s": {"rad/s": 1.0, "deg/s": math.pi / 180.0, "rpm": math.pi / 30.0},
    "m/s": {"m/s": 1.0, "mm/s": 1e-3},
    "rad/s^2": {"rad/s^2": 1.0, "deg/s^2": math.pi / 180.0},
    "B": {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
}
_OF_COMPONENTS = (ACCELERATION, EFFORT_RATE, ARMATURE, STIFFNESS, DAMPING, DRAG)
_SCALES |= {unit: {unit: 1.0} for unit in ("1/s", *itertools.chain(*_OF_COMPONENTS)) if unit not in _SCALES}
_IN_BRACKETS = re.compile(r"(?P<name>.*)[\[(]\s*(?P<unit>[^\[\]()]+?)\s*[\])]\s*", re.DOTALL)
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*", re.DOTALL)


class ComponentValue(float):
    """A value in SI units that a file gives as text with the unit of an angular or of a linear component, such as "30 deg".

    Which of the two units fits is known when the component is known.

    Attributes:
        unit: The SI unit.
        units: The SI units that were allowed.
    """

    unit: str
    units: ComponentUnit


def quantity(value: object, unit: str | ComponentUnit) -> float:
    """Convert a quantity to SI units.

    Args:
        value: Value in SI units, or text such as "30 deg".
        unit: SI unit of the result, such as "rad", or the units of angular and of linear components. Text must state a unit exactly
            if jaxdyn knows no other unit of the same quantity. For units of components, text becomes a `ComponentValue`.

    Raises:
        ValueError: The value is not numeric, is not finite, or has a unit of another quantity; the message names the allowed units.
    """
    units = (unit,) if isinstance(unit, str) else unit
    scales = {name: (scale, si) for si in units for name, scale in _SCALES.get(si, {si: 1.0}).items()}
    fitting = " or ".join(scales)
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None:
            raise ValueError(f"{value!r} is not a quantity; give a value with a unit, {fitting}")
        number, given = float(match[1]), " ".join(match[2].split())
        if given not in scales:
            problem = f"the unit {given!r} does not fit" if given else "a unit is missing"
            raise ValueError(f"{value!r}: {problem}; give a value in {fitting}")
        scale, si = scales[given]
        number *= scale
        if isinstance(unit, ComponentUnit):
            number = ComponentValue(number)
            number.unit, number.units = si, unit
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        raise ValueError(f"{value!r} is not a quantity; give a value or text with a unit, {fitting}")
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite; give a finite value" + (f" in {fitting}" if fitting != "1" else ""))
    return number


def scale_of_name(name: str, units: tuple[str, ...]) -> float:
    """Factor that converts values to SI units if their name ends with a unit in brackets, as in "elbow [deg]"; otherwise 1.

    Args:
        name: Name of the values. Text in brackets that is not a known unit is treated as a part of the name.
        units: SI units that the values can have, such as ("rad", "m").

    Raises:
        ValueError: The unit is that of another quantity; the message names the allowed units.
    """
    match = _IN_BRACKETS.fullmatch(name)
    if match is None:
        return 1.0
    fitting = {given: scale for unit in units for given, scale in _SCALES[unit].items()}
    if match["unit"] in fitting:
        return fitting[match["unit"]]
    if _is_unit(match["unit"]):
        raise ValueError(f"{name!r}: the unit {match['unit']!r} does not fit; give values in {' or '.join(fitting)}")
    return 1.0


def without_unit(name: str) -> str:
    """The name without a known unit in brackets at its end."""
    match = _IN_BRACKETS.fullmatch(name)
    return name if match is None or not _is_unit(match["unit"]) else match["name"].rstrip()


def _is_unit(text: str) -> bool:
    return any(text in scales for unit, scales in _SCALES.items() if unit != "1")
