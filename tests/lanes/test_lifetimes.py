"""What is derived from a function, and compiled for it, is freed with the function: a long process does not grow."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.compute import batched, per_sample
from jaxdyn.lanes import cpu, record, records, stored
from jaxdyn.lanes.remembered import SampleJaxpr

MODEL = jaxdyn.library.double_pendulum()
X = np.linspace(0.1, 0.9, 6).reshape(3, 2)


def gradient_of_a_rollout(k: int) -> None:
    def loss(q):
        end = jaxdyn.rollout(
            jaxdyn.System(MODEL), jaxdyn.State(q, 0.1 * q), dt=1e-3 + 1e-6 * k, steps=40, save_every=40
        )
        return jnp.sum(end.final.q)

    jax.jit(jax.vmap(jax.value_and_grad(loss)))(X)


def batch(k: int) -> None:
    batched(lambda x: (1.0 + k) * jnp.sin(x))(X)


def derivatives_of_every_order(k: int) -> None:
    function = per_sample(lambda x: jnp.sum(jnp.sin((2.0 + k) * x)))
    jax.jit(jax.vmap(jax.hessian(function)))(X)
    jax.jit(jax.vmap(lambda x: jax.jvp(jax.grad(function), (x,), (x,))))(X)


WORK = [gradient_of_a_rollout, batch, derivatives_of_every_order]


def alive() -> tuple[int, int]:
    """Numbers of functions of one sample, and of programs in memory."""
    gc.collect()
    return sum(isinstance(x, SampleJaxpr) for x in gc.get_objects()), len(cpu._in_memory)


@pytest.mark.parametrize("work", WORK)
def test_functions_and_their_programs_are_freed(work):
    work(0)
    work(1)
    functions, programs = alive()
    for k in range(2, 5):
        work(k)
    more = alive()
    assert more[0] <= functions
    assert more[1] <= programs  # those of the last function are freed when the next program is compiled


def test_few_functions_that_are_called_without_jit_are_kept():
    for k in range(40):
        per_sample(lambda x, k=k: jnp.sin(x) * k)(X[0])
    functions, programs = alive()
    for k in range(40, 50):
        per_sample(lambda x, k=k: jnp.sin(x) * k)(X[0])
    more = alive()
    assert more[0] <= functions
    assert more[1] <= programs


@pytest.mark.thorough
def test_programs_of_batches_outside_of_jit_are_bounded(monkeypatch):
    monkeypatch.setattr(stored.Programs, "most", 4)

    def masses(count: int) -> None:
        found = np.asarray(jax.vmap(lambda q: jaxdyn.mass_matrix(MODEL, q))(np.tile(X[0], (count, 1))))
        np.testing.assert_allclose(found[-1], found[0], rtol=1e-12)

    def executables() -> int:
        gc.collect()
        return sum(type(x).__name__ == "MeshExecutable" for x in gc.get_objects())

    masses(1)
    start = executables()
    assert start > 0
    for count in range(2, 16):
        masses(count)
        assert executables() <= start + 6


def test_a_record_does_not_hold_the_future_of_its_code():
    batch(100)
    assert records()[-1].code_s > 0.0
    assert record._ENTRIES[-1].code_s is None
