"""Uncertainty: textbook formulas, repetition of the experiment, and what cannot be known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import OF_TORQUES, torques

from jaxdyn.identify import covariance
from jaxdyn.identify.charts import Positive, Real
from jaxdyn.identify.covariance import uncertainty
from jaxdyn.identify.fitting import fit
from jaxdyn.identify.least_squares import Unknowns, gauss_newton_step
from jaxdyn.identify.losses import Huber
from jaxdyn.identify.parameters import GaussianPrior, Parameter
from jaxdyn.identify.solver import FitResult

NOISE = 0.05
COUNT = 400
FREE = OF_TORQUES


def experiment(errors, *, free=FREE, **options):
    """Motion of a pendulum, and torques with errors."""
    problem = torques(errors, free, **options)
    v, a = (np.asarray(x)[:, 0] for x in (problem.motions.v, problem.motions.a))
    return problem, np.stack([v, -np.ones(COUNT), a], axis=1)


def errors(seed: int, correlation: float = 0.0):
    """Gaussian errors; correlated ones have a memory of 1/(1 - correlation) samples and the same variance."""
    white = np.random.default_rng(seed).normal(0.0, NOISE, COUNT)
    if correlation == 0.0:
        return white
    out = np.empty(COUNT)
    out[0] = white[0]
    for k in range(1, COUNT):
        out[k] = correlation * out[k - 1] + np.sqrt(1.0 - correlation**2) * white[k]
    return out


def solved(problem) -> Unknowns:
    return fit(problem, progress=False).unknowns


class TestLinear:
    def test_textbook(self):
        e = errors(0)
        problem, A = experiment(e, noise=0.1)  # assumed twice too large
        at = solved(problem)
        found = uncertainty(problem, at, kind="noise")
        estimate = np.linalg.lstsq(A, e, rcond=None)[0]  # of the deviations from the truth
        np.testing.assert_allclose(found.values, np.asarray([0.05, 0.0, 0.0]) + estimate, atol=1e-8)
        s = np.sqrt(np.sum((e - A @ estimate) ** 2) / (COUNT - 3))
        np.testing.assert_allclose(found.noise_scale * 0.1, s, rtol=1e-6)
        covariance = s**2 * np.linalg.inv(A.T @ A)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(found.std, np.sqrt(np.diag(covariance)), rtol=1e-6)
        np.testing.assert_allclose(found.intervals[:, 1] - found.intervals[:, 0], 2 * 1.96 * found.std, rtol=1e-4)
        correlation = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        np.testing.assert_allclose(found.correlation, correlation, atol=1e-6)
        assert found.warnings == ()
        assert [name.split()[0] for name, _ in found.labels] == ["viscous", "offset", "armature"]
        believed = uncertainty(problem, at, kind="noise", scale=False)
        np.testing.assert_allclose(believed.covariance, 0.1**2 * np.linalg.inv(A.T @ A), rtol=1e-6, atol=1e-12)

    def test_groups_formula(self):
        e = errors(1, 0.9)
        problem, A = experiment(e)
        found = uncertainty(problem, solved(problem))
        r = e - A @ np.linalg.lstsq(A, e, rcond=None)[0]
        g = np.stack([A[k : k + 20].T @ r[k : k + 20] for k in range(0, COUNT, 20)])
        inverse = np.linalg.inv(A.T @ A)
        np.testing.assert_allclose(found.covariance, inverse @ g.T @ g @ inverse * 20 / 19, rtol=1e-4, atol=1e-10)

    def test_prior_adds_information(self):
        free = (*FREE[:2], Parameter("system.model.armature", chart=Real(), prior=GaussianPrior(1e-3, 0.2)))
        problem, A = experiment(errors(2), free=free)
        found = uncertainty(problem, solved(problem), kind="noise", scale=False)
        F = A.T @ A / NOISE**2 + np.diag([0.0, 0.0, 1e6])
        np.testing.assert_allclose(found.covariance, np.linalg.inv(F), rtol=1e-6, atol=1e-12)

    def test_unknown_kind(self):
        problem, _ = experiment(errors(0))
        with pytest.raises(ValueError, match="use one of groups, noise"):
            uncertainty(problem, problem.initial, kind="bootstrap")


@pytest.fixture(scope="module")
def repeated():
    """Estimates of 400 repetitions with independent and with correlated errors; the problem is linear: one step solves it."""

    exact, _ = experiment(np.zeros(COUNT))

    @jax.jit
    @jax.vmap
    def estimate(e):
        problem = exact
        problem = eqx.tree_at(lambda p: p.motions.u, problem, problem.motions.u + e[:, None])
        at = problem.moved(
            problem.initial, gauss_newton_step(problem.normal(problem.initial), jnp.asarray(0.0))[0], jnp.zeros((0, 0))
        )
        return at.x, problem.normal(at).loss

    return {
        correlation: estimate(jnp.asarray(np.stack([errors(100 + k, correlation) for k in range(400)])))
        for correlation in (0.0, 0.8)
    }


class TestRepetition:
    def test_intervals_cover_the_truth(self, repeated):
        x, loss = repeated[0.0]
        problem, _ = experiment(errors(3))
        believed = uncertainty(problem, solved(problem), kind="noise", scale=False)
        scale = np.sqrt(2.0 * np.asarray(loss) / (COUNT - 3))
        off = np.abs(np.asarray(x) - [0.05, 0.0, 0.0]) / (scale[:, None] * np.asarray(believed.std))
        half = np.asarray(believed.intervals[:, 1] - believed.values) / np.asarray(believed.std)
        covered = np.mean(off < half, axis=0)
        assert np.all(np.abs(covered - 0.95) < 0.035)  # 400 repetitions: standard deviation 0.011

    def test_groups_are_right_for_correlated_errors_and_noise_is_not(self, repeated):
        for correlation in (0.0, 0.8):
            spread = np.std(np.asarray(repeated[correlation][0]), axis=0)
            problem, _ = experiment(errors(4, correlation))
            at = solved(problem)
            noise, groups = (np.asarray(uncertainty(problem, at, kind=kind).std) for kind in ("noise", "groups"))
            np.testing.assert_allclose(groups, spread, rtol=0.45)  # from 20 groups
            if correlation == 0.0:
                np.testing.assert_allclose(noise, spread, rtol=0.15)
                np.testing.assert_allclose(groups, noise, rtol=0.45)
            else:
                assert groups[1] > 1.7 * noise[1]  # the offset, which errors that stay resemble most


class TestBlind:
    """What the data do not tell is said, however good the data are otherwise."""

    @pytest.mark.parametrize("noise", [1e-9, 1.0, 1e6])
    def test_no_influence(self, noise):
        free = (*FREE, Parameter("sensors.scale"), Parameter("system.forces.0.velocity_scale", chart=Positive()))
        problem, _ = experiment(0.0 * errors(0), noise=noise, free=free)
        found = uncertainty(problem, problem.initial, kind="noise", scale=False)
        np.testing.assert_array_equal(np.isinf(found.std), [False, False, False, True, True])
        told = " ".join(found.warnings)
        for name, _ in found.labels[3:]:
            assert name in told
        for name, _ in found.labels[:3]:
            assert name not in told
        assert np.all(np.isfinite(found.correlation))
        np.testing.assert_array_equal(found.correlation[3:, :3], 0.0)

    @pytest.mark.parametrize("noise", [1e-9, 1.0, 1e6])
    def test_only_together(self, noise):
        """Rotor inertia and inertia of the body add up: neither is known, the others are."""
        free = (*FREE, Parameter("system.model.inertia"))
        problem, _ = experiment(0.0 * errors(0), noise=noise, free=free)
        found = uncertainty(problem, problem.initial, kind="noise", scale=False)
        np.testing.assert_array_equal(np.isinf(found.std), [False, False, True, True, True, True, True, True, True])
        assert any(found.labels[2][0] in w and found.labels[4][0] in w for w in found.warnings)

    def test_a_prior_makes_it_known(self):
        free = (*FREE, Parameter("sensors.scale", prior=GaussianPrior(0.01)))
        problem, _ = experiment(errors(0), free=free)
        found = uncertainty(problem, problem.initial, kind="noise", scale=False)
        np.testing.assert_allclose(found.std[3], 0.01)
        assert found.warnings == ()

    def test_a_value_at_its_bound_is_not_announced_without_a_name(self):
        moved = np.array([[1.0, 0.0], [0.0, 0.0]])  # the second unknown does not move its value at all
        unseen = np.array([[0.0], [1.0]])
        seen = np.ones(1), np.array([[1.0], [0.0]])
        assert covariance._warnings(seen, unseen, moved, (("mass", "kg"), ("friction", "N m"))) == ()
        assert "mass" in covariance._warnings(seen, unseen[::-1], moved, (("mass", "kg"), ("friction", "N m")))[0]

    def test_hardly_known(self):
        free = (
            FREE[0],
            Parameter("system.model.armature", chart=Real()),
            Parameter("system.model.inertia", prior=GaussianPrior(10.0)),
        )
        problem, _ = experiment(errors(0), free=free)
        found = uncertainty(problem, problem.initial, kind="noise", scale=False)
        assert np.all(np.isfinite(found.std))
        assert any("hardly" in w and found.labels[1][0] in w for w in found.warnings)


def test_information_that_is_not_finite():
    problem, _ = experiment(errors(0))
    problem = eqx.tree_at(lambda problem: problem.noise, problem, jnp.full_like(problem.noise, jnp.nan))
    with pytest.raises(ValueError, match="converge first"):
        uncertainty(problem, problem.initial)


def test_robust_loss_keeps_the_estimate():
    e = errors(7)
    e[::29] += 5.0
    problem, _ = experiment(e)
    robust = experiment(e, loss=Huber())[0]
    ends = [fit(p, progress=False) for p in (problem, robust)]
    assert all(int(end.result) == FitResult.SUCCESSFUL for end in ends)
    plain, huber = (float(abs(end.unknowns.x[1])) for end in ends)
    assert huber < 0.1 * plain
