"""The settings of a config class as text: every key with its meaning, unit, choices and default, by table.

Help texts and the templates of `jaxdyn new` are derived from the classes, so that the texts always agree with the classes.
"""

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from jaxdyn.io.tables import Key, keys_of
from jaxdyn.io.toml import toml_value
from jaxdyn.mechanism.quantity import first_sentence

WIDTH = 100  # columns of a terminal


def settings_of(table: Any, kind: str | None = None) -> Mapping[str, Key]:
    """The keys of a config class, or of one kind of a table whose keys depend on its key `kind`."""
    return table.keys(kind) if kind is not None and hasattr(table, "keys") else keys_of(table)


def tables_of(annotation: Any) -> list[Any]:
    """The config classes in an annotation: of a table, an optional table, an array of tables, or one of several tables.

    The result is empty for annotations of other values.
    """
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return [annotation]
    inside = [tables_of(part) for part in get_args(annotation)]
    return list(dict.fromkeys(table for part in inside for table in part))


def kinds_of(table: Any) -> tuple[str, ...]:
    """The allowed values of the key `kind` of a table; empty if the table does not have this key."""
    if hasattr(table, "kinds"):
        return tuple(table.kinds())
    annotation = get_type_hints(table).get("kind")
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def summary_of(table: Any, kind: str | None) -> str:
    """Description of a table, or of one of its kinds."""
    return table.summary(kind) if hasattr(table, "kinds") and kind is not None else first_sentence(table)


def describe_settings(config: type) -> str:
    """The settings of a config class, one line for each key: first those outside of tables, then each table under a heading."""
    lines, sections, explained = [], [], {}
    for name, setting in settings_of(config).items():
        tables = tables_of(setting.annotation)
        if not tables:
            lines.append(_line(name, setting))
            continue
        heading = f"[[{name}]]" if get_origin(setting.annotation) is tuple else f"[{name}]"
        said = setting.meaning or first_sentence(tables[0])
        same = explained.setdefault(tuple(tables), heading)
        if same != heading:
            sections += ["", f"{heading}: {said} The keys are those of {same}."]
            continue
        sections += ["", f"{heading}: {said}", *(line for table in tables for line in table_lines(table, name))]
    return "\n".join([*lines, *sections])


def table_lines(table: Any, name: str) -> Iterator[str]:
    """The keys of a table, one line each; if they depend on its key `kind`, each kind is followed by the lines of its keys."""
    kinds = kinds_of(table)
    for kind in kinds if hasattr(table, "kinds") else kinds[:1]:
        named = f'"{kind}"' if hasattr(table, "kinds") else " or ".join(f'"{kind}"' for kind in kinds)
        yield f"  {name}.kind = {named}: {summary_of(table, kind)}"
        for key, setting in settings_of(table, kind).items():
            if key != "kind":
                yield from _key_lines(f"{name}.{key}", setting, "  ")
    if not kinds:
        for key, setting in settings_of(table).items():
            yield from _key_lines(f"{name}.{key}", setting, "")


def _key_lines(name: str, setting: Key, indent: str) -> Iterator[str]:
    yield f"{indent}{_line(name, setting)}"
    for table in tables_of(setting.annotation):
        yield from (f"  {indent}{line}" for line in table_lines(table, name))


def _line(name: str, setting: Key) -> str:
    unit = f" ({setting.rules.unit_text})" if setting.rules.unit_text else ""
    stated = "" if setting.default is None else f" [{default_of(setting)}]"
    return f"  {name}{unit}: {setting.explanation}{stated}"


def default_of(setting: Key) -> str:
    """The default of a setting as the help states it."""
    value = setting.default
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, tuple) and len(value) == 1 and setting.rules.broadcast:
        value = value[0]
    return f"default {_plain(value)}"


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return toml_value(value) if isinstance(value, str | bool | int) else str(value)


def wrapped(text: str) -> str:
    """Wrap the text of a help page: paragraphs are filled, and indented lines continue with a deeper indentation."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if any(line.startswith(" ") for line in lines):
            paragraphs.append("\n".join(_filled(line) for line in lines))
        else:
            paragraphs.append(_filled(" ".join(lines)))
    return "\n\n".join(paragraphs)


def _filled(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    " if indent else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
