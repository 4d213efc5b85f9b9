"""The trigonometric quotients against their power series in exact arithmetic."""

import functools
from fractions import Fraction
from math import factorial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxdyn.spatial import series

_EXACT_TERMS = 60  # at x = 40 the terms beyond are below 1e-60


def exact_derivative(coefficient, order: int, x: float) -> float:
    """Derivative of a power series at the floating-point number x, rounded once."""
    terms = range(order, _EXACT_TERMS)
    falling = (Fraction(factorial(k), factorial(k - order)) for k in terms)
    return float(sum(f * coefficient(k) * Fraction(x) ** (k - order) for f, k in zip(falling, terms, strict=True)))


def alternating(offset: int):
    return lambda k: Fraction((-1) ** k, factorial(2 * k + offset))


def bernoulli(k: int) -> Fraction:
    """|B_2k+2|/(2k + 2)!, the ratio of which tends to 1/(2 pi)^2, so the series converges up to x = 39."""
    return abs(Fraction(*mpmath.bernfrac(2 * k + 2))) / factorial(2 * k + 2)


def tanh_derivative(order: int, x: float) -> float:
    if abs(x) < 1e-20:
        return float((1, 0, mpmath.mpf(-2) / 3)[order])
    with mpmath.workdps(60):
        return float(mpmath.diff(lambda y: mpmath.tanh(y) / y, mpmath.mpf(x), order))


# Function, coefficient of x^k of its power series, the point where it changes from the series to the closed form, other points.
ENTIRE = [0, 1e-30, 1e-3, 0.5, 2, 9.8, 39]
SERIES = {
    series.cos_root: (alternating(0), 1, ENTIRE),
    series.sinc_root: (alternating(1), 1, ENTIRE),
    series.versine_root: (alternating(2), 1, ENTIRE),
    series.sine_remainder_root: (alternating(3), 1, ENTIRE),
    series.cotangent_remainder_root: (bernoulli, 1, [0, 1e-3, 2, 5, 9.8]),
    series.decay_quotient: (
        lambda k: Fraction((-1) ** k, factorial(k + 1)),
        1,
        [0, 1e-30, 1e-3, 0.5, 3, 9.8, -0.5, -3],
    ),
    series.arctan_quotient: (lambda k: Fraction((-1) ** k, 2 * k + 1), None, [0, 1e-30, 1e-4, 0.0099, 0.01]),
    series.tanh_quotient: (None, 0.2, [0, 1e-30, 1e-3, 0.1, 1, 9.8, 50, -0.1, -1]),
}
# Roundings of intermediate results of order one; of the decay quotient the second derivative is a difference of such, and each
# derivative of the closed form of tanh(x)/x is one of numbers that are 1/x^2 times as large.
ROUNDINGS = {series.decay_quotient: (16, 1), series.tanh_quotient: (4, 0.2)}


@functools.cache
def computed(dtype) -> dict:
    """Points, and value, first and second derivative there, of all functions by one program."""

    def jet(function, x):
        first = jax.grad(function)
        return x, [jax.vmap(f)(x) for f in (function, first, jax.grad(first))]

    points = {}
    for function, (_, switch, others) in SERIES.items():
        near = [] if switch is None else [np.nextafter(dtype(switch), dtype(end)) for end in (0, 2)] + [dtype(switch)]
        points[function.__name__] = jnp.asarray(np.array([*others, *near], dtype))
    return jax.jit(lambda points: {f.__name__: jet(f, points[f.__name__]) for f in SERIES})(points)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", SERIES, ids=lambda f: f.__name__)
def test_value_and_two_derivatives_are_exact_at_zero_and_on_both_sides_of_the_switch(function, dtype):
    coefficient = SERIES[function][0]
    roundings, scale = ROUNDINGS.get(function, (4, 1))
    x, found = computed(dtype)[function.__name__]
    for order, numbers in enumerate(found):
        assert numbers.dtype == dtype
        if coefficient is None:
            exact = [tanh_derivative(order, float(number)) for number in x]
        else:
            exact = [exact_derivative(coefficient, order, float(number)) for number in x]
            assert order > 0 or numbers[0] == dtype(exact[0])
        tolerance = roundings * np.finfo(dtype).eps / scale ** (2 * order)
        np.testing.assert_allclose(numbers, exact, rtol=tolerance, atol=tolerance)


def test_closed_form_holds_at_any_angle():
    angle = np.linspace(1.1, 12.0, 23)
    for function, expected in [
        (series.cos_root, np.cos(angle)),
        (series.sinc_root, np.sin(angle) / angle),
        (series.versine_root, (1 - np.cos(angle)) / angle**2),
    ]:
        # sqrt(x^2) differs from x by one rounding, which a large angle multiplies.
        np.testing.assert_allclose(jax.vmap(function)(jnp.asarray(angle**2)), expected, atol=1e-14)
