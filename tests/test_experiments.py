"""Every experiment runs with its smoke settings, and has a config of its name that says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "experiments").glob("*.py"))


def test_there_are_experiments():
    assert SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_experiment_runs_with_its_smoke_settings(script, tmp_path):
    assert (ROOT / "configs" / f"{script.stem}.toml").is_file()
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, script, "--smoke", "--out", out],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # settings so small that nothing runs long
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["smoke"] is True
    assert (out / "config.toml").is_file()


def test_experiment_refuses_an_unknown_key_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPTS[0], "--out", tmp_path / "run", "no_such_key=1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no_such_key: unknown key" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
