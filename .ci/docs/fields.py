"""Documents the attributes of a class with the units and bounds that its fields declare, by the tables of attributes.py."""

import importlib
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
import attributes


class DeclaredFields(griffe.Extension):
    """Turns the section "Attributes:" of a class that declares quantities into a table with columns for what is declared."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        source = "\n".join(cls.module.lines)
        if cls.docstring is None or cls.is_private or not ("quantity(" in source or "body_index(" in source):
            return
        found: Any = getattr(importlib.import_module(cls.module.path), cls.name, None)
        if isinstance(found, type):
            cls.docstring.value = attributes.with_table(found, cls.docstring.value)
