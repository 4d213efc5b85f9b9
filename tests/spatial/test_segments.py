"""Distances of segments: values against brute force, derivatives against difference quotients, also where formulas are 0/0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.spatial.segments import closest_fractions, squared_distance

VALUES = jax.jit(jax.vmap(lambda p: squared_distance(*p)))
SLOPES = jax.jit(jax.vmap(jax.grad(lambda p: squared_distance(*p))))
CURVATURES = jax.jit(jax.vmap(jax.hessian(lambda p: squared_distance(*p))))
FRACTIONS = jax.jit(jax.vmap(lambda p: closest_fractions(*p)))
COUNT = 200


def segments(kind: str) -> np.ndarray:
    """Pairs of random segments (COUNT, 4, 3): ends a, b of the first and c, d of the second one."""
    random = np.random.default_rng(7)
    p = random.normal(size=(COUNT, 4, 3))
    along = p[:, 1] - p[:, 0]
    match kind:
        case "parallel":
            p[:, 3] = p[:, 2] + along * random.uniform(-2.0, 2.0, (COUNT, 1))
        case "parallel side by side":
            p[:, 2] = p[:, 0] + random.uniform(-0.5, 0.5, (COUNT, 1)) * along + np.cross(along, p[:, 2])
            p[:, 3] = p[:, 2] + along
        case "on one line":
            p[:, 2:] = p[:, :1] + along[:, None] * random.uniform(-2.0, 3.0, (COUNT, 2, 1))
        case "crossing":
            s, t = random.uniform(0.2, 0.8, (2, COUNT, 1))
            p[:, 3] = p[:, 2] + (p[:, 0] + s * along - p[:, 2]) / t
        case "touching at an end":
            p[:, 2] = p[:, 0] + random.uniform(0.2, 0.8, (COUNT, 1)) * along
        case "nearly parallel":
            p[:, 3] = p[:, 2] + along + 10.0 ** random.uniform(-9, -3, (COUNT, 1)) * p[:, 3]
        case "point and segment":
            p[:, 1] = p[:, 0]
        case "segment and point":
            p[:, 3] = p[:, 2]
        case "points":
            p[:, 1], p[:, 3] = p[:, 0], p[:, 2]
    return p


def brute_force(p: np.ndarray) -> np.ndarray:
    """The squared distances: for each of many points of the first segment, the distance from the second one; then again nearby."""
    a, b, c, d = (p[:, None, k] for k in range(4))
    v = d - c
    vv = np.maximum(np.sum(v * v, axis=-1), 1e-300)
    low, high, least = np.zeros((len(p), 1)), np.ones((len(p), 1)), np.full(len(p), np.inf)
    for _ in range(8):
        s = low + (high - low) * np.linspace(0.0, 1.0, 41)
        points = a + s[..., None] * (b - a)
        t = np.clip(np.sum((points - c) * v, axis=-1) / vv, 0.0, 1.0)
        squares = np.sum((points - c - t[..., None] * v) ** 2, axis=-1)
        least = np.minimum(least, squares.min(axis=1))
        best = np.take_along_axis(s, np.argmin(squares, axis=1)[:, None], axis=1)
        width = (high - low) / 40.0
        low, high = np.maximum(best - width, 0.0), np.minimum(best + width, 1.0)
    return least


KINDS = (
    *("apart", "parallel", "parallel side by side", "on one line", "crossing", "touching at an end", "nearly parallel"),
    *("point and segment", "segment and point", "points"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_distances_are_those_by_brute_force_and_derivatives_are_finite(kind):
    p = segments(kind)
    np.testing.assert_allclose(VALUES(p), brute_force(p), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(VALUES(p), VALUES(p[:, [3, 2, 0, 1]]), rtol=1e-9, atol=1e-13)
    s, t = FRACTIONS(p)
    assert np.all((s >= 0.0) & (s <= 1.0) & (t >= 0.0) & (t <= 1.0))
    assert np.all(np.isfinite(SLOPES(p)))
    assert np.all(np.isfinite(CURVATURES(p)))
    single = jnp.asarray(p, jnp.float32)
    np.testing.assert_allclose(VALUES(single), brute_force(p), rtol=1e-3, atol=1e-5)
    assert np.all(np.isfinite(SLOPES(single)))


def quotients(function, p: np.ndarray, step: float) -> np.ndarray:
    """Central difference quotients with respect to all coordinates of the end points, as leading axes of the values."""
    steps = step * np.eye(12).reshape(12, 1, 4, 3)
    found = [(np.asarray(function(p + h)) - np.asarray(function(p - h))) / (2.0 * step) for h in steps]
    return np.stack(found, axis=1).reshape(len(p), 4, 3, *found[0].shape[1:])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "nearly parallel"])
def test_first_derivatives_are_difference_quotients(kind):
    """At kinks, the quotients are means of one-sided derivatives, up to the step times the curvature of both sides."""
    p = segments(kind)
    smooth = kind in ("apart", "crossing")
    found, step = SLOPES(p), 1e-6 if smooth else 1e-7
    np.testing.assert_allclose(found, quotients(VALUES, p, step), rtol=1e-6, atol=1e-8 if smooth else 1e-4)
    assert (np.abs(found).max() > 1.0) == (kind not in ("crossing", "touching at an end"))


@pytest.mark.parametrize("kind", ["apart", "crossing"])
def test_second_derivatives_are_difference_quotients(kind):
    p = segments(kind)
    expected = quotients(SLOPES, p, 1e-6)
    size = 1.0 + np.abs(expected).max(axis=(1, 2, 3, 4), keepdims=True)
    np.testing.assert_allclose(CURVATURES(p) / size, expected / size, atol=1e-8)


def test_second_derivatives_of_a_moving_point_are_difference_quotients():
    p = segments("point and segment")

    def slope(p, z):
        return jax.grad(lambda z: squared_distance(p[0] + z[:3], p[1] + z[:3], p[2] + z[3:6], p[3] + z[6:]))(z)

    slopes = jax.jit(jax.vmap(slope, (0, None)))
    curvatures = jax.jit(jax.vmap(jax.jacfwd(slope, argnums=1), (0, None)))(p, jnp.zeros(9))
    expected = np.stack([(slopes(p, h) - slopes(p, -h)) / 2e-6 for h in 1e-6 * np.eye(9)], axis=1)
    np.testing.assert_allclose(curvatures, expected, atol=1e-7)
