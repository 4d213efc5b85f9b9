"""Rolling without slip, knife edges and contact with surfaces, against closed forms and published equations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first

import jaxdyn
from jaxdyn.constraints import (
    KnifeEdge,
    Rolling,
    Touching,
    constraint_errors,
    minimal_acceleration,
    minimal_motion,
    rolling,
)
from jaxdyn.dynamics import HeightFunction, contact_ellipsoid, contact_sphere, contact_torus
from jaxdyn.io import load_archive, load_system, save_archive, save_system
from jaxdyn.spatial import quaternion

RADIUS, GRAVITY = 0.1, 9.81


def body(*inertia: float) -> jaxdyn.Model:
    builder = jaxdyn.MechanismBuilder("body", gravity=(0.0, 0.0, -GRAVITY))
    builder.add_body("body", joint=jaxdyn.Free(), mass=1.0, inertia=inertia)
    return builder.build()


def disc() -> jaxdyn.System:
    model = body(0.25 * RADIUS**2, 0.25 * RADIUS**2, 0.5 * RADIUS**2)
    return jaxdyn.System(model, constraints=rolling(model, "rim", contact_torus("body", RADIUS, 0.0)))


def rolling_state(nutation: float, precession: float, spin: float) -> jaxdyn.State:
    """A disc that rolls, with its axis at the angle `nutation` from the vertical; spin is relative to the precessing plane."""
    turn = jnp.array([np.cos(0.5 * nutation), -np.sin(0.5 * nutation), 0.0, 0.0])
    axis = np.array([0.0, np.sin(nutation), np.cos(nutation)])
    omega = precession * np.array([0.0, 0.0, 1.0]) + spin * axis
    down = np.array([0.0, np.cos(nutation), -np.sin(nutation)])
    to_body = np.asarray(quaternion.to_matrix(turn)).T
    velocity = -np.cross(omega, RADIUS * down)
    q = jnp.array([0.0, 0.0, RADIUS * np.sin(nutation), *turn])
    return jaxdyn.State(q, jnp.array([*(to_body @ omega), *(to_body @ velocity)]))


@jax.jit
def energies(system, run):
    return jax.vmap(lambda q, v: jaxdyn.total_energy(system, jaxdyn.State(q, v)))(run.q, run.v)


errors_of = jax.jit(constraint_errors)


INTEGRATORS = {  # step, and the largest change of the energy (J) of 2 J and the largest residual (m) in 1 s
    "euler": (jaxdyn.SemiImplicitEuler(), 1e-3, 2e-2, 1e-4),
    "projected": (jaxdyn.Projected(), 2e-3, 1e-7, 1e-14),
    "runge_kutta": (jaxdyn.RungeKutta4(), 2e-3, 1e-7, 1e-9),
    "midpoint": (jaxdyn.ImplicitMidpoint(), 2e-3, 2e-4, 1e-6),
    "variational": (jaxdyn.Variational(), 2e-3, 2e-4, 1e-14),
}


@pytest.mark.parametrize("name", first(2, INTEGRATORS))
def test_a_rolling_disc_keeps_its_energy_and_the_ground_with_every_integrator(name):
    integrator, dt, allowed, gap = INTEGRATORS[name]
    system, start = disc(), rolling_state(1.2, 1.0, 12.0)
    run = jaxdyn.rollout(system, start, dt=dt, steps=round(1 / dt), save_every=round(0.1 / dt), integrator=integrator)
    energy, errors = energies(system, run.saved), errors_of(system, run.final)
    assert np.ptp(energy) < allowed
    assert float(jnp.max(jnp.abs(errors.residual))) < gap
    exact = jaxdyn.rollout(system, start, dt=2.5e-4, steps=4000, integrator=jaxdyn.Projected()).final
    assert float(jnp.max(jnp.abs(run.final.q - exact.q))) < (0.05 if name == "euler" else 2e-3)


def test_a_disc_precesses_steadily_as_published():
    # Steady motion of a thin disc: 6 w p sin(t) - p^2 sin(t) cos(t) = -4 (g/r) cos(t) with the spin w about the axis in space.
    system, nutation, precession = disc(), 1.2, -3.0
    total = (precession**2 * np.sin(nutation) * np.cos(nutation) - 4.0 * GRAVITY / RADIUS * np.cos(nutation)) / (
        6.0 * precession * np.sin(nutation)
    )
    start = rolling_state(nutation, precession, total - precession * np.cos(nutation))
    run = jaxdyn.rollout(system, start, dt=1e-3, steps=2000, save_every=50, integrator=jaxdyn.Projected()).saved
    axis = np.asarray(jax.vmap(lambda q: quaternion.to_matrix(q[3:7])[:, 2])(run.q))
    np.testing.assert_allclose(axis[:, 2], np.cos(nutation), atol=1e-6)
    turned = np.unwrap(np.arctan2(axis[:, 1], axis[:, 0]))
    np.testing.assert_allclose(turned - turned[0], precession * 0.05 * np.arange(len(turned)), atol=1e-5)


def test_a_chaplygin_sleigh_moves_as_in_the_closed_form():
    mass, inertia, ahead = 2.0, 0.3, 0.4  # the center of mass is ahead of the edge
    builder = jaxdyn.MechanismBuilder("sleigh")
    builder.add_body("x", joint=jaxdyn.Prismatic((1, 0, 0)))
    builder.add_body("y", parent="x", joint=jaxdyn.Prismatic((0, 1, 0)))
    tensor = (inertia, inertia, inertia)
    builder.add_body(
        "sleigh", parent="y", joint=jaxdyn.Revolute((0, 0, 1)), mass=mass, inertia=tensor, com=(ahead, 0, 0)
    )
    system = jaxdyn.System(builder.build(), constraints=(KnifeEdge("edge", 2, (0.0, 0.0, 0.0), (0.0, 1.0, 0.0)),))
    # du/dt = a w^2, (I + m a^2) dw/dt = -m a u w: an ellipse of (u, w), along which w = w0 / cosh(k a w0 t).
    share = np.sqrt(mass / (inertia + mass * ahead**2))
    start = jaxdyn.State(jnp.zeros(3), jnp.array([0.0, 0.0, 1.5]))
    phase = share * ahead * 1.5 * 2.0
    for integrator, allowed in ((jaxdyn.Projected(), 1e-6), (jaxdyn.Variational(), 1e-4)):
        end = jaxdyn.rollout(system, start, dt=2e-3, steps=1000, integrator=integrator).final
        np.testing.assert_allclose(end.v[2], 1.5 / np.cosh(phase), rtol=allowed)
        np.testing.assert_allclose(jnp.linalg.norm(end.v[:2]), 1.5 / share * np.tanh(phase), rtol=allowed)


@pytest.mark.parametrize("shape", first(1, ["sphere", "egg"]))
def test_bodies_roll_in_a_bowl_without_loss(shape):
    shapes = {"sphere": contact_sphere("body", radius=RADIUS), "egg": contact_ellipsoid("body", (0.1, 0.08, 0.06))}
    model = body(0.004, 0.004, 0.004)
    bowl = HeightFunction(lambda xy: 0.4 * xy[0] ** 2 + 0.3 * xy[1] ** 2)
    system = jaxdyn.System(model, constraints=rolling(model, "ball", shapes[shape], surface=bowl))
    guess = system.at_rest(jnp.array([0.4, 0.1, 0.2, 0.9, 0.1, 0.3, 0.2]))
    start = system.at_rest(jaxdyn.assemble(system, guess).q)
    run = jaxdyn.rollout(system, start, dt=1e-3, steps=1000, save_every=100, integrator=jaxdyn.Projected())
    assert np.ptp(energies(system, run.saved)) < 1e-6
    assert float(jnp.linalg.norm(run.final.v[3:])) > 0.1
    assert float(jnp.max(jnp.abs(errors_of(system, run.final).residual))) < 1e-12


def test_a_sphere_rolls_down_an_incline():
    model = body(0.004, 0.004, 0.004)
    slope = jaxdyn.dynamics.HalfSpace((0.3, 0.0, 1.0))
    system = jaxdyn.System(
        model, constraints=rolling(model, "ball", contact_sphere("body", radius=RADIUS), surface=slope)
    )
    angle = np.arctan(0.3)
    q = jnp.array([RADIUS * np.sin(angle), 0.0, RADIUS * np.cos(angle), 1.0, 0.0, 0.0, 0.0])
    a = jaxdyn.acceleration(system, system.at_rest(q))
    np.testing.assert_allclose(jnp.linalg.norm(a[3:]), GRAVITY * np.sin(angle) / 1.4, rtol=1e-9)
    independent = jaxdyn.constraints.independent_velocities(system, system.at_rest(q))
    assert len(independent) == 3
    basis = minimal_motion(system, system.at_rest(q), independent).basis
    np.testing.assert_allclose(
        jaxdyn.constraints.constraint_jacobian(system, system.at_rest(q)) @ basis, 0.0, atol=1e-12
    )
    np.testing.assert_allclose(minimal_acceleration(system, system.at_rest(q), independent), a, atol=1e-9)


@pytest.mark.thorough
def test_derivatives_of_a_rolling_motion_are_exact():
    system = disc()
    start = rolling_state(1.2, 1.0, 12.0)

    def end(x, integrator):
        model = dataclasses.replace(system.model, com=system.model.com.at[0, 2].add(x[0]))
        moved = jaxdyn.project_velocity(system, jaxdyn.State(start.q, start.v.at[0].add(x[1])))
        changed = dataclasses.replace(system, model=model)
        run = jaxdyn.rollout(changed, jaxdyn.State(start.q, moved), dt=5e-3, steps=3, integrator=integrator)
        return run.final.q[:3] @ jnp.array([0.3, 0.5, 0.7])

    for integrator, derive in ((jaxdyn.Projected(), jax.grad), (jaxdyn.Variational(), jax.jacfwd)):
        step = 1e-5
        f = jax.jit(lambda x, integrator=integrator: end(x, integrator))
        quotient = [(f(d) - f(-d)) / (2 * step) for d in step * jnp.eye(2)]
        exact = jax.jit(derive(f))(jnp.zeros(2))
        np.testing.assert_allclose(exact, quotient, rtol=1e-6, atol=1e-8)
        assert float(jnp.min(jnp.abs(exact))) > 1e-6


def test_files_and_archives_keep_constraints_of_rolling(tmp_path):
    builder = jaxdyn.MechanismBuilder("body")
    builder.add_body("body", joint=jaxdyn.Free(), mass=1.0, inertia=(0.1, 0.1, 0.1))
    builder.add_frame("hub", body="body", position=(0.1, 0.2, 0.3), orientation=(0.5, 0.5, 0.5, 0.5))
    model = builder.build()
    parts = (
        *rolling(
            model, "tire", contact_torus("hub", 0.3, 0.1), surface=jaxdyn.dynamics.HalfSpace((0.1, 0.0, 1.0), 0.2)
        ),
        *rolling(model, "ball", contact_sphere("body", radius=0.1)),
        KnifeEdge("edge", 0, (0.1, 0.0, 0.0), (0.0, 0.6, 0.8)),
    )
    kinds = {kind: tuple(part for part in parts if isinstance(part, kind)) for kind in (Touching, Rolling, KnifeEdge)}
    system = jaxdyn.System(model, constraints=sum(kinds.values(), ()))
    save_system(system, tmp_path / "body.toml")
    save_archive(system, tmp_path / "body")
    for again in (load_system(tmp_path / "body.toml"), load_archive(tmp_path / "body")):
        assert jax.tree.structure(again) == jax.tree.structure(system)
        for x, y in zip(jax.tree.leaves(again), jax.tree.leaves(system), strict=True):
            np.testing.assert_array_equal(x, y)
    edge = '\n[[knife_edge]]\nname = "skate"\nbody = "hub"\ndirection = [1, 0, 0]\n'
    (tmp_path / "more.toml").write_text((tmp_path / "body.toml").read_text() + edge)
    skate = load_system(tmp_path / "more.toml").constraints[-1]
    np.testing.assert_allclose(skate.direction, [0.0, 1.0, 0.0], atol=1e-12)  # on the axes of the body
    np.testing.assert_allclose(skate.point, [0.1, 0.2, 0.3])
