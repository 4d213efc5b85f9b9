"""Joints written by a user: a ball and a free joint on quaternions, and a slide on a turntable whose motion subspace moves.

Nothing in the library knows these classes. The protocol must be enough for kinematics, dynamics, steps and derivatives.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from random_trees import close, random_body, random_motion, random_unit

from jaxdyn import (
    MechanismBuilder,
    Model,
    Prismatic,
    Revolute,
    as_dtype,
    bias_force,
    christoffel_first_kind,
    christoffel_second_kind,
    configuration,
    connection_first_kind,
    coriolis_matrix,
    forward_dynamics,
    forward_kinematics,
    gravity_force,
    inverse_dynamics,
    kinetic_energy,
    mass_center_velocities,
    mass_matrix,
)
from jaxdyn.dynamics import mass_center_accelerations
from jaxdyn.mechanism import Joint, components
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform


class Ball(Joint):
    """Rotation about a point. q: quaternion. v: angular velocity of the child relative to the parent, child axes."""

    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3
    velocity_is_rate: ClassVar[bool] = False

    def transform(self, q: Float[Array, "4"]) -> RigidTransform:
        return RigidTransform(q, jnp.zeros(3, q.dtype))

    def motion_subspace(self, q: Float[Array, "4"]) -> Float[Array, "6 3"]:
        return jnp.eye(6, 3, dtype=q.dtype)

    def integrate(self, q: Float[Array, "4"], step: Float[Array, "3"]) -> Float[Array, "4"]:
        return quaternion.multiply(q, quaternion.exponential(step))

    def difference(self, q0: Float[Array, "4"], q1: Float[Array, "4"]) -> Float[Array, "3"]:
        return quaternion.logarithm(quaternion.multiply(quaternion.inverse(q0), q1))

    def neutral(self) -> Float[Array, "4"]:
        return quaternion.identity()


class Free(Joint):
    """No constraint. q: position on parent axes (m), then quaternion. v: twist on child axes, angular part first.

    A step turns and shifts at once, with the axes of its beginning: a chart of first order, enough for velocities.
    """

    nq: ClassVar[int] = 7
    nv: ClassVar[int] = 6
    velocity_is_rate: ClassVar[bool] = False

    def transform(self, q: Float[Array, "7"]) -> RigidTransform:
        return RigidTransform(q[3:], q[:3])

    def motion_subspace(self, q: Float[Array, "7"]) -> Float[Array, "6 6"]:
        return jnp.eye(6, dtype=q.dtype)

    def integrate(self, q: Float[Array, "7"], step: Float[Array, "6"]) -> Float[Array, "7"]:
        turned = quaternion.multiply(q[3:], quaternion.exponential(step[:3]))
        return jnp.concatenate([q[:3] + quaternion.rotate(q[3:], step[3:]), turned])

    def difference(self, q0: Float[Array, "7"], q1: Float[Array, "7"]) -> Float[Array, "6"]:
        back = quaternion.inverse(q0[3:])
        turn = quaternion.logarithm(quaternion.multiply(back, q1[3:]))
        return jnp.concatenate([turn, quaternion.rotate(back, q1[:3] - q0[:3])])

    def neutral(self) -> Float[Array, "7"]:
        return jnp.zeros(7).at[3].set(1.0)


class Turntable(Joint):
    """Slide along the x axis of a table that turns about z. q, v: angle and displacement, and their rates.

    The child turns with the table, so on its axes the turning column (z; displacement * y) depends on q.
    """

    offset: Float[Array, "*batch"]  # of the slide from the axis of the table, m

    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2
    velocity_is_rate: ClassVar[bool] = False  # rates they are, but the columns do not commute

    def transform(self, q: Float[Array, "2"]) -> RigidTransform:
        z = jnp.array([0.0, 0.0, 1.0], q.dtype)
        turn = quaternion.from_axis_angle(z, q[0])
        return RigidTransform(turn, quaternion.rotate(turn, self._arm(q)))

    def motion_subspace(self, q: Float[Array, "2"]) -> Float[Array, "6 2"]:
        turning = jnp.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0], q.dtype).at[4].set(self._arm(q)[0])
        sliding = jnp.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0], q.dtype)
        return jnp.stack([turning, sliding], axis=1)

    def subspace_rate(self, q: Float[Array, "2"], v: Float[Array, "2"]) -> Float[Array, "6"]:
        return jnp.zeros(6, v.dtype).at[4].set(v[0] * v[1])

    def integrate(self, q: Float[Array, "2"], step: Float[Array, "2"]) -> Float[Array, "2"]:
        return q + step

    def difference(self, q0: Float[Array, "2"], q1: Float[Array, "2"]) -> Float[Array, "2"]:
        return q1 - q0

    def neutral(self) -> Float[Array, "2"]:
        return jnp.stack([jnp.zeros_like(self.offset), -self.offset])

    def _arm(self, q):
        return jnp.array([1.0, 0.0, 0.0], q.dtype) * (self.offset + q[1])


def along(model: Model, q, v):
    """The rate dq/dt of coordinates that move with velocities v."""
    time = jnp.zeros(())
    return jax.jvp(lambda t: configuration.integrate(model, q, t * v), (time,), (jnp.ones_like(time),))[1]


def rate(model: Model, function, q, v, a):
    """Value and rate of function(q, v) along the motion."""
    return jax.jvp(function, (q, v), (along(model, q, v), a))


@pytest.fixture(scope="module")
def mixed() -> Model:
    """Joints of 6, 3, 2 and 1 velocities, each kind twice but for the free one, on a tree with branches."""
    rng = np.random.default_rng(0)
    builder = MechanismBuilder("mixed", gravity=(1.0, -2.0, -9.0))
    builder.add_body("base", joint=Free(), **random_body(rng))
    builder.add_body("shoulder", parent="base", joint=Ball(), armature=0.1, **random_body(rng))
    builder.add_body("elbow", parent="shoulder", joint=Revolute(random_unit(rng)), armature=0.2, **random_body(rng))
    builder.add_body("table", parent="base", joint=Turntable(jnp.asarray(0.2)), **random_body(rng))
    builder.add_body("wrist", parent="elbow", joint=Ball(), **random_body(rng))
    builder.add_body("tray", parent="table", joint=Turntable(jnp.asarray(-0.4)), **random_body(rng))
    builder.add_body("lid", parent="table", joint=Prismatic(random_unit(rng)), **random_body(rng))
    return builder.build()


@pytest.fixture(scope="module")
def state(mixed):
    return random_motion(np.random.default_rng(1), mixed)


def test_accelerations_are_the_rates_of_velocities(mixed, state):
    q, v, a = state
    assert np.any(configuration.subspace_rates(mixed, q, v))

    @jax.jit
    def both(q, v, a):
        _, rates = rate(mixed, lambda q, v: mass_center_velocities(mixed, q, v), q, v, a)
        return rates, mass_center_accelerations(mixed, q, v, a)

    rates, accelerated = both(q, v, a)
    close(accelerated.angular, rates.angular, scale=100.0)
    close(accelerated.linear, rates.linear, scale=100.0)


@jax.jit
def in_several_ways(model, q, v, a):
    tau = inverse_dynamics(model, q, v, a)
    forward = (forward_dynamics(model, q, v, tau, method=method) for method in ("cholesky", "articulated_body"))
    matrices = mass_matrix(model, q), mass_matrix(model, q, method="closed_form")
    return *matrices, kinetic_energy(model, q, v), tau, bias_force(model, q, v), *forward


def test_energy_mass_matrix_and_the_two_ways_of_dynamics_agree(mixed, state):
    q, v, a = state
    matrix, closed_form, energy, tau, bias, *forward = map(np.asarray, in_several_ways(mixed, q, v, a))
    close(matrix, closed_form, scale=10.0)
    assert np.linalg.eigvalsh(matrix)[0] > 1e-3
    v, a = map(np.asarray, (v, a))
    close(energy, 0.5 * v @ matrix @ v, scale=10.0)
    close(tau, matrix @ a + bias, scale=100.0)
    for found in forward:
        close(found, a, scale=1e4)


def test_the_norm_of_a_quaternion_does_not_matter(mixed, state):
    q, v, a = state
    is_quaternion = np.zeros(mixed.nq, bool)
    for start, kind in zip(mixed.topology.q_starts, mixed.topology.joint_classes, strict=True):
        if kind in (Ball, Free):
            is_quaternion[start + kind.nq - 4 : start + kind.nq] = True
    assert is_quaternion.sum() == 12
    scaled = jnp.where(is_quaternion, -3.0 * q, q)
    close(inverse_dynamics(mixed, scaled, v, a), inverse_dynamics(mixed, q, v, a), scale=100.0)


def test_at_neutral_coordinates_child_frames_are_joint_frames_in_the_precision_of_the_model(mixed):
    # A joint without numbers of its own cannot know the precision; the model does.
    for dtype in ("float64", "float32"):
        model = as_dtype(mixed, dtype)

        @jax.jit
        def placed(model):
            neutral = configuration.neutral(model)
            at = configuration.joint_transforms(model, neutral)
            return neutral, at.rotation, at.translation

        neutral, turned, shifted = placed(model)
        assert neutral.dtype == dtype
        close(turned, np.broadcast_to(np.eye(3), (7, 3, 3)))
        close(shifted, 0.0)


def test_difference_undoes_integrate_and_the_rate_of_a_step_is_its_derivative(mixed, state):
    q, v, step = state
    small = 0.3 * step

    @jax.jit
    def computed(q, v, step, small):
        there = configuration.integrate(mixed, q, step)
        again = configuration.integrate(mixed, q, configuration.difference(mixed, q, there))
        back = configuration.difference(mixed, q, configuration.integrate(mixed, q, small))
        # The coordinates integrate(q, small) move with velocities v when the step changes at this rate.
        step_rate = configuration.step_rate(mixed, q, small, v)
        moved, coordinate_rate = jax.jvp(lambda s: configuration.integrate(mixed, q, s), (small,), (step_rate,))
        ends = [forward_kinematics(mixed, end) for end in (again, there)]
        return [(at.rotation, at.translation) for at in ends], back, coordinate_rate, along(mixed, moved, v)

    (again, there), back, coordinate_rate, expected = computed(q, v, step, small)
    # A turn by more than half a circle is found again the other way round: compare configurations, not steps.
    close(again[0], there[0])
    close(again[1], there[1], scale=10.0)
    close(back, small)
    close(coordinate_rate, expected, scale=10.0)


def test_what_needs_christoffel_symbols_says_why_there_are_none(mixed, state):
    q, _, _ = state
    for refusing in (
        lambda: christoffel_first_kind(mixed, q),
        lambda: christoffel_first_kind(mixed, q, method="autodiff"),
        lambda: christoffel_second_kind(mixed, q),
    ):
        with pytest.raises(ValueError, match=r"'base_joint' \(Free\).*not coordinate rates"):
            refusing()


@pytest.mark.thorough
def test_the_connection_serves_joints_that_the_library_does_not_know(mixed, state):
    q, v, a = state

    @jax.jit
    def pairs(q, v, a):
        symbols = connection_first_kind(mixed, q)
        rate = jax.jvp(lambda q: mass_matrix(mixed, q), (q,), (configuration.coordinate_rate(mixed, q, v),))[1]
        coriolis = coriolis_matrix(mixed, q, v)
        motion = bias_force(mixed, q, v) + gravity_force(mixed, q)
        return (
            (symbols, connection_first_kind(mixed, q, method="autodiff")),
            (jnp.einsum("abg,a,b->g", symbols, v, v), motion),
            (inverse_dynamics(mixed, q, v, a, method="covariant"), inverse_dynamics(mixed, q, v, a)),
            (rate, coriolis + coriolis.T),  # (G17)
        )

    first, *others = pairs(q, v, a)
    close(*first, scale=10.0)
    for pair in others:
        close(*pair, scale=100.0)


def test_units_follow_from_the_joints_of_a_model_and_are_open_where_only_its_topology_is_known():
    builder = MechanismBuilder("arm")
    builder.add_body("upper", joint=Free(), mass=1.0, inertia=(1.0, 1.0, 1.0))
    builder.add_body("lower", parent="upper", joint=Prismatic((1, 0, 0)), mass=1.0, inertia=(1.0, 1.0, 1.0))
    model = builder.build()
    assert components.velocity_units(model) == ("rad/s",) * 3 + ("m/s",) * 4
    assert components.velocity_units(model.topology) == ("",) * 6 + ("m/s",)
    assert components.coordinate_units(model.topology) == ("",) * 7 + ("m",)
    assert components.velocity_names(model.topology) == components.velocity_names(model)


def test_a_slide_on_a_turntable_is_a_hinge_and_a_slide():
    rng = np.random.default_rng(3)
    carried, carrier = random_body(rng), random_body(rng)
    one, two = MechanismBuilder(), MechanismBuilder()
    for builder in (one, two):
        builder.add_body("carrier", joint=Revolute((0.6, 0.0, 0.8)), **carrier)
    one.add_body("tray", parent="carrier", joint=Turntable(jnp.asarray(0.0)), **carried)
    where = {key: carried.pop(key) for key in ("position", "orientation")}
    two.add_body("table", parent="carrier", joint=Revolute((0, 0, 1)), **where)
    two.add_body("tray", parent="table", joint=Prismatic((1, 0, 0)), **carried)
    one, two = one.build(), two.build()
    q, v, a = random_motion(rng, one)
    close(mass_matrix(one, q), mass_matrix(two, q))
    close(bias_force(one, q, v), bias_force(two, q, v), scale=10.0)
    tau = inverse_dynamics(two, q, v, a)
    close(inverse_dynamics(one, q, v, a), tau, scale=10.0)
    for method in ("cholesky", "articulated_body"):
        close(forward_dynamics(one, q, v, tau, method=method), a, scale=1e3)
