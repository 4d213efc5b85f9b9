"""Model-predictive control: at every time step a plan is computed from the present state, and its first controls are applied."""

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
    """Model-predictive control: some iterations of a solver at each time step, from the last plan shifted by one step.

        rollout(system, state, RecedingHorizon(problem, ILQR(), plan), dt=float(problem.dt), steps=500)

    The control step must be that of the problem; the initial state of the problem is not used. Times in costs start at each replan.

    Attributes:
        problem: The problem over the horizon.
        solver: The solver that computes the plans.
        initial: The first plan, for example from `solve`.
        iterations: The largest number of iterations of the solver in each time step.
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
        """The plan from a state, the result code of its search, and the number of iterations."""
        here = eqx.tree_at(lambda problem: problem.initial, self.problem, state)
        start = Plan(_with_first(guess.states, state), guess.controls, guess.design)
        found = self.solver.solve(here, start, self.iterations)
        usable = jnp.all(jnp.isfinite(found.value.controls))
        plan = jax.tree.map(lambda new, old: jnp.where(usable, new, old), found.value, start)
        return plan, found.result, found.stats.iterations


def moved_on(problem: ControlProblem, plan: Plan) -> Plan:
    """The plan from its second state on, with its last controls once more at the end."""
    placed = problem.with_design(plan.design)
    last, u = jax.tree.map(lambda leaf: leaf[-1], plan.states), plan.controls[-1]
    after = placed.dynamics.step(last, u, placed.duration, placed.dt)
    states = jax.tree.map(lambda leaf, end: jnp.concatenate([leaf[1:], end[None]]), plan.states, after)
    return Plan(states, jnp.concatenate([plan.controls[1:], u[None]]), plan.design)


class HorizonRun(NamedTuple):
    """The motion of a machine under model-predictive control.

    Attributes:
        states: The states, one more than there are time steps.
        controls: The controls that were applied.
        seconds: The computation time of each plan without compilation, s.
        iterations: The number of iterations of the solver for each plan.
        results: The codes of `ControlResult`.
    """

    states: Any
    controls: Float[np.ndarray, "steps nu"]
    seconds: Float[np.ndarray, "steps"]
    iterations: Int[np.ndarray, "steps"]
    results: Int[np.ndarray, "steps"]

    @property
    def rate(self) -> float:
        """The number of plans per second that this computer can make, Hz, by the median."""
        return 1.0 / float(np.median(self.seconds))


@announced_as("the controller")
def run_receding_horizon(
    controller: RecedingHorizon, state: AnyState, *, steps: int, plant: Dynamics | None = None, progress: bool = True
) -> HorizonRun:
    """Run a machine under model-predictive control, and measure the time of each plan.

    Inside `rollout` the same controller is part of one compiled function, which cannot look at the clock.

    Args:
        controller: The controller.
        state: The initial state.
        steps: The number of time steps.
        plant: The dynamics of the machine; those of the problem if not given.
        progress: Whether to show a progress bar with the rate so far.
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
