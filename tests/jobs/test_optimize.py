"""`jaxdyn optimize` on a pendulum: what it leaves behind, how rollouts replay it, and one clear line for bad input."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_jobs import OPTIMIZE

from jaxdyn.cli import main
from jaxdyn.control import (
    ILQR,
    Collocation,
    MultipleShooting,
    Penetration,
    Sampling,
    SingleShooting,
    Spheres,
    guess,
)
from jaxdyn.io.config import read_config
from jaxdyn.io.runs.loaded import load_run
from jaxdyn.jobs.optimize.config import OptimizeConfig
from jaxdyn.jobs.optimize.problem import problem_of, solver_of, starts_of

CONFIGS = Path(__file__).parents[2] / "configs"
EXPERIMENTS = sorted(CONFIGS.glob("optimize_*.toml"))


@pytest.fixture
def config(tmp_path) -> str:
    path = tmp_path / "swing.toml"
    path.write_text(OPTIMIZE)
    return str(path)


@pytest.fixture(scope="module")
def swing(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("swing")
    (folder / "swing.toml").write_text(OPTIMIZE)
    command = ["optimize", str(folder / "swing.toml"), "pictures=true", "animation=true", "--out", str(folder / "run")]
    assert main(command) == 0
    return folder / "run"


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def assert_same_results(one: Path, other: Path) -> None:
    for name in ("searches", "plan", "states"):
        expected, found = (arrays_of(run / f"{name}.npz") for run in (one, other))
        assert expected.keys() == found.keys()
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key], array)


def test_an_interrupted_search_by_collocation_goes_on_with_the_start_that_is_missing(
    config, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("casadi")
    command = [
        "optimize",
        config,
        "solver={kind='collocation', degree=2}",
        "time.steps=4",
        "start=[{kind='controls', count=3}]",
    ]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    solve, solved = Collocation.solve, []

    def interrupted(solver, problem, initial, max_steps):
        solved.append(initial.controls)
        if len(solved) == 3:
            raise KeyboardInterrupt
        return solve(solver, problem, initial, max_steps)

    with monkeypatch.context() as patch:
        patch.setattr(Collocation, "solve", interrupted)
        assert main([*command, "--out", str(tmp_path / "halted")]) == 130
        assert "repeat the command with --resume to continue" in capsys.readouterr().err
        assert main([*command, "--out", str(tmp_path / "halted"), "--resume"]) == 0
    assert len(solved) == 4
    np.testing.assert_array_equal(solved[3], solved[2])
    assert_same_results(tmp_path / "whole", tmp_path / "halted")


def test_run_directory_has_the_plan_the_searches_and_pictures(swing):
    metrics = json.loads((swing / "metrics.json").read_text())
    assert (metrics["starts"], metrics["results"]["successful"], metrics["result"]) == (6, 6, "successful")
    assert sum(group["starts"] for group in metrics["optima"]) == 6
    assert (metrics["environment"]["x64"], metrics["environment"]["dtype"]) == (True, "float64")
    assert metrics["verification"]["gap"] < 1e-9
    plan = arrays_of(swing / "plan.npz")
    shapes = {"time": (13,), "q": (13, 1), "v": (13, 1), "controls": (12, 1), "feedback": (12, 1, 2), "design": (0,)}
    assert {name: plan[name].shape for name in shapes} == shapes
    np.testing.assert_allclose(plan["time"], np.linspace(0.0, 1.0, 13), rtol=1e-15)
    u, off = plan["controls"][:, 0], np.stack([plan["q"][:, 0] - 1.5, plan["v"][:, 0]], axis=1)
    path = 0.1 * u**2 + 0.5 * off[:-1] ** 2 @ [0.5, 0.1]
    np.testing.assert_allclose(metrics["cost"], path.sum() / 12 + 10.0 * (off[-1] ** 2).sum(), rtol=1e-10)
    assert u.min() >= -4.0
    assert u.max() == 3.5
    searches = arrays_of(swing / "searches.npz")
    best = metrics["best_start"]
    history = searches["cost_history"][best][: metrics["iterations"] + 1]
    np.testing.assert_allclose(history[-1], metrics["cost"], rtol=1e-12)
    assert np.all(np.isfinite(history))
    assert np.all(np.isnan(searches["cost_history"][best][metrics["iterations"] + 1 :]))
    assert np.all(
        np.diff(searches["cost_history"][0][: searches["iterations"][0] + 1]) <= 1e-12
    )  # no gaps, no conditions
    for name in ("convergence", "optima", "controls", "motion", "stick_figures"):
        assert (swing / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
    assert (swing / "motion.gif").read_bytes().startswith(b"GIF")
    told = (swing / "optima.txt").read_text()
    assert f"from {metrics['optima'][0]['starts']} of 6 starts" in told
    assert "solved after" in told
    with jax.enable_x64(True):
        run = load_run(swing)
        assert "successful" in repr(run.trajectory)
    assert run.system.model.name == "pendulum"
    np.testing.assert_array_equal(run.arrays["q"][0], plan["q"])
    assert read_config(swing / "config.toml", OptimizeConfig).start[1].count == 2


def test_mixed_initial_guesses_are_those_of_the_library(config):
    start = "start=[{kind='controls', count=2}, {kind='mixed', count=6, standard_deviation=0.5, seed=3}]"
    with jax.enable_x64(True):
        settings = read_config(config, OptimizeConfig, [start])
        problem = problem_of(settings)
        plans = jax.tree.map(lambda leaf: leaf[2:], starts_of(settings, problem))
        expected = guess.mixed(problem, 6, seed=3, standard_deviation=0.5)
    for leaf, other in zip(jax.tree.leaves(plans), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(leaf, other)


def test_rollout_replays_the_plan(swing, tmp_path):
    plan = arrays_of(swing / "plan.npz")
    replay = ["rollout", str(swing / "replay.toml"), "pictures=false", "--out"]
    assert main([*replay, str(tmp_path / "same")]) == 0
    states = arrays_of(tmp_path / "same" / "states.npz")
    np.testing.assert_allclose(states["q"][0], plan["q"], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(states["v"][0], plan["v"], rtol=1e-12, atol=1e-12)
    assert main([*replay, str(tmp_path / "finer"), "time.rate=36", "time.save_every=3"]) == 0
    finer = arrays_of(tmp_path / "finer" / "states.npz")
    # The controls are held as before; Runge-Kutta of steps of 83 ms is off by its fourth power.
    np.testing.assert_allclose(finer["q"][0], plan["q"], atol=2e-4)
    assert np.max(np.abs(finer["q"][0] - plan["q"])) > 1e-9


def test_feedback_brings_samples_back_to_the_plan(swing, tmp_path):
    end = arrays_of(swing / "plan.npz")["q"][-1]
    missed = {}
    for feedback in ("true", "false"):
        out = tmp_path / feedback
        command = [
            "rollout",
            str(swing / "replay.toml"),
            "pictures=false",
            "batch=16",
            "initial.spread=0.1",
            "--out",
            str(out),
        ]
        assert main([*command, f"control.replay_feedback={feedback}"]) == 0
        q = arrays_of(out / "states.npz")["q"]
        assert 0.05 < np.std(q[:, 0]) < 0.15
        missed[feedback] = np.sqrt(np.mean((q[:, -1] - end) ** 2))
    assert missed["true"] < 0.5 * missed["false"]


@pytest.mark.parametrize(
    ("overrides", "fragments"),
    [
        (["solver.kind=newton"], ["solver.kind: 'newton' is unknown; use one of ", "ilqr, "]),
        (["time.step=3"], ["time.step: unknown key", "did you mean 'steps'"]),
        (["running=[{weights=3}]"], ["running 1: kind: missing; use one of deviation, effort"]),
        (["running=[{kind='effrt'}]"], ["running 1: kind: 'effrt' is unknown", "did you mean 'effort'"]),
        (["running=[{kind='effort', level=3}]"], ["running 1: level: unknown key"]),
        (["start=[]"], ["there is no start; write [[start]]"]),
        (
            ["final=[{kind='frame_pose', frame='tip', position=[0, 0, 0], orientation=[1, 0, 0, 0], rpy=[0, 0, 0]}]"],
            ["final 1", "orientation and rpy are both given; remove one"],
        ),
        (
            ["running=[{kind='effort', weights=[1, 2]}]"],
            ["running 1: weights has 2 values; give 1, or 1: one per control"],
        ),
        (
            ["final=[{kind='deviation', q=[1, 2]}]"],
            ["final 1: q has 2 values; give 1: one per coordinate"],
        ),
        (
            ["final=[{kind='frame_pose', frame='hand', position=[0, 0, 0]}]"],
            ["final 1: frame: there is no body or frame 'hand'; use one of rod, tip"],
        ),
        (
            [
                "running=[{kind='penetration', sphere=[{body='hand', radius=1}], obstacle=[{center=[0, 0, 0], radius=1}]}]"
            ],
            ["running 1: sphere 1: body: there is no body 'hand'; use one of rod"],
        ),
        (
            ["constraint=[{kind='spheres', sphere=[{body='rod', end=[0, 1], radius=1}], obstacle=[]}]"],
            ["constraint 1: sphere 1: end: the list has 2 entries; give 3"],
        ),
        (["final_constraint=[{kind='state'}]"], ["final_constraint 1: neither q nor v is given"]),
        (["constraint=[{kind='state_bounds'}]"], ["constraint 1: there are no bounds, and the joints have no limits"]),
        (["running=[]", "final=[]"], ["there is no cost; write [[running]], [[final]] or both"]),
        (["initial.q=[0, 0]"], ["initial.q has 2 values; give 1: one per coordinate"]),
        (["bounds.lower=5"], ["bounds of control 0: 5 is not below 3.5; exchange lower and upper"]),
        (["start=[{kind='mixed', seed=4294967296}]"], ["start 1: seed: 4294967296 is out of range"]),
        (["solver={kind='multiple_shooting', barrier=0}"], ["solver.barrier: 0 is out of range", "positive"]),
        (["time.shortest=1"], ["a free duration needs both shortest and longest"]),
        (
            ["start=[{kind='states', times=[0, 2], q=[[0], [1]]}]"],
            ["start 1: times range from 0 to 2 s; start at 0 and end at 1 s"],
        ),
        (
            ["start=[{kind='controls', controls=[1, 2]}]"],
            ["start 1: controls has 2 values; give 1, or 1: one per control"],
        ),
        (["solver={kind='sampling', update='cem', samples=8, elites=9}"], ["solver: elites = 9", "give 2 or more"]),
        (
            ["solver={kind='sampling', update='mppi'}", "bounds.upper=inf"],
            ["solver: a control has no bounds; give the standard_deviation"],
        ),
        (["start=[{kind='controls', controls=nan}]"], ["start 1: controls", "nan is not finite"]),
    ],
)
def test_bad_input_is_one_line_with_a_remedy(overrides, fragments, config, tmp_path, capsys):
    assert main(["optimize", config, "--out", str(tmp_path / "run"), *overrides]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    for fragment in fragments:
        assert fragment in message
    assert not (tmp_path / "run").exists(), "the corrected command may use the same directory"


@pytest.mark.parametrize(
    ("overrides", "fragments"),
    [
        (["control.replay=none.npz"], ["control.replay:", "none.npz: there is no such file"]),
        (["control.replay=states.npz"], ["states.npz", "missing", "give the plan.npz of a run of jaxdyn optimize"]),
        (
            [f"mechanism={CONFIGS / 'mechanisms' / 'double_pendulum.toml'}"],
            ["its plan has 1 coordinates, but the mechanism has 2; give the mechanism of the same run"],
        ),
        (["time.rate=18"], ["time.rate = 18 Hz is not a multiple of the 12 Hz of the plan; choose a multiple"]),
        (["time.rate=24", "control.replay_feedback=true"], ["feedback acts once in each step", "set time.rate = 12"]),
        (["time.duration=2"], ["the plan ends after 1 s, before time.duration = 2 s; shorten it"]),
        (["control.stiffness=3"], ["replay cannot be combined with stiffness; remove one or the other"]),
    ],
)
def test_replays_that_do_not_fit_are_refused(overrides, fragments, swing, tmp_path, capsys):
    assert main(["rollout", str(swing / "replay.toml"), "--out", str(tmp_path / "run"), *overrides]) == 2
    message = capsys.readouterr().err
    assert len(message.strip().splitlines()) == 1
    for fragment in fragments:
        assert fragment in message


def test_capsules_are_read_from_a_config(config):
    """A sphere in a list with a capsule gets an end equal to its center; without capsules there are no ends."""
    sphere, capsule = "{center=[0, 0, 1], radius=0.1}", "{center=[1, 0, 0], end=[1, 0, 2], radius='20 cm'}"
    bodies = "sphere=[{body='rod', end=[0, 0, -1], radius=0.1}]"
    table = f"{bodies}, obstacle=[{sphere}, {capsule}], margin='1 cm'"
    overrides = [f"constraint=[{{kind='spheres', {table}}}]", f"final=[{{kind='penetration', {table}, weight=3}}]"]
    problem = problem_of(read_config(Path(config), OptimizeConfig, overrides))
    made, cost = problem.constraints[0].function, problem.final[0]
    wanted = Spheres(
        ("rod",),
        [[0.0, 0.0, 0.0]],
        [0.1],
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
        [0.1, 0.2],
        0.01,
        [[0.0, 0.0, -1.0]],
        [[0.0, 0.0, 1.0], [1.0, 0.0, 2.0]],
    )
    assert isinstance(cost, Penetration)
    for found in (made, cost.spheres):
        jax.tree.map(np.testing.assert_array_equal, found, wanted)
    plain = f"constraint=[{{kind='spheres', sphere=[{{body='rod', radius=0.1}}], obstacle=[{sphere}]}}]"
    spheres = problem_of(read_config(Path(config), OptimizeConfig, [plain])).constraints[0].function
    assert isinstance(spheres, Spheres)
    assert spheres.ends is None
    assert spheres.obstacle_ends is None


def test_what_cannot_be_reached_is_said(config, tmp_path, capsys):
    overrides = [
        "final_constraint=[{kind='state', q=[0.5]}, {kind='state', q=[-0.5]}]",
        "time.steps=4",
        "solver={kind='sampling', update='cem', samples=32, elites=4}",
    ]
    out = str(tmp_path / "run")
    assert main(["optimize", config, "--out", out, "start=[{kind='controls'}]", *overrides]) == 0
    said = capsys.readouterr().out
    assert "NOT solved: The search found no plan that meets all constraints" in said
    assert "relax one" in said
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["result"] == "infeasible"
    assert 0.5 <= metrics["violation"] < 0.55  # no plan is off by less than half the distance; samples come near it
    assert metrics["optima"] == []


def test_a_free_duration_is_found_and_replayed(config, tmp_path):
    """As fast as the bounds allow, whatever it costs else; the states are bounded on the way."""
    overrides = [
        "time.shortest=0.2",
        "time.longest=3",
        "running=[{kind='effort', weights=1e-3}]",
        "final=[{kind='time'}]",
        "constraint=[{kind='state_bounds', v_upper=1.2}]",
        "final_constraint=[{kind='state', q=[0.5], v=0}]",
        "start=[{kind='controls'}]",
    ]
    assert main(["optimize", config, "--out", str(tmp_path / "run"), *overrides]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    plan = arrays_of(tmp_path / "run" / "plan.npz")
    assert metrics["result"] == "successful"
    assert 0.4 / 1.2 < metrics["duration_s"] < 0.9
    np.testing.assert_allclose(plan["design"], [metrics["duration_s"]])
    np.testing.assert_allclose(plan["time"][-1], metrics["duration_s"])
    np.testing.assert_allclose([plan["q"][-1, 0], plan["v"][-1, 0]], [0.5, 0.0], atol=2e-6)
    assert plan["v"].max() < 1.2 + 2e-6
    assert plan["v"].max() > 1.2 - 1e-3
    out = tmp_path / "replayed"
    assert main(["rollout", str(tmp_path / "run" / "replay.toml"), "pictures=false", "--out", str(out)]) == 0
    # Multiple shooting closes the gaps of its plans up to a tolerance, which an independent check measures.
    assert metrics["solver"] == "multiple_shooting"
    assert metrics["verification"]["gap"] < 1e-6
    np.testing.assert_allclose(arrays_of(out / "states.npz")["q"][0, -1], plan["q"][-1], rtol=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["optimize_p1_cartpole", "optimize_p5_brachistochrone"])
def test_experiment_runs_with_its_smoke_settings(name, tmp_path):
    path = CONFIGS / f"{name}.toml"
    if 'kind = "collocation"' in path.read_text():
        pytest.importorskip("casadi")
    assert main(["optimize", str(path), "--smoke", "pictures=false", "--out", str(tmp_path / "run")]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["smoke"] is True
    assert np.isfinite(metrics["cost"])


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiment_states_a_problem(path):
    config = read_config(path, OptimizeConfig)
    problem = problem_of(config)
    assert problem.steps == config.time.steps
    rows = [row for entry in config.start if entry.kind == "states" for row in entry.q]
    assert {len(row) for row in rows} <= {problem.dynamics.system.model.nq}


@pytest.mark.parametrize(
    ("solver", "chosen"),
    [
        ("{kind='ilqr', tolerance=1e-3}", ILQR(tolerance=1e-3)),
        (
            "{kind='ilqr', second_order=true, feasibility=1e-3, penalty=5.0}",
            ILQR(second_order=True, feasibility=1e-3, penalty=5.0),
        ),
        ("{kind='multiple_shooting', tolerance=1e-5, parallel=true}", MultipleShooting(parallel=True, tolerance=1e-5)),
        ("{kind='sampling', update='predictive', samples=9, knots=3}", Sampling("predictive", samples=9, knots=3)),
        (
            "{kind='sampling', update='mppi', temperature=0.5, standard_deviation=2.0}",
            Sampling("mppi", temperature=0.5, standard_deviation=2.0),
        ),
        (
            "{kind='sampling', update='cem', elites=5, patience=7, seed=2}",
            Sampling("cem", elites=5, patience=7, seed=2),
        ),
    ],
)
def test_solvers_are_chosen_by_name(solver, chosen, config):
    read = read_config(Path(config), OptimizeConfig, [f"solver={solver}"])
    assert solver_of(read, problem_of(read)) == chosen


def test_single_shooting_takes_an_optimizer(config):
    def chosen(text):
        read = read_config(Path(config), OptimizeConfig, [f"solver={{kind='single_shooting', tolerance=1e-4, {text}}}"])
        return solver_of(read, problem_of(read))

    adam, newton = chosen("optimizer='adam', rate=0.2"), chosen("penalty=3.0")
    assert isinstance(adam, SingleShooting)
    assert isinstance(newton, SingleShooting)
    assert (newton.tolerance, newton.penalty) == (1e-4, 3.0)
    at = jnp.zeros(2)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes them
        step, _ = adam.transformation.update(jnp.array([3.0, -0.1]), adam.transformation.init(at))
    np.testing.assert_allclose(step, [-0.2, 0.2], rtol=1e-5)  # the first step of Adam, whatever the slope
    assert jax.tree.structure(newton.transformation.init(at)) == jax.tree.structure(optax.lbfgs().init(at))


def test_guessed_states_are_off_by_what_the_distribution_says(config):
    start = (
        "start=[{kind='states', times=[0, 0.5, 1], q=[[0.1], [1], [1.5]], count=400, spread=0.3, distribution='%s'}]"
    )
    middle = {}
    for name in ("normal", "uniform"):
        read = read_config(Path(config), OptimizeConfig, [start % name])
        states = starts_of(read, problem_of(read)).states
        np.testing.assert_allclose(states.q[:, [0, -1], 0], np.broadcast_to([0.1, 1.5], (400, 2)))
        middle[name] = np.asarray(states.q)[:, 6, 0] - 1.0
    np.testing.assert_allclose(np.std(middle["normal"]), 0.3, rtol=0.1)
    np.testing.assert_allclose([middle["uniform"].min(), middle["uniform"].max()], [-0.3, 0.3], atol=0.01)


@pytest.mark.thorough
def test_runs_and_replays_have_the_states_of_drives(tmp_path):
    lag = '[[actuator]]\nname = "servo"\njoints = {pivot = 1.0}\ntime_constant = "50 ms"\n'
    machine = (CONFIGS / "mechanisms" / "pendulum.toml").read_text()
    (tmp_path / "lag.toml").write_text(machine.replace("[[body]]", f"{lag}[[body]]", 1))
    (tmp_path / "swing.toml").write_text(OPTIMIZE.replace("[0.5, 0.1]", "[0.5, 0.1, 0]"))
    command = [
        "optimize",
        str(tmp_path / "swing.toml"),
        f"mechanism={tmp_path / 'lag.toml'}",
        "pictures=false",
        "--out",
    ]
    assert main([*command, str(tmp_path / "run")]) == 0
    plan = arrays_of(tmp_path / "run" / "plan.npz")
    assert (plan["z"].shape, plan["feedback"].shape) == ((13, 1), (12, 1, 3))
    assert np.ptp(plan["z"]) > 0.1
    for feedback in ("true", "false"):
        out = tmp_path / feedback
        replay = ["rollout", str(tmp_path / "run" / "replay.toml"), f"control.replay_feedback={feedback}"]
        assert main([*replay, "pictures=false", "--out", str(out)]) == 0
        with jax.enable_x64(True):
            run = load_run(out).trajectory
        np.testing.assert_allclose(run.saved.z[0], plan["z"], rtol=1e-11, atol=1e-12)
