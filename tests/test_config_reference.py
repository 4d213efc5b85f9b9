<<<<<<< HEAD
"""The reference of configs is that of the help pages."""

import os
=======
"""The reference of configs is up to date with the classes that it describes."""

>>>>>>> ca46b41 (Reference of configs and mechanism files, generated from the classes that the help texts use)
import subprocess
import sys

import config_reference
<<<<<<< HEAD
import pytest


@pytest.fixture(scope="module")
def reference():
    """As a process without the classes that tests define."""
    done = subprocess.run(
        [sys.executable, "-c", "import config_reference; print(config_reference.reference(), end='')"],
        cwd=config_reference.PAGE.parents[1] / "tests",
        env=os.environ | {"PYTHONPATH": str(config_reference.PAGE.parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_reference_of_configs_is_up_to_date(reference):
    text = config_reference.PAGE.read_text(encoding="utf-8")
    assert text.endswith(f"{config_reference.MARK}\n{reference}"), "renew it: python tests/config_reference.py"


def test_reference_has_settings_of_every_command_and_forces_of_mechanism_files(reference):
    assert all(word in reference for word in ("`jaxdyn rollout`", "batch", '"ilqr"', "[[spring]]", "stiffness"))
=======


def test_reference_is_up_to_date_with_the_classes():
    # A process without the classes that other tests define.
    script = "import config_reference; print(config_reference.reference(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=config_reference.PAGE.parent.parent / "tests",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    written = config_reference.PAGE.read_text().partition(config_reference.MARKER)[2]
    assert written == done.stdout, "renew it: python tests/config_reference.py"
>>>>>>> ca46b41 (Reference of configs and mechanism files, generated from the classes that the help texts use)
