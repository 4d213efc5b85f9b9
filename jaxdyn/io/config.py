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
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.tables import Place, read_value, table_of
from jaxdyn.io.toml import read_toml, toml_text
from jaxdyn.mechanism.quantity import ComponentUnit, stated_by
from jaxdyn.mechanism.quantity import quantity as declare

T = TypeVar("T")

SMOKE = "smoke"
_LARGEST_SEED = 2.0**32 - 1  # of random keys of JAX, also in single precision


def setting(
    default: Any = dataclasses.MISSING,
    *,
    unit: str | ComponentUnit | None = None,
    positive: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    broadcast: bool = False,
    infinite: bool = False,
) -> Any:
    """Declare a field of a config with rules for its value.

    Args:
        default: Value if the key is absent; without a default the key is required.
        unit: SI unit of a float or of a tuple of floats. Text such as "30 deg" is converted to this unit. For values along
            components of joints, which have a `ComponentUnit`, the text may have the unit of either kind of component; the caller
            checks the unit of a `ComponentValue` when the mechanism is known.
        positive: Whether the value, or every entry of a tuple, must be positive.
        minimum, maximum: Bounds of the value, or of every entry of a tuple.
        broadcast: If true, a single value may be given for a tuple. This value is read as a tuple of one entry, which the caller
            broadcasts.
        infinite: If true, inf, -inf and values of any magnitude are allowed.
    """
    rules = declare(unit, minimum=minimum, maximum=maximum, positive=positive, infinite=infinite, broadcast=broadcast)
    return dataclasses.field(default=default, metadata=rules)


def seed_setting() -> Any:
    """Declare a field of a config with the seed of random values, 0 by default."""
    return setting(0, minimum=0.0, maximum=_LARGEST_SEED)


def default_of(function: Callable[..., Any], name: str) -> Any:
    """The default of an argument of a function, for a setting that becomes this argument."""
    return inspect.signature(function).parameters[name].default


def setting_of(owner: type, name: str, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field of a config with the unit, the bounds, the default and the meaning of a field of another class.

    Args:
        owner: Class with the field.
        name: Name of the field.
        default: Default instead of that of the other class.
    """
    field = next(field for field in dataclasses.fields(owner) if field.name == name)
    default = field.default if default is dataclasses.MISSING else default
    return dataclasses.field(default=default, metadata=field.metadata | stated_by(owner))


def read_config(path: Path | str, cls: type[T], overrides: Sequence[str] = (), *, smoke: bool = False) -> T:
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
    reduced = values.pop(SMOKE, {})
    if not isinstance(reduced, dict):
        raise Place(path, SMOKE).error("it is not a table; write [smoke] with the values to replace")
    changes = [_override(text) for text in overrides]
    config = read_value(cls, _changed(path, values, changes), Place(path))
    small = read_value(cls, _changed(path, _merged(values, reduced), changes), Place(path, "[smoke]:"))
    return small if smoke else config


def resolved_toml(config: Any) -> str:
    """TOML text of a config with all default values, values in SI units and absolute paths."""
    return toml_text(record(config))


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
    table = table_of({} if target is None else target, place)
    return table | {key: _with(table.get(key), inner, value, place.key(key))}


def _merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`values` updated with `changes`, table by table; lists are replaced as a whole."""
    both_tables = {k for k in changes if isinstance(changes[k], dict) and isinstance(values.get(k), dict)}
    return values | {k: _merged(values[k], v) if k in both_tables else v for k, v in changes.items()}


def record(value: Any) -> Any:
    """Nested dictionaries, lists and TOML values of a config, an array or an object, without fields that are None."""
    if hasattr(value, "__array__"):
        return np.asarray(value, np.float64).tolist()
    if hasattr(value, "toml_values"):
        value = {name: inner for name, inner in value.toml_values().items() if inner is not None}
    if dataclasses.is_dataclass(value):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: record(inner) for name, inner in named.items() if inner is not None}
    if isinstance(value, Mapping):
        return {key: record(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [record(inner) for inner in value]
    return str(value.absolute()) if isinstance(value, Path) else value
