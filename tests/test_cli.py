"""The command line: the main job in small, help texts, and one clear line for every kind of bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from small_jobs import ROLLOUT

import jaxdyn
from jaxdyn import JointDrives, System
from jaxdyn.cli import main
from jaxdyn.io.config import read_config
from jaxdyn.io.runs.loaded import load_run
from jaxdyn.jobs.rollout.config import RolloutConfig
from jaxdyn.jobs.verbs import _VERBS

CONFIGS = Path(__file__).parents[1] / "configs"
PANDA = str(CONFIGS / "panda_rollouts.toml")


@pytest.fixture
def pendulum(tmp_path) -> str:
    path = tmp_path / "pendulum.toml"
    path.write_text(ROLLOUT)
    return str(path)


def arrays_of(out: Path) -> dict[str, np.ndarray]:
    with np.load(out / "states.npz", allow_pickle=False) as file:
        return dict(file)


@pytest.fixture(scope="module")
def smoke_run(tmp_path_factory) -> Path:
    """The main job as a user runs it: a process of its own."""
    out = tmp_path_factory.mktemp("smoke") / "run"
    command = [sys.executable, "-m", "jaxdyn", "rollout", PANDA, "--smoke", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "steps/s" in done.stdout
    assert "100%" in done.stderr  # the progress bar
    return out


def test_main_job_leaves_a_self_contained_run_directory(smoke_run):
    metrics = json.loads((smoke_run / "metrics.json").read_text())
    assert metrics["samples"] == {"successful": 8, "stopped": 0, "diverged": 0, "step_failed": 0}
    for key in (
        "compile_s",
        "run_s",
        "steps_per_s",
        "dtype",
        "seed",
        "energy_final_mean_J",
        "power_balance_error_max_J",
    ):
        assert key in metrics
    for key in ("jaxdyn", "jax", "jaxlib", "python", "device", "x64"):
        assert key in metrics["environment"]
    for name in ("joint_fans.png", "energy_balance.png", "stick_figures.png"):
        assert (smoke_run / name).read_bytes().startswith(b"\x89PNG")
    run = load_run(smoke_run)
    assert (run.system.model.name, run.system.model.dtype, run.arrays["q"].shape) == ("panda", np.float32, (8, 3, 7))
    assert run.metrics | {"seal": metrics["seal"]} == metrics
    assert run.config["batch"] == 8
    assert run.provenance["environment"]["jaxdyn"] == metrics["environment"]["jaxdyn"]
    assert run.trajectory.saved.q.dtype == np.float32
    np.testing.assert_array_equal(run.trajectory.steps, run.arrays["steps"])
    np.testing.assert_allclose(run.trajectory.time[7], [0.0, 0.02, 0.04])
    assert repr(run).startswith("Run('panda', 8 samples)")
    assert read_config(smoke_run / "config.toml", RolloutConfig) == read_config(PANDA, RolloutConfig, smoke=True)


def test_saved_states_have_all_samples_and_records(smoke_run):
    arrays = arrays_of(smoke_run)
    assert arrays["q"].shape == (8, 3, 7)
    assert arrays["q"].dtype == np.float32
    np.testing.assert_allclose(arrays["time"], [0.0, 0.02, 0.04])
    assert len(np.unique(arrays["q"][:, 0])) == 8 * 7, "every sample and joint draws its own value"
    limits = jaxdyn.library.panda().limits
    start = arrays["q"][:, 0].astype(float)
    assert np.all((start > np.asarray(limits.lower)) & (start < np.asarray(limits.upper)))


def test_power_balance_error_falls_with_the_step(pendulum, tmp_path):
    errors = []
    for k, rate in enumerate((1000, 2000)):
        out = tmp_path / str(k)
        overrides = [f"time.rate={rate}", "initial.speed=2", "control.damping=0.4", "control.stiffness=3"]
        assert main(["rollout", pendulum, "--out", str(out), *overrides]) == 0
        errors.append(json.loads((out / "metrics.json").read_text())["power_balance_error_median_J"])
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.2)  # semi-implicit Euler: first order


def test_a_sample_is_the_same_motion_whatever_the_batch_and_the_records(pendulum, tmp_path):
    runs = {}
    for name, overrides in {"few": ["batch=2"], "many": ["batch=5"], "thin": ["batch=2", "time.save_every=10"]}.items():
        assert main(["rollout", pendulum, "control.random_torque=0.3", "--out", str(tmp_path / name), *overrides]) == 0
        runs[name] = arrays_of(tmp_path / name)
    # Other batch sizes and loops compile to other instructions: rounding of a few steps.
    np.testing.assert_allclose(runs["many"]["q"][:2], runs["few"]["q"], rtol=1e-12)
    np.testing.assert_allclose(runs["thin"]["q"], runs["few"]["q"][:, ::2], rtol=1e-12)


FOUR_BAR = """
name = "four-bar"
source = "invented for this test"
[[body]]
name = "crank"
joint = {kind = "revolute", axis = [0, 1, 0]}
mass = 1
inertia = [0.01, 0.01, 0.01]
[[body]]
name = "coupler"
parent = "crank"
position = [0.2, 0, 0]
joint = {kind = "revolute", axis = [0, 1, 0]}
mass = 1
inertia = [0.01, 0.01, 0.01]
[[rod]]
name = "rocker"
body_a = "coupler"
point_a = [0.5, 0, 0]
body_b = "ground"
point_b = [0.6, 0, 0]
length = "40 cm"
"""


def test_samples_of_a_closed_loop_start_closed_and_stay_so(pendulum, tmp_path, capsys):
    (tmp_path / "four_bar.toml").write_text(FOUR_BAR)
    command = ["rollout", pendulum, f"mechanism={tmp_path / 'four_bar.toml'}", "initial.speed=1"]
    command += ["control.target=initial", "--out"]
    assert main([*command, str(tmp_path / "run")]) == 0
    run = load_run(tmp_path / "run")
    system, arrays = run.system, run.arrays
    crank, coupler = arrays["q"][..., 0], arrays["q"].sum(axis=-1)
    x = 0.2 * np.cos(crank) + 0.5 * np.cos(coupler) - 0.6
    z = -0.2 * np.sin(crank) - 0.5 * np.sin(coupler)
    np.testing.assert_allclose(np.hypot(x, z)[:, 0], 0.4, rtol=1e-12)
    np.testing.assert_allclose(np.hypot(x, z), 0.4, rtol=1e-4)  # 20 steps of a first-order method
    assert np.all(arrays["v"] != 0)
    assert float(system.constraints[0].length) == 0.4
    (tmp_path / "four_bar.toml").write_text(FOUR_BAR.replace("[0.6, 0, 0]", "[6, 0, 0]"))
    assert main([*command, str(tmp_path / "torn")]) == 2
    assert "could not be closed from 3 of 3 random configurations; lower" in capsys.readouterr().err


def test_diverging_samples_are_counted_and_the_status_says_that_they_are_too_many(pendulum, tmp_path, capsys):
    overrides = ["initial.speed=3e5", "batch=64", "seed=1"]
    assert main(["rollout", pendulum, "--out", str(tmp_path / "run"), *overrides]) == 3
    samples = json.loads((tmp_path / "run" / "metrics.json").read_text())["samples"]
    assert samples["diverged"] > 0
    assert sum(samples.values()) == 64
    assert "diverged: A coordinate or velocity grew beyond the limit" in capsys.readouterr().out
    arrays = arrays_of(tmp_path / "run")
    assert np.all(np.isfinite(arrays["q"])), "a diverged sample is held at its last good state"


@pytest.mark.parametrize(("integrator", "target"), [("runge_kutta_4", "middle"), ("implicit_midpoint", "initial")])
def test_settings_reach_the_simulation(pendulum, tmp_path, integrator, target):
    overrides = [
        f"time.integrator={integrator}",
        f"control.target={target}",
        "control.stiffness=[2, 1]",
        "time.substeps=2",
    ]
    assert main(["rollout", pendulum, *overrides, "method=articulated_body", "--out", str(tmp_path / "run")]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["samples"]["successful"] == 3
    # Both methods keep the energy of 20 ms to far better than first order could.
    assert metrics["power_balance_error_max_J"] < (1e-6 if integrator == "runge_kutta_4" else 1e-3)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["{missing}"], ["nowhere.toml", "no such file", "check the path"]),
        (["{config}", "bach=3"], ["bach: unknown key", "did you mean 'batch'"]),
        (["{config}", "time.rate=2 kg"], ["time.rate", "'kg' does not fit", "Hz"]),
        (["{config}", "batch=many"], ["batch", "'many'"]),
        (["{config}", "batch=0"], ["batch", "positive"]),
        (
            ["{config}", "control.damping=[1, 2, 3]"],
            ["control.damping has 3 values; give 1, or 2: one per velocity component"],
        ),
        (["{config}", "time.save_every=3"], ["time.save_every = 3 does not divide the 20 steps", "choose a divisor"]),
        (
            ["{config}", "time.duration=0.1 ms"],
            ["time.duration = 0.0001 s is shorter than one step", "raise time.rate"],
        ),
        (["{config}", "time.rate=1e99"], ["samples of 0.02 s at 1e+99 Hz", "the limit is"]),
        (["{config}", "time.duration=1e308"], ["time.duration: 1e+308 is out of range", "at most"]),
        (["{config}", "control.random_interval=1e-12"], ["control.random_interval = 1e-12 s is shorter than a step"]),
        (["{config}", "seed=99999999999999999999"], ["seed: 99999999999999999999 is out of range"]),
        (["{config}", "mechanism=none.toml"], ["none.toml", "no such file"]),
        ([str(CONFIGS / "identify_panda.toml")], ["this is a config of another verb; run jaxdyn identify"]),
        (["{config}", "duraton=3"], ["duraton: unknown key", "did you mean 'time.duration'"]),
        (["{config}", "--out", "{full}"], ["is not empty", "choose another"]),
    ],
)
def test_bad_input_is_one_line_that_names_thing_and_remedy(arguments, fragments, pendulum, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    names = {"config": pendulum, "missing": str(tmp_path / "nowhere.toml"), "full": str(tmp_path / "full")}
    words = [word.format(**names) for word in arguments]
    if "--out" not in words:
        words += ["--out", str(tmp_path / "run")]
    assert main(["rollout", *words]) == 2
    message = capsys.readouterr().err
    assert len(message.strip().splitlines()) == 1
    for fragment in fragments:
        assert fragment in message
    assert not (tmp_path / "run").exists(), "the corrected command may use the same directory"


def test_an_interrupt_is_one_line(pendulum, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxdyn.jobs.rollout.work.rollout", interrupted)
    assert main(["rollout", pendulum, "--out", str(tmp_path / "run")]) == 130
    assert (
        capsys.readouterr().err.strip().splitlines()[-1]
        == "jaxdyn: interrupted; repeat the command with --resume to continue"
    )


def test_a_mechanism_comes_in_any_format_and_its_drives_are_said_not_to_be_used(pendulum, tmp_path, capsys):
    driven = System(jaxdyn.library.double_pendulum(), drives=JointDrives((1,), (1.0,)))
    jaxdyn.io.save_system(driven, tmp_path / "driven.urdf")
    assert main(["rollout", pendulum, "mechanism=driven.urdf", "--out", str(tmp_path / "urdf")]) == 0
    assert "driven.urdf: its drives are not used" in capsys.readouterr().out
    assert main(["rollout", pendulum, "--out", str(tmp_path / "toml")]) == 0
    np.testing.assert_allclose(arrays_of(tmp_path / "urdf")["q"], arrays_of(tmp_path / "toml")["q"], atol=1e-5)


def test_unwritable_directory_is_one_line(pendulum, tmp_path, capsys):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):  # root may write anywhere but here
        locked = Path("/proc")
    for resume in ([], ["--resume"]):
        assert main(["rollout", pendulum, "--out", str(locked / "run"), *resume]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "cannot be written" in line


def test_help_pages_fit_into_a_terminal(capsys):
    pages = {}
    for verb in (*_VERBS, None):
        with pytest.raises(SystemExit):
            main([verb, "--help"] if verb else ["--help"])
        pages[verb] = capsys.readouterr().out.splitlines()
        assert max(map(len, pages[verb])) <= 100, verb
    assert len(pages[None]) <= 25
    assert all(any(line.startswith(f"  {verb} ") for line in pages[None]) for verb in _VERBS)
    heading = next(k for k, line in enumerate(pages["rollout"]) if line.startswith("[time]: "))
    assert pages["rollout"][heading + 1].startswith("  time.duration (s): ")


def test_unknown_option_and_verb_are_refused(pendulum, capsys):
    for words in (["rollout", pendulum, "--fast"], ["walk", pendulum]):
        with pytest.raises(SystemExit) as done:
            main(words)
        assert done.value.code == 2


# --- convert ---


def test_convert_goes_from_urdf_to_toml_and_back_with_every_number(tmp_path, capsys):
    system = System(jaxdyn.library.panda())
    jaxdyn.io.save_system(system, tmp_path / "panda.urdf")
    for source, target in (("panda.urdf", "panda.toml"), ("panda.toml", "panda.json"), ("panda.json", "back.urdf")):
        assert main(["convert", str(tmp_path / source), str(tmp_path / target)]) == 0
    assert "panda.toml: panda, 7 bodies, nv = 7, 0 constraints" in capsys.readouterr().out
    back = jaxdyn.io.load_urdf(tmp_path / "back.urdf")
    assert back.model.topology == system.model.topology
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(system), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{urdf}", "{urdf}"], "the file already exists; choose another name or give --force"),
        (
            ["{urdf}", "out.sdf"],
            "the ending '.sdf' is not known; a mechanism is written to .toml, .urdf, .xml (MJCF) or .json",
        ),
        (["none.urdf", "out.toml"], "none.urdf: there is no such file"),
        (["{toml}", "out.urdf", "--base", "free"], "base is an option of URDF files"),
        (["{urdf}", "out.toml", "--drop", "jaxdyn"], "drop is an option of URDF and MJCF files"),
        (["{urdf}", "out.urdf", "--drop", "drivers"], "did you mean 'drives'"),
    ],
)
def test_what_convert_cannot_do_is_one_line(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jaxdyn.io.save_system(System(jaxdyn.library.double_pendulum()), "pendulum.urdf")
    names = {"urdf": "pendulum.urdf", "toml": str(CONFIGS / "mechanisms" / "double_pendulum.toml")}
    assert main(["convert", *(word.format(**names) for word in words)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert not list(tmp_path.glob("out.*"))
