"""The code does not grow unnoticed: a commit that needs more lines or names raises a budget here, and states the reason.

Lines are those of code, without blank lines, comments, docstrings and imports.
"""

import ast
import importlib
import io
import pkgutil
import tokenize
from pathlib import Path

import pytest

import jaxdyn

ROOT = Path(__file__).parents[1]
BUDGETS = {"jaxdyn": 36_280, "jaxdyn/lanes": 7_020, "tests": 39_790, "experiments": 6_700}
PUBLIC_NAMES = 412  # of all packages together, each counted once
_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


if not (ROOT / ".ci").exists():
    pytest.skip("the size is that of a checkout", allow_module_level=True)


def code_lines(source: str) -> int:
    """Number of lines with code."""
    without: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            without.update(range(node.lineno, node.end_lineno + 1))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            used.update(range(token.start[0], token.end[0] + 1))
    return len(used - without)


def public_objects() -> set[str]:
    """The public names of jaxdyn and its packages by the module that defines each."""
    packages = ["jaxdyn", *(f"jaxdyn.{found.name}" for found in pkgutil.iter_modules(jaxdyn.__path__) if found.ispkg)]
    found = set()
    for package in map(importlib.import_module, packages):
        for name in getattr(package, "__all__", ()):
            item = getattr(package, name)
            found.add(f"{getattr(item, '__module__', package.__name__)}.{getattr(item, '__qualname__', name)}")
    return found


def test_lines_are_counted_without_texts_and_imports():
    assert (
        code_lines(
            '"""Text\nof two lines."""\n\nimport os\n\n# comment\nx = (\n    1\n)\n\n\ndef f():\n    "doc"\n    return 1\n'
        )
        == 5
    )


@pytest.mark.parametrize("folder", BUDGETS)
def test_a_folder_is_within_its_budget(folder):
    lines = sum(code_lines(path.read_text(encoding="utf-8")) for path in (ROOT / folder).rglob("*.py"))
    assert lines <= BUDGETS[folder], (
        f"{folder} has {lines} lines of code; delete some, or raise the budget with a reason"
    )
    assert lines > 0.97 * BUDGETS[folder], f"{folder} has {lines} lines of code only; lower its budget"


def test_public_names_are_within_their_budget():
    count = len(public_objects())
    assert count <= PUBLIC_NAMES, f"there are {count} public names; remove some, or raise the budget with a reason"
