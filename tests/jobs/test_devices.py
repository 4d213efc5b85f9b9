"""Jobs on one device and on four, and fits on two hosts: the same command, and the same results bit by bit."""

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from small_jobs import write_configs

from jaxdyn.jobs import hosts

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
# Jobs in one process, so that it starts, finds its hosts and compiles once; in each of the given folders, with its devices. The
# checkpoint after the second iteration of a fit on one device is kept. Of several hosts, the fit goes on in a last folder as if it
# had been halted then (where the first host is, which alone has files).
PROGRAM = """
import json, shutil, sys
from pathlib import Path
from jaxdyn.cli import main
from jaxdyn.io.runs.directory import RunDirectory

folder, outs, jobs = Path(sys.argv[1]), *map(json.loads, sys.argv[2:4])
halted, checkpoints, write = folder / "halted", [], RunDirectory.write_arrays

def write_and_keep(directory, name, **arrays):
    path = write(directory, name, **arrays)
    if "checkpoint" in path.name:
        checkpoints.append(path)
        if len(checkpoints) == 3 and not halted.exists():
            halted.mkdir()
            shutil.copy(path, halted)
    return path

def run(out, devices, *more):
    for verb, overrides in jobs.items():
        command = [verb, str(folder / f"{verb}.toml"), f"devices={devices}", "--out", str(out / verb), *overrides, *more]
        assert main(command) == (3 if verb == "identify" else 0), verb  # four steps of a fit are not enough

RunDirectory.write_arrays = write_and_keep
for name, devices in outs.items():
    out = folder / name
    run(out, devices)
if "hosts" in outs.values():
    again = out.with_name(f"{out.name}, halted")
    if out.exists():
        shutil.copytree(out, again)
        for path in (again / "identify").iterdir():
            if path.name not in ("config.toml", "provenance.json"):
                path.unlink()
        for path in halted.iterdir():
            shutil.copy(path, again / "identify")
    run(again, devices, "--resume")
import jax
print(f"{jax.device_count()} devices, {jax.process_count()} processes")
"""
ENVIRONMENT = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def start(folder: Path, outs: dict[str, str], *verbs: str, **more: str) -> subprocess.Popen:
    jobs = {verb: JOBS[verb] for verb in verbs}
    command = [sys.executable, "-c", PROGRAM, str(folder), *map(json.dumps, (outs, jobs))]
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
    """Configs, and the results of a process with four devices: of one of them in `one`, of all in `four`."""
    folder = tmp_path_factory.mktemp("devices")
    write_configs(folder)
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    (out,) = finish(start(folder, {"one": "one", "four": "all"}, *JOBS, XLA_FLAGS=flags))
    assert "4 devices, 1 processes" in out
    return folder


@pytest.fixture(scope="module")
def two_hosts(folder) -> list[str]:
    """Outputs of two processes that make one fit in the folder `two`; the second process is given another folder, `nowhere`."""
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    common = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"}
    places = enumerate(("two", "nowhere"))
    return finish(
        *[start(folder, {out: "hosts"}, "identify", JAX_PROCESS_ID=str(number), **common) for number, out in places]
    )


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


@pytest.mark.thorough
def test_two_hosts_give_the_bits_of_one_and_only_the_first_writes_and_talks(folder, two_hosts):
    first, second = two_hosts
    assert "2 devices, 2 processes" in first
    assert "2 devices in 2 processes" in first
    assert "physical check" in first
    assert "physical check" not in second
    assert not [*folder.glob("nowhere*")]
    assert_same(folder, "two", "identify")


@pytest.mark.thorough
def test_two_hosts_go_on_with_what_only_the_first_one_sees(folder, two_hosts):
    (checkpoint,) = (folder / "halted").iterdir()  # of one device
    assert checkpoint.name == "arm_checkpoint_0.npz"
    assert_same(folder, "two, halted", "identify")


@pytest.mark.parametrize(
    ("tasks", "bound", "visible", "devices", "said"),
    [
        ("1(x8)", {}, "all", 64, "64 devices on 8 hosts"),
        ("8(x8)", {}, "0", 64, "64 devices on 8 hosts"),
        ("2(x8)", {"SLURM_GPUS_PER_TASK": "1"}, "all", 16, "16 devices on 8 hosts; 48 GPUs of these hosts are idle"),
    ],
)
def test_a_task_of_slurm_takes_the_gpus_that_no_other_task_takes(tasks, bound, visible, devices, said, monkeypatch):
    given = {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_STEP_NUM_NODES": "8", "SLURM_GPUS_ON_NODE": "8"} | bound
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    update = functools.partial(jax.config.update, "jax_cuda_visible_devices")
    # What JAX does for the first task of each host.
    monkeypatch.setattr(jax.distributed, "initialize", lambda **options: update("0"))
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    try:
        hosts.join_hosts()
        assert jax.config.values["jax_cuda_visible_devices"] == visible
    finally:
        update("all")
    assert hosts.devices_in_words().startswith(said)


@pytest.mark.thorough
def test_hosts_that_nothing_names_are_one_clear_line(folder, tmp_path):
    process = start(folder, {str(tmp_path / "alone"): "hosts"}, "identify")
    _, error = process.communicate(timeout=300)
    assert process.returncode != 0
    line = next(line for line in error.splitlines() if line.startswith("jaxdyn:"))
    assert "JAX_COORDINATOR_ADDRESS (host:port of the first), JAX_NUM_PROCESSES and JAX_PROCESS_ID" in line
