"""Outputs of `jaxdyn rollout`: contact forces, and positions and velocities of frames."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_jobs import ROLLOUT

from jaxdyn import State, System, dynamics, library
from jaxdyn.cli import main
from jaxdyn.dynamics import GroundContact, contact_forces, contact_sphere
from jaxdyn.io.config import read_config
from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.jobs.rollout import work as rollout
from jaxdyn.jobs.rollout.config import RolloutConfig
from jaxdyn.jobs.rollout.samples import Machines

MODEL = library.double_pendulum()
MATERIAL = {"stiffness": 100.0, "damping": 1.0}
TOUCHING = System(MODEL, (GroundContact.of(MODEL, contact_sphere("tip", radius=3.0), **MATERIAL),))


@pytest.fixture
def run(tmp_path: Path, monkeypatch):
    """Run the job on a double pendulum whose tip touches the ground; returns the exit status."""

    def run_with(outputs: str) -> int:
        monkeypatch.setattr(rollout, "_machines", lambda config: Machines(TOUCHING, None, None))
        monkeypatch.setattr(RunDirectory, "write_mechanism", lambda self, system: None)
        (tmp_path / "rollout.toml").write_text(ROLLOUT)
        given = [f"outputs={outputs}", "--out", str(tmp_path / "run")]
        return main(["rollout", str(tmp_path / "rollout.toml"), *given])

    return run_with


def test_contact_forces_and_motion_of_a_frame_are_recorded_with_the_names_and_units_of_their_columns(
    run, tmp_path: Path
):
    assert run('["contact_forces", "position:tip", "velocity:tip"]') == 0
    arrays = RunDirectory(tmp_path / "run").read_arrays("states")
    states = State(jnp.asarray(arrays["q"]), jnp.asarray(arrays["v"]))

    def expected(state: State):
        velocity = dynamics.frame_velocity(MODEL, state.q, state.v, "tip").linear
        position = dynamics.frame_placement(MODEL, state.q, "tip").translation
        return contact_forces(TOUCHING, state).force, position, velocity

    forces, positions, velocities = jax.vmap(jax.vmap(expected))(states)
    assert np.abs(forces).max() > 1.0
    np.testing.assert_allclose(arrays["contact_forces"], forces, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(arrays["position:tip"], positions, atol=1e-12)
    np.testing.assert_allclose(arrays["velocity:tip"], velocities, atol=1e-9)
    columns = json.loads((tmp_path / "run" / "metrics.json").read_text())["outputs"]
    assert columns["velocity:tip"] == ["velocity:tip x [m/s]", "velocity:tip y [m/s]", "velocity:tip z [m/s]"]
    assert [column[-5:] for column in columns["contact_forces"]] == ["x [N]", "y [N]", "z [N]"]


@pytest.mark.parametrize(("outputs", "named"), [('["force"]', "contact_forces"), ('["position:foot"]', "tip")])
def test_an_unknown_output_is_refused_with_the_known_ones(run, capsys, outputs, named):
    assert run(outputs) == 2
    error = capsys.readouterr().err
    assert "outputs" in error
    assert named in error


def test_the_memory_of_a_sample_grows_with_its_records_inputs_and_outputs(tmp_path):
    (tmp_path / "rollout.toml").write_text(ROLLOUT)

    def values(**changes) -> float:
        config = read_config(tmp_path / "rollout.toml", RolloutConfig)
        return rollout._bytes_per_sample(dataclasses.replace(config, memory=1e15, **changes), System(MODEL)) / 8

    # Each of the 4 records, the start and the two ends of the inputs are stored twice.
    np.testing.assert_allclose((values(outputs=("position:tip",)) - values()) / 3, 2 * (4 + 1 + 2), rtol=1e-6)
