"""The reference of configs is that of the help pages."""

import os
import subprocess
import sys

import config_reference
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
