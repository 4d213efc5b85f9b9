"""The configuration space: steps and coordinates, random configurations, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import close, random_model, random_motion, sample_tree

from jaxdyn import MechanismBuilder, Prismatic, Revolute, as_dtype, configuration, forward_kinematics
from jaxdyn.spatial import rotation


@pytest.fixture(scope="module")
def tree():
    return sample_tree("two roots")


def test_difference_undoes_integrate_and_both_are_sums_for_angles_and_displacements(tree):
    q, step, _ = random_motion(np.random.default_rng(0), tree)
    there = configuration.integrate(tree, q, step)
    close(there, q + step)
    close(configuration.difference(tree, q, there), step)
    assert not np.any(configuration.difference(tree, q, q))
    assert np.array_equal(configuration.integrate(tree, q, jnp.zeros(6)), q)


def test_the_rate_of_a_step_is_the_velocity(tree):
    q, step, v = random_motion(np.random.default_rng(1), tree)
    assert np.array_equal(configuration.step_rate(tree, q, step, v), v)


def test_at_neutral_coordinates_no_joint_moves_its_child(tree):
    transforms = configuration.joint_transforms(tree, configuration.neutral(tree))
    assert np.array_equal(transforms.quaternion, np.tile([1.0, 0, 0, 0], (6, 1)))
    assert not np.any(transforms.translation)


@pytest.mark.parametrize("order", ["RPRP", "PPRR", "PRRP"])
def test_coordinates_belong_to_their_own_joint_in_any_order_of_the_classes(order):
    rng = np.random.default_rng(2)
    mixed = random_model(rng, 4, parents=[-1] * 4, kinds=order)
    q = jnp.asarray(rng.normal(size=4))
    transforms = configuration.joint_transforms(mixed, q)
    columns = configuration.motion_columns(mixed, q)
    for i, kind in enumerate(order):
        alone = {"R": Revolute, "P": Prismatic}[kind](mixed.joint(i).axis)
        assert type(alone) is type(mixed.joint(i))
        expected = alone.transform(q[i : i + 1])
        close(transforms.quaternion[i], expected.quaternion)
        close(transforms.translation[i], expected.translation)
        close(columns[i], alone.motion_subspace(q[i : i + 1])[:, 0])


def test_the_motion_columns_are_the_twist_of_the_child_in_its_own_axes(tree):
    q, v, _ = random_motion(np.random.default_rng(3), tree)

    def placement(q):
        placed = configuration.joint_transforms(tree, q)
        return placed.rotation, placed.translation

    (turned, _), (turned_rate, translation_rate) = jax.jvp(placement, (q,), (v,))
    omega = jax.vmap(rotation.unskew)(turned.swapaxes(1, 2) @ turned_rate)  # (B8) in child axes
    linear = jnp.einsum("bji,bj->bi", turned, translation_rate)
    close(configuration.motion_columns(tree, q) * v[:, None], jnp.concatenate([omega, linear], axis=1))


def test_subspaces_of_the_built_in_joints_do_not_change(tree):
    q, v, _ = random_motion(np.random.default_rng(4), tree)
    assert configuration.subspace_rates(tree, q, v) is None


def test_random_coordinates_are_all_different_and_follow_their_key(tree):
    draws = jnp.stack([configuration.random(tree, jax.random.key(k)) for k in (0, 1)])
    assert len(np.unique(draws)) == 12
    assert np.array_equal(draws[0], configuration.random(tree, jax.random.key(0)))


def test_random_coordinates_without_limits_are_normal_with_the_given_spread(tree):
    keys = jax.random.split(jax.random.key(0), 4000)
    q = np.asarray(jax.jit(jax.vmap(lambda k: configuration.random(tree, k, spread=0.3)))(keys))
    # Standard errors of 4000 draws: 0.3/63 of the mean, 0.3/89 of the standard deviation, 1/63 of a correlation; five of each.
    assert np.all(np.abs(q.mean(axis=0)) < 0.024)
    assert np.all(np.abs(q.std(axis=0) - 0.3) < 0.017)
    assert np.all(np.abs(np.corrcoef(q.T) - np.eye(6)) < 0.08)


def limited():
    builder = MechanismBuilder("limited")
    body = {"mass": 1.0, "inertia": (1, 1, 1)}
    builder.add_body("both", joint=Revolute((0, 0, 1)), position_limits=(1.0, 3.0), **body)
    builder.add_body("none", joint=Prismatic((0, 0, 1)), **body)
    builder.add_body("below", joint=Revolute((0, 0, 1)), position_limits=(-0.5, 0.7), **body)
    return builder.build()


@pytest.mark.parametrize(("spread", "share"), [(1.0, 1.0), (0.25, 0.25), (7.0, 1.0)])
def test_random_coordinates_fill_the_chosen_share_of_the_range_between_limits(spread, share):
    model = limited()
    keys = jax.random.split(jax.random.key(1), 2000)
    q = np.asarray(jax.jit(jax.vmap(lambda k: configuration.random(model, k, spread=spread)))(keys))
    for column, (lower, upper) in {0: (1.0, 3.0), 2: (-0.5, 0.7)}.items():
        middle, half = 0.5 * (upper + lower), 0.5 * share * (upper - lower)
        reach = np.abs(q[:, column] - middle)
        assert np.max(reach) <= half
        assert np.max(reach) > 0.98 * half  # of 2000 uniform draws all miss the last 2 % once in e^40
    assert np.max(np.abs(q[:, 1])) > 2 * spread  # the free one is normal


def test_random_coordinates_have_the_precision_of_the_model():
    assert configuration.random(as_dtype(limited(), jnp.float32), jax.random.key(0)).dtype == jnp.float32


@pytest.mark.parametrize(
    ("coordinates", "message"),
    [
        (jnp.zeros(5), r"^q0? has shape \(5,\), but mechanism 'two roots' has nq = 6.* shape \(6,\)"),
        (jnp.zeros(()), r"^q0? has shape \(\), but .* shape \(6,\)"),
        (jnp.zeros((8, 6)), r"^q0? has shape \(8, 6\).* for a batch, wrap the function in jax.vmap"),
        (jnp.zeros(6, int), "^q0? has the type int64; give floating-point"),
        ([0.0] * 6, "^q0? is a list; give an array, jnp.asarray"),
    ],
)
def test_coordinates_that_do_not_fit_are_refused_with_the_remedy(tree, coordinates, message, as_a_user):
    for refusing in (
        lambda: forward_kinematics(tree, coordinates),
        lambda: configuration.integrate(tree, coordinates, jnp.zeros(6)),
        lambda: configuration.difference(tree, coordinates, jnp.zeros(6)),
    ):
        with pytest.raises(ValueError, match=message):
            refusing()


def test_velocities_that_do_not_fit_are_refused_with_the_remedy(tree, as_a_user):
    q, v, few = jnp.zeros(6), jnp.zeros(6), jnp.zeros(5)
    for refusing in (
        lambda: configuration.integrate(tree, q, few),
        lambda: configuration.coordinate_rate(tree, q, few),
        lambda: configuration.from_primitives(tree, few),
        lambda: configuration.to_released(tree, q, few, v),
        lambda: configuration.to_released(tree, q, v, few),
    ):
        with pytest.raises(ValueError, match=r" has shape \(5,\), but mechanism 'two roots' has nv = 6"):
            refusing()
