"""Large results are in huge pages, and their memory returns to the system with them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.compute import batched

resource = pytest.importorskip("resource")
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
if not SETTING.exists() or "[never]" in SETTING.read_text():
    pytest.skip("this system has no huge pages", allow_module_level=True)

# Bytes of the result, and of a small page.
LARGE, PAGE = 2**26, resource.getpagesize()


def compiled():
    """A batch with a result of 64 MiB."""
    function, x = batched(lambda x: x * jnp.arange(64, dtype=jnp.float32)), np.ones(LARGE // 256, np.float32)
    jax.block_until_ready(function(x))
    return lambda: function(x)


@pytest.fixture(name="large_result", scope="module")
def _large_result():
    return compiled()


def faults_of(function, *args) -> int:
    """Page faults of the best one of three calls."""
    counts = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        jax.block_until_ready(function(*args))
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(counts)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_a_large_result_needs_few_page_faults(large_result):
    # Small pages are only at the ends, where a huge one does not fit.
    assert faults_of(large_result) < 1200 < LARGE / PAGE / 10


def test_memory_of_large_results_returns_to_the_system(large_result):
    before = resident()  # with a result of the last test, if a thread of XLA still holds it
    results = [jax.block_until_ready(large_result()) for _ in range(4)]
    assert resident() - before > 2.9 * LARGE
    del results
    deadline = time.monotonic() + 5.0
    while resident() - before > LARGE / 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert resident() - before < LARGE / 4


def test_results_that_are_given_back_need_no_page_faults(large_result):
    again = jax.jit(lambda old: large_result(), donate_argnums=0, keep_unused=True)
    result = large_result()

    def next_result():
        nonlocal result
        result = again(result)
        return result

    assert faults_of(next_result) < 100
    np.testing.assert_array_equal(result, large_result())


@pytest.mark.thorough
@pytest.mark.skipif("[madvise]" not in SETTING.read_text(), reason="the system decides about huge pages alone")
def test_the_environment_switches_huge_pages_off():
    run = subprocess.run(
        [sys.executable, "-c", "from test_large_results import *; print(faults_of(compiled()))"],
        cwd=Path(__file__).parent,
        env=os.environ | {"JAXDYN_HUGE_PAGES": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) > 0.9 * LARGE / PAGE
