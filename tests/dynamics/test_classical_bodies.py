"""Bodies whose motion is known in closed form: a top, a body free of forces, and a body that turns by moving its arms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipj, ellipk

from jaxdyn import (
    Free,
    JointDrives,
    Knots,
    MechanismBuilder,
    Revolute,
    Rheonomic,
    RungeKutta4,
    Sinusoid,
    Spherical,
    State,
    System,
    acceleration,
    angular_momentum,
    center_of_mass,
    configuration,
    forward_kinematics,
    momentum,
    rollout,
    total_energy,
)
from jaxdyn.spatial import quaternion

# --- the heavy symmetric top ------------------------------------------------------------------------------------------------------

_MASS, _LENGTH, _GRAVITY = 0.8, 0.3, 9.81
_AXIAL, _ABOUT_COM = 0.02, 0.012
_TRANSVERSE = _ABOUT_COM + _MASS * _LENGTH**2  # about the joint point
_TILT, _SPIN = 0.7, 60.0  # angle to the vertical; angular velocity about the axis of the body


def _top() -> System:
    builder = MechanismBuilder("top", (0.0, 0.0, -_GRAVITY))
    inertia = (_ABOUT_COM, _ABOUT_COM, _AXIAL)
    builder.add_body("top", joint=Spherical(), mass=_MASS, com=(0.0, 0.0, _LENGTH), inertia=inertia)
    return System(builder.build())


def _precession_rates() -> np.ndarray:
    """Both roots of A cos(tilt) W^2 - C spin W + m g l = 0, the slow one first."""
    return np.sort(
        np.roots([_TRANSVERSE * np.cos(_TILT), -_AXIAL * _SPIN, _MASS * _GRAVITY * _LENGTH]).astype(np.float64)
    )


def _leaning(rate: float) -> tuple[State, np.ndarray]:
    """The top at the tilt that precesses at a rate, and the vertical on its axes."""
    q = quaternion.from_axis_angle(jnp.array([1.0, 0.0, 0.0]), jnp.asarray(_TILT))
    vertical = np.array([0.0, np.sin(_TILT), np.cos(_TILT)])
    omega = rate * vertical + np.array([0.0, 0.0, _SPIN - rate * np.cos(_TILT)])
    return State(q, jnp.asarray(omega)), vertical


@pytest.mark.parametrize("which", [0, 1], ids=["slow", "fast"])
def test_steady_precession_of_the_top_solves_the_equations_of_motion(which):
    rate = _precession_rates()[which]
    state, vertical = _leaning(rate)
    # omega = rate vertical + (own spin) axis, and only the vertical turns in the body: d(vertical)/dt = vertical x omega.
    expected = rate * np.cross(vertical, np.asarray(state.v))
    scale = _MASS * _GRAVITY * _LENGTH / _TRANSVERSE + rate * _SPIN
    np.testing.assert_allclose(acceleration(_top(), state), expected, atol=1e-13 * scale)


# --- the body free of forces ------------------------------------------------------------------------------------------------------


def test_asymmetric_free_body_flips_about_its_middle_axis_as_elliptic_functions_do():
    inertia, mass, com = np.array([1.0, 2.0, 2.6]), 2.0, np.array([0.1, -0.2, 0.3])
    builder = MechanismBuilder("wing nut", (0.0, 0.0, 0.0))
    builder.add_body("nut", joint=Free(), mass=mass, com=com, inertia=inertia)
    system = System(builder.build())
    # Turning about the middle axis but for a thousandth; at t = 0 that component passes through zero, half way through a flip.
    i1, i2, i3 = inertia
    twice_energy = 1.0
    squared = twice_energy * i2 * (1 + 1e-4)  # of the angular momentum; above 2 E I2 it circles the third axis
    k2 = (i2 - i1) * (twice_energy * i3 - squared) / ((i3 - i2) * (squared - twice_energy * i1))
    rate = np.sqrt((i3 - i2) * (squared - twice_energy * i1) / (i1 * i2 * i3))
    largest = np.sqrt(
        [
            (twice_energy * i3 - squared) / (i1 * (i3 - i1)),
            (twice_energy * i3 - squared) / (i2 * (i3 - i2)),
            (squared - twice_energy * i1) / (i3 * (i3 - i1)),
        ]
    )
    period = 4 * ellipk(k2) / rate
    steps = 8000
    omega = largest * np.array([1.0, 0.0, 1.0])
    drifting = np.array([0.3, -0.1, 0.2]) - np.cross(omega, com)  # of the body origin: its center of mass moves evenly
    state = State(configuration.neutral(system.model), jnp.asarray(np.concatenate([omega, drifting])))

    @jax.jit
    def watched(state):
        def save(t, state, u):
            model = system.model
            conserved = angular_momentum(model, state.q, state.v), momentum(model, state.q, state.v)
            return state.v[:3], *conserved, total_energy(system, state), center_of_mass(model, state.q)

        options = {"integrator": RungeKutta4(), "save": save, "save_every": 40}
        return rollout(system, state, dt=period / steps, steps=steps, **options)

    run = watched(state)
    rates, turning, moving, energy, center = run.saved
    time = np.asarray(run.time)
    sn, cn, dn, _ = ellipj(rate * time, k2)
    # Errors of the integration (dt^4, below 1e-9) grow by 1/(1 - k^2) = 1e4 at most near the unstable axis.
    np.testing.assert_allclose(rates, largest * np.stack([cn, sn, dn], axis=1), atol=1e-7)
    middle = np.asarray(rates[:, 1])
    assert middle[50] > 0.99 * largest[1]
    assert middle[150] < -0.99 * largest[1]  # it has turned over
    # It passes the middle of a flip every half period.
    np.testing.assert_allclose(middle[[0, 100, 200]], 0.0, atol=1e-7)
    for conserved in (turning, moving, energy):
        np.testing.assert_allclose(conserved, np.broadcast_to(conserved[0], conserved.shape), atol=1e-10)
    np.testing.assert_allclose(moving[0], mass * np.array([0.3, -0.1, 0.2]), atol=1e-14)
    np.testing.assert_allclose(center, com + time[:, None] * np.array([0.3, -0.1, 0.2]), atol=1e-9)


# --- a floating body with two arms ------------------------------------------------------------------------------------------------


def _floating(joints) -> System:
    builder = MechanismBuilder("floating", (0.0, 0.0, 0.0))
    builder.add_body("base", joint=Free(), mass=2.0, com=(0.05, 0.0, 0.02), inertia=(0.1, 0.12, 0.08))
    for name, joint, side in zip(("left", "right"), joints, (1.0, -1.0), strict=True):
        builder.add_body(
            name,
            parent="base",
            joint=joint,
            position=(0.0, 0.3 * side, 0.1),
            mass=0.7,
            com=(0.0, 0.2 * side, 0.2),
            inertia=(0.02, 0.02, 0.01),
        )
    driven = tuple(range(6, builder.build().nv))
    return System(builder.build(), (), JointDrives(driven, np.ones(len(driven))) if driven else None)


def _watched(system, state, controls, dt, steps):
    @jax.jit
    def run(state):
        def save(t, state, u):
            model = system.model.at(t)
            moments = momentum(model, state.q, state.v), angular_momentum(model, state.q, state.v)
            return *moments, center_of_mass(model, state.q), state

        options = {"integrator": RungeKutta4(), "save": save, "save_every": steps // 20}
        return rollout(system, state, controls, dt=dt, steps=steps, **options)

    return run(state)


@pytest.mark.thorough
def test_inner_drives_turn_a_floating_body_without_momentum():
    system = _floating([Revolute((1.0, 0.0, 0.0)), Spherical()])
    values = 0.3 * np.sin(np.arange(9.0)[:, None] * np.array([1.0, 0.7, 1.3, 0.4]))
    rest = State(configuration.neutral(system.model), jnp.zeros(10))
    run = _watched(system, rest, Knots(values, 0.125, interpolation="cubic"), 5e-4, 2000)
    linear, angular, center, states = run.saved
    # Integration errors: (dt rate)^4 with rates of up to 10 rad/s, 1e-9.
    np.testing.assert_allclose(linear, np.zeros((21, 3)), atol=1e-9)
    np.testing.assert_allclose(angular, np.zeros((21, 3)), atol=1e-9)
    np.testing.assert_allclose(center, np.broadcast_to(center[0], (21, 3)), atol=1e-9)
    turned = 2 * np.arccos(np.abs(np.asarray(states.q[-1, 3])))
    assert turned > 0.1
    assert np.max(np.abs(np.asarray(states.v))) > 1.0


def test_arms_that_return_leave_a_floating_body_turned():
    # Two arms on crossed axes, a quarter period apart: their shape returns after each period, the attitude of the base does not.
    period = 2.0
    left, right = (
        Rheonomic(Revolute(axis), Sinusoid(1.2, 2 * np.pi / period, phase))
        for axis, phase in (((1.0, 0.0, 0.0), 0.0), ((0.0, 0.0, 1.0), np.pi / 2))
    )
    system = _floating([left, right])
    model = system.model.at(jnp.zeros(()))
    q = configuration.neutral(model)
    # The base starts such that linear and angular momentum vanish: six equations, linear in its six velocities.
    both = jax.jit(lambda v: jnp.concatenate([momentum(model, q, v), angular_momentum(model, q, v)]))
    at_rest = both(jnp.zeros(6))
    v = -jnp.linalg.solve(jax.jacfwd(both)(jnp.zeros(6)), at_rest)
    assert np.max(np.abs(np.asarray(at_rest))) > 0.1
    run = _watched(system, State(q, v), None, period / 2000, 2000)
    linear, angular, center, _ = run.saved
    np.testing.assert_allclose(linear, np.zeros((21, 3)), atol=1e-9)
    np.testing.assert_allclose(angular, np.zeros((21, 3)), atol=1e-9)
    np.testing.assert_allclose(center, np.broadcast_to(center[0], (21, 3)), atol=1e-9)
    before, after = (forward_kinematics(system.model.at(jnp.asarray(t)), q) for t in (0.0, period))
    np.testing.assert_allclose(after.rotation, before.rotation, atol=1e-12)  # same shape
    turned = 2 * np.arccos(np.abs(np.asarray(run.final.q[3])))
    assert turned > 0.02
