"""Digits: every product at full precision, and none lost far from the ground origin."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations
from mechanisms import slider_tree
from random_trees import random_model, random_motion

import jaxdyn
from jaxdyn import Damper, JointDrives, JointFriction, Spring, State, System
from jaxdyn.compute.hints import written_out

FULL = jax.lax.Precision.HIGHEST

# Functions of (model, q, v, a), a standing for accelerations and forces alike.
OF_MODEL = {
    "forward_kinematics": lambda m, q, v, a: jaxdyn.forward_kinematics(m, q).rotation,
    "body_jacobian": lambda m, q, v, a: jaxdyn.body_jacobian(m, q),
    "partial_velocities": lambda m, q, v, a: jaxdyn.partial_velocities(m, q),
    "mass_center_velocities": lambda m, q, v, a: jaxdyn.mass_center_velocities(m, q, v),
    "mass_center_accelerations": jaxdyn.dynamics.mass_center_accelerations,
    "mass_matrix": lambda m, q, v, a: jaxdyn.mass_matrix(m, q),
    "mass_matrix closed_form": lambda m, q, v, a: jaxdyn.mass_matrix(m, q, method="closed_form"),
    "christoffel_first_kind": lambda m, q, v, a: jaxdyn.christoffel_first_kind(m, q),
    "christoffel_first_kind autodiff": lambda m, q, v, a: jaxdyn.christoffel_first_kind(m, q, method="autodiff"),
    "christoffel_second_kind": lambda m, q, v, a: jaxdyn.christoffel_second_kind(m, q),
    "coriolis_matrix": lambda m, q, v, a: jaxdyn.coriolis_matrix(m, q, v),
    "inverse_dynamics": jaxdyn.inverse_dynamics,
    "inverse_dynamics covariant": lambda *args: jaxdyn.inverse_dynamics(*args, method="covariant"),
    "bias_force": lambda m, q, v, a: jaxdyn.bias_force(m, q, v),
    "gravity_force": lambda m, q, v, a: jaxdyn.gravity_force(m, q),
    "forward_dynamics": jaxdyn.forward_dynamics,
    "forward_dynamics articulated_body": lambda *args: jaxdyn.forward_dynamics(*args, method="articulated_body"),
    "forward_dynamics contravariant": lambda *args: jaxdyn.forward_dynamics(*args, method="contravariant"),
    "kinetic_energy": lambda m, q, v, a: jaxdyn.kinetic_energy(m, q, v),
    "potential_energy": lambda m, q, v, a: jaxdyn.potential_energy(m, q),
    "momentum": lambda m, q, v, a: jaxdyn.momentum(m, q, v),
    "angular_momentum": lambda m, q, v, a: jaxdyn.angular_momentum(m, q, v),
    "center_of_mass": lambda m, q, v, a: jaxdyn.center_of_mass(m, q),
}
DIFFERENTIATED = ["mass_matrix", "christoffel_first_kind", "inverse_dynamics", "kinetic_energy"]
DIFFERENTIATED += [name for name in OF_MODEL if name.startswith("forward_dynamics")]


def single_precision(model):
    return jaxdyn.as_dtype(model, jnp.float32)


def numbers(seed: int, *sizes: int):
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(rng.normal(size=n), jnp.float32) for n in sizes)


MODEL = slider_tree()
ARGUMENTS = (single_precision(MODEL), *numbers(0, MODEL.nq, MODEL.nv, MODEL.nv))


def assert_all_products_are_full(function, *args) -> None:
    """Of what XLA gets, and of what the lane compiler gets, where sums of few products are products of arrays too."""
    with jaxdyn.backend("xla"):
        jaxprs = [jax.make_jaxpr(lambda *args: function(*args))(*args)]
    with written_out():
        jaxprs.append(jax.make_jaxpr(lambda *args: function(*args))(*args))
    products = [e for jaxpr in jaxprs for e in equations(jaxpr.jaxpr) if e.primitive is jax.lax.dot_general_p]
    assert products, "no product at all: the test looks in the wrong place"
    reduced = [e for e in products if e.params["precision"] != (FULL, FULL)]
    assert not reduced, (
        f"use jaxdyn.compute.arrays for {len(reduced)} of {len(products)} products, such as {reduced[0]}"
    )


@pytest.mark.parametrize("name", OF_MODEL)
def test_products_are_at_full_precision(name):
    assert_all_products_are_full(OF_MODEL[name], *ARGUMENTS)


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_products_of_derivatives_are_at_full_precision(name):
    """Reverse mode with respect to the model and all states, and forward mode over it."""

    def scalar(*args):
        return jnp.sum(OF_MODEL[name](*args) ** 2)

    def second(*args):
        gradient = jax.grad(scalar, argnums=(0, 1, 2, 3))
        return jax.jvp(lambda q: gradient(args[0], q, *args[2:]), args[1:2], args[1:2])

    assert_all_products_are_full(second, *ARGUMENTS)


def test_products_of_a_system_and_its_rollout_are_at_full_precision():
    system = System(
        MODEL,
        (
            Spring(1, (0.1, 0.0, 0.0), -1, (0.0, 0.0, 1.0), 10.0, 0.2),
            Damper(2, (0.0, 0.1, 0.0), 0, (0.0, 0.0, -0.2), 0.5),
            JointFriction(jnp.ones(3), jnp.ones(3), jnp.full(3, 0.1)),
        ),
        JointDrives((0, 2), jnp.array([2.0, 3.0])),
    )
    system = single_precision(system)
    q, v, u = numbers(1, MODEL.nq, MODEL.nv, system.nu)

    def final_energy(system, q, v, u):
        end = jaxdyn.rollout(system, State(q, v), jnp.stack([u, u]), dt=1e-3, steps=2).final
        return jaxdyn.total_energy(system, end)

    assert_all_products_are_full(
        lambda *args: jaxdyn.acceleration(args[0], State(*args[1:3]), args[3]), system, q, v, u
    )
    assert_all_products_are_full(jax.grad(final_energy), system, q, v, u)


KILOMETER = np.array([800.0, -600.0, 0.0])


@jax.jit
def inverse_forward_and_symbols(model, q, v, a):
    symbols = jaxdyn.christoffel_first_kind(model, q)
    return jaxdyn.inverse_dynamics(model, q, v, a), jaxdyn.forward_dynamics(model, q, v, a), symbols


def chain_on_a_slide(seed: int):
    """A slide that carries two hinges, in motion: model, q, v, a."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, 3, parents=[-1, 0, 1], kinds="PRR")
    return model, *random_motion(rng, model)


def in_single_precision(*arguments):
    return inverse_forward_and_symbols(*jaxdyn.as_dtype(arguments, jnp.float32))


def test_a_machine_one_kilometer_away_computes_as_one_at_the_ground_origin():
    model, *motion = chain_on_a_slide(1)
    moved = model.placement.translation.at[0].add(KILOMETER)
    far = eqx.tree_at(lambda m: m.placement.translation, model, moved)
    near, away = in_single_precision(model, *motion), in_single_precision(far, *motion)
    for n, a, exact in zip(near, away, inverse_forward_and_symbols(far, *motion), strict=True):
        scale = np.max(np.abs(exact))
        # Sums about the ground origin lose the three digits by which a kilometer exceeds the size of the machine (1e-4).
        np.testing.assert_allclose(a, n, rtol=0, atol=1e-6 * scale)
        np.testing.assert_allclose(a, exact, rtol=0, atol=1e-5 * scale)


def test_a_slide_that_has_traveled_one_kilometer_loses_no_digits():
    model, q, v, a = chain_on_a_slide(2)
    near, away = in_single_precision(model, q, v, a), in_single_precision(model, q.at[0].add(1000.0), v, a)
    for here, there in zip(near, away, strict=True):
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-6 * np.max(np.abs(here)))
