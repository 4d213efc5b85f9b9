"""TOML text with a comment above every key, taken from the classes that describe its tables."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from jaxdyn.io.tables import Key
from jaxdyn.io.toml import toml_value
from jaxdyn.jobs.settings import forms_of, tables_of
from jaxdyn.mechanism.quantity import first_sentence

DEFAULT: Any = ...  # the value of a key that keeps its default
_WIDTH = 110


@dataclasses.dataclass(frozen=True)
class Noted:
    """A value with an additional comment, which follows the comment that explains the key.

    Attributes:
        value: Value of the key; None for a key that appears only in the comment.
        note: Comment, whose line breaks are kept.
    """

    value: Any
    note: str


def commented_toml(
    config: Any, values: Mapping[str, Any], header: str, classes: Mapping[str, Sequence[Any]] | None = None
) -> str:
    """TOML text of some keys of a config class, each below a comment that explains it; each table lists its other keys.

    Args:
        config: Config class.
        values: Values, tables and arrays of tables by key, as in the file. A value may be `DEFAULT` or `Noted`.
        header: Comment at the top of the file, whose line breaks are kept.
        classes: Classes that describe tables, by dotted names of tables; only for tables whose annotation in `config` does not name
            a class.
    """
    writer = _Writer(classes or {})
    writer.note(header)
    writer.blank()
    writer.table("", [config], values)
    return "\n".join(writer.lines).rstrip() + "\n"


class _Writer:
    """Collects the lines of the file, and explains each key where it first appears."""

    def __init__(self, classes: Mapping[str, Sequence[Any]]):
        self.classes = classes
        self.lines: list[str] = []
        self._explained: set[tuple[str, Any]] = set()

    def note(self, text: str) -> None:
        """Add a comment whose line breaks are kept."""
        self.lines += [f"# {line}".rstrip() for line in text.splitlines()]

    def blank(self) -> None:
        """Add an empty line unless the last line is empty."""
        if self.lines[-1]:
            self.lines.append("")

    def table(self, path: str, owners: Sequence[Any], values: Mapping[str, Any]) -> None:
        """Add the keys of a table: first those with plain values, then those with tables."""
        kind = values.get("kind")
        forms = [form for owner in owners for form in forms_of(owner)]
        others = [other for form in forms for other in form.kinds if other != kind]
        forms = [form for form in forms if kind in form.kinds] or forms
        settings = {name: setting for form in forms for name, setting in form.keys.items()}
        is_new = (path, kind) not in self._explained
        self._explained.add((path, kind))
        inner = {}
        for key, value in values.items():
            if _is_table(value) or (isinstance(value, list) and value and all(map(_is_table, value))):
                inner[key] = value
            elif key == "kind":
                said = forms[-1].summary if is_new else ""
                if others and (path, None) not in self._explained:
                    said += f" Other kinds: {', '.join(others)}."
                    self._explained.add((path, None))
                self._key(key, value, said, None)
            else:
                self._key(key, value, settings[key].explanation if is_new else "", settings[key])
        further = [key for key in settings if key not in values]
        if further and is_new:
            self._say(f"Further keys: {', '.join(further)}.")
        self.blank()
        for key, value in inner.items():
            name = f"{path}.{key}" if path else key
            inside = self.classes.get(name) or tables_of(settings[key].annotation)
            said = settings[key].meaning if key in settings else ""
            for k, entry in enumerate(value if isinstance(value, list) else [value]):
                if k == 0 and is_new:
                    self._say(said or first_sentence(inside[0]))
                self.lines.append(f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
                self.table(name, inside, entry)

    def _key(self, key: str, value: Any, said: str, setting: Key | None) -> None:
        note = ""
        if isinstance(value, Noted):
            value, note = value.value, value.note
        if value is DEFAULT:
            assert setting is not None
            value = setting.default
        if isinstance(value, tuple) and len(value) == 1 and setting is not None and setting.rules.broadcast:
            value = value[0]
        self._say(said)
        self.note(note)
        if value is None:
            self.blank()
            return
        unit = setting.rules.unit_text if setting is not None and _has_number(value) else ""
        self.lines.append(f"{key} = {toml_value(value)}" + (f" # {unit}" if unit else ""))
        if said:
            self.blank()

    def _say(self, text: str) -> None:
        """Add a comment whose lines are filled."""
        self.lines += [f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]


class Inline(dict):
    """A table that is written on one line."""


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and not isinstance(value, Inline)


def _has_number(value: Any) -> bool:
    if isinstance(value, Mapping):
        return _has_number(list(value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_number, value))
    return isinstance(value, float | int) and not isinstance(value, bool)
