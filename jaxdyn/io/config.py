"""Configs: TOML files that are read strictly into frozen dataclasses, and written back with all defaults.

A dataclass of the caller describes a config completely: its fields are the keys, nested dataclasses are tables, fields with
defaults are optional keys, and `setting` declares units and bounds.

    @dataclasses.dataclass(frozen=True)
    class Rollouts:
        mechanism: Path
        duration: float = setting(unit="s", positive=True)
        batch: int = setting(1000, positive=True)

    config = read_config("rollouts.toml", Rollouts, overrides=["duration=500 ms"])
"""

import dataclasses
import inspect
import math
import reprlib
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.toml import read_toml, toml_text
from jaxdyn.io.units import quantity
from jaxdyn.mechanism.messages import closest
from jaxdyn.mechanism.quantity import Quantity, quantity_of
from jaxdyn.mechanism.quantity import quantity as declare

T = TypeVar("T")

_SMOKE = "smoke"
_MOST_NAMES = 20  # in one message
_NO_RULES = Quantity()
_LARGEST_SEED = 2.0**32 - 1  # of random keys of JAX, also in single precision
_LARGEST = 1e100  # largest magnitude, and inverse of the smallest positive value; products of three values are finite


def setting(
    default: Any = dataclasses.MISSING,
    *,
    unit: str | None = None,
    positive: bool = False,
    non_negative: bool = False,
    broadcast: bool = False,
    infinite: bool = False,
    alias: str | None = None,
) -> Any:
    """Declare a field of a config with rules for its value.

    Args:
        default: Value if the key is absent; without a default the key is required.
        unit: SI unit of a float or of a tuple of floats. Text such as "30 deg" is converted to this unit.
        positive, non_negative: Whether the value, or every entry of a tuple, must be positive, or must not be negative.
        broadcast: If true, a single value may be given for a tuple. This value is read as a tuple of one entry, which the caller
            broadcasts.
        infinite: If true, inf, -inf and values of any magnitude are allowed.
        alias: Former name of the key, which is also accepted.
    """
    least = 0.0 if non_negative else None
    rules = declare(unit, minimum=least, positive=positive, infinite=infinite, broadcast=broadcast, alias=alias)
    return dataclasses.field(default=default, metadata=rules)


def seed_setting() -> Any:
    """Declare a field of a config with the seed of random values, 0 by default."""
    return dataclasses.field(default=0, metadata=declare(minimum=0.0, maximum=_LARGEST_SEED))


def default_of(function: Callable[..., Any], name: str) -> Any:
    """The default of an argument of a function, for a setting that becomes this argument."""
    return inspect.signature(function).parameters[name].default


def setting_of(owner: type, name: str, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field of a config with the unit, the bounds and the default that another class declares for its field.

    Args:
        owner: Class with the field.
        name: Name of the field.
        default: Default instead of that of the other class.
    """
    field = next(field for field in dataclasses.fields(owner) if field.name == name)
    default = field.default if default is dataclasses.MISSING else default
    return dataclasses.field(default=default, metadata=field.metadata)


@dataclasses.dataclass(frozen=True)
class Place:
    """Location of a value in a file.

    Attributes:
        file: File that contains the value; used in messages and as the base of relative paths.
        entry: Dotted key, or 'body "upper":' for an entry of an array of tables, followed by the key in that entry.
    """

    file: Path
    entry: str = ""

    def key(self, name: str) -> "Place":
        """Place of a key of the table at this place."""
        name = name if name.isprintable() else repr(name)
        separator = " " if self.entry.endswith(":") else "."
        return Place(self.file, f"{self.entry}{separator}{name}" if self.entry else name)

    def item(self, index: int, name: Any = None) -> "Place":
        """Place of an entry of the array of tables at this place. The entry is named, or else numbered from 1."""
        named = isinstance(name, str) and name.isprintable()
        return Place(self.file, f'{self.entry} "{name}":' if named else f"{self.entry} {index + 1}:")

    def error(self, problem: str) -> ConfigError:
        """Error whose message begins with this place."""
        entry = self.entry.removesuffix(":")
        return ConfigError(f"{self.file}: {entry}: {problem}" if entry else f"{self.file}: {problem}")


def read_config(path: Path | str, cls: type[T], overrides: Sequence[str] = (), smoke: bool = False) -> T:
    """Read a config from a TOML file.

    Relative paths, including those in overrides, are relative to the file. The table [smoke] contains replacement values for a test
    run that takes seconds; they apply if `smoke` is true, but are always checked. Overrides are applied last.

    Args:
        path: TOML file.
        cls: Frozen dataclass that describes the config.
        overrides: Texts "dotted.key=value" with a TOML value; a value that is not valid TOML is taken as text. An index in a key,
            from 0, selects an entry of a list: "study.0.train=[...]".
        smoke: If true, the values of the table [smoke] replace the values of the same keys in the rest of the file.

    Raises:
        ConfigError: The config cannot be used; the message is one line with the file, the key and the remedy.
    """
    path = Path(path)
    return config_of(read_toml(path), path, cls, overrides, smoke)


def config_of(
    values: dict[str, Any], path: Path, cls: type[T], overrides: Sequence[str] = (), smoke: bool = False
) -> T:
    """Make a config from tables; the other arguments and the errors are those of `read_config`.

    Args:
        values: Tables of the config; this function modifies them.
        path: File of the values, for messages and relative paths.
    """
    reduced = values.pop(_SMOKE, {})
    if not isinstance(reduced, dict):
        raise Place(path, _SMOKE).error("it is not a table; write [smoke] with the values to replace")
    changes = [_override(text) for text in overrides]
    config = read_value(cls, _changed(path, values, changes), Place(path))
    small = read_value(cls, _changed(path, _merged(values, reduced), changes), Place(path, "[smoke]:"))
    return small if smoke else config


def changed(table: T, values: dict[str, Any], place: Place) -> T:
    """A table of a config in which some values are replaced.

    Args:
        table: Table, an instance of a dataclass.
        values: TOML values by key.
        place: Location of the values, for messages.

    Raises:
        ConfigError: A key is unknown, or its value has a wrong type or violates a bound.
    """
    cls: Any = type(table)
    aliases = {quantity_of(field).alias: field.name for field in dataclasses.fields(cls)}
    return read_value(cls, plain_values(table) | {aliases.get(key, key): value for key, value in values.items()}, place)


def resolved_toml(config: Any) -> str:
    """TOML text of a config with all default values, values in SI units and absolute paths."""
    return toml_text(plain_values(config))


def _resolved(path: Path) -> Path:
    """The path with all links resolved. Since Python 3.13, a cycle of links is an error only if the path must exist."""
    try:
        return path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return path.resolve()


def read_value(annotation: Any, value: Any, place: Place, rules: Quantity = _NO_RULES) -> Any:
    """Convert a TOML value to the type of a dataclass field.

    Args:
        annotation: Type of the field: int, float, str, bool, Path, Literal, tuple, dict[str, X], X | None, a dataclass, a union of
            dataclasses (X | Y) that differ in the values of their key `kind`, a class with a function read_toml(value, place), or
            Any, which leaves the value unchanged.
        value: TOML value.
        place: Location of the value, for messages.
        rules: Unit and bounds of the value.

    Raises:
        ConfigError: The value does not have this type, or violates the rules.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return value
    if hasattr(annotation, "read_toml"):  # a class that knows how to read its table
        return annotation.read_toml(value, place)
    if dataclasses.is_dataclass(annotation):
        return _read_table(annotation, value, place)
    if origin in (Union, types.UnionType):
        kinds = [a for a in arguments if a is not type(None)]  # X | None: TOML has no null, so it must be X
        return read_value(kinds[0] if len(kinds) == 1 else _of_kind(kinds, value, place), value, place, rules)
    if origin is tuple:
        return _read_tuple(arguments, value, place, rules)
    if origin is dict:
        items = _table(value, place).items()
        return {key: read_value(arguments[1], inner, place.key(key), rules) for key, inner in items}
    if origin is Literal:
        if value not in arguments or (isinstance(value, bool) and bool not in map(type, arguments)):
            raise place.error(f"{reprlib.repr(value)} is unknown; {suggestion(str(value), map(str, arguments))}")
        return value
    if annotation is Path:
        if not isinstance(value, str) or "\0" in value or not value:
            raise place.error(f"{reprlib.repr(value)} is not a path; give a path as text")
        try:
            return _resolved(place.file.resolve().parent / Path(value).expanduser())
        except (RuntimeError, OSError) as error:  # "~nobody", or a cycle of links
            raise place.error(f"{reprlib.repr(value)} cannot be resolved ({error}); give another path") from None
    if annotation in (int, float):
        return _read_number(annotation, value, place, rules)
    if annotation in (str, bool):
        if not isinstance(value, annotation):
            wanted = "text in quotes" if annotation is str else "true or false"
            raise place.error(f"{reprlib.repr(value)} does not fit; give {wanted}")
        return value
    raise TypeError(f"{place.entry}: fields of type {annotation} cannot be read from TOML")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Text "did you mean ...?" if a known name is similar, otherwise a list of the known names, shortened if it is long."""
    names = list(known)
    close = closest(name, names)
    if close is not None:
        return f"did you mean {close!r}?"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"use one of {', '.join(names[:_MOST_NAMES])}{more}"


def check_keys(table: Mapping[str, Any], known: Iterable[str], place: Place) -> None:
    """Refuse a table with an unknown key.

    Raises:
        ConfigError: A key is unknown; the message suggests a known one.
    """
    names = list(known)
    for key in table:
        if key not in names:
            raise place.key(key).error(f"unknown key; {suggestion(key, names)}")


def _read_table(cls: Any, value: Any, place: Place) -> Any:
    table = _table(value, place)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    annotations = get_type_hints(cls)
    for name, field in fields.items():
        alias = quantity_of(field).alias
        if alias in table and name in table:
            raise place.key(alias).error(f"it is the former name of {name!r}, which is also given; remove one")
        if alias in table:
            table = {name if key == alias else key: inner for key, inner in table.items()}
    check_keys(table, fields, place)
    values = {}
    for name, field in fields.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name in table:
            values[name] = read_value(annotations[name], table[name], place.key(name), quantity_of(field))
        elif dataclasses.is_dataclass(annotations[name]) and not has_default:
            values[name] = read_value(annotations[name], {}, place.key(name))  # the error names the first required key
        elif not has_default:
            unit = quantity_of(field).unit
            raise place.key(name).error("missing; add this key" + (f" (in {unit})" if unit else ""))
    try:
        return cls(**values)
    except ValueError as error:  # the caller's own checks, in __post_init__
        raise place.error(str(error)) from None


def _of_kind(tables: Sequence[Any], value: Any, place: Place) -> Any:
    """The dataclass among `tables` that allows the key `kind` of the table."""
    known = {kind: cls for cls in tables for kind in get_args(get_type_hints(cls)["kind"])}
    kind = _table(value, place).get("kind")
    if kind is None:
        raise place.key("kind").error(f"missing; use one of {', '.join(known)}")
    return known[read_value(Literal[tuple(known)], kind, place.key("kind"))]


def _table(value: Any, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.error(f"{reprlib.repr(value)} is not a table; write [{place.entry}] with its keys below")
    return value


def _read_tuple(arguments: tuple, value: Any, place: Place, rules: Quantity) -> tuple:
    if rules.broadcast and not isinstance(value, list):
        value = [value]
    if not isinstance(value, list):
        wanted = f"[[{place.entry}]]" if dataclasses.is_dataclass(arguments[0]) else "a list, [...]"
        raise place.error(f"{reprlib.repr(value)} is not a list; write {wanted}")
    if arguments[-1] is Ellipsis:
        arguments = arguments[:1] * len(value)
    if len(value) != len(arguments):
        raise place.error(f"the list has {len(value)} entries; give {len(arguments)}")
    return tuple(
        read_value(annotation, entry, place.item(i, entry.get("name")) if isinstance(entry, dict) else place, rules)
        for i, (annotation, entry) in enumerate(zip(arguments, value, strict=True))
    )


def _read_number(annotation: type, value: Any, place: Place, rules: Quantity) -> int | float:
    if rules.infinite and isinstance(value, float) and math.isinf(value):
        return value
    if annotation is int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise place.error(f"{reprlib.repr(value)} is not an integer; give a whole number")
        number = value
    elif rules.unit is None and isinstance(value, str):
        raise place.error(f"{reprlib.repr(value)} is text; write the value without quotes")
    else:
        try:
            number = quantity(value, rules.unit_of(turns=True) or "1")
        except ValueError as error:
            raise place.error(str(error)) from None
    if not rules.admits(number):
        raise place.error(f"{reprlib.repr(value)} is out of range; give a value that is {rules.allowed}")
    if abs(number) > _LARGEST and not rules.infinite:
        raise place.error(f"{reprlib.repr(value)} is out of range; give a value of magnitude at most {_LARGEST:g}")
    if rules.allowed == "positive" and number < 1 / _LARGEST:
        raise place.error(f"{reprlib.repr(value)} is out of range; give a value of at least {1 / _LARGEST:g}")
    return number


def _override(text: str) -> tuple[list[str], Any]:
    dotted, equals, value = text.partition("=")
    keys = [key.strip() for key in dotted.split(".")]
    if not equals or not all(keys):
        raise ConfigError(f"override {text!r}: the key or the value is missing; write dotted.key=value")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return keys, value.strip()
    return keys, parsed["value"] if parsed.keys() == {"value"} else value.strip()


def _changed(path: Path, values: dict[str, Any], changes: Sequence[tuple[list[str], Any]]) -> dict[str, Any]:
    for keys, value in changes:
        values = _with(values, keys, value, Place(path))
    return values


def _with(target: Any, keys: Sequence[str], value: Any, place: Place) -> Any:
    """A table or a list in which the value at dotted keys is replaced; a table is merged with an earlier one."""
    if not keys:
        both = isinstance(value, dict) and isinstance(target, dict)
        return _merged(target, value) if both else value
    key, *inner = keys
    if isinstance(target, list):
        if not key.isdecimal() or int(key) >= len(target):
            raise place.error(f"it is a list of {len(target)} entries without entry {key!r}; give an index from 0")
        index = int(key)
        return [*target[:index], _with(target[index], inner, value, place.item(index)), *target[index + 1 :]]
    table = _table({} if target is None else target, place)
    return table | {key: _with(table.get(key), inner, value, place.key(key))}


def _merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`values` updated with `changes`, table by table; lists are replaced as a whole."""
    both_tables = {k for k in changes if isinstance(changes[k], dict) and isinstance(values.get(k), dict)}
    return values | {k: _merged(values[k], v) if k in both_tables else v for k, v in changes.items()}


def plain_values(value: Any) -> Any:
    """Nested dictionaries, lists and TOML values of a config or another dataclass, without fields that are None."""
    if hasattr(value, "toml_values"):
        value = {name: inner for name, inner in value.toml_values().items() if inner is not None}
    if dataclasses.is_dataclass(value):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: plain_values(inner) for name, inner in named.items() if inner is not None}
    if isinstance(value, Mapping):
        return {key: plain_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(inner) for inner in value]
    return str(value.absolute()) if isinstance(value, Path) else value
