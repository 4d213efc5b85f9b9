"""Reading of TOML files with limits on size and depth, since files are untrusted, and writing of TOML from plain values."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.reading import content

_LARGEST_FILE = 1_000_000  # bytes, far more than the largest mechanism file that a person would write
_DEEPEST_NESTING = 16
_LARGEST_INTEGER = 2**63
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
# Tokens that can contain dots. A text that is not closed ends the search, as it ends the parsing; otherwise every quote would be
# tried.
_TOKEN = re.compile(
    r'''\#[^\n]*|"""(?:[^\\]|\\.)*?""""{0,2}|\'\'\'.*?\'\'\'\'{0,2}|(?P<open>"""|\'\'\')'''
    rf"""|(?P<key>{_PART}(?:[ \t]*\.[ \t]*{_PART})*)|(?P<unclosed>["'])""",
    re.DOTALL,
)


def read_toml(path: Path) -> dict[str, Any]:
    """Content of a TOML file.

    Raises:
        ConfigError: The file does not exist, is not a regular file, cannot be read, is too large, is not valid TOML (the message
            states the line), or is nested too deeply.
    """
    data = content(path, _LARGEST_FILE, "split it, or give a TOML file")
    try:
        return parse_toml(data.decode(), path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from None


def parse_toml(text: str, file: Path | str) -> dict[str, Any]:
    """Content of TOML text; `file` is used in messages. The errors are those of `read_toml`."""
    too_deep = ConfigError(f"{file}: tables or lists are nested more than {_DEEPEST_NESTING} levels deep; flatten them")
    if len(text) > _LARGEST_FILE:
        raise ConfigError(f"{file}: it is longer than {_LARGEST_FILE} characters; split it")
    try:
        if _has_long_key(text):
            raise too_deep
        values = tomllib.loads(text)
        depth = _depth(values)
    except ConfigError:
        raise
    except RecursionError:
        raise too_deep from None
    except ValueError as error:  # also raised for integers with more digits than Python converts
        raise ConfigError(f"{file}: it is not valid TOML, {error}; correct that line") from None
    if depth > _DEEPEST_NESTING:
        raise too_deep
    return values


def _has_long_key(text: str) -> bool:
    """Whether a key has too many dotted parts; time and memory of `tomllib` grow quadratically with it."""
    for token in _TOKEN.finditer(text):
        if token.lastgroup in ("open", "unclosed"):
            return False
        key = token["key"] or ""
        if key.count(".") >= _DEEPEST_NESTING and len(re.findall(_PART, key)) > _DEEPEST_NESTING:
            return True
    return False


def _depth(value: Any) -> int:
    """Depth of nested tables and lists.

    Raises:
        ValueError: An integer is outside of the range of TOML.
    """
    if isinstance(value, int) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        raise ValueError("an integer has more than 64 bits")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def toml_text(values: Mapping[str, Any]) -> str:
    """TOML text of nested dictionaries, lists, floats, integers, booleans and strings, which `tomllib` reads back.

    A list of dictionaries becomes an array of tables; dictionaries within it are written inline.
    """
    return "\n".join(_lines(values, ())).strip() + "\n"


def _lines(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    arrays = {key: value for key, value in values.items() if _is_array_of_tables(value)}
    lines = [f"{_key(key)} = {toml_value(value)}" for key, value in values.items() if key not in tables | arrays]
    for key, table in tables.items():
        lines += ["", f"[{'.'.join(map(_key, (*path, key)))}]", *_lines(table, (*path, key))]
    for key, entries in arrays.items():
        for entry in entries:
            lines += ["", f"[[{'.'.join(map(_key, (*path, key)))}]]"]
            lines += [f"{_key(inner)} = {toml_value(value)}" for inner, value in entry.items()]
    return lines


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(entry, Mapping) for entry in value)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    """TOML text of a value on one line."""
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
        return "{" + ", ".join(f"{_key(key)} = {toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    raise TypeError(f"{value!r} cannot be written as TOML")
