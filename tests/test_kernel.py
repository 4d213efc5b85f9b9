"""Kernels and steppers: the numbers of JAX, taken from NumPy arrays and given in them, in any thread, and errors at the door."""

import gc
import re
import threading
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import double_pendulum

import jaxdyn
from jaxdyn import System
from jaxdyn.simulate import RolloutError, RolloutResult

MODEL = double_pendulum()
Q, V = np.array([0.3, -0.5]), np.array([1.0, 2.0])


class Reading(NamedTuple):
    """What a robot measures."""

    q: np.ndarray
    v: np.ndarray


def force(t, state, gains, mode="plus"):
    """A function of a tree with a number, a float and a constant, with results of several types."""
    tau = -gains["p"] * state.q - gains["d"] * state.v + (t if mode == "plus" else -t)
    return {"tau": tau, "a": jaxdyn.forward_dynamics(MODEL, state.q, state.v, tau)}, state.q > 0, (mode, gains["d"])


ARGUMENTS = (0.25, Reading(Q, V), {"p": 2.0 * Q, "d": 0.5}, "plus")


@pytest.fixture(scope="module", params=["lanes", "xla"])
def of_force(request):
    with jaxdyn.backend(request.param):
        made = jaxdyn.kernel(force, *ARGUMENTS)
    assert made.backend == request.param
    return made


def test_numbers_and_structure_are_those_of_the_function(of_force):
    expected = jax.tree.map(np.asarray, jax.jit(lambda *args: force(*args)[:2])(*ARGUMENTS[:3]))
    for arguments in (ARGUMENTS, (jnp.asarray(0.25), *jax.tree.map(jnp.asarray, ARGUMENTS[1:3]), "plus")):
        found, positive, (mode, gain) = of_force(*arguments)
        assert (mode, gain, positive.dtype) == ("plus", 0.5, bool)
        for a, b in zip(jax.tree.leaves((found, positive)), jax.tree.leaves(expected), strict=True):
            assert isinstance(a, np.ndarray)
            np.testing.assert_allclose(a, b, rtol=1e-13)


def test_other_values_change_the_results_and_not_earlier_ones(of_force):
    first = of_force(*ARGUMENTS)[0]["tau"]
    before = first.copy()
    later = of_force(0.5, *ARGUMENTS[1:])[0]["tau"]
    np.testing.assert_array_equal(first, before)
    np.testing.assert_allclose(later, first + 0.25, rtol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0.25, Reading(Q[:1], V), *ARGUMENTS[2:]), ValueError, r"state.q has shape (1,); force was compiled for (2,)"),
        ((0.25j, *ARGUMENTS[1:]), TypeError, "t has type complex128; force was compiled for float64"),
        (("0.25", *ARGUMENTS[1:]), TypeError, "t has type <U4"),
        ((*ARGUMENTS[:2], {"p": Q}, "plus"), TypeError, "force was compiled for arguments"),
        ((*ARGUMENTS[:3], "minus"), TypeError, "force was compiled for the constant 'plus'; it got 'minus'"),
        (ARGUMENTS[:3], TypeError, "force was compiled for arguments"),
    ],
)
def test_other_arguments_are_refused_by_name(of_force, arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        of_force(*arguments)


def test_a_kernel_is_not_traced_and_not_made_within_jit():
    square = jaxdyn.kernel(lambda x: x * x, Q)
    with pytest.raises(TypeError, match="which JAX cannot trace; call the function it was made of"):
        jax.jit(square)(Q)
    with pytest.raises(TypeError, match="a kernel is made outside of jit"):
        jax.jit(lambda x: jaxdyn.kernel(lambda x: x * x, x)(x))(Q)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_those_of_the_example_and_numbers_are_converted(dtype):
    derivative = jaxdyn.kernel(jax.jacfwd(jnp.sin), jax.ShapeDtypeStruct((2,), dtype))
    for given in (Q.astype(dtype), Q.astype(np.float64), Q.astype(np.float32), list(Q), jnp.asarray(Q)):
        found = derivative(given)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, np.diag(np.cos(Q)), rtol=1e-6 if dtype == np.float32 else 1e-7)


def test_no_number_is_cut_off():
    doubled = jaxdyn.kernel(lambda n: 2 * n, jnp.int32(1))
    assert doubled(3) == 6
    for wrong in (2.7, 2**40, np.int64(2**40)):
        with pytest.raises(TypeError, match=r"n has (type float64|values outside of the range of int32)"):
            doubled(wrong)
    with jax.enable_x64(False), pytest.raises(TypeError, match="x has type float64, while jax_enable_x64 is off"):
        jaxdyn.kernel(lambda x: x, Q)
    in_single = jaxdyn.kernel(lambda q, t: q * t, Q.astype(np.float32), 1.0)  # a float is of no certain type
    assert in_single(Q.astype(np.float32), 2.0).dtype == np.float32


def test_random_keys_and_arguments_without_effect():
    def noisy(key, unused, x):
        return jax.random.split(key)[0], x + jax.random.normal(key, x.shape)

    key = jax.random.key(3)
    drawn = jaxdyn.kernel(noisy, key, Q, V)
    following, found = drawn(key, Q, V)
    expected = noisy(key, Q, V)
    assert following == expected[0]
    np.testing.assert_allclose(found, expected[1], rtol=1e-14)
    with pytest.raises(ValueError, match="unused has shape"):
        drawn(key, Q[:1], V)


def test_what_lanes_cannot_compile_is_left_to_xla_or_refused():
    assert jaxdyn.kernel(jnp.fft.fft, Q).backend == "xla"
    np.testing.assert_allclose(jaxdyn.kernel(jnp.fft.fft, Q)(Q), np.fft.fft(Q))
    with jaxdyn.backend("lanes"), pytest.raises(jaxdyn.compute.CannotCompile, match="complex128"):
        jaxdyn.kernel(jnp.fft.fft, Q)


def test_threads_do_not_share_memory():
    product, wrong = jaxdyn.kernel(lambda x, y: jnp.outer(x, y), np.ones(30), np.ones(30)), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x, y = rng.random((2, 30))
            if not np.array_equal(product(x, y), np.outer(x, y)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_calls_leave_nothing_behind(of_force):
    of_force(*ARGUMENTS)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        of_force(*ARGUMENTS)
    assert len(gc.get_objects()) <= before + 20


# ---------------------------------------------------------------- steppers

OTHERS = {"integrator": jaxdyn.RungeKutta4(), "substeps": 2}


@pytest.mark.parametrize("options", [{}, OTHERS], ids=["default", "options"])
def test_steps_are_those_of_a_rollout(options):
    turning = jaxdyn.MechanismBuilder("turning", gravity=(0.0, 0.0, -9.81))
    motion = jaxdyn.Rheonomic(jaxdyn.Revolute((0.0, 0.0, 1.0)), jaxdyn.Sinusoid(0.5, 2.0))
    turning.add_body("table", parent="ground", joint=motion, mass=1.0, inertia=np.eye(3))
    turning.add_body(
        "arm",
        parent="table",
        joint=jaxdyn.Revolute((1.0, 0.0, 0.0)),
        position=(0.4, 0.0, 0.0),
        mass=1.0,
        com=(0.0, 0.0, -0.3),
        inertia=0.01 * np.eye(3),
    )
    system = System(turning.build())
    start, rows = system.at_rest(jnp.array([0.3])), 0.1 * np.arange(5.0)[:, None]
    for controls in (rows, None):
        expected = jaxdyn.rollout(system, start, controls, dt=0.01, steps=5, t0=0.7, **options).saved
        step, (q, v) = jaxdyn.stepper(system, 0.01, **options), (start.q, start.v)
        for k in range(5):
            q, v = step(q, v, None if controls is None else controls[k], 0.7 + 0.01 * k)
            np.testing.assert_allclose(q, expected.q[k + 1], rtol=1e-13)
            np.testing.assert_allclose(v, expected.v[k + 1], rtol=1e-12)


def test_a_step_that_fails_raises_the_error_of_a_rollout():
    step = jaxdyn.stepper(System(MODEL), 0.01, divergence_limit=5.0)
    good = step(Q, V)
    with pytest.raises(RolloutError, match=r"RolloutResult\.DIVERGED.*joint '2_joint' was the fastest") as caught:
        step(Q, V, np.array([0.0, 1e6]))
    assert caught.value.result is RolloutResult.DIVERGED
    np.testing.assert_array_equal(step(Q, V), good)
    with pytest.raises(ValueError, match=r"q has shape"):
        step(Q[:1], V)
