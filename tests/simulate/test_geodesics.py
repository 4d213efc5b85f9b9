"""Geodesics of the metric of the kinetic energy, and the covariant derivative along paths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixed_mechanisms import driven, some_motion
from random_trees import random_inertia

from jaxdyn import (
    Free,
    MechanismBuilder,
    Spherical,
    State,
    System,
    Universal,
    acceleration,
    center_of_mass,
    configuration,
    coriolis_matrix,
    kinetic_energy,
    mass_matrix,
)
from jaxdyn.dynamics import covariant_derivative
from jaxdyn.simulate import geodesic


def _arm():
    """A limb on a ball joint and a hand on a universal one."""
    rng = np.random.default_rng(8)
    builder = MechanismBuilder("arm")
    for name, parent, joint in (
        ("limb", "ground", Spherical()),
        ("hand", "limb", Universal((0.0, 0.6, 0.8), (1.0, 0.0, 0.0))),
    ):
        com, inertia = random_inertia(rng, 1.0, 0.3)
        builder.add_body(
            name, parent=parent, joint=joint, position=rng.normal(0, 0.3, 3), mass=1.0, com=com, inertia=inertia
        )
    return builder.build()


def test_geodesic_keeps_its_speed_and_transports_its_own_velocity():  # (I2), (G14)
    model = _arm()
    state, _, _ = some_motion(model, 3)
    dt = 1e-3

    @jax.jit
    def followed(q, v):
        path = geodesic(model, q, v, dt=dt, steps=1000).saved
        speed = jax.vmap(lambda q, v: kinetic_energy(model, q, v))(path.q, path.v)
        # Rates of v from central differences of order four along the path, so that no equation of motion is used.
        rates = (path.v[:-4] - 8.0 * path.v[1:-3] + 8.0 * path.v[3:-1] - path.v[4:]) / (12.0 * dt)
        inner = path.q[2:-2], path.v[2:-2]
        turned = jax.vmap(lambda q, v, rate: covariant_derivative(model, q, v, v, rate))(*inner, rates)
        return speed, turned, rates

    speed, turned, rates = followed(state.q, state.v)
    np.testing.assert_allclose(speed, speed[0], rtol=1e-9)
    np.testing.assert_allclose(turned, np.zeros((997, 5)), atol=1e-6)  # dt^4 times fifth derivatives of up to 1e5
    assert np.max(np.abs(np.asarray(rates))) > 1.0


def test_covariant_derivative_of_the_velocity_is_what_forces_cause():  # (I2)
    model = _arm()
    state, _, tau = some_motion(model, 4)

    @jax.jit
    def both(q, v, tau):
        a = acceleration(System(model), State(q, v), tau)
        raised = jnp.linalg.solve(mass_matrix(model, q), tau + _gravity_force(model, q))
        return covariant_derivative(model, q, v, v, a), raised

    derivative, raised = both(state.q, state.v, tau)
    np.testing.assert_allclose(derivative, raised, rtol=1e-11, atol=1e-11)


def _gravity_force(model, q):
    height = jax.grad(lambda step: center_of_mass(model, configuration.integrate(model, q, step)) @ model.gravity)
    return jnp.sum(model.mass) * height(jnp.zeros(model.nv))


def test_parallel_transport_keeps_lengths_and_angles():  # (G15)
    model = _arm()
    state, _, _ = some_motion(model, 5)
    fields = jnp.asarray(np.random.default_rng(6).normal(size=(2, 5)))
    steps, dt = 500, 2e-3

    def products(q, w):
        return w @ mass_matrix(model, q) @ w.T

    @jax.jit
    def carried(v, w):
        """Both fields along q(t) = integrate(q0, t v), a path on which v is constant: no geodesic."""

        @jax.jit  # traced once
        def slope(t, w):
            q = configuration.integrate(model, state.q, t * v)
            c = coriolis_matrix(model, q, v)
            return -jnp.linalg.solve(mass_matrix(model, q), c @ w.T).T

        def step(w, k):
            t = k.astype(float) * dt
            k1 = slope(t, w)
            k2 = slope(t + 0.5 * dt, w + 0.5 * dt * k1)
            k3 = slope(t + 0.5 * dt, w + 0.5 * dt * k2)
            k4 = slope(t + dt, w + dt * k3)
            return w + dt / 6.0 * (k1 + 2.0 * (k2 + k3) + k4), None

        end = jax.lax.scan(step, w, jnp.arange(steps))[0]
        last = configuration.integrate(model, state.q, steps * dt * v)
        zero = covariant_derivative(model, last, v, end[0], slope(jnp.asarray(steps * dt), end)[0])
        return products(state.q, w), products(last, end), zero, end

    before, after, zero, end = carried(state.v, fields)
    np.testing.assert_allclose(after, before, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(zero, np.zeros(5), atol=1e-12)
    assert np.max(np.abs(np.asarray(end - fields))) > 0.1


@pytest.mark.parametrize("joint", [Spherical(), Universal((0.0, 1.0, 0.0), (1.0, 0.0, 0.0))], ids=["ball", "universal"])
def test_geodesics_of_a_point_on_a_sphere_are_great_circles(joint):
    length = 0.7
    builder = MechanismBuilder("point")
    # A ball joint needs some inertia about the line to the point; it does not turn about it.
    inertia = (0.0, 0.0, 0.0) if isinstance(joint, Universal) else (1e-2, 1e-2, 1e-2)
    builder.add_body("point", joint=joint, mass=2.0, com=(0.0, 0.0, -length), inertia=inertia)
    model = builder.build()
    q = jnp.array([0.3, 0.4]) if isinstance(joint, Universal) else jnp.array([0.8, 0.3, -0.4, 0.2])
    v = jnp.array([1.5, -0.7] if isinstance(joint, Universal) else [1.5, -0.7, 0.0])

    @jax.jit
    def path(q, v):
        run = geodesic(model, q, v, dt=1e-3, steps=2000)
        return run.time, jax.vmap(lambda q: center_of_mass(model, q))(run.saved.q)

    time, points = path(q, v)
    # Through x with the velocity x' on a sphere of radius l: x cos(w t) + x'/w sin(w t), w = |x'|/l.
    start = np.asarray(points[0])
    rate = jax.jvp(
        lambda h: center_of_mass(model, configuration.integrate(model, q, h * v)), (jnp.zeros(()),), (jnp.ones(()),)
    )[1]
    omega = float(jnp.linalg.norm(rate)) / length
    angle = omega * np.asarray(time)[:, None]
    circle = start * np.cos(angle) + np.asarray(rate) / omega * np.sin(angle)
    np.testing.assert_allclose(points, circle, atol=1e-9)
    assert angle[-1] > np.pi / 2


def test_geodesic_of_a_free_body_moves_its_mass_center_straight():
    com, inertia = random_inertia(np.random.default_rng(9), 1.0, 0.3)
    builder = MechanismBuilder("free")
    builder.add_body("body", joint=Free(), mass=1.0, com=com, inertia=inertia)
    model = builder.build()
    state, _, _ = some_motion(model, 7)
    run = geodesic(model, state.q, state.v, dt=2e-3, steps=500)
    center = np.asarray(jax.vmap(lambda q: center_of_mass(model, q))(run.saved.q))
    straight = np.linspace(center[0], center[-1], 501)
    np.testing.assert_allclose(center, straight, atol=1e-9)
    assert np.linalg.norm(center[-1] - center[0]) > 0.3


def test_prescribed_motion_has_no_geodesics():
    model = driven()
    state, _, _ = some_motion(model, 1)
    with pytest.raises(ValueError, match=r"a geodesic does not support the prescribed motion in mechanism 'driven'"):
        geodesic(model, state.q, state.v, dt=0.01, steps=1)
