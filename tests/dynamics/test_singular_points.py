"""Value, first and second derivative where formulas like to be 0/0: at rest, at q = 0, straight, without gravity.

The derivatives are by coordinates, velocities, accelerations (or forces) and every number of the model. Central differences of
the value check the first, central differences of the first check the second.
"""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import (
    MechanismBuilder,
    Prismatic,
    Revolute,
    angular_momentum,
    as_dtype,
    body_accelerations,
    christoffel_first_kind,
    forward_dynamics,
    inverse_dynamics,
    kinetic_energy,
    mass_matrix,
    potential_energy,
)

FUNCTIONS = {
    "energy": lambda m, q, v, a: jnp.stack([kinetic_energy(m, q, v), potential_energy(m, q)]),
    "angular momentum": angular_momentum,
    "mass matrix": lambda m, q, v, a: mass_matrix(m, q),
    "christoffel": lambda m, q, v, a: christoffel_first_kind(m, q),
    "accelerations": lambda m, q, v, a: body_accelerations(m, q, v, a).linear,
    "inverse": inverse_dynamics,
    "forward": forward_dynamics,
    "articulated body": lambda m, q, v, a: forward_dynamics(m, q, v, a, method="articulated_body"),
}
FUNCTIONS["angular momentum"] = lambda m, q, v, a: angular_momentum(m, q, v)

# Second-order differences: the truncation error is about STEP^2 and the rounding error 1e-16/STEP, so 1e-8 at best.
STEP = 1e-4
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def straight():
    """Three parallel hinges and a slide, stretched out along x, every frame parallel to the ground's: at rest, in no gravity."""
    builder = MechanismBuilder("straight chain", gravity=(0, 0, 0))
    joints = [Revolute((0, 0, 1)), Revolute((0, 0, 1)), Revolute((0, 0, 1)), Prismatic((1, 0, 0))]
    for i, joint in enumerate(joints):
        parent = "ground" if i == 0 else str(i - 1)
        position = (0.0 if i == 0 else 0.5, 0.0, 0.0)
        rod = {"mass": 1.0, "com": (0.25, 0, 0), "inertia": (0.01, 0.03, 0.03), "armature": 0.02}
        builder.add_body(str(i), joint=joint, parent=parent, position=position, **rod)
    model = builder.build()
    return model, jnp.zeros(4), jnp.zeros(4), jnp.zeros(4)


def weighted(name, straight):
    """The function as one number of a vector of all inputs: the sum of its components with random weights; and that vector."""
    model, q, v, a = straight
    # Limits are infinite and enter no equation.
    numbers, static = eqx.partition((eqx.tree_at(lambda m: m.limits, model, None), q, v, a), eqx.is_inexact_array)
    point, unravel = jax.flatten_util.ravel_pytree(numbers)

    def function(x):
        value = FUNCTIONS[name](*eqx.combine(unravel(x), static))
        weights = np.random.default_rng(0).normal(size=value.shape).astype(value.dtype)
        return jnp.sum(weights * value)

    return function, point


def central_differences(function, x):
    steps = STEP * jnp.eye(len(x), dtype=x.dtype)
    ahead, behind = (jax.jit(jax.vmap(lambda h, s=sign: function(x + s * h)))(steps) for sign in (1.0, -1.0))
    return (ahead - behind) / (2 * STEP)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_two_derivatives_are_right_where_everything_is_zero(name, straight):
    function, x = weighted(name, straight)
    gradient, hessian = jax.grad(function), jax.hessian(function)
    first, second = jax.jit(gradient)(x), jax.jit(hessian)(x)
    for actual, expected in ((first, central_differences(function, x)), (second, central_differences(gradient, x))):
        assert np.all(np.isfinite(actual))
        np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE * np.max(np.abs(actual)))
    assert np.any(second)

    single, y = weighted(name, as_dtype(straight, jnp.float32))
    value, *derivatives = jax.jit(lambda x: (single(x), jax.grad(single)(x), jax.hessian(single)(x)))(y)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, function(x), atol=1e-5)
    # Single precision has 6e-8; sums over bodies, two derivatives and the solution of a linear system cost some digits of it.
    for actual, expected in zip(derivatives, (first, second), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * np.max(np.abs(expected)))
