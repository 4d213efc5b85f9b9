"""Tables of a config that build objects of the library, and values of a config as arrays of a mechanism.

A table builds a solver, a cost, a constraint or a force, which its key `kind` selects.
A table is described by the class that it builds. Every concrete class with a class variable `kind` defines a value of the key
`kind`. The fields of the class are the further keys of the table, and `quantity` declares their units, bounds and defaults. Fields
that TOML cannot express directly, such as a state or a pose, are built from several keys by a dataclass of `Table.parts`.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, get_origin, get_type_hints

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxdyn.dynamics.system import State, System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.tables import Key, Place, keys_of, read_keys, read_kind
from jaxdyn.io.units import ComponentValue
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.components import component_names, units_along
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.named_classes import named_subclasses, subclasses
from jaxdyn.mechanism.quantity import Quantity, axes_of, first_sentence


@dataclasses.dataclass(frozen=True)
class FieldKey(Key):
    """A key of a table that sets a field of an object.

    Attributes:
        owner: Class with the field: the class that the table builds, or a dataclass of `Table.parts`.
        field: Name of the field.
    """

    owner: type
    field: str


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that builds an object of the library; each subclass states the base class of its objects as `base`.

    Attributes:
        kind: Value of the key `kind`.
        values: Values of the other keys, including defaults.
    """

    base: ClassVar[type]
    parts: ClassVar[Mapping[type, Any]] = {}
    """For a class, a dataclass of keys whose method `fields(system, place)` returns values of the fields in its tuple `makes`."""
    names: ClassVar[Mapping[tuple[type, str], str]] = {}
    """Keys whose name differs from the name of the field, by class and field."""

    kind: str
    values: dict[str, Any]

    @classmethod
    def kinds(cls) -> dict[str, tuple[type, dict[str, type]]]:
        """Class of the object for each kind, with the classes of its fields that the kind selects."""
        found: dict[str, tuple[type, dict[str, type]]] = {}
        for concrete in subclasses(cls.base):
            if "kind" in vars(concrete):
                found[vars(concrete)["kind"]] = (concrete, {})
                continue
            for field, rule in get_type_hints(concrete).items():
                if isinstance(rule, type) and not issubclass(rule, cls.base):
                    found |= {kind: (concrete, {field: inner}) for kind, inner in named_subclasses(rule).items()}
        return found

    @classmethod
    def summary(cls, kind: str) -> str:
        """Description of a kind from the first sentences of the docstrings of its classes."""
        concrete, inner = cls.kinds()[kind]
        return " ".join(first_sentence(owner) for owner in (*inner.values(), concrete))

    @classmethod
    def keys(cls, kind: str) -> dict[str, FieldKey]:
        """The keys of a kind except `kind`."""
        return dict(cls._keys(*cls.kinds()[kind]))

    @classmethod
    def read_toml(cls, value: Any, place: Place) -> Self:
        """Read a table from its parsed TOML value.

        Raises:
            ConfigError: A key is missing or unknown, or its value has a wrong type or violates a bound.
        """
        kind, given = read_kind(cls.kinds(), value, place)
        keys = cls.keys(kind)
        table = cls(kind, {name: key.default for name, key in keys.items()} | read_keys(keys, given, place))
        try:
            table.check()
        except ValueError as error:
            raise place.error(str(error)) from None
        return table

    def toml_values(self) -> dict[str, Any]:
        """The values of the table as they are written to a file."""
        return {"kind": self.kind, **self.values}

    def check(self) -> None:
        """Check that the keys are consistent with one another.

        Raises:
            ValueError: The keys are inconsistent; the message states the remedy.
        """
        for part in {key.owner for key in self.keys(self.kind).values()} & set(self.parts.values()):
            self._part(part)

    def build(self, system: System | None, place: str) -> Any:
        """Build the object of the library.

        Args:
            system: Mechanism to which states and weights belong; None for objects without states and weights.
            place: Place of the table in messages, such as "running 1:".

        Raises:
            ConfigError: A value does not fit the mechanism.
        """
        return self._object(*self.kinds()[self.kind], system, place)

    @classmethod
    def _keys(cls, concrete: type, inner: dict[str, type]) -> Iterator[tuple[str, FieldKey]]:
        """The keys for the fields of a class, including the keys of its part."""
        part, nested = cls.parts.get(concrete), cls._nested(concrete, inner)
        if part is not None:
            for name, key in keys_of(part).items():
                yield name, FieldKey(**vars(key), owner=part, field=name)
        for name, key in keys_of(concrete).items():
            if name in nested:
                yield from cls._keys(nested[name], {})
            elif part is None or name not in part.makes:
                own = FieldKey(**vars(key), owner=concrete, field=name)
                if get_origin(key.annotation) is tuple and isinstance(key.default, float | int):
                    own = dataclasses.replace(own, default=(float(key.default),))
                yield cls.names.get((concrete, name), name), own

    @classmethod
    def _nested(cls, concrete: type, inner: dict[str, type]) -> dict[str, type]:
        """Classes of the fields that a table builds from further keys: those that its kind selects, and those with a part."""
        return inner | {field: hint for field, hint in get_type_hints(concrete).items() if hint in cls.parts}

    def _part(self, part: Any) -> Any:
        """A dataclass of keys with the values of the table."""
        keys = self.keys(self.kind).items()
        return part(**{key.field: self.values[name] for name, key in keys if key.owner is part})

    def _object(self, concrete: type, inner: dict[str, type], system: System | None, place: str) -> Any:
        part, hints = self.parts.get(concrete), get_type_hints(concrete)
        values = {} if part is None else self._part(part).fields(system, place)
        for name, key in self.keys(self.kind).items():
            if key.owner is concrete:
                values[key.field] = _field_value(hints[key.field], self.values[name], system, f"{place} {name}")
        for field, nested in self._nested(concrete, inner).items():
            values[field] = self._object(nested, {}, system, place)
        return concrete(**values)


def _field_value(hint: Any, value: Any, system: System | None, place: str) -> Any:
    """Convert a value of TOML to the type of a field; values of an array field become an array of the annotated length."""
    axes = axes_of(hint)
    if axes is None or value is None or system is None:
        return value
    return jnp.asarray(each(value, " ".join(axes), system, place) if axes else value, system.model.dtype)


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
        "nx": (2 * model.nv + system.nz, "coordinate, velocity component and state of a drive"),
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
