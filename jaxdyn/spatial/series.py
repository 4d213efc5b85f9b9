"""Smooth functions for quotients that are 0/0 at zero, such as sin(phi)/phi as a function of phi^2.

Exponentials of rotations need cos(phi), sin(phi)/phi and (1 - cos(phi))/phi^2 of phi = |vector|. As functions of the norm phi,
these quotients are 0/0 at zero and their derivatives are NaN. As functions of x = phi^2 they are entire, so the value and all
derivatives are exact at x = 0. Below x = 1 the power series is used, whose ten terms are exact to 1e-19; above x = 1 the closed
form has no cancellation.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

Scalar = Float[Array, ""]

_SWITCH = 1.0
_TERMS = 10
# Absolute values of the Bernoulli coefficients B_2, B_4, ..., B_20.
_BERNOULLI = [1 / 6, 1 / 30, 1 / 42, 1 / 30, 5 / 66, 691 / 2730, 7 / 6, 3617 / 510, 43867 / 798, 174611 / 330]


def _power_series(x: Float[Array, "*shape"], coefficients: list[float]) -> Float[Array, "*shape"]:
    total = jnp.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _by_parts(x: Scalar, coefficients: list[float], closed_form) -> Scalar:
    small = x < _SWITCH
    # Each branch gets an argument within its range; otherwise the derivative of the unused branch would make the result NaN.
    series = _power_series(jnp.where(small, x, 0.0), coefficients)
    return jnp.where(small, series, closed_form(jnp.sqrt(jnp.where(small, _SWITCH, x))))


def cos_root(x: Scalar) -> Scalar:
    """cos(sqrt(x)) for x >= 0."""
    return _by_parts(x, [(-1) ** k / math.factorial(2 * k) for k in range(_TERMS)], jnp.cos)


def sinc_root(x: Scalar) -> Scalar:
    """sin(sqrt(x))/sqrt(x) for x >= 0."""
    coefficients = [(-1) ** k / math.factorial(2 * k + 1) for k in range(_TERMS)]
    return _by_parts(x, coefficients, lambda phi: jnp.sin(phi) / phi)


def versine_root(x: Scalar) -> Scalar:
    """(1 - cos(sqrt(x)))/x for x >= 0."""
    coefficients = [(-1) ** k / math.factorial(2 * k + 2) for k in range(_TERMS)]
    return _by_parts(x, coefficients, lambda phi: (1.0 - jnp.cos(phi)) / phi**2)


def sine_remainder_root(x: Scalar) -> Scalar:
    """(1 - sin(sqrt(x))/sqrt(x))/x for x >= 0."""
    coefficients = [(-1) ** k / math.factorial(2 * k + 3) for k in range(_TERMS)]
    return _by_parts(x, coefficients, lambda phi: (1.0 - jnp.sin(phi) / phi) / phi**2)


def cotangent_remainder_root(x: Scalar) -> Scalar:
    """(1 - (sqrt(x)/2) cot(sqrt(x)/2))/x for 0 <= x < (2 pi)^2."""
    coefficients = [b / math.factorial(2 * k + 2) for k, b in enumerate(_BERNOULLI)]
    return _by_parts(x, coefficients, lambda phi: (1.0 - 0.5 * phi / jnp.tan(0.5 * phi)) / phi**2)


def arctan_quotient(y: Scalar) -> Scalar:
    """arctan(sqrt(y))/sqrt(y) for 0 <= y <= 0.01, by its power series; larger y must be handled by the caller."""
    return _power_series(y, [(-1) ** k / (2 * k + 1) for k in range(_TERMS)])


def decay_quotient(x: Scalar) -> Scalar:
    """(1 - exp(-x))/x, the mean of exp(-y) over 0 <= y <= x."""
    small = jnp.abs(x) < _SWITCH
    # In contrast to the series above, this one also has odd powers, so it needs twice the terms.
    series = _power_series(jnp.where(small, x, 0.0), [(-1) ** k / math.factorial(k + 1) for k in range(2 * _TERMS)])
    far = jnp.where(small, _SWITCH, x)
    return jnp.where(small, series, -jnp.expm1(-far) / far)


# tanh(x)/x = sum over n of (-1)^(n+1) 4^n (4^n - 1) |B_2n| / (2n)! x^(2n-2). Below 0.2 ten terms are exact to 1e-17, and their
# second derivative to 1e-13.
_TANH_SWITCH = 0.2
_TANH = [(-1) ** (n + 1) * 4**n * (4**n - 1) * b / math.factorial(2 * n) for n, b in enumerate(_BERNOULLI, start=1)]


def tanh_quotient(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """tanh(x)/x of each entry."""
    small = jnp.abs(x) < _TANH_SWITCH
    series = _power_series(jnp.where(small, x, 0.0) ** 2, _TANH)
    far = jnp.where(small, _TANH_SWITCH, x)
    return jnp.where(small, series, jnp.tanh(far) / far)
