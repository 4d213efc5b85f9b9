"""Joints written by a user: a ball and a free joint on quaternions, and a slide on a turntable whose motion subspace moves.

Nothing in the library knows these classes. The protocol must be enough for kinematics, dynamics, steps and derivatives.
"""

import json
import os
from pathlib import Path
from typing import ClassVar

import equinox as eqx
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
    angular_momentum,
    as_dtype,
    bias_force,
    body_jacobian,
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
    mass_center_accelerations,
    mass_center_velocities,
    mass_matrix,
    momentum,
    potential_energy,
)
from jaxdyn.mechanism import Joint, components
from jaxdyn.spatial import quaternion, rotation
from jaxdyn.spatial.transform import RigidTransform

_SHARED = Path(os.environ.get("JAXDYN_SHARED", Path(__file__).parents[3] / "shared"))
_FILE = _SHARED / "theory_vectors.json"


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


def test_velocities_are_the_motion_of_the_frames(mixed, state):
    q, v, _ = state

    def frames(q):
        placed = forward_kinematics(mixed, q)
        return placed.rotation, placed.translation

    @jax.jit
    def both(q, v):
        return jax.jvp(frames, (q,), (along(mixed, q, v),)), body_jacobian(mixed, q) @ v

    ((turned, _), (turned_rate, origin_rate)), twist = both(q, v)
    close(twist[:, :3], jax.vmap(rotation.unskew)(turned_rate @ turned.swapaxes(1, 2)), scale=10.0)
    close(twist[:, 3:], origin_rate, scale=10.0)


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


def test_power_of_the_drives_is_the_rate_of_the_energy(mixed, state):
    q, v, a = state

    def energy(q, v):
        return kinetic_energy(mixed, q, v) + potential_energy(mixed, q)

    both = jax.jit(lambda q, v, a: (rate(mixed, energy, q, v, a)[1], inverse_dynamics(mixed, q, v, a) @ v))
    close(*both(q, v, a), scale=1e3)


def test_gravity_force_is_minus_the_derivative_of_the_potential_along_each_velocity(mixed, state):
    q, _, _ = state
    slopes = jax.jit(jax.grad(lambda step: potential_energy(mixed, configuration.integrate(mixed, q, step))))(
        jnp.zeros(mixed.nv)
    )
    close(gravity_force(mixed, q), -slopes, scale=100.0)


def test_momentum_and_angular_momentum_of_the_free_mechanism_stay_without_outer_forces(mixed, state):
    q, v, _ = state
    weightless = eqx.tree_at(lambda m: m.gravity, mixed, jnp.zeros(3))
    inner = jnp.where(np.arange(mixed.nv) < 6, 0.0, jnp.asarray(np.random.default_rng(2).normal(size=mixed.nv)))
    totals = lambda q, v: (momentum(weightless, q, v), angular_momentum(weightless, q, v))  # noqa: E731

    @jax.jit
    def changes(q, v):
        return rate(weightless, totals, q, v, forward_dynamics(weightless, q, v, inner))[1]

    for change in changes(q, v):
        close(change, 0.0, scale=1e3)


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
    builder.add_body("upper", joint=Ball(), mass=1.0, inertia=(1.0, 1.0, 1.0))
    builder.add_body("lower", parent="upper", joint=Prismatic((1, 0, 0)), mass=1.0, inertia=(1.0, 1.0, 1.0))
    model = builder.build()
    assert components.velocity_units(model) == ("rad/s", "rad/s", "rad/s", "m/s")
    assert components.velocity_units(model.topology) == ("", "", "", "m/s")
    assert components.coordinate_units(model.topology) == ("", "", "", "", "m")
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


def test_a_ball_joint_is_three_hinges_through_one_point():
    rng = np.random.default_rng(4)
    limb, axes = random_body(rng), np.eye(3)
    where = {key: limb.pop(key) for key in ("position", "orientation")}
    native, hinged = MechanismBuilder(), MechanismBuilder()
    native.add_body("limb", joint=Ball(), **where, **limb)
    hinged.add_body("first", joint=Revolute(axes[0]), **where)
    hinged.add_body("second", parent="first", joint=Revolute(axes[1]))
    hinged.add_body("limb", parent="second", joint=Revolute(axes[2]), **limb)
    native, hinged = native.build(), hinged.build()
    q, v, a = random_motion(rng, hinged)

    def orientation(q):
        turns = [quaternion.from_axis_angle(jnp.asarray(e), x) for e, x in zip(axes, q, strict=True)]
        return quaternion.multiply(quaternion.multiply(turns[0], turns[1]), turns[2])

    def body_rates(q, v):
        p, p_rate = jax.jvp(orientation, (q,), (v,))
        return 2.0 * quaternion.multiply(quaternion.conjugate(p), p_rate)[1:]  # (A11)

    p = orientation(q)
    B = jax.jacfwd(lambda v: body_rates(q, v))(v)
    w, w_rate = jax.jvp(body_rates, (q, v), (v, a))
    close(mass_matrix(hinged, q), B.T @ mass_matrix(native, p) @ B)  # (D5)
    close(inverse_dynamics(hinged, q, v, a), B.T @ inverse_dynamics(native, p, w, w_rate), scale=10.0)


def test_a_free_turning_body_keeps_its_angular_momentum_to_the_order_of_the_integration():
    inertia = {"mass": 1.0, "inertia": (0.2, 0.5, 0.6)}
    builder = MechanismBuilder("top", gravity=(0, 0, 0))
    builder.add_body("top", joint=Ball(), **inertia)
    model = builder.build()
    v0 = jnp.array([0.1, 2.0, 0.05])  # near the axis of middle inertia, where the motion is unstable

    @jax.jit
    def drift(step):
        """Change of the angular momentum and of |q| over one hundred midpoint steps."""

        def midpoint(state, _):
            q, v = state
            a = forward_dynamics(model, q, v, jnp.zeros(3))
            q_half, v_half = configuration.integrate(model, q, 0.5 * step * v), v + 0.5 * step * a
            a_half = forward_dynamics(model, q_half, v_half, jnp.zeros(3))
            return (configuration.integrate(model, q, step * v_half), v + step * a_half), None

        start = (configuration.neutral(model), v0)
        (q, v), _ = jax.lax.scan(midpoint, start, None, length=100)
        turned = quaternion.to_matrix(q)[0, 0]
        return angular_momentum(model, q, v) - angular_momentum(model, *start), q @ q - 1.0, turned

    (coarse, norm, turned), (fine, _, _) = drift(0.04), drift(0.02)
    assert abs(norm) < 1e-13  # the exponential keeps the norm, whatever the step
    assert turned < 0.9  # it did turn
    # Errors per unit time fall with the square of the step, and so does the time of one hundred steps fall by two: eight at least.
    assert np.linalg.norm(fine) < np.linalg.norm(coarse) / 6
    assert np.linalg.norm(fine) < 1e-3


@pytest.mark.skipif(not _FILE.exists(), reason=f"{_FILE} is not there")
def test_free_ball_and_revolute_body_accelerate_as_in_the_theory_vector():
    vector = json.loads(_FILE.read_text())["native_joints"]["free_ball_revolute"]
    inputs, results = vector["inputs"], vector["results"]
    builder = MechanismBuilder("free, ball, revolute", gravity=inputs["gravity"])
    kinds = {"free": Free(), "ball": Ball()}
    axis = np.array(inputs["revolute"]["axis"])
    kinds["revolute"] = Revolute(axis / np.linalg.norm(axis))
    parent = "ground"
    for name, joint in kinds.items():
        body = inputs[name]
        numbers = {key: body[key] for key in ("mass", "com", "inertia")}
        builder.add_body(name, parent=parent, joint=joint, position=body.get("joint_offset", (0, 0, 0)), **numbers)
        parent = name
    model = builder.build()
    free, ball, revolute = inputs["free"], inputs["ball"], inputs["revolute"]
    q = np.concatenate([free["position"], free["quaternion"], ball["quaternion"], [revolute["q"]]])
    v = np.concatenate([results["velocity_free_twist_child"], ball["body_rates"], [revolute["qd"]]])
    q, v = jnp.asarray(q), jnp.asarray(v)
    expected = [*results["udot_free_twist_child"], *results["udot_ball"], results["qdd_revolute"]]
    for method in ("cholesky", "articulated_body"):
        close(forward_dynamics(model, q, v, jnp.zeros(10), method=method), np.array(expected), scale=100.0)
    close(kinetic_energy(model, q, v), results["kinetic_energy"])
    accelerated = mass_center_accelerations(model, q, v, jnp.asarray(expected))
    close(accelerated.linear, np.array(results["a_com"]), scale=100.0)
    close(accelerated.angular, np.array(results["eps"]), scale=100.0)
