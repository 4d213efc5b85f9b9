"""Contacts of rims and ellipsoids: wheels roll; discs stand, tip and spin; derivatives are right where a disc lies flat."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.dynamics import (
    GroundContact,
    HalfSpace,
    HeightFunction,
    SphereContact,
    contact_cylinder,
    contact_ellipsoid,
    contact_forces,
    contact_sphere,
    contact_torus,
)
from jaxdyn.dynamics.contact.support import ON_RIM, support_point
from jaxdyn.spatial import quaternion

RADIUS, GRAVITY = 0.1, 9.81
UPRIGHT = np.sqrt(0.5) * jnp.array([1.0, -1.0, 0.0, 0.0])  # the axis of the disc is level


def disc(length: float = 0.1) -> jaxdyn.Model:
    builder = jaxdyn.MechanismBuilder("disc", gravity=(0.0, 0.0, -GRAVITY))
    across = (3.0 * RADIUS**2 + length**2) / 12.0
    builder.add_body("disc", joint=jaxdyn.Free(), mass=1.0, inertia=(across, across, 0.5 * RADIUS**2))
    return builder.build()


def on_ground(shape, surface=None, **material) -> jaxdyn.System:
    model = disc()
    return jaxdyn.System(model, (GroundContact.of(model, shape, surface, **material),))


def turned(axis, angle: float) -> jax.Array:
    return jnp.array([np.cos(0.5 * angle), *(np.sin(0.5 * angle) * np.asarray(axis, float))])


def axis_of(q) -> np.ndarray:
    return np.asarray(quaternion.to_matrix(q[3:7])[:, 2])


CYLINDER = contact_cylinder("disc", RADIUS, 0.1)
WHEELS = {
    "wheel": CYLINDER,
    "tire": contact_torus("disc", 0.08, 0.02),
    "egg": contact_ellipsoid("disc", (0.1, 0.1, 0.06)),
}


@pytest.mark.parametrize("shape", WHEELS)
@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_a_wheel_rolls_like_the_closed_form(shape, slope):
    normal = np.array([np.sin(slope), 0.0, np.cos(slope)])
    system = on_ground(WHEELS[shape], HalfSpace(normal))
    speed = 1.0
    start = jaxdyn.State(
        jnp.concatenate([jnp.asarray(0.0975 * normal), quaternion.multiply(turned((0, 1, 0), slope), UPRIGHT)]),
        jnp.array([0.0, 0.0, speed / RADIUS, speed, 0.0, 0.0]),
    )
    end = jaxdyn.rollout(system, start, dt=2e-3, steps=500).final
    right = speed + GRAVITY * np.sin(slope) / 1.5
    assert abs(float(jnp.linalg.norm(end.v[3:])) / right - 1.0) < 1e-3
    assert abs(float(end.v[2]) * RADIUS / right - 1.0) < 1e-3
    weight = contact_forces(system, end).force @ normal
    assert abs(float(weight.sum()) / (GRAVITY * np.cos(slope)) - 1.0) < 1e-3


def test_a_cylinder_stands_on_its_flat_face_and_tips_beyond_its_edge():
    system = on_ground(CYLINDER)

    @jax.jit
    @jax.vmap
    def settled(tilt):
        q = (
            jnp.zeros(7)
            .at[2]
            .set(0.12)
            .at[3]
            .set(jnp.cos(0.5 * tilt))
            .at[4:6]
            .set(jnp.sin(0.5 * tilt) * jnp.array([0.6, 0.8]))
        )
        return jaxdyn.rollout(system, system.at_rest(q), dt=2e-3, steps=1500).final

    ends = settled(jnp.array([0.0, 1e-3, 0.3, 0.7, 1.3]))
    for q, v in zip(ends.q[:4], ends.v[:4], strict=True):
        assert axis_of(q)[2] > 1.0 - 1e-9
        assert float(jnp.max(jnp.abs(v))) < 1e-9
    assert abs(axis_of(ends.q[4])[2]) < 0.01  # the diagonal is at 1.107 rad


def test_a_disc_that_lies_flat_is_braked_by_friction_at_its_rim():
    system, friction, spin = on_ground(CYLINDER, slip_speed=1e-3), 0.8, 15.0
    start = jaxdyn.State(jnp.array([0.0, 0.0, 0.0455, 1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, spin, 0.0, 0.0, 0.0]))
    end = jaxdyn.rollout(system, start, dt=1e-3, steps=50).final
    slower = friction * GRAVITY * RADIUS / (0.5 * RADIUS**2) * 0.05
    assert abs((spin - float(end.v[2])) / slower - 1.0) < 0.02


@pytest.mark.parametrize("surface", [None, HeightFunction(lambda xy: 0.3 * xy[0] ** 2 + 0.2 * xy[1] ** 2)])
def test_a_coin_rolls_in_circles_and_keeps_its_energy(surface):
    contact = {"stiffness": 2e5, "damping": 0.0, "onset": 1e-4, "slip_speed": 1e-4}
    system = on_ground(contact_cylinder("disc", RADIUS, 0.004), surface, **contact)
    lean = 0.35
    q = jnp.array([0.0, 0.0, 0.1 * np.cos(lean) + 1e-3, *quaternion.multiply(turned((1, 0, 0), lean), UPRIGHT)])
    start = jaxdyn.State(q, jnp.array([0.0, 0.0, 15.0, 1.5, 0.0, 0.0]))
    run = jaxdyn.rollout(system, start, dt=1e-4, steps=10_000, save_every=500, integrator=jaxdyn.RungeKutta4()).saved
    energy = jax.vmap(lambda q, v: jaxdyn.total_energy(system, jaxdyn.State(q, v)))(run.q, run.v)
    heading = np.array([axis_of(q) for q in run.q])
    assert np.ptp(np.unwrap(np.arctan2(heading[:, 1], heading[:, 0]))) > 1.0  # it turns
    assert np.all(heading[:, 2] < 0.95)
    assert np.ptp(energy) < 4e-3 * energy[0]


def test_the_lowest_point_makes_the_power_of_a_force_that_of_the_depth():
    rng = np.random.default_rng(0)
    for sizes in ((0.1, 0.1, 0.0), (0.3, 0.2, 0.1)):
        axes = jnp.diag(jnp.array(sizes))
        for on_rim in (None, *jnp.asarray(ON_RIM)):
            for tilt in (0.0, 1e-3, 4e-3, 0.02, 1.5):
                if tilt == 0.0 and on_rim is None and sizes[2] == 0.0:
                    continue
                angle, change = rng.uniform(0, 6), jnp.asarray(rng.normal(size=3))
                normal = jnp.array([np.sin(tilt) * np.cos(angle), np.sin(tilt) * np.sin(angle), np.cos(tilt)])
                change = change - normal * (normal @ change)

                def depth(n, axes=axes, on_rim=on_rim):
                    return -n @ support_point(axes, n, on_rim)

                _, rate = jax.jvp(depth, (normal,), (change,))
                np.testing.assert_allclose(rate, -support_point(axes, normal, on_rim) @ change, atol=1e-9)


def test_points_of_ellipsoids_and_rims_are_those_of_calculus():
    axes = jnp.diag(jnp.array([0.3, 0.2, 0.1]))
    normal = jnp.array([0.6, 0.0, 0.8])
    for on_rim in (None, *jnp.asarray(ON_RIM)):
        point = support_point(axes, normal, on_rim)
        np.testing.assert_allclose(jnp.sum((point / jnp.diag(axes)) ** 2), 1.0, rtol=1e-9)
        outward = point / jnp.diag(axes) ** 2
        np.testing.assert_allclose(outward / jnp.linalg.norm(outward), -normal, atol=1e-9)
    rim = jnp.diag(jnp.array([0.1, 0.1, 0.0]))
    flat = np.stack([support_point(rim, jnp.array([0.0, 0.0, 1.0]), on_rim) for on_rim in jnp.asarray(ON_RIM)])
    np.testing.assert_allclose(flat[:, :2], 0.1 * ON_RIM, atol=1e-12)
    for on_rim in jnp.asarray(ON_RIM):
        np.testing.assert_allclose(support_point(rim, jnp.array([0.0, 1.0, 0.0]), on_rim), [0.0, -0.1, 0.0], atol=1e-8)


def test_derivatives_are_right_where_a_disc_lies_flat():
    system = on_ground(CYLINDER)

    def acceleration(x):
        q = jnp.array([0.0, 0.0, 0.0455, 1.0, 0.0, 0.0, 0.0]).at[4:6].add(x[:2])
        return jaxdyn.acceleration(system, jaxdyn.State(q, jnp.zeros(6).at[:3].set(x[2:])))

    derive = jax.jit(jax.jacfwd(acceleration))
    step = 1e-7

    @jax.jit
    def quotients(at):
        return jax.vmap(lambda d: (acceleration(at + d) - acceleration(at - d)) / (2 * step))(step * jnp.eye(5)).T

    for tilt in (0.0, 1e-9, 2e-3, 0.3):
        at = jnp.array([tilt, 0.0, 0.0, 0.1, 0.0])
        quotient = quotients(at)
        np.testing.assert_allclose(derive(at), quotient, rtol=1e-5, atol=1e-5 * float(jnp.max(jnp.abs(quotient))))
    curved = jax.jit(jax.hessian(lambda x: acceleration(x)[0]))(jnp.zeros(5))
    assert np.all(np.isfinite(curved))


def test_spheres_among_other_shapes_act_as_alone():
    sphere, far = contact_sphere("disc", radius=0.06), contact_torus("disc", 0.05, 0.0, center=(0.0, 0.0, 9.0))
    start = jaxdyn.State(
        jnp.array([0.0, 0.0, 0.055, *turned((0.6, 0.8, 0.0), 0.4)]), jnp.array([1.0, 2.0, 3.0, 0.1, 0.2, 0.0])
    )
    alone, among = (
        jaxdyn.rollout(on_ground(shapes), start, dt=2e-3, steps=20).final for shapes in (sphere, sphere + far)
    )
    np.testing.assert_allclose(among.v, alone.v, rtol=1e-9, atol=1e-9)


def test_pairs_of_spheres_refuse_other_shapes(refusal):
    (rim, _), (sphere,) = CYLINDER, contact_sphere("ground")
    assert "rim" in refusal(ValueError, SphereContact.of, disc(), [(rim, sphere)])
