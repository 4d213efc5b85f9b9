"""The acceleration energy: its closed form against particles, its gradient against the covariant form, its identities."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stacked_trees import agree, evaluated, stacked_trees
from theory_vectors import system_from_dict

from jaxdyn import as_dtype, forward_dynamics, forward_kinematics, gravity_force, inverse_dynamics, mass_matrix
from jaxdyn.formulations import gibbs_appell as gibbs
from jaxdyn.spatial.inertia import planar_from_inertia, symmetric_matrix

_SHARED = Path(os.environ.get("JAXDYN_SHARED", Path(__file__).parents[3] / "shared"))
_FILE = _SHARED / "theory_vectors.json"


def energy_of_particles(model, q, v, a):
    """1/2 sum m |acc|^2 over six particles per body that have its mass, center of mass and second moments; rotors besides."""
    roots = jnp.linalg.cholesky(jax.vmap(lambda six: planar_from_inertia(symmetric_matrix(six)))(model.inertia))
    arms = jnp.sqrt(3.0 / model.mass)[:, None, None] * roots.swapaxes(1, 2)
    arms = jnp.concatenate([arms, -arms], axis=1)

    def positions(q):
        placed = forward_kinematics(model, q)
        turned = jnp.einsum("bij,bpj->bpi", placed.rotation, model.com[:, None] + arms)
        return placed.translation[:, None] + turned

    def velocities(q, v):
        return jax.jvp(positions, (q,), (v,))[1]

    acceleration = jax.jvp(velocities, (q, v), (v, a))[1]
    bodies = jnp.einsum("b,bpi,bpi->", model.mass / 6.0, acceleration, acceleration)
    return 0.5 * (bodies + jnp.sum(model.armature * a**2))


def identities(model, q, v, a, tau):
    """Both sides of the identities."""
    needed = tau + gravity_force(model, q)
    true = forward_dynamics(model, q, v, tau)
    particles = jax.vmap(lambda a: energy_of_particles(model, q, v, a))(jnp.stack([a, jnp.zeros_like(a)]))

    def rise(step):
        """Of the function of Gauss, E_A - Q.a, from the true acceleration."""
        ends = jax.vmap(lambda a: gibbs.acceleration_energy(model, q, v, a) - needed @ a)
        return jnp.diff(ends(jnp.stack([true, true + step])))

    terms = gibbs.acceleration_energy_terms(model, q, v, a)
    return {
        "forces": gibbs.gibbs_appell_forces(model, q, v, a),
        "covariant": inverse_dynamics(model, q, v, a, method="covariant"),
        "accelerations": gibbs.gibbs_appell_accelerations(model, q, v, tau),
        "true": true,
        "terms": terms,
        "E_A": terms.total[None],
        "E_A0": gibbs.acceleration_energy_of_velocity(model, q, v)[None],
        "particles": particles[:1],
        "particles at a = 0": particles[1:],
        "lagrange": gibbs.lagrange_forces(model, q, v, a),
        "inertial": inverse_dynamics(model, q, v, a) + gravity_force(model, q),
        "from kinetic": gibbs.acceleration_energy_from_kinetic(model, q, v, a)[None],
        "gauss rise": rise(a),
        "expected rise": 0.5 * a[None] @ mass_matrix(model, q) @ a,
    }


@pytest.fixture(scope="module")
def samples():
    return stacked_trees()


@pytest.fixture(scope="module")
def sides(samples):
    return evaluated(identities, *samples, in_lanes=True)


def test_equations_of_motion_are_those_of_the_covariant_form(sides):
    agree(sides["forces"], sides["covariant"])
    agree(sides["accelerations"], sides["true"])


def test_closed_form_is_half_the_square_of_the_accelerations_of_all_particles(sides):
    agree(sides["E_A"], sides["particles"])
    agree(sides["E_A0"], sides["particles at a = 0"])


def test_terms_are_those_of_every_body_and_rotor(samples, sides):
    model, _, _, a, _ = samples
    terms = sides["terms"]
    assert terms.translational.shape == terms.centripetal.shape == model.mass.shape
    agree(terms.rotors, 0.5 * model.armature * a**2)
    agree(sum(x.sum(axis=1) for x in terms), sides["E_A"][:, 0])


def test_gradient_by_accelerations_is_what_lagrange_makes_of_the_kinetic_energy(sides):
    agree(sides["lagrange"], sides["inertial"])


def test_energy_follows_from_the_kinetic_energy_and_its_velocity_part(sides):
    agree(sides["from kinetic"], sides["E_A"])


def test_true_acceleration_minimises_the_function_of_gauss(sides):
    assert np.all(sides["gauss rise"] > 0)
    # Two numbers of the size of E_A, up to some thousands, are subtracted.
    np.testing.assert_allclose(sides["gauss rise"], sides["expected rise"], rtol=1e-10, atol=1e-10)


def loss_of(forces):
    """Scalar of a force formulation; its gradient reaches every number of model and motion."""
    weights = jnp.array([1.0, -0.7, 0.4, 1.3, -0.2, 0.8])
    return lambda model, q, v, a: weights.astype(q.dtype) @ forces(model, q, v, a)


def test_derivatives_by_model_and_motion_are_those_of_inverse_dynamics_also_at_rest(samples):
    *motion, _ = samples
    gradients = [
        evaluated(jax.grad(loss_of(forces), (0, 1, 2, 3)), *motion, in_lanes=True)
        for forces in (gibbs.gibbs_appell_forces, inverse_dynamics)
    ]
    agree(*gradients)


def test_single_precision(samples, sides):
    def routes(model, q, v, a, tau):
        return {
            "E_A": gibbs.acceleration_energy(model, q, v, a)[None],
            "lagrange": gibbs.lagrange_forces(model, q, v, a),
        }

    single = evaluated(routes, *as_dtype(samples, jnp.float32), in_lanes=True)
    for name, value in single.items():
        assert value.dtype == jnp.float32
        agree(value, sides[name], 1e-4)


@pytest.mark.skipif(not _FILE.exists(), reason=f"{_FILE} is not there")
@pytest.mark.parametrize("name", ["spatial_3R_chain", "tree_5_bodies"])
def test_values_of_the_theory(name):
    vector = json.loads(_FILE.read_text())["systems"][name]
    system, q, v, _ = system_from_dict(vector["inputs"])
    r, a = vector["results"], jnp.asarray(vector["results"]["qdd"])
    at_both = jax.jit(jax.vmap(lambda a: gibbs.acceleration_energy(system.model, q, v, a)))
    values = at_both(jnp.stack([a, jnp.zeros_like(a)]))
    expected = [r["acceleration_energy"], r["acceleration_energy_at_zero_qdd"]]
    np.testing.assert_allclose(values, expected, rtol=1e-10)
