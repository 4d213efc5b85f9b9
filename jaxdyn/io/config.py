"""Configs: TOML files read strictly into frozen dataclasses, and written back fully resolved.

The caller's dataclass is the whole description of a config: its fields are the keys, nested dataclasses are tables, defaults
make keys optional, and `setting` adds units and bounds.

    @dataclasses.dataclass(frozen=True)
    class Rollouts:
        mechanism: Path
        duration: float = setting(unit="s", positive=True)
        batch: int = setting(1000, positive=True)

    config = read_config("rollouts.toml", Rollouts, overrides=["duration=500 ms"])
"""

import dataclasses
import math
import reprlib
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
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
_LARGEST = 1e100  # size of a number, and the inverse of the least positive one: products and quotients of three of them are finite


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
    """A field of a config, with rules for its value.

    Args:
        default: Value if the key is absent; without one the key is required.
        unit: SI unit of a float or of a tuple of floats; text such as "30 deg" is then converted.
        positive, non_negative: Bounds of a number, or of every number of a tuple.
        broadcast: One number may stand for a tuple; it stays a tuple of one, which the caller broadcasts.
        infinite: inf and -inf are numbers too, and so are all others, however large.
        alias: Earlier name of the key, which is read too.
    """
    least = 0.0 if non_negative else None
    rules = declare(unit, minimum=least, positive=positive, infinite=infinite, broadcast=broadcast, alias=alias)
    return dataclasses.field(default=default, metadata=rules)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a value stands.

    Attributes:
        file: The file, for messages and as the base of relative paths.
        entry: Dotted key, or 'body "upper":' for an entry of an array of tables, followed by the key in it.
    """

    file: Path
    entry: str = ""

    def key(self, name: str) -> "Place":
        """Place of a key of the table at this place."""
        name = name if name.isprintable() else repr(name)
        separator = " " if self.entry.endswith(":") else "."
        return Place(self.file, f"{self.entry}{separator}{name}" if self.entry else name)

    def item(self, index: int, name: Any = None) -> "Place":
        """Place of an entry of the array of tables at this place: by its name if it has one, else by its number from 1."""
        named = isinstance(name, str) and name.isprintable()
        return Place(self.file, f'{self.entry} "{name}":' if named else f"{self.entry} {index + 1}:")

    def error(self, problem: str) -> ConfigError:
        """An error at this place."""
        entry = self.entry.removesuffix(":")
        return ConfigError(f"{self.file}: {entry}: {problem}" if entry else f"{self.file}: {problem}")


def read_config(path: Path | str, cls: type[T], overrides: Sequence[str] = (), smoke: bool = False) -> T:
    """The config in a TOML file.

    Relative paths, overrides included, are relative to the file. A table [smoke] holds values that replace others when `smoke` is
    set, for a run of seconds; it is checked in any case. Overrides come last.

    Args:
        cls: Frozen dataclass that describes the config.
        overrides: "dotted.key=value" with a TOML value; what is no TOML value is text.

    Raises:
        ConfigError: One line with file, key and remedy.
    """
    path = Path(path)
    values = read_toml(path)
    reduced = values.pop(_SMOKE, {})
    if not isinstance(reduced, dict):
        raise Place(path, _SMOKE).error("it is no table; write [smoke] with the values to replace")
    changes = [_override(text) for text in overrides]
    config = read_value(cls, _changed(path, values, changes), Place(path))
    small = read_value(cls, _changed(path, _merged(values, reduced), changes), Place(path, "[smoke]:"))
    return small if smoke else config


def resolved_toml(config: Any) -> str:
    """TOML text of a config with every default written out, numbers in SI units and absolute paths."""
    return toml_text(_plain(config))


def read_value(annotation: Any, value: Any, place: Place, rules: Quantity = _NO_RULES) -> Any:
    """A TOML value as the type of a dataclass field.

    Args:
        annotation: Int, float, str, bool, Path, Literal, tuple, dict[str, X], X | None, a dataclass, several of them (X | Y), which
            the values of their key `kind` tell apart, a class with a function read_toml(value, place), or Any (left as it is).
        rules: Unit and bounds of the value.

    Raises:
        ConfigError: The value does not fit.
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
            raise place.error(f"{reprlib.repr(value)} is no path; give a path as text")
        try:
            return (place.file.resolve().parent / Path(value).expanduser()).resolve()
        except (RuntimeError, OSError) as error:  # "~nobody", or links in a circle
            raise place.error(f"{reprlib.repr(value)} leads nowhere ({error}); give another path") from None
    if annotation in (int, float):
        return _read_number(annotation, value, place, rules)
    if annotation in (str, bool):
        if not isinstance(value, annotation):
            wanted = "text in quotes" if annotation is str else "true or false"
            raise place.error(f"{reprlib.repr(value)} does not fit; give {wanted}")
        return value
    raise TypeError(f"{place.entry}: fields of type {annotation} cannot be read from TOML")


def suggestion(name: str, known: Iterable[str]) -> str:
    """'did you mean ...?' if one of the known names is close, else all of them, or the first ones of many."""
    names = list(known)
    close = closest(name, names)
    if close is not None:
        return f"did you mean {close!r}?"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"use one of {', '.join(names[:_MOST_NAMES])}{more}"


def _read_table(cls: Any, value: Any, place: Place) -> Any:
    table = _table(value, place)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    annotations = get_type_hints(cls)
    for name, field in fields.items():
        alias = quantity_of(field).alias
        if alias in table and name in table:
            raise place.key(alias).error(f"it is the earlier name of {name!r}, which is given too; remove one")
        if alias in table:
            table = {name if key == alias else key: inner for key, inner in table.items()}
    for key in table:
        if key not in fields:
            raise place.key(key).error(f"unknown key; {suggestion(key, fields)}")
    values = {}
    for name, field in fields.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name in table:
            values[name] = read_value(annotations[name], table[name], place.key(name), quantity_of(field))
        elif dataclasses.is_dataclass(annotations[name]) and not has_default:
            values[name] = read_value(annotations[name], {}, place.key(name))  # names the first key it needs
        elif not has_default:
            unit = quantity_of(field).unit
            raise place.key(name).error("missing; add this key" + (f" (in {unit})" if unit else ""))
    try:
        return cls(**values)
    except ValueError as error:  # the caller's own checks, in __post_init__
        raise place.error(str(error)) from None


def _of_kind(tables: Sequence[Any], value: Any, place: Place) -> Any:
    """The one of several dataclasses whose key `kind` may be what it is in a table."""
    known = {kind: cls for cls in tables for kind in get_args(get_type_hints(cls)["kind"])}
    kind = _table(value, place).get("kind")
    if kind is None:
        raise place.key("kind").error(f"missing; use one of {', '.join(known)}")
    return known[read_value(Literal[tuple(known)], kind, place.key("kind"))]


def _table(value: Any, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.error(f"{reprlib.repr(value)} is no table; write [{place.entry}] with its keys below")
    return value


def _read_tuple(arguments: tuple, value: Any, place: Place, rules: Quantity) -> tuple:
    if rules.broadcast and not isinstance(value, list):
        value = [value]
    if not isinstance(value, list):
        wanted = f"[[{place.entry}]]" if dataclasses.is_dataclass(arguments[0]) else "a list, [...]"
        raise place.error(f"{reprlib.repr(value)} is no list; write {wanted}")
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
        raise place.error(f"{reprlib.repr(value)} is text; give a number without quotes")
    else:
        try:
            number = quantity(value, rules.unit_of(turns=True) or "1")
        except ValueError as error:
            raise place.error(str(error)) from None
    if not rules.admits(number):
        raise place.error(f"{reprlib.repr(value)} is out of range; give a number that is {rules.allowed}")
    if abs(number) > _LARGEST and not rules.infinite:
        raise place.error(f"{reprlib.repr(value)} is out of range; give a number of size {_LARGEST:g} or less")
    if rules.allowed == "positive" and number < 1 / _LARGEST:
        raise place.error(f"{reprlib.repr(value)} is out of range; give a number of {1 / _LARGEST:g} or more")
    return number


def _override(text: str) -> tuple[list[str], Any]:
    dotted, equals, value = text.partition("=")
    keys = [key.strip() for key in dotted.split(".")]
    if not equals or not all(keys):
        raise ConfigError(f"override {text!r}: there is no key or no value; write dotted.key=value")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return keys, value.strip()
    return keys, parsed["value"] if parsed.keys() == {"value"} else value.strip()


def _changed(path: Path, values: dict[str, Any], changes: Sequence[tuple[list[str], Any]]) -> dict[str, Any]:
    for keys, value in changes:
        place = Place(path)
        target = values
        for key in keys[:-1]:
            place = place.key(key)
            target = _table(target.get(key, {}), place)
        for key in reversed(keys):
            value = {key: value}
        values = _merged(values, value)
    return values


def _merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`values` with `changes` put in, table by table; lists are replaced as a whole."""
    both_tables = {k for k in changes if isinstance(changes[k], dict) and isinstance(values.get(k), dict)}
    return values | {k: _merged(values[k], v) if k in both_tables else v for k, v in changes.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "toml_values"):
        value = {name: inner for name, inner in value.toml_values().items() if inner is not None}
    if dataclasses.is_dataclass(value):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(inner) for name, inner in named.items() if inner is not None}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value.absolute()) if isinstance(value, Path) else value
