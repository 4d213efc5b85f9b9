"""Linear fits: against NumPy, exact data of a seven-joint arm, and the coverage of intervals over many experiments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import JointFriction, State, System, applied_forces, inverse_dynamics
from jaxdyn.identify.identifiability import base_parameters, identifying_motions
from jaxdyn.identify.linear_fit import Prior, reweighted_least_squares, weighted_least_squares
from jaxdyn.identify.regression import labels, linear_parameters, regressor, with_linear_parameters


def with_friction(model) -> System:
    n = model.nv
    rng = np.random.default_rng(0)
    return System(
        model, (JointFriction(rng.uniform(0.5, 2.0, n), rng.uniform(0.2, 1.0, n), jnp.full(n, 0.05, model.dtype)),)
    )


@jax.jit
def needed_forces(system: System, q, v, a):
    """Forces of an experiment by the recursion, which knows no regressor."""

    def needed(q, v, a):
        return inverse_dynamics(system.model, q, v, a) - applied_forces(system, State(q, v))

    return jax.vmap(needed)(q, v, a)


@jax.jit
def motions_and_rows(system: System, key):
    q, v, a = identifying_motions(system, key, samples=60)
    return (q, v, a), jax.vmap(regressor, (None, 0, 0))(system, State(q, v), a)


def test_seven_joint_arm_is_recovered_from_exact_data():
    """And the fitted arm, put back into a system, moves as the true one, though no single mass needs to be the true one."""
    truth = with_friction(jaxdyn.library.panda())
    motions, Y = motions_and_rows(truth, jax.random.key(0))
    tau = needed_forces(truth, *motions)
    found = base_parameters(Y, labels(truth))
    fit = reweighted_least_squares(found.columns(Y), tau)
    expected = found.values(linear_parameters(truth))
    np.testing.assert_allclose(fit.estimate, expected, rtol=1e-6, atol=1e-6 * float(jnp.max(jnp.abs(expected))))
    guess = 0.8 * linear_parameters(truth)
    fitted = with_linear_parameters(truth, found.nearest(fit.estimate, guess))
    np.testing.assert_allclose(needed_forces(fitted, *motions), tau, atol=1e-8)
    assert float(jnp.max(jnp.abs(needed_forces(with_linear_parameters(truth, guess), *motions) - tau))) > 1.0


NOISE = np.array([0.05, 0.5, 5.0])


def experiments(count: int):
    """One motion of a three-joint arm and forces measured `count` times, with very different noise in the three joints."""
    system = with_friction(jaxdyn.library.spatial_arm_3r())
    motions, Y = motions_and_rows(system, jax.random.key(3))
    found = base_parameters(Y, labels(system))
    clean = needed_forces(system, *motions)
    noise = jnp.asarray(NOISE)[None, None] * jax.random.normal(jax.random.key(4), (count, *clean.shape))
    return found.columns(Y), clean[None] + noise, found.values(linear_parameters(system))


def coverage(fits, truth) -> np.ndarray:
    """Share of the experiments whose 95 % interval holds the truth, per parameter."""
    lower, upper = fits.intervals()
    return np.mean((np.asarray(lower) < truth) & (truth < np.asarray(upper)), axis=0)


def test_intervals_of_400_experiments_hold_the_truth_in_95_percent():
    Y, tau, truth = experiments(400)

    ways = (
        lambda tau: reweighted_least_squares(Y, tau),
        lambda tau: weighted_least_squares(Y, tau, jnp.asarray(NOISE)),
        lambda tau: weighted_least_squares(Y, tau),
    )
    # One after the other: batches of decompositions that run side by side can lock up XLA's threads on two cores.
    found, known, equal = (jax.block_until_ready(jax.jit(jax.vmap(way))(tau)) for way in ways)
    truth = np.asarray(truth)
    # Averaged over all parameters and all 400 experiments.
    for fits in (found, known):
        assert 0.93 < coverage(fits, truth).mean() < 0.97
        assert coverage(fits, truth).min() > 0.90
        assert abs(np.mean(fits.residual_variance) - 1.0) < 0.02
    # Noise taken for equal makes intervals that are wrong either way, and estimates that are worse.
    assert coverage(equal, truth).max() > 0.99
    np.testing.assert_allclose(np.sqrt(np.mean(np.asarray(found.noise)[:, 0] ** 2, axis=0)), NOISE, rtol=0.03)
    spread = [np.std(np.asarray(fits.estimate), axis=0) for fits in (found, known, equal)]
    assert np.all(spread[0] < 1.1 * spread[1])
    assert np.median(spread[2] / spread[1]) > 2.0
    # The covariance is that of the estimates.
    np.testing.assert_allclose(np.mean(np.asarray(known.standard_deviation), axis=0), spread[1], rtol=0.15)


def test_fit_is_that_of_numpy():
    rng = np.random.default_rng(0)
    Y, tau, noise = rng.normal(size=(20, 2, 4)), rng.normal(size=(20, 2)), rng.uniform(0.5, 2.0, (20, 2))
    fit = weighted_least_squares(*map(jnp.asarray, (Y, tau, noise)))
    A, b = (Y / noise[..., None]).reshape(-1, 4), (tau / noise).ravel()
    solution, rss, _, _ = np.linalg.lstsq(A, b)
    np.testing.assert_allclose(fit.estimate, solution, rtol=1e-11)
    np.testing.assert_allclose(fit.residual_variance, rss[0] / 36, rtol=1e-11)
    np.testing.assert_allclose(fit.covariance, rss[0] / 36 * np.linalg.inv(A.T @ A), rtol=1e-11)
    unit = A / np.linalg.norm(A, axis=0)
    np.testing.assert_allclose(fit.condition, np.linalg.norm(unit) * np.linalg.norm(np.linalg.pinv(unit)), rtol=1e-11)
    for confidence, quantile in ((0.95, 2.0281), (0.5, 0.6814)):  # t with 36 degrees of freedom, from tables
        lower, upper = fit.intervals(confidence=confidence)
        np.testing.assert_allclose((upper - lower) / (2 * fit.standard_deviation), quantile, rtol=1e-4)
    prior = Prior(jnp.asarray([1.0, -1.0, 2.0, 0.5]), jnp.asarray([0.1, 0.2, 0.3, 0.4]))
    fit = weighted_least_squares(*map(jnp.asarray, (Y, tau, noise)), prior=prior)
    P = np.diag(1.0 / np.asarray(prior.std) ** 2)
    np.testing.assert_allclose(fit.estimate, np.linalg.solve(A.T @ A + P, A.T @ b + P @ prior.mean), rtol=1e-11)
    assert fit.degrees_of_freedom == 40


def stiff_rows(condition: float):
    """Rows in several blocks, the first of which is a machine at rest, with columns of a given condition, and exact parameters."""
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.normal(size=(n, 6)))[0] for n in (2400, 6))
    Y = np.concatenate([np.zeros((1100, 1, 6)), ((left * np.geomspace(1.0, 1.0 / condition, 6)) @ right.T)[:, None]])
    return Y, rng.normal(size=6), rng.normal(size=Y.shape[:2])


@pytest.mark.parametrize("condition", [1e8, 1e10])
def test_a_fit_of_blocks_keeps_the_digits_that_normal_equations_lose(condition):
    Y, theta, _ = stiff_rows(condition)
    fit = weighted_least_squares(jnp.asarray(Y), jnp.asarray(Y @ theta))
    np.testing.assert_allclose(fit.estimate, theta, atol=1e-15 * condition)
    A = Y[:, 0]
    assert np.abs(np.linalg.solve(A.T @ A, A.T @ (A @ theta)) - theta).max() > 1e-3


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_fit_that_is_continued_is_the_fit_of_all_measurements(dtype):
    Y, theta, noise = stiff_rows(10.0)
    std = np.array([0.02])
    Y, tau, std = (jnp.asarray(x, dtype) for x in (Y, Y @ theta + 0.02 * noise, std))
    whole = weighted_least_squares(Y, tau, std)
    fit = weighted_least_squares(Y[:1500], tau[:1500], std)
    for a, b in ((1500, 1503), (1503, 3500)):  # fewer rows than parameters, and several blocks
        fit = fit.update(Y[a:b], tau[a:b])
    assert fit.degrees_of_freedom == whole.degrees_of_freedom == 3494
    eps = float(jnp.finfo(dtype).eps)
    for name in ("estimate", "covariance", "residual_variance", "condition"):
        value, expected = getattr(fit, name), getattr(whole, name)
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value, expected, rtol=1e4 * eps, atol=1e4 * eps * np.abs(expected).max(), err_msg=name
        )


def test_derivatives_of_a_fit_are_those_of_its_equations_although_the_first_block_is_singular():
    Y, theta, noise = map(jnp.asarray, stiff_rows(10.0))
    tau, std = Y @ theta + 0.02 * noise, jnp.linspace(0.5, 2.0, 3500)[:, None]

    def blocks(scale, tau):
        fit = weighted_least_squares(Y * scale[None, None], tau, std * (1.0 + scale[0]))
        more = fit.update(Y[-2:] * scale[1], tau[-2:])
        return jnp.concatenate([fit.estimate, jnp.append(fit.covariance[0], fit.residual_variance), more.estimate])

    def normal(scale, tau):
        def solved(A, b, freedom):
            G = A.T @ A
            x = jnp.linalg.solve(G, A.T @ b)
            variance = jnp.sum((b - A @ x) ** 2) / freedom
            return x, variance * jnp.linalg.inv(G)[0], variance

        weights = 1.0 / (std * (1.0 + scale[0]))
        A, b = weights * Y[:, 0] * scale[None], (weights * tau)[:, 0]
        x, row, variance = solved(A, b, 3494)
        A2, b2 = weights[-1:] * Y[-2:, 0] * scale[1], weights[-1] * tau[-2:, 0]
        more, _, _ = solved(jnp.concatenate([A, A2]), jnp.concatenate([b, b2]), 3496)
        return jnp.concatenate([x, jnp.append(row, variance), more])

    at = jnp.linspace(1.0, 2.0, 6)

    def all_of(function):
        batch = jax.vmap(function, (None, 0))(at, jnp.stack([tau, 2.0 * tau]))
        return function(at, tau), jax.jacfwd(function)(at, tau), jax.jacrev(function)(at, tau), batch

    found, expected = (jax.jit(lambda f=f: all_of(f))() for f in (blocks, normal))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8 * np.abs(other).max())


def test_report_marks_what_is_not_told_from_zero():
    rng = np.random.default_rng(2)
    Y = rng.normal(size=(50, 1, 2))
    tau = Y @ [3.0, 0.0] + 0.01 * rng.normal(size=(50, 1))
    first, second = (
        weighted_least_squares(jnp.asarray(Y), jnp.asarray(tau)).report(["a", "b"], ["kg", "kg m"]).split("\n")
    )
    assert first.split()[1] == "+-"
    assert first.endswith("kg            a")
    assert abs(float(first.split()[0]) - 3.0) < 0.01
    assert second.endswith("b   not significantly different from zero")


def test_fits_that_cannot_be_are_refused():
    ones = jnp.ones((5, 1, 2))
    with pytest.raises(ValueError, match="columns of the regressor are linearly dependent"):
        weighted_least_squares(ones, ones[..., 0])
    with pytest.raises(ValueError, match="give noise"):
        weighted_least_squares(ones, ones[..., 0], prior=Prior(jnp.ones(2), jnp.ones(2)))
    for fit in (weighted_least_squares, reweighted_least_squares):
        with pytest.raises(ValueError, match="1 equations do not determine 2 parameters and the noise"):
            fit(ones[:1], ones[:1, :, 0])
    held = weighted_least_squares(ones, ones[..., 0], jnp.ones(1), prior=Prior(jnp.zeros(2), jnp.ones(2)))
    np.testing.assert_allclose(held.estimate, 5.0 / 11.0)  # minimum of 5 (1 - 2 x)^2 + 2 x^2
