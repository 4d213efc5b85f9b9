"""`jaxdyn new` writes files that run, and a mechanism file stands in for a config of `jaxdyn rollout`."""

import functools
import json
import re
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.io.config import read_config
from jaxdyn.io.tables import keys_of
from jaxdyn.jobs.optimize.config import OptimizeConfig
from jaxdyn.jobs.optimize.problem import problem_of, solver_of, starts_of
from jaxdyn.jobs.rollout.config import RolloutConfig

SMALL = {
    "rollout": ["batch=4", "time.duration=20 ms", "dtype=float64", "pictures=false"],
    "identify": ["motion.interval=0.1", "pictures=false"],
    "optimize": ["time.steps=20", "max_steps=30", "pictures=false", "animation=false"],
}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new(*words: str) -> None:
    assert main(["new", *words]) == 0


def test_a_new_mechanism_is_shown_and_moves(here, capsys):
    new("mechanism")
    assert main(["show", "mechanism.toml"]) == 0
    said = capsys.readouterr().out
    assert "jaxdyn show mechanism.toml" in said
    assert "double_pendulum: 2 bodies, 1.5 kg, nq = 2, nv = 2" in said
    system = jaxdyn.io.load_system("mechanism.toml")
    assert type(system.forces[0]) is jaxdyn.JointFriction
    np.testing.assert_allclose(system.model.limits.upper, np.deg2rad([200.0, 150.0]))


def test_a_new_rollout_runs_with_the_mechanism_that_is_written_beside_it(here, capsys):
    new("rollout")
    assert "jaxdyn rollout rollout.toml" in capsys.readouterr().out
    assert main(["rollout", "rollout.toml", *SMALL["rollout"], "--out", "run"]) == 0
    assert json.loads(Path("run/metrics.json").read_text())["samples"]["successful"] == 4


def test_a_new_optimization_is_a_problem_with_a_guess_that_leads_to_its_target(here):
    new("optimize")
    config = read_config("optimize.toml", OptimizeConfig)
    problem = problem_of(config)
    q = starts_of(config, problem).states.q
    assert q.shape == (8, 101, 2)
    np.testing.assert_allclose(q[2, -1], [np.pi, 0.0], atol=1e-6)  # the straight line
    assert type(solver_of(config, problem)) is jaxdyn.control.Auto


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["identify", "optimize"])
def test_a_new_config_runs_to_its_end(here, kind):
    new(kind)
    assert main([kind, f"{kind}.toml", *SMALL[kind], "--out", "run"]) == 0
    assert json.loads(Path("run/metrics.json").read_text())["job"] == kind


def test_comments_and_defaults_are_those_of_the_config_class(here):
    new("rollout", "run.toml")
    text = Path("run.toml").read_text()
    settings = keys_of(RolloutConfig)
    plain = " ".join(line.removeprefix("# ") for line in text.splitlines())
    for name in ("batch", "limits"):
        assert settings[name].meaning in plain
    assert read_config("run.toml", RolloutConfig).seed == settings["seed"].default
    named = re.search(r"Further keys: (.*?)\.", plain)
    assert named
    left_out = set(settings) - set(tomllib.loads(text))
    assert {"method", "chunk"} <= left_out == set(named[1].split(", "))


def test_an_existing_file_is_replaced_by_force_only(here, capsys):
    Path("rollout.toml").write_text("batch = 1\n")
    assert main(["new", "rollout"]) == 2
    assert "--force" in capsys.readouterr().err
    assert not Path("mechanism.toml").exists()
    assert Path("rollout.toml").read_text() == "batch = 1\n"
    new("rollout", "--force")
    new("rollout", "other.toml")  # the mechanism is there already and stays
    assert main(["new", "mechanism"]) == 2


def test_a_config_for_an_own_mechanism_has_its_number_of_coordinates(here):
    jaxdyn.io.save_system(jaxdyn.System(jaxdyn.library.panda()), "robots.urdf")
    Path("configs").mkdir()
    for kind in ("rollout", "identify", "optimize"):
        new(kind, f"configs/{kind}.toml", "--mechanism", "robots.urdf")
    assert read_config("configs/rollout.toml", RolloutConfig).mechanism == here / "robots.urdf"
    tables = {kind: tomllib.loads(Path(f"configs/{kind}.toml").read_text()) for kind in ("identify", "optimize")}
    assert tables["identify"]["columns"]["u"] == [f"tau{k}" for k in range(1, 8)]
    assert len(tables["optimize"]["final_constraint"][0]["q"]) == 7


def test_own_recordings_are_identified_as_the_comments_of_the_config_say(here):
    new("identify")
    text = Path("identify.toml").read_text()
    header = next(line for line in text.splitlines() if line.startswith("#   t,q1")).removeprefix("#").strip()
    Path("recordings").mkdir()
    for name, rate in (("run_1", 3.0), ("run_2", 2.0)):
        t = np.arange(0.0, 6.0, 0.02)
        phase = rate * t[:, None] * [1.0, 1.4] + [0.0, 1.0]
        q, v, a = np.sin(phase), rate * np.cos(phase) * [1.0, 1.4], -np.sin(phase) * (rate * np.array([1.0, 1.4])) ** 2
        system = jaxdyn.io.load_system("mechanism.toml")
        model = system.model
        tau = jax.vmap(functools.partial(jaxdyn.inverse_dynamics, model))(*map(jnp.asarray, (q, v, a)))
        table = np.column_stack([t, q, v, tau + v * np.array([0.05, 0.02])])
        np.savetxt(f"recordings/{name}.csv", table, delimiter=",", header=header, comments="")
    start, rest = text.split("[synthetic]\n")
    rest = rest[rest.index("[columns]\n") :]
    own = f'{start}data = "recordings"\n{rest}'.replace('["motion 1"]', '["run_1.csv"]').replace(
        '["motion 2"]', '["run_2.csv"]'
    )
    Path("identify.toml").write_text(own)
    quick = (
        "free=[{path='system.forces.0.viscous', chart='positive'}, {path='system.forces.0.coulomb', chart='positive'}]"
    )
    smooth = "columns.inputs=linear"  # torques of a smooth motion, which are not held
    assert main(["identify", "identify.toml", quick, smooth, "pictures=false", "--out", "run"]) == 0
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["machine"]["figures"]["identified, validation"]["relative"] < 5e-3


# --- a mechanism file in place of a config ---


def test_a_mechanism_file_is_simulated_with_default_settings(here, capsys):
    jaxdyn.io.save_system(jaxdyn.System(jaxdyn.library.double_pendulum()), "robot.urdf")
    assert main(["rollout", "robot.urdf", *SMALL["rollout"], "--out", "run"]) == 0
    said = capsys.readouterr().out
    assert "jaxdyn animate run" in said
    assert "jaxdyn view run" in said
    config = read_config("run/config.toml", RolloutConfig)
    assert (config.batch, config.time.rate, config.limits) == (4, 1000.0, "enforced")
    assert (config.mechanism, config.control.stiffness) == (here / "robot.urdf", (0.0,))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rollout", "robot.toml", "bach=3"], "robot.toml: bach: unknown key; did you mean 'batch'"),
        (["rollout", "robot.json", "bach=3"], "robot.json: bach: unknown key; did you mean 'batch'"),
        (["rollout", "nowhere.urdf"], "no such file"),
        (["identify", "robot.urdf"], "mechanism file; give a config"),
        (["rollout", "empty.toml"], "mechanism: missing"),
        (["new", "mechanism", "--mechanism", "robot.urdf"], "--mechanism"),
        (["new", "rollout", "mechanism.toml"], "another name"),
    ],
)
def test_files_that_do_not_fit_are_refused_in_one_line(here, words, said, capsys):
    for ending in ("urdf", "toml", "json"):
        jaxdyn.io.save_system(jaxdyn.System(jaxdyn.library.pendulum()), Path(f"robot.{ending}"))
    Path("empty.toml").touch()
    assert main(words) == 2
    (message,) = capsys.readouterr().err.strip().splitlines()
    assert said in message
