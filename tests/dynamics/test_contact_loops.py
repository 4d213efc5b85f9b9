"""Many contacts of one body are a loop in programs of the lane compiler."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations

import jaxdyn
from jaxdyn.compute.hints import written_out
from jaxdyn.dynamics import GroundContact, HalfSpace, contact_sphere
from jaxdyn.dynamics.equations_of_motion import acceleration_over_step


def stone(spheres: int) -> jaxdyn.System:
    """A free body with spheres on a spiral, on a slope."""
    builder = jaxdyn.MechanismBuilder("stone")
    builder.add_body("stone", joint=jaxdyn.Free(), mass=1.0, inertia=jnp.diag(jnp.array([0.01, 0.02, 0.03])))
    model = builder.build()
    angles = np.linspace(0.0, 9.0, spheres)
    centers = np.stack([0.1 * np.cos(angles), 0.1 * np.sin(angles), 0.01 * angles], axis=1)
    points = [point for center in centers for point in contact_sphere("stone", center=center, radius=0.05)]
    return jaxdyn.System(model, (GroundContact.of(model, points, HalfSpace((0.1, 0.0, 1.0)), torsion_radius=0.01),))


def squared_acceleration(friction, q, v, system: jaxdyn.System):
    system = eqx.tree_at(lambda s: s.forces[0].material.friction, system, friction)
    a = acceleration_over_step(system, jaxdyn.State(q, v), None, 0.0, 0.002)
    return jnp.sum(a**2)


@pytest.mark.thorough
def test_many_contacts_are_a_loop_with_the_same_value_and_gradient():
    system = stone(20)
    q = jnp.tile(jnp.array([0.0, 0.0, 0.02, 1.0, 0.05, 0.0, 0.0]), (3, 1))
    v = 0.3 * jax.random.normal(jax.random.key(0), (3, 6))
    friction = jnp.array([0.2, 0.5, 0.8])
    function = jax.value_and_grad(
        lambda friction, q, v: squared_acceleration(friction, q, v, system), argnums=(0, 1, 2)
    )
    looped = jaxdyn.batched(function, backend="lanes")(friction, q, v)
    plain = jax.jit(jax.vmap(function))(friction, q, v)
    assert float(jnp.max(jnp.abs(plain[1][0]))) > 1e-6  # the contacts act
    for a, b in zip(jax.tree.leaves(looped), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10 * float(jnp.max(jnp.abs(b))))


def test_program_does_not_grow_with_the_contacts_of_a_body():
    def size(spheres: int) -> int:
        system = stone(spheres)
        with written_out():
            jaxpr = jax.make_jaxpr(lambda q, v: jaxdyn.rollout(system, jaxdyn.State(q, v), dt=0.002, steps=1).final)(
                jnp.array([0.0, 0.0, 0.049, 1.0, 0.0, 0.0, 0.0]), jnp.zeros(6)
            )
        loops = [e for e in equations(jaxpr.jaxpr) if e.primitive.name == "scan" and e.params["length"] == spheres]
        assert bool(loops) == (spheres > 8)
        return sum(1 for _ in equations(jaxpr.jaxpr))

    assert size(40) == size(20) != size(4)
