"""Reading of the tables of TOML files as values of dataclasses: every key has a type, a unit, bounds and a default.

The keys of a table are the fields of a class, a config or any other class whose fields are declared with `quantity`. An array field
is read from a float, a list or a list of lists, depending on the axes in its annotation, and the index of a body from its name.
"""

import dataclasses
import math
import reprlib
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from jaxdyn.errors import suggestion
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.robots import is_name, robot_file
from jaxdyn.io.toml import toml_value
from jaxdyn.io.units import quantity
from jaxdyn.mechanism.quantity import Quantity, axes_of, meanings, quantity_of

_NO_RULES = Quantity()
_LARGEST = 1e100  # largest magnitude, and inverse of the smallest positive value; products of three values are finite


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


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a table.

    Attributes:
        annotation: Type of the value in TOML, see `read_value`.
        rules: Unit and bounds of the value.
        default: Default of the value; MISSING for a required key.
        meaning: Entry of the key in the docstring of its class.
    """

    annotation: Any
    rules: Quantity
    default: Any
    meaning: str

    @property
    def explanation(self) -> str:
        """The meaning, followed by the allowed values if the meaning does not name them."""
        options = (self.annotation, *get_args(self.annotation))
        choices = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
        if all(f'"{choice}"' in self.meaning for choice in choices):
            return self.meaning
        *others, last = (toml_value(choice) for choice in choices)
        listed = f"{', '.join(others)} or {last}" if others else last
        subject = "Each entry" if get_origin(self.annotation) is tuple else "It"
        return f"{self.meaning} {subject} is {listed}.".strip()


def keys_of(cls: Any) -> dict[str, Key]:
    """The keys of a table that the fields of a class describe."""
    annotations, texts = get_type_hints(cls), meanings(cls)
    keys = {}
    for field in dataclasses.fields(cls):
        rules, default = quantity_of(field), field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        annotation = str if rules.refers == "body" else toml_type(annotations[field.name], rules)
        meaning = texts.get(field.name, "")
        if rules.refers == "body":
            meaning = meaning.replace("Index of the body", "Name of the body or frame")
            meaning = meaning.replace("-1 for the ground", 'or "ground"')
            meaning = meaning if meaning.startswith("Name") else f"Name of a body or frame: {meaning}"
        keys[field.name] = Key(annotation, rules, default, meaning)
    return keys


def toml_type(hint: Any, rules: Quantity = _NO_RULES) -> Any:
    """Type in TOML of a field with a given annotation: lists for arrays, and the types of a union that TOML can express."""
    axes = axes_of(hint)
    if axes is None and get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if get_origin(option) or _is_readable(option)]
        return Union[tuple(options)]  # noqa: UP007 (known at run time only)
    if axes is None:
        return hint
    if len(axes) == 2:
        return tuple[tuple[float, ...], ...]
    if len(axes) == 1 and axes[0].isdecimal() and not rules.broadcast:
        return tuple[(float,) * int(axes[0])]  # pyright: ignore[reportInvalidTypeArguments]
    return tuple[float, ...] if axes else float


def _is_readable(annotation: Any) -> bool:
    simple = (int, float, str, bool, Path, type(None), Any)
    return annotation in simple or dataclasses.is_dataclass(annotation) or hasattr(annotation, "read_toml")


def read_keys(keys: Mapping[str, Key], value: Any, place: Place) -> dict[str, Any]:
    """Read the values of the keys that a table gives.

    Args:
        keys: Allowed keys by name.
        value: TOML value of the table.
        place: Location of the table, for messages.

    Raises:
        ConfigError: A key is unknown, a required key is missing, or a value has a wrong type or violates a bound.
    """
    table = table_of(value, place)
    check_keys(table, keys, place)
    values = {}
    for name, key in keys.items():
        if name in table:
            values[name] = read_value(key.annotation, table[name], place.key(name), key.rules)
        elif key.default is dataclasses.MISSING and dataclasses.is_dataclass(key.annotation):
            values[name] = read_value(key.annotation, {}, place.key(name))  # the error names the first required key
        elif key.default is dataclasses.MISSING:
            unit = f" (in {key.rules.unit_text})" if key.rules.unit_text else ""
            raise place.key(name).error(f"missing; add this key{unit}")
    return values


def read_kind(kinds: Iterable[str], value: Any, place: Place) -> tuple[str, dict[str, Any]]:
    """Read the key `kind` of a table; returns its value and the other keys of the table.

    Args:
        kinds: Allowed values.
        value: TOML value of the table.
        place: Location of the table, for messages.

    Raises:
        ConfigError: The value is not a table, or its key `kind` is missing or unknown.
    """
    table, known = dict(table_of(value, place)), tuple(kinds)
    kind = table.pop("kind", None)
    if kind is None:
        raise place.key("kind").error(f"missing; use one of {', '.join(known)}")
    return read_value(Literal[known], kind, place.key("kind")), table


def made(cls: Any, values: dict[str, Any], place: Place) -> Any:
    """Create an object from the values of its fields.

    Raises:
        ConfigError: The class refuses the values, for example in __post_init__.
    """
    try:
        return cls(**values)
    except ValueError as error:
        raise place.error(str(error)) from None


def _of_kind(tables: Sequence[Any], value: Any, place: Place) -> Any:
    """The dataclass among `tables` that allows the key `kind` of the table."""
    known = {kind: cls for cls in tables for kind in get_args(get_type_hints(cls)["kind"])}
    return known[read_kind(known, value, place)[0]]


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
        return made(annotation, read_keys(keys_of(annotation), value, place), place)
    if origin in (Union, types.UnionType):
        kinds = [a for a in arguments if a is not type(None)]  # X | None: TOML has no null, so it must be X
        return read_value(kinds[0] if len(kinds) == 1 else _of_kind(kinds, value, place), value, place, rules)
    if origin is tuple:
        return _read_tuple(arguments, value, place, rules)
    if origin is dict:
        items = table_of(value, place).items()
        return {key: read_value(arguments[1], inner, place.key(key), rules) for key, inner in items}
    if origin is Literal:
        if value not in arguments or (isinstance(value, bool) and bool not in map(type, arguments)):
            raise place.error(f"{reprlib.repr(value)} is unknown; {suggestion(value, map(str, arguments))}")
        return value
    if annotation is Path:
        if not isinstance(value, str) or "\0" in value or not value:
            raise place.error(f"{reprlib.repr(value)} is not a path; give a path as text")
        try:
            path = _resolved(place.file.resolve().parent / Path(value).expanduser())
            return robot_file(Path(value)).absolute() if is_name(value) and not path.exists() else path
        except (RuntimeError, OSError, ConfigError) as error:  # "~nobody", a cycle of links, or a robot that is absent
            raise place.error(f"{reprlib.repr(value)} cannot be resolved ({error}); give another path") from None
    if annotation in (int, float):
        return _read_number(annotation, value, place, rules)
    if annotation in (str, bool):
        if not isinstance(value, annotation):
            wanted = "text in quotes" if annotation is str else "true or false"
            raise place.error(f"{reprlib.repr(value)} does not fit; give {wanted}")
        return value
    raise TypeError(f"{place.entry}: fields of type {annotation} cannot be read from TOML")


def check_keys(table: Mapping[str, Any], known: Iterable[str], place: Place) -> None:
    """Refuse a table with an unknown key.

    Raises:
        ConfigError: A key is unknown; the message suggests a known one.
    """
    names = dict.fromkeys(known)
    for key in table:
        if key not in names:
            raise place.key(key).error(f"unknown key; {suggestion(key, names)}")


def table_of(value: Any, place: Place) -> dict[str, Any]:
    """The value, if it is a table.

    Raises:
        ConfigError: The value is not a table.
    """
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
    rows = [len(entry) for entry in value if isinstance(entry, list)]
    if get_origin(arguments[0] if arguments else None) is tuple and len(set(rows)) > 1:
        raise place.error("the rows have different lengths; give the same number of values in each row")
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
            number = quantity(value, rules.unit or "1")
        except ValueError as error:
            raise place.error(str(error)) from None
    if not rules.admits(number):
        raise place.error(f"{reprlib.repr(value)} is out of range; give a value that is {rules.allowed}")
    if abs(number) > _LARGEST and not rules.infinite:
        raise place.error(f"{reprlib.repr(value)} is out of range; give a value of magnitude at most {_LARGEST:g}")
    if rules.allowed == "positive" and number < 1 / _LARGEST:
        raise place.error(f"{reprlib.repr(value)} is out of range; give a value of at least {1 / _LARGEST:g}")
    return number


def _resolved(path: Path) -> Path:
    """The path with all links resolved. Since Python 3.13, a cycle of links is an error only if the path must exist."""
    try:
        return path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return path.resolve()
