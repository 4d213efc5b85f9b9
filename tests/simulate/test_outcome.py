"""Rollouts that do not reach their end say so: a warning or an error outside of jit, words on request, an exit status of jobs."""

import functools
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import double_pendulum, swinging
from small_jobs import ROLLOUT

import jaxdyn
from jaxdyn import ImplicitMidpoint, State, System, rollout
from jaxdyn.cli import main
from jaxdyn.simulate import DivergenceWarning, RolloutError, RolloutResult
from jaxdyn.simulate.outcome import describe

# Damping of the second joint by its controls; a negative one drives it until it diverges.
PENDULUM = double_pendulum()
DAMPING = jnp.array([1.0, -20.0, 1.0, -80.0])


def sample(damping, backend="auto", throw=True):
    def policy(t, state, key):
        return -damping * state.v * jnp.array([0.0, 1.0])

    return rollout(System(PENDULUM), swinging(), policy, dt=0.02, steps=30, throw=throw, backend=backend)


@pytest.fixture(scope="module")
def batch():
    return jax.jit(jax.vmap(sample))(DAMPING)


@pytest.mark.parametrize("backend", ["auto", "xla"])
def test_a_batch_outside_of_jit_warns_once_with_counts_steps_joint_and_remedy(backend, batch):
    with pytest.warns(DivergenceWarning) as caught:
        eager = jax.vmap(lambda damping: sample(damping, backend))(DAMPING)
    assert len(caught) == 1
    text = str(caught[0].message)
    for part in (
        "4 rollouts",
        "2 successful",
        "2 diverged",
        "Sample 3",
        f"after {batch.steps[3]} steps",
        "joint '2_joint'",
        "shorter dt",
        "healthy",
    ):
        assert part in text
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(eager.result, batch.result)


def test_one_rollout_and_derivatives_of_it_raise_an_error_outside_of_jit_or_warn_on_request():
    functions = {
        throw: (
            functools.partial(sample, throw=throw),
            lambda x, throw=throw: jax.jvp(lambda y: sample(y, throw=throw).final.q, (x,), (jnp.ones(()),)),
            jax.grad(lambda y, throw=throw: jnp.sum(sample(y, throw=throw).final.q)),
        )
        for throw in (True, False)
    }
    for raises, warns in zip(functions[True], functions[False], strict=True):
        with pytest.raises(
            RolloutError, match=r"^RolloutResult.DIVERGED: 1 rollout of.*shorter dt.*throw=False"
        ) as caught:
            raises(jnp.asarray(-40.0))
        assert caught.value.result == RolloutResult.DIVERGED
        with pytest.warns(DivergenceWarning, match="1 rollout of"):
            warns(jnp.asarray(-40.0))


def test_a_batch_raises_an_error_only_if_no_sample_reaches_its_end():
    with pytest.raises(RolloutError, match="2 rollouts of"):
        jax.vmap(sample)(DAMPING[1::2])
    with pytest.warns(DivergenceWarning, match="2 rollouts of.*1 successful, 1 diverged"):
        jax.vmap(sample)(DAMPING[:2])
    ends = jax.jit(jax.vmap(sample))(DAMPING[1::2])
    np.testing.assert_array_equal(ends.result, RolloutResult.DIVERGED)


def test_jit_does_not_warn_and_leaves_no_trace_of_the_report_in_the_program():
    program = jax.jit(jax.vmap(sample)).lower(DAMPING)
    assert "report" not in program.as_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.block_until_ready(program.compile()(DAMPING))


def test_batches_without_failures_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ends = jax.vmap(sample)(jnp.linspace(0.1, 1.0, 4))
    assert np.all(ends.healthy)


def test_healthy_marks_the_samples_that_completed_or_stopped_and_describe_counts_all(batch):
    np.testing.assert_array_equal(batch.healthy, [True, False, True, False])
    text = batch.describe()
    assert "4 rollouts of" in text
    assert "2 successful, 2 diverged" in text
    system = System(PENDULUM)
    stopped = jax.jit(lambda s: rollout(system, s, dt=0.02, steps=5, stop=lambda t, s: t > 0.05))(swinging())
    assert stopped.result == RolloutResult.STOPPED
    assert stopped.healthy
    assert stopped.describe().endswith("1 stopped.")  # nothing to mend


def test_a_step_that_is_not_solved_has_a_remedy_of_its_own():
    stiff = System(PENDULUM, (jaxdyn.JointSpring([1e4, 1e4], [0.0, 0.0]),))
    with pytest.warns(DivergenceWarning, match=r"step failed.*iterations"):
        rollout(stiff, swinging(), dt=0.5, steps=2, integrator=ImplicitMidpoint(1), throw=False)


def test_a_mask_over_samples_that_all_failed_is_no_perfect_loss():
    ends = jax.jit(jax.vmap(sample))(DAMPING[1::2])
    assert jnp.sum(jnp.where(ends.healthy, 1.0, 0.0)) == 0.0
    assert jnp.mean(jnp.where(ends.healthy, 1.0, 9.0)) == 9.0


def test_a_model_without_degrees_of_freedom_runs_and_is_described_without_a_joint():
    builder = jaxdyn.MechanismBuilder("driven")
    driven = jaxdyn.Rheonomic(jaxdyn.Revolute((0, 0, 1)), jaxdyn.ConstantRate(1.0))
    builder.add_body("wheel", joint=driven, mass=1.0, inertia=(1.0, 1.0, 1.0))
    model = builder.build()
    start = State(jnp.zeros(model.nq), jnp.zeros(0))
    end = jax.jit(lambda s: rollout(System(model), s, dt=0.1, steps=2))(start)
    assert end.describe() == "1 rollout of 'driven': 1 successful."
    text = describe(np.array(2), np.array(0), np.zeros(0), model.topology)
    assert text.startswith("1 rollout of 'driven': 1 diverged. Sample 0 diverged first, after 0 steps. A coordinate")


@pytest.mark.parametrize(("allowed", "status"), [(0.9, 3), (1.0, 0)])
def test_the_command_line_ends_with_a_status_of_its_own_if_too_many_samples_failed(tmp_path, capsys, allowed, status):
    (tmp_path / "rollout.toml").write_text(ROLLOUT)
    # The damping of a controller is held over a step, and this one turns every velocity around a thousandfold.
    overrides = ["initial.speed=1", "control.damping=1e4", f"most_failed={allowed}"]
    assert main(["rollout", str(tmp_path / "rollout.toml"), *overrides, "--out", str(tmp_path / "run")]) == status
    printed = capsys.readouterr()
    assert "samples: 3 diverged" in printed.out
    assert "shorter dt" in printed.out
    assert ("3 of 3 samples failed" in printed.err) == (status == 3)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["samples"]["diverged"] == 3
