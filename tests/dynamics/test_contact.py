"""Contact forces against scalar formulas, the secant of implicit steps, precision, and refusals."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import close

from jaxdyn import Free, MechanismBuilder, MechanismError, System, UnknownName, as_dtype
from jaxdyn.dynamics import (
    GroundContact,
    HalfSpace,
    HeightFunction,
    HeightGrid,
    contact_sphere,
    kinematics,
)
from jaxdyn.dynamics.forces.unilateral import secant_slope, unilateral_force

K, D, MU, S, W, R = 3000.0, 40.0, 0.7, 0.05, 0.01, 0.03
RADIUS = 0.1
SURFACES = {
    "plane": HalfSpace((0.2, -0.3, 1.0), 0.05),
    "function": HeightFunction(lambda xy: 0.1 * jnp.sin(3.0 * xy[0]) * jnp.cos(2.0 * xy[1])),
    "grid": HeightGrid(0.1 * np.sin(np.arange(48.0).reshape(8, 6)), 0.5, (-2.0, -1.5)),
}


def balls(count=1):
    builder = MechanismBuilder("balls")
    for i in range(count):
        builder.add_body(f"ball {i}", joint=Free(), mass=1.0 + i, inertia=0.004 * np.eye(3))
    return builder.build()


def material():
    return {"stiffness": K, "damping": D, "friction": MU, "slip_speed": S, "onset": W, "torsion_radius": R}


def at(model, q, v):
    moving = kinematics.motion(model, q, v)
    return moving, jnp.zeros(())


def expected_force(x, normal, velocity, spin):
    """Force and couple of the formulas, with Python's numbers; `normal` is a unit vector."""
    if x <= 0.0:
        return np.zeros(3), np.zeros(3)
    z = min(x / W, 1.0)
    spring = K * (W * (z**3 - z**4 / 2) + max(x - W, 0.0))
    damper = D * (3 * z**2 - 2 * z**3) * -float(normal @ velocity)
    push = damper + math.hypot(spring, damper)
    slip = velocity - (normal @ velocity) * normal
    twist = float(normal @ spin)
    scale = math.sqrt(float(slip @ slip) + (R * twist) ** 2 + S**2)
    return push * normal - MU * push * slip / scale, -MU * push * R**2 * twist / scale * normal


@pytest.mark.parametrize("gap", [-0.5 * W, -3.0 * W, 0.2 * W])
def test_force_on_a_ball_is_that_of_the_formulas(gap):
    model = balls()
    normal = np.array([0.2, -0.3, 1.0]) / math.sqrt(1.13)
    contact = GroundContact.of(model, contact_sphere("ball 0", radius=RADIUS), SURFACES["plane"], **material())
    center = normal * (0.05 + RADIUS + gap) + np.cross(normal, [0.3, 0.1, 0.7])
    spin, speed = np.array([1.0, -4.0, 2.0]), np.array([0.3, -0.1, -0.6])
    state = jnp.asarray([*center, 1.0, 0, 0, 0]), jnp.asarray([*spin, *speed])
    moving, t = at(model, *state)
    acting = contact.body_forces(model, moving, t)[0]
    arm = -RADIUS * normal
    force, couple = expected_force(-gap, normal, speed + np.cross(spin, arm), spin)
    from_center = np.asarray(moving.placements.offset[0])
    close(acting[3:], force, scale=100.0)
    close(acting[:3], couple + np.cross(arm + from_center, force), scale=100.0)


def test_secant_slope_is_the_mean_slope_of_the_effective_depth():
    def p(x):
        z = min(max(x / W, 0.0), 1.0)
        return W * (z**3 - z**4 / 2) + max(x - W, 0.0)

    ends = W * np.array([-2.0, -1e-3, 0.0, 0.3, 0.8, 1.0, 1.1, 7.0])
    for a in ends:
        for b in ends[ends != a]:
            close(secant_slope(*map(jnp.asarray, (a, b, W))), (p(b) - p(a)) / (b - a), roundings=1e5)
        z = min(max(a / W, 0.0), 1.0)
        close(secant_slope(*map(jnp.asarray, (a, a, W))), 3 * z**2 - 2 * z**3)


def test_second_derivatives_at_first_contact_are_finite_in_single_precision():
    """Powers of a force of 1e-13 N must not overflow."""

    def hessian(x):
        law = (jnp.asarray(value, x.dtype) for value in (K, D, W))
        return jax.hessian(lambda x, *law: unilateral_force(*x, *law).force)(x, *law)

    points = np.array([(depth, speed) for depth in (0.0, 2e-9, 1e-8, 1e-7, 1e-4) for speed in (0.0, 0.3)])
    single, double = (jax.vmap(hessian)(jnp.asarray(points, kind)) for kind in (jnp.float32, jnp.float64))
    np.testing.assert_allclose(single, double, rtol=1e-3, atol=1e-3 * K / W)


def test_contacts_have_the_precision_of_the_mechanism():
    model = as_dtype(balls(), jnp.float32)
    contact = GroundContact.of(model, contact_sphere("ball 0", radius=0.1), friction=0.5)
    assert {x.dtype for x in jax.tree.leaves(eqx.filter(contact, eqx.is_inexact_array))} == {np.dtype("float32")}


def test_bad_input_is_refused_with_one_line(refusal, as_a_user):
    model = balls()

    usual = contact_sphere("ball 0", radius=0.1)

    def build(surface=None, point=usual, **values):
        return System(model, (GroundContact.of(model, point, surface, **values),))

    for name in ("stiffness", "damping", "friction", "slip_speed", "onset", "torsion_radius"):
        for value in (-1.0, np.nan):
            assert name in refusal(MechanismError, build, **{name: value})
    assert "slip_speed" in refusal(MechanismError, build, slip_speed=0.0)
    assert "radii" in refusal(MechanismError, build, point=contact_sphere("ball 0", radius=-0.1))
    for surface, word in (
        (HalfSpace((0.0, 0.0, 0.0)), "normal"),
        (HalfSpace((0.0, 0.0, np.nan)), "normal"),
        (HalfSpace(height=np.nan), "height"),
        (HeightGrid(np.array([[0.0, np.nan], [0.0, 0.0]]), 0.1), "finite"),
        (HeightGrid(np.zeros((1, 5)), 0.1), "2 x 2"),
        (HeightGrid(np.zeros((3, 3)), 0.0), "spacing"),
        (HeightFunction(lambda x, y: x), "function"),
        (HeightFunction(lambda xy: xy), "function"),
    ):
        assert word in refusal(MechanismError, build, surface)
    assert "function" in refusal(TypeError, HeightFunction, 3.0)
    assert "bal" in refusal(UnknownName, build, point=contact_sphere("bal"))
    massless = eqx.tree_at(lambda m: (m.mass, m.inertia), model, (0.0 * model.mass, 0.0 * model.inertia))
    contact = GroundContact.of(model, contact_sphere("ball 0", radius=0.1))
    assert "mass" in refusal(MechanismError, System, massless, (contact,))
