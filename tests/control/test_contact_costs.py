"""Costs of contact forces and of the motion of feet, for a robot whose base is free."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import State, System, compute
from jaxdyn.control import ContactForce, MultibodyDynamics
from jaxdyn.dynamics import (
    GroundContact,
    SphereContact,
    contact_forces,
    contact_sphere,
    frame_placement,
    frame_velocity,
)
from jaxdyn.dynamics.contact.points import contact_forces_on_bodies
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.tables import Place
from jaxdyn.jobs.optimize.terms import CostTable
from jaxdyn.mechanism import configuration

LEGS = ("fl", "fr", "rl", "rr")


@pytest.fixture(scope="module")
def standing() -> tuple[System, State]:
    """A quadruped whose feet slide on the ground, 1 mm deep."""
    model = jaxdyn.library.quadruped()
    feet = [sphere for leg in LEGS for sphere in contact_sphere(f"{leg}_foot", radius=0.02)]
    system = System(model, (GroundContact.of(model, feet),))
    q = configuration.neutral(model).at[7:].set(jnp.tile(jnp.array([0.0, 0.7, -1.4]), 4))
    lowest = min(frame_placement(model, q, f"{leg}_foot").translation[2] for leg in LEGS)
    q = q.at[2].add(0.019 - lowest)
    return system, State(q, 0.1 * jnp.arange(1.0, model.nv + 1.0) / model.nv)


def cost(system: System, **table):
    return CostTable.read_toml(table, Place(Path("run.toml"))).build(system, "running 1:")


def value(term, system: System, state: State):
    return term(MultibodyDynamics(system), jnp.zeros(()), state, jnp.zeros(system.nu))


def test_costs_of_a_foot_in_a_config_have_the_values_of_their_formulas(standing):
    system, state = standing
    force = contact_forces(system, state).force[1]
    expected = 0.5 * (1e-3 * force[0] ** 2 + 2e-3 * force[1] ** 2 + 3e-3 * (force[2] - 36.8) ** 2)
    table = {"kind": "contact_force", "frame": "fr_foot", "target": [0.0, 0.0, 36.8], "weights": [1e-3, 2e-3, 3e-3]}
    np.testing.assert_allclose(value(cost(system, **table), system, state), expected, rtol=1e-10)
    velocity = frame_velocity(system.model, state.q, state.v, "fr_foot").linear
    moving = value(cost(system, kind="frame_velocity", frame="fr_foot", linear=[4.0]), system, state)
    np.testing.assert_allclose(moving, 2.0 * velocity @ velocity, rtol=1e-10)
    place = frame_placement(system.model, state.q, "fr_foot").translation
    posed = value(cost(system, kind="frame_pose", frame="fr_foot", position=[0.0, 0.0, 0.0]), system, state)
    np.testing.assert_allclose(posed, 0.5 * place @ place, rtol=1e-10)


def test_the_gradient_of_a_contact_force_cost_is_that_of_differences_and_equal_on_both_compilers():
    builder = jaxdyn.MechanismBuilder("ball")
    builder.add_body("ball", joint=jaxdyn.Free(), mass=1.0, inertia=0.004 * jnp.eye(3))
    model = builder.build()
    system = System(model, (GroundContact.of(model, contact_sphere("ball", radius=0.1)),))
    state = State(jnp.array([0.0, 0.0, 0.0993, 1.0, 0.0, 0.0, 0.0]), jnp.array([0.1, 0.2, 0.3, 1e-3, -2e-3, -0.01]))
    term = ContactForce("ball", jnp.array([0.0, 0.0, 30.0]), jnp.array(1e-3))

    def along(step):
        moved = State(configuration.integrate(model, state.q, step), state.v + 10.0 * step)
        return value(term, system, moved)

    direction = jnp.cos(jnp.arange(1.0, 7.0))
    zero, h = jnp.zeros(6), 1e-8
    gradients = [compute.per_sample(jax.grad(along), backend=backend)(zero) for backend in ("lanes", "xla")]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-8, atol=1e-8)
    difference = (along(h * direction) - along(-h * direction)) / (2.0 * h)
    np.testing.assert_allclose(gradients[1] @ direction, difference, rtol=1e-5)


def test_forces_of_a_sphere_pair_on_both_bodies_are_opposite():
    builder = jaxdyn.MechanismBuilder("balls")
    for name in ("left", "right"):
        builder.add_body(name, joint=jaxdyn.Free(), mass=1.0, inertia=0.004 * jnp.eye(3))
    model = builder.build()
    pair = (contact_sphere("left", radius=0.1)[0], contact_sphere("right", radius=0.1)[0])
    system = System(model, (SphereContact.of(model, [pair]),))
    state = system.at_rest(configuration.neutral(model).at[7].set(0.199))
    forces = contact_forces_on_bodies(system, state)
    assert forces[0, 0] < -1.0
    np.testing.assert_allclose(forces[1], -forces[0])
    np.testing.assert_allclose(forces[0], contact_forces(system, state).force[0])


def test_a_contact_force_cost_of_a_mechanism_without_contacts_is_refused():
    with pytest.raises(ConfigError, match="contacts"):
        cost(jaxdyn.library.system("acrobot"), kind="contact_force", frame="tip")
