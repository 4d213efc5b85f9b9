"""Derivatives of contacts: potential of the spring force, difference quotients of steps, and finite values at singular points."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from mixed_mechanisms import every_joint, some_motion
from random_trees import close

from jaxdyn import (
    Free,
    JointServo,
    MechanismBuilder,
    Revolute,
    State,
    System,
    as_dtype,
    batched,
    configuration,
    library,
)
from jaxdyn.dynamics import (
    GroundContact,
    HeightFunction,
    HeightGrid,
    SphereContact,
    contact_sphere,
    inverse,
    kinematics,
)
from jaxdyn.dynamics.contact.shapes import ContactPoint
from jaxdyn.dynamics.equations_of_motion import acceleration_over_step

MATERIAL = {
    "stiffness": 3e3,
    "damping": 40.0,
    "friction": 0.7,
    "slip_speed": 0.05,
    "onset": 0.01,
    "torsion_radius": 0.03,
}
SURFACES = {
    "function": HeightFunction(lambda xy: 0.1 * jnp.sin(3.0 * xy[0]) * jnp.cos(2.0 * xy[1])),
    "grid": HeightGrid(0.1 * np.sin(np.arange(48.0).reshape(8, 6)), 0.5, (-2.0, -1.5)),
}


def balls(count: int = 1):
    builder = MechanismBuilder("balls")
    for i in range(count):
        builder.add_body(f"ball {i}", joint=Free(), mass=1.0 + i, inertia=0.004 * np.eye(3))
    return builder.build()


def ground_of(model, surface):
    names = [model.topology.body_name(i) for i in range(model.nb)]
    spheres = [ContactPoint(name, (0.1, -0.05 * i, 0.07), 0.05 * (i % 2)) for i, name in enumerate(names)]
    return GroundContact.of(model, spheres, surface, **MATERIAL)


def pairs_of(model, *ends):
    return SphereContact.of(
        model,
        [(ContactPoint(a, (0.1, 0.0, 0.02), 0.6), ContactPoint(b, (0.0, -0.1, 0.0), 0.5)) for a, b in ends],
        **MATERIAL,
    )


@pytest.mark.parametrize("kind", ["grid", "spheres"])
def test_force_at_rest_is_minus_the_gradient_of_the_energy_and_motion_only_dissipates(kind):
    model = every_joint()
    if kind == "spheres":
        contact = pairs_of(model, ("body 1", "body 3"), ("body 2", "body 7"), ("body 6", "ground"))
    else:
        contact = ground_of(model, SURFACES[kind])
    smooth = eqx.tree_at(lambda c: c.material.friction, contact, jnp.zeros(()))

    @jax.jit
    @jax.vmap
    def compared(q, v):
        def generalized(contact, v):
            moving = kinematics.motion(model, q, v)
            return inverse.project(model, moving.placements, contact.body_forces(model, moving, jnp.zeros(())))

        def energy(step):
            q1 = configuration.integrate(model, q, step)
            return contact.potential_energy(model, q1, kinematics.placements(model, q1))

        resting = generalized(smooth, jnp.zeros_like(v))
        value, gradient = jax.value_and_grad(energy)(jnp.zeros_like(v))
        return resting, -gradient, v @ (generalized(contact, v) - resting), value

    states = [some_motion(model, seed)[0] for seed in range(40)]
    resting, gradient, power, energy = compared(*(jnp.stack([getattr(s, name) for s in states]) for name in "qv"))
    assert np.mean(energy > 0.0) > 0.5
    close(resting, gradient, scale=float(np.max(np.abs(gradient))))
    assert np.all(power <= 1e-9 * np.max(np.abs(power)))
    assert np.any(power < 0.0)


def test_forces_of_sphere_pairs_have_no_sum_and_no_moment_about_the_ground_origin():
    model = balls(3)
    rng = np.random.default_rng(4)
    contact = pairs_of(model, ("ball 0", "ball 1"), ("ball 1", "ball 2"))
    q = jnp.asarray(np.concatenate([np.r_[0.3 * rng.normal(size=3), rng.normal(size=4)] for _ in range(3)]))
    moving = kinematics.motion(model, configuration.normalize(model, q), jnp.asarray(rng.normal(size=18)))
    acting = contact.body_forces(model, moving, jnp.zeros(()))
    about_origin = acting[:, :3] + jnp.cross(moving.placements.reference, acting[:, 3:])
    assert np.max(np.abs(acting)) > 100.0
    close(jnp.sum(acting[:, 3:], axis=0), 0.0, scale=1e4)
    close(jnp.sum(about_origin, axis=0), 0.0, scale=1e4)


def free_and_jointed():
    """A ball, and a ball with an arm: two trees."""
    builder = MechanismBuilder("two trees")
    for i in range(2):
        builder.add_body(f"ball {i}", joint=Free(), mass=1.0 + i, com=(0.01, 0.02, 0.0), inertia=0.004 * np.eye(3))
    builder.add_body(
        "arm",
        joint=Revolute((0, 1, 0)),
        parent="ball 1",
        mass=0.3,
        com=(0.1, 0.0, 0.0),
        inertia=0.002 * np.eye(3),
        position=(0.1, 0, 0),
    )
    return builder.build()


def system_with(kind: str) -> System:
    if kind == "loop":
        system = library.system("four_bar")
        names = [system.model.topology.body_name(i) for i in range(system.model.nb)]
        low = HeightFunction(lambda xy: 0.5 + 0.1 * jnp.sin(xy[0]))
        contact = GroundContact.of(
            system.model, [ContactPoint(name, (0.05, 0, 0.02), 0.1) for name in names], low, **MATERIAL
        )
        return system.changed(forces=(*system.forces, contact))
    model = free_and_jointed()
    contact = (
        pairs_of(model, ("ball 0", "arm"), ("ball 1", "ground"))
        if kind == "spheres"
        else ground_of(model, SURFACES[kind])
    )
    return System(model, (contact,))


@pytest.mark.parametrize("kind", first(1, ["spheres", "grid", "loop"]))
def test_derivatives_of_a_step_by_state_contacts_and_masses_are_difference_quotients(kind):
    system = system_with(kind)
    rng = np.random.default_rng(8)
    varied = lambda s: (s.forces[-1], s.model.mass, s.model.gravity)  # noqa: E731
    numbers, static = eqx.partition(varied(system), eqx.is_inexact_array)
    steps = jax.tree.map(lambda x: jnp.asarray(0.1 * rng.normal(size=x.shape)) * jnp.maximum(jnp.abs(x), 1e-3), numbers)
    model, count = system.model, 12
    dq, dv = jnp.asarray(rng.normal(size=(count, model.nv))), jnp.asarray(rng.normal(size=(count, model.nv)))
    neutral = configuration.neutral(model)
    q = jax.vmap(lambda step: configuration.integrate(model, neutral, step))(
        jnp.asarray(0.3 * rng.normal(size=dq.shape))
    )
    v = jnp.asarray(rng.normal(size=dv.shape))
    weights = jnp.asarray(rng.normal(size=model.nv))

    def value(s, q, v, dq, dv):
        moved = eqx.combine(jax.tree.map(lambda x, d: x + s * d, numbers, steps), static)
        at = State(configuration.integrate(model, q, s * dq), v + s * dv)
        return weights @ acceleration_over_step(eqx.tree_at(varied, system, moved), at, None, 0.0, 2e-3)

    # One program for all points, which contains the step once for each mode and not for each value of the quotients as well.
    @functools.partial(batched, in_axes=(None, 0, 0, 0, 0), backend="lanes")
    def along(s, q, v, dq, dv):
        at = lambda s: value(s, q, v, dq, dv)  # noqa: E731
        return *jax.jvp(at, (s,), (jnp.ones(()),)), jax.grad(at)(s)

    def quotient(h):
        ahead, behind = (np.asarray(along(s, q, v, dq, dv)[0]) for s in (h, -h))
        return (ahead - behind) / (2.0 * h)

    _, slope, reverse = along(0.0, q, v, dq, dv)
    wanted = (4.0 * quotient(1e-6) - quotient(2e-6)) / 3.0
    assert np.max(np.abs(slope)) > 1.0
    np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-7 * np.max(np.abs(slope)))
    close(reverse, slope, scale=100.0 * float(np.max(np.abs(slope))))


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_derivatives_are_finite_at_touch_down_at_rest_without_slip_and_for_spheres_with_one_center(dtype):
    """First and second derivatives at depth zero, where the onset ends, and without contact."""
    model = as_dtype(balls(2), jnp.dtype(dtype))
    ground = GroundContact.of(model, contact_sphere("ball 0", radius=0.1), **MATERIAL)
    same = SphereContact.of(model, [(ContactPoint("ball 0", (0, 0, 0), 0.1), ContactPoint("ball 1", (0, 0, 0), 0.1))])
    heights = np.array([0.1, 0.1 - 0.01, 0.095, 0.101, 0.2])
    # Of both balls: one at the ground and the other one far above; and both above, with one center.
    places = np.zeros((len(heights) + 1, 26), dtype)
    places[:, [3, 10]] = 1.0
    places[:, 2], places[:, 9] = [*heights, 5.0], 5.0
    direction = jnp.asarray(np.random.default_rng(1).normal(size=26), dtype)

    @jax.jit
    @jax.vmap
    def derivatives(place):
        def value(x):
            step = acceleration_over_step(System(model, (ground, same)), State(x[:14], x[14:]), None, 0.0, 1e-3)
            return jnp.sum(step**2)

        return jax.jvp(jax.value_and_grad(value), (place,), (direction,))

    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(derivatives(places)))


@pytest.mark.thorough
def test_gradients_of_ten_thousand_random_states_of_a_quadruped_are_finite():
    model = library.quadruped()
    feet = [ContactPoint(f"{leg}_foot", (0, 0, 0), 0.02) for leg in ("fl", "fr", "rl", "rr")]
    servo = JointServo(
        np.r_[np.zeros(6), np.full(12, 60.0)], np.r_[np.zeros(6), np.full(12, 2.0)], configuration.neutral(model)
    )
    system = System(model, (servo, GroundContact.of(model, feet)))
    keys = jax.random.split(jax.random.key(0), 10_000)
    q = jax.jit(jax.vmap(lambda key: configuration.random(model, key)))(keys)
    height = jax.random.uniform(jax.random.key(1), (10_000, 1), maxval=0.4)
    q = jnp.concatenate([jnp.zeros((10_000, 2)), height, q[:, 3:]], axis=1)
    v = 3.0 * jax.random.normal(jax.random.key(2), (10_000, 18))

    def of_both(q, v):
        return jax.grad(
            lambda q, v: jnp.sum(acceleration_over_step(system, State(q, v), None, 0.0, 2e-3) ** 2), (0, 1)
        )(q, v)

    assert all(np.all(np.isfinite(x)) for x in batched(of_both)(q, v))
