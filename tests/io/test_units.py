"""Quantities as text: what they are worth in SI units, and which are refused."""

import math

import pytest

from jaxdyn.io.units import quantity

_SI = ["1", "rad", "s", "Hz", "m", "kg", "N", "N m", "rad/s", "m/s", "m/s^2", "kg m^2"]
_SI += ["N m/rad", "N m s/rad", "N/m", "N s/m", "m/rad", "1/s"]


@pytest.mark.parametrize("unit", _SI)
@pytest.mark.parametrize("value", [0, 3, -2.5])
def test_number_is_in_si_units_already(unit, value):
    assert quantity(value, unit) == quantity(f"{value} {unit}", unit) == float(value)


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("180 deg", "rad", math.pi),
        ("250 ms", "s", 0.25),
        ("2 min", "s", 120.0),
        ("1.5 kHz", "Hz", 1500.0),
        ("12.5 cm", "m", 0.125),
        ("-8 mm", "m", -0.008),
        ("350 g", "kg", 0.35),
        ("2 mm/rad", "m/rad", 0.002),
        ("4 mm/turn", "m/rad", 0.002 / math.pi),
        ("0.5 kN", "N", 500.0),
        ("5 Nm", "N m", 5.0),
        ("90 deg/s", "rad/s", math.pi / 2),
        ("60 rpm", "rad/s", 2 * math.pi),
    ],
)
def test_text_is_converted(text, unit, expected):
    assert quantity(text, unit) == pytest.approx(expected, rel=4e-16)  # one product of two rounded numbers


@pytest.mark.parametrize("text", ["1e3 N m", "1000 N  m", " +1000.0Nm ", "1.e3\tNm"])
def test_spelling_of_number_and_space_is_free(text):
    assert quantity(text, "N m") == 1000.0


@pytest.mark.parametrize(
    ("value", "unit", "fragments"),
    [
        ("2 kg", "s", ["'2 kg'", "'kg' does not fit", "s or ms or min"]),
        ("2 furlong", "m", ["'furlong' does not fit", "m or cm or mm"]),
        ("2 S", "s", ["'S' does not fit", "s or ms or min"]),
        ("2", "rad", ["'2'", "a unit is missing", "rad or deg"]),
        ("fast", "m/s", ["'fast' is not a quantity", "m/s"]),
        ("1.2.3 m", "m", ["'1.2.3 m'", "m or cm or mm"]),
        ("", "m", ["'' is not a quantity", "m or cm or mm"]),
        (True, "s", ["True is not a quantity", "s or ms or min"]),
        (None, "s", ["None is not a quantity", "s or ms or min"]),
        ([1.0], "s", ["[1.0] is not a quantity", "s or ms or min"]),
        (math.nan, "s", ["nan is not finite", "finite value"]),
        (math.inf, "s", ["inf is not finite", "finite value"]),
        ("1e999 m", "m", ["'1e999 m' is not finite", "finite value"]),
        (10**400, "m", ["is not finite", "finite value"]),
    ],
)
def test_refusal_names_the_value_and_the_units_that_fit(refusal, value, unit, fragments):
    message = refusal(ValueError, quantity, value, unit)
    assert all(fragment in message for fragment in fragments), message
