"""Documents the attributes of a class with the units and bounds that its fields declare, see jaxdyn/mechanism/quantity.py."""

import dataclasses
import importlib
import re
from typing import Any

import griffe

from jaxdyn.mechanism.quantity import ComponentUnit, Quantity, dimensions, meanings, quantities

_SECTION = re.compile(r"^Attributes:\n(?: .*\n?|\n)+", re.MULTILINE)
_HEAD = "| attribute | | unit | one value for each | values |\n|---|---|---|---|---|\n"


class DeclaredFields(griffe.Extension):
    """Turns the section "Attributes:" of a class that declares quantities into a table with columns for what is declared."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        source = "\n".join(cls.module.lines)
        if cls.docstring is None or cls.is_private or not ("quantity(" in source or "body_index(" in source):
            return
        found: Any = getattr(importlib.import_module(cls.module.path), cls.name, None)
        declared = quantities(found) if dataclasses.is_dataclass(found) else {}
        if not declared:
            return
        fields = {field.name: field for field in dataclasses.fields(found)}
        texts = dict.fromkeys(declared, "") | meanings(found)
        rows = [
            f"| `{name}` | {text} | {' | '.join(_columns(declared.get(name, Quantity()), fields.get(name)))} |"
            for name, text in texts.items()
        ]
        rest = _SECTION.sub("", cls.docstring.value).rstrip()
        cls.docstring.value = f"{rest}\n\n{_HEAD}" + "\n".join(rows)


def _columns(declared: Quantity, field: dataclasses.Field | None) -> tuple[str, str, str]:
    unit = " or ".join(dict.fromkeys(declared.unit)) if isinstance(declared.unit, ComponentUnit) else declared.unit
    axes = (dimensions(field) if field else None) or ()
    along = {"velocity": "velocity component", "coordinate": "coordinate"}.get(declared.along or "", declared.along)
    values = "index of a body, -1 for the ground" if declared.refers == "body" else declared.allowed
    return unit or "", along or (f"shape ({', '.join(axes)})" if axes else ""), values or ""
