"""How fits of Levenberg and Marquardt end: converged, or stuck."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.identify import FitResult, Parameters
from jaxdyn.identify.least_squares import Normal, Problem, Unknowns
from jaxdyn.identify.levenberg_marquardt import DampedSearch, LevenbergMarquardt, Trial


class OneResidual(Problem):
    """The residual x of one unknown, with a slope that need not be true."""

    slope: float
    first: float = 1.0
    longest: float = math.inf
    parameters: Parameters = None

    @property
    def longest_steps(self):
        return np.array([self.longest])

    @property
    def pieces(self):
        return jnp.zeros((1, 0))

    @property
    def initial(self) -> Unknowns:
        return Unknowns(jnp.full(1, self.first), None)

    def own(self, unknowns):
        return None

    def linearized(self, x, own, piece):
        return x[0]

    def assembled(self, unknowns, parts) -> Normal:
        slope, none = jnp.full(1, self.slope), jnp.zeros((0, 0, 1))
        gradient = slope * parts[0]
        return Normal(0.5 * parts[0] ** 2, slope[None] ** 2, gradient, none, none[:, :, :0], none[:, :, 0], None)

    @property
    def count(self) -> int:
        return 1

    def scores(self, unknowns, parts):
        return self.assembled(unknowns, parts).shared_gradient[None]

    def moved(self, unknowns, dx, ds) -> Unknowns:
        return Unknowns(unknowns.x + dx, None)


class Valley(OneResidual):
    """The residuals 10 (y - x^2), 1 - x and 10 of Rosenbrock's valley, most of whose loss stays at the minimum (1, 1)."""

    dtype: Any = eqx.field(static=True, default=float)

    longest_steps = np.full(2, math.inf)

    @property
    def initial(self) -> Unknowns:
        return Unknowns(jnp.asarray([-1.2, 1.0], self.dtype), None)

    def assembled(self, unknowns, parts) -> Normal:
        def residuals(x):
            return jnp.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0], jnp.full_like(x[0], 10.0)])

        r, J = residuals(unknowns.x), jax.jacfwd(residuals)(unknowns.x)
        none = jnp.zeros((0, 0, 2), r.dtype)
        return Normal(0.5 * r @ r, J.T @ J, J.T @ r, none, none[:, :, :0], none[:, :, 0], None)


def iterated(problem: OneResidual, damping: float, iterations: int) -> list[DampedSearch]:
    """The fit after each iteration."""
    solver = LevenbergMarquardt(tolerance=1e-6)
    step = jax.jit(lambda fit: solver.step(problem, fit))
    fits = [eqx.tree_at(lambda fit: fit.damping, solver.init(problem, problem.initial), jnp.asarray(damping))]
    for _ in range(iterations):
        fits.append(step(fits[-1]))
    return fits


def test_a_step_that_damping_makes_small_is_no_convergence():
    """The fit goes on until a step that is hardly damped promises nothing."""
    _, first, *_, last = iterated(OneResidual(1.0), 1e9, 60)
    np.testing.assert_allclose(first.unknowns.x, 1.0 - 1e-9, rtol=1e-15, atol=1e-12)
    assert int(first.result) == FitResult.OUT_OF_STEPS
    assert int(last.result) == FitResult.SUCCESSFUL
    assert 1 < int(last.iterations) < 60
    np.testing.assert_allclose(last.unknowns.x, 0.0, atol=1e-3)


def test_a_fit_that_no_step_improves_is_stuck():
    """The slope has the wrong sign, so every step raises the loss."""
    fits = iterated(OneResidual(-1.0), 1e-3, 30)
    results = [int(fit.result) for fit in fits]
    tried = results.index(FitResult.STUCK)
    assert results == [FitResult.OUT_OF_STEPS] * tried + [FitResult.STUCK] * (31 - tried)
    dampings = np.array([float(fit.damping) for fit in fits[: tried + 1]])
    growth = 2.0 ** np.cumsum(np.arange(tried + 1))
    np.testing.assert_allclose(dampings, np.minimum(1e-3 * growth, 1e12), rtol=1e-12)
    assert int(fits[-1].iterations) == tried
    assert float(fits[-1].unknowns.x[0]) == 1.0


@pytest.mark.parametrize("slope", [1.0, 2.0, 4.0])
def test_damping_falls_by_how_well_a_step_that_is_taken_was_predicted(slope):
    """The step is -1/slope, so the loss falls by 1 - (1 - 1/slope)^2 of what was promised."""
    before, after = iterated(OneResidual(slope), 1e-9, 1)
    gain = 1.0 - (1.0 - 1.0 / slope) ** 2
    factor = max(1.0 / 3.0, 1.0 - (2.0 * gain - 1.0) ** 3)  # Nielsen 1999
    np.testing.assert_allclose(after.damping / before.damping, factor, rtol=1e-6)
    np.testing.assert_allclose(after.unknowns.x, 1.0 - 1.0 / slope, atol=1e-6)


def test_a_step_that_gains_little_of_what_was_predicted_is_refused():
    """The loss falls by 0.5 % of the predicted decrease."""
    before, after = iterated(OneResidual(400.0), 1e-9, 1)
    assert float(after.unknowns.x[0]) == float(before.unknowns.x[0])
    np.testing.assert_allclose(after.damping, 2e-9, rtol=1e-12)
    assert int(after.result) == FitResult.OUT_OF_STEPS


def test_steps_have_a_limit_and_only_a_limited_decrease_is_convergence():
    """A positive value that tends to zero has long steps of its logarithm which change nothing; one that grows changes the loss."""
    _, falling = iterated(OneResidual(1.0, 1.0, 0.25), 1e-9, 1)
    np.testing.assert_allclose(falling.unknowns.x, 0.75, rtol=1e-12)
    _, ended = iterated(OneResidual(1.0, 1.0, 1e-7), 1e-9, 1)
    assert int(ended.result) == FitResult.SUCCESSFUL
    rising = iterated(OneResidual(1.0, -1.0, 1e-7), 1e-9, 1)[1]
    np.testing.assert_allclose(rising.unknowns.x, -1.0 + 1e-7, rtol=1e-12)
    assert int(rising.result) == FitResult.OUT_OF_STEPS


@pytest.mark.parametrize(
    ("tolerance", "dtype", "error"), [(1e-8, float, 1e-4), (1e-8, np.float32, 2e-3), (1e-4, float, 0.03)]
)
def test_a_slow_valley_is_not_called_settled(tolerance, dtype, error):
    """The loss falls by about 1 % in each of thirty steps; a step below 1e-4 of the loss is within `error` of the minimum."""
    problem, solver = Valley(1.0, dtype=dtype), LevenbergMarquardt(tolerance)
    found, step = solver.init(problem, problem.initial), jax.jit(lambda found: solver.step(problem, found))
    while int(found.result) == FitResult.OUT_OF_STEPS:
        found = step(found)
    assert int(found.result) == FitResult.SUCCESSFUL
    np.testing.assert_allclose(found.unknowns.x[0], 1.0, atol=error)


@pytest.mark.parametrize(("part", "result"), [(2e-5, FitResult.SUCCESSFUL), (5e-5, FitResult.OUT_OF_STEPS)])
def test_a_loss_settles_by_steps_that_are_taken_whatever_is_refused_between_them(part, result):
    problem, solver = OneResidual(1.0), LevenbergMarquardt()
    found = solver.init(problem, problem.initial)
    for _ in range(4):
        for loss in ((1.0 - part) * found.loss, 2.0 * found.loss, 2.0 * found.loss):
            trial = Trial(found.unknowns, 1e-3 * found.loss, jnp.asarray(False))
            found = solver.judge(found, trial, eqx.tree_at(lambda normal: normal.loss, found.normal, loss))
    assert int(found.result) == result
