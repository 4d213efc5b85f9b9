"""Laws of the metric tensor and its Christoffel symbols on random trees, theory.md sections (f) and (g)."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import TREE_NAMES, close, random_model, random_motion, sample_tree

from jaxdyn import (
    Model,
    Revolute,
    bias_force,
    christoffel_first_kind,
    christoffel_second_kind,
    coriolis_matrix,
    gravity_force,
    inverse_dynamics,
    kinetic_energy,
    mass_matrix,
)

# Parents of the 22-body tree of the book chapter, in its numbering from 1 (0 is the ground).
BOOK_TREE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 11, 6, 7, 14, 15, 16, 17, 9, 19, 20, 20]


@pytest.fixture(scope="module", params=TREE_NAMES)
def tree(request) -> Model:
    return sample_tree(request.param)


@pytest.fixture(scope="module")
def motion(tree):
    return random_motion(np.random.default_rng(20), tree)


@pytest.fixture(scope="module")
def symbols(tree, motion):
    return christoffel_first_kind(tree, motion[0])


@pytest.fixture(scope="module")
def metric_gradient(tree, motion):
    """da[alpha, beta, gamma] = d a_{alpha beta} / d q^gamma."""
    return jax.jacfwd(lambda q: mass_matrix(tree, q))(motion[0])


def paths(parents) -> list[list[int]]:
    """For each body (one column each), the bodies on its path from the root, itself included. Parents: -1 is the ground."""
    up = []
    for i, parent in enumerate(parents):
        up.append([*(up[parent] if parent >= 0 else []), i])
    return up


def test_armature_is_added_to_the_diagonal_of_the_mass_matrix_and_changes_no_symbol(tree, motion, symbols):
    rotor = jnp.asarray(np.random.default_rng(1).uniform(0.1, 1.0, tree.nv))
    geared = eqx.tree_at(lambda m: m.armature, tree, tree.armature + rotor)
    q, v, a = motion
    for method in ("composite", "closed_form"):
        close(mass_matrix(geared, q, method=method), mass_matrix(tree, q, method=method) + jnp.diag(rotor))
    close(christoffel_first_kind(geared, q), symbols)
    close(bias_force(geared, q, v), bias_force(tree, q, v))
    close(kinetic_energy(geared, q, v), kinetic_energy(tree, q, v) + 0.5 * rotor @ v**2)
    for method in ("recursive", "covariant"):
        close(inverse_dynamics(geared, q, v, a, method=method), inverse_dynamics(tree, q, v, a) + rotor * a)


def test_metric_is_zero_between_joints_that_are_not_comparable(tree, motion):
    up = paths(tree.topology.parents)
    comparable = np.array([[i in up[j] or j in up[i] for j in range(tree.nv)] for i in range(tree.nv)])
    assert np.array_equal(mass_matrix(tree, motion[0]) != 0, comparable)  # (F3)


def test_metric_depends_on_coordinates_beyond_the_nearer_joint_only(tree, metric_gradient):
    up = paths(tree.topology.parents)
    for a, b, c in itertools.product(range(tree.nv), repeat=3):
        if a not in up[b] and b not in up[a]:
            assert metric_gradient[a, b, c] == 0
            continue
        inner, outer = min(a, b), max(a, b)  # inf and sup: parents have smaller numbers
        beyond = inner in up[c] and c != inner and (c in up[outer] or outer in up[c])
        if not beyond:
            assert abs(metric_gradient[a, b, c]) < 1e-14, (a, b, c)  # (F4); terms of order one cancel


def test_rate_of_the_metric_is_the_coriolis_matrix_plus_its_transpose(tree, motion):
    q, v, _ = motion
    C = coriolis_matrix(tree, q, v)
    _, rate = jax.jvp(lambda q: mass_matrix(tree, q), (q,), (v,))
    close(rate, C + C.T)
    skew = rate - 2 * C
    close(skew + skew.T, 0.0)


def test_coriolis_matrix_times_velocity_minus_gravity_is_the_bias_force(tree, motion, symbols):
    q, v, _ = motion
    gravity = gravity_force(tree, q)
    close(coriolis_matrix(tree, q, v) @ v - gravity, bias_force(tree, q, v), scale=10.0)
    close(jnp.einsum("abg,a,b->g", symbols, v, v) - gravity, bias_force(tree, q, v), scale=10.0)


def test_closed_form_symbols_are_the_derivatives_of_the_metric(tree, motion, symbols, metric_gradient):
    d = np.asarray(metric_gradient)  # d[b, g, a] = d_a of M[b, g]
    close(symbols, 0.5 * (np.einsum("bga->abg", d) + np.einsum("gab->abg", d) - np.einsum("abg->abg", d)))  # (G1)
    close(symbols, christoffel_first_kind(tree, motion[0], method="autodiff"))


def test_symbols_of_the_second_kind_have_the_last_index_raised(tree, motion, symbols):
    second = christoffel_second_kind(tree, motion[0])
    close(jnp.einsum("abd,dg->abg", second, mass_matrix(tree, motion[0])), symbols)  # (G5)


def test_symbols_change_sign_with_their_last_two_indices_beyond_the_first(tree, symbols):
    up = paths(tree.topology.parents)
    for p, b, g in itertools.product(range(tree.nv), repeat=3):
        if p in up[b] and p in up[g]:
            close(symbols[p, b, g], -symbols[p, g, b])  # (G11)


def nonzero_symbols(parents, revolute) -> np.ndarray:
    """Where (G12) does not make Gamma_{alpha beta, gamma} zero."""
    up, n = paths(parents), len(parents)
    pattern = np.zeros((n, n, n), bool)
    for a, b, g in itertools.product(range(n), repeat=3):
        deepest = max(a, b, g)
        on_one_path = {a, b, g} <= set(up[deepest])
        pattern[a, b, g] = on_one_path and revolute[min(a, b)] and g != max(a, b)  # (i), (ii), (iii)
    return pattern


def test_symbols_are_zero_exactly_where_the_theory_says(tree, symbols):
    revolute = [kind is Revolute for kind in tree.topology.joint_classes]
    pattern = nonzero_symbols(tree.topology.parents, revolute)
    magnitude = np.abs(symbols)
    assert np.all(magnitude[~pattern] < 1e-15)  # (G12); (iii) holds by cancellation of terms of order one
    # Second moments, offsets and masses of random trees have no symmetry that could make another one vanish.
    assert np.all(magnitude[pattern] > 1e-8)


def independent_symbols(symbols) -> int:
    """Number of different magnitudes among the nonzero symbols: (G10) and (G11) relate only symbols of equal magnitude."""
    magnitude = np.abs(symbols)
    values = np.sort(magnitude[magnitude > 1e-12])
    return 1 + int(np.sum(np.diff(values) > 1e-10 * values[1:]))


def counted_symbols(parents, revolute) -> int:
    """Sum over revolute k of d_k + P_k + h_k + h_k d_k, after (G12)."""
    up = paths(parents)
    total = 0
    for k in np.flatnonzero(revolute):
        beyond = [i for i, path in enumerate(up) if k in path and i != k]
        pairs = sum(i in up[j] for i in beyond for j in beyond if i != j)
        before = len(up[k]) - 1
        total += len(beyond) + pairs + before + before * len(beyond)
    return total


def test_number_of_independent_symbols_is_the_counted_one(tree, symbols):
    revolute = [kind is Revolute for kind in tree.topology.joint_classes]
    assert independent_symbols(symbols) == counted_symbols(tree.topology.parents, revolute)


def test_book_tree_has_306_metric_entries_and_1314_independent_symbols():
    parents = [p - 1 for p in BOOK_TREE]
    model = random_model(np.random.default_rng(22), 22, parents=parents, kinds="R")
    q, _, _ = random_motion(np.random.default_rng(23), model)
    assert np.count_nonzero(mass_matrix(model, q)) == 306
    symbols = christoffel_first_kind(model, q)
    assert counted_symbols(parents, np.ones(22, bool)) == 1314
    assert independent_symbols(symbols) == 1314
