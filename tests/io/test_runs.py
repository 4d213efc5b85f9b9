"""Run directories: nothing is overwritten, nothing half written, nothing outside, and numbers come back as they were."""

import importlib.metadata
import json
import math
import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import JointFriction, System, library
from jaxdyn.io.config import ConfigError
from jaxdyn.io.files import write_files
from jaxdyn.io.runs import provenance
from jaxdyn.io.runs.directory import RunDirectory, RunError
from jaxdyn.io.runs.loaded import load_run
from jaxdyn.io.runs.provenance import environment


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", "test")


def test_default_directory_is_named_by_job_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = RunDirectory.create(None, "rollout").root
    assert root.parent == Path("runs")
    assert root.is_dir()
    name, day, time = root.name.split("-")
    assert (name, len(day), len(time)) == ("rollout", 8, 6)
    assert (day + time).isdigit()


def test_directory_with_content_is_refused_and_untouched(tmp_path, refusal):
    assert RunDirectory.create(tmp_path, "test").root == tmp_path  # empty: fine
    (tmp_path / "note.txt").write_text("mine")
    message = refusal(RunError, RunDirectory.create, tmp_path, "test")
    assert str(tmp_path) in message
    assert "not empty; choose another one or delete it" in message
    assert [file.name for file in tmp_path.iterdir()] == ["note.txt"]


def test_directory_that_cannot_be_written_is_refused_at_once(tmp_path, refusal, monkeypatch):
    (tmp_path / "file").write_text("")
    message = refusal(RunError, RunDirectory.create, tmp_path / "file" / "run", "test")
    assert f"{tmp_path}/file/run: cannot be written (Not a directory); choose another run directory" in message

    def read_only(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.touch", read_only)
    assert "cannot be written (Permission denied)" in refusal(RunError, RunDirectory.create, tmp_path / "run", "test")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", ".", "", "link/x"])
def test_name_that_leads_out_of_the_directory_is_refused(run, tmp_path, refusal, name):
    (run.root / "link").symlink_to(tmp_path)
    message = refusal(RunError, run.path, name)
    assert f"{name!r} is not a file in the run directory; give a plain name" in message


def test_files_may_lie_in_folders_of_the_directory(run):
    assert run.write_arrays("lanes/first", x=np.ones(2)) == run.path("lanes/first.npz")
    assert run.path("lanes/first.npz").is_file()


def test_metrics_come_back_and_are_standard_json(run):
    metrics = {
        "count": 3,
        "ok": np.bool_(True),
        "error": np.float32(0.25),
        "slope": jnp.asarray(2.5),
        "table": {"per_joint": jnp.arange(3.0), "names": ("a", "b")},
        "where": Path("x"),
        "none": None,
    }
    run.write_metrics(metrics)
    assert run.read_metrics() == {
        "count": 3,
        "ok": True,
        "error": 0.25,
        "slope": 2.5,
        "table": {"per_joint": [0.0, 1.0, 2.0], "names": ["a", "b"]},
        "where": "x",
        "none": None,
    }


def test_what_json_has_no_number_for_becomes_text_that_float_reads(run):
    run.write_metrics({"x": math.nan, "y": [np.inf, jnp.asarray([-jnp.inf])]})

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    metrics = json.loads(run.path("metrics.json").read_text(), parse_constant=refuse)
    assert metrics.pop("seal")
    assert metrics == {"x": "nan", "y": ["inf", ["-inf"]]}
    assert math.isnan(float(metrics["x"]))
    assert float(metrics["y"][0]) == math.inf


def test_metric_without_a_form_in_json_is_refused(run):
    with pytest.raises(TypeError, match="complex"):
        run.write_metrics({"x": 1j})
    assert list(run.root.iterdir()) == []


def test_arrays_come_back_bit_by_bit_under_any_name(run):
    arrays = {
        "q": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32),
        "steps": jnp.arange(5),
        "file": np.array(["names", "too"]),  # `file`, `name` and `self` are parameters of functions that write arrays
        "name": np.zeros((0, 2)),
        "self": np.array(True),
    }
    run.write_arrays("states", **arrays)
    back = run.read_arrays("states")
    assert back.keys() == arrays.keys()
    for key, array in arrays.items():
        assert back[key].dtype == array.dtype
        np.testing.assert_array_equal(back[key], array)


def test_python_objects_are_never_pickled(run):
    with pytest.raises(ValueError, match="allow_pickle=False"):
        run.write_arrays("states", x=np.array([{}]))
    assert list(run.root.iterdir()) == []
    np.save(run.path("states.npz"), np.array([{}]), allow_pickle=True)  # writes states.npz.npy
    os.replace(run.path("states.npz.npy"), run.path("states.npz"))
    with pytest.raises(RunError, match="not an npz file"):
        run.read_arrays("states")


def test_file_is_complete_or_absent(run, refusal, monkeypatch):
    run.write_text("config.toml", "a = 1\n")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    message = refusal(RunError, run.write_text, "config.toml", "a = 2\n")
    assert "config.toml: cannot be written (No space left on device); free disk space" in message
    assert run.path("config.toml").read_text() == "a = 1\n"
    assert [file.name for file in run.root.iterdir()] == ["config.toml"]


def test_two_processes_may_write_one_file_at_a_time(tmp_path):
    both, path = threading.Barrier(2, timeout=60), tmp_path / "file"

    def fill(file):
        file.write(b"begun")
        both.wait()
        file.write(b" and complete")

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: write_files({path: fill}), range(2)))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "begun and complete")]


def test_a_file_that_cannot_be_completed_leaves_nothing(tmp_path):
    for error in (OSError, ValueError, KeyboardInterrupt):

        def fill(file, error=error):
            file.write(b"begun")
            raise error

        with pytest.raises(error):
            write_files({tmp_path / "file": fill})
        assert not list(tmp_path.iterdir())


def test_directory_removed_during_the_run_is_one_clear_line(run, refusal):
    run.root.rmdir()
    run.root.write_text("in the way")
    assert "config.toml: cannot be written" in refusal(RunError, run.write_text, "config.toml", "a = 1\n")


def test_run_is_loaded_from_its_directory_alone(run, tmp_path, refusal):
    system = System(library.double_pendulum(), (JointFriction([1.0, 2.0], [0.0, 0.0], [1.0, 1.0]),))
    run.write_mechanism(system)
    run.write_arrays("states", q=np.ones((2, 3, 2)))
    moved = tmp_path / "moved"
    run.root.rename(moved)
    loaded = load_run(moved)
    assert bool(eqx.tree_equal(loaded.system, system))
    np.testing.assert_array_equal(loaded.arrays["q"], np.ones((2, 3, 2)))
    assert (loaded.config, loaded.metrics, loaded.provenance) == (None, None, None)
    moved_run = RunDirectory(moved)
    for wrong in ({"x": np.ones(3)}, {"q": np.array(1.0)}, {"time": np.ones(3), "q": np.ones(3), "v": np.array(2.0)}):
        moved_run.write_arrays("states", **wrong)
        assert "the states do not fit together" in refusal(RunError, load_run, moved)
    (moved / "states.npz").unlink()
    assert "states.npz: there is no such file" in refusal(RunError, load_run, moved)
    (moved / "mechanism.npz").unlink()
    assert "mechanism.npz: there is no such file" in refusal(ConfigError, load_run, moved)


def recorded_run(run: RunDirectory, **arrays: np.ndarray) -> None:
    """A run of the double pendulum with two samples and three records; given arrays replace or extend them."""
    run.write_mechanism(System(library.double_pendulum()))
    states = {"time": np.array([0.0, 0.5, 1.0]), "q": np.arange(12.0).reshape(2, 3, 2), "v": np.ones((2, 3, 2))}
    run.write_arrays("states", **(states | arrays))


def test_a_loaded_run_holds_what_was_written_and_shows_itself(run):
    run.begin("batch = 2\n[time]\nrate = 8\n", None)
    recorded_run(run, result=np.array([0, 2], np.int32), steps=np.array([8, 3], np.int32))
    run.write_metrics({"job": "rollout", "backend": "lanes", "\x1b[31m": 1})
    loaded = load_run(str(run.root))
    assert loaded.config == {"batch": 2, "time": {"rate": 8}}
    assert loaded.metrics["job"] == "rollout"
    trajectory = loaded.trajectory
    np.testing.assert_array_equal(trajectory.saved.q, loaded.arrays["q"])
    np.testing.assert_array_equal(trajectory.time, [[0.0, 0.5, 1.0]] * 2)
    np.testing.assert_array_equal(trajectory.final.q, loaded.arrays["q"][:, -1])
    assert (trajectory.steps.tolist(), trajectory.healthy.tolist()) == ([8, 3], [True, False])
    assert trajectory.backend == "lanes"
    shown = repr(loaded)
    assert shown.startswith("Run('double_pendulum', 2 samples)")
    assert "1 successful, 1 diverged" in shown
    assert "batch, time" in shown
    assert shown.count("\n") < 10
    assert "\x1b" not in shown
    assert loaded._repr_html_().count("data:image/png") == 1


def test_a_run_without_results_of_its_samples_counts_as_completed(run):
    recorded_run(run)
    trajectory = load_run(run.root).trajectory
    assert trajectory.steps.tolist() == [2, 2]
    assert np.all(trajectory.healthy)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"v": np.ones((2, 3, 1))}, "do not fit the system"),
        ({"time": np.ones(4)}, "do not fit the system"),
        ({"q": np.ones(2), "v": np.ones(2)}, "do not fit the system"),
    ],
)
def test_a_run_whose_arrays_are_no_states_has_no_trajectory(run, refusal, arrays, reason):
    recorded_run(run, **arrays)
    loaded = load_run(run.root)
    assert reason in refusal(RunError, lambda: loaded.trajectory)
    assert "no picture" in loaded._repr_html_()


def test_a_run_of_the_coordinates_alone_has_a_table_and_no_trajectory(run, refusal):
    run.write_mechanism(System(library.double_pendulum()))
    run.write_arrays("states", q=np.ones((2, 3, 2)))
    loaded = load_run(run.root)
    assert "did not record 'time'" in refusal(RunError, lambda: loaded.trajectory)
    assert "picture" not in loaded._repr_html_()


@pytest.mark.usefixtures("as_a_user")
def test_a_part_of_a_run_has_a_table_and_wrong_choices_are_named(run):
    recorded_run(run)
    part = load_run(run.root, arrays=["q"], samples=np.int64(1))
    assert repr(part).startswith("Run('double_pendulum', 1 sample)")
    assert repr(load_run(run.root, arrays=["time"])).startswith("Run('double_pendulum')")
    assert list(load_run(run.root, arrays=(name for name in ("time", "q"))).arrays) == ["time", "q"]
    for options, message in (
        ({"samples": 1.5}, "samples is 1.5; give an integer"),
        ({"samples": [0, 1]}, "samples is .*; give an integer"),
        ({"arrays": "q"}, "arrays: 'q' is not a list; give a list"),
        ({"arrays": 3}, "arrays: an int is not a list; give a list"),
    ):
        with pytest.raises(TypeError, match=message):
            load_run(run.root, **options)
    with pytest.raises(ValueError, match="samples is -1; give 0 or more"):
        load_run(run.root, samples=-1)


@pytest.mark.parametrize("name", ["config.toml", "metrics.json", "provenance.json"])
@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff", b"3 = = 3"])
def test_a_damaged_text_file_of_a_run_is_named(run, refusal, name, text):
    recorded_run(run)
    run.path(name).write_bytes(text)
    assert f"{name}: it is damaged" in refusal(RunError, load_run, run.root)


def test_environment_tells_versions_device_and_precision():
    found = environment()
    json.dumps(found)
    assert found["jaxdyn"] == importlib.metadata.version("jaxdyn")
    assert found["jax"] == jax.__version__
    assert (found["x64"], found["dtype"]) == (True, "float64")  # as conftest.py sets them
    assert found["device_count"] == jax.device_count()
    assert {"jaxlib", "equinox", "numpy", "python", "platform", "device", "device_platform", "commit"} <= found.keys()


def test_environment_does_without_git_and_without_installation(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.metadata.version", absent)
    found = environment()
    assert (found["commit"], found["jaxdyn"]) == (None, None)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_checkout_and_of_no_repository_around_an_installed_package(tmp_path, monkeypatch):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True)

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    for folder, expected in ((tmp_path, git("rev-parse", "HEAD").stdout.strip()), (tmp_path / "site-packages", None)):
        (folder / "jaxdyn").mkdir(parents=True)
        monkeypatch.setattr(provenance, "_PACKAGE", folder / "jaxdyn")
        assert provenance._commit() == expected
