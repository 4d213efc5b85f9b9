"""Block solves of the arrow of normal equations against dense NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.identify.least_squares import (
    Normal,
    gauss_newton_step,
    information,
    local_response,
    predicted_decrease,
)
from jaxdyn.identify.losses import Cauchy, Huber, Squares

P, W, L = 3, 4, 2


def arrow(seed: int, joined: bool, sizes=1.0) -> Normal:
    """Normal equations of random residuals: each of one window, or of two neighbors."""
    rng = np.random.default_rng(seed)
    sizes = np.broadcast_to(sizes, (P,))
    H, g = np.zeros((P + W * L, P + W * L)), np.zeros(P + W * L)
    for k in range(W):
        columns = [*range(P), *range(P + k * L, P + min(k + 1 + joined, W) * L)]
        J = rng.normal(size=(9, len(columns)))
        J[:, :P] *= sizes
        H[np.ix_(columns, columns)] += J.T @ J
        g[columns] += J.T @ rng.normal(size=9)
    own = [slice(P + k * L, P + (k + 1) * L) for k in range(W)]
    following = np.zeros((W, L, L))
    for k in range(W - 1):
        following[k] = H[own[k], own[k + 1]]
    arrays = (
        H[:P, :P],
        g[:P],
        np.stack([H[o, :P] for o in own]),
        np.stack([H[o, o] for o in own]),
        np.stack([g[o] for o in own]),
    )
    normal = Normal(jnp.asarray(7.0), *map(jnp.asarray, arrays), jnp.asarray(following) if joined else None)
    return normal, H, g


def damped(H, damping: float) -> np.ndarray:
    return H + damping * np.diag(np.diag(H))


@pytest.mark.parametrize("joined", [False, True])
class TestArrow:
    def test_step(self, joined):
        normal, H, g = arrow(0, joined)
        for damping in (0.0, 0.3):
            dx, ds = jax.jit(gauss_newton_step)(normal, jnp.asarray(damping))
            step = -np.linalg.solve(damped(H, damping), g)
            np.testing.assert_allclose(np.concatenate([dx, np.ravel(ds)]), step, rtol=1e-9, atol=1e-11)

    def test_limited_step(self, joined):
        """The component that is too long has its limit, and the others minimize the model for it."""
        normal, H, g = arrow(0, joined)
        whole = -np.linalg.solve(damped(H, 0.3), g)
        longest = np.full(P, np.inf)
        longest[1] = 0.5 * abs(whole[1])
        dx, ds = jax.jit(lambda normal: gauss_newton_step(normal, jnp.asarray(0.3), longest))(normal)
        fixed = np.sign(whole[1]) * longest[1]
        others = [k for k in range(P + W * L) if k != 1]
        step = np.empty(P + W * L)
        step[1] = fixed
        step[others] = np.linalg.solve(damped(H, 0.3)[np.ix_(others, others)], -g[others] - H[others, 1] * fixed)
        np.testing.assert_allclose(np.concatenate([dx, np.ravel(ds)]), step, rtol=1e-9, atol=1e-11)

    def test_promise(self, joined):
        normal, H, g = arrow(1, joined)
        step = np.random.default_rng(5).normal(size=P + W * L)
        promised = predicted_decrease(normal, jnp.asarray(step[:P]), jnp.asarray(step[P:].reshape(W, L)))
        np.testing.assert_allclose(promised, -g @ step - 0.5 * step @ H @ step, rtol=1e-12)

    def test_information(self, joined):
        normal, H, _ = arrow(2, joined)
        complement = H[:P, :P] - H[:P, P:] @ np.linalg.solve(H[P:, P:], H[P:, :P])
        np.testing.assert_allclose(jax.jit(information)(normal), complement, rtol=1e-10, atol=1e-12)
        response = np.linalg.solve(H[P:, P:], H[P:, :P]).reshape(W, L, P)
        np.testing.assert_allclose(jax.jit(local_response)(normal), response, rtol=1e-10, atol=1e-12)

    def test_numbers_of_very_different_size(self, joined):
        normal, H, g = arrow(3, joined, sizes=[1e-7, 1.0, 1e7])
        dx, _ = jax.jit(gauss_newton_step)(normal, jnp.asarray(0.0))
        scale = 1.0 / np.sqrt(np.diag(H))
        step = -scale * np.linalg.solve(scale[:, None] * H * scale, scale * g)
        np.testing.assert_allclose(dx, step[:P], rtol=1e-7)


def test_without_local_unknowns():
    normal, H, g = arrow(4, False)
    none = jnp.zeros((0, 0, P))
    bare = Normal(normal.loss, normal.shared, normal.shared_gradient, none, none[:, :, :0], none[:, :, 0], None)
    dx, ds = jax.jit(gauss_newton_step)(bare, jnp.asarray(0.1))
    np.testing.assert_allclose(dx, -np.linalg.solve(damped(H[:P, :P], 0.1), g[:P]), rtol=1e-10)
    assert ds.shape == (0, 0)
    np.testing.assert_allclose(information(bare), H[:P, :P])
    assert predicted_decrease(bare, dx, ds) > 0


def test_a_number_without_influence_stays_where_it_is():
    normal, *_ = arrow(5, False)
    keep = jnp.array([1.0, 0.0, 1.0])
    blind = Normal(
        normal.loss,
        keep[:, None] * normal.shared * keep[None],
        keep * normal.shared_gradient,
        normal.mixed * keep[None, None],
        normal.local,
        normal.local_gradient,
        None,
    )
    dx, ds = jax.jit(gauss_newton_step)(blind, jnp.asarray(1e-3))
    assert dx[1] == 0.0
    assert np.all(np.isfinite(dx))
    assert np.all(np.isfinite(ds))


@pytest.mark.parametrize("loss", [Squares(), Huber(1.3), Cauchy(2.0)])
class TestLosses:
    def test_weight_is_the_derivative(self, loss):
        squared = jnp.array([0.0, 0.5, 1.5, 1.8, 40.0])
        slope = jax.vmap(jax.grad(loss.rho))(squared)
        np.testing.assert_allclose(slope, loss.weight(squared), rtol=1e-12)

    def test_near_zero_it_is_least_squares_and_never_more(self, loss):
        np.testing.assert_allclose(loss.rho(jnp.array([1e-6])), [1e-6], rtol=1e-5)
        far = jnp.array([4.0, 100.0, 1e6])
        assert np.all(np.asarray(loss.rho(far)) <= np.asarray(far))
        assert np.all(np.diff(loss.weight(far)) <= 0)


def test_robust_costs_far_away():
    np.testing.assert_allclose(Huber(1.5).rho(jnp.array([100.0])), [2 * 1.5 * 10 - 1.5**2])
    np.testing.assert_allclose(Cauchy(2.0).rho(jnp.array([100.0])), [4 * np.log(26.0)])
