"""Vector functions against NumPy in float64 (for float32) and mpmath (for float64): error over the whole range, special values."""

import math

import mpmath
import numpy as np
import pytest
from vector_functions import DTYPES, NUMPY_NAMES, SPECIAL, arguments, evaluated, exactly, names_of_results

from jaxdyn.lanes import polynomials
from jaxdyn.lanes.transcendental import FUNCTIONS, KINDS, ULP, WIDTHS, definitions, symbol


@pytest.mark.thorough
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_error(name):
    xs = arguments(name, "f32", 1_000_000)
    for y, function in zip(evaluated(name, "f32", xs), names_of_results(name), strict=True):
        with np.errstate(all="ignore"):
            exact = getattr(np, NUMPY_NAMES.get(function, function))(*(x.astype(np.float64) for x in xs))
        np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
        np.testing.assert_array_equal(np.signbit(y)[exact == 0], np.signbit(exact)[exact == 0])
        valid = ~np.isnan(exact)
        # Overflow counts as the next power of 2.
        got, exact = (np.clip(a[valid].astype(np.float64), -(2.0**128), 2.0**128) for a in (y, exact))
        unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))
        error = np.abs(got - exact) / unit
        worst = np.argmax(error)
        assert error[worst] <= ULP[name, "f32"], [float(x[valid][worst]) for x in xs]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_error(name):
    xs = arguments(name, "f64", 6000)
    for y, function in zip(evaluated(name, "f64", xs), names_of_results(name), strict=True):
        worst, where = 0.0, None
        with mpmath.workdps(60):
            for *point, got in zip(*(x.tolist() for x in xs), y.tolist(), strict=True):
                exact = exactly(function, point)
                if exact is None:
                    continue
                overflow = mpmath.ldexp(1, 1024)
                exact = min(max(exact, -overflow), overflow)
                got = math.copysign(1, got) * overflow if math.isinf(got) else got
                unit = mpmath.ldexp(1, max(mpmath.frexp(exact)[1] - 53, -1074))
                error = float(abs(got - exact) / unit)
                # NaN is an error too.
                if not error <= worst:
                    worst, where = error, point
        assert worst <= ULP[name, "f64"], where


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_width_gives_the_same_bits(name, kind):
    xs = arguments(name, kind, 2000, seed=1)
    reference = evaluated(name, kind, xs, 1)
    for width in WIDTHS[1:]:
        for a, b in zip(reference, evaluated(name, kind, xs, width), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


@pytest.mark.parametrize("kind", KINDS)
def test_sincos_is_sin_and_cos(kind):
    xs = arguments("sincos", kind, 2000)
    for y, name in zip(evaluated("sincos", kind, xs), ("sin", "cos"), strict=True):
        np.testing.assert_array_equal(y, evaluated(name, kind, xs)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name, kind):
    *xs, expected = (np.array(column, DTYPES[kind]) for column in zip(*SPECIAL[name], strict=True))
    y = evaluated(name, kind, xs)[0]
    np.testing.assert_allclose(y, expected, rtol=2 * np.finfo(DTYPES[kind]).eps, atol=0)
    sure = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(y)[sure], np.signbit(expected)[sure])


def test_definitions_come_once_and_in_the_same_order():
    needed = [("sincos", "f32", 16), ("sin", "f32", 16), ("pow", "f64", 1), ("sin", "f32", 16)]
    text = definitions(needed)
    assert text == definitions(reversed(needed))
    heads = [line.split("(")[0].split("@")[1] for line in text.splitlines() if line.startswith(("define", "declare"))]
    assert len(heads) == len(set(heads))
    assert {symbol(*key) for key in needed} <= set(heads)
    assert definitions([]).strip() == ""


# The function of (argument, value of the polynomial) that should vanish relative to the function itself, and the interval.
POLYNOMIALS = {
    "SINE": (mpmath.sin, lambda r, p: r + r**3 * p(r**2), (0, math.pi / 4 + 1 / 64)),
    "COSINE": (mpmath.cos, lambda r, p: 1 + r**2 * p(r**2), (0, math.pi / 4 + 1 / 64)),
    "TANGENT": (mpmath.tan, lambda r, p: r + r**3 * p(r**2), (0, math.pi / 4 + 1 / 64)),
    "EXP": (mpmath.expm1, lambda r, p: r + r**2 * p(r), (-0.349, 0.349)),
    "LOG": (
        lambda s: 2 * mpmath.atanh(s),
        lambda s, p: 2 * s + s**3 * (mpmath.mpf(2) / 3 + s**2 * p(s**2)),
        (0, 0.1716),
    ),
    "TANH": (mpmath.tanh, lambda x, p: x + x**3 * p(x**2), (0, 0.55)),
    "ATAN": (mpmath.atan, lambda t, p: t + t**3 * p(t**2), (0, 1)),
    "ASIN": (mpmath.asin, lambda s, p: s + s**3 * p(s**2), (0, 0.5)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_err_as_stated(name, kind):
    function, form, (first, last) = POLYNOMIALS[name]
    coefficients = [float(DTYPES[kind](c)) for c in getattr(polynomials, name)[kind]]

    def value(z):
        return sum(c * z**i for i, c in enumerate(coefficients))

    with mpmath.workdps(50):
        points = [first + (last - first) * mpmath.mpf(2 * i + 1) / 400 for i in range(200)]
        errors = [abs(form(x, value) / function(x) - 1) for x in points]
        worst = float(mpmath.log(max(errors), 2))
    assert polynomials.ERROR[name][kind] - 0.5 < worst <= polynomials.ERROR[name][kind]
