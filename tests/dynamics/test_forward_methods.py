"""The choice between the factorization of the mass matrix and the recursion over articulated bodies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from random_trees import close, geared, random_model, random_motion

import jaxdyn
from jaxdyn import Model
from jaxdyn.compute.programs import operations_of
from jaxdyn.dynamics import forward, kinematics, metric

LEGS = [leg * 3 + joint for leg in range(4) for joint in range(3)]  # a base and four legs of three bodies
MECHANISMS = {
    "chain of 6": {"parents": range(-1, 5), "kinds": "R"},
    "chain of 24": {"parents": range(-1, 23), "kinds": "R"},
    "branched": {"parents": [-1] + [(i - 1) // 2 for i in range(1, 15)], "kinds": "R"},
    "legs": {"parents": [-1] + [0 if i % 3 == 0 else i for i in LEGS], "kinds": "F" + 12 * "R"},
    "free chain": {"parents": range(-1, 15), "kinds": "F" + 15 * "R"},
    "spherical chain": {"parents": range(-1, 9), "kinds": "S"},
}


def made(name: str) -> Model:
    options = MECHANISMS[name]
    return random_model(np.random.default_rng(len(name)), len(options["parents"]), **options)


def operations(model: Model, method: forward.ForwardMethod) -> int:
    motion = random_motion(np.random.default_rng(0), model)
    count = operations_of(functools.partial(jaxdyn.forward_dynamics, model, method=method), motion)
    if count is None:
        pytest.skip("the lane compiler, which counts operations, cannot be used")
    return count


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_default_needs_about_the_fewest_operations(name: str):
    model = made(name)
    counts = {method: operations(model, method) for method in ("auto", "cholesky", "articulated_body")}
    assert counts["auto"] in (counts["cholesky"], counts["articulated_body"])
    assert counts["auto"] < 1.06 * min(counts.values())


def test_long_chains_use_the_recursion_and_short_ones_the_factorization():
    assert operations(made("chain of 24"), "auto") == operations(made("chain of 24"), "articulated_body")
    assert operations(made("chain of 6"), "auto") == operations(made("chain of 6"), "cholesky")


@pytest.mark.parametrize("name", first(1, ["free chain", "spherical chain", "chain of 24"]))
def test_the_recursion_of_the_default_undoes_the_inverse_dynamics(name: str):
    model = made(name)
    q, v, a = random_motion(np.random.default_rng(1), model)

    @jaxdyn.batched
    def undone(q, v, a):
        tau = jaxdyn.inverse_dynamics(model, q, v, a)
        found, change = jax.jvp(lambda tau: jaxdyn.forward_dynamics(model, q, v, tau), (tau,), (v,))
        return found, jaxdyn.mass_matrix(model, q) @ change

    found, force = undone(q[None], v[None], a[None])
    close(found[0], a, scale=1e4)
    close(force[0], v, scale=1e4)


def test_a_rotor_on_a_distant_body_is_simulated_by_default():
    chain = geared(made("chain of 24"), (0, 20))
    assert operations(chain, "auto") == operations(chain, "cholesky")


@pytest.mark.parametrize("name", ["branched", "legs"])
def test_the_factor_of_the_mass_matrix_is_zero_between_branches(name: str):
    model = made(name)
    same_path = model.topology.column_precedes | model.topology.column_precedes.T
    q, _, _ = random_motion(np.random.default_rng(3), model)

    @jax.jit
    def matrices(q):
        return metric.mass_matrix(model, q), forward.mass_factor(model, kinematics.placements(model, q))

    mass, factor = map(np.asarray, matrices(q))
    close(jnp.asarray(factor @ factor.T), mass)
    assert not np.any(factor[~np.triu(same_path)])
    assert np.mean(same_path) < 0.7
