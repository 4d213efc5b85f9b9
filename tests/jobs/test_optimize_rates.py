"""The table [rates] of `jaxdyn optimize` on a cart-pole: bounds, costs, files and replay; and one clear line for bad input."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from small_jobs import interrupt_at_arrays

from jaxdyn.cli import main
from jaxdyn.control.plan import gaps
from jaxdyn.control.rates import plan_with_rates
from jaxdyn.control.verification import TOLERANCE
from jaxdyn.io.config import read_config
from jaxdyn.jobs.optimize.config import OptimizeConfig, RatesConfig
from jaxdyn.jobs.optimize.problem import problem_of, starts_of
from jaxdyn.jobs.optimize.rates import with_rates_of

CONFIG = f"""
mechanism = "{Path(__file__).parents[2] / "configs" / "mechanisms" / "cart_pole.toml"}"
pictures = false
animation = false
chunk = 1
[time]
duration = "1 s"
steps = 10
[bounds]
lower = -4
upper = 1.4
[rates]
weights = 0.01
lower = -20
upper = 12
initial = 1.0
[[running]]
kind = "effort"
weights = 0.2
[[final]]
kind = "deviation"
q = [0.3, 0]
weights = 50
[solver]
kind = "multiple_shooting"
[[start]]
kind = "constant"
controls = 3
[[start]]
kind = "states"
times = [0, 1]
q = [[0, 0], [0.3, 0]]
"""


@pytest.fixture
def config(tmp_path) -> str:
    path = tmp_path / "cart.toml"
    path.write_text(CONFIG)
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that was interrupted after its searches, and resumed from their files."""
    folder = tmp_path_factory.mktemp("cart")
    (folder / "cart.toml").write_text(CONFIG)
    command = ["optimize", str(folder / "cart.toml"), "pictures=true", "--out", str(folder / "run")]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at_arrays(patch, 2)
        assert main(command) == 130
    assert main([*command, "--resume"]) == 0
    return folder / "run"


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


@pytest.mark.thorough
def test_the_plan_is_one_of_the_mechanism_within_the_bounds_of_controls_and_rates(run):
    plan, metrics = arrays_of(run / "plan.npz"), json.loads((run / "metrics.json").read_text())
    assert metrics["results"]["successful"] == 2
    shapes = {"q": (11, 2), "v": (11, 2), "controls": (10, 1), "feedback": (10, 1, 4), "rates": (10, 1)}
    assert {name: plan[name].shape for name in shapes} == shapes
    assert plan["rate_feedback"].shape == (10, 1, 5)
    u = plan["controls"][:, 0]
    rates = np.diff(u) / 0.1
    np.testing.assert_allclose(rates, plan["rates"][:-1, 0], atol=1e-9)
    assert u[0] == 1.0
    np.testing.assert_allclose([rates.min(), rates.max(), u.max()], [-20.0, 12.0, 1.4], atol=1e-6)  # all three act
    assert u.min() > -4.0
    assert (plan["lower"][0], plan["upper"][0]) == (-4.0, 1.4)
    off = np.concatenate([plan["q"][-1] - [0.3, 0.0], plan["v"][-1]])
    cost = 0.1 * np.sum(0.5 * 0.2 * u**2 + 0.5 * 0.01 * plan["rates"][:, 0] ** 2) + 25.0 * np.sum(off**2)
    np.testing.assert_allclose(metrics["cost"], cost, rtol=1e-10)
    assert metrics["open_loop_error"] < 1e-8
    found = metrics["verification"]
    assert max(found[name] for name in ("gap", "violation", "excess", "integration_error")) < 1e-3
    assert found["miss"] < TOLERANCE
    searches, states = arrays_of(run / "searches.npz"), arrays_of(run / "states.npz")
    assert searches["controls"].shape == (2, 10, 1)
    np.testing.assert_array_equal(searches["controls"][metrics["best_start"]], plan["controls"])
    np.testing.assert_array_equal(states["q"][0], plan["q"])
    for name in ("controls", "rates", "motion"):
        assert f"{name}.png" in metrics["pictures"]
        assert (run / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
def test_rollout_replays_the_plan_without_feedback(run, tmp_path, capsys):
    plan = arrays_of(run / "plan.npz")
    replay = ["rollout", str(run / "replay.toml"), "pictures=false", "--out", str(tmp_path / "same")]
    assert main([*replay, "control.replay_feedback=true"]) == 2
    assert "its plan has no feedback gains" in capsys.readouterr().err
    assert main(replay) == 0
    states = arrays_of(tmp_path / "same" / "states.npz")
    np.testing.assert_allclose(states["q"][0], plan["q"], atol=1e-8)
    np.testing.assert_allclose(states["v"][0], plan["v"], atol=1e-8)


def test_initial_guesses_follow_the_given_controls_as_fast_as_the_bounds_of_rates_allow(config):
    with jax.enable_x64(True):
        read = read_config(Path(config), OptimizeConfig, ["bounds.upper=2.6"])
        problem = problem_of(read)
        searched = with_rates_of(read, problem)
        plans = jax.vmap(lambda plan: plan_with_rates(searched, plan))(starts_of(read, problem))
    x, u = plans.states
    np.testing.assert_allclose(u[0, :, 0], [1.0, 2.2, *[2.6] * 9], rtol=1e-12)  # 12 N/s for 0.1 s, then the bound
    np.testing.assert_allclose(u[1, :, 0], [1.0, *[0.0] * 10], atol=1e-12)
    np.testing.assert_allclose(plans.controls[:, :3, 0], [[12.0, 4.0, 0.0], [-10.0, 0.0, 0.0]], atol=1e-9)
    np.testing.assert_allclose(x.q[1, :, 0], np.linspace(0.0, 0.3, 11), atol=1e-12)
    rolled = jax.tree.map(lambda leaf: leaf[0], plans)
    np.testing.assert_allclose(gaps(searched, rolled), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["rates.weights=-1"], "rates.weights: -1 is out of range; give a value that is not negative"),
        (["rates.weights=[1, 2]"], "rates.weights has 2 values; give 1, or 1: one per control"),
        (["rates.uper=1"], "rates.uper: unknown key; did you mean 'upper'?"),
        (["rates.lower=12"], "rates of control 0: 12 is not below 12; exchange lower and upper"),
        (["rates.initial=2.5"], "rates.initial: 2.5 of control 0 is not within its bounds, -4 to 1.4; change it"),
        (["solver={kind='collocation'}"], 'solver: "collocation" changes the controls within the time steps'),
        (["solver.kind=mppi", "rates.upper=inf"], "solver: a control has no bounds; give the standard_deviation"),
    ],
)
def test_bad_input_is_one_line_with_a_remedy(overrides, said, config, tmp_path, capsys):
    assert main(["optimize", config, "--out", str(tmp_path / "run"), *overrides]) == 2
    assert said in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_a_table_without_effect_is_refused():
    with pytest.raises(ValueError, match="there is neither a weight nor a bound; give weights, lower or upper"):
        RatesConfig(initial=(1.0,))


def test_the_help_states_the_table(capsys):
    with pytest.raises(SystemExit):
        main(["optimize", "--help"])
    said = capsys.readouterr().out
    assert "[rates]: Costs and bounds of the rates of the controls" in said
    for key in ("weights", "lower (N m/s or N/s)", "upper (N m/s or N/s)", "initial (N m or N)"):
        assert f"  rates.{key}: " in said
