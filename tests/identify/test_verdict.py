"""Bad recordings get their diagnosis by name, good ones get none; and a fit that cannot be trusted says why and what to try."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest
from recorded import OF_TORQUES, double_pendulum_plant, pendulum_plant, simulated, torques, with_noise

from jaxdyn.identify import (
    GaussianPrior,
    Motions,
    OutputError,
    Parameter,
    Parameters,
    Part,
    Plant,
    Positive,
    Processing,
    Recording,
    Sensors,
    Smoothing,
    cut,
    diagnose,
    fit,
    judge,
    uncertainty,
)
from jaxdyn.identify.diagnosis import FAULTS, Finding, noise_of
from jaxdyn.identify.least_squares import Unknowns
from jaxdyn.identify.validation import needed_and_acting
from jaxdyn.identify.verdict import DOUBTS, UNRELIABLE

PROCESSING = Processing(Smoothing(interval=0.01, cutoff=5.0, drop=20, decimate=1))


def clock_shift(recording: Recording) -> Recording:
    """Inputs with time stamps that are 12 ms too late."""
    columns = [np.interp(recording.time - 0.012, recording.time, column) for column in recording.u.T]
    return dataclasses.replace(recording, u=np.stack(columns, axis=1))


def changed(name: str, change):
    """A fault that changes the motion or the inputs of a recording in place."""

    def made(recording: Recording) -> Recording:
        table = getattr(recording, name).copy()
        change(table)
        return dataclasses.replace(recording, **{name: table})

    return made


def hold_first(q):
    q[:, 0] = 0.3 + 1e-3 * np.random.default_rng(1).normal(size=len(q))


def clip(u):
    np.clip(u, -0.5 * np.abs(u).max(axis=0), 0.5 * np.abs(u).max(axis=0), out=u)


def negate_last(u):
    u[:, -1] *= -1.0


def last_in_degrees(q):
    q[:, -1] *= 180.0 / np.pi


BAD = {
    "still": changed("q", hold_first),
    "saturated": changed("u", clip),
    "clock": clock_shift,
    "sign": changed("u", negate_last),
    "degrees": changed("q", last_in_degrees),
}


@pytest.fixture(scope="module", params=[pendulum_plant, double_pendulum_plant], ids=["pendulum", "double pendulum"])
def machine(request):
    """A plant without delays, and a good recording of it."""
    made = request.param()
    plant = Plant(made.system, Sensors(made.sensors.noise))
    return plant, with_noise(simulated(plant, 6.0, 3, irregular=False), 1e-3, 0)


def names(plant: Plant, recording: Recording) -> set[str]:
    return {finding.name for finding in diagnose(plant, [Part(recording, processing=PROCESSING)])}


def test_a_good_recording_has_no_faults(machine):
    assert names(*machine) == set()


@pytest.mark.parametrize("fault", BAD)
def test_each_fault_is_named_and_no_other_one(machine, fault):
    plant, recording = machine
    assert names(plant, BAD[fault](recording)) == {fault}


def test_a_motion_without_inertia_is_slow(machine):
    plant, _ = machine
    time = 0.01 * np.arange(6001)
    q = np.stack([0.5 * np.sin(2.0 * np.pi * 0.02 * (k + 1) * time) for k in range(plant.system.model.nq)], axis=1)
    v = np.gradient(q, time, axis=0)
    motions = Motions(*map(jnp.asarray, (q, v, np.gradient(v, time, axis=0), 0.0 * q)))
    rng = np.random.default_rng(0)
    tau = np.asarray(needed_and_acting(plant, motions)[0]) + 0.01 * rng.normal(size=q.shape)
    recording = Recording("slow", time, q + 1e-3 * rng.normal(size=q.shape), None, tau, inputs="linear")
    assert names(plant, recording) == {"slow"}


def test_the_shift_of_a_clock_is_stated():
    plant = pendulum_plant()
    recording = clock_shift(simulated(plant, 6.0, 3, irregular=False))
    (found,) = diagnose(plant, [Part(recording, processing=PROCESSING)])
    stated = re.search(r"read ([\d.]+) ms later", found.message)
    assert stated is not None
    np.testing.assert_allclose(float(stated[1]), 12.0, atol=0.3)


def test_recordings_that_are_too_short_for_a_filter_are_left_to_the_fit():
    plant = pendulum_plant()
    assert names(plant, simulated(plant, 0.3, 3, irregular=False)) <= {"saturated"}


def test_every_fault_is_in_the_gallery():
    assert FAULTS.keys() == {*BAD, "slow"}
    assert set(UNRELIABLE) <= FAULTS.keys() | DOUBTS.keys()


def test_noise_is_that_between_neighboring_samples():
    rng = np.random.default_rng(0)
    smooth = np.sin(0.01 * np.arange(20_000))[:, None] * np.array([1.0, 100.0])
    sizes = np.array([1e-3, 0.1])
    np.testing.assert_allclose(noise_of(smooth + sizes * rng.normal(size=smooth.shape)), sizes, rtol=0.05)


def noisy(free=OF_TORQUES, *, more=lambda q, v, a: 0.0, **options):
    """Torques of a pendulum with Gaussian errors of 0.05 N m and, on request, with other forces that the model does not know."""
    noise = 0.05 * np.random.default_rng(0).normal(size=400)
    return torques(lambda q, v, a: noise + more(q, v, a), free, **options)


def verdict_of(problem, *, max_steps: int = 30, **evidence):
    found = fit(problem, max_steps=max_steps, throw=False, progress=False)
    return judge(problem, found.unknowns, found.result, uncertainty(problem, found.unknowns), **evidence)


def kinds(verdict) -> set[str]:
    return {finding.name for finding in verdict.findings}


def test_a_fit_that_explains_its_data_has_no_doubts():
    verdict = verdict_of(noisy())
    assert verdict
    assert verdict.lines[0].startswith("verdict: no doubts; residuals")


def test_a_budget_that_ran_out_is_said():
    verdict = verdict_of(noisy((Parameter("system.model.mass"), *OF_TORQUES)), max_steps=1)
    assert "not converged" in kinds(verdict)
    assert "increase max_steps" in "\n".join(verdict.lines)


def test_a_value_that_the_data_push_to_zero_has_no_interval():
    """The torques are those of a pendulum of less inertia than its body, so that the best armature would be negative."""
    free = (Parameter("system.model.armature", chart=Positive()),)
    plant = pendulum_plant()
    start = dataclasses.replace(plant, system=with_armature(plant.system, 0.1))
    problem = noisy(free, plant=start, more=lambda q, v, a: -0.05 * a)
    found = fit(problem, throw=False, progress=False, max_steps=100)
    known = uncertainty(problem, found.unknowns)
    assert float(known.std[0]) == 0.0
    assert np.all(np.isnan(known.intervals))
    assert "at its bound" in kinds(judge(problem, found.unknowns, found.result, known))


def with_armature(system, value: float):
    return system.changed(model=dataclasses.replace(system.model, armature=jnp.array([value])))


def test_a_model_without_the_friction_of_its_data_does_not_explain_them():
    plant = pendulum_plant()
    recording = simulated(plant, 4.0, 3, irregular=False)
    bare = Plant(plant.system.changed(forces=()), plant.sensors)
    windows = cut([recording], duration=1.0, interval=0.01)
    problem = OutputError(Parameters(bare, [Parameter("system.model.mass", chart=Positive())]), windows)
    verdict = verdict_of(problem)
    assert verdict.noise_scale > 5.0
    assert "unexplained" in kinds(verdict)


def test_forces_that_remain_are_unexplained():
    verdict = verdict_of(noisy(more=lambda q, v, a: 3.0 * np.cos(7.0 * q)))
    assert "unexplained" in kinds(verdict)


def test_an_estimate_that_contradicts_its_prior_is_named():
    prior = GaussianPrior(0.01, 0.0)
    free = (Parameter("inputs.offset", prior=prior), Parameter("system.model.mass", chart=Positive()))
    verdict = verdict_of(noisy(free, more=lambda q, v, a: -1.0))
    (found,) = (finding for finding in verdict.findings if finding.name == "far from prior")
    assert "standard deviations above the mean of its prior" in found.message


def test_values_that_the_data_do_not_determine_are_pointed_to_an_excitation():
    twins = (Parameter("system.model.mass", chart=Positive()), Parameter("system.model.com", chart=None))
    verdict = verdict_of(noisy(twins))
    (first, *_) = (finding for finding in verdict.findings if finding.name == "not determined")
    assert "design_excitation" in first.message


def test_errors_that_grow_on_other_recordings_and_faults_of_recordings_are_passed_on():
    clock = Finding("clock", "another clock")
    problem = noisy()
    verdict = verdict_of(problem, faults=[clock], errors=[("rms", 1.0, 2.5), ("relative", 1.0, 1.5)])
    assert [finding.name for finding in verdict.findings] == ["clock", "held out"]
    delayed = noisy((*OF_TORQUES, Parameter("inputs.delay")))
    assert "clock" not in kinds(verdict_of(delayed, faults=[clock]))  # the fit estimates it


def test_a_batch_of_fits_has_no_verdict():
    problem = noisy()
    known = uncertainty(problem, problem.initial)
    starts = Unknowns(jnp.stack([problem.initial.x] * 2), None)
    many = fit(problem, initial=starts, progress=False, throw=False)
    with pytest.raises(ValueError, match="batch of fits; give one of them"):
        judge(problem, many.unknowns, 1, known)
