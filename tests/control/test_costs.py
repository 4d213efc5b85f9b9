"""Ready costs: values written out, and slopes against difference quotients."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brachistochrone import KeptEnergy, Velocities

import jaxdyn
from jaxdyn.control import (
    AngularDeviation,
    Deviation,
    DiscreteDynamics,
    Effort,
    ElapsedTime,
    FramePose,
    FrameVelocity,
    Manipulability,
    MultibodyDynamics,
    Penetration,
    Spheres,
    StateBounds,
)
from jaxdyn.control.constraint_terms import Workless
from jaxdyn.spatial.transform import RigidTransform


def mechanics() -> MultibodyDynamics:
    """A ball with a hinge on it, so that states are no plain numbers."""
    builder = jaxdyn.MechanismBuilder("ball and hinge")
    builder.add_body(
        "upper", joint=jaxdyn.Spherical(), mass=1.0, com=(0.02, 0.0, -0.3), inertia=(0.02, 0.03, 0.015, 0.0, 0.002, 0.0)
    )
    builder.add_body(
        "lower",
        parent="upper",
        joint=jaxdyn.Revolute((0.6, 0.8, 0.0)),
        position=(0.0, 0.1, -0.5),
        mass=0.5,
        com=(0.0, 0.0, -0.2),
        inertia=(0.01, 0.012, 0.004, 0.0, 0.0, 0.0),
    )
    builder.add_frame("tip", body="lower", position=(0.0, 0.05, -0.4))
    return MultibodyDynamics(jaxdyn.System(builder.build()))


def state() -> jaxdyn.State:
    q = jnp.concatenate([jnp.array([0.8, -0.2, 0.5, 0.3]) / jnp.sqrt(1.02), jnp.array([0.7])])
    return jaxdyn.State(q, jnp.array([0.3, -0.4, 0.2, 0.9]))


ELSEWHERE = jaxdyn.State(jnp.array([1.0, 0.0, 0.0, 0.0, -0.2]), jnp.array([0.0, 0.1, 0.0, -0.3]))
PLACE = RigidTransform(jnp.array([0.6, 0.0, 0.8, 0.0]), jnp.array([0.1, -0.2, 0.4]))


def spheres(margin: float = 0.02) -> Spheres:
    """One of the two obstacles is touched."""
    return Spheres(
        ("upper", "lower"),
        [[0.0, 0.0, -0.3], [0.0, 0.0, -0.2]],
        [0.1, 0.08],
        [[0.0, 0.1, -0.2], [2.0, 0.0, 0.0]],
        [0.3, 0.3],
        margin,
    )


class OfSum(eqx.Module):
    """A condition as one number, its entries weighted differently."""

    condition: Callable

    def __call__(self, dynamics, t, x, u):
        values = self.condition(dynamics, t, x, u)
        return values @ jnp.linspace(0.5, 1.5, len(values))


COSTS = {
    "deviation": Deviation(ELSEWHERE, jnp.linspace(0.5, 2.0, 8)),
    "deviation at its target": Deviation(state(), 2.0),
    "angular deviation": AngularDeviation(ELSEWHERE.q, jnp.linspace(0.5, 2.0, 4)),
    "effort": Effort(jnp.array([1.0, 2.0, 0.5, 0.1])),
    "pose": FramePose("tip", PLACE, 3.0, 0.7),
    "pose by axis": FramePose("tip", PLACE, jnp.array([1.0, 0.0, 2.0]), jnp.array([0.1, 3.0, 0.5])),
    "velocity of a frame": FrameVelocity("tip", jnp.array([1.0, 0.0, 2.0]), 0.4),
    "manipulability": Manipulability("tip", 0.3),
    "penetration": Penetration(spheres(), 50.0),
    "depths of spheres": OfSum(spheres()),
    "bounds of states": OfSum(StateBounds(ELSEWHERE, np.array([-1.0, -np.inf] * 4), np.array([np.inf, 0.5] * 4), nx=8)),
    "bounds of coordinates": OfSum(StateBounds(None, -1.0, np.array([np.inf, 0.5, 0.1] * 3), nx=9)),
    "power of the controls": OfSum(Workless()),
    "kept energy": OfSum(KeptEnergy(1.5)),
}


@pytest.mark.parametrize("name", COSTS)
def test_slopes_are_difference_quotients(name):
    dynamics, cost = mechanics(), COSTS[name]

    def value(w):
        return cost(
            dynamics, jnp.asarray(0.3), dynamics.retract(state(), w[:8]), jnp.array([0.2, -0.1, 0.4, 1.0]) + w[8:]
        )

    steps = 1e-5 * np.eye(12)
    at_all = jax.jit(jax.vmap(jax.value_and_grad(value)))(np.concatenate([steps, -steps, np.zeros((1, 12))]))
    values, slopes = map(np.asarray, at_all)
    quotient = (values[:12] - values[12:24]) / 2e-5
    np.testing.assert_allclose(slopes[-1], quotient, rtol=1e-6, atol=1e-7)
    assert (abs(float(values[-1])) > 1e-20) == (name != "deviation at its target")
    assert (np.abs(quotient).max() > 1e-3) == (name != "deviation at its target")


def test_values_are_those_written_out():
    dynamics, t, none = mechanics(), jnp.asarray(0.0), jnp.zeros(4)
    model, x = dynamics.system.model, state()
    placed = jaxdyn.frame_placement(model, x.q, "tip")
    there = FramePose("tip", RigidTransform(-placed.quaternion, placed.translation), 3.0, 0.7)
    np.testing.assert_allclose(there(dynamics, t, x, none), 0.0, atol=1e-20)
    quarter = RigidTransform(jnp.array([0.5**0.5, 0.5**0.5, 0.0, 0.0]), jnp.array([0.0, 0.3, 0.0]))
    off = FramePose("tip", placed.compose(quarter), 3.0, 0.7)(dynamics, t, x, none)
    np.testing.assert_allclose(off, 0.5 * (3.0 * 0.09 + 0.7 * (np.pi / 2) ** 2), rtol=1e-12)
    np.testing.assert_allclose(Effort(0.5)(dynamics, t, x, jnp.array([1.0, 2.0, 0.0, -1.0])), 1.5)
    np.testing.assert_allclose(
        Deviation(x, 1.0)(dynamics, t, dynamics.retract(x, 0.1 * jnp.ones(8)), none), 0.04, rtol=1e-12
    )


def test_angles_are_compared_without_whole_turns_and_time_counts():
    system = jaxdyn.library.system("double_pendulum")
    dynamics, t, none = MultibodyDynamics(system), jnp.asarray(0.3), jnp.zeros(2)
    cost = AngularDeviation(jnp.array([3.0, 0.2]), jnp.array([2.0, 0.5]))
    off = 2.0 * (1.0 - np.cos(0.4)) + 0.5 * (1.0 - np.cos(0.6))
    for turns in (0.0, 2.0 * np.pi, -4.0 * np.pi):
        x = jaxdyn.State(jnp.array([3.4 + turns, -0.4]), jnp.ones(2))
        np.testing.assert_allclose(cost(dynamics, t, x, none), off, rtol=1e-12)
    # Half the weighted square of the chord on the unit circle.
    sine, cosine = np.sin([0.4, 0.6]), np.cos([0.4, 0.6])
    np.testing.assert_allclose(off, 0.5 * np.sum([2.0, 0.5] * (sine**2 + (1.0 - cosine) ** 2)), rtol=1e-12)
    np.testing.assert_allclose(ElapsedTime(2.0)(dynamics, t, x, none), 0.6, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(lambda t: ElapsedTime(2.0)(dynamics, t, x, none))(t), 2.0)


def test_costs_see_prescribed_motion_at_their_own_time():
    """A slider of 3 kg on a lift of 1 kg that rises with 2 m/s, 0.3 s after it was at 0.5 m."""
    builder = jaxdyn.MechanismBuilder("slider on a lift")
    lift = jaxdyn.Rheonomic(jaxdyn.Prismatic((0.0, 0.0, 1.0)), jaxdyn.ConstantRate(2.0, 0.5))
    builder.add_body("lift", joint=lift, mass=1.0)
    builder.add_body("slider", parent="lift", joint=jaxdyn.Prismatic((1.0, 0.0, 0.0)), mass=3.0)
    system = jaxdyn.System(builder.build())
    x, t, none, height = jaxdyn.State(jnp.array([0.4]), jnp.array([0.7])), jnp.asarray(0.3), jnp.zeros(1), 1.1
    gravity = float(jnp.linalg.norm(system.model.gravity))
    energy = 4.0 * gravity * height + 0.5 * 4.0 * 2.0**2 + 0.5 * 3.0 * 0.7**2
    place = RigidTransform(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, height]))
    above = Spheres(("slider",), [[0.0, 0.0, 0.0]], [0.1], [[0.4, 0.0, height + 0.5]], [0.2])
    costs = (KeptEnergy(10.0), FramePose("slider", place), above)

    @jax.jit
    def values(t, x):
        of_states = [jnp.squeeze(cost(MultibodyDynamics(system), t, x, none)) for cost in costs]
        return jnp.stack([*of_states, KeptEnergy(10.0)(Velocities(system), t, x.q, x.v)[0]])

    off = energy - 10.0
    expected = [off, 0.5 * 0.4**2, (0.3**2 - 0.5**2) / 0.6, off]
    np.testing.assert_allclose(values(t, x), expected, rtol=1e-12)


def test_spheres_are_clear_or_touch():
    dynamics = mechanics()
    bodies = jaxdyn.forward_kinematics(dynamics.system.model, state().q)
    centers = [
        np.asarray(bodies.translation[k] + bodies.rotation[k] @ jnp.array([0.0, 0.0, z]))
        for k, z in ((0, -0.3), (1, -0.2))
    ]
    found = np.asarray(spheres()(dynamics, jnp.asarray(0.0), state(), jnp.zeros(4))).reshape(2, 2)
    for k, radius in ((0, 0.1), (1, 0.08)):
        for j, (place, size) in enumerate((((0.0, 0.1, -0.2), 0.3), ((2.0, 0.0, 0.0), 0.3))):
            reach, apart = radius + size + 0.02, np.linalg.norm(centers[k] - np.array(place))
            assert (found[k, j] > 0) == (apart < reach)
            np.testing.assert_allclose(found[k, j], (reach - apart) * (reach + apart) / (2.0 * reach), rtol=1e-12)
    assert (found > 0).sum() == 1


def test_what_cannot_be_is_refused(as_a_user):
    with pytest.raises(ValueError, match=r"radii has shape \(1,\); give 2 values"):
        Spheres(("upper", "lower"), jnp.zeros((2, 3)), jnp.ones(1), jnp.zeros((1, 3)), jnp.ones(1))
    step = DiscreteDynamics(lambda x, u, t, h: x, 2, 1)
    with pytest.raises(TypeError, match=r"Manipulability needs MultibodyDynamics.*DiscreteDynamics"):
        Manipulability("tip")(step, jnp.asarray(0.0), jnp.zeros(2), jnp.zeros(1))
    with pytest.raises(jaxdyn.UnknownName, match="hand"):
        FramePose("hand", PLACE)(mechanics(), jnp.asarray(0.0), state(), jnp.zeros(4))
    with pytest.raises(jaxdyn.UnknownName, match="hand"):
        Spheres(("hand",), jnp.zeros((1, 3)), jnp.ones(1), jnp.zeros((1, 3)), jnp.ones(1))(
            mechanics(), jnp.asarray(0.0), state(), jnp.zeros(4)
        )
