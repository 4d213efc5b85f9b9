"""Rollouts: many steps of one system from one state. Use `jax.vmap` over states, controls and models for batches.

Memory of reverse mode. Intermediate results of a step are not stored. Reverse mode keeps the states at the records and, between two
records, only the states that the backward pass currently needs. With N steps, a record every n-th step, and S values in the carried
state (nq + nv + 2 and the accumulated cost), reverse mode keeps at most

    (N/n + max(128, 3 sqrt(n)) + 2) S values plus the intermediate results of one step.

Reverse mode evaluates each step at most three additional times. So a rollout with a record only at the end (n = N) keeps about 2
sqrt(N) states.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

import jaxdyn.compute as compute
from jaxdyn.compute import Backend, stored_outside_jit
from jaxdyn.compute.arrays import on_device
from jaxdyn.display import Display, Displayed, array_text, known, number_text, plural, view
from jaxdyn.dynamics.doors import check_masses
from jaxdyn.dynamics.energy import kinetic_energy
from jaxdyn.dynamics.equations_of_motion import total_potential_energy
from jaxdyn.dynamics.system import State, System, check_drive_states, check_state, check_system
from jaxdyn.dynamics.wrenches import Wrenches, checked_wrenches, with_wrenches
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.components import coordinate_names, velocity_names
from jaxdyn.mechanism.messages import check_function, check_instance, checked_count, described
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import plain
from jaxdyn.mechanism.topology import Topology
from jaxdyn.results import outcome_text
from jaxdyn.simulate.controls import Controls, Feedback, Knots, NoControls, Policy, Step, as_controls
from jaxdyn.simulate.diagnostics import work_of_step
from jaxdyn.simulate.integrators import Control, Integrator, SemiImplicitEuler, check_integrator
from jaxdyn.simulate.outcome import RolloutResult, describe, reached_end, report
from jaxdyn.simulate.violations import equation_groups, start_errors

Time = Float[Array, ""]


_MOST_SHOWN = 12  # samples in a figure
_MOST_ANIMATED = 4  # samples in a moving picture
_SMALL_ERROR = 1.0  # % of the energy turned over

# Loops of at most this many steps keep all their carries during their backward pass.
_SHORT = 128


class Trajectory(Displayed, eqx.Module):
    """Result of a rollout.

    Attributes:
        time: Times of the records, s.
        saved: Records of the start and of T later times, with leading axis T+1; states unless `save` is given.
        final: State at the end.
        cost: Sum of the stage costs, or None.
        result: Code of `RolloutResult`.
        steps: Number of steps after which each sample ended.
        topology: Topology of the mechanism.
        backend: Compiler of the rollout, "lanes" (the lane compiler) or "xla".
        passive: Whether the rollout is known to have had no controls.
    """

    time: Float[Array, "*batch records"]
    saved: PyTree
    final: State
    cost: PyTree
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]
    topology: Topology = eqx.field(static=True)
    backend: str = eqx.field(static=True, default="xla")
    passive: bool = eqx.field(static=True, default=False, converter=plain)

    @property
    def healthy(self) -> Bool[Array, "*batch"]:
        """Mask of the samples that completed their steps or met their stop condition.

        If all samples failed, a loss that is summed only over healthy samples is zero, and so seems perfect. Therefore assign a
        large loss to the failed samples: `jnp.where(trajectory.healthy, loss, worst)`.
        """
        return reached_end(self.result)

    def describe(self, *, system: System | None = None) -> str:
        """Summary of the outcomes: counts, time and place of the first failure, and the remedy. This method is not available under
        `jit`.

            print(trajectory.describe(system=system))

        Args:
            system: The system that was simulated, with the same values for all samples. With it, the summary contains the largest
                error of the power balance, in J and as a share of the largest kinetic energy or of the dissipated energy, if this
                is larger. It needs states as records, a rollout without controls, and records of all steps if there are forces
                that are not conservative.

        Raises:
            TypeError: A system is given, and the records are not states.
        """
        text = describe(np.asarray(self.result), np.asarray(self.steps), np.asarray(self.final.v), self.topology)
        return text if system is None else f"{text} {self._power_balance(system)}"

    def _power_balance(self, system: System) -> str:
        """Error of the power balance in words, or the way to compute it."""
        time, *records = (jnp.asarray(x) for x in self._records(None, None))
        acts = system.drives is not None and system.drives.driven is None  # without controls, as servos do
        dissipates = acts or not all(force.conservative for force in system.forces)
        coarse = dissipates and time.shape[1] <= np.max(self.steps)
        if coarse or not self.passive or configuration.is_prescribed(system.model):
            return "The power balance needs the work of forces and controls: simulate with cost=work_of_step(system)."

        def of_sample(t: Array, states: State) -> tuple[Array, Array]:
            kinetic = jax.vmap(lambda state: kinetic_energy(system.model, state.q, state.v))(states)
            energy = kinetic + jax.vmap(lambda state: total_potential_energy(system, state))(states)
            before, after = (jax.tree.map(lambda x, part=part: x[part], states) for part in (slice(-1), slice(1, None)))
            work = jax.vmap(work_of_step(system), (0, 0, None, 0))(t[:-1], before, None, after) if dissipates else 0.0
            turnover = jnp.maximum(jnp.max(kinetic), jnp.sum(jnp.abs(work)))
            return energy[-1] - energy[0] - jnp.sum(work), turnover

        error, turnover = map(np.asarray, jax.jit(jax.vmap(of_sample))(time, State(*records)))
        worst = np.argmax(np.abs(error))
        share = 100.0 * abs(error[worst]) / max(turnover[worst], np.finfo(turnover.dtype).tiny)
        place = f" in sample {worst}" if error.size > 1 else ""
        remedy = "; a shorter dt or an integrator of higher order decreases it" if share > _SMALL_ERROR else ""
        return f"Power balance error: {error[worst]:.2g} J{place}, {share:.2g} % of the energy turned over{remedy}."

    def plot(self, *, samples: Sequence[int] | None = None) -> Any:
        """Plot every coordinate and velocity over time, with the first sample in color; a notebook displays the figure.

            trajectory.plot().savefig("motion.png")

        Args:
            samples: Indices of the samples, see `to_dataframe`; the first 12 if not given.

        Returns:
            A figure of matplotlib.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
            TypeError: The records are not states.
            IndexError: An index in `samples` is not that of a sample.
        """
        draw = view("motion_plot")
        time, q, v, *_ = self._records(samples, _MOST_SHOWN)
        title = f"{self.topology.name}: {outcome_text(RolloutResult, self.result)}"
        return draw(self.topology, time, q, v, title=title)

    def animate(
        self,
        system: System | Model,
        path: Path | str | None = None,
        *,
        samples: Sequence[int] | None = None,
        fps: float = 30,
        speed: float = 1.0,
        size: int = 540,
        progress: bool = True,
        visuals: Sequence[Any] = (),
    ) -> Any:
        """Animate the motion of the mechanism, with the first sample in color; a notebook displays the animation.

            trajectory.animate(system, "motion.gif")

        Args:
            system: The mechanism, whose geometry the trajectory does not contain; for a `System`, the loops, the ground and
                the contact forces are drawn too.
            path: File with the suffix .gif or .mp4; None for a GIF that is not saved.
            samples: Indices of the samples, see `to_dataframe`; the first 4 if not given.
            fps: Frames per second.
            speed: Speed of the animation; 1 is the real speed, 0.5 is half of it.
            size: Width and height in pixels.
            progress: If true, a progress bar is shown.
            visuals: Shapes of the bodies of the first sample, see `jaxdyn.io.load_visuals`.

        Returns:
            A `jaxdyn.view.Animation`.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
            TypeError: The records are not states.
            IndexError: An index in `samples` is not that of a sample.
            ValueError: The trajectory belongs to another mechanism, or the samples have different times.
            ConfigError: The suffix of the file name is not .gif or .mp4, ffmpeg is missing, or the file cannot be written.
        """
        draw = view("animation_of")
        model = system.model if isinstance(system, System) else system
        if model.topology != self.topology:
            raise ValueError(
                f"the trajectory belongs to mechanism {self.topology.name!r}, and the given mechanism {model.name!r} is different; "
                "give the system that was simulated"
            )
        time, q, v, *_ = self._records(samples, _MOST_ANIMATED)
        if np.any(time != time[:1]):
            raise ValueError("the samples have different times; animate one of them, samples=[0] for instance")
        return draw(system, time[0], q, path, fps=fps, speed=speed, size=size, progress=progress, visuals=visuals, v=v)

    def to_dataframe(self) -> Any:
        """Convert the records to a pandas `DataFrame` with one row for each record of each sample.

        The columns are `time` (s), `sample`, and the coordinates `q_NAME` and velocities `v_NAME` by the names of their joints. If
        a joint has several of them, the name of the column contains a label, as in `q_base.x`, or an index. States of drives, if
        there are any, are `z_0`, `z_1`, ... Samples are numbered from 0; several axes of a batch are flattened in row-major order.

        Raises:
            ModuleNotFoundError: pandas is not installed.
            TypeError: The records are not states.
        """
        time, q, v, *z = self._records(None, None)
        columns = {"time": time.ravel(), "sample": np.repeat(np.arange(len(time)), time.shape[1])}
        for letter, names, values in (("q", coordinate_names, q), ("v", velocity_names, v)):
            columns |= {f"{letter}_{name}": values[..., k].ravel() for k, name in enumerate(names(self.topology))}
        columns |= {f"z_{k}": x[..., k].ravel() for x in z for k in range(x.shape[-1])}
        return data_frame(columns, "Trajectory")

    def _records(self, samples: Sequence[int] | None, most: int | None) -> tuple[np.ndarray, ...]:
        """Times (samples, T), coordinates, velocities, and states of drives if there are any, of some samples; of the first `most`
        if none are given.

        Raises:
            TypeError: The records are not states.
            IndexError: An index in `samples` is not that of a sample.
        """
        if not isinstance(self.saved, State):
            raise TypeError(
                f"the records are of type {type(self.saved).__name__}; simulate with the default of `save`, which records states"
            )
        count = math.prod(np.shape(self.result))
        wrong = [k for k in (() if samples is None else samples) if not 0 <= k < count]
        if wrong or (samples is not None and not len(samples)):
            what = f"there is no sample {wrong[0]}" if wrong else "samples is empty"
            raise IndexError(f"{what}; give indices from 0 to {count - 1}")
        chosen = slice(most) if samples is None else list(samples)
        arrays = map(np.asarray, (self.time[..., None], *jax.tree.leaves(self.saved)))
        time, *states = (x.reshape(count, *x.shape[-2:])[chosen] for x in arrays)
        return time[..., 0], *states

    def _display(self) -> Display:
        *batch, records = np.shape(self.time) or (0,)
        parts = [repr(self.topology.name), *([plural(math.prod(batch), "sample", "samples")] if batch else [])]
        rows = {"result": outcome_text(RolloutResult, self.result)}
        if len(batch) > 1:
            rows["batch"] = f"shape {tuple(batch)}"
        rows |= {"time": number_text(self.time, "s"), "steps": number_text(self.steps), "dt": self._step_text()}
        rows |= {"saved": array_text(self.saved), "backend": self.backend}
        if self.cost is not None:
            rows["cost"] = array_text(self.cost)
        return Display(f"Trajectory({', '.join([*parts, plural(records, 'record', 'records')])})", rows)

    def _step_text(self) -> str:
        """Mean length of a step (s) of the first sample that completed its steps."""
        time, steps, result = known(self.time), known(self.steps), known(self.result)
        if time is None or steps is None or result is None or not np.any(result == RolloutResult.SUCCESSFUL):
            return "unknown"
        first = np.argmax(np.ravel(result) == RolloutResult.SUCCESSFUL)
        span = np.ptp(time.reshape(-1, time.shape[-1])[first])
        return f"{span / np.ravel(steps)[first]:.6g} s"


def save_state(t: Time, state: State, u: Float[Array, "nu"] | None) -> State:
    """The default record of `rollout`: the state."""
    return state


def rollout(
    system: System,
    state: State,
    controls: Float[Array | np.ndarray, "steps nu"] | Policy | Controls | None = None,
    *,
    dt: float | Float[Array, ""],
    steps: int,
    integrator: Integrator = SemiImplicitEuler(),  # noqa: B008 (immutable)
    substeps: int = 1,
    save_every: int = 1,
    save: Callable[[Time, State, Any], PyTree] = save_state,
    cost: Callable[[Time, State, Any, State], PyTree] | None = None,
    stop: Callable[[Time, State], Array] | None = None,
    key: PRNGKeyArray | None = None,
    t0: float | Float[Array, ""] = 0.0,
    wrenches: Wrenches | None = None,
    divergence_limit: float = 1e6,
    throw: bool = True,
    backend: Backend | None = None,
) -> Trajectory:
    """Simulate `steps` steps of length dt from `state`.

        trajectory = jax.jit(lambda s: rollout(system, s, dt=1e-3, steps=2000))(state)

    Args:
        system: Mechanism, forces and drives.
        state: Initial state.
        controls: None; an array with one row per step, constant during the step; `Knots`, a function of time; a policy
            u = policy(t, state, key), evaluated at the start of each step and constant during it; or a `Controller`, a policy with
            a memory.
        dt: Duration of a control step, s; negative to simulate backward in time.
        integrator: One-step method.
        substeps: Number of integrator steps per control step.
        save_every: Number of steps between records; it must divide `steps`.
        save: Function record(t, state, u) that returns a pytree of arrays, where u are the controls at t.
        cost: Function cost(t, state, u, next_state) that returns a pytree of values, which are summed over the steps; for booleans,
            the sum is the number of true values.
        stop: Function condition(t, state) that is evaluated after each step; a sample that satisfies the condition keeps its state
            until the end of the rollout.
        key: Random key of the policy: step k receives fold_in(key, k).
        t0: Time of the initial state, s.
        wrenches: External moments (N m) about the origins of bodies or frames, followed by the forces (N), on ground axes: for the
            name of each such body or frame an array with one row per step, which acts during the step.
        divergence_limit: Largest allowed velocity (rad/s, m/s). A sample that exceeds this limit has diverged and keeps its last
            valid state. The derivative of a diverged sample is meaningless but finite, so that a mask can exclude it from a sum. If
            the sample overflowed within a single step, the derivative is NaN.
        throw: If true, an error is raised if no sample of the batch reaches its end; if false, this is a warning, too. Inside of
            `jit` there is neither, and only the result codes state how the samples ended.
        backend: Compiler of the rollout, see `jaxdyn.backend`; by default the one of the context. The lane compiler makes the whole
            rollout one kernel. Values of the system that are known while tracing are compiled into the kernel as constants.

    Returns:
        `Trajectory`. Reverse-mode differentiation uses checkpoints; the docstring of `jaxdyn.simulate.trajectory` states the memory
        bound.

    Warns:
        DivergenceWarning: Some samples did not reach their end; the message describes the first failure and the remedy. Under `jit`
            there is no warning.
        ConstraintWarning: The initial state violates a constraint; the message names the constraint, its error and the remedy:
            `assemble` or `project_velocity`. Under `jit` there is no warning.

    Raises:
        RolloutError: `throw` is true, and no sample reached its end; the message names the `RolloutResult` and the remedy.
        ValueError: Wrong shapes of state or controls, or `save_every` does not divide `steps`.
        CannotFlatten: The backend is "lanes", and the lane compiler does not support the rollout.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        system = jaxdyn.library.system("acrobot")
        start = system.at_rest(jnp.array([1.0, 0.0]))
        trajectory = jaxdyn.rollout(system, start, dt=0.01, steps=100)
        ```
    """
    check_system(system, "rollout")
    steps, substeps, save_every = (
        checked_count(name, value)
        for name, value in (("steps", steps), ("substeps", substeps), ("save_every", save_every))
    )
    if steps % save_every:
        raise ValueError(f"save_every = {save_every} does not divide steps = {steps}; choose a divisor")
    dt, t0 = _duration("dt", dt), _duration("t0", t0)
    if isinstance(dt, float) and not 0.0 < abs(dt) < float("inf"):
        raise ValueError(f"dt is {dt} s; give a finite duration other than zero")
    groups = equation_groups(system)
    options = {
        "integrator": integrator,
        "substeps": substeps,
        "save_every": save_every,
        "save": save,
        "cost": cost,
        "stop": stop,
        "divergence_limit": divergence_limit,
    }
    with compute.backend(backend):
        counts = steps, bool(groups)
        saved, end, errors, served = _rollout(system, state, controls, dt, t0, key, wrenches, counts, options)
    topology, result = system.model.topology, end.result
    if not compute.within_jit():  # else the result is a part of a larger program, and known only there
        result = report(result, end.steps, end.state.v, topology, throw, groups, errors)
    times = _times(t0, dt, steps, save_every, end.state.v.dtype)
    passive = isinstance(controls, NoControls | None) and not wrenches
    return Trajectory(times, saved, end.state, end.cost, result, end.steps, topology, served.backend, passive)


def data_frame(columns: dict[str, np.ndarray], owner: str) -> Any:
    """A pandas `DataFrame` of columns.

    Args:
        columns: Values by the name of the column.
        owner: Name of the class that is converted, for the message.

    Raises:
        ModuleNotFoundError: pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        remedy = "install it with pip install pandas"
        raise ModuleNotFoundError(f"{owner}.to_dataframe needs pandas; {remedy}", name="pandas") from None
    return pandas.DataFrame(columns)


def _check_call(arguments: tuple, _: dict) -> None:
    """Check the arguments of `_rollout` that the caller has not checked."""
    system, state, controls, _, _, key, _, (steps, _), options = arguments
    check_masses(system.model, "rollout")
    check_state(system, state, "rollout")
    check_drive_states(system, state.z)
    check_integrator(options["integrator"])
    _check_functions(state, options["save"], options["cost"], options["stop"])
    if key is not None:
        configuration.check_key(key)
    _check_precision(system, state, as_controls(controls, system, state, steps, key))


@functools.partial(stored_outside_jit, check=_check_call, of_one_sample=True)
def _rollout(
    system: System,
    state: State,
    controls: Any,
    dt: float | Array,
    t0: float | Array,
    key: PRNGKeyArray | None,
    wrenches: Wrenches | None,
    counts: tuple[int, bool],
    options: dict[str, Any],
) -> tuple[PyTree, "_Carry", Array | None, compute.Served]:
    """The records and the final data of a rollout, and the errors of the constraints at its start if they are wanted.

    Args:
        system, state, controls, dt, t0, key, wrenches: See `rollout`.
        counts: Number of steps, and whether the errors are wanted.
        options: Fields of `_Loop`.
    """
    steps, is_start_checked = counts
    source, pushes = as_controls(controls, system, state, steps, key), checked_wrenches(system, wrenches, steps)

    def simulate(state: State, controls: Controls, dt, t0, key, pushes) -> tuple[PyTree, _Carry, Array | None]:
        dt, t0 = jnp.asarray(dt, state.v.dtype), jnp.asarray(t0, state.v.dtype)
        loop = _Loop(system, controls, dt, dt / options["substeps"], t0, key, pushes, **options)
        return *loop.run(state, steps), start_errors(system, state, t0, loop.h) if is_start_checked else None

    (saved, end, errors), served = compute.run(simulate, (state, source, dt, t0, key, pushes), name="rollout")
    return saved, end, errors, compute.Served(served)


def _times(t0: Any, dt: Any, steps: int, save_every: int, dtype: Any) -> Float[Array, "records"]:
    """Times of the records, s."""
    counts = np.arange(0, steps + 1, save_every).astype(dtype)
    if any(isinstance(x, Tracer) for x in (t0, dt)):
        return jnp.asarray(t0, dtype) + counts * jnp.asarray(dt, dtype)
    return on_device(np.asarray(t0, dtype) + counts * np.asarray(dt, dtype))


class _Carry(eqx.Module):
    """The data that are carried from each step to the next one."""

    state: State
    cost: PyTree
    result: Int[Array, ""]
    steps: Int[Array, ""]
    memory: PyTree


@dataclasses.dataclass(frozen=True, eq=False)
class _Loop:
    """The steps of one rollout. The fields are arguments of `rollout`, and the length h of a step of the integrator."""

    system: System
    controls: Controls
    dt: Time
    h: Time
    t0: Time
    key: PRNGKeyArray | None
    wrenches: Wrenches | None
    integrator: Integrator
    substeps: int
    save_every: int
    save: Callable
    cost: Callable | None
    stop: Callable | None
    divergence_limit: float | Array

    def run(self, state: State, steps: int) -> tuple[PyTree, _Carry]:
        """Compute all records, including those of the start and the end, and the data after the last step."""
        schedule = (np.arange(steps), self.controls.rows(), self.wrenches)
        carry = self.start(state, schedule)
        blocks = jax.tree.map(lambda x: x.reshape(-1, self.save_every, *x.shape[1:]), schedule)
        if steps == self.save_every:
            # A single block does not need a checkpoint, because its inner loop has checkpoints.
            carry, only = self.block(carry, jax.tree.map(lambda x: x[0], blocks))
            records = jax.tree.map(lambda x: jnp.asarray(x)[None], only)
        else:
            carry, records = jax.lax.scan(jax.checkpoint(self.block, prevent_cse=False), carry, blocks)
        last = self.record(jnp.asarray(steps), jax.tree.map(lambda x: x[-1], schedule[1]), carry)
        return jax.tree.map(lambda r, x: jnp.concatenate([r, jnp.asarray(x)[None]]), records, last), carry

    def start(self, state: State, schedule: PyTree) -> _Carry:
        """The data that the first step receives."""
        memory, cost, zero = self.controls.begin(state), None, jnp.zeros((), jnp.int32)
        if self.cost is not None:
            index, row = jnp.zeros((), int), jax.tree.map(lambda x: x[0], schedule[1])
            u = self.in_force(index, row, state, memory)[0](self.t0)
            shapes = jax.eval_shape(self.cost, self.t0, state, u, state)
            cost = jax.tree.map(lambda s: jnp.zeros(s.shape, jnp.int32 if s.dtype == bool else s.dtype), shapes)
        return _Carry(state, cost, zero, zero, memory)

    def block(self, carry: _Carry, schedule: PyTree) -> tuple[_Carry, PyTree]:
        """The steps from one record to the next, and the record at their start."""
        index, row, _ = jax.tree.map(lambda x: x[0], schedule)
        record = self.record(jnp.asarray(index), row, carry)
        return _checkpointed_loop(self.advance, carry, schedule, self.save_every), record

    def advance(self, carry: _Carry, scheduled: tuple[Array, PyTree, Wrenches | None]) -> _Carry:
        """One control step; a sample that has ended is held."""
        index, row, wrenches = scheduled
        t, state = self.time(index), carry.state
        control, memory = self.in_force(index, row, state, carry.memory)
        new, solved = self.substep(with_wrenches(self.system, wrenches), state, control, t)
        healthy = _is_healthy(self.system, state, new, self.divergence_limit)
        running = carry.result == RolloutResult.SUCCESSFUL
        good = running & healthy & solved
        # A held sample keeps a state from which every later (discarded) step is finite.
        kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, state)
        total = carry.cost
        if self.cost is not None:
            stage = self.cost(t, state, control(t), kept)
            total = jax.tree.map(lambda c, s: c + jnp.where(good, s, jnp.zeros_like(s)).astype(c.dtype), total, stage)
        failure = jnp.where(healthy, RolloutResult.STEP_FAILED.value, RolloutResult.DIVERGED.value)
        result = jnp.where(running & ~good, failure, carry.result)
        if self.stop is not None:
            result = jnp.where(good & self.stop(self.time(index + 1), kept), RolloutResult.STOPPED.value, result)
        return _Carry(kept, total, result, carry.steps + good.astype(jnp.int32), memory)

    def substep(self, system: System, state: State, control: Control, t: Time) -> tuple[State, Bool[Array, ""]]:
        """The state after all steps of the integrator within a control step, and whether all of them succeeded."""
        if self.substeps == 1:
            return self.integrator.step(system, state, control, t, self.h)

        def body(carry, k):
            state, solved = carry
            state, ok = self.integrator.step(system, state, control, t + k.astype(t.dtype) * self.h, self.h)
            return (state, solved & ok), None

        start = (state, jnp.asarray(True))
        return jax.lax.scan(jax.checkpoint(body, prevent_cse=False), start, jnp.arange(self.substeps))[0]

    def record(self, index: Array, row: PyTree, carry: _Carry) -> PyTree:
        """The record at the start of a step."""
        control, _ = self.in_force(index, row, carry.state, carry.memory)
        return self.save(self.time(index), carry.state, control(self.time(index)))

    def in_force(self, index: Array, row: PyTree, state: State, memory: PyTree) -> tuple[Control, PyTree]:
        step = Step(index, self.time(index), row, self.key, self.dt, self.integrator.order)
        return self.controls.in_force(step, state, memory)

    def time(self, index: Array) -> Time:
        return self.t0 + index.astype(self.dt.dtype) * self.dt


def _duration(name: str, x: Any) -> float | Array:
    """A duration as an array, or as a Python float, which is a constant of the code within `jit`.

    Raises:
        TypeError: The value is not a duration.
    """
    if isinstance(x, int | float):
        return float(x)
    check_instance(name, x, np.number | np.ndarray | Array, "a float, in seconds")
    return x if isinstance(x, jax.Array) else on_device(x)


def _check_functions(state: State, save: Any, cost: Any, stop: Any) -> None:
    """Check the functions that a user gives to a rollout.

    Raises:
        TypeError: A function does not take the required arguments.
        ValueError: `stop` does not return a boolean.
    """
    functions = {"save": (save, "t, state, u"), "cost": (cost, "t, state, u, next_state"), "stop": (stop, "t, state")}
    for name, (function, arguments) in functions.items():
        if function is not None:
            check_function(f"the function {name}", function, arguments)
    if stop is None:
        return
    found = jax.eval_shape(stop, jax.ShapeDtypeStruct((), state.v.dtype), state)
    if getattr(found, "shape", None) != () or found.dtype != bool:
        given = f"{found.dtype} of shape {found.shape}" if hasattr(found, "shape") else described(found)
        raise ValueError(f"the function stop returns {given}; return one boolean, for example by jnp.any")


def _check_precision(system: System, state: State, controls: Controls) -> None:
    """Check that all arguments have the same precision; otherwise JAX would raise an error inside of the loop.

    Raises:
        ValueError: The message names the types and `as_dtype`.
    """
    # The times of knots are converted where they are used, and a policy answers for itself.
    given = controls.values if isinstance(controls, Knots) else None if isinstance(controls, Feedback) else controls
    named = {"system": system, "state": state, "controls": given}
    found = {
        name: sorted({str(x.dtype) for x in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array))})
        for name, part in named.items()
    }
    if len({dtype for dtypes in found.values() for dtype in dtypes}) > 1:
        listed = "; ".join(f"{name}: {' and '.join(dtypes)}" for name, dtypes in found.items() if dtypes)
        raise ValueError(f"mixed precision ({listed}); convert with jaxdyn.as_dtype, jnp.float32 for instance")


def _is_healthy(system: System, old: State, new: State, limit: float | Array) -> Array:
    # Large but finite numbers are caught before they overflow, so that the discarded step does not poison derivatives with NaN.
    step = configuration.difference(system.model, old.q, new.q)
    good = jnp.all(jnp.abs(new.v) < limit) & jnp.all(jnp.abs(step) < limit) & jnp.all(jnp.isfinite(new.q))
    return good if new.z is None else good & jnp.all(jnp.isfinite(new.z))


def _checkpointed_loop(advance, carry: PyTree, schedule: PyTree, length: int) -> PyTree:
    """Scan with checkpointed reverse mode: apply advance(carry, step) to the `length` steps along the leading axis of `schedule`.

    A long loop is divided into segments of about sqrt(length) steps. Reverse mode keeps the carry at the start of each segment and,
    while it processes a segment, the carries within it. A short loop is one segment, because each level costs compile time.
    """
    step = jax.checkpoint(lambda carry, x: (advance(carry, x), None), prevent_cse=False, policy=compute.KEEPS)
    stretch = length if length <= _SHORT else _stretch_length(length)

    def run(carry, part):
        return jax.lax.scan(step, carry, part)[0]

    whole, rest = divmod(length, stretch)
    if whole == 1:
        carry = run(carry, jax.tree.map(lambda x: x[:stretch], schedule))
    else:
        parts = jax.tree.map(lambda x: x[: whole * stretch].reshape(whole, stretch, *x.shape[1:]), schedule)
        outer = jax.checkpoint(lambda carry, part: (run(carry, part), None), prevent_cse=False)
        carry = jax.lax.scan(outer, carry, parts)[0]
    return run(carry, jax.tree.map(lambda x: x[whole * stretch :], schedule)) if rest else carry


def _stretch_length(length: int) -> int:
    """A segment length near sqrt(length), if possible a divisor of `length`, so that no loop is compiled for the remainder."""
    root = max(1, math.isqrt(length))
    near = [d for d in range(root, max(1, root // 2) - 1, -1) if length % d == 0]
    return near[0] if near else root
