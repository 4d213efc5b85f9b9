"""TOML files: read with limits on size and depth, since they may come from a stranger, and written from plain values."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LARGEST_FILE = 1_000_000  # bytes; the largest file of a mechanism anyone would write by hand is far below
_DEEPEST_NESTING = 16
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class ConfigError(ValueError):
    """A file that cannot be used; the message is one line with the file, the key and the remedy."""


def read_toml(path: Path) -> dict[str, Any]:
    """Content of a TOML file.

    Raises:
        ConfigError: no such file, not readable, too large, no TOML (the message has the line), or nested too deep.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; check the path") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give a TOML file") from None
    if len(content) > _LARGEST_FILE:
        raise ConfigError(f"{path}: the file is larger than {_LARGEST_FILE} bytes; split it")
    too_deep = ConfigError(f"{path}: tables or lists are nested more than {_DEEPEST_NESTING} deep; flatten them")
    try:
        values = tomllib.loads(content.decode())
        depth = _depth(values)
    except RecursionError:
        raise too_deep from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from None
    except ValueError as error:  # also numbers with more digits than Python converts
        raise ConfigError(f"{path}: no valid TOML, {error}; correct that line") from None
    if depth > _DEEPEST_NESTING:
        raise too_deep
    return values


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def toml_text(values: Mapping[str, Any]) -> str:
    """TOML of nested dictionaries, lists, numbers, booleans and strings, as `tomllib` reads it back.

    A list of dictionaries becomes an array of tables; dictionaries inside of one are written inline.
    """
    return "\n".join(_lines(values, ())).strip() + "\n"


def _lines(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    arrays = {key: value for key, value in values.items() if _is_array_of_tables(value)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in values.items() if key not in tables | arrays]
    for key, table in tables.items():
        lines += ["", f"[{'.'.join(map(_key, (*path, key)))}]", *_lines(table, (*path, key))]
    for key, entries in arrays.items():
        for entry in entries:
            lines += ["", f"[[{'.'.join(map(_key, (*path, key)))}]]"]
            lines += [f"{_key(inner)} = {_value(value)}" for inner, value in entry.items()]
    return lines


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(entry, Mapping) for entry in value)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(float(value))  # a NumPy float would write its type as well
    if isinstance(value, str):
        # JSON escapes are TOML escapes, except that TOML also wants the delete character escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"{value!r} has no form in TOML")
