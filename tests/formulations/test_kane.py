"""Kane's equations: forces projected on partial velocities against the covariant form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stacked_trees import agree, evaluated, stacked_trees

from jaxdyn import (
    as_dtype,
    forward_dynamics,
    gravity_force,
    inverse_dynamics,
    mass_center_velocities,
    partial_velocities,
)
from jaxdyn.dynamics import mass_center_accelerations
from jaxdyn.formulations.kane import kane_forces


def routes(model, q, v, a, tau):
    """Kane's forces and what they must be equal to."""
    return {
        "kane": kane_forces(model, q, v, a, tau),
        "true motion": kane_forces(model, q, v, forward_dynamics(model, q, v, tau), tau),
        "gravity": gravity_force(model, q),
        "covariant": inverse_dynamics(model, q, v, a, method="covariant"),
        "partials": partial_velocities(model, q),
        "velocities": mass_center_velocities(model, q, v),
        "accelerations": mass_center_accelerations(model, q, v, a),
    }


@pytest.fixture(scope="module")
def trees():
    samples = stacked_trees()
    return samples, evaluated(routes, *samples, in_lanes=True)


def test_generalized_forces_are_those_of_the_covariant_form(trees):
    (*_, tau), r = trees
    agree(r["kane"].active, tau + r["gravity"])
    agree(-r["kane"].inertia, r["covariant"] + r["gravity"])


def test_forces_cancel_in_the_true_motion(trees):
    _, r = trees
    agree(r["true motion"].active, -r["true motion"].inertia)


def test_partial_velocities_and_the_part_of_time_make_up_the_velocities(trees):
    (_, _, v, *_), r = trees
    partials, of_time = r["kane"].partials, r["kane"].time_part
    agree(partials, r["partials"])
    agree(r["kane"].accelerations, r["accelerations"])
    for part, time, velocity in zip((partials.angular, partials.linear), of_time, r["velocities"], strict=True):
        agree(jnp.einsum("sbai,sa->sbi", part, v) + time, velocity)  # (E15)


def test_forces_at_the_body_origins_do_the_same_work(trees):
    """D'Alembert's principle with the body origin in the place of the center of mass: the force takes its moment along (K2)."""
    (model, _, _, a, _), r = trees
    kane = r["kane"]
    lever = jnp.asarray(
        np.random.default_rng(0).normal(size=kane.inertia_force.shape)
    )  # from any point to the center of mass
    partial = kane.partials.linear - jnp.cross(kane.partials.angular, lever[:, :, None])
    moment = kane.inertia_moment + jnp.cross(lever, kane.inertia_force)
    work = jnp.einsum("sbi,sbai->sa", kane.inertia_force, partial) + jnp.einsum(
        "sbi,sbai->sa", moment, kane.partials.angular
    )
    agree(work - model.armature * a, kane.inertia)


def test_derivatives_by_model_and_motion_are_those_of_inverse_dynamics_also_at_rest():
    weights = jnp.array([1.0, -0.7, 0.4, 1.3, -0.2, 0.8])
    *motion, _ = stacked_trees()

    def by_kane(model, q, v, a):
        forces = kane_forces(model, q, v, a, jnp.zeros_like(v))
        return -weights @ (forces.active + forces.inertia)

    def recursive(model, q, v, a):
        return weights @ inverse_dynamics(model, q, v, a)

    agree(*(evaluated(jax.grad(f, (0, 1, 2, 3)), *motion, in_lanes=True) for f in (by_kane, recursive)))


def test_single_precision(trees):
    samples, r = trees
    single = evaluated(kane_forces, *as_dtype(samples, jnp.float32), in_lanes=True)
    assert {str(x.dtype) for x in jax.tree.leaves(single)} == {"float32"}
    agree(single, r["kane"], 1e-5)
