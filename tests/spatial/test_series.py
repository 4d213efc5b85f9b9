"""The trigonometric quotients against their power series in exact arithmetic."""

from fractions import Fraction
from math import factorial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxdyn.spatial import series

_EXACT_TERMS = 60  # at x = 40 the terms beyond are below 1e-60

# Function, coefficient of x^k of its power series.
ENTIRE = {
    series.cos_root: lambda k: Fraction((-1) ** k, factorial(2 * k)),
    series.sinc_root: lambda k: Fraction((-1) ** k, factorial(2 * k + 1)),
    series.versine_root: lambda k: Fraction((-1) ** k, factorial(2 * k + 2)),
    series.sine_remainder_root: lambda k: Fraction((-1) ** k, factorial(2 * k + 3)),
}


def exact_derivative(coefficient, order: int, x: float) -> float:
    """Derivative of a power series at the floating-point number x, rounded once."""
    terms = range(order, _EXACT_TERMS)
    falling = (Fraction(factorial(k), factorial(k - order)) for k in terms)
    return float(sum(f * coefficient(k) * Fraction(x) ** (k - order) for f, k in zip(falling, terms, strict=True)))


def derivatives(function, x):
    """Value, first and second derivative at every x."""
    first = jax.grad(function)
    return [jax.vmap(f)(x) for f in (function, first, jax.grad(first))]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", ENTIRE, ids=lambda f: f.__name__)
def test_value_and_two_derivatives_are_exact_at_zero_and_on_both_sides_of_the_switch(function, dtype):
    one = dtype(1)
    below, above = np.nextafter(one, dtype(0)), np.nextafter(one, dtype(2))
    x = np.stack([dtype(0), dtype(1e-30), dtype(1e-3), dtype(0.5), below, one, above, dtype(2), dtype(9.8), dtype(39)])
    rounding = 4 * np.finfo(dtype).eps  # a few roundings of intermediate results, which are of order one
    for order, computed in enumerate(derivatives(function, jnp.asarray(x))):
        assert computed.dtype == dtype
        exact = [exact_derivative(ENTIRE[function], order, float(number)) for number in x]
        np.testing.assert_allclose(computed, exact, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("function", ENTIRE, ids=lambda f: f.__name__)
def test_value_at_zero_is_the_first_coefficient_exactly(function):
    assert float(function(jnp.asarray(0.0))) == float(ENTIRE[function](0))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_cotangent_remainder_is_exact_up_to_half_a_turn_with_two_derivatives(dtype):
    one = dtype(1)
    x = np.stack([dtype(0), dtype(1e-3), np.nextafter(one, dtype(0)), one, dtype(2), dtype(5), dtype(9.8)])

    def exact(number: float, order: int) -> float:
        # |B_2k|/(2k)! x^(k-1), differentiated term by term; the ratio of terms tends to x/(2 pi)^2 < 1/4.
        ratios = [abs(Fraction(*mpmath.bernfrac(2 * k + 2))) / factorial(2 * k + 2) for k in range(_EXACT_TERMS)]
        return exact_derivative(lambda k: ratios[k], order, number)

    rounding = 4 * np.finfo(dtype).eps
    for order, computed in enumerate(derivatives(series.cotangent_remainder_root, jnp.asarray(x))):
        assert computed.dtype == dtype
        reference = [exact(float(number), order) for number in x]
        np.testing.assert_allclose(computed, reference, rtol=rounding, atol=rounding)


def test_arctan_quotient_is_exact_on_its_range():
    y = np.array([0.0, 1e-30, 1e-4, 0.0099, 0.01])
    for order, computed in enumerate(derivatives(series.arctan_quotient, jnp.asarray(y))):
        exact = [exact_derivative(lambda k: Fraction((-1) ** k, 2 * k + 1), order, number) for number in y]
        np.testing.assert_allclose(computed, exact, rtol=1e-14)  # a polynomial of positive argument: a few roundings


def test_closed_form_holds_at_any_angle():
    angle = np.linspace(1.1, 12.0, 23)
    for function, expected in [
        (series.cos_root, np.cos(angle)),
        (series.sinc_root, np.sin(angle) / angle),
        (series.versine_root, (1 - np.cos(angle)) / angle**2),
    ]:
        # sqrt(x^2) differs from x by one rounding, which a large angle multiplies.
        np.testing.assert_allclose(jax.vmap(function)(jnp.asarray(angle**2)), expected, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_decay_quotient_and_two_derivatives_are_exact_at_zero_and_on_both_sides_of_the_switch(dtype):
    one = dtype(1)
    inside, outside = np.nextafter(one, dtype(0)), np.nextafter(one, dtype(2))
    x = np.stack([dtype(0), dtype(1e-30), dtype(1e-3), dtype(0.5), inside, one, outside, dtype(3), dtype(9.8)])
    x = np.concatenate([x, -x])
    rounding = 16 * np.finfo(dtype).eps  # the closed form's second derivative is a difference of numbers of order one
    for order, computed in enumerate(derivatives(series.decay_quotient, jnp.asarray(x))):
        assert computed.dtype == dtype
        exact = [exact_derivative(lambda k: Fraction((-1) ** k, factorial(k + 1)), order, float(n)) for n in x]
        np.testing.assert_allclose(computed, exact, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tanh_quotient_and_two_derivatives_are_exact_at_zero_and_on_both_sides_of_the_switch(dtype):
    switch = dtype(0.2)
    inside, outside = np.nextafter(switch, dtype(0)), np.nextafter(switch, dtype(2))
    x = np.stack(
        [dtype(0), dtype(1e-30), dtype(1e-3), dtype(0.1), inside, switch, outside, dtype(1), dtype(9.8), dtype(50)]
    )
    x = np.concatenate([x, -x])
    with mpmath.workdps(60):
        for order, computed in enumerate(derivatives(series.tanh_quotient, jnp.asarray(x))):
            assert computed.dtype == dtype
            exact = [
                float(mpmath.diff(lambda y: mpmath.tanh(y) / y, mpmath.mpf(float(n)), order))
                if abs(n) > 1e-20
                else float((1, 0, mpmath.mpf(-2) / 3)[order])
                for n in x
            ]
            # Each derivative of the closed form is a difference of numbers that are 1/x^2 times as large.
            rounding = 4 * np.finfo(dtype).eps / float(switch) ** (2 * order)
            np.testing.assert_allclose(computed, exact, rtol=rounding, atol=rounding)
