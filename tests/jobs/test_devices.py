"""Jobs on one device, on four, and on two hosts: the same command, and the same results bit by bit."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_jobs import interrupt_at_arrays, write_configs

from jaxdyn.cli import main

pytestmark = pytest.mark.long

JOBS = {
    "rollout": ["batch=10", "chunk=6", "initial.speed=1", "control.random_torque=0.3"],
    "identify": ["fit.starts=3", "fit.iterations=4", "pictures=false"],
    # A solver that compiles in half the time of the default one: what is tried is how starts are dealt out and gathered.
    "optimize": ["iterations=5", "chunk=4", "solver={kind='predictive', samples=8, knots=4}"],
}
# Three jobs in one process, so that it starts and finds its hosts once.
PROGRAM = """
import json, sys
from pathlib import Path
from jaxdyn.cli import main

folder, out, devices, jobs = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
for verb, overrides in jobs.items():
    command = [verb, str(folder / f"{verb}.toml"), f"devices={devices}", "--out", str(out / verb), *overrides, *sys.argv[5:]]
    assert main(command) == 0, verb
import jax
print(f"{verb}: {jax.device_count()} devices, {jax.process_count()} processes")
"""
ENVIRONMENT = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def start(folder: Path, out: str, devices: str, *words: str, **more: str) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, str(folder), str(folder / out), devices, json.dumps(JOBS), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=ENVIRONMENT | more, **pipes)


def finish(*processes: subprocess.Popen) -> list[str]:
    try:
        said = [process.communicate(timeout=900) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, error) in zip(processes, said, strict=True):
        assert process.returncode == 0, error[-3000:]
    return [out for out, _ in said]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Configs, and the results of one device in `one`."""
    folder = tmp_path_factory.mktemp("devices")
    write_configs(folder)
    (out,) = finish(start(folder, "one", "one"))
    assert "1 devices, 1 processes" in out
    return folder


def two_hosts(folder: Path, *more: str) -> list[subprocess.Popen]:
    """Two processes that work on one run in `two`; the second one is told another place."""
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    common = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"}
    return [
        start(folder, out, "hosts", *more, JAX_PROCESS_ID=str(number), **common)
        for number, out in enumerate(("two", "nowhere"))
    ]


def assert_same(folder: Path, other: str) -> None:
    files = {path.relative_to(folder / "one") for path in (folder / "one").rglob("*.npz")}
    assert files == {path.relative_to(folder / other) for path in (folder / other).rglob("*.npz")}
    names = {str(file) for file in files}
    assert {"rollout/states-00002-of-00002.npz", "identify/arm_estimates.npz", "optimize/searches.npz"} <= names
    for file in files:
        with np.load(folder / "one" / file) as expected, np.load(folder / other / file) as found:
            assert expected.files == found.files
            for key in expected.files:
                np.testing.assert_array_equal(found[key], expected[key], err_msg=f"{file}: {key}")


def test_four_devices_give_the_bits_of_one(folder):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    (out,) = finish(start(folder, "four", "all", XLA_FLAGS=flags))
    assert "4 devices, 1 processes" in out
    assert_same(folder, "four")


def test_two_hosts_give_the_bits_of_one_and_only_the_first_writes_and_talks(folder):
    first, second = finish(*two_hosts(folder))
    assert "2 devices, 2 processes" in first
    assert "samples: 10 completed" in first
    assert "samples:" not in second
    assert not (folder / "nowhere").exists()
    assert_same(folder, "two")


def test_two_hosts_go_on_with_what_only_the_first_one_sees(folder, monkeypatch):
    two = folder / "two"
    for verb, lost in (("rollout", "states-00002-of-00002.npz"), ("optimize", "solutions-00002-of-00002.npz")):
        for name in (lost, "metrics.json"):
            (two / verb / name).unlink()
    # A fit that has come as far as its second iteration.
    for path in (two / "identify").iterdir():
        if path.name not in ("config.toml", "provenance.json"):
            path.unlink()
    halted = folder / "halted"
    with monkeypatch.context() as patch:
        interrupt_at_arrays(patch, 3)
        assert main(["identify", str(folder / "identify.toml"), *JOBS["identify"], "--out", str(halted)]) == 130
    (checkpoint,) = halted.glob("*.npz")
    checkpoint.rename(two / "identify" / checkpoint.name)
    first, _ = finish(*two_hosts(folder, "--resume"))
    assert "2 devices, 2 processes" in first
    assert not (folder / "nowhere").exists()
    assert_same(folder, "two")


def test_hosts_that_nothing_names_are_one_clear_line(folder, tmp_path):
    process = start(folder, str(tmp_path / "alone"), "hosts")
    _, error = process.communicate(timeout=300)
    assert process.returncode != 0
    line = next(line for line in error.splitlines() if line.startswith("jaxdyn:"))
    assert "JAX_COORDINATOR_ADDRESS (host:port of the first), JAX_NUM_PROCESSES and JAX_PROCESS_ID" in line
