"""Charts: one-to-one, smooth, and never a value that makes no sense."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives
from random_trees import random_inertia, random_unit

from jaxdyn.identify.charts import Bounded, PhysicalInertia, Positive, Real, Rotation, UnitVector
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.inertia import symmetric_entries, symmetric_matrix


def body(seed: int):
    """Mass, com and inertia of a body that extends in all directions."""
    rng = np.random.default_rng(seed)
    com, inertia = random_inertia(rng, 1.7, 0.3)
    return jnp.asarray(np.concatenate([[1.7], com, symmetric_entries(inertia)]))


def unit(seed: int, size: int):
    return jnp.asarray(random_unit(np.random.default_rng(seed), size))


# Chart about its start, values away from the start.
CASES = {
    "real": (Real(0.02), jnp.array([3.0, 0.5]), jnp.array([-2.0, 0.0])),
    "positive": (Positive(), jnp.array([1e-6, 2e3]), jnp.array([1.0, 3.0])),
    "bounded": (Bounded(-1.0, 3.0), jnp.array([1.0, -0.999]), jnp.array([2.999, 0.3])),
    "bounded each": (Bounded([-1.0, 0.0], [3.0, 1e-3]), jnp.array([1.0, 5e-4]), jnp.array([2.9, 1e-5])),
    "unit vector": (UnitVector(), unit(0, 3), unit(1, 3)),
    "along an axis": (UnitVector(), jnp.array([0.0, 1.0, 0.0]), jnp.array([0.0, -0.6, 0.8])),
    "rotation": (Rotation(), unit(2, 4), unit(3, 4)),
    "inertia": (PhysicalInertia(), body(0), body(1)),
}


@functools.partial(jax.jit, static_argnums=0)
def explored(name: str, v, x):
    """All that the tests of one chart look at, compiled once."""
    chart = CASES[name][0].about(CASES[name][1])

    def there_and_back(v):
        return chart.value(chart.unconstrained(v))

    at = chart.unconstrained(v)
    derivative, inverse = jax.jacfwd(chart.value)(at), jax.jacfwd(chart.unconstrained)(v)
    return there_and_back(v), derivative, inverse, jax.vmap(lambda x: chart.unconstrained(chart.value(x)))(x)


@pytest.mark.parametrize("name", CASES)
class TestOneToOne:
    def test_there_and_back(self, name):
        chart, start, value = CASES[name]
        x = jnp.asarray(np.random.default_rng(0).normal(size=(5, chart.size(start.size))))
        for v in (start, value):
            back, derivative, inverse, x_back = explored(name, v, x)
            back = back * jnp.sign(back @ v) if isinstance(chart, Rotation) else back  # q and -q are one rotation
            np.testing.assert_allclose(back, v, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(x_back, x, rtol=1e-11, atol=1e-12)
            # At the start, where free numbers are 0, and away from it: smooth both ways, and regular.
            np.testing.assert_allclose(inverse @ derivative, np.eye(x.shape[1]), atol=1e-9)

    def test_single_precision(self, name):
        chart, start, value = CASES[name]
        x = jnp.asarray(np.random.default_rng(0).normal(size=(5, chart.size(start.size))))
        for v in (start, value):
            single = explored(name, v.astype(jnp.float32), x.astype(jnp.float32))
            assert all(part.dtype == jnp.float32 for part in single)
            for part, double in zip(single[:2], explored(name, v, x)[:2], strict=True):
                np.testing.assert_allclose(part, double, rtol=2e-4, atol=2e-4 * np.max(np.abs(double)))
            np.testing.assert_allclose(single[3], x, rtol=1e-3, atol=1e-4)

    def test_derivatives(self, name):
        chart, start, value = CASES[name]
        about = chart.about(start)
        f = eqx.filter_jit(about.value)
        check_derivatives(f, *(explored(name, v, about.unconstrained(v)[None])[3][0] for v in (start, value)), orders=1)


def test_reference_has_zero_free_numbers_and_second_derivatives_there():
    for name in ("unit vector", "rotation", "inertia"):
        chart, start, _ = CASES[name]
        about = chart.about(start)
        free, jacobian, hessian, opposite = jax.jit(
            lambda x, about=about, start=start: (
                about.unconstrained(start),
                jax.jacfwd(about.value)(x),
                jax.hessian(about.value)(0.0 * x),
                jax.jacfwd(about.value)(-x),
            )
        )(jnp.full(about.size(start.size), 1e-5))
        np.testing.assert_allclose(free, 0.0, atol=1e-14)
        ones = np.ones(hessian.shape[-1])
        np.testing.assert_allclose((jacobian - opposite) / 2e-5, hessian @ ones, atol=1e-6)
        assert np.max(np.abs(hessian)) > 0.1 * np.max(np.abs(jacobian))


def test_bounded_is_the_formula_of_its_docstring():
    x = jnp.array([-40.0, -1.0, 0.0, 2.0])
    np.testing.assert_allclose(Bounded(-1.0, 3.0).value(x), -1.0 + 4.0 / (1.0 + np.exp(-np.asarray(x))), rtol=1e-15)


def test_unit_vectors_stay_of_length_one_and_turn_by_the_free_angle():
    chart = UnitVector().about(unit(0, 3))
    x = jnp.array([0.3, -0.4])
    value = chart.value(x)
    np.testing.assert_allclose(value @ value, 1.0, rtol=1e-14)
    np.testing.assert_allclose(value @ unit(0, 3), np.cos(0.5), rtol=1e-13)


def pseudo_inertia(values) -> np.ndarray:
    """Second moments about the body origin, written out."""
    values = np.asarray(values)
    mass, com, inertia = values[0], values[1:4], symmetric_matrix(values[4:])
    planar = 0.5 * np.trace(inertia) * np.eye(3) - inertia + mass * np.outer(com, com)
    return np.block([[planar, mass * com[:, None]], [mass * com[None], np.array([[mass]])]])


def moved(values, seed: int):
    """The body in another frame: g P g'."""
    rng = np.random.default_rng(seed)
    g = np.eye(4)
    g[:3, :3] = quaternion.to_matrix(jnp.asarray(random_unit(rng, 4)))
    g[:3, 3] = rng.normal(size=3)
    P = g @ pseudo_inertia(values) @ g.T
    com = P[:3, 3] / P[3, 3]
    planar = P[:3, :3] - P[3, 3] * np.outer(com, com)
    inertia = np.trace(planar) * np.eye(3) - planar
    return jnp.asarray(np.concatenate([[P[3, 3]], com, symmetric_entries(inertia)]))


_roots = eqx.filter_jit(PhysicalInertia().divergence_roots)


class TestPhysicalInertia:
    def test_all_free_numbers_are_bodies(self):
        chart = PhysicalInertia().about(body(0))
        x = jnp.asarray(np.random.default_rng(0).normal(0.0, 1.0, (200, 10)))
        for values in jax.jit(jax.vmap(chart.value))(x):
            # Rounding of the largest numbers may hide the smallest eigenvalue; Cholesky of the scaled matrix does not care.
            P = pseudo_inertia(values)
            scale = 1.0 / np.sqrt(np.diag(P))
            assert np.linalg.eigvalsh(scale[:, None] * P * scale)[0] > 0

    def test_divergence(self):
        chart, P0 = PhysicalInertia().about(body(0)), pseudo_inertia(body(0))
        roots = jax.jit(lambda values: chart.divergence_roots(chart.unconstrained(values)))
        for seed in (1, 2, 3):
            ratio = np.linalg.solve(P0, pseudo_inertia(body(seed)))
            divergence = np.trace(ratio) - np.log(np.linalg.det(ratio)) - 4.0
            np.testing.assert_allclose(np.sum(roots(body(seed)) ** 2), divergence, rtol=1e-10)

    @pytest.mark.parametrize("d", [0.0999, 0.1001, -0.0999, -0.1001, 1e-9, 3.0, -4.0])
    def test_divergence_in_and_out_of_the_series(self, d):
        root = _roots(jnp.zeros(10).at[0].set(d))[0]
        exact = np.longdouble(d)
        value = np.sqrt(np.expm1(2 * exact) - 2 * exact) if abs(d) > 1e-3 else np.sqrt(np.longdouble(2)) * abs(exact)
        np.testing.assert_allclose(root, float(np.sign(exact) * value), rtol=1e-8 if abs(d) < 1e-3 else 1e-13)

    def test_divergence_is_smooth_at_the_reference(self):
        check_derivatives(eqx.filter_jit(PhysicalInertia().divergence_roots), jnp.zeros(10), orders=2)

    def test_divergence_does_not_depend_on_the_frame(self):
        @jax.jit
        def divergence(a, b):
            chart = PhysicalInertia().about(a)
            return jnp.sum(chart.divergence_roots(chart.unconstrained(b)) ** 2)

        here = divergence(body(0), body(1))
        np.testing.assert_allclose(divergence(moved(body(0), 7), moved(body(1), 7)), here, rtol=1e-9)
        assert abs(divergence(moved(body(0), 7), moved(body(1), 8)) - here) > 1e-3

    def test_flat_and_massless_bodies_are_refused(self):
        flat = jnp.array([1.0, 0.0, 0.0, 0.0, 0.01, 0.01, 0.02, 0.0, 0.0, 0.0])  # a disk without thickness
        rod = jnp.array([1.0, 0.1, 0.2, 0.3, 0.0, 0.1, 0.1, 0.0, 0.0, 0.0])
        across = np.eye(3) - np.outer(unit(0, 3), unit(0, 3))  # a rod in a direction of its own
        askew = jnp.concatenate([jnp.array([1.0, 0.1, 0.2, 0.3]), symmetric_entries(0.1 * across)])
        for values in (flat, rod, askew, jnp.zeros(10), body(0).at[4].mul(3.0), body(0).at[0].mul(-1.0)):
            assert "not those of a body" in PhysicalInertia().validate(np.asarray(values))
        assert PhysicalInertia().validate(np.asarray(body(0))) is None

    def test_small_bodies_are_bodies(self):
        scale = jnp.array([1e-6, *[1e-3] * 3, *[1e-12] * 6])  # a milligram of a millimetre
        assert PhysicalInertia().validate(np.asarray(scale * body(0))) is None


@pytest.mark.parametrize(
    ("chart", "values", "says"),
    [
        (Positive(), [1.0, 0.0], "positive"),
        (Positive(), [1.0, float("nan")], "positive"),
        (Bounded(0.0, 1.0), [1.0], "between the bounds"),
        (Bounded(1.0, 1.0), [1.0], "lower < upper"),
        (UnitVector(), [1.0, 1.0, 0.0], "length 1"),
        (UnitVector(), [1.0, 0.0], "length 1"),
        (Rotation(), [1.0, 0.0, 0.1, 0.0], "unit quaternion"),
        (PhysicalInertia(), [1.0, 0.0], "one body"),
        (Real(), [float("nan")], "finite"),
    ],
)
def test_starts_outside(chart, values, says):
    problem = chart.validate(np.array(values))
    assert problem is not None
    assert says in problem
