"""One plan for several machines: motions, costs and constraints are those of the machines, each simulated alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import pendulum

from jaxdyn import JointFriction, SemiImplicitEuler, State
from jaxdyn.control import (
    ControlProblem,
    Deviation,
    Effort,
    Equality,
    Inequality,
    MultibodyDynamics,
    ensemble,
    free_duration,
    nominal_plan,
    rollout_controls,
)
from jaxdyn.control.plan import outcome
from jaxdyn.control.tracking import follow
from jaxdyn.identify import Inputs, Plant, Sensors

STEPS = 8
GOAL = State(jnp.array([1.0]), jnp.zeros(1))
SYSTEM = pendulum()


def fast(dynamics, t, x, u):
    return x.v + 0.1 * u - 1.5


def at_goal(dynamics, t, x, u):
    return x.q - 1.0


def squared_speed(dynamics, t, x, u):
    return 0.3 * x.v @ x.v + dynamics.system.model.mass @ u**2


def reach(system=SYSTEM, **options) -> ControlProblem:
    return ControlProblem(
        MultibodyDynamics(system, SemiImplicitEuler()),
        State(jnp.array([0.2]), jnp.array([-0.1])),
        duration=0.8,
        steps=STEPS,
        running=(Effort(0.1), squared_speed),
        final=Deviation(GOAL, jnp.array([40.0, 3.0])),
        lower=-6.0,
        upper=6.0,
        constraints=Inequality(fast),
        final_constraints=Equality(at_goal),
        **options,
    )


def machines(masses=(0.7, 1.6), gains=(1.1, 0.9)) -> Plant:
    plant = Plant(SYSTEM, Sensors(jnp.array([1e-3])))

    def one(factor, gain):
        places = lambda p: (p.system.model.mass, p.inputs.gain, p.inputs.offset)  # noqa: E731
        return eqx.tree_at(places, plant, (factor * SYSTEM.model.mass, gain[None], 0.2 * gain[None]))

    return jax.vmap(one)(jnp.array(masses), jnp.array(gains))


def alone(u, gains):
    """The plans of all machines, each with its own controls that act; the first one is that of the problem."""
    problem, plants = reach(), machines()
    nominal = rollout_controls(problem, u)
    plans, moved = [nominal], eqx.filter_jit(lambda own, plan, gains: follow(own, plan, gains, own.initial))
    for k in range(2):
        plant = jax.tree.map(lambda leaf, k=k: leaf[k], plants)

        dynamics = _Acting(plant.system, SemiImplicitEuler(), inputs=plant.inputs)  # pyright: ignore[reportCallIssue]
        own = eqx.tree_at(lambda p: p.dynamics, problem, dynamics)
        plans.append(moved(own, nominal, gains))
    return plans


class _Acting(MultibodyDynamics):
    """The dynamics of a machine behind its inputs."""

    inputs: Inputs | None = None

    def step(self, x, u, t, dt):
        return super().step(x, u if self.inputs is None else self.inputs.changed(u), t, dt)


@pytest.mark.parametrize("held", [True, False])
def test_motions_costs_and_constraints_are_those_of_the_machines(held):
    u = 4.0 * jax.random.normal(jax.random.key(0), (STEPS, 1))
    gains = jnp.linspace(-9.0, -2.0, 2 * STEPS).reshape(STEPS, 1, 2) * float(held)
    plans = alone(u, gains)
    systems = [SYSTEM, *(jax.tree.map(lambda leaf, k=k: leaf[k], machines().system) for k in (0, 1))]
    judged = eqx.filter_jit(
        lambda system, plan: outcome(eqx.tree_at(lambda p: p.dynamics.system, reach(), system), plan)
    )
    outcomes = [judged(system, plan) for system, plan in zip(systems, plans, strict=True)]
    problem = ensemble(reach(), machines(), feedback=gains if held else None)
    plan = rollout_controls(problem, u)
    found = eqx.filter_jit(outcome)(problem, plan)
    for k, own in enumerate(plans):
        np.testing.assert_allclose(plan.states.q[:, k], own.states.q, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(plan.states.v[:, k], own.states.v, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.path, np.concatenate([o.path for o in outcomes], axis=1), rtol=1e-9)
    ends = np.mean([o.end for o in outcomes], axis=0)  # of the equality constraint
    costs = np.array([float(o.cost) for o in outcomes])
    np.testing.assert_allclose(found.end, ends, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.cost, costs.mean(), rtol=1e-9)
    np.testing.assert_array_equal(nominal_plan(plan).states.q, plan.states.q[:, 0])
    assert held == (np.ptp(plan.states.q[-1]) < 0.4)  # without feedback the machines come apart


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: {"plants": SYSTEM}, "the argument plants is a System"),
        (lambda p: {"plants": jax.tree.map(lambda leaf: leaf[0], p)}, "one machine without a leading axis"),
        (lambda p: {"plants": eqx.tree_at(lambda p: p.inputs.delay, p, p.inputs.delay + 0.1)}, "have delays"),
        (
            lambda p: {"problem": reach(SYSTEM.changed(forces=(JointFriction([0.1], [0.0], [0.1]),)))},
            "another structure",
        ),
        (lambda p: {"problem": reach(design=free_duration(0.8, 0.1, 2.0))}, "has design parameters"),
        (lambda p: {"feedback": jnp.zeros((STEPS, 2, 1))}, "give gains of shape"),
    ],
)
def test_mistakes(change, message):
    arguments = {"problem": reach(), "plants": machines()} | change(machines())
    with pytest.raises((TypeError, ValueError, KeyError), match=message):
        ensemble(**arguments)
