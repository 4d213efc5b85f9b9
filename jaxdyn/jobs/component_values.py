"""Conversion of values of a config to arrays of a mechanism: coordinates, velocities, weights, bounds."""

from collections.abc import Sequence
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxdyn.dynamics.system import State, System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.units import ComponentValue
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.components import component_names, units_along
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import Quantity


def each(
    values: Sequence[float] | None, axis: str, system: System, place: str, otherwise: ArrayLike = 0.0
) -> np.ndarray:
    """Array with one value for each component along an axis; a single value applies to all components.

    Args:
        values: One value, or one value per component; None for those of `otherwise`.
        axis: Name of the axis: "nq", "nv", "nx", "nu" or "3".
        system: The mechanism.
        place: Key of the values, for messages.
        otherwise: One value, or one value per component.

    Raises:
        ConfigError: The number of values is neither 1 nor the number of components, or a value has the unit of another component.
    """
    model = system.model
    sizes = {
        "nq": (model.nq, "coordinate"),
        "nv": (model.nv, "velocity component"),
        "nx": (2 * model.nv, "coordinate and velocity component"),
        "nu": (system.nu, "control"),
        "3": (3, "axis"),
    }
    if values is None:
        return np.broadcast_to(np.asarray(otherwise, float), sizes[axis][:1])
    if axis in ("nq", "nv", "nu"):
        columns = range(sizes[axis][0]) if axis != "nu" or system.drives is None else system.drives.driven or ()
        _check_units(values, model, "coordinate" if axis == "nq" else "velocity", columns, place)
    return one_each(values, *sizes[axis], place) if axis in sizes else np.asarray(values, float)


def for_all(value: float, system: System, place: str) -> float:
    """A value of a config that applies to all velocity components.

    Args:
        value: The value.
        system: The mechanism.
        place: Key of the value, for messages.

    Raises:
        ConfigError: The value has a unit that does not fit all velocity components.
    """
    each((value,), "nv", system, place)
    return value


def _check_units(
    values: Sequence[float], model: Model, along: Literal["velocity", "coordinate"], columns: Sequence[int], place: str
) -> None:
    """Refuse values that a file gives with the unit of another kind of component.

    Args:
        values: One value for all components, or one value per component.
        model: The mechanism.
        along: Kind of the components.
        columns: Index of the component of each value.
        place: Key of the values, for messages.
    """
    for k, value in enumerate(values):
        if not isinstance(value, ComponentValue):
            continue
        declared = Quantity(value.units, along)
        names, units = component_names(model, declared), units_along(model, declared)
        for column in columns if len(values) == 1 else columns[k : k + 1]:
            if value.unit != units[column]:
                raise ConfigError(
                    f"{place}: the value for {names[column]!r} has the unit {value.unit}; give it in {units[column]}"
                    + (", or values without a unit" if len(values) == 1 < len(columns) else "")
                )


def one_each(values: Sequence[float], count: int, noun: str, place: str) -> np.ndarray:
    """Array with one value for each of `count` components; a single value applies to all of them.

    Args:
        values: One value, or one value per component.
        count: Number of components.
        noun: Word for a component, for messages.
        place: Key of the values, for messages.

    Raises:
        ConfigError: The number of values is neither 1 nor the number of components.
    """
    if len(values) not in (1, count):
        raise ConfigError(f"{place} has {len(values)} values; give 1, or {count}: one per {noun}")
    return np.broadcast_to(np.asarray(values, float), (count,))


def coordinates(values: Sequence[float] | None, model: Model, place: str) -> Float[Array, "nq"]:
    """Coordinates of a configuration with quaternions of norm 1; the neutral coordinates if `values` is None.

    Args:
        values: One value per coordinate, or None.
        model: The mechanism.
        place: Key of the values, for messages.

    Raises:
        ConfigError: The number of values differs from the number of coordinates, or a value has the unit of another coordinate.
    """
    if values is None:
        return configuration.neutral(model)
    if len(values) != model.nq:
        raise ConfigError(f"{place} has {len(values)} values; give {model.nq}: one per coordinate")
    _check_units(values, model, "coordinate", range(model.nq), place)
    return configuration.normalize(model, jnp.asarray(values, model.dtype))


def state(q: Sequence[float] | None, v: Sequence[float], system: System, place: str) -> State:
    """A state from coordinates and velocities of a config; the coordinates are neutral if `q` is None.

    Args:
        q: One value per coordinate, or None.
        v: One value, or one value per velocity component.
        system: The mechanism.
        place: Dotted name of the table with the keys q and v, for messages.

    Raises:
        ConfigError: The number of values does not fit the number of components.
    """
    model = system.model
    return State(coordinates(q, model, f"{place}q"), jnp.asarray(each(v, "nv", system, f"{place}v"), model.dtype))
