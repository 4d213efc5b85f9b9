"""Friction and servos that the default integrator takes at the end of its step: stable at any strength and length of the step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives
from first_cases import first
from mixed_mechanisms import every_joint
from random_trees import random_motion

import jaxdyn
from jaxdyn import (
    AppliedForce,
    JointFriction,
    JointServo,
    LoadFriction,
    MechanismBuilder,
    MechanismError,
    Revolute,
    SemiImplicitEuler,
    State,
    StribeckFriction,
    System,
    bias_force,
    configuration,
    mass_matrix,
    rollout,
)
from jaxdyn.dynamics import AsymmetricFriction, QuadraticDrag
from jaxdyn.dynamics.equations_of_motion import acceleration_over_step
from jaxdyn.dynamics.forces.friction import BearingFriction
from jaxdyn.simulate import RolloutResult

INERTIA = 1e-4
# Step lengths from far below to far above what an explicit step of the stiffest friction below could take.
STEPS = 10.0 ** np.arange(-7.0, 4.0)


def wheel(inertia: float = INERTIA):
    builder = MechanismBuilder("wheel", gravity=(0.0, 0.0, 0.0))
    builder.add_body("wheel", joint=Revolute((0, 0, 1)), mass=1.0, inertia=(inertia,) * 3)
    return builder.build()


def velocity_after_step(system: System):
    """(q, v, dt) -> v' of one step, over all pairs of speeds and step lengths, compiled."""

    def step(q, v, dt):
        state = State(jnp.full(1, q), jnp.full(1, v))
        return SemiImplicitEuler().step(system, state, lambda t: None, jnp.zeros(()), dt)[0].v[0]

    return jax.jit(jax.vmap(jax.vmap(step, (None, None, 0)), (None, 0, None)))


SCALAR_FRICTION = {
    "viscous": JointFriction([10.0], [0.0], [1.0]),
    "coulomb": JointFriction([0.0], [1.0], [1e-3]),
    "stribeck": StribeckFriction([3.0], [0.05], [1e-3]),
    "asymmetric": (JointFriction([1.0], [1.0], [1e-3]), AsymmetricFriction([0.9], [-0.9], [1e-3])),
    "load": LoadFriction([2.0], [1e-3], [0.5]),
    "bearing": BearingFriction([0.3], [1e-3], [0.5]),
    "drag": QuadraticDrag([5.0]),
}


def test_steps_of_the_test_equation_are_those_of_the_implicit_method_at_any_stiffness():
    v = np.array([-3.0, 1e-3, 2.0])
    after = velocity_after_step(System(wheel(), (SCALAR_FRICTION["viscous"],)))(0.0, v, STEPS)
    # v' = v / (1 + dt d/J), |v'| < |v| for all dt: unconditional stability.
    # v' = v + dt a rounds to the precision of v.
    np.testing.assert_allclose(after, v[:, None] / (1.0 + STEPS * 10.0 / INERTIA), rtol=1e-12, atol=2e-15)


@pytest.mark.parametrize("kind", SCALAR_FRICTION)
def test_friction_slows_down_and_never_reverses_at_any_length_of_the_step(kind):
    force = SCALAR_FRICTION[kind]
    system = System(wheel(), force if isinstance(force, tuple) else (force,))
    v = np.concatenate([-(10.0 ** np.arange(-6.0, 4.0)), 10.0 ** np.arange(-6.0, 4.0)])
    after, at_rest = np.split(np.asarray(velocity_after_step(system)(0.0, np.append(v, 0.0), STEPS)), [-1])
    after = after / v[:, None]
    assert np.all(after >= -1e-15)  # v' = v + dt a rounds to the precision of v
    assert np.all(after <= 1.0)
    assert np.any(after < 0.01)
    np.testing.assert_array_equal(at_rest, 0.0)


def test_a_joint_under_less_load_than_its_friction_creeps_below_the_velocity_scale_at_any_length_of_the_step():
    load, scale = 0.6, 1e-3
    system = System(wheel(), (JointFriction([0.0], [1.0], [scale]),))

    def end(dt):
        start = State(jnp.zeros(1), jnp.full(1, 5.0))  # brought to rest first
        return rollout(system, start, lambda t, state, key: jnp.full(1, load), dt=dt, steps=400).final.v[0]

    creep = np.asarray(jax.jit(jax.vmap(end))(jnp.asarray(STEPS[STEPS >= 1e-3])))
    np.testing.assert_allclose(creep, scale * np.arctanh(load), rtol=1e-6)


@pytest.mark.parametrize("damping", [0.0, 1.0, 100.0])
def test_a_servo_is_stable_at_any_length_of_the_step_and_comes_to_its_target(damping):
    target = 0.7
    system = System(wheel(), (JointServo([50.0], [damping], [target]),))

    def run(dt):
        start = State(jnp.zeros(1), jnp.full(1, 2.0))
        return rollout(system, start, dt=dt, steps=3000, save_every=100)

    runs = jax.jit(jax.vmap(run))(jnp.asarray(STEPS))
    assert np.all(np.asarray(runs.result) == RolloutResult.SUCCESSFUL)
    # The energy of servo and wheel never exceeds that of the start.
    energy = 0.5 * INERTIA * runs.saved.v[..., 0] ** 2 + 25.0 * (runs.saved.q[..., 0] - target) ** 2
    assert np.all(np.asarray(energy) <= float(energy[0, 0]) * (1.0 + 1e-12))
    settled = (STEPS >= 1e-3) & (100.0 * damping / (3000 * 50.0) < STEPS)  # the other runs are too short
    np.testing.assert_allclose(np.asarray(runs.final.q)[settled, 0], target, atol=1e-9)


def test_a_servo_exerts_pd_control_within_its_effort():
    model = every_joint()
    rng = np.random.default_rng(4)
    (q, v, _), (target, _, _) = random_motion(rng, model), random_motion(rng, model)
    k, d = rng.uniform(1.0, 20.0, (2, model.nv))
    exerted = jax.jit(
        lambda effort: jaxdyn.applied_forces(System(model, (JointServo(k, d, target, effort),)), State(q, v))
    )
    wanted = k * np.asarray(jax.jit(configuration.difference)(model, q, target)) - d * np.asarray(v)
    np.testing.assert_allclose(exerted(None), wanted, rtol=1e-12)
    effort = np.full(model.nv, np.median(np.abs(wanted)))
    bounded = exerted(effort)
    np.testing.assert_allclose(bounded, np.clip(wanted, -effort, effort), rtol=1e-12)
    assert 0 < np.sum(np.abs(wanted) > effort) < model.nv


def test_a_servo_at_its_bound_accelerates_as_the_bound_says():
    system = System(wheel(), (JointServo([1e4], [10.0], [1.0], [0.5]),))
    after = velocity_after_step(system)(0.0, np.zeros(1), STEPS)
    np.testing.assert_allclose(after[0], STEPS * 0.5 / INERTIA, rtol=1e-12)


def test_a_servo_that_does_not_fit_the_mechanism_is_refused():
    for wrong in (
        JointServo([1.0] * 2, [1.0], [0.0]),
        JointServo([1.0], [1.0], [0.0] * 2),
        JointServo([1.0], [1.0], [0.0], [1.0] * 2),
    ):
        with pytest.raises(MechanismError, match=r"JointServo.*shape"):
            System(wheel(), (wrong,))


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["cholesky", "articulated_body"])
def test_a_step_solves_the_linearly_implicit_equations_for_all_joints(method):
    model = every_joint(armature=True)
    rng = np.random.default_rng(9)
    q, v, _ = random_motion(rng, model)
    k, d, b = rng.uniform(0.5, 20.0, (3, model.nv))
    target, scale, dt = random_motion(rng, model)[0], np.full(model.nv, 0.1), 0.03
    forces = (JointServo(k, d, target), JointFriction(b, np.zeros(model.nv), scale))
    system = System(model, forces, method=method)

    @jax.jit
    def computed(q, v):
        a = acceleration_over_step(system, State(q, v), None, 0.0, jnp.asarray(dt))
        return a, jaxdyn.applied_forces(system, State(q, v)) - bias_force(model, q, v), mass_matrix(model, q), v

    a, force, mass, v = map(np.asarray, computed(q, v))
    expected = np.linalg.solve(mass + np.diag(dt * (d + b) + dt**2 * k), force - dt * k * v)  # (I12)
    np.testing.assert_allclose(a, expected, rtol=1e-9, atol=1e-9)


def test_a_step_with_loops_solves_the_same_equations_with_multipliers():
    system = jaxdyn.library.four_bar()
    nv = system.model.nv
    state = State(jnp.asarray([0.3] * nv), jnp.asarray(np.random.default_rng(2).normal(size=nv)))
    state = State(jaxdyn.assemble(system, state).q, state.v)
    damped = dataclasses.replace(system, forces=(*system.forces, JointFriction([3.0] * nv, [0.0] * nv, [1.0] * nv)))
    dt = 0.05

    @jax.jit
    def computed(state):
        q, v = state.q, state.v
        rows = jaxdyn.constraints.constraint_jacobian(system, system.at_rest(q))
        wanted = jnp.arange(1.0, rows.shape[0] + 1.0)
        a = acceleration_over_step(damped, state, None, 0.0, jnp.asarray(dt), correction=wanted)
        undamped = jaxdyn.acceleration(system, state, correction=wanted)
        force = jaxdyn.applied_forces(damped, state) - bias_force(system.model, q, v)
        return rows, a, undamped, force, mass_matrix(system.model, q)

    rows, a, undamped, force, mass = map(np.asarray, computed(state))
    # What is left of the equation of motion is a force of the constraints, and the rows of G accelerate as wanted.
    rest = (mass + np.diag([dt * 3.0] * nv)) @ a - force
    lam, *_ = np.linalg.lstsq(rows.T, rest, rcond=None)
    np.testing.assert_allclose(rows.T @ lam, rest, atol=1e-6 * np.max(np.abs(rest)))
    assert np.max(np.abs(rest)) > 0.1
    np.testing.assert_allclose(rows @ a, rows @ undamped, rtol=1e-6, atol=1e-9)
    assert np.max(np.abs(a - undamped)) > 0.1


def light_wrist() -> System:
    """An arm of two links and a wrist with the inertia, damping and friction that vendors give for small wrists."""
    builder = MechanismBuilder("arm")
    for k, (mass, length, inertia) in enumerate(((2.0, 0.3, 0.02), (1.0, 0.3, 0.01), (0.1, 0.0, 1e-4))):
        builder.add_body(
            f"link {k}",
            parent=f"link {k - 1}" if k else "ground",
            joint=Revolute((0, 1, 0)),
            position=(0.3, 0, 0) if k else (0, 0, 0),
            mass=mass,
            com=(0.5 * length, 0, 0),
            inertia=(inertia,) * 3,
        )
    return System(builder.build(), (JointFriction([10.0] * 3, [1.0] * 3, [0.01] * 3),))


@pytest.mark.parametrize(
    ("backend", "dtype"),
    first(3, [("lanes", jnp.float32), ("lanes", jnp.float64), ("xla", jnp.float32), ("xla", jnp.float64)]),
)
def test_an_arm_with_a_light_wrist_diverges_with_explicit_damping_and_does_not_with_implicit_damping(backend, dtype):
    rng = np.random.default_rng(3)
    system, states = jaxdyn.as_dtype((light_wrist(), State(*map(jnp.asarray, rng.normal(size=(2, 32, 3))))), dtype)

    def run(damping):
        def sample(state):
            integrator = SemiImplicitEuler(damping)
            return rollout(system, state, dt=1e-3, steps=300, save_every=300, integrator=integrator, backend=backend)

        return jax.jit(jax.vmap(sample))(states)

    explicit, implicit = run("explicit"), run("implicit")
    assert not np.any(explicit.healthy)
    assert np.max(np.asarray(explicit.steps)) <= 10
    assert np.all(implicit.healthy)
    assert implicit.final.v.dtype == dtype
    assert np.max(np.abs(np.asarray(implicit.final.v))) < 1.0  # damped within some hundredths of a second


def test_without_resisting_forces_both_forms_make_the_same_steps():
    model = every_joint()
    q, v = (jnp.asarray(x) for x in random_motion(np.random.default_rng(6), model)[:2])
    system = System(model, (AppliedForce(model.nb - 1, [0.1, 0.0, 0.2], [3.0, -1.0, 2.0], [0.1, 0.2, 0.3], True),))

    @jax.jit
    def both(state):
        return [
            SemiImplicitEuler(damping).step(system, state, lambda t: None, jnp.zeros(()), jnp.asarray(1e-3))[0].v
            for damping in ("implicit", "explicit")
        ]

    np.testing.assert_array_equal(*both(State(q, v)))


@pytest.mark.thorough
def test_derivatives_of_a_step_are_those_of_difference_quotients_at_rest_and_in_motion():
    model = wheel(0.3)
    rng = np.random.default_rng(12)

    @jax.jit
    def step(x):
        forces = (JointFriction(x["b"], x["c"], x["scale"]), JointServo(x["k"], x["b"], x["q"] + 1.0))
        state = State(x["q"], x["v"])
        new, _ = SemiImplicitEuler().step(System(model, forces), state, lambda t: None, jnp.zeros(()), x["dt"])
        return jnp.concatenate([new.q, new.v])

    x = {name: jnp.asarray(rng.uniform(0.5, 1.5, 1)) for name in ("b", "c", "scale", "k", "q")}
    velocities = np.zeros(1), rng.normal(size=1)
    check_derivatives(step, *(x | {"v": jnp.asarray(v), "dt": jnp.asarray(0.1)} for v in velocities), orders=2)


def test_steps_backward_against_friction_converge_to_the_motion():
    system = System(jaxdyn.library.pendulum(), (JointFriction([0.0], [0.3], [1e-2]),))
    start = State(jnp.array([-0.43]), jnp.array([0.3]))

    def end(steps, integrator=None):
        found = rollout(system, start, dt=-0.05 / steps, steps=steps, integrator=integrator or SemiImplicitEuler())
        return jnp.concatenate([found.final.q, found.final.v])

    exact = end(500, jaxdyn.RungeKutta4())
    errors = np.array([np.abs(end(steps) - exact).max() for steps in (1, 5, 25)])
    assert errors[0] < 0.05
    assert np.all(errors[1:] < 0.5 * errors[:-1])


def test_derivatives_in_steady_sliding_are_finite_in_single_precision():
    model = dataclasses.replace(jaxdyn.library.pendulum(), gravity=jnp.zeros(3))
    system = jaxdyn.as_dtype(System(model, (JointFriction([0.0], [0.02], [1e-3]),)), jnp.float32)

    def of_speed(v):
        return acceleration_over_step(system, State(jnp.zeros(1, v.dtype), v), None, 0.0, 1e-4)

    speeds = jnp.geomspace(1e-3, 20.0, 1000, dtype=jnp.float32)[:, None]
    assert jnp.all(jnp.isfinite(jax.jit(jax.vmap(jax.jacfwd(of_speed)))(speeds)))


@pytest.mark.usefixtures("as_a_user")
def test_an_unknown_form_of_damping_is_refused():
    with pytest.raises(ValueError, match=r"damping of SemiImplicitEuler 'both'.*explicit"):
        SemiImplicitEuler("both")  # pyright: ignore[reportArgumentType]
