"""What happens at one instant shares one evaluation of the kinematics."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import double_pendulum

import jaxdyn
from jaxdyn import SemiImplicitEuler, Spring, System, library
from jaxdyn.dynamics import forward, kinematics

LOOP = library.four_bar()
SPRING = Spring(0, jnp.array([0.1, 0.0, 0.0]), -1, jnp.array([1.0, 0.0, 0.5]), 2.0, 0.1)
SYSTEMS = {
    "tree": System(library.panda()),
    "forces on bodies": System(library.panda(), (SPRING,)),
    "loop": LOOP,
    "loop and forces on bodies": dataclasses.replace(LOOP, forces=(*LOOP.forces, SPRING)),
}


def step(system, state):
    new, _ = SemiImplicitEuler().step(system, state, lambda t: None, jnp.zeros(()), jnp.asarray(1e-3))
    return new


FUNCTIONS = {
    "acceleration": jaxdyn.acceleration,
    "step": step,
    "reactions": jaxdyn.joint_reactions,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", SYSTEMS)
def test_placements_and_motion_are_computed_once(monkeypatch, name, function):
    calls = {"placements": 0, "motion": 0}

    def counted(key, original):
        def call(*args):
            calls[key] += 1
            return original(*args)

        return call

    for key in calls:
        monkeypatch.setattr(kinematics, key, counted(key, getattr(kinematics, key)))
    system = SYSTEMS[name]
    jax.make_jaxpr(FUNCTIONS[function])(system, system.at_rest(jnp.linspace(0.1, 0.7, system.model.nq)))
    assert calls == {"placements": 1, "motion": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["cholesky", "articulated_body", "contravariant"])
def test_accelerations_from_a_motion_are_forward_dynamics_with_all_derivatives(method):
    model = double_pendulum()
    q, v = jnp.linspace(0.1, 0.7, model.nq), jnp.linspace(-0.5, 0.5, model.nv)
    tau = jnp.linspace(1.0, 2.0, model.nv)

    def of_motion(q, v, tau):
        return forward.accelerations_from(model, kinematics.motion(model, q, v), tau, method)

    def by_inverse(q, v, tau):  # differentiates the solution of the equations as it stands
        mass, bias = jaxdyn.mass_matrix(model, q), jaxdyn.bias_force(model, q, v)
        return jnp.linalg.solve(mass, tau - bias)

    def derivatives(function):
        first = jax.jacfwd(function, argnums=(0, 1, 2))(q, v, tau)
        return first, jax.jacfwd(jax.jacrev(lambda q: jnp.sum(function(q, v, tau) ** 2)))(q)

    found, expected = (jax.jit(lambda f=f: derivatives(f))() for f in (of_motion, by_inverse))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9 * float(jnp.max(jnp.abs(b))))
