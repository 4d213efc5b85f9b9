"""The settings of a config class as text: every key with its meaning, unit, choices, bounds and default, by table.

Help texts and the templates of `jaxdyn new` are derived from the classes, so that the texts always agree with the classes.
"""

import ast
import dataclasses
import pkgutil
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

from jaxdyn.io.tables import Key, keys_of
from jaxdyn.io.toml import toml_value
from jaxdyn.mechanism.quantity import first_sentence

WIDTH = 100  # columns of a terminal


class Form(NamedTuple):
    """A form of a table: its keys if its key `kind` has certain values.

    Attributes:
        kinds: These values; empty for a table whose keys do not depend on a key `kind`.
        summary: Description of the table with these values.
        keys: The keys of the table, without `kind` if they depend on it.
    """

    kinds: tuple[str, ...]
    summary: str
    keys: Mapping[str, Key]


def keys_in_source(config: str) -> dict[str, list[str]]:
    """Keys of a config class "package.module:Class", each with the keys of its table.

    They are read from the source, because the import of some config classes takes seconds.
    """
    module, _, name = config.partition(":")
    package, _, file = module.rpartition(".")
    source = ast.parse(pkgutil.get_data(package, f"{file}.py") or b"").body
    classes = {node.name: node.body for node in source if isinstance(node, ast.ClassDef)}

    def fields(name: str) -> dict[str, str]:
        lines = [line for line in classes.get(name, []) if isinstance(line, ast.AnnAssign)]
        return {ast.unparse(line.target): ast.unparse(line.annotation).removesuffix(" | None") for line in lines}

    return {key: list(fields(annotation)) for key, annotation in fields(name).items()}


def forms_of(table: Any) -> list[Form]:
    """The forms of a table: one for a class of configs, and one for each kind if the keys depend on the key `kind`."""
    if hasattr(table, "kinds"):
        return [Form((kind,), table.summary(kind), table.keys(kind)) for kind in table.kinds()]
    keys = keys_of(table)
    annotation = keys["kind"].annotation if "kind" in keys else None
    kinds = get_args(annotation) if get_origin(annotation) is Literal else ()
    return [
        Form(kinds, first_sentence(table), {name: key for name, key in keys.items() if not kinds or name != "kind"})
    ]


def tables_of(annotation: Any) -> list[Any]:
    """The config classes in an annotation: of a table, an optional table, an array of tables, or one of several tables.

    The result is empty for annotations of other values.
    """
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return [annotation]
    inside = [tables_of(part) for part in get_args(annotation)]
    return list(dict.fromkeys(table for part in inside for table in part))


def describe_settings(config: type) -> str:
    """The settings of a config class, one line for each key: first those outside of tables, then each table under a heading."""
    lines, sections, explained = [], [], {}
    for name, setting in keys_of(config).items():
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


def describe_parts() -> str:
    """The tables of forces and constraints in mechanism files, one line for each key."""
    from jaxdyn.io.mechanism.parts import part_tables  # imports JAX, which configs do without

    lines = [
        "The keys of tables in single brackets are tables by joint names, such as {shoulder = 0.1, elbow = 0.05}.",
        "",
    ]
    for heading, table in part_tables().items():
        lines.append(f"  {heading}: {first_sentence(table)}")
        for name, key in keys_of(table).items():
            by_joint = not heading.startswith("[[")
            lines.append(f"  {_line(name, dataclasses.replace(key, default=None) if by_joint else key)}")
    return "\n".join(lines)


def table_lines(table: Any, name: str) -> Iterator[str]:
    """The keys of a table, one line each; if they depend on its key `kind`, each kind is followed by the lines of its keys."""
    for form in forms_of(table):
        if form.kinds:
            named = " or ".join(f'"{kind}"' for kind in form.kinds)
            yield f"  {name}.kind = {named}: {form.summary}"
        indent = "  " if form.kinds else ""
        for key, setting in form.keys.items():
            yield f"{indent}{_line(f'{name}.{key}', setting)}"
            for inner in tables_of(setting.annotation):
                yield from (f"  {indent}{line}" for line in table_lines(inner, f"{name}.{key}"))


def _line(name: str, setting: Key) -> str:
    unit = f" ({setting.rules.unit_text})" if setting.rules.unit_text else ""
    rules = [setting.rules.allowed, None if setting.default is None else default_of(setting)]
    stated = ", ".join(filter(None, rules))
    return f"  {name}{unit}: {setting.explanation}{f' [{stated}]' if stated else ''}"


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
        separate = lines if any(line.startswith(" ") for line in lines) else [" ".join(lines)]
        paragraphs.append("\n".join(map(_filled, separate)))
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
