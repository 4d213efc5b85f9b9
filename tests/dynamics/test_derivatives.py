"""Derivatives of the equations of motion and the Coriolis matrix: closed forms against derivatives of the algorithms and against
the connection, on trees of all joints, with rotors, with prescribed motion.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from jaxprs import equations
from random_trees import close, geared, random_model, random_motion

import jaxdyn
from jaxdyn.compute.hints import written_out
from jaxdyn.dynamics import inverse, kinematics
from jaxdyn.mechanism import configuration

# Kinds in the letters of `random_trees.random_joint`, and rotors as pairs of carrier and driven joint.
SHAPES = {
    "no loops over bodies": ([-1, 0, 0, 1, 3, 2, -1, 6], "FSHRLCPR", ()),
    "rotors": ([-1, 0, 1, 1, 3], "SRPRR", ((0, 1), (1, 3), (-1, 4), (4, 4), (2, 4))),
    # Those of autodiff.
    "columns that move in their body": ([-1, 0, 1], "RUR", ((0, 2),)),
    "prescribed motion": ([-1, 0, 1], "rSR", ()),
}


def drawn(shape, dtype=float):
    parents, kinds, pairs = shape
    model = random_model(np.random.default_rng(1), len(kinds), armature=True, parents=parents, kinds=kinds)
    model = geared(model, *pairs) if pairs else model
    motion = random_motion(np.random.default_rng(2), model)
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(jnp.result_type(x), float) else x, (model, *motion)
    )


@jax.jit
def both_ways(model, q, v, a):
    """Pairs of what the library returns and what follows from other functions."""

    def needed(step, v, a):  # the algorithm itself, without the derivative written for it
        moving = kinematics.motion(model, configuration.integrate(model, q, step), v)
        return inverse.forces_of_motion(model, moving, a)

    zero = jnp.zeros_like(v)
    by_q, by_v, by_a = jax.jacfwd(needed, (0, 1, 2))(zero, v, a)
    tau = needed(zero, v, a)
    inverse_mass = jnp.linalg.inv(by_a)
    found = jaxdyn.inverse_dynamics_derivatives(model, q, v, a)
    forward = jaxdyn.forward_dynamics_derivatives(model, q, v, tau)
    symbols = jaxdyn.connection_first_kind(model, q)
    along = configuration.coordinate_rate(model, q, a), a, v
    of_motion = functools.partial(jaxdyn.inverse_dynamics, model)
    return {
        "dtau": (jax.jvp(of_motion, (q, v, a), along)[1], by_q @ a + by_v @ a + by_a @ v),
        "dtau/dq": (found.dtau_dq, by_q),
        "dtau/dv": (found.dtau_dv, by_v),
        "dtau/da": (found.dtau_da, by_a),
        "da/dq": (forward.da_dq, -inverse_mass @ by_q),
        "da/dv": (forward.da_dv, -inverse_mass @ by_v),
        "da/dtau": (forward.da_dtau, inverse_mass),
        "Coriolis matrix": (jaxdyn.coriolis_matrix(model, q, v), jnp.einsum("abg,a->gb", symbols, v)),
    }


@pytest.mark.parametrize("name", first(3, SHAPES))
def test_closed_forms_are_what_the_algorithms_and_the_connection_say(name):
    for law, (found, expected) in both_ways(*drawn(SHAPES[name])).items():
        assert np.max(np.abs(expected)) > 0.01, law
        close(found, expected, scale=10.0 * float(np.max(np.abs(expected))))


def test_closed_forms_in_single_precision():
    model, q, v, a = drawn(SHAPES["rotors"])
    expected = jaxdyn.inverse_dynamics_derivatives(model, q, v, a), jaxdyn.coriolis_matrix(model, q, v)
    model, q, v, a = drawn(SHAPES["rotors"], jnp.float32)
    found = jaxdyn.inverse_dynamics_derivatives(model, q, v, a), jaxdyn.coriolis_matrix(model, q, v)
    for single, double in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, double, rtol=0, atol=3e-6 * np.max(np.abs(double)))


def test_accelerations_may_come_from_articulated_bodies():
    model, q, v, tau = drawn(([-1, 0, 1], "RPR", ()))
    one = jaxdyn.forward_dynamics_derivatives(model, q, v, tau)
    other = jaxdyn.forward_dynamics_derivatives(model, q, v, tau, method="articulated_body")
    jax.tree.map(lambda x, y: close(x, y, scale=100.0 * float(jnp.max(jnp.abs(y)))), one, other)


def test_the_lane_compiler_solves_column_by_column_what_xla_multiplies():
    model, q, v, tau = drawn(([-1, 0, 1, 1], "RPRR", ()))
    derivatives = lambda q: jaxdyn.forward_dynamics_derivatives(model, q, v, tau)  # noqa: E731
    several = q[None] + jnp.linspace(0.0, 1.0, 3)[:, None]
    found = jaxdyn.batched(derivatives, backend="lanes")(several)
    jax.tree.map(lambda x, y: close(x, y, scale=100.0), found, jax.jit(jax.vmap(derivatives))(several))


def test_no_symbol_is_needed_for_the_coriolis_matrix():
    """Neither the matrix nor the derivatives hold an array of nv^3 numbers, or of nv^2 six-vectors.

    Elsewhere than for the lane compiler sums of products are written as such, of arrays that XLA never makes.
    """
    model, q, v, a = drawn(([-1, *range(19)], "R" * 20, ()))
    functions = {
        "Coriolis": lambda q, v, a: jaxdyn.coriolis_matrix(model, q, v),
        "inverse": lambda q, v, a: jaxdyn.inverse_dynamics_derivatives(model, q, v, a),
        "forward": lambda q, v, a: jaxdyn.forward_dynamics_derivatives(model, q, v, a),
    }
    for name, function in functions.items():
        with written_out():
            traced = jax.make_jaxpr(function)(q, v, a)
        assert largest_array(traced.jaxpr) <= 3 * model.nv**2, name
    with written_out():
        symbols = jax.make_jaxpr(lambda q: jaxdyn.connection_first_kind(model, q))(q)
    assert largest_array(symbols.jaxpr) >= model.nv**3


def largest_array(jaxpr) -> int:
    return max(v.aval.size for e in equations(jaxpr) for v in e.outvars)
