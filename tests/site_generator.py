"""The modules in .ci/docs that make the documentation site; a test that needs them is skipped where there is no checkout."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / ".ci/docs"


def load(name: str) -> ModuleType:
    """A module of the generator.

    Args:
        name: Name of the module.
    """
    path = FOLDER / f"{name}.py"
    if not path.exists():
        pytest.skip("the generator of the site is in a checkout only", allow_module_level=True)
    specification = importlib.util.spec_from_file_location(f"site_{name}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def rows_of_reference(cls: type) -> list[str]:
    """The table of attributes of a class in the API reference, a row each.

    Args:
        cls: Class with a docstring.
    """
    text = load("attributes").with_table(cls, cls.__doc__)
    return [line for line in text.splitlines() if line.startswith("| `")]
