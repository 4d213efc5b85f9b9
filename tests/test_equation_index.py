"""The index from formulas to functions says what the citations in the code say."""

import re

import equation_index
import pytest


def test_index_is_what_the_citations_say():
    assert equation_index.INDEX.read_text() == equation_index.index(), "renew it: python tests/equation_index.py"


def test_every_formula_without_a_function_has_a_reason_and_no_other():
    found = equation_index.citations()
    uncited = {number for number, names in found.items() if not names}
    given = [number for numbers in equation_index.WITHOUT_CODE for number in numbers]
    assert len(given) == len(set(given))
    assert set(given) == uncited


def test_index_has_every_formula_once():
    rows = re.findall(r"^\| \(([A-Z]\d+)\) \|", equation_index.INDEX.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(equation_index.formulas())


@pytest.mark.parametrize(
    ("formula", "name"),
    [
        ("F1", "jaxdyn.mass_matrix"),
        ("G18", "jaxdyn.christoffel_first_kind"),
        ("M4", "jaxdyn.joint_reactions"),  # by a range, (M1)-(M5)
        ("H7", "jaxdyn.JointSpring"),  # by the end of a line
        ("D3", "jaxdyn.configuration.structure_coefficients"),
        ("R1", "jaxdyn.MechanismBuilder.add_rotor"),
        ("L3", "jaxdyn.Variational"),
    ],
)
def test_known_functions_are_found(formula, name):
    assert name in equation_index.citations()[formula]


def test_ranges_are_written_out():
    assert equation_index.cited_in("Source: theory.md (E6), (E10)-(E12).") == {"E6", "E10", "E11", "E12"}
