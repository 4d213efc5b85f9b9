"""A cable crane and a quadrotor with a load on a cable: plans with drives of the library, and cable forces by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline

import jaxdyn
from jaxdyn.control import ILQR, ControlProblem, Deviation, Effort, MultibodyDynamics, Plan, solve
from jaxdyn.dynamics import Actuator, Actuators, Tendon, Waypoint


def moved(system, start, goal, duration, steps, held, weights, integrator, tolerance):
    """A plan from rest to rest, which begins with the held controls, and its motion in steps of a tenth."""
    dynamics = MultibodyDynamics(system, integrator)
    costs = {"running": Effort(weights), "final": Deviation(goal, 1e4)}
    problem = ControlProblem(dynamics, start, duration=duration, steps=steps, **costs)
    still = jax.tree.map(lambda x: jnp.broadcast_to(x, (steps + 1, *x.shape)), start)
    plan = solve(problem, ILQR(), Plan(still, jnp.tile(held, (steps, 1)), jnp.zeros(0))).value
    controls, dt = jnp.repeat(plan.controls, 10, axis=0), duration / steps / 10
    run = jaxdyn.rollout(system, start, controls, dt=dt, steps=10 * steps, integrator=jaxdyn.RungeKutta4())
    np.testing.assert_allclose(run.final.q, goal.q, atol=tolerance)
    np.testing.assert_allclose(run.final.v, 0.0, atol=4.0 * tolerance)
    return run, np.asarray(plan.controls), duration / steps


@pytest.mark.thorough  # because of the compilation of solvers
def test_a_cable_crane_lifts_a_load_and_sets_it_at_rest():
    """The rope goes from a mast over the trolley to the load; a winch in the mast, of 1 kg m^2, shortens it by its angle."""
    stiffness, damping, radius, length, load = 2e4, 400.0, 0.2, 9.0, 80.0
    builder = jaxdyn.MechanismBuilder("crane")
    builder.add_body("trolley", joint=jaxdyn.Prismatic((1, 0, 0)), joint_name="rail", mass=30.0, inertia=(1, 1, 1))
    builder.add_body("drum", joint=jaxdyn.Revolute((0, 1, 0)), joint_name="winch", mass=5.0, inertia=(1, 1, 1))
    builder.add_body("load", joint=jaxdyn.Planar((0, 1, 0)), mass=load, inertia=(1, 1, 1))  # x, depth, angle
    model, line = builder.build(), (Waypoint("ground", (-1.0, 0.0, 0.0)), Waypoint("trolley"), Waypoint("load"))
    spring = {"stiffness": stiffness, "damping": damping, "rest": (0.0, length)}
    rope = jaxdyn.System(model, (Tendon.of(model, {"winch": (radius,)}, line, **spring),))
    motors = [
        Actuator("trolley", {"rail": (1.0,)}, control_range=(-2e3, 2e3)),
        Actuator("hoist", {"winch": (1.0,)}, control_range=(-400.0, 400.0)),
    ]
    crane = rope.changed(drives=Actuators.of(model, motors))

    def hanging(x, depth):
        angle = (length + 9.81 * load / stiffness - x - 1.0 - depth) / radius
        return crane.at_rest(jnp.array([x, angle, x, depth, 0.0]))

    start, goal = hanging(1.0, 4.0), hanging(4.0, 2.5)
    held, weights = 9.81 * load * jnp.array([1.0, radius]), jnp.array([1e-4, 1e-2])
    run, controls, dt = moved(crane, start, goal, 4.0, 100, held, weights, jaxdyn.RungeKutta4(), 5e-3)

    def tension(x, v):
        d, rate = x[2:4] - [x[0], 0.0], v[2:4] - [v[0], 0.0]
        n = d / np.hypot(*d)
        stretch = x[0] + 1.0 + np.hypot(*d) + radius * x[1] - length
        return stiffness * stretch + damping * (v[0] + n @ rate + radius * v[1]), n

    def rate(t, state, u):
        v = state[4:]
        pull, n = tension(state[:4], v)
        a = [(u[0] - pull + pull * n[0]) / 30.0, u[1] - radius * pull, *(-pull * n / load + [0.0, 9.81])]
        return np.append(v, a)

    states = [np.append(start.q[:4], np.zeros(4))]
    for u in controls:
        states.append(solve_ivp(rate, (0.0, dt), states[-1], args=(u,), rtol=1e-9, atol=1e-10).y[:, -1])
    states = np.array(states)
    every = jax.tree.map(lambda x: x[::10], run.saved)
    np.testing.assert_allclose(every.q[:, :4], states[:, :4], atol=1e-5)
    pulls = -jax.jit(jax.vmap(lambda state: jaxdyn.applied_forces(rope, state)))(every)[:, 1] / radius
    expected = [tension(state[:4], state[4:])[0] for state in states]
    assert min(expected) > 0.0
    assert np.ptp(expected) > 200.0  # N; the weight is 785 N
    np.testing.assert_allclose(pulls, expected, atol=0.05)


@pytest.mark.thorough  # because of the compilation of solvers
def test_a_quadrotor_carries_a_load_on_a_cable():
    """The force in the joint of the load is that on a particle with its acceleration, the second derivative of a spline."""
    hull, load, length = 1.2, 0.4, 0.8
    builder = jaxdyn.MechanismBuilder("quadrotor")
    builder.add_body("hull", joint=jaxdyn.Free(), mass=hull, inertia=(0.012, 0.012, 0.02))
    cable = {"joint": jaxdyn.Universal((1, 0, 0), (0, 1, 0)), "joint_name": "cable", "com": (0, 0, -length)}
    builder.add_body("load", parent="hull", mass=load, inertia=(0, 0, 0), **cable)
    builder.add_frame("hook", body="load", position=(0, 0, -length))
    model = builder.build()
    places, up = ((0.2, 0.0), (0.0, 0.2), (-0.2, 0.0), (0.0, -0.2)), (0.0, 0.0, 1.0)
    options = {"body": "hull", "force": up, "control_range": (0.0, 9.0)}
    rotors = [
        Actuator(str(k), point=(x, y, 0.0), torque=(0.0, 0.0, 0.015 * (-1) ** k), **options)
        for k, (x, y) in enumerate(places)
    ]
    machine = jaxdyn.System(model, drives=Actuators.of(model, rotors))
    start = machine.at_rest(jaxdyn.neutral_state(machine).q)
    goal = machine.at_rest(start.q.at[:3].set(jnp.array([1.5, -0.8, 0.5])))
    held = jnp.full(4, 9.81 * (hull + load) / 4.0)
    run, controls, _ = moved(machine, start, goal, 2.0, 40, held, jnp.ones(4), jaxdyn.SemiImplicitEuler(), 0.05)

    hooks = jax.jit(jax.vmap(lambda q: jaxdyn.frame_placement(model, q, "hook").translation))(run.saved.q)
    middle = slice(5, None, 10)  # of the intervals of the controls, where the acceleration does not jump
    accelerations = CubicSpline(run.time, hooks)(run.time[middle], 2)
    expected = load * np.linalg.norm(accelerations + np.array([0.0, 0.0, 9.81]), axis=1)
    every = jax.tree.map(lambda x: x[middle], run.saved)
    loads = jax.jit(jax.vmap(lambda state, u: jaxdyn.joint_reactions(machine, state, u)["cable"].force))(
        every, controls
    )
    assert np.ptp(expected) > 0.5  # N; the weight is 3.9 N
    np.testing.assert_allclose(np.linalg.norm(loads, axis=1), expected, atol=0.02)
