"""Steps of adaptive length, by the solvers of diffrax (extra "adaptive").

The solvers of diffrax treat coordinates as vectors. The result is correct, because dq/dt is that of
`configuration.coordinate_rate`, and a quaternion whose norm has drifted still represents the same rotation: all formulas of jaxdyn
divide by the norm.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.display import known
from jaxdyn.dynamics.doors import check_masses
from jaxdyn.dynamics.equations_of_motion import (
    acceleration_and_multipliers,
    correction_over_step,
    instant,
    moved_states,
    stopped_rates,
)
from jaxdyn.dynamics.system import State, System, check_drive_states, check_state, check_system
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import check_instance, checked_count
from jaxdyn.simulate.controls import Controls, Policy, Step, as_controls
from jaxdyn.simulate.outcome import RolloutResult, report
from jaxdyn.simulate.trajectory import Trajectory
from jaxdyn.simulate.violations import equation_groups, start_errors


def rollout_adaptive(
    system: System,
    state: State,
    controls: Controls | Policy | None = None,
    *,
    times: Float[Array, "records"],
    solver: Any = None,
    rtol: float = 1e-8,
    atol: float = 1e-8,
    max_steps: int = 4096,
    throw: bool = True,
) -> Trajectory:
    """Simulate with error control and record the states at given times. Use `jax.vmap` for batches.

    Args:
        system: Mechanism with its forces.
        state: State at times[0].
        controls: Knots, or a function policy(t, state, key), which is called with the key None at every evaluation of the solver;
            None for no controls. Near discontinuities of knots the solver takes short steps; smooth knots (interpolation="cubic")
            are fastest.
        times: Times of the records, s, in ascending or descending order.
        solver: ODE solver of diffrax; by default `diffrax.Dopri8()`.
        rtol, atol: Allowed error per step, relative and absolute (rad, m, rad/s, m/s, and 1 for quaternions).
        max_steps: Maximum number of steps. A sample that needs more steps ends with `RolloutResult.STEP_FAILED`; the remaining
            records of the sample are infinite.
        throw: If true, an error is raised if no sample of the batch reaches its end, see `rollout`.

    Returns:
        `Trajectory` of states with unit quaternions; `steps` is the number of accepted steps. Reverse-mode derivatives are those of
        `diffrax.RecursiveCheckpointAdjoint`.

    Raises:
        ImportError: diffrax is not installed.
        RolloutError: `throw` is true, and no sample reached its end.
        ValueError: State or controls have the wrong shape.
    """
    try:
        import diffrax
    except ImportError:
        raise ImportError('rollout_adaptive needs diffrax; install it with pip install "jaxdyn[adaptive]"') from None
    check_system(system, "rollout_adaptive")
    check_masses(system.model, "rollout_adaptive")
    check_state(system, state, "rollout_adaptive")
    check_drive_states(system, state.z)
    max_steps = checked_count("max_steps", max_steps)
    _check_times(times)
    model = system.model
    source = as_controls(controls, system, state, None)
    memory = source.begin(state)

    # Steps vary in length, so errors of constraints decay at the rate of the record interval instead.
    interval = (times[-1] - times[0]) / max(1, times.shape[0] - 1)

    def rates(t, y: State, _) -> State:
        time = jnp.asarray(t, y.v.dtype)
        u = source.in_force(Step(jnp.zeros((), int), time, None, None), y, memory)[0](time)
        now = instant(system, y, time)
        a, _ = acceleration_and_multipliers(system, now, u, correction_over_step(system, now, interval))
        return State(configuration.coordinate_rate(model, y.q, y.v), a, stopped_rates(system, y, u))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rates),
        diffrax.Dopri8() if solver is None else solver,
        times[0],
        times[-1],
        None,
        State(state.q, state.v, moved_states(system, state.z)),
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol, atol),
        max_steps=max_steps,
        throw=False,
    )
    found: Any = solution.ys
    z = None if found.z is None else jax.vmap(lambda z: moved_states(system, z))(found.z)
    saved = State(jax.vmap(lambda q: configuration.normalize(model, q))(found.q), found.v, z)
    good = solution.result == diffrax.RESULTS.successful
    result = jnp.where(good, RolloutResult.SUCCESSFUL.value, RolloutResult.STEP_FAILED.value).astype(jnp.int32)
    final = jax.tree.map(lambda x: x[-1], saved)
    steps, topology = solution.stats["num_accepted_steps"].astype(jnp.int32), model.topology
    groups = equation_groups(system)
    errors = start_errors(system, state, times[0], 0.0) if groups else None
    result = report(result, steps, final.v, topology, throw, groups, errors)
    return Trajectory(times, saved, final, None, result, steps, topology)


def _check_times(times: Any) -> None:
    """Raise an error unless the times of the records are an array with one axis, in ascending or descending order if known."""
    check_instance("times", times, jax.Array | np.ndarray, "an array, jnp.asarray(times)")
    if times.ndim != 1 or not times.size:
        raise ValueError(f"times has shape {times.shape}; give one time per record, shape (records,)")
    values = known(times)
    if values is None:
        return
    steps = np.diff(values)
    if not (np.all(steps >= 0) or np.all(steps <= 0)):
        raise ValueError("times are not in order; sort them, jnp.sort(times)")
