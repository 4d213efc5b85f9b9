"""Value, first and second derivative where formulas like to be 0/0: at rest, at q = 0, straight, without gravity.

The derivatives are by coordinates, velocities, accelerations (or forces) and every number of the model. Central differences of
the value check the first, central differences of the first check the second.

Compiling takes nearly all of the time, and the lane compiler half of that of XLA. So the lanes compile the derivatives in double
precision and XLA those in single precision, which must agree; of all joints, the lane compiler compiles steps and XLA the dynamics.
"""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first

from jaxdyn import (
    ConstantRate,
    Cylindrical,
    Free,
    MechanismBuilder,
    Planar,
    Prismatic,
    Revolute,
    Rheonomic,
    Screw,
    Spherical,
    Universal,
    as_dtype,
    batched,
    christoffel_first_kind,
    configuration,
    forward_dynamics,
    inverse_dynamics,
    kinetic_energy,
    potential_energy,
)

FUNCTIONS = {
    "inverse and energy": lambda m, q, v, a: jnp.append(
        inverse_dynamics(m, q, v, a), kinetic_energy(m, q, v) + potential_energy(m, q)
    ),
    "christoffel": lambda m, q, v, a: christoffel_first_kind(m, q),
    "forward": forward_dynamics,
    "articulated body": lambda m, q, v, a: forward_dynamics(m, q, v, a, method="articulated_body"),
}

# Central differences over inertias as small as 0.02: truncation (STEP/0.02)^2 = 2.5e-7, rounding 1e-16/STEP = 1e-11.
STEP = 1e-5
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def straight():
    """Two parallel hinges and a slide, stretched out along x, every frame parallel to the ground's: at rest, in no gravity."""
    builder = MechanismBuilder("straight chain", gravity=(0, 0, 0))
    for i, joint in enumerate([Revolute((0, 0, 1)), Revolute((0, 0, 1)), Prismatic((1, 0, 0))]):
        parent = "ground" if i == 0 else str(i - 1)
        position = (0.0 if i == 0 else 0.5, 0.0, 0.0)
        rod = {"mass": 1.0, "com": (0.25, 0, 0), "inertia": (0.01, 0.03, 0.03), "armature": 0.02}
        builder.add_body(str(i), joint=joint, parent=parent, position=position, **rod)
    return builder.build(), jnp.zeros(3), jnp.zeros(3), jnp.zeros(3)


def weighted(function, arguments):
    """The function as one number, the sum of its components with random weights, of the vector of all inputs; and that vector."""
    model, *rest = arguments
    without_limits = eqx.tree_at(lambda m: m.limits, model, None)  # they are infinite and enter no equation
    numbers, static = eqx.partition((without_limits, *rest), eqx.is_inexact_array)
    point, unravel = jax.flatten_util.ravel_pytree(numbers)

    def number(x):
        value = function(*eqx.combine(unravel(x), static))
        weights = np.random.default_rng(0).normal(size=value.shape).astype(value.dtype)
        return jnp.sum(weights * value)

    return number, point


def along(function, backend):
    """Compiled function that returns value, gradient and their derivatives along several directions, all from one point."""

    def of_one(x, direction):
        return jax.jvp(jax.value_and_grad(function), (x,), (direction,))

    return batched(of_one, (None, 0), backend=backend)


def jet(function, like, backend):
    """Compiled function that returns value, gradient and Hessian at a point like the given one."""
    tangents = jnp.eye(len(like), dtype=like.dtype)
    products = along(function, backend)

    @jax.jit
    def derivatives(x):
        (value, first), (_, second) = products(x, tangents)
        return value[0], first[0], second

    return derivatives


def central_differences(derivatives, x):
    """Gradient and Hessian from the values and the gradients nearby."""
    ahead, behind = ([derivatives(x + sign * STEP * e)[:2] for e in np.eye(len(x))] for sign in (1, -1))
    slopes = [jax.tree.map(lambda a, b: (a - b) / (2 * STEP), *pair) for pair in zip(ahead, behind, strict=True)]
    return (np.stack(column) for column in zip(*slopes, strict=True))


@pytest.mark.parametrize("name", first(2, FUNCTIONS))
def test_value_and_two_derivatives_are_right_where_everything_is_zero(name, straight):
    function, x = weighted(FUNCTIONS[name], straight)
    derivatives = jet(function, x, "lanes")
    value, *double = derivatives(x)
    for actual, expected in zip(double, central_differences(derivatives, x), strict=True):
        assert np.any(actual)
        np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE * np.max(np.abs(actual)))

    function, x = weighted(FUNCTIONS[name], as_dtype(straight, jnp.float32))
    single_value, *single = jet(function, x, "xla")(x)
    assert single_value.dtype == jnp.float32
    np.testing.assert_allclose(single_value, value, atol=1e-6)
    # Single precision has 6e-8; sums over bodies, two derivatives and the solution of a linear system cost some digits of it.
    for actual, expected in zip(single, double, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * np.max(np.abs(expected)))


@pytest.fixture(scope="module")
def every_joint():
    """One joint of every kind at its neutral coordinates, stretched out along x, at rest, without gravity."""
    joints = {
        "free": Free(),
        "ball": Spherical(),
        "cardan": Universal((0, 1, 0), (0, 0, 1)),
        "tray": Planar(),
        "nut": Screw((1, 0, 0), 0.1),
        "rod": Cylindrical((1, 0, 0)),
        "driven": Rheonomic(Revolute((0, 0, 1)), ConstantRate(0.0)),
        "hinge": Revolute((0, 0, 1)),
    }
    builder = MechanismBuilder("every joint", gravity=(0, 0, 0))
    parents = dict(zip(joints, ["ground", "free", "ball", "free", "tray", "nut", "ball", "driven"], strict=True))
    for name, joint in joints.items():
        body = {"mass": 1.0, "com": (0.25, 0, 0), "inertia": (0.1, 0.3, 0.3), "position": (0.5, 0, 0)}
        builder.add_body(name, joint=joint, parent=parents[name], **body)
    model = builder.build()
    return model, configuration.neutral(model), jnp.zeros(model.nv), jnp.zeros(model.nv)


def step_and_back(model, q, v, a):
    """Steps on the manifold and between its points, and the equation of motion there."""
    moved = configuration.integrate(model, q, v + a)
    between = configuration.difference(model, q, moved) ** 2 + configuration.difference(model, moved, q)
    return jnp.concatenate([moved, between])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("function", "backend"), [(step_and_back, "lanes"), (forward_dynamics, "xla")], ids=["steps", "forward dynamics"]
)
def test_every_joint_at_rest_has_its_two_derivatives(function, backend, every_joint):
    """Along random directions of all inputs, time included: the Hessian is large."""
    number, x = weighted(function, every_joint)
    directions = np.random.default_rng(1).normal(size=(3, len(x)))
    products = along(number, backend)
    (_, first), (slope, second) = products(x, jnp.asarray(directions))
    ahead, behind = ([products(x + sign * STEP * d, directions)[0] for d in directions] for sign in (1, -1))
    slopes = [(a[0][0] - b[0][0]) / (2 * STEP) for a, b in zip(ahead, behind, strict=True)]
    turns = [(a[1][0] - b[1][0]) / (2 * STEP) for a, b in zip(ahead, behind, strict=True)]
    scale = float(np.max(np.abs(second)))
    assert scale > 0.1
    np.testing.assert_allclose(slope, slopes, rtol=0, atol=TOLERANCE * scale)
    np.testing.assert_allclose(second, turns, rtol=0, atol=TOLERANCE * scale)

    number, x = weighted(function, as_dtype(every_joint, jnp.float32))
    (_, single_first), (_, single_second) = along(number, backend)(x, jnp.asarray(directions, jnp.float32))
    assert single_second.dtype == jnp.float32
    for single, double in ((single_first, first), (single_second, second)):
        np.testing.assert_allclose(single, double, rtol=0, atol=1e-4 * np.max(np.abs(double)))
