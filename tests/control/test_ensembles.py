"""One plan for several machines: motions, costs and constraints are those of the machines, each simulated alone."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import pendulum, solved

from jaxdyn import JointFriction, SemiImplicitEuler, State
from jaxdyn.control import (
    ControlProblem,
    ControlResult,
    Deviation,
    Effort,
    Equality,
    Inequality,
    MultibodyDynamics,
    MultipleShooting,
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


@pytest.mark.parametrize(("of", "held"), [("mean", True), ("worst", False)])
def test_motions_costs_and_constraints_are_those_of_the_machines(of, held):
    u = 4.0 * jax.random.normal(jax.random.key(0), (STEPS, 1))
    gains = jnp.linspace(-9.0, -2.0, 2 * STEPS).reshape(STEPS, 1, 2) * float(held)
    plans = alone(u, gains)
    systems = [SYSTEM, *(jax.tree.map(lambda leaf, k=k: leaf[k], machines().system) for k in (0, 1))]
    judged = eqx.filter_jit(
        lambda system, plan: outcome(eqx.tree_at(lambda p: p.dynamics.system, reach(), system), plan)
    )
    outcomes = [judged(system, plan) for system, plan in zip(systems, plans, strict=True)]
    problem = ensemble(reach(), machines(), feedback=gains if held else None, of=of)
    plan = rollout_controls(problem, u, jnp.array([0.25]) if of == "worst" else None)
    found = eqx.filter_jit(outcome)(problem, plan)
    states = plan.states[0] if of == "worst" else plan.states
    for k, own in enumerate(plans):
        np.testing.assert_allclose(states.q[:, k], own.states.q, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(states.v[:, k], own.states.v, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.path, np.concatenate([o.path for o in outcomes], axis=1), rtol=1e-9)
    ends = np.mean([o.end for o in outcomes], axis=0)  # of the equality constraint
    costs = np.array([float(o.cost) for o in outcomes])
    ends = ends if of == "mean" else np.concatenate([ends, costs - 0.25])
    np.testing.assert_allclose(found.end, ends, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.cost, costs.mean() if of == "mean" else 0.25, rtol=1e-9)
    np.testing.assert_array_equal(nominal_plan(plan).states.q, states.q[:, 0])
    assert held == (np.ptp(states.q[-1]) < 0.4)  # without feedback the machines come apart


@pytest.mark.thorough
def test_the_plan_of_the_worst_machine_has_the_smallest_largest_cost():
    free = dataclasses.replace(reach(), constraints=(), final_constraints=())
    problem = ensemble(free, machines(), of="worst")
    found = solved(problem, MultipleShooting(), rollout_controls(problem, jnp.zeros((STEPS, 1))), max_steps=80)
    assert found.result == ControlResult.SUCCESSFUL

    @jax.jit
    @jax.vmap
    def largest(u):
        return jnp.max(outcome(problem, rollout_controls(problem, u)).end)

    steps = jax.random.normal(jax.random.key(1), (200, STEPS, 1)) * 10.0 ** jnp.linspace(-3.0, 0.0, 200)[:, None, None]
    best, *others = largest(found.value.controls[None] + jnp.concatenate([0.0 * steps[:1], steps]))
    np.testing.assert_allclose(best, found.value.design[0], rtol=1e-5)
    assert min(others) > best


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
        (lambda p: {"of": "median"}, "cost of an ensemble"),
    ],
)
def test_mistakes(change, message):
    arguments = {"problem": reach(), "plants": machines()} | change(machines())
    with pytest.raises((TypeError, ValueError, KeyError), match=message):
        ensemble(**arguments)
