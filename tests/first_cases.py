"""Cases of a test of which some run always, and the rest with the option --thorough."""

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """The cases, of which all but the first `count` are marked thorough."""
    cases = list(cases)
    return [*cases[:count], *(_thorough(case) for case in cases[count:])]


def _thorough(case: Any) -> Any:
    if hasattr(case, "marks"):  # a `pytest.param`
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.thorough])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.thorough)
