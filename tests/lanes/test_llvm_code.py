"""What the code generator may do to a program without changing its results."""

import ctypes

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.lanes import cpu_code, llvm_code
from jaxdyn.lanes.cpu_code import CpuKernel
from jaxdyn.lanes.flatten import flatten
from jaxdyn.lanes.llvm_engine import USUAL_EFFORT, loaded, object_code

MODEL = jaxdyn.library.double_pendulum()


def gradient_of_rollout(q, u):
    """Two loops, one within the other's scope, values carried and collected, and sine and cosine in pairs."""
    system = jaxdyn.System(MODEL)

    def loss(q, u):
        return jnp.sum(jaxdyn.rollout(system, jaxdyn.State(q, q), u, dt=1e-2, steps=40, save_every=8).saved.q ** 2)

    return jax.value_and_grad(loss, (0, 1))(q, u)


def counted(name, calls):
    before = getattr(CpuKernel, name)

    def method(self, *args):
        calls[name] += 1
        return before(self, *args)

    return method


@pytest.mark.parametrize(("samples", "length"), [(1, 31), (19, 31), (19, 3)])
def test_straight_lines_broken_into_stretches_compute_the_same(samples, length, monkeypatch):
    q = 0.3 * jax.random.normal(jax.random.key(0), (samples, 2))
    u = 0.1 * jax.random.normal(jax.random.key(1), (samples, 40, 2))
    whole = jaxdyn.batched(gradient_of_rollout, backend="lanes")(q, u)
    calls = {"_break_line": 0, "_keep": 0, "_reserved_bytes": 0}
    for name in calls:
        monkeypatch.setattr(CpuKernel, name, counted(name, calls))
    monkeypatch.setattr(llvm_code, "LONG", 10)
    monkeypatch.setattr(llvm_code.ProgramCode, "_stretch", length)
    monkeypatch.setattr(cpu_code, "_STRETCH", length)
    broken = jaxdyn.batched(lambda q, u: gradient_of_rollout(q, u), backend="lanes")(q, u)
    assert calls["_break_line"] > 20
    # Vectors are kept in scratch memory, and later ones take the place of those that are not needed any more.
    assert calls["_keep"] > calls["_reserved_bytes"] if samples > 1 else not calls["_keep"]
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(broken), strict=True):
        # Multiplications and additions may be fused differently on the two sides of a break.
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("width", [1, 4])
def test_kernels_write_nothing_beside_their_outputs(width, layout):
    """Some of which are empty."""
    batch, guard = 13, 20_000

    def function(x):
        def turn(carry, t):
            y = 0.5 * carry + x * t
            return y, (y, y[:0], y[:0], y[1:])

        last, (path, none, same, part) = jax.lax.scan(turn, x, jnp.arange(1000.0))
        back, _ = jax.lax.scan(lambda s, p: (0.5 * s + p, none[0]), x[0], part[:, 0], reverse=True)
        joined = jnp.concatenate([jax.lax.scan(turn, k * x, jnp.arange(500.0))[1][0] for k in (2.0, 3.0)])
        return back, none, path, same, part, path[:, 1:], last, joined

    x = np.random.default_rng(0).uniform(-1, 1, (batch, 2))
    expected = jax.device_get(jax.jit(jax.vmap(function))(x))
    kernel = CpuKernel(flatten(jax.make_jaxpr(function)(x[0])), width, ["rows"], [layout] * len(expected))
    engine = loaded(object_code(kernel.text, USUAL_EFFORT))
    results = [np.full(y.size + guard, 7.0) for y in expected]
    scratch = np.empty(kernel.scratch_bytes + 64, np.uint8)
    buffers = (ctypes.c_void_p * (1 + len(results)))(*(a.ctypes.data for a in (x, *results)))
    whole = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)
    run = whole(engine.get_function_address("kernel"))
    run(ctypes.addressof(buffers), 0, -(-batch // width), batch, -(-scratch.ctypes.data // 64) * 64)
    for found, y in zip(results, expected, strict=True):
        np.testing.assert_array_equal(found[y.size :], 7.0)
        values = found[: y.size].reshape(-1, batch).T if layout == "columns" else found[: y.size]
        np.testing.assert_allclose(values.reshape(y.shape), y, rtol=1e-13)
    engine.close()


def test_a_rollout_within_a_compiled_function_says_that_lanes_ran_it():
    def simulated(q):
        return jaxdyn.rollout(jaxdyn.System(MODEL), jaxdyn.State(q, q), dt=1e-2, steps=2)

    assert jaxdyn.batched(simulated, backend="lanes")(jnp.zeros((3, 2))).backend == "lanes"
    assert (
        jax.vmap(lambda q: jaxdyn.rollout(jaxdyn.System(MODEL), jaxdyn.State(q, q), dt=1e-2, steps=2, backend="xla"))(
            jnp.zeros((3, 2))
        ).backend
        == "xla"
    )
