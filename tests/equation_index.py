"""The reverse of the citations: for every formula of jaxdyn/theory.md, the public functions whose docstrings or lines cite it.

    python tests/equation_index.py

writes it to jaxdyn/equations.md; tests/test_equation_index.py checks that what is there is what the citations say.
"""

import ast
import functools
import importlib
import re
from pathlib import Path

import jaxdyn

PACKAGE = Path(jaxdyn.__file__).parent
INDEX = PACKAGE / "equations.md"
THEORY = (PACKAGE / "theory.md").read_text()

# Where users find names; the first that offers an object gives it its name in the index.
_NAMESPACES = ("jaxdyn", "jaxdyn.io", "jaxdyn.identify", "jaxdyn.control")
_NAMESPACES += tuple(f"jaxdyn.{name}" for name in ("simulate", "constraints", "formulations", "dynamics", "mechanism"))

# Formulas that nothing cites, with a word why.
WITHOUT_CODE = {
    ("A3",): "identity; cross and scalar products are computed as such",
    ("A8", "A9", "B2", "B3", "B5", "B6"): "property, used in derivations",
    ("B7",): "the same rotations as (A6), (A7), which the code composes as quaternions",
    ("T7",): "property of (T2)-(T4); the tests of contact check it",
    ("D4",): "forces of potentials come from `jax.grad` in tangent coordinates, (H7)",
    ("D5",): "relation to a decomposition; the tests hold `jaxdyn.decompose_joints` to it",
    ("E7", "E8", "E9"): "single derivatives; the code has their sums (E10)-(E12), by recursion",
    ("E13",): "special case of (E12)",
    ("E14",): "definition by a moving triad; Omega comes from the joint axes, (E5)",
    ("E16", "E17", "E18"): "moving base; the code has prescribed joints, `jaxdyn.Rheonomic`, (E15)",
    ("F3", "F4", "G10", "G11", "G12"): "property, a law that the tests check",
    ("G2",): "meaning of the symbols",
    ("G4",): "the rotational part with J; the code works with Pi, (G3), (G18)",
    ("G8", "G9"): "forms of (G3) of which the code takes (G18)",
    ("K2",): "principle behind (K1)",
    ("L1", "L2"): "principles; the code has the discrete form (L3)",
    ("M6",): "property, a law that the tests check",
    ("N3",): "coordinate of the joint that was cut; the code does not use it",
    ("N12",): "translation of the sign of the book chapter",
    ("O5",): "the standard set; the code integrates s, (O4)",
    ("O11",): "special case of (O8)",
}
WITHOUT_FORMULAS = {"p": "Values to compare with.", "q": "Errata of the sources, and how the formulas were checked."}
_REASONS = {number: reason for numbers, reason in WITHOUT_CODE.items() for number in numbers}

HEAD = """# Index: where each formula of the theory is implemented

For every formula of [theory.md](theory.md) the functions and classes that cite it, in their docstrings or at the end of the line
that evaluates it; where an inner function of a module does, the module. Made from these citations by
`python tests/equation_index.py`; the tests check that it is up to date. Properties and definitions that no function evaluates say
so.
"""


def formulas() -> list[str]:
    """Numbers of all formulas, in the order of the theory."""
    return re.findall(r"\\tag\{([A-Z]\d+)\}", THEORY)


def cited_in(text: str) -> set[str]:
    """Numbers of the formulas that a text cites, ranges such as (E1)-(E3) written out, in the order of the theory."""
    found = set(re.findall(r"\(([A-Z]\d+)\)", text))
    for letter, first, last in re.findall(r"\(([A-Z])(\d+)\)(?:-| to )\(\1(\d+)\)", text):
        found |= {f"{letter}{k}" for k in range(int(first), int(last) + 1)}
    return found


@functools.cache
def citations() -> dict[str, set[str]]:
    """For each number, the public names whose docstrings or lines cite it."""
    found: dict[str, set[str]] = {number: set() for number in formulas()}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        lines = path.read_text().splitlines()
        for owner, first, last in _owners(ast.parse("\n".join(lines)), module):
            for number in cited_in("\n".join(lines[first:last])) & found.keys():
                found[number].add(owner)
    return found


def _owners(tree: ast.Module, module: str) -> list[tuple[str, int, int]]:
    """Public names of a module and the lines that speak for each: functions, methods, and classes without their methods."""
    owners = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            owners.append((_public(module, node.name), node.lineno - 1, node.end_lineno))
        elif isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            before = methods[0].lineno - 1 if methods else node.end_lineno
            owners.append((_public(module, node.name), node.lineno - 1, before))
            for item in methods:
                # What a method does that overrides one of its base, and private ones, counts for the class.
                documented = ast.get_docstring(item) and not item.name.startswith("_")
                names = (node.name, item.name) if documented else (node.name,)
                owners.append((_public(module, *names), item.lineno - 1, item.end_lineno))
    return owners


def _public(module: str, *names: str) -> str:
    """The shortest name under which users find something; its module if it is private."""
    if any(name.startswith("_") for name in names):
        return module
    found = getattr(importlib.import_module(module), names[0])
    namespaces = {n: importlib.import_module(n) for n in _NAMESPACES}
    offered = [n for n, space in namespaces.items() if names[0] in dir(space) and getattr(space, names[0]) is found]
    if module == jaxdyn.configuration.__name__:
        offered.append("jaxdyn.configuration")
    return ".".join(((*offered, module)[0], *names))


def index() -> str:
    """The index as Markdown."""
    found = citations()
    parts = [HEAD]
    for letter, title in re.findall(r"^## \((\w)\) (.*)$", THEORY, re.MULTILINE):
        numbers = [number for number in found if number[0] == letter.upper()]
        anchor = re.sub(r"[^\w\- ]", "", f"({letter}) {title}".lower()).replace(" ", "-")
        parts.append(f"## [({letter}) {title}](theory.md#{anchor})\n")
        if not numbers:
            parts.append(WITHOUT_FORMULAS[letter] + "\n")
            continue
        rows = ["| formula | implemented in |", "|---|---|"]
        for number in numbers:
            shortest_first = sorted(found[number], key=lambda name: (name.count("."), name))
            names = ", ".join(f"`{name}`" for name in shortest_first)
            rows.append(f"| ({number}) | {names or f'no function: {_REASONS[number]}'} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    INDEX.write_text(index())
    print(INDEX)
