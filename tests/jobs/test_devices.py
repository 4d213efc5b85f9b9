"""Jobs on one device and on four: the same command, and the same results bit by bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_jobs import write_configs

pytestmark = pytest.mark.long

JOBS = {
    "rollout": ["batch=10", "chunk=6", "initial.speed=1", "control.random_torque=0.3"],
    "identify": ["fit.starts=3", "fit.max_steps=4", "pictures=false"],
    # A solver that compiles in half the time of the default one, a short step, and equal chunks, which two and four devices fill
    # up with a copy: what is tried is how starts are dealt out and gathered.
    "optimize": [
        "max_steps=5",
        "chunk=3",
        "solver={kind='sampling', update='predictive', samples=8, knots=4}",
        "time.integrator=semi_implicit_euler",
    ],
}
# Jobs in one process, so that it starts and compiles once; in each of the given folders, with its devices.
PROGRAM = """
import json, sys
from pathlib import Path
from jaxdyn.cli import main

folder, outs, jobs = Path(sys.argv[1]), *map(json.loads, sys.argv[2:4])
for name, devices in outs.items():
    for verb, overrides in jobs.items():
        command = [verb, str(folder / f"{verb}.toml"), f"devices={devices}", "--out", str(folder / name / verb), *overrides]
        assert main(command) == (3 if verb == "identify" else 0), verb  # four steps of a fit are not enough
import jax
print(f"{jax.device_count()} devices")
"""
ENVIRONMENT = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Configs, and the results of a process with four devices: of one of them in `one`, of all in `four`."""
    folder = tmp_path_factory.mktemp("devices")
    write_configs(folder)
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    command = [sys.executable, "-c", PROGRAM, str(folder), *map(json.dumps, ({"one": "one", "four": "all"}, JOBS))]
    ended = subprocess.run(command, env=ENVIRONMENT | {"XLA_FLAGS": flags}, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "4 devices" in ended.stdout
    return folder


def assert_same(folder: Path, other: str, *verbs: str) -> None:
    files = {path.relative_to(folder / "one") for verb in verbs for path in (folder / "one" / verb).rglob("*.npz")}
    assert files == {path.relative_to(folder / other) for path in (folder / other).rglob("*.npz")}
    names = {str(file) for file in files}
    known = {"rollout/states-00002-of-00002.npz", "identify/arm_estimates.npz", "optimize/searches.npz"}
    assert len(names & known) == len(verbs)
    for file in files:
        with np.load(folder / "one" / file) as expected, np.load(folder / other / file) as found:
            assert expected.files == found.files
            for key in expected.files:
                np.testing.assert_array_equal(found[key], expected[key], err_msg=f"{file}: {key}")


@pytest.mark.thorough
def test_four_devices_give_the_bits_of_one(folder):
    assert_same(folder, "four", *JOBS)
