"""Without its optional packages `jaxdyn.view` says how to install them, and tools that list its members go on."""

import inspect
import subprocess
import sys

import pytest

import jaxdyn

WITHOUT = """
import importlib.abc, inspect, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
known = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {packages!r} else known(name, *rest)
import jaxdyn.view
{statement}
"""


def without(packages: set[str], statement: str) -> str:
    code = WITHOUT.format(packages=packages, statement=statement)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return run.stdout + run.stderr


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("jaxdyn.view.mechanism_picture", 'needs matplotlib; install it with pip install "jaxdyn[pictures]"'),
        (
            "import jaxdyn.display; jaxdyn.display.view('motion_plot')",
            'needs matplotlib; install it with pip install "jaxdyn[pictures]"',
        ),
        ("from jaxdyn.view import plots", 'needs matplotlib; install it with pip install "jaxdyn[pictures]"'),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(statement, remedy):
    assert remedy in without({"matplotlib"}, statement)


def test_members_that_are_there_can_be_listed():
    listed = "print([name for name, _ in inspect.getmembers(jaxdyn.view) if not name.startswith('_')])"
    found = without({"matplotlib"}, listed)
    assert "'Replay'" in found
    assert "'mechanism_picture'" not in found
    assert {"tree_text", "mechanism_picture"} <= {name for name, _ in inspect.getmembers(jaxdyn.view)}


def test_a_notebook_shows_the_table_alone_without_matplotlib():
    shown = without({"matplotlib"}, "print(jaxdyn.System(jaxdyn.library.pendulum())._repr_html_())")
    assert "<td" in shown
    assert "<img" not in shown
