"""Branches of a four-bar, loops that do not close, and a parallelogram that goes flat, where the equations lose rank."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_forms import add_body, marker

import jaxdyn
from jaxdyn import LoopJoint, MechanismBuilder, Revolute, RungeKutta4, State, System
from jaxdyn.spatial.transform import RigidTransform

# Shapes are checked by the tests of the functions themselves; here the checks would take a third of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

FOUR_BAR, PARALLELOGRAM = (0.3, 0.8, 0.6, 1.0), (0.4, 0.9, 0.4, 0.9)  # crank, coupler, rocker, base


def four_bar(lengths, *, kind: str = "revolute", stabilization: float = 0.0) -> System:
    """Crank, coupler and rocker about z, all along x at q = 0; coupler and rocker are joined by a loop joint of this kind."""
    crank, coupler, rocker, base = lengths
    builder = MechanismBuilder("four-bar", (1.0, -9.0, 0.0))
    add_body(builder, "crank", Revolute((0, 0, 1)))
    add_body(builder, "coupler", Revolute((0, 0, 1)), parent="crank", position=(crank, 0, 0))
    add_body(builder, "rocker", Revolute((0, 0, 1)), position=(base, 0, 0))
    pin = LoopJoint("pin", kind, 1, marker(coupler), 2, marker(rocker))
    return System(builder.build(), constraints=(pin,), stabilization=stabilization)


def gap(lengths, q):
    """Distance between the ends of coupler and rocker."""
    crank, coupler, rocker, base = lengths
    at = crank * np.exp(1j * q[..., 0]) + coupler * np.exp(1j * (q[..., 0] + q[..., 1]))
    return np.abs(at - base - rocker * np.exp(1j * q[..., 2]))


assembled = jax.jit(lambda system, q: jaxdyn.assemble(system, system.at_rest(q)))


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_the_start_chooses_the_branch_of_a_four_bar(side):
    crank, coupler, rocker, base = FOUR_BAR
    for angle in (0.7, 2.0, -1.5):
        start = jnp.array([angle, side * 0.9 - angle, side * 1.7])
        found = assembled(four_bar(FOUR_BAR), start)
        assert bool(found.closed)
        assert int(found.mobility) == 1
        theta, relative, psi = np.asarray(found.q)
        # The triangle of the diagonal from the crank pin to the pivot of the rocker.
        diagonal = base - crank * np.exp(1j * theta)
        at_pin = np.arccos((coupler**2 + abs(diagonal) ** 2 - rocker**2) / (2 * coupler * abs(diagonal)))
        direction = np.angle(diagonal) + side * at_pin
        tip = crank * np.exp(1j * theta) + coupler * np.exp(1j * direction)
        expected = np.exp(1j * np.array([direction, np.angle(tip - base)]))
        np.testing.assert_allclose(np.exp(1j * np.array([theta + relative, psi])), expected, atol=1e-12)


def test_a_loop_that_closes_the_wrong_way_round_is_flagged():
    system, start = four_bar(FOUR_BAR), jnp.array([0.7, 0.2, 1.7])
    half_turn = RigidTransform(jnp.array([0.0, 1.0, 0.0, 0.0]), marker(FOUR_BAR[2]).translation)
    wrong = eqx.tree_at(lambda s: s.constraints[0].frame_b, system, half_turn)
    found = assembled(wrong, start)
    assert float(found.residual) < 1e-12  # the equations hold, but the axes are opposite
    assert not bool(found.closed)


def along(angle, speed):
    """Coordinates and velocities of the parallelogram."""
    signs = jnp.array([1.0, -1.0, 1.0])
    return angle * signs, speed * signs


def test_acceleration_and_its_gradients_are_finite_where_a_parallelogram_is_flat():
    system = four_bar(PARALLELOGRAM, kind="spherical")  # of a planar loop it demands the same, and compiles faster

    def component(coupler, q, v):
        longer = eqx.tree_at(
            lambda s: s.constraints[0].frame_a.translation, system, coupler * jnp.array([1.0, 0.0, 0.0])
        )
        a = jaxdyn.acceleration(longer, State(q, v))
        return a @ jnp.array([1.0, 0.7, -0.3]), a

    slopes = jax.jit(jax.value_and_grad(component, (0, 1, 2), has_aux=True))
    for angle in (0.0, np.pi, 1e-12, 1e-9, 1e-6, 1e-3):
        for speed in (0.0, 2.0):
            (_, a), found = slopes(jnp.array(PARALLELOGRAM[1]), *along(angle, speed))
            assert all(np.all(np.isfinite(x)) for x in (a, *found)), (angle, speed)


def test_a_parallelogram_swings_through_its_flat_position():
    system = four_bar(PARALLELOGRAM, stabilization=20.0)

    @jax.jit
    def swing(q, v):
        saved = jaxdyn.rollout(system, State(q, v), dt=1e-3, steps=200, integrator=RungeKutta4()).saved
        return saved.q, saved.v

    energy = jax.jit(lambda q, v: jaxdyn.total_energy(system, State(q, v)))
    # Through the flat position between two steps; from it; and with a step that ends next to it.
    for start, error in ((-0.3, 1e-9), (0.0, 1e-5), (-0.0025, 1e-5)):
        q, v = map(np.asarray, swing(*along(start, 5.0)))
        assert np.all(np.isfinite(v))
        assert q[-1, 0] > 0.7
        assert gap(PARALLELOGRAM, q).max() < error
        # It does not turn into the other mode, a butterfly. Where it is flat the constraints say nothing about its acceleration.
        np.testing.assert_allclose(q[:, 1:], q[:, :1] * [-1.0, 1.0], atol=100 * error)
        if start < -0.1:
            change = energy(jnp.asarray(q[-1]), jnp.asarray(v[-1])) - energy(*along(start, 5.0))
            assert abs(float(change)) < 1e-8
