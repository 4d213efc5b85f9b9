"""Reverse-mode gradients of a rollout against central differences, for every number there is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from jax.flatten_util import ravel_pytree
from mechanisms import double_pendulum, slider_tree, swinging, swinging_tree

import jaxdyn
from jaxdyn import (
    Damper,
    Free,
    JointFriction,
    JointSpring,
    MechanismBuilder,
    Planar,
    Prismatic,
    Rheonomic,
    Screw,
    Sinusoid,
    Spherical,
    Spring,
    State,
    System,
    Universal,
    configuration,
    rollout,
)

STEPS = 200


def loaded_system() -> System:
    return System(
        slider_tree(),
        (
            Spring(1, (0.1, 0.2, -0.1), 2, (0.05, -0.1, 0.2), 20.0, 0.3),
            Spring(0, (0.0, 0.0, -0.1), -1, (0.5, 0.4, 1.0), 15.0, 0.2),
            Damper(2, (0.1, 0.0, 0.1), 0, (0.0, 0.1, 0.1), 0.6),
            JointSpring((1.0, 50.0, 2.0), (0.1, 0.0, -0.2)),
            JointFriction((0.1, 0.3, 0.05), (0.05, 0.1, 0.02), (0.3, 0.3, 0.3)),
        ),
    )


def system_of_all_joints() -> System:
    """A driven slide that carries a Cardan joint; and a free body that carries a ball, a planar joint and a screw."""
    builder = MechanismBuilder("all joints", (1.0, -2.0, -9.0))
    inertia = (0.2, 0.25, 0.3, 0.02, -0.01, 0.03)

    def add(name, parent, joint, seed):
        rng = np.random.default_rng(seed)
        position, com = rng.normal(0.0, 0.2, (2, 3))
        turn = rng.normal(size=4)
        turn /= np.linalg.norm(turn)
        mass = rng.uniform(0.6, 1.2)
        builder.add_body(
            name, parent=parent, joint=joint, position=position, orientation=turn, mass=mass, com=com, inertia=inertia
        )

    add("slide", "ground", Rheonomic(Prismatic((0.6, 0.8, 0.0)), Sinusoid(0.2, 3.0, 0.4)), 1)
    add("swing", "slide", Universal((1.0, 0.0, 0.0), (0.0, 0.6, 0.8)), 2)
    add("satellite", "ground", Free(), 3)
    add("head", "satellite", Spherical(), 4)
    add("tray", "satellite", Planar((0.0, 0.6, 0.8), (1.0, 0.0, 0.0)), 5)
    add("nut", "tray", Screw((0.0, 0.0, 1.0), 0.1), 6)
    model = builder.build()
    forces = (
        Spring(0, (0.1, 0.2, -0.1), 2, (0.05, -0.1, 0.2), 20.0, 0.3),
        Spring(3, (0.0, 0.1, -0.1), 4, (0.2, 0.0, 0.1), 15.0, 0.2),
        Damper(2, (0.1, 0.0, 0.1), 1, (0.0, 0.1, 0.1), 0.6),
        JointFriction(np.full(model.nv, 0.1), np.full(model.nv, 0.05), np.full(model.nv, 0.3)),
    )
    return System(model, forces)


def moving(model) -> State:
    rng = np.random.default_rng(7)
    step, v = jnp.asarray(rng.normal(size=(2, model.nv)))
    return State(configuration.integrate(model, configuration.neutral(model), 0.7 * step), 0.5 * v)


CASES = {
    "hinges and slider": lambda: (loaded_system(), swinging_tree()),
    "all joints": lambda: (system_of_all_joints(), moving(system_of_all_joints().model)),
}


def loss(inputs) -> jax.Array:
    """Where the tree ends up, how fast, and what the way there cost."""
    system, state, controls = inputs
    trajectory = rollout(
        system,
        state,
        controls,
        dt=0.005 if system.nu == 3 else 0.003,  # the larger mechanism is stiffer
        steps=STEPS,
        save_every=40,
        cost=lambda t, s, u, after: 1e-3 * (jnp.sum(u**2) + jnp.sum(after.v**2)),
    )
    weights = jnp.asarray(np.resize([1.0, -2.0, 0.5], state.q.size))
    return jnp.sum(weights * trajectory.final.q) + jnp.sum(trajectory.saved.v**2) * 1e-2 + trajectory.cost


@pytest.mark.parametrize("case", first(1, CASES))
def test_gradients_of_200_steps_agree_with_central_differences(case):
    system, state = CASES[case]()
    controls = 0.2 * jax.random.normal(jax.random.key(2), (STEPS, system.nu))
    flat, unravel = ravel_pytree((system, state, controls))
    gradient = jax.jit(jax.grad(lambda x: loss(unravel(x))))(flat)

    rng = np.random.default_rng(0)
    first_control = flat.size - controls.size
    # Every number of system and state, some single controls, and all controls together in random directions.
    singles = [*range(first_control), *rng.choice(np.arange(first_control, flat.size), 12, replace=False)]
    directions = np.zeros((len(singles) + 4, flat.size))
    directions[np.arange(len(singles)), singles] = 1.0
    directions[len(singles) :, first_control:] = rng.normal(size=(4, controls.size)) / np.sqrt(controls.size)

    values = jax.jit(jax.vmap(lambda direction, step: loss(unravel(flat + step * direction)), (0, None)))
    step = 2e-4
    # Central differences of fourth order: error step^4 times the fifth derivative, and rounding 1e-16/step = 1e-12.
    f = {k: values(jnp.asarray(directions), k * step) for k in (-2, -1, 1, 2)}
    central = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * step)
    reverse = directions @ np.asarray(gradient)
    changing = np.isfinite(central)  # infinite joint limits stay what they are
    assert changing.sum() > 0.8 * len(central)
    np.testing.assert_allclose(reverse[changing], central[changing], rtol=1e-6, atol=1e-8)
    influential = np.abs(central[changing]) > 1e-6
    assert influential.sum() > 100, "the test must not pass because nothing matters"


@pytest.mark.thorough
@pytest.mark.parametrize("integrator", [jaxdyn.RungeKutta4(), jaxdyn.ImplicitMidpoint()], ids=["rk4", "midpoint"])
def test_reverse_mode_agrees_with_forward_mode_for_the_other_integrators(integrator):
    """Products with vectors, not Jacobians: each derivative is compiled once."""
    system = System(double_pendulum())

    def end(mass, q):
        heavy = eqx.tree_at(lambda s: s.model.mass, system, mass)
        state = jaxdyn.State(q, swinging().v)
        return rollout(heavy, state, dt=0.01, steps=8, save_every=4, integrator=integrator).final.v

    point = (system.model.mass, swinging().q)
    direction, weights = (jnp.array([0.3, -0.8]), jnp.array([1.0, 0.4])), jnp.array([0.7, -1.1])
    forward = jax.jit(lambda p, d: jax.jvp(end, p, d)[1])(point, direction)
    reverse = jax.jit(jax.grad(lambda p: jnp.dot(weights, end(*p))))(point)
    np.testing.assert_allclose(
        sum(float(jnp.vdot(g, d)) for g, d in zip(reverse, direction, strict=True)),
        jnp.dot(weights, forward),
        rtol=1e-11,
    )


def test_second_derivative_through_time_is_right_at_rest():
    """At rest at the neutral configuration, where careless norms give NaN or zero."""
    system = System(double_pendulum())
    rest = jaxdyn.neutral_state(system)

    def end(v):
        return jnp.sum(rollout(system, jaxdyn.State(rest.q, v), dt=0.01, steps=3, save_every=3).final.q ** 3)

    # One program for the point and for those ahead and behind, each in a separate sample.
    derivatives = jax.jit(jax.vmap(lambda v, direction: jax.jvp(jax.grad(end), (v,), (direction,))))
    directions, step, at = np.eye(2), 1e-4, np.asarray(rest.v)
    points = np.concatenate([at + k * step * directions for k in (0, 1, -1)])
    gradients, seconds = map(np.asarray, derivatives(points, np.tile(directions, (3, 1))))
    hessian, central = seconds[:2], (gradients[2:4] - gradients[4:]) / (2 * step)
    assert np.all(np.isfinite(hessian))
    # The third derivative of the sum of cubes is of order (3 dt)^3 = 3e-5.
    np.testing.assert_allclose(hessian, central, atol=1e-8)
    assert np.abs(hessian).max() > 1e-6
