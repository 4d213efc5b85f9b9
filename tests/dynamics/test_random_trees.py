"""The generator of random mechanisms draws what it promises: everything downstream of it would be blind otherwise."""

import jax
import numpy as np
from random_trees import ALL_KINDS, random_model, random_motion, random_parents, random_unit


def _numbers(tree) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_every_number_of_a_random_model_is_a_draw_of_its_own():
    model = random_model(np.random.default_rng(0), 6, armature=True)
    numbers = _numbers(
        (model.joints, model.placement, model.mass, model.com, model.inertia, model.armature, model.gravity)
    )
    assert len(np.unique(numbers)) == len(numbers) == 6 * (3 + 7 + 1 + 3 + 6 + 1) + 3


def test_every_number_of_a_model_of_all_kinds_of_joints_is_a_draw_of_its_own():
    kinds = ALL_KINDS + ALL_KINDS.lower()
    model = random_model(np.random.default_rng(0), len(kinds), kinds=kinds)
    times = [joint.time for joint in model.joints if hasattr(joint, "time")]
    numbers = _numbers((model.joints, random_motion(np.random.default_rng(1), model)))
    own = 4 * 3 + 1 + 2 * 3 + 2 * 3  # axes and the pitch
    motions = 4 * (1 + 1 + 1 + 2 + 2 + 4 + 3 + 7)
    assert model.nq == 21
    assert model.nv == 19
    assert len(times) == 8
    assert len(numbers) == 2 * own + motions + len(times) + 21 + 2 * 19
    assert len(np.unique(numbers)) == len(numbers) - len(times) + 1  # the times are all zero


def test_the_same_seed_draws_the_same_model_and_another_seed_another_one():
    models = [random_model(np.random.default_rng(s), 3, kinds="R", armature=True) for s in (4, 4, 5)]
    first, again, other = map(_numbers, models)
    assert np.array_equal(first, again)
    assert not np.any(first[np.isfinite(first)] == other[np.isfinite(other)])


def test_random_inertias_are_physical_and_full():
    model = random_model(np.random.default_rng(2), 12)
    xx, yy, zz, xy, xz, yz = np.asarray(model.inertia).T
    tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]).transpose(2, 0, 1)
    principal = np.linalg.eigvalsh(tensor)
    assert np.all(principal[:, 0] > 0)
    assert np.all(principal[:, 0] + principal[:, 1] > principal[:, 2] * (1 + 1e-6))  # no planar body either
    assert np.all(np.abs([xy, xz, yz]) > 0)


def test_random_trees_are_wide_and_deep_with_one_root_or_several():
    rng = np.random.default_rng(3)
    parents = np.array([random_parents(rng, 8) for _ in range(40)])
    assert set((parents < 0).sum(axis=1)) >= {1, 2, 3}
    children = np.array([np.bincount(p[p >= 0], minlength=8).max() for p in parents])
    assert set(children) >= {1, 2, 3}  # 1: a chain, or several
    assert np.all(parents < np.arange(8))


def test_random_directions_prefer_no_axis():
    rng = np.random.default_rng(0)
    units = np.array([random_unit(rng) for _ in range(4000)])
    assert np.allclose(np.linalg.norm(units, axis=1), 1.0, rtol=1e-14)
    # The mean of n unit vectors has components of standard deviation 1/sqrt(3 n) = 0.009, their squares 0.005: five sigma.
    assert np.all(np.abs(units.mean(axis=0)) < 0.046)
    assert np.all(np.abs((units**2).mean(axis=0) - 1 / 3) < 0.025)
