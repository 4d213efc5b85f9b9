"""Product of exponentials against the kinematics of the library, and its exponentials against those of SciPy."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jaxtyping import Array, Float
from random_trees import close, random_motion, random_unit
from stacked_trees import agree, evaluated, stacked_trees

from jaxdyn import (
    MechanismBuilder,
    Prismatic,
    Revolute,
    as_dtype,
    forward_kinematics,
    mass_center_velocities,
)
from jaxdyn.dynamics import mass_center_accelerations
from jaxdyn.formulations import exponentials
from jaxdyn.mechanism import Joint
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform


def by_exponentials(model, q, v, a):
    """Rotations, origins, velocities and accelerations by exponentials."""
    poses = exponentials.screw_poses(model, q)
    moving = exponentials.screw_velocities(model, q, v), exponentials.screw_accelerations(model, q, v, a)
    return poses[:, :3, :3], poses[:, :3, 3], *moving


def by_columns(model, q, v, a):
    """The same by the kinematics of the library."""
    placed = forward_kinematics(model, q)
    return (
        placed.rotation,
        placed.translation,
        mass_center_velocities(model, q, v),
        mass_center_accelerations(model, q, v, a),
    )


def routes(model, q, v, a):
    """Both, and the screws and displacements."""
    between = exponentials.screws(model), exponentials.screw_displacements(model, q)
    return by_exponentials(model, q, v, a), by_columns(model, q, v, a), *between


@pytest.fixture(scope="module")
def trees():
    *motion, _ = stacked_trees()
    return motion, evaluated(routes, *motion, in_lanes=True)


def test_poses_velocities_and_accelerations_are_those_of_the_columns(trees):
    _, (exponential, columns, _, _) = trees
    for actual, expected in zip(exponential, columns, strict=True):
        agree(actual, expected)


def generator(axis, moment):
    """[[S(e), v], [0, 0]]."""
    return np.block([[np.cross(np.eye(3), axis), moment[:, None]], [np.zeros((1, 4))]])


@pytest.mark.parametrize("kind", ["turn", "slide", "helix"])
def test_closed_form_is_the_matrix_exponential_and_its_rate(kind):
    rng = np.random.default_rng(4)
    e, point = random_unit(rng), rng.normal(size=3)
    moment = {"turn": np.cross(point, e), "slide": e, "helix": np.cross(point, e) + 0.3 * e}[kind]
    e = 0.0 * e if kind == "slide" else e
    X = generator(e, moment)
    axis, moment = jnp.asarray(e), jnp.asarray(moment)
    for angle in (0.0, 1e-9, 1e-4, 0.7, -2.5, 9.0):
        expected = scipy.linalg.expm(angle * X)
        of_angle = lambda q: exponentials.screw_exponential(axis, moment, q)  # noqa: E731
        actual, rate = jax.jvp(of_angle, (jnp.asarray(angle),), (jnp.ones(()),))
        close(actual, expected, scale=10.0)
        close(rate, X @ expected, scale=10.0)


def test_displacements_are_ordered_products_of_matrix_exponentials(trees):
    (model, q, _, _), (_, _, joints, displacements) = trees
    for sample in range(len(q)):
        expected = []
        for i, parent in enumerate(model.topology.parents):
            X = generator(np.asarray(joints.axis[sample, i]), joints.moment[sample, i])
            local = scipy.linalg.expm(X * float(q[sample, i]))
            expected.append(local if parent < 0 else expected[parent] @ local)
        close(displacements[sample], np.stack(expected), scale=10.0)


class Helix(Joint):
    """A screw: rotation about an axis through a point of the joint frame, and `pitch` (m/rad) along it. q: angle, from `zero`."""

    axis: Float[Array, "*batch 3"]
    point: Float[Array, "*batch 3"]
    pitch: Float[Array, "*batch"]
    zero: Float[Array, "*batch 1"]

    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    velocity_is_rate: ClassVar[bool] = True

    def transform(self, q: Float[Array, "1"]) -> RigidTransform:
        turn = quaternion.from_axis_angle(self.axis, (q - self.zero)[0])
        along = self.pitch * (q - self.zero) * self.axis
        return RigidTransform(turn, self.point - quaternion.rotate(turn, self.point) + along)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        linear = jnp.cross(self.point, self.axis) + self.pitch * self.axis
        return jnp.concatenate([self.axis, linear])[:, None]

    def integrate(self, q: Float[Array, "1"], step: Float[Array, "1"]) -> Float[Array, "1"]:
        return q + step

    def difference(self, q0: Float[Array, "1"], q1: Float[Array, "1"]) -> Float[Array, "1"]:
        return q1 - q0

    def neutral(self) -> Float[Array, "1"]:
        return self.zero


def test_helical_joints_with_any_neutral_coordinate_are_covered():
    rng = np.random.default_rng(5)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))  # noqa: E731
    helices = [Helix(jnp.asarray(random_unit(rng)), draw(3), draw(), draw(1)) for _ in range(2)]
    joints = [Revolute(random_unit(rng)), helices[0], Prismatic(random_unit(rng)), helices[1]]
    builder = MechanismBuilder("helices")
    for i, joint in enumerate(joints):
        where = {"position": rng.normal(size=3), "orientation": random_unit(rng, 4)}
        parent = f"body {i - 1}" if i else "ground"
        builder.add_body(f"body {i}", parent=parent, joint=joint, mass=1.0, com=rng.normal(size=3), **where)
    model = builder.build()
    motion = jax.tree.map(lambda x: x[None], (model, *random_motion(rng, model)))
    exponential, columns, _, _ = evaluated(routes, *motion, in_lanes=True)
    for actual, expected in zip(exponential, columns, strict=True):
        agree(actual, expected)


class Wobble(Helix):
    """A joint that declares quasi-velocities: nothing says that its column is a screw."""

    velocity_is_rate: ClassVar[bool] = False


def test_joint_that_is_no_screw_is_refused_by_name(as_a_user):
    builder = MechanismBuilder("refused")
    joint = Wobble(jnp.array([0.0, 0.0, 1.0]), jnp.zeros(3), jnp.zeros(()), jnp.zeros(1))
    builder.add_body("arm", joint=joint, joint_name="shoulder", mass=1.0)
    model = builder.build()
    with pytest.raises(ValueError, match=r"joint 'shoulder' \(Wobble\) .* use .*jaxdyn\.decompose_joints\(model\)"):
        exponentials.screw_poses(model, jnp.zeros(1))


def test_derivatives_by_model_and_motion_are_those_of_the_columns_also_at_rest():
    *motion, _ = stacked_trees()
    weights = np.random.default_rng(6).normal(size=(5, 6, 3))

    def gradient(route):
        def loss(*x):
            _, origins, velocities, accelerations = route(*x)
            return jnp.sum(weights * jnp.stack([origins, *velocities, *accelerations]))

        return evaluated(jax.grad(loss, (0, 1, 2, 3)), *motion, in_lanes=True)

    agree(gradient(by_exponentials), gradient(by_columns))


def test_single_precision(trees):
    motion, (_, columns, _, _) = trees
    single = evaluated(by_exponentials, *as_dtype(tuple(motion), jnp.float32))
    assert {str(x.dtype) for x in jax.tree.leaves(single)} == {"float32"}
    for actual, expected in zip(single, columns, strict=True):
        agree(actual, expected, 1e-5)
