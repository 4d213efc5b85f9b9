"""`jaxdyn rollout` of an identified plant: its controls act through the gains, offsets and delays of its inputs."""

import dataclasses
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, double_pendulum_plant

from jaxdyn import RungeKutta4, State, io, rollout, total_energy
from jaxdyn.cli import main
from jaxdyn.identify import Inputs, Plant, Positive, Real, cut
from jaxdyn.identify.estimates import Address, Uncertainty
from jaxdyn.identify.prediction_intervals import with_values
from jaxdyn.identify.recording import Recording
from jaxdyn.identify.validation import predicted_measurements
from jaxdyn.simulate.controls import Knots

STEPS = 40
CONFIG = f"""
mechanism = "fit"
batch = 1
dtype = "float64"
pictures = false
[time]
duration = {STEPS * STEP}
rate = {1 / STEP}
integrator = "runge_kutta_4"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The run directory of a fit, and a plan of commands."""
    (tmp_path / "fit").mkdir()
    io.save_plant(double_pendulum_plant(), tmp_path / "fit")
    time = STEP * np.arange(STEPS + 1)
    commands = np.stack([np.sin(9.0 * time[:-1]) + 1.0, np.cos(7.0 * time[:-1])], axis=1)
    states = np.tile([0.4, -0.3], (STEPS + 1, 1)), np.zeros((STEPS + 1, 2))
    bound, gains = np.full(2, 10.0), np.full((STEPS, 2, 4), 0.1)
    arrays = {"q": states[0], "v": states[1], "controls": commands, "feedback": gains, "lower": -bound, "upper": bound}
    io.RunDirectory(tmp_path / "plan").write_arrays("plan", time=time, **arrays)
    (tmp_path / "rollout.toml").write_text(CONFIG)
    return tmp_path


def run(folder: Path, *words: str, out: str = "run") -> int:
    return main(["rollout", str(folder / "rollout.toml"), "--out", str(folder / out), *words])


def test_replayed_commands_act_as_in_the_fit(folder, capsys):
    plan = f"control.replay={folder / 'plan' / 'plan.npz'}"
    assert run(folder, plan) == 0
    found, plant = io.load_run(folder / "run"), double_pendulum_plant()
    with np.load(folder / "plan" / "plan.npz") as arrays:
        time, commands = arrays["time"], np.concatenate([arrays["controls"], arrays["controls"][-1:]])
    recording = Recording("commands", time, np.zeros((STEPS + 1, 2)), None, commands)
    windows = cut([recording], duration=STEPS * STEP, interval=STEP, lead=0.03)
    held = jax.vmap(lambda knots: dataclasses.replace(knots, interpolation="zero_order"))(windows.controls)
    windows = dataclasses.replace(windows, controls=held)
    start = State(jnp.array([[0.4, -0.3]]), jnp.zeros((1, 2)))
    expected = predicted_measurements(plant, windows, start)[0]
    read = found.arrays["q"][0] + np.asarray(plant.sensors.offset)
    np.testing.assert_allclose(read, expected, rtol=1e-9, atol=1e-9)
    shown = capsys.readouterr().out
    assert "acted through the inputs of the plant: gain [1.15, 0.85], offset [0.2, -0.1], delay [0.013, 0.027]" in shown
    assert "only the mechanism of this plant is read" not in shown
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    assert metrics["inputs"] == {"gain": [1.15, 0.85], "offset": [0.2, -0.1], "delay": [0.013, 0.027]}
    energy, work = found.arrays["energy"][0], found.arrays["work"][0]
    means = [metrics[f"{name}_mean_J"] for name in ("energy_initial", "energy_final", "work")]
    np.testing.assert_allclose(means, [energy[0], energy[-1], work[-1]], rtol=1e-12)
    gained = energy[-1] - energy[0]
    error, turned_over = abs(gained - work[-1]), np.abs(np.diff(work)).sum() + abs(gained)
    relative = metrics["power_balance_error_max_J"], metrics["power_balance_error_relative_median"]
    np.testing.assert_allclose(relative, [error, error / turned_over], rtol=1e-9)


def test_random_torques_are_delayed_and_offset(folder):
    torques = ["initial.spread=0", "control.random_torque=1", "control.random_interval=0.1"]
    ends = {}
    for name, inputs in (
        ("plant", double_pendulum_plant().inputs),
        ("without delay", dataclasses.replace(double_pendulum_plant().inputs, delay=jnp.zeros(2))),
        ("as commanded", Inputs([1.0, 1.0], [0.0, 0.0], [0.0, 0.0])),
    ):
        plain = double_pendulum_plant()
        io.save_plant(Plant(plain.system, plain.sensors, inputs), folder / "fit")
        assert run(folder, *torques, out=name) == 0
        ends[name] = io.load_run(folder / name).arrays["q"][0, -1]
    io.save_system(double_pendulum_plant().system, folder / "mechanism.json")
    assert run(folder, *torques, f"mechanism={folder / 'mechanism.json'}") == 0
    np.testing.assert_array_equal(io.load_run(folder / "run").arrays["q"][0, -1], ends["as commanded"])
    for one, other in itertools.combinations(ends.values(), 2):
        assert np.max(np.abs(one - other)) > 1e-3


def test_each_sample_has_its_own_machine(folder, capsys):
    """Machines of the posterior move as rollouts of the same machines in Python; the estimates are those of all other samples."""
    masses = double_pendulum_plant().system.model.mass
    values = jnp.concatenate([masses, double_pendulum_plant().inputs.gain])
    known = Uncertainty(
        tuple((f"value {k}", "") for k in range(4)),
        values,
        jnp.diag((0.5 * values) ** 2),
        jnp.asarray(1.0),
        (),
        jnp.diag((0.5 * values) ** 2),
        addresses=(Address(("system.model.mass",), None, 2), Address(("inputs.gain",), None, 2)),
        charts=(Positive(), Real()),
    )
    plant = dataclasses.replace(double_pendulum_plant(), estimates=known)
    io.save_plant(plant, folder / "fit")
    words = [f"control.replay={folder / 'plan' / 'plan.npz'}", "batch=3", "initial.spread=0.1"]
    assert run(folder, *words, "spread=posterior") == 0
    found = io.load_run(folder / "run").arrays
    assert json.loads((folder / "run" / "metrics.json").read_text())["parameters"][3] == "value 3 "
    assert np.all(found["parameters"][:, :2] > 0.0)
    assert np.all(np.std(found["parameters"], axis=0) > 0.05 * values)
    with np.load(folder / "plan" / "plan.npz") as arrays:
        commands = Knots(jnp.asarray(arrays["controls"]), STEP, interpolation="zero_order")
    for k in range(3):
        machine = with_values(plant, known, jnp.asarray(found["parameters"][k]))
        start = State(jnp.asarray(found["q"][k, 0]), jnp.asarray(found["v"][k, 0]))
        moved = rollout(
            machine.system, start, machine.controls(commands), dt=STEP, steps=STEPS, integrator=RungeKutta4()
        )
        np.testing.assert_allclose(found["q"][k], moved.saved.q, rtol=1e-9, atol=1e-9)
        for record, state in ((0, start), (-1, moved.final)):
            energy = total_energy(machine.system, state)
            np.testing.assert_allclose(found["energy"][k, record], energy, rtol=1e-9, atol=1e-9)
    io.save_plant(dataclasses.replace(plant, estimates=None), folder / "fit")
    assert run(folder, *words, "spread=posterior", out="none") == 2
    assert "the plant has no estimates of a fit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["control.stiffness=3"], "set stiffness = 0, damping = 0 and compensate_gravity = false"),
        (["control.replay=PLAN", "control.replay_feedback=true"], "set replay_feedback = false"),
    ],
)
def test_controls_that_depend_on_the_state_are_refused_if_there_are_delays(folder, words, remedy, capsys):
    words = [word.replace("PLAN", str(folder / "plan" / "plan.npz")) for word in words]
    assert run(folder, *words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "delays [0.013, 0.027] s" in line
    assert remedy in line
