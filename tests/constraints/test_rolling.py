"""Rolling without slip, knife edges and contact with surfaces, against closed forms and published equations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import control
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


def energies(system, run):
    return np.asarray(jax.vmap(lambda q, v: jaxdyn.total_energy(system, jaxdyn.State(q, v)))(run.q, run.v))


INTEGRATORS = {  # step, and the largest change of the energy (J) of 2 J and the largest residual (m) in 1 s
    "projected": (jaxdyn.Projected(), 2e-3, 1e-7, 1e-14),
    "variational": (jaxdyn.Variational(), 2e-3, 2e-4, 1e-14),
    "runge_kutta": (jaxdyn.RungeKutta4(), 2e-3, 1e-7, 1e-9),
    "midpoint": (jaxdyn.ImplicitMidpoint(), 2e-3, 2e-4, 1e-6),
    "euler": (jaxdyn.SemiImplicitEuler(), 1e-3, 2e-2, 1e-4),
}


@pytest.mark.parametrize("name", INTEGRATORS)
def test_a_rolling_disc_keeps_its_energy_and_the_ground_with_every_integrator(name):
    integrator, dt, allowed, gap = INTEGRATORS[name]
    system, start = disc(), rolling_state(1.2, 1.0, 12.0)
    run = jaxdyn.rollout(system, start, dt=dt, steps=round(1 / dt), save_every=round(0.1 / dt), integrator=integrator)
    energy, errors = energies(system, run.saved), constraint_errors(system, run.final)
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
    np.testing.assert_allclose(turned - turned[0], precession * np.asarray(run.t), atol=1e-5)


def test_a_chaplygin_sleigh_moves_as_in_the_closed_form():
    mass, inertia, ahead = 2.0, 0.3, 0.4  # the center of mass is ahead of the edge
    builder = jaxdyn.MechanismBuilder("sleigh")
    builder.add_body("sleigh", joint=jaxdyn.Planar((0, 0, 1)), mass=mass, inertia=(0, 0, inertia), com=(ahead, 0, 0))
    edge = KnifeEdge("edge", 0, (0.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    system = jaxdyn.System(builder.build(), constraints=(edge,))
    # du/dt = a w^2, (I + m a^2) dw/dt = -m a u w: an ellipse in (u, w) along which w = w0 / cosh(k w0 a (t - t0)).
    share = np.sqrt(mass / (inertia + mass * ahead**2))
    largest = 1.5  # rad/s, at t = 0, with u = 0
    model = system.model
    index = [
        int(np.argmax(np.abs(np.asarray(jax.jacobian(lambda v: quantity(model, v))(jnp.zeros(3))))))
        for quantity in (spin_of, along_of)
    ]
    v = jnp.zeros(3).at[index[0]].set(largest)
    end = jaxdyn.rollout(
        system, jaxdyn.State(jnp.zeros(model.nq), v), dt=1e-3, steps=2000, integrator=jaxdyn.Projected()
    ).final
    phase = share * ahead * largest * 2.0
    np.testing.assert_allclose(end.v[index[0]], largest / np.cosh(phase), rtol=1e-6)
    np.testing.assert_allclose(end.v[index[1]], largest / share * np.tanh(phase), rtol=1e-6)


def spin_of(model, v):
    return jaxdyn.body_velocities(model, jnp.zeros(model.nq), v).angular[0, 2]


def along_of(model, v):
    motion = jaxdyn.body_velocities(model, jnp.zeros(model.nq), v)
    return motion.linear[0, 0]


@pytest.mark.parametrize("shape", ["sphere", "egg"])
def test_bodies_roll_in_a_bowl_without_loss(shape):
    shapes = {"sphere": contact_sphere("body", radius=RADIUS), "egg": contact_ellipsoid("body", (0.1, 0.08, 0.06))}
    model = body(0.004, 0.004, 0.004)
    bowl = HeightFunction(lambda xy: 0.4 * xy[0] ** 2 + 0.3 * xy[1] ** 2)
    system = jaxdyn.System(model, constraints=rolling(model, "ball", shapes[shape], bowl))
    guess = system.at_rest(jnp.array([0.4, 0.1, 0.2, 0.9, 0.1, 0.3, 0.2]))
    start = system.at_rest(jaxdyn.assemble(system, guess).q)
    run = jaxdyn.rollout(system, start, dt=1e-3, steps=1000, save_every=100, integrator=jaxdyn.Projected())
    assert np.ptp(energies(system, run.saved)) < 1e-6
    assert float(jnp.linalg.norm(run.final.v[3:])) > 0.1
    assert float(jnp.max(jnp.abs(constraint_errors(system, run.final).residual))) < 1e-12


def test_a_sphere_rolls_down_an_incline():
    model = body(0.004, 0.004, 0.004)
    slope = jaxdyn.dynamics.HalfSpace((0.3, 0.0, 1.0))
    system = jaxdyn.System(model, constraints=rolling(model, "ball", contact_sphere("body", radius=RADIUS), slope))
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


def test_derivatives_of_a_rolling_motion_are_exact():
    system = disc()
    start = rolling_state(1.2, 1.0, 12.0)

    def end(x, integrator):
        model = dataclasses.replace(system.model, mass=system.model.mass * (1.0 + x[0]))
        moved = jaxdyn.project_velocity(system, jaxdyn.State(start.q, start.v.at[0].add(x[1])))
        changed = dataclasses.replace(system, model=model)
        run = jaxdyn.rollout(changed, jaxdyn.State(start.q, moved), dt=5e-3, steps=20, integrator=integrator)
        return run.final.q[:3]

    for integrator in (jaxdyn.Projected(), jaxdyn.Variational()):
        at, step = jnp.zeros(2), 1e-5
        f = jax.jit(lambda x, integrator=integrator: end(x, integrator))
        exact = jax.jit(jax.jacfwd(f))(at)
        quotient = np.stack([(f(at + d) - f(at - d)) / (2 * step) for d in step * jnp.eye(2)], axis=1)
        np.testing.assert_allclose(exact, quotient, atol=1e-7)
        np.testing.assert_allclose(jax.jit(jax.jacrev(f))(at), exact, atol=1e-10)


def test_files_and_archives_keep_constraints_of_rolling(tmp_path):
    builder = jaxdyn.MechanismBuilder("body")
    builder.add_body("body", joint=jaxdyn.Free(), mass=1.0, inertia=(0.1, 0.1, 0.1))
    builder.add_frame("hub", body="body", position=(0.1, 0.2, 0.3), orientation=(0.5, 0.5, 0.5, 0.5))
    model = builder.build()
    parts = (
        *rolling(model, "tire", contact_torus("hub", 0.3, 0.1), jaxdyn.dynamics.HalfSpace((0.1, 0.0, 1.0), 0.2)),
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


def test_a_car_is_parked_sideways_by_optimal_control():
    # A cart whose wheels do not slip sideways reaches a place beside it only by turning.
    builder = jaxdyn.MechanismBuilder("cart")
    builder.add_body("x", joint=jaxdyn.Prismatic((1, 0, 0)))
    builder.add_body("y", parent="x", joint=jaxdyn.Prismatic((0, 1, 0)))
    builder.add_body("cart", parent="y", joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(0.1, 0.1, 0.1))
    edge = KnifeEdge("wheels", 2, (0.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    system = jaxdyn.System(builder.build(), constraints=(edge,))
    goal = jnp.array([0.0, 0.3, 0.0])
    problem = control.Problem(
        system,
        steps=40,
        dt=0.05,
        start=jaxdyn.State(jnp.zeros(3), jnp.zeros(3)),
        running=(control.Effort(1e-3),),
        final=(control.Deviation(jaxdyn.State(goal, jnp.zeros(3)), 1e3, 1e2),),
    )
    plan = control.solve(problem, control.guess.random(problem, jax.random.key(0), 0.3)).value
    run = control.rollout_controls(problem, plan.controls)
    np.testing.assert_allclose(run.states.q[-1], goal, atol=0.02)
    heading = run.states.q[:, 2]
    slip = -jnp.sin(heading) * run.states.v[:, 0] + jnp.cos(heading) * run.states.v[:, 1]
    assert float(jnp.max(jnp.abs(slip))) < 1e-2
    assert float(jnp.max(jnp.abs(heading))) > 0.2
