"""Warnings about predictions that depend on what the training recordings do not determine."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, double_pendulum_plant, pendulum_plant, simulated, with_noise

from jaxdyn.identify import (
    GaussianPrior,
    InverseDynamicsError,
    Motions,
    OutputError,
    Parameter,
    Parameters,
    Plant,
    Positive,
    Real,
    cut,
    fit,
    uncertainty,
    undetermined_predictions,
)
from jaxdyn.identify.validation import needed_and_acting

NOISE = 0.05
ARM = eqx.tree_at(lambda plant: plant.inputs.delay, double_pendulum_plant(), jnp.zeros(2))
MASSES = Parameter("system.model.mass", chart=Positive())


def motions(seed: int, *, elbow: float) -> Motions:
    """A motion of an arm with two joints, whose elbow moves by this angle, and its torques with noise."""
    rng = np.random.default_rng(seed)
    t, size = np.linspace(0.0, 6.0, 200), np.array([1.0, elbow])
    w, phase = rng.uniform(1.0, 3.0, 2), rng.uniform(0.0, 6.0, 2)
    angle = w * t[:, None] + phase
    q, v, a = size * np.sin(angle), size * w * np.cos(angle), -size * w**2 * np.sin(angle)
    still = Motions(*map(jnp.asarray, (q + 0.4, v, a, 0.0 * q)))
    needed, acting = needed_and_acting(ARM, still)
    noise = NOISE * jnp.asarray(rng.normal(size=q.shape))
    return dataclasses.replace(still, u=(needed - acting + noise) / ARM.inputs.gain[None])


def arm_fitted_to(training: Motions, prior: GaussianPrior | None = None) -> Plant:
    free = [MASSES, Parameter("system.forces.0.viscous", chart=Real(), prior=prior)]
    problem = InverseDynamicsError(Parameters(ARM, free), training, jnp.full(2, NOISE))
    at = fit(problem, progress=False).unknowns
    plant = problem.parameters.place(at.x)
    return Plant(plant.system, plant.sensors, plant.inputs, estimates=uncertainty(problem, at))


@pytest.fixture(scope="module")
def unseen() -> dict[str, Motions]:
    return {"slow": motions(1, elbow=0.0), "swing": motions(2, elbow=1.0)}


def test_an_arm_of_which_training_moves_one_joint_is_warned_about_the_friction_of_the_other(unseen):
    training = motions(0, elbow=0.0)
    (found,) = undetermined_predictions(arm_fitted_to(training), training, unseen)
    assert (found.motion, found.fraction) == ("swing", 1.0)
    assert found.parameters == ("viscous [2_joint]",)
    assert "swing: the prediction depends on viscous [2_joint], which neither training" in found.message


def test_a_prior_makes_the_share_finite_and_a_narrow_one_makes_it_small(unseen):
    training = motions(0, elbow=0.0)
    plant = arm_fitted_to(training, GaussianPrior(1.0))
    (found,) = undetermined_predictions(plant, training, unseen)
    assert found.parameters == ("viscous [2_joint]",)
    # The deviation of this force is that of the prior times the speed; the average is over the forces of both joints.
    speed = np.asarray(unseen["swing"].v)[:, 1]
    assert plant.estimates is not None
    noise = np.asarray(plant.estimates.noise)[1]
    by_hand = np.mean(speed**2) / noise**2 / 2
    np.testing.assert_allclose(found.fraction, np.sqrt(by_hand / (1 + by_hand)), rtol=2e-3)
    assert found.training_fraction < 1e-3
    assert f"swing: {100 * found.fraction:.0f} % of the predicted standard deviation come from viscous" in found.message
    assert not undetermined_predictions(arm_fitted_to(training, GaussianPrior(1e-3)), training, unseen)


def test_a_fit_of_motions_of_all_joints_is_silent(unseen):
    training = motions(0, elbow=1.0)
    plant = arm_fitted_to(training)
    assert undetermined_predictions(plant, training, unseen) == []
    # A motion as in training is no extrapolation, however small the reported share.
    assert undetermined_predictions(plant, training, {"same": training}, least_fraction=0.01) == []
    assert undetermined_predictions(plant, training, {"same": training}, least_fraction=0.01, factor=0.5)


def test_windows_of_a_pendulum_at_rest_do_not_determine_its_friction():
    plant = pendulum_plant()
    lively = {seed: with_noise(simulated(plant, 0.6, seed, irregular=False), 1e-3, seed) for seed in (0, 1)}
    still = with_noise(dataclasses.replace(lively[0], q=0.0 * lively[0].q, u=0.0 * lively[0].u), 1e-4, 2)
    windows = {name: cut([r], duration=0.2, interval=STEP) for name, r in {"lively": lively[0], "still": still}.items()}
    unseen = {"swing": cut([lively[1]], duration=0.2, interval=STEP)}
    free = [Parameter("system.forces.0.viscous", chart=Real())]
    for name, count in (("lively", 0), ("still", 1)):
        problem = OutputError(Parameters(plant, free), windows[name])
        known = uncertainty(problem, problem.initial)
        fitted = Plant(plant.system, plant.sensors, estimates=known)
        assert len(undetermined_predictions(fitted, windows[name], unseen)) == count


def test_a_plant_without_estimates_is_refused():
    with pytest.raises(ValueError, match="the plant has no estimates of a fit; give Plant"):
        undetermined_predictions(ARM, motions(1, elbow=0.0), {})
