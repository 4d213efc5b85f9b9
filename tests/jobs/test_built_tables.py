"""A new solver and a new cost are one class each: a config can name them, the help explains them, and wrong values are refused."""

import dataclasses
import json
import re
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from site_generator import rows_of_reference
from small_jobs import OPTIMIZE

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.compute.arrays import floating
from jaxdyn.control import ILQR, ControlProblem, CostTerm, Plan, Solution, Solver
from jaxdyn.io.config import read_config, resolved_toml
from jaxdyn.io.tables import keys_of
from jaxdyn.jobs import verbs
from jaxdyn.jobs.optimize.config import OptimizeConfig
from jaxdyn.jobs.optimize.problem import problem_of, solver_of
from jaxdyn.jobs.optimize.terms import JointBoundsKeys
from jaxdyn.jobs.rollout.config import RolloutConfig
from jaxdyn.jobs.settings import describe_settings, keys_in_source
from jaxdyn.mechanism.quantity import quantity


class PowerCost(CostTerm):
    """Sum of w_i |u_i v_i|^p, the mechanical power of the controls to some power p.

    Attributes:
        weights: The powers of the controls have these weights.
        exponent: The powers are raised to this exponent.
        scale: The powers are divided by this power.
    """

    kind: ClassVar[str] = "power"

    scale: Float[Array, ""] = eqx.field(converter=floating, metadata=quantity("W", positive=True))
    weights: Float[Array, "nu"] = eqx.field(
        converter=floating, default=1.0, metadata=quantity(minimum=0.0, broadcast=True)
    )
    exponent: int = eqx.field(static=True, default=2, metadata=quantity(minimum=1.0, maximum=4.0))

    def __call__(self, dynamics, t, x, u):
        return jnp.sum(self.weights * jnp.abs(u * x.v / self.scale) ** self.exponent)


class Polished(Solver):
    """iLQR, followed by DDP.

    Attributes:
        coarse: The search with iLQR makes at most this many iterations.
        tolerance: The search with DDP ends when the relative decrease of the cost falls below this value.
    """

    kind: ClassVar[str] = "polished"

    coarse: int = eqx.field(static=True, default=5, metadata=quantity(positive=True))
    tolerance: float | None = eqx.field(static=True, default=None, metadata=quantity(positive=True))

    def solve(self, problem: ControlProblem, initial: Plan, max_steps: int) -> Solution:
        first = ILQR().solve(problem, initial, min(self.coarse, max_steps))
        fine = ILQR(second_order=True, tolerance=self.tolerance)
        return fine.solve(problem, first.value, max_steps)


POWER = "running=[{kind='effort', weights=0.2}, {kind='power', scale='2 W', weights=3}]"
POLISHED = "solver={kind='polished', coarse=2}"


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "swing.toml"
    path.write_text(OPTIMIZE)
    return path


def test_a_new_cost_is_read_from_a_config_and_written_back(config, tmp_path):
    read = read_config(config, OptimizeConfig, [POWER])
    problem = problem_of(read)
    cost = problem.running[1]
    assert isinstance(cost, PowerCost)
    state = eqx.tree_at(lambda x: x.v, problem.initial, jnp.array([4.0]))
    np.testing.assert_allclose(
        cost(problem.dynamics, jnp.zeros(()), state, jnp.array([0.5])), 3.0 * (0.5 * 4.0 / 2.0) ** 2
    )
    written = tmp_path / "written.toml"
    written.write_text(resolved_toml(read))
    assert read_config(written, OptimizeConfig).running == read.running


@pytest.mark.thorough
def test_a_new_solver_is_chosen_by_a_config_and_solves_its_problem(config, tmp_path):
    read = read_config(config, OptimizeConfig, [POLISHED])
    assert solver_of(read, problem_of(read)) == Polished(coarse=2)
    command = ["optimize", str(config), POLISHED, POWER, "start=[{kind='controls'}]", "--out", str(tmp_path / "run")]
    assert main(command) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["result"] == "successful"
    again = read_config(tmp_path / "run" / "config.toml", OptimizeConfig)
    assert (again.solver.kind, again.solver.values["coarse"]) == ("polished", 2)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("running=[{kind='power'}]", r"running 1: scale: missing; add this key \(in W\)"),
        ("running=[{kind='power', scale=-1}]", "running 1: scale: -1 is out of range.*positive"),
        ("running=[{kind='power', scale='1 J'}]", "running 1: scale.*'J' does not fit.*W"),
        ("running=[{kind='power', scale=1, exponent=5}]", "running 1: exponent: 5 is out of range.*from 1 to 4"),
        ("running=[{kind='power', scale=1, weights=[1, 2]}]", "running 1: weights has 2 values; give 1"),
        (
            "running=[{kind='power', scale=1, exponents=2}]",
            "running 1: exponents: unknown key; did you mean 'exponent'",
        ),
        ("running=[{kind='powr', scale=1}]", "running 1: kind: 'powr' is unknown; did you mean 'power'"),
        ("solver={kind='polished', coarse=0}", "solver.coarse: 0 is out of range"),
        ("solver={kind='polish'}", "solver.kind: 'polish' is unknown; did you mean 'polished'"),
        ("solver={kind='polished', tolerance='fine'}", "solver.tolerance: 'fine' is text"),
    ],
)
def test_wrong_values_of_new_classes_are_answered_in_one_line(override, said, config, tmp_path, capsys):
    assert main(["optimize", str(config), override, "--out", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err.strip().splitlines()
    assert re.search(said, message[-1]), message[-1]
    assert not (tmp_path / "run").exists()


def test_the_help_has_a_heading_for_every_kind():
    lines = describe_settings(OptimizeConfig).splitlines()
    for kind in ("power", "polished", "sampling", "state_bounds", "angular_deviation", "penetration", "mixed"):
        assert any(f'.kind = "{kind}": ' in line for line in lines), kind


@pytest.mark.parametrize(("config", "least"), [(OptimizeConfig, 100), (RolloutConfig, 25)])
def test_the_help_explains_every_key_by_a_sentence(config, least):
    lines = [line for line in describe_settings(config).splitlines() if line.startswith(" ")]
    keys = [line for line in lines if ".kind = " not in line]
    assert len(keys) >= least
    for line in keys:
        said = re.fullmatch(r" +[\w.]+(?: \([^)]*\))?: (.*?)(?: \[[^.]*(?:\d\.\d[^.]*)*\])?", line)
        assert said, line
        meaning = said[1]
        assert re.match(r'[A-Z"]', meaning), line
        assert meaning.endswith("."), line
        assert len(meaning.split()) > 3, line
        assert not re.match(r"(?i)of all|as for|of the", meaning), line


@pytest.mark.parametrize("job", [verbs.ROLLOUT, verbs.IDENTIFY, verbs.OPTIMIZE], ids=lambda job: job.name)
def test_the_keys_in_the_source_of_a_config_class_are_those_of_the_class(job):
    found, keys = keys_in_source(job.config), keys_of(job.config_class)
    assert list(found) == list(keys)
    tables = {name: key.annotation for name, key in keys.items() if dataclasses.is_dataclass(key.annotation)}
    assert {name for name in tables if not found[name]} <= {"columns", "motion", "solver"}, "tables of other modules"
    assert all(list(keys_of(table)) == found[name] for name, table in tables.items() if found[name])


def test_keys_of_the_help_stand_below_their_kind():
    lines = [line.strip() for line in describe_settings(OptimizeConfig).splitlines()]
    start = next(k for k, line in enumerate(lines) if line.startswith('solver.kind = "polished"'))
    assert lines[start + 1].startswith("solver.coarse: The search with iLQR")
    assert lines[start + 1].endswith("[positive, default 5]")
    power = next(k for k, line in enumerate(lines) if line.startswith('running.kind = "power"'))
    assert lines[power + 1] == "running.scale (W): The powers are divided by this power. [positive, required]"


def test_the_reference_has_a_row_for_each_attribute_of_a_new_class():
    assert rows_of_reference(PowerCost) == [
        "| `scale` | The powers are divided by this power. | W |  | positive |",
        "| `weights` | The powers of the controls have these weights. |  | shape (nu) | not negative |",
        "| `exponent` | The powers are raised to this exponent. |  |  | from 1 to 4 |",
    ]
    assert [row.split("|")[1].strip() for row in rows_of_reference(Polished)] == [
        "`coarse`",
        "`tolerance`",
    ]


def test_bounds_of_joints_are_their_limits_unless_they_are_given():
    builder = jaxdyn.MechanismBuilder("slider")
    limits = {"position_limits": (-0.5, 1.5), "velocity_limit": 2.0}
    builder.add_body("slider", joint=jaxdyn.Prismatic((1, 0, 0)), mass=1.0, **limits)
    system = jaxdyn.System(builder.build())
    for part, lower, upper in (
        (JointBoundsKeys(), [-0.5, -2.0], [1.5, 2.0]),
        (JointBoundsKeys(q_upper=(1.0,), v_lower=(-1.0,)), [-0.5, -1.0], [1.0, 2.0]),
    ):
        found = part.fields(system, "constraint 1:")
        np.testing.assert_allclose(found["lower"], lower)
        np.testing.assert_allclose(found["upper"], upper)
        assert (found["origin"], found["nx"]) == (None, 2)
