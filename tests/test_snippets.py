"""Every snippet of the README, the guides and the docstrings runs, and prints what the text claims."""

import os
import subprocess
import sys

import pytest
from snippets import ROOT, compare, pages

import jaxdyn


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a reader works: a robot description of one's own beside the configs and experiments of the project."""
    folder = tmp_path_factory.mktemp("reader")
    jaxdyn.io.save_system(jaxdyn.library.system("quadruped"), folder / "robot.urdf")
    for name in ("configs", "experiments"):
        (folder / name).symlink_to(ROOT / name, target_is_directory=True)
    return folder


@pytest.mark.parametrize("page", pages())
def test_the_snippets_run_as_they_stand(page, folder):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, ROOT / "tests/snippets.py", page],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert "snippets ran" in done.stdout


@pytest.mark.parametrize(
    ("printed", "expected"),
    [("1.234 m", "1.235 m"), ("[1.0, 2.0]\nend", "[1.0, ... end"), ("a b c d", "a ... d"), ("x", "..."), ("", "")],
)
def test_a_print_that_agrees_is_accepted(printed, expected):
    compare(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("1.234 m", "1.334 m"),
        ("1 m", "1 N"),
        ("a b", "a"),
        ("a", "a b"),
        ("a b c d", "a ... c"),
        ("a b", "... a"),
        ("", "x"),
    ],
)
def test_a_print_that_differs_is_refused(printed, expected):
    with pytest.raises(AssertionError, match="prints"):
        compare(printed, expected)
