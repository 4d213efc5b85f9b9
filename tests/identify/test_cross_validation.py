"""Cross-validation: it finds the structure of a machine, names what failed, and compiles nothing again from fold to fold."""

import dataclasses

import equinox as eqx
import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, pendulum_plant, simulated

from jaxdyn.identify import (
    FitError,
    FitResult,
    ForcesCheck,
    InverseDynamicsError,
    OutputError,
    Parameter,
    Parameters,
    Part,
    Plant,
    Positive,
    Processing,
    Real,
    Recording,
    Smoothing,
    WindowsCheck,
    cross_validate,
    cut,
    fit,
)
from jaxdyn.identify.cross_validation import CrossValidation
from jaxdyn.identify.validation import smoothed_motions

RAW = Processing(Smoothing(STEP, 0.0, drop=0, decimate=1))
NOISE = 0.3
VISCOUS = Parameter("system.forces.0.viscous", chart=Real())
MASS = Parameter("system.model.mass", chart=Positive())
# The true values of these are those of the plant, so fits of noise only.
USELESS = (
    Parameter("inputs.offset"),
    Parameter("system.model.armature", chart=Real()),
    Parameter("system.model.gravity", (0,), name="tilt"),
)


def with_friction(viscous: float) -> Plant:
    return eqx.tree_at(lambda p: p.system.forces[0].viscous, pendulum_plant(), jnp.array([viscous]))


def measured(seed: int, viscous: float) -> Part:
    """Thirty samples of a motion, and its torques with noise: weight, inertia about the hinge, friction."""
    rng = np.random.default_rng(seed)
    t = STEP * np.arange(30)
    w, phase = rng.uniform(8.0, 15.0), rng.uniform(0.0, 6.0)
    q, v, a = np.sin(w * t + phase), w * np.cos(w * t + phase), -(w**2) * np.sin(w * t + phase)
    gravity = -float(PLANT.system.model.gravity[2])
    u = 1.2 * gravity * 0.4 * np.sin(q) + (0.03 + 1.2 * 0.4**2) * a + viscous * v + rng.normal(0.0, NOISE, 30)
    return Part(Recording(f"run {seed}", t, *(x[:, None] for x in (q, v, u, a))), processing=RAW)


PLANT = with_friction(0.0)
RUNS = [measured(seed, 0.1) for seed in range(8)]


def fitted(train, *free: Parameter):
    problem = InverseDynamicsError(Parameters(PLANT, free), smoothed_motions(train), jnp.array([NOISE]))
    return fit(problem, progress=False)


@pytest.fixture(scope="module")
def structures():
    """The comparison of three structures, and the losses of the last fits."""
    losses = {}

    def candidate(name, *free):
        def of(train):
            found = fitted(train, *free)
            losses[name] = float(found.loss)
            return found.value

        return of

    candidates = {
        "no friction": candidate("no friction", MASS),
        "viscous": candidate("viscous", MASS, VISCOUS),
        "all": candidate("all", MASS, VISCOUS, *USELESS),
    }
    return cross_validate(candidates, RUNS, [ForcesCheck()], figure="relative", progress=False), losses


def test_the_structure_of_the_machine_is_chosen_and_the_training_error_would_choose_another(structures):
    found, losses = structures
    assert found.chosen == "viscous"
    assert min(losses, key=losses.__getitem__) == "all"
    assert found.mean[0] > 1.5 * found.mean[1]


def test_means_and_standard_errors_are_those_of_the_folds(structures):
    found, _ = structures
    assert found.errors.shape == (3, 8)
    assert found.figures["viscous", "run 3"] == {"relative": found.errors[1, 3]}
    np.testing.assert_allclose(found.mean[0], found.errors[0].sum() / 8)
    deviation = np.sqrt(np.sum((found.errors[0] - found.mean[0]) ** 2) / 7)
    np.testing.assert_allclose(found.standard_error[0], deviation / np.sqrt(8))
    off = found.errors[0] - found.errors[found.candidates.index(found.best)]
    np.testing.assert_allclose(found.differences[0], [off.mean(), np.std(off, ddof=1) / np.sqrt(8)])
    assert "viscous" in repr(found)
    assert str(found).splitlines()[0].split()[:3] == ["candidate", "run", "0"]


def with_errors(*rows, **options) -> CrossValidation:
    """A result with given errors, whose candidates are a, b, c."""
    names, folds = "abc"[: len(rows)], tuple(str(k) for k in range(len(rows[0])))
    figures = {
        (who, fold): {"rms": x}
        for who, row in zip(names, rows, strict=True)
        for fold, x in zip(folds, row, strict=True)
    }
    return CrossValidation(tuple(names), folds, figures, {}, **options)


def test_the_first_candidate_within_one_standard_error_of_the_differences_is_chosen():
    # The recordings differ more than the candidates: b is better than a in each of them.
    assert with_errors([1.1, 5.1, 9.1], [1.0, 5.0, 8.9]).chosen == "b"
    # Here b is better in some of them only.
    assert with_errors([1.1, 5.1, 8.9], [1.0, 4.8, 9.0]).chosen == "a"
    assert with_errors([1.0, 5.0], [1.0, 5.0]).chosen == "a"


def test_larger_figures_are_better_if_they_are_times():
    times = {"larger_is_better": frozenset({"rms"})}
    found = with_errors([1.0, 2.0], [3.0, 5.0], **times)
    assert found.best == "b"
    np.testing.assert_allclose(found.errors, [[1.75, 1.5], [1.25, 0.75]])  # 4 s in the mean are the error 1
    assert with_errors([1.0, 2.0], [3.0, 5.0]).best == "a"


def test_a_failed_fit_is_named_and_its_error_is_infinite():
    def failing(train):
        if len(train) == 2 and train[0].recording.name == "run 1":
            raise FitError("no step decreases the loss", FitResult.STUCK)
        return PLANT

    found = cross_validate(
        {"fails": failing, "as drawn": lambda train: PLANT}, RUNS[:3], [ForcesCheck()], progress=False
    )
    assert np.isinf(found.errors[0, 0])
    assert np.all(np.isfinite(found.errors[0, 1:]))
    assert (found.best, found.chosen) == ("as drawn", "as drawn")
    assert found.failures == {("fails", "run 0"): "no step decreases the loss"}
    assert "fails, run 0 left out: no step decreases the loss" in str(found)
    assert "1 of 3 fits failed" in repr(found)
    with pytest.raises(FitError, match="every candidate failed; fails, run 0 left out: no step"):
        cross_validate({"fails": failing}, RUNS[:3], [ForcesCheck()], progress=False)


def test_groups_are_left_out_together():
    seen = []

    def remembered(train):
        seen.append([part.recording.name for part in train])
        return PLANT

    found = cross_validate({"a": remembered}, RUNS[:3], [ForcesCheck()], groups=["x", "y", "x"], progress=False)
    assert found.folds == ("x", "y")
    assert seen == [["run 1"], ["run 0", "run 2"]]
    halves = [dataclasses.replace(RUNS[0], end=0.15), dataclasses.replace(RUNS[0], start=0.15)]
    folds = cross_validate({"a": remembered}, halves, [ForcesCheck()], progress=False).folds
    assert folds == ("run 0 0-0.15 s", "run 0 0.15-0.29 s")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"recordings": RUNS[:1]},
            r"there is only one; record more, or cut it into parts, Part\(recording, start, end\)",
        ),
        ({"groups": ["x", "x"]}, "all recordings are in the same group"),
        ({"groups": ["x"]}, "1 labels of groups for 2 recordings"),
        ({"figure": "relativ"}, "no figure 'relativ' .did you mean 'relative'"),
        ({"candidates": {}}, "there is no candidate"),
        ({"candidates": {"a": PLANT}}, "give a dictionary of functions"),
        ({"candidates": {"a": len}}, "the result of candidate 'a' is an int; give a Plant"),
        ({"recordings": ["run.csv", "b.csv"]}, r"one of the recordings is a str; give load_recording\(path\)"),
        ({"checks": []}, "there is no check"),
        ({"checks": ForcesCheck()}, "give a list"),
    ],
)
def test_wrong_arguments_are_refused_with_a_remedy(change, message, as_a_user):
    arguments = {"candidates": {"a": lambda train: PLANT}, "recordings": RUNS[:2], "checks": [ForcesCheck()]}
    with pytest.raises((TypeError, ValueError), match=message):
        cross_validate(**(arguments | change), progress=False)


_compiled: list[str] = []


def _note(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event.endswith("backend_compile_duration"):
        _compiled.append(event)


jax.monitoring.register_event_duration_secs_listener(_note)


def test_nothing_is_compiled_again_from_fold_to_fold():
    recordings = [simulated(with_friction(0.2), 0.4, seed, irregular=False, name=f"run {seed}") for seed in range(4)]
    counts = []

    def candidate(train):
        counts.append(len(_compiled))
        windows = cut(train, duration=0.2, interval=STEP)
        return fit(OutputError(Parameters(PLANT, [VISCOUS]), windows), progress=False).value

    check = WindowsCheck(durations=(0.2,), interval=STEP)
    found = cross_validate({"viscous": candidate}, recordings, [check], progress=False)
    assert counts[1] > counts[0]
    assert [*counts[2:], len(_compiled)] == [counts[1]] * 3
    assert np.all(found.errors < 3.0)
