"""Python's collector of cyclic garbage does not run while the lane compiler traces, and is as it was afterwards."""

import gc

import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.compute import batched
from jaxdyn.lanes.collector import collector_paused
from jaxdyn.lanes.stored import stored_jit


@pytest.mark.parametrize("door", [batched, stored_jit])
def test_the_collector_pauses_while_a_function_is_traced(door):
    seen = []

    def doubled(x):
        seen.append(gc.isenabled())
        return 2.0 * x

    np.testing.assert_allclose(door(doubled)(jnp.arange(3.0)), [0.0, 2.0, 4.0])
    assert seen
    assert not any(seen)
    assert gc.isenabled()


@pytest.mark.parametrize("door", [batched, stored_jit])
def test_the_collector_is_on_again_after_an_error(door):
    def wrong(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        door(wrong)(jnp.arange(3.0))
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pauses_may_be_nested():
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
