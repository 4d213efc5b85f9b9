"""With a JAX that was not tested, the lane compiler tests itself, and XLA takes over if it fails."""

import dataclasses
import os
import subprocess
import sys

import jax
import pytest

from jaxdyn.lanes import canary, self_test
from jaxdyn.lanes.flatten import RULES

CASES = [*canary.cases(with_float64=True)]


@pytest.fixture
def some_cases(monkeypatch):
    """The arithmetic of float32 alone."""
    monkeypatch.setattr(canary, "cases", lambda with_float64: CASES[1:2])


@pytest.mark.thorough
def test_the_compiler_passes_with_this_jax():
    assert self_test.failure() == ""


@pytest.fixture
def put_wrong_rule(monkeypatch):
    """put_wrong_rule(name): the rule of a primitive returns its argument."""

    def put(name: str):
        wrong = dataclasses.replace(RULES[name], function=lambda flat, equation, args: [args[0]])
        monkeypatch.setitem(RULES, name, wrong)
        jax.clear_caches()

    yield put
    jax.clear_caches()


@pytest.mark.usefixtures("some_cases")
class TestOfArithmetic:
    def test_the_compiler_passes_with_this_jax(self):
        assert self_test.failure() == ""

    def test_a_wrong_rule_is_found(self, put_wrong_rule):
        put_wrong_rule("sin")
        assert (
            self_test.failure()
            == f"the compiler computes a wrong value of 'float_functions' with JAX {jax.__version__}"
        )

    def test_a_wrong_derivative_is_found(self, put_wrong_rule):
        """Only derivatives of these functions have squares."""
        put_wrong_rule("square")
        assert "wrong derivative in forward mode of 'float_functions'" in self_test.failure()

    def test_a_renamed_primitive_is_found(self, monkeypatch):
        monkeypatch.setattr(jax.lax.sin_p, "name", "sine")
        assert "cannot serve the value of 'float_functions'" in self_test.failure()
        assert "'sine'" in self_test.failure()


NEWER = """
import warnings, jax
jax.__version_info__ = (99, 0)
import jaxdyn
from jaxdyn.lanes import self_test
runs = []
def failure():
    runs.append(1)
    return "the compiler computes a wrong value of 'sine' with JAX 99"
self_test.failure = failure
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    model = jaxdyn.library.double_pendulum()
    print(jaxdyn.mass_matrix(model, jax.numpy.zeros(2)).shape, jaxdyn.batched(lambda q: q)(jax.numpy.ones((2, 2))).shape)
(warning,) = said
print(len(runs), warning.message)
"""


def test_an_untested_jax_that_fails_is_left_to_xla_with_one_warning_and_the_verdict_is_remembered(tmp_path):
    for runs in (1, 0):
        run = subprocess.run(
            [sys.executable, "-c", NEWER],
            capture_output=True,
            text=True,
            env={**os.environ, "JAXDYN_CACHE_DIR": str(tmp_path)},
        )
        assert run.returncode == 0, run.stderr[-2000:]
        shapes, verdict = run.stdout.splitlines()
        assert shapes == "(2, 2) (2, 2)"
        assert verdict.startswith(f"{runs} jaxdyn runs on XLA alone")
        assert verdict.endswith(": the compiler computes a wrong value of 'sine' with JAX 99")
