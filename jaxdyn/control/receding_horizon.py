"""Receding horizon: a plan is made anew at every step of time from where the machine is, and its first controls are applied."""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from tqdm import tqdm

from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import AnyState, ControlProblem, Controls, Dynamics, Time
from jaxdyn.control.solution import IterativeSolver
from jaxdyn.lanes.announcements import announced_as
from jaxdyn.simulate.controls import Controller


class RecedingHorizon(Controller):
    """Model-predictive control: some iterations of a solver at each step, from the last plan moved on by one step.

        rollout(system, state, RecedingHorizon(problem, ILQR(), plan), dt=float(problem.dt), steps=500)

    The control step has to be that of the problem, whose own initial state does not matter. Times in costs count from now.

    Attributes:
        problem: over the horizon.
        solver: makes the plans.
        initial: the first plan; make it by `solve`.
        iterations: of the solver in each step, at most.
    """

    problem: ControlProblem
    solver: IterativeSolver
    initial: Plan
    iterations: int = eqx.field(static=True, default=5)

    def begin(self, state: AnyState) -> Plan:
        return self.initial

    def decide(self, t: Time, state: AnyState, memory: Plan, key: PRNGKeyArray | None) -> tuple[Controls, Plan]:
        plan, _, _ = self.replan(state, memory)
        return plan.controls[0], moved_on(self.problem, plan)

    def replan(self, state: AnyState, guess: Plan) -> tuple[Plan, Int[Array, ""], Int[Array, ""]]:
        """The plan from a state, how it ended and after how many iterations."""
        here = eqx.tree_at(lambda problem: problem.initial, self.problem, state)
        start = Plan(_with_first(guess.states, state), guess.controls, guess.design)
        found = self.solver.solve(here, start, self.iterations)
        usable = jnp.all(jnp.isfinite(found.value.controls))
        plan = jax.tree.map(lambda new, old: jnp.where(usable, new, old), found.value, start)
        return plan, found.result, found.stats.iterations


def moved_on(problem: ControlProblem, plan: Plan) -> Plan:
    """The plan from its second state on, its last controls held once more."""
    placed = problem.with_design(plan.design)
    last, u = jax.tree.map(lambda leaf: leaf[-1], plan.states), plan.controls[-1]
    after = placed.dynamics.step(last, u, placed.duration, placed.dt)
    states = jax.tree.map(lambda leaf, end: jnp.concatenate([leaf[1:], end[None]]), plan.states, after)
    return Plan(states, jnp.concatenate([plan.controls[1:], u[None]]), plan.design)


class HorizonRun(NamedTuple):
    """A machine under receding-horizon control.

    Attributes:
        states: with one entry more than there are steps.
        controls: applied.
        seconds: that each plan took, compilation left out.
        iterations: of the solver for each plan.
        results: codes of `ControlResult`.
    """

    states: Any
    controls: Float[np.ndarray, "steps nu"]
    seconds: Float[np.ndarray, "steps"]
    iterations: Int[np.ndarray, "steps"]
    results: Int[np.ndarray, "steps"]

    @property
    def rate(self) -> float:
        """Plans per second that this machine can make, Hz, by the median."""
        return 1.0 / float(np.median(self.seconds))


@announced_as("the controller")
def run_receding_horizon(
    controller: RecedingHorizon, state: AnyState, *, steps: int, plant: Dynamics | None = None, progress: bool = True
) -> HorizonRun:
    """Run a machine under receding-horizon control, and take the time of each plan.

    Inside `rollout` the same controller is part of one compiled function, which cannot look at the clock.

    Args:
        plant: the machine; the dynamics of the problem if not given.
        progress: whether to show a bar with the rate so far.
    """
    problem, placed = controller.problem, controller.problem.with_design(controller.initial.design)
    machine = placed.dynamics if plant is None else plant
    replan = jax.jit(lambda x, guess: controller.replan(x, guess)).lower(state, controller.initial).compile()
    onward = eqx.filter_jit(lambda plan: moved_on(problem, plan))
    advance = eqx.filter_jit(lambda x, u, t: machine.step(x, u, t, placed.dt))
    guess, states, controls, seconds, iterations, results = controller.initial, [state], [], [], [], []
    with tqdm(total=steps, unit="plan", disable=not progress) as bar:
        for k in range(steps):
            start = time.perf_counter()
            plan, result, count = jax.block_until_ready(replan(state, guess))
            seconds.append(time.perf_counter() - start)
            u = plan.controls[0]
            state = advance(state, u, jnp.asarray(k, u.dtype) * placed.dt)
            guess = onward(plan)
            states.append(state)
            controls.append(np.asarray(u))
            iterations.append(int(count))
            results.append(int(result))
            bar.set_postfix_str(f"{1.0 / seconds[-1]:.0f} Hz", refresh=False)
            bar.update()
    joined = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)
    return HorizonRun(joined, np.stack(controls), np.array(seconds), np.array(iterations), np.array(results))


def _with_first(states: AnyState, first: AnyState) -> AnyState:
    return jax.tree.map(lambda leaf, value: leaf.at[0].set(value), states, first)
