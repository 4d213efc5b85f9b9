"""The table of the attributes of a class, with the units and bounds that its fields declare, see jaxdyn/mechanism/quantity.py."""

import dataclasses
import re

from jaxdyn.mechanism.quantity import ComponentUnit, Quantity, dimensions, meanings, quantities

_SECTION = re.compile(r"^Attributes:\n(?: .*\n?|\n)+", re.MULTILINE)
_HEAD = "| attribute | | unit | one value for each | values |\n|---|---|---|---|---|\n"


def with_table(cls: type, docstring: str) -> str:
    """The docstring of a class, in which a table of the declared quantities replaces the section "Attributes:".

    Args:
        cls: Class, which may declare quantities.
        docstring: Docstring of the class.
    """
    declared = quantities(cls) if dataclasses.is_dataclass(cls) else {}
    if not declared:
        return docstring
    fields = {field.name: field for field in dataclasses.fields(cls)}
    texts = dict.fromkeys(declared, "") | meanings(cls)
    rows = [
        f"| `{name}` | {text} | {' | '.join(_columns(declared.get(name, Quantity()), fields.get(name)))} |"
        for name, text in texts.items()
    ]
    return f"{_SECTION.sub('', docstring).rstrip()}\n\n{_HEAD}" + "\n".join(rows)


def _columns(declared: Quantity, field: dataclasses.Field | None) -> tuple[str, str, str]:
    unit = " or ".join(dict.fromkeys(declared.unit)) if isinstance(declared.unit, ComponentUnit) else declared.unit
    axes = (dimensions(field) if field else None) or ()
    along = {"velocity": "velocity component", "coordinate": "coordinate"}.get(declared.along or "", declared.along)
    values = "index of a body, -1 for the ground" if declared.refers == "body" else declared.allowed
    return unit or "", along or (f"shape ({', '.join(axes)})" if axes else ""), values or ""
