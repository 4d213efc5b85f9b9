"""Model-predictive control: each time step computes a plan over the horizon, and applies the first control vector of this plan."""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from tqdm import tqdm

from jaxdyn.compute.announcements import announced_as
from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import AnyState, ControlProblem, Controls, Dynamics, Time, check_start
from jaxdyn.control.solution import IterativeSolver
from jaxdyn.mechanism.messages import check_instance, checked_count
from jaxdyn.mechanism.quantity import check_settings, plain, quantity
from jaxdyn.simulate.controls import Controller


class RecedingHorizon(Controller):
    """Model-predictive control: at each time step a solver makes a few iterations, warm-started from the shifted previous plan.

        rollout(system, state, RecedingHorizon(problem, ILQR(), plan), dt=float(problem.dt), steps=500)

    The control step of the rollout must equal the time step of the problem. The measured state replaces the initial state of the
    problem. In costs and constraints, the time t is zero at the start of each horizon.

    Attributes:
        problem: The control problem over the horizon.
        solver: The solver that computes the plans. `MultipleShooting` needs a small `barrier` for warm starts.
        initial: The initial guess for the first time step, for example a solution of `solve`.
        max_steps: Maximum number of iterations of the solver in each time step.
    """

    problem: ControlProblem
    solver: IterativeSolver
    initial: Plan
    max_steps: int = eqx.field(static=True, converter=plain, metadata=quantity(minimum=0.0))

    def __init__(self, problem: ControlProblem, solver: IterativeSolver, initial: Plan, *, max_steps: int = 5):
        self.problem, self.solver, self.initial = problem, solver, initial
        self.max_steps = checked_count("max_steps", max_steps, 0)

    def __check_init__(self):
        check_settings(self)

    def begin(self, state: AnyState) -> Plan:
        return self.initial

    def decide(self, t: Time, state: AnyState, memory: Plan, key: PRNGKeyArray | None) -> tuple[Controls, Plan]:
        plan, _, _ = self.replan(state, memory)
        return plan.controls[0], moved_on(self.problem, plan)

    def replan(self, state: AnyState, guess: Plan) -> tuple[Plan, Int[Array, ""], Int[Array, ""]]:
        """Compute a plan that starts at a given state.

        If the solver returns controls that are not finite, the initial guess is returned instead.

        Args:
            state: The present state.
            guess: The initial guess; its first state is replaced by the present state.

        Returns:
            The plan, the `ControlResult` code of the search, and the number of iterations.
        """
        here = eqx.tree_at(lambda problem: problem.initial, self.problem, state)
        start = Plan(_with_first(guess.states, state), guess.controls, guess.design)
        found = self.solver.solve(here, start, self.max_steps)
        usable = jnp.all(jnp.isfinite(found.value.controls))
        plan = jax.tree.map(lambda new, old: jnp.where(usable, new, old), found.value, start)
        return plan, found.result, found.stats.iterations


def moved_on(problem: ControlProblem, plan: Plan) -> Plan:
    """The plan shifted by one time step, as a warm start: the first time step is dropped, the last control vector is repeated."""
    placed = problem.with_design(plan.design)
    last, u = jax.tree.map(lambda leaf: leaf[-1], plan.states), plan.controls[-1]
    after = placed.dynamics.step(last, u, placed.duration, placed.dt)
    states = jax.tree.map(lambda leaf, end: jnp.concatenate([leaf[1:], end[None]]), plan.states, after)
    return Plan(states, jnp.concatenate([plan.controls[1:], u[None]]), plan.design)


class HorizonRun(NamedTuple):
    """The motion of a plant under model-predictive control.

    Attributes:
        states: The states, with a leading axis of length steps + 1.
        controls: The controls that were applied (steps, nu).
        seconds: The computation time of each plan without compilation (s).
        iterations: The number of iterations of the solver for each plan.
        results: The `ControlResult` code of each plan. A controller that makes only a few iterations in each time step uses plans
            that have not converged.
    """

    states: Any
    controls: Float[np.ndarray, "steps nu"]
    seconds: Float[np.ndarray, "steps"]
    iterations: Int[np.ndarray, "steps"]
    results: Int[np.ndarray, "steps"]

    @property
    def rate(self) -> float:
        """The number of plans per second (Hz), from the median of the computation times of all plans."""
        return 1.0 / float(np.median(self.seconds))


@announced_as("the controller")
def run_receding_horizon(
    controller: RecedingHorizon, state: AnyState, *, steps: int, plant: Dynamics | None = None, progress: bool = True
) -> HorizonRun:
    """Simulate a plant under model-predictive control, and measure the computation time of each plan.

    The function `rollout` accepts the same controller, but cannot time single plans, because it compiles the whole simulation.

    Args:
        controller: The controller.
        state: The initial state of the plant.
        steps: The number of time steps.
        plant: The dynamics of the plant; by default the dynamics of the problem.
        progress: If true, a progress bar shows the number of plans per second.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The state has the wrong shape, or the number of steps is less than 1.
    """
    check_instance("the controller", controller, RecedingHorizon, "RecedingHorizon(problem, solver, plan)")
    check_start(controller.problem.dynamics, state, "run_receding_horizon")
    steps = checked_count("steps", steps)
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
