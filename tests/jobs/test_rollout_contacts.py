"""Contacts in the metrics, the messages and the pictures of `jaxdyn rollout`."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from small_jobs import ROLLOUT

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.dynamics import GroundContact, HalfSpace, contact_sphere
from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.jobs.rollout import contacts as rollout_contacts
from jaxdyn.jobs.rollout import work as rollout
from jaxdyn.jobs.rollout.samples import Machines

RADIUS, HEIGHT = 0.1, 0.05


def dropped(**material: float) -> jaxdyn.System:
    """A ball on a vertical rail, whose lowest point is 5 cm above the ground at the coordinate 0."""
    builder = jaxdyn.MechanismBuilder("dropped")
    builder.add_body("ball", joint=jaxdyn.Prismatic((0, 0, 1)), mass=1.0, inertia=0.004 * jnp.eye(3))
    model = builder.build()
    sphere = contact_sphere("ball", radius=RADIUS)
    contact = GroundContact.of(model, sphere, HalfSpace(height=-RADIUS - HEIGHT), **material)
    return jaxdyn.System(model, forces=(contact,))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the job on a system; returns its metrics and the directory."""

    def run_on(system: jaxdyn.System, *overrides: str) -> tuple[dict, Path]:
        monkeypatch.setattr(rollout, "_machines", lambda config: Machines(system, None, None))
        monkeypatch.setattr(RunDirectory, "write_mechanism", lambda self, system: None)
        (tmp_path / "rollout.toml").write_text(ROLLOUT)
        given = ["time.duration=0.3 s", "time.save_every=50", "initial.spread=0", *overrides]
        assert main(["rollout", str(tmp_path / "rollout.toml"), *given, "--out", str(tmp_path / "run")]) == 0
        return json.loads((tmp_path / "run" / "metrics.json").read_text()), tmp_path / "run"

    return run_on


def test_the_deepest_penetration_between_the_records_and_the_time_in_contact_are_reported(run, capsys):
    system = dropped()
    metrics, out = run(system, "pictures=true")
    steps = jaxdyn.rollout(
        system,
        system.at_rest(jnp.zeros(1)),
        dt=1e-3,
        steps=300,
        save=lambda t, state, u: jaxdyn.dynamics.contact_forces(system, state).depth[0],
    )
    depth = np.asarray(steps.saved)
    assert depth.max() > 1.2 * depth[::50].max(), "the deepest point lies between two records"
    assert metrics["contact_deepest_m"] == pytest.approx(depth.max(), rel=1e-9)
    assert metrics["contact_deepest_name"] == "ball"
    assert 0.0 <= metrics["contact_deepest_time_s"] - 1e-3 * depth.argmax() <= 0.05
    assert metrics["contact_time_share"]["ball"] == pytest.approx(np.mean(depth[1:] > 0.0), abs=1e-9)
    printed = capsys.readouterr().out
    assert "deepest penetration" in printed
    assert "'ball'" in printed
    assert "warning" not in printed
    assert "time.rate" in printed, "the error of the power balance is explained by the contacts"
    assert (out / "contact_forces.png").stat().st_size > 5000
    with np.load(out / "states.npz", allow_pickle=False) as arrays:
        assert arrays["contact_force"].shape == (3, 7, 1)


def test_a_penetration_far_beyond_the_static_depth_is_a_warning_with_a_remedy():
    system = dropped(stiffness=3e5, onset=1e-5)
    static = 9.81 / 3e5 + 0.5e-5
    samples = {
        "deepest": np.array([9.0 * static, 12.0 * static, 1.0]),
        "deepest_contact": np.zeros(3, int),
        "deepest_time": np.array([0.1, 0.2, 0.3]),
        "contact_share": np.array([[0.5], [0.7], [0.0]]),
    }
    metrics = rollout_contacts.contact_metrics(system, samples, np.array([True, True, False]))
    assert metrics["contact_deepest_sample"] == 1, "the third sample failed"
    assert metrics["contact_static_depth_m"] == pytest.approx(static, rel=1e-3)
    assert metrics["contact_time_share"]["ball"] == pytest.approx(0.6)
    _, warning = rollout_contacts.contact_lines(metrics)
    assert "warning: contact 'ball' penetrates 12 times" in warning
    assert "stiffer material or shorter steps" in warning
    (_,) = rollout_contacts.contact_lines(metrics | {"contact_deepest_m": 9.0 * static})
    assert "start above the ground" in rollout_contacts.contact_lines(metrics | {"contact_deepest_time_s": 0.0})[1]
    assert "no contact" in rollout_contacts.contact_lines(metrics | {"contact_deepest_m": 0.0})[0]
    assert rollout_contacts.contact_lines({}) == []


def test_contacts_of_one_body_have_different_names_in_the_report():
    model = dropped().model
    points = 2 * contact_sphere("ball", radius=RADIUS)
    assert rollout_contacts.labels(jaxdyn.System(model, forces=(GroundContact.of(model, points),))) == [
        "ball[0]",
        "ball[1]",
    ]
