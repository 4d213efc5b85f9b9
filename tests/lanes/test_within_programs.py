"""Functions of models and systems are kernels of the lane compiler within the programs of users."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import dynamics
from jaxdyn.compute.hints import written_out

SYSTEM = jaxdyn.library.system("cart_pole")
MODEL = SYSTEM.model
Q, V = jnp.array([0.3, -0.8]), jnp.array([0.1, 0.4])

FUNCTIONS = {
    "mass_matrix": lambda m, q, v: jaxdyn.mass_matrix(m, q),
    "forward_dynamics": lambda m, q, v: jaxdyn.forward_dynamics(m, q, v, v),
    "inverse_dynamics": lambda m, q, v: jaxdyn.inverse_dynamics(m, q, v, q),
    "forward_dynamics_derivatives": lambda m, q, v: dynamics.forward_dynamics_derivatives(m, q, v, v),
    "total_energy": lambda m, q, v: jaxdyn.kinetic_energy(m, q, v) + jaxdyn.potential_energy(m, q),
    "forward_kinematics": lambda m, q, v: jaxdyn.forward_kinematics(m, q),
    "christoffel_second_kind": lambda m, q, v: jaxdyn.christoffel_second_kind(m, q),
    "integrate": lambda m, q, v: jaxdyn.configuration.integrate(m, q, v),
}


def several(m, q, v):
    return [FUNCTIONS[name](m, q, v) for name in ("mass_matrix", "forward_dynamics", "forward_kinematics", "integrate")]


def own_loop(q, v):
    """A rollout as users write it."""

    def step(state, _):
        q, v = state
        v = v + 1e-2 * jaxdyn.acceleration(SYSTEM, jaxdyn.State(q, v), 0.1 * jnp.ones(SYSTEM.nu))
        return (jaxdyn.configuration.integrate(MODEL, q, 1e-2 * v), v), jaxdyn.kinetic_energy(MODEL, q, v)

    (q, v), energies = jax.lax.scan(step, (q, v), length=20)
    return jnp.sum(q**2) + jnp.sum(energies)


def by_both(function, *args):
    """Results by the lane compiler and by XLA, of functions that differ, so that no cache of JAX confuses them."""
    found = []
    for name in ("lanes", "xla"):
        with jaxdyn.backend(name):
            found.append(jax.jit(lambda *a: function(*a))(*args))
    return found


def primitives(function, *args) -> list[str]:
    return [equation.primitive.name for equation in jax.make_jaxpr(function)(*args).eqns]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_within_jit_is_one_kernel_for_each_call(name):
    calls = [p for p in primitives(lambda q, v: FUNCTIONS[name](MODEL, q, v), Q, V) if p == "lane_call"]
    assert len(calls) == (2 if name == "total_energy" else 1)
    for transformed in (jax.jacfwd, jax.jacrev, lambda f: lambda q, v: jax.vmap(f, (None, 0))(q, jnp.stack([v, v]))):
        found = primitives(transformed(lambda q, v: FUNCTIONS[name](MODEL, q, v)), Q, V)
        assert "lane_call" in found
        assert not {"sin", "cos", "dot_general", "scan", "while"} & set(found)


def test_values_are_those_of_xla_for_known_and_for_traced_models():
    batch = jnp.stack([Q, 2.0 * Q, 0.0 * Q]), jnp.stack([V, -V, 0.0 * V])
    same(*by_both(jax.vmap(lambda q, v: several(MODEL, q, v)), *batch))
    traced = jax.vmap(lambda scale, q, v: jaxdyn.mass_matrix(scaled(scale), q))
    same(*by_both(traced, jnp.array([0.5, 1.0, 2.0]), *batch))


def test_derivatives_are_those_of_a_program_that_is_compiled_as_a_whole():
    batch = jnp.array([0.5, 1.0, 2.0]), jnp.stack([Q, 2.0 * Q, 0.0 * Q]), jnp.stack([V, -V, 0.0 * V])

    def derivatives(scale, q, v):
        def of(scale, q, v):
            return several(scaled(scale), q, v)

        def quadratic(q):
            return jaxdyn.kinetic_energy(MODEL, q, v)

        return jax.jacrev(of, (0, 1, 2))(scale, q, v), jax.jvp(jax.grad(quadratic), (q,), (v,))

    same(jax.jit(jax.vmap(derivatives))(*batch), jaxdyn.batched(derivatives)(*batch))


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def scaled(scale):
    """The model with traced masses."""
    return jax.tree.map(lambda x: x * scale if jnp.shape(x) == MODEL.mass.shape else x, MODEL)


def test_own_loops_and_batches_are_those_of_xla_and_have_its_gradients():
    batch = jnp.stack([Q, -Q, 0.0 * Q]), jnp.stack([V, V, 0.0 * V])
    kernels, xla = by_both(jax.vmap(own_loop), *batch)
    np.testing.assert_allclose(kernels, xla, rtol=1e-11)
    gradients = jax.jit(jax.vmap(jax.value_and_grad(own_loop, (0, 1))))(*batch)
    whole = jaxdyn.batched(jax.value_and_grad(own_loop, (0, 1)))(*batch)
    same(gradients, whole)


def test_results_that_are_not_used_are_not_computed():
    last = jax.jit(lambda q: jaxdyn.forward_kinematics(MODEL, q).translation[-1])
    last(Q)
    assert jaxdyn.lanes.records()[-1].operations < 5


def test_arguments_without_effect_have_a_zero_derivative_that_is_not_computed():
    """A computed zero would be NaN times the infinite slope of an unlimited joint."""

    def potential(scale):
        return jaxdyn.potential_energy(eqx.tree_at(lambda m: m.limits.upper, MODEL, MODEL.limits.upper * scale), Q)

    assert not np.all(np.isfinite(MODEL.limits.upper))
    assert jax.jit(jax.grad(potential))(1.0) == 0.0


def test_within_a_program_of_the_lane_compiler_a_function_is_a_part_of_it():
    with written_out():
        assert "lane_call" not in primitives(lambda q: jaxdyn.mass_matrix(MODEL, q), Q)
    whole = jax.make_jaxpr(jaxdyn.batched(lambda q, v: own_loop(q, v)))(Q[None], V[None])
    assert str(whole).count("lane_call[") == 1


def test_a_gpu_launches_one_kernel_for_a_function():
    def text(backend):
        with jaxdyn.backend(backend):
            function = jax.jit(jax.vmap(lambda q, v: jaxdyn.forward_dynamics(MODEL, q, v, v)))
            return function.trace(jnp.stack([Q, Q]), jnp.stack([V, V])).lower(lowering_platforms=("cuda",)).as_text()

    assert text("lanes").count("custom_call") == 1
    assert text("xla").count("custom_call") == 0
