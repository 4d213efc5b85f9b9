"""A run goes on with what it was started with or not at all, computes again what is damaged, and has one process at a time."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import pendulum_plant
from small_jobs import contents, without_digests, write_configs

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.io.archive.plant import save_plant
from jaxdyn.io.config import ConfigError, read_config, resolved_toml
from jaxdyn.io.runs import claims, provenance
from jaxdyn.io.runs.directory import RunDirectory, RunError
from jaxdyn.io.runs.loaded import load_run
from jaxdyn.io.system_file import files_of
from jaxdyn.jobs.identify.config import IdentifyConfig
from jaxdyn.jobs.job import Job
from jaxdyn.jobs.rollout.config import RolloutConfig
from jaxdyn.jobs.verbs import IDENTIFY, OPTIMIZE, ROLLOUT

JOBS = {job.name: job for job in (ROLLOUT, IDENTIFY, OPTIMIZE)}
OVERRIDES = {
    "rollout": ["mechanism=arm.toml", "batch=6", "chunk=2", "initial.speed=1"],
    "identify": [],
    "optimize": ["mechanism=machine.toml"],
}
PENDULUM = """
name = "pendulum"
source = "invented for this test"
[[body]]
name = "rod"
joint = {kind = "revolute", axis = [0, 1, 0]}
mass = 1
com = [0, 0, -0.5]
inertia = [0.09, 0.08, 0.02]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Configs and mechanisms."""
    folder = tmp_path_factory.mktemp("resume")
    write_configs(folder)
    (folder / "machine.toml").write_text(PENDULUM)
    return folder


@pytest.fixture(scope="module")
def whole(folder) -> Path:
    """A complete run of rollouts."""
    assert main(command(folder, "rollout", folder / "whole")) == 0
    return folder / "whole"


def command(folder: Path, verb: str, out: Path) -> list[str]:
    return [verb, str(folder / f"{verb}.toml"), *OVERRIDES[verb], "--out", str(out), "--resume"]


def begun(folder: Path, verb: str, out: Path) -> list[str]:
    """Begin a run as a job does, with a first file of arrays; the command that resumes it."""
    config = read_config(folder / f"{verb}.toml", JOBS[verb].config_class, OVERRIDES[verb])
    run, text = RunDirectory.create(out, verb), resolved_toml(config)
    run.begin(text, provenance.provenance(text, inputs(JOBS[verb], config)))
    run.write_arrays("results", x=np.ones(3))
    return command(folder, verb, out)


def inputs(job: Job, config: Any) -> list[tuple[str, Path]]:
    assert job.inputs is not None
    return list(job.inputs(config))


def halted(whole: Path, out: Path) -> list[str]:
    """A copy of a run as if it had been killed just before its end, and the command that resumes it."""
    shutil.copytree(whole, out)
    (out / "metrics.json").unlink()
    return command(whole.parent, "rollout", out)


def arrays(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*.npz")}


def refusal(words: list[str], capsys) -> str:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.parametrize(("verb", "mechanism"), [("rollout", "arm"), ("identify", "arm"), ("optimize", "machine")])
def test_a_changed_mechanism_is_refused_by_name_and_nothing_is_touched(verb, mechanism, folder, tmp_path, capsys):
    words = begun(folder, verb, tmp_path / "run")
    before, path = arrays(tmp_path / "run"), folder / f"{mechanism}.toml"
    text = path.read_text()
    try:
        path.write_text(text.replace("mass = 1", "mass = 2"))
        said = refusal(words, capsys)
        path.unlink()
        gone = refusal(words, capsys)
    finally:
        path.write_text(text)
    assert f"the mechanism {path} has changed since the run was started; restore it; or choose another" in said
    assert f"the mechanism {path} is missing" in gone
    assert arrays(tmp_path / "run") == before


@pytest.mark.parametrize("verb", JOBS)
@pytest.mark.parametrize(("name", "now"), [("jax", "0.99.0"), ("sources", "0123456789abcdef"), ("device", "H200")])
def test_other_code_versions_and_devices_are_refused_by_name(verb, name, now, folder, tmp_path, monkeypatch, capsys):
    words = begun(folder, verb, tmp_path / "run")
    real = provenance.environment()
    monkeypatch.setattr("jaxdyn.io.runs.provenance.environment", lambda: real | {name: now})
    said = refusal(words, capsys)
    assert f"the run was started with {name} {real[name]}, now {now}; resume it with these versions; or choose" in said


def test_what_cannot_change_a_result_is_not_pinned(monkeypatch):
    before = provenance.provenance("", [])
    real = provenance.environment()
    other = {"commit": "0", "platform": "Linux-7", "device_count": 8}
    monkeypatch.setattr("jaxdyn.io.runs.provenance.environment", lambda: real | other)
    now = provenance.provenance("", [])
    assert provenance.changes(before, now) == []
    assert provenance.identity(before) == provenance.identity(now)
    accelerator = {"environment": real | {"device_platform": "gpu"}, "inputs": {}, "config": ""}
    eight = accelerator | {"environment": accelerator["environment"] | {"device_count": 8}}
    (clause,) = provenance.changes(accelerator, eight)
    assert "device_count 1, now 8" in clause


def test_the_number_of_cpu_devices_is_the_only_flag_of_xla_that_is_not_pinned(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true --xla_force_host_platform_device_count=4")
    assert provenance.environment()["xla_flags"] == "--xla_cpu_enable_fast_math=true"


def test_plans_and_recordings_are_pinned_and_no_path_of_a_config_is_forgotten(tmp_path):
    write_configs(tmp_path)
    found = inputs(ROLLOUT, read_config(tmp_path / "rollout.toml", RolloutConfig, ["control.replay=plan.npz"]))
    assert ("plan", tmp_path / "plan.npz") in found
    text = (tmp_path / "identify.toml").read_text()
    head, rest = text.split("[[study]]", 1)
    assert "[synthetic]" in head
    (tmp_path / "identify.toml").write_text(f'data = "records"\n[[study]]{rest}')
    overrides = ['study=[{name="arm", mechanism_in_data="arm.urdf", train=["a.csv"], validation=["b.npz"]}]']
    config = read_config(tmp_path / "identify.toml", IdentifyConfig, overrides)
    assert inputs(IDENTIFY, config) == [
        ("mechanism", tmp_path / "records" / "arm.urdf"),
        ("recording", tmp_path / "records" / "a.csv"),
        ("recording", tmp_path / "records" / "b.npz"),
    ]


def test_files_of_a_mechanism_are_all_that_it_is_made_of(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "main.xml").write_text(
        '<mujoco><compiler meshdir="parts"/><include file="parts/arm.xml"/>'
        '<asset><mesh file="link.stl"/><mesh file="absent.stl"/></asset></mujoco>'
    )
    (tmp_path / "parts" / "arm.xml").write_text('<mujocoinclude><include file="parts/hand.xml"/></mujocoinclude>')
    (tmp_path / "parts" / "hand.xml").write_text('<mujocoinclude><include file="main.xml"/></mujocoinclude>')
    (tmp_path / "parts" / "link.stl").write_text("solid")
    names = ("main.xml", "parts/arm.xml", "parts/hand.xml", "parts/link.stl")
    assert set(files_of(tmp_path / "main.xml")) == {tmp_path / name for name in names}
    assert files_of(tmp_path / "a.npz") == [tmp_path / "a.json", tmp_path / "a.npz"]
    assert files_of(tmp_path / "a.urdf") == [tmp_path / "a.urdf"]


def test_a_run_of_an_older_jaxdyn_is_not_resumed_but_loads(whole, tmp_path, capsys):
    words = halted(whole, tmp_path / "run")
    (tmp_path / "run" / "provenance.json").unlink()
    for path in (tmp_path / "run").glob("states-*.npz"):
        with np.load(path) as file:
            content = dict(file)
        np.savez(path, **content)
    assert "no provenance.json, so the run was started by an older jaxdyn" in refusal(words, capsys)
    loaded, expected = load_run(tmp_path / "run").arrays, load_run(whole).arrays
    for key, array in expected.items():
        np.testing.assert_array_equal(loaded[key], array)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"config": 1, "inputs": [], "environment": 2}', "\ud800"])
def test_a_damaged_provenance_is_one_line(text, whole, tmp_path, capsys):
    words = halted(whole, tmp_path / "run")
    (tmp_path / "run" / "provenance.json").write_bytes(text.encode("utf-16", "surrogatepass"))
    assert "provenance.json: it is damaged" in refusal(words, capsys)
    with pytest.raises(RunError, match=r"provenance.json: it is damaged"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_a_damaged_file_of_a_complete_run_is_named_and_written_again_or_the_run_is_refused(at, whole, tmp_path, capsys):
    """For every file that is read again, at three places."""
    names = ["mechanism.json", "mechanism.npz", "metrics.json", "config.toml", "provenance.json"]
    names += [path.name for path in whole.glob("states*.npz")]
    shutil.copytree(whole, tmp_path / "run")
    words, sound = command(whole.parent, "rollout", tmp_path / "run"), contents(whole)
    for name in names:
        path = tmp_path / "run" / name
        flip(path, at)
        with pytest.raises((RunError, ConfigError), match=name):
            load_run(tmp_path / "run")
        status = main(words)
        said = capsys.readouterr()
        if name == "provenance.json":
            assert (status, len(said.err.splitlines())) == (2, 1)
            assert f"{name}: it is damaged" in said.err
            shutil.copy(whole / name, path)
        else:
            assert status == 0, said.err
            assert f"note: {path}" in said.out
            assert "damaged" in said.out
        assert contents(tmp_path / "run") == sound
        assert load_run(tmp_path / "run").metrics == RunDirectory(tmp_path / "run").read_metrics()


def test_a_complete_run_of_the_time_before_digests_is_complete_and_loads(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "run")
    without_digests(tmp_path / "run" / "mechanism.npz")
    for name, later in (("metrics.json", ("seal", "archives")), ("provenance.json", ("seal",))):
        content = json.loads((tmp_path / "run" / name).read_text())
        kept = {key: value for key, value in content.items() if key not in later}
        (tmp_path / "run" / name).write_text(json.dumps(kept))
    assert main(command(whole.parent, "rollout", tmp_path / "run")) == 0
    assert "the run is already complete" in capsys.readouterr().out
    assert load_run(tmp_path / "run").system.model.name == load_run(whole).system.model.name


def test_a_damaged_plant_of_a_complete_run_is_named(tmp_path, capsys):
    run = RunDirectory.create(tmp_path / "run", "test")
    save_plant(pendulum_plant(), run.root / "arm")
    for path in (run.root / "arm.json", run.root / "arm.npz"):
        run.write_metrics({name: run.sealed_names(archives=name == "archives") for name in ("arrays", "archives")})
        assert run.is_complete()
        sound = path.read_bytes()
        flip(path)
        assert not run.is_complete()
        assert f"note: {path} is missing or damaged" in capsys.readouterr().out
        path.write_bytes(sound)


def flip(path: Path, at: float = 0.5) -> None:
    """Change one bit of a file, at a part of its length."""
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 1
    path.write_bytes(content)


def test_chunks_that_are_damaged_swapped_or_of_another_run_are_named_and_computed_again(whole, tmp_path, capsys):
    words = halted(whole, tmp_path / "run")
    first, second, third = (tmp_path / "run" / f"states-0000{k}-of-00003.npz" for k in (1, 2, 3))
    second.write_bytes(first.read_bytes())
    flip(first)
    other = RunDirectory.create(tmp_path / "other", "test")
    other.begin("seed = 7\n", provenance.provenance("seed = 7\n", []))
    with np.load(third) as file:
        other.write_arrays(third.stem, **file)
    shutil.copy(tmp_path / "other" / third.name, third)
    with pytest.raises(
        RunError, match=r"00001-of-00003.npz: it is damaged or belongs to another run; compute it again"
    ):
        load_run(tmp_path / "run")
    assert main(words) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note:")]
    assert notes == [
        f"note: {path} is damaged or belongs to another run; it is computed again" for path in (first, second, third)
    ]
    assert arrays(tmp_path / "run") == arrays(whole)


def test_no_bit_of_a_sealed_file_can_change_unseen(tmp_path, exhaustive):
    run = RunDirectory.create(tmp_path / "run", "test")
    run.begin("", provenance.provenance("", []))
    path = run.write_arrays("states", q=np.arange(3.0), file=np.zeros(2, np.int8))
    content = path.read_bytes()
    assert run.is_intact("states")
    for bit in range(0, 8 * len(content), 1 if exhaustive else 61):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        assert not run.is_intact("states"), bit
    for part in (b"", content[:10], content[:-1], content + b"0"):
        path.write_bytes(part)
        assert not run.is_intact("states")


def test_a_fit_is_alone_in_its_run_and_a_process_that_has_ended_holds_nothing(folder, tmp_path, capsys):
    words = begun(folder, "identify", tmp_path / "run")
    lock = tmp_path / "run" / "run.lock"
    with claims.claimed(lock) as holder:
        assert holder is None
        said = refusal(words, capsys)
        held = lock.read_text()
    assert not lock.exists()
    assert f"run: process {os.getpid()} on " in said
    assert "is working on this run; wait until it ends, or choose another directory" in said
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lock.write_text(held.replace(str(os.getpid()), str(ended.pid)))
    with claims.claimed(lock) as holder:
        assert holder is None


def test_a_directory_in_which_another_run_began_in_the_meantime_is_refused(tmp_path):
    first, second = (RunDirectory.create(tmp_path / "run", "test") for _ in range(2))
    first.begin("a = 1\n", provenance.provenance("a = 1\n", []))
    with pytest.raises(RunError, match="not empty"):
        second.begin("a = 2\n", provenance.provenance("a = 2\n", []))
    assert first.path("config.toml").read_text() == "a = 1\n"


def test_a_rollout_keeps_the_method_and_the_stabilization_of_an_archive(folder, tmp_path):
    system = jaxdyn.System(jaxdyn.library.double_pendulum(), method="articulated_body", stabilization=15.5)
    jaxdyn.io.save_archive(system, tmp_path / "machine")
    words = ["rollout", str(folder / "rollout.toml"), f"mechanism={tmp_path / 'machine.json'}"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    simulated = load_run(tmp_path / "run").system
    assert (simulated.method, simulated.stabilization) == ("articulated_body", 15.5)
    assert json.loads((tmp_path / "run" / "provenance.json").read_text())["inputs"].keys() == {
        f"mechanism {tmp_path / name}" for name in ("machine.json", "machine.npz")
    }
