"""Imports point one way, and importing jaxdyn changes nothing outside it."""

import ast
import graphlib
import json
import subprocess
import sys
from pathlib import Path

import jaxdyn

PACKAGE = Path(jaxdyn.__file__).parent

# Each package may import itself and those before it. `compute` precedes all mechanics: it compiles any function.
PACKAGES = [
    "errors",
    "lazy",
    "version",
    "display",
    "compute",
    "results",
    "cache",
    "lanes",
    "spatial",
    "mechanism",
    "dynamics",
    "formulations",
    "constraints",
    "simulate",
    "identify",
    "control",
]
PACKAGES += ["envs", "io", "library", "view", "jobs", "cli", "__main__"]


def modules() -> dict[str, Path]:
    """All modules of the package by dotted name; a package goes by the name of its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported_modules(source: str) -> set[str]:
    """Modules of jaxdyn that a source file imports, within functions too; the most specific one that exists."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports with their full name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    # Modules may be imported by their names in a text, too.
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    names |= texts & set(MODULES) - {"jaxdyn"}
    inside = {name for name in names if name.split(".")[0] == "jaxdyn"}
    return {name if name in MODULES else name.rpartition(".")[0] for name in inside}


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def forbidden(importer: str, imported: str) -> bool:
    """True if an import points the wrong way. The top-level package ("") may import every package, and no package may import it."""
    if package(importer) == "":
        return False
    if package(imported) == "":
        return True
    if package(imported) in GUESTS and package(importer) not in GUESTS:
        return (importer, imported) not in MAY_KNOW
    return PACKAGES.index(package(imported)) > PACKAGES.index(package(importer))


def test_parser_sees_imports_of_every_form():
    source = """
import numpy, jaxdyn.spatial.rotation as r
from jaxdyn.mechanism import tree, Anything
from jaxdyn.spatial.rotation import skew
def f():
    if True:
        from jaxdyn import dynamics
        import jaxdyn
"""
    expected = {"jaxdyn", "jaxdyn.dynamics", "jaxdyn.mechanism", "jaxdyn.mechanism.tree", "jaxdyn.spatial.rotation"}
    assert imported_modules(source) == expected


# Compilers, and what they store, are known to `compute` alone, which finds the lane compiler at its first need of one.
GUESTS = {"lanes", "cache"}
MAY_KNOW = {
    ("jaxdyn.compute.programs", "jaxdyn.lanes.guest"),
    ("jaxdyn.io.runs.provenance", "jaxdyn.cache.fingerprint"),  # the digest of the sources
}


def test_rule_refuses_imports_upward():
    assert not forbidden("jaxdyn.dynamics.metric", "jaxdyn.spatial.inertia")
    assert not forbidden("jaxdyn.lanes.fold", "jaxdyn.lanes.program")
    assert not forbidden("jaxdyn", "jaxdyn.cli")
    assert forbidden("jaxdyn.spatial.inertia", "jaxdyn.dynamics.metric")
    assert not forbidden("jaxdyn.dynamics.forward", "jaxdyn.compute.hints")
    assert forbidden("jaxdyn.lanes.fold", "jaxdyn.spatial.rotation")
    assert forbidden("jaxdyn.dynamics.forward", "jaxdyn.lanes.program")
    assert forbidden("jaxdyn.compute.hints", "jaxdyn.lanes.program")
    assert forbidden("jaxdyn.dynamics.metric", "jaxdyn")


def test_every_file_belongs_to_a_known_package():
    assert {package(module) for module in MODULES} - {""} <= set(PACKAGES)


def test_imports_point_one_way():
    imported = {module: imported_modules(path.read_text()) for module, path in MODULES.items()}
    upward = {module: sorted(name for name in names if forbidden(module, name)) for module, names in imported.items()}
    assert not [f"{module} may not import {', '.join(names)}" for module, names in upward.items() if names]


def test_no_module_imports_itself_in_a_circle():
    graph = {
        module: {name for name in imported_modules(path.read_text()) if (module, name) not in MAY_KNOW}
        for module, path in MODULES.items()
    }
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError with the circle


STATE_BEFORE_AND_AFTER = """
import json, os, sys
import jax, numpy
from jax._src import xla_bridge

settings = sorted(jax.config.values)

def state():
    return {
        "jax settings": {name: repr(jax.config.values[name]) for name in settings},
        "numpy print options": repr(numpy.get_printoptions()),
        "numpy error handling": numpy.geterr(),
        "environment": dict(os.environ),
        "backend started": xla_bridge.backends_are_initialized(),
    }

before = state()
import jaxdyn
from types import ModuleType
packages = [p for p in (getattr(jaxdyn, name) for name in dir(jaxdyn)) if isinstance(p, ModuleType) and p is not jaxdyn.view]
for package in (jaxdyn, *packages):
    for name in dir(package):
        getattr(package, name)  # now all of it is imported
print(json.dumps([before, state(), sorted(sys.modules)]))
"""


def test_import_changes_no_setting_and_starts_no_device():
    run = subprocess.run([sys.executable, "-c", STATE_BEFORE_AND_AFTER], capture_output=True, text=True, check=True)
    before, after, loaded = json.loads(run.stdout)
    assert "jax_enable_x64" in before["jax settings"]
    assert after == before
    assert after["backend started"] is False
    assert not {"matplotlib", "mujoco", "pinocchio", "pytest"} & set(loaded)  # not needed to use the library
