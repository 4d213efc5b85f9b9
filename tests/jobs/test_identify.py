"""`jaxdyn identify` on machines whose truth is known: what it finds, what it leaves behind, and one clear line for bad input."""

import contextlib
import io
import json
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_jobs import interrupt_at_arrays, write_configs

from jaxdyn import JointFriction, State, rollout
from jaxdyn.cli import main
from jaxdyn.identify.levenberg_marquardt import LevenbergMarquardt
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.identify.verdict import UNRELIABLE
from jaxdyn.io.archive.plant import load_plant
from jaxdyn.io.config import read_config
from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.io.system_file import load_system
from jaxdyn.io.xml import IgnoredContent
from jaxdyn.jobs.identify.config import IdentifyConfig
from jaxdyn.jobs.identify.study import note_on_units, plant_of, processing_of
from jaxdyn.jobs.identify.work import verdict
from jaxdyn.simulate.controls import Knots
from jaxdyn.simulate.integrators import RungeKutta4

CONFIGS = Path(__file__).parents[2] / "configs"
ARM = str(CONFIGS / "identify_synthetic_arm.toml")


@pytest.fixture(scope="module")
def arm(tmp_path_factory) -> Path:
    """The synthetic arm in small."""
    out = tmp_path_factory.mktemp("arm") / "run"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["identify", ARM, "--smoke", "--out", str(out)]) == 0
    (out.parent / "printed.txt").write_text(printed.getvalue())
    return out


@pytest.mark.thorough
def test_motions_use_one_of_the_limits_in_full_and_no_more(arm):
    pattern = r"at most (\d+) % of position, (\d+) % of speed, (\d+) % of force limits"
    used = np.array(re.findall(pattern, (arm.parent / "printed.txt").read_text()), int)
    np.testing.assert_array_equal(used.max(axis=1), 100)
    assert np.all(used.min(axis=1) < 100)


def test_the_verdict_is_stored_and_decides_the_exit_status(arm):
    metrics = json.loads((arm / "metrics.json").read_text())
    assert {finding["name"] for finding in metrics["arm"]["verdict"]}.isdisjoint(UNRELIABLE)
    assert verdict(metrics) is None
    metrics["arm"]["verdict"] = [{"name": "sign", "message": "m"}, {"name": "at its bound", "message": "m"}]
    assert verdict(metrics) == "arm: sign; see the verdict above"
    first = (arm.parent / "printed.txt").read_text().partition("verdict: ")[2]
    assert "parameter " in first  # the verdict stands above the table
    assert (arm / "arm_parameters.txt").read_text().startswith("verdict: ")


def test_bodies_are_physical_and_the_fit_is_better_than_its_start(arm):
    metrics = json.loads((arm / "metrics.json").read_text())["arm"]
    assert metrics["unphysical_bodies"] == []
    assert metrics["result"] == "successful"
    assert metrics["undetermined_predictions"] == []
    start, found = (metrics["figures"][f"{name}, validation"]["relative"] for name in ("start", "identified"))
    assert found < 0.02
    assert found < 0.2 * start
    with jax.enable_x64(True):
        model = load_plant(arm).system.model
    mass, com, inertia = (np.asarray(x) for x in (model.mass, model.com, model.inertia))
    for m, c, (xx, yy, zz, xy, xz, yz) in zip(mass, com, inertia, strict=True):
        tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        density = 0.5 * np.trace(tensor) * np.eye(3) - tensor  # the second moments of mass
        assert m > 0
        assert np.all(np.isfinite(c))
        assert np.linalg.eigvalsh(density)[0] > 0
    table = (arm / "arm_parameters.txt").read_text()
    assert "viscous [joint7]" in table
    assert "95 % interval" in table


def test_the_mechanism_of_the_identified_plant_can_be_simulated(arm):
    with pytest.warns(IgnoredContent, match="only the mechanism"):
        readable = load_system(arm)
    start = State(jnp.asarray([0.0, -0.5, 0.0, -2.0, 0.0, 1.5, 0.0]), jnp.zeros(7))
    states = jax.jit(lambda start: rollout(readable, start, dt=0.01, steps=20))(start).saved
    assert np.all(np.isfinite(states.q))
    assert np.max(np.abs(np.asarray(states.q)[-1] - np.asarray(start.q))) > 1e-3


@pytest.fixture
def small(tmp_path) -> str:
    """The config of an arm with two joints."""
    write_configs(tmp_path)
    return str(tmp_path / "identify.toml")


def test_recordings_in_degrees_are_suspected(small):
    config = read_config(small, IdentifyConfig)
    plant = plant_of(config, config.study[0])
    angles = np.linspace(-1.5, 1.5, 10)[:, None] * np.ones(2)
    for factor, suspected in ((1.0, False), (np.rad2deg(1.0), True)):
        recording = Recording("swing", np.arange(10.0), factor * angles, None, np.zeros((10, 2)))
        note = note_on_units(plant, [Part(recording, 0.0, 10.0, processing_of(config))])
        assert (note is not None and "[deg]" in note and "shoulder" in note) == suspected


@pytest.mark.thorough
def test_a_resumed_fit_ends_where_an_uninterrupted_one_does(small, tmp_path, capsys):
    # A second round, whose weights depend on where the first one ends, after 6 iterations at most.
    command = ["identify", small, "pictures=false", "fit.rounds=1", "fit.max_steps=6", "--out"]
    assert main([*command, str(tmp_path / "whole")]) == 3  # after 6 steps no fit has converged
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # what it replaces is not traced, so compiled programs remain (see `conftest`)
        written = interrupt_at_arrays(patch, 9)
        assert main([*command, str(tmp_path / "halted")]) == 130
    assert "repeat the command with --resume to continue" in capsys.readouterr().err
    assert written[-1] == "arm_checkpoint_1"
    with np.load(tmp_path / "halted" / f"{written[-1]}.npz", allow_pickle=False) as left:
        begun = len(left.files)
    assert begun > 0
    assert main([*command, str(tmp_path / "halted"), "--resume"]) == 3
    for name in ("arm_estimates", "arm_checkpoint_0", "arm_checkpoint_1"):
        files = [np.load(tmp_path / run / f"{name}.npz", allow_pickle=False) for run in ("whole", "halted")]
        assert files[0].files == files[1].files
        for key in files[0].files:
            np.testing.assert_array_equal(files[0][key], files[1][key])
    # Other checks of a complete run need neither its config nor another fit.
    before = (tmp_path / "halted" / "arm_estimates.npz").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LevenbergMarquardt, "propose", lambda *_: pytest.fail("the search goes on"))
        assert main(["identify", "--resume", "--out", str(tmp_path / "halted"), 'check=[{kind="forces"}]']) == 3
    assert (tmp_path / "halted" / "arm_estimates.npz").read_bytes() == before
    assert RunDirectory(tmp_path / "halted").read_metrics()["arm"]["figures"]
    capsys.readouterr()
    assert main(["identify", "--resume", "--out", str(tmp_path / "halted")]) == 3
    assert "already complete" in capsys.readouterr().out


POLE = """
name = "pole"
source = "invented for this test"
[[body]]
name = "rod"
joint = {kind = "revolute", axis = [0, 1, 0], name = "hinge", position_limits = [-3, 3]}
mass = 1
com = [0, 0, -0.4]
inertia = [0.06, 0.06, 0.01]
"""

SHORTEST = """
data = "."
[[study]]
name = "pole"
mechanism = "pole.toml"
train = ["run"]
[columns]
file = "{}_angle.csv"
u_file = "{}_torque.csv"
q = ["angle"]
u = ["torque"]
"""


@pytest.mark.thorough
def test_the_shortest_config_finds_a_machine_from_two_files_with_their_own_clocks(tmp_path, capsys):
    """A weight that the file does not know, friction, and stamps of angles that are 12 ms late."""
    (tmp_path / "pole.toml").write_text(POLE)
    (tmp_path / "short.toml").write_text(SHORTEST)
    drawing = load_system(tmp_path / "pole.toml")
    friction = JointFriction([0.2], [0.4], [0.01])
    truth = eqx.tree_at(lambda s: (s.model.mass, s.model.armature), drawing, (jnp.array([1.4]), jnp.array([0.02])))
    truth = truth.changed(forces=(friction,))
    rng, n = np.random.default_rng(0), 3000
    t = 0.004 * np.arange(n)
    u = 4.0 * np.sin(2.7 * t) + 3.0 * np.sin(7.1 * t + 1.0) + 1.5 * np.sin(13.0 * t)
    controls = Knots(jnp.asarray(u)[:, None], 0.004, 0.0, "zero_order")
    start, method = truth.at_rest(jnp.zeros(1)), RungeKutta4()
    motion = rollout(truth, start, controls, dt=0.002, steps=2 * n, integrator=method)
    at = np.arange(0.0, 12.0, 0.01)
    q = np.interp(at, motion.time, motion.saved.q[:, 0]) + 3e-4 * rng.normal(size=len(at))
    for name, columns in (("angle", (at + 0.012, q)), ("torque", (t, u))):
        np.savetxt(
            tmp_path / f"run_{name}.csv", np.stack(columns, axis=1), delimiter=",", header=f"t,{name}", comments=""
        )
    assert main(["identify", str(tmp_path / "short.toml"), "pictures=false", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "stage 1 of 3, inverse dynamics" in said
    assert "stage 3 of 3, output error in windows of 0.3 s" in said
    known = load_plant(tmp_path / "run").estimates
    assert known is not None
    found = {
        name.split(" [")[0]: (float(x), float(s))
        for (name, _), x, s in zip(known.labels, known.values, known.std, strict=True)
    }
    for name, value in (("viscous", 0.2), ("coulomb", 0.4), ("delay", 0.012), ("mass", 1.4), ("armature", 0.02)):
        estimate, spread = found[name]
        assert abs(estimate - value) < 1.96 * spread, (name, estimate, spread)
    for name, most in (("viscous", 0.02), ("coulomb", 0.02), ("delay", 5e-4)):
        assert found[name][1] < most, name  # the intervals are not empty words


@pytest.mark.parametrize(
    ("overrides", "fragments"),
    [
        (["synthetic.perio=3"], ["synthetic.perio: unknown key", "did you mean 'period'"]),
        (["data=nowhere"], ["give either data", "or a table [synthetic]"]),
        (["fit.method=output_error"], ["synthetic recordings contain forces only", 'set fit.method = "inverse']),
        (["synthetic.noise=[1, 2, 3]"], ["synthetic.noise has 3 values; give 1, or 2"]),
        (["synthetic.harmonics=1"], ["synthetic.harmonics: 1 is out of range; give a value that is 2 or more"]),
        (
            ['free=[{path="system.forces.0.viscos"}]'],
            ["system.forces.0: there is no field 'viscos'", "did you mean 'viscous'"],
        ),
        (['free=[{inertia=["middle"]}]'], ["there is no entry 'middle'; use one of upper, lower"]),
        (
            ['study=[{name="arm", mechanism_in_data="arm.urdf", train=["swing"]}]'],
            ["no data folder", "give each study mechanism"],
        ),
    ],
)
def test_bad_input_is_one_line_with_a_remedy(overrides, fragments, small, tmp_path, capsys):
    assert main(["identify", small, "--out", str(tmp_path / "run"), *overrides]) == 2
    message = capsys.readouterr().err
    assert len(message.strip().splitlines()) == 1
    for fragment in fragments:
        assert fragment in message


def test_a_check_that_does_not_fit_the_recordings_does_not_cost_a_fit(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("jaxdyn.jobs.identify.work._fit_in_stages", lambda *_: pytest.fail("the fit began"))
    check = 'check=[{kind="windows", durations=[100]}]'
    assert main(["identify", small, "--out", str(tmp_path / "run"), check]) == 2
    assert "100" in capsys.readouterr().err


def test_missing_recordings_are_an_error_that_says_where_to_get_them(small, tmp_path, capsys):
    text = Path(small).read_text()
    head, rest = text.split("[[study]]", 1)
    Path(small).write_text(f'data = "nowhere"\nsource = "https://example.org/records"\n[[study]]{rest}')
    assert "[synthetic]" in head
    assert main(["identify", small, "--out", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err
    assert "nowhere: there is no such folder; get the recordings from https://example.org/records" in message
    assert len(message.strip().splitlines()) == 1


def test_help_lists_the_settings(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["identify", "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for name in (
        "study.name",
        "free.inertia",
        "synthetic.perturbation",
        "fit.max_steps",
        "motion.cutoff (Hz)",
        "check.kind",
    ):
        assert f"\n  {name}" in said, name
