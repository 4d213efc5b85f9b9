"""Every snippet of the README, the guides and the docstrings runs, and prints what the text claims."""

import functools
from pathlib import Path

import pytest
from forked import forks
from snippets import ROOT, compare, pages

import jaxdyn


@pytest.fixture(scope="module")
def folder_with(tmp_path_factory):
    """Where a reader works: a robot description of one's own beside the configs and experiments of the project."""

    @functools.cache
    def made(robot: str) -> Path:
        folder = tmp_path_factory.mktemp("reader")
        jaxdyn.io.save_system(jaxdyn.library.system(robot), folder / "robot.urdf")
        for name in ("configs", "experiments"):
            (folder / name).symlink_to(ROOT / name, target_is_directory=True)
        return folder

    return made


@pytest.fixture(scope="module")
def readers():
    """Processes that compile with little effort, as `conftest` says: nothing on these pages runs long."""
    with forks(JAX_DISABLE_MOST_OPTIMIZATIONS="1") as readers:
        yield readers


# Pages that also the test command of the front page runs.
FIRST = {"README.md", "jaxdyn/cache/README.md", "jaxdyn/simulate/README.md"}


@pytest.mark.parametrize(
    "page", [page if page in FIRST else pytest.param(page, marks=pytest.mark.thorough) for page in pages()]
)
def test_the_snippets_run_as_they_stand(page, folder_with, readers):
    # The front page checks the accuracy of any robot, which takes four times as long for one with 13 bodies.
    folder = folder_with("spatial_arm_3r" if page == "README.md" else "quadruped")
    done = readers.run(ROOT / "tests/snippets.py", page, folder=folder)
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
