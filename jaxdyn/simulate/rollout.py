"""Rollouts: many steps of one system from one state. Batch them with `jax.vmap` over states, controls and models alike.

Memory of reverse mode. Nothing inside a step is stored; of the states between steps, those at the records are kept, and
between two records those that the backward pass is just working on. With N steps, a record every n-th, and S numbers in
the carried state (nq + nv + 2 and the accumulated cost), reverse mode keeps at most

    (N/n + max(128, 3 sqrt(n)) + 2) S numbers plus the intermediate results of one step,

at the price of at most three more evaluations of each step. So a record of the end only (n = N) costs about 2 sqrt(N) states.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

import jaxdyn.lanes as lanes
from jaxdyn.dynamics.system import State, System
from jaxdyn.lanes import Backend, check_backend, stored_outside_jit
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.topology import Topology
from jaxdyn.simulate.controls import Controller, Knots, Policy, check_controls, control_in_force
from jaxdyn.simulate.integrators import Integrator, SemiImplicitEuler
from jaxdyn.simulate.outcome import Result, describe, reached_end, report

Time = Float[Array, ""]


# Loops of at most this many steps keep all their carries while the backward pass is in them.
_SHORT = 128


class Trajectory(eqx.Module):
    """Outcome of a rollout.

    Attributes:
        time: times of the records, s.
        saved: records, leading axis T+1, the start included; states (q, v) unless `save` says otherwise.
        final: state at the end.
        cost: sum of the stage costs, or None.
        result: code of `Result`.
        steps: number of steps made before the lane ended.
        topology: that of the mechanism.
        backend: what ran it, "lanes" (the lane compiler) or "xla".
    """

    time: Float[Array, "*batch records"]
    saved: PyTree
    final: State
    cost: PyTree
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]
    topology: Topology = eqx.field(static=True)
    backend: str = eqx.field(static=True, default="xla")

    @property
    def healthy(self) -> Bool[Array, "*batch"]:
        """Which samples completed their steps or met their stop condition.

        A sum over these alone is zero if all samples failed, and so looks like a perfect loss. Give the others a loss of their own:
        `jnp.where(trajectory.healthy, loss, worst)`.
        """
        return reached_end(self.result)

    def describe(self) -> str:
        """How many samples ended in which way, when and where the first one failed, and what to change. Not under `jit`."""
        return describe(np.asarray(self.result), np.asarray(self.steps), np.asarray(self.final.v), self.topology)


class _Carry(eqx.Module):
    state: State
    cost: PyTree
    result: Int[Array, ""]
    steps: Int[Array, ""]
    memory: PyTree


def save_state(t: Time, state: State, u: Float[Array, "nu"] | None) -> State:
    """The default record of `rollout`: the state."""
    return state


def rollout(
    system: System,
    state: State,
    controls: Float[Array | np.ndarray, "steps nu"] | Knots | Policy | Controller | None = None,
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
    divergence_limit: float = 1e6,
    backend: Backend = "auto",
) -> Trajectory:
    """Simulate `steps` steps of length dt from `state`.

        trajectory = jax.jit(lambda s: rollout(system, s, dt=1e-3, steps=2000))(state)

    Args:
        system: mechanism, forces and drives.
        state: initial state.
        controls: None; an array with one row per step, held over the step; `Knots`, a function of time; a policy
            u = policy(t, state, key), evaluated at the start of each step and held; or a `Controller`, a policy with a memory.
        dt: control step, s.
        integrator: one-step method.
        substeps: steps of the integrator per control step.
        save_every: steps between records; must divide `steps`.
        save: record(t, state, u), u the control in force at t; any pytree of arrays.
        cost: stage cost(t, state, u, next_state), any pytree of numbers, summed over the steps; truth values are counted.
        stop: condition(t, state), evaluated after each step; a lane that meets it is held.
        key: source of the policy's random numbers: step k gets fold_in(key, k).
        t0: time of the initial state, s.
        divergence_limit: a lane with a velocity or a step beyond this (rad/s, m/s) has diverged and is held at its last
            good state. Its derivative means nothing. It is finite, so that a mask over the results keeps it out of a sum,
            unless the lane overflowed within a single step: then it is NaN.
        backend: "lanes" runs the whole rollout as one kernel of the lane compiler, one sample per lane under `jax.vmap`; "xla"
            leaves it to XLA; "auto" takes lanes on CPUs where they can serve. Numbers of the system whose value is known while
            tracing are built into the kernel.

    Returns:
        `Trajectory`. Reverse mode is checkpointed; the module docstring states the memory bound.

    Warns:
        DivergenceWarning: outside of `jit`, if samples did not reach their end; the message says where and names a remedy.

    Raises:
        ValueError: wrong shapes of state or controls, or `save_every` does not divide `steps`.
        CannotFlatten: with backend="lanes", if the rollout holds something that lanes cannot do.
    """
    check_backend(backend)
    configuration.check_coordinates(system.model, state.q)
    configuration.check_velocities(system.model, v=state.v)
    controls = jnp.asarray(controls) if isinstance(controls, np.ndarray) else controls
    check_controls(controls, system, steps)
    _check_precision(system, state, controls)
    if steps < 1 or substeps < 1 or save_every < 1:
        raise ValueError(
            f"steps, substeps and save_every are {steps}, {substeps}, {save_every}; each must be at least 1"
        )
    if steps % save_every:
        raise ValueError(f"save_every = {save_every} does not divide steps = {steps}; choose a divisor")
    dtype = state.v.dtype
    dt, t0 = _number(dt, dtype), _number(t0, dtype)

    options = {"save_every": save_every, "save": save, "cost": cost, "stop": stop, "divergence_limit": divergence_limit}
    saved, end, served = _simulated(
        system,
        state,
        controls,
        dt,
        t0,
        key,
        steps=steps,
        integrator=integrator,
        substeps=substeps,
        backend=backend,
        **options,
    )
    times = jnp.asarray(t0, dtype) + jnp.arange(0, steps + 1, save_every).astype(dtype) * jnp.asarray(dt, dtype)
    topology, result = system.model.topology, end.result
    if not lanes.writing_out():  # else it is a part of a larger program, and known only there
        result = report(result, end.steps, end.state.v, topology)
    return Trajectory(times, saved, end.state, end.cost, result, end.steps, topology, served.backend)


@stored_outside_jit
def _simulated(
    system: System,
    state: State,
    controls,
    dt: float | Array,
    t0: float | Array,
    key: PRNGKeyArray | None,
    *,
    steps: int,
    integrator: Integrator,
    substeps: int,
    backend: Backend,
    save_every: int,
    save: Callable,
    cost: Callable | None,
    stop: Callable | None,
    divergence_limit: float | Array,
) -> tuple[PyTree, _Carry, lanes.Served]:
    """Records and end of a rollout whose arguments were checked."""
    dtype = state.v.dtype

    def simulate(state: State, controls, dt, t0, key) -> tuple[PyTree, _Carry]:
        dt, t0 = jnp.asarray(dt, dtype), jnp.asarray(t0, dtype)
        rows, source = (controls, None) if isinstance(controls, jax.Array) else (None, controls)
        h = dt / substeps

        def time(index):
            return t0 + index.astype(dtype) * dt

        def in_force(index, row, state, memory):
            if not isinstance(source, Controller):
                return control_in_force(source, row, index, time(index), state, key), memory
            drawn = None if key is None else jax.random.fold_in(key, index)
            u, memory = source.decide(time(index), state, memory, drawn)
            return lambda time: u, memory

        def advance(carry: _Carry, step: tuple[Array, Array | None]) -> _Carry:
            index, row = step
            t, state = time(index), carry.state
            control, memory = in_force(index, row, state, carry.memory)
            new, solved = _substeps(integrator, system, state, control, t, h, substeps)
            healthy = _is_healthy(system, state, new, divergence_limit)
            running = carry.result == Result.COMPLETED
            good = running & healthy & solved
            # A held lane keeps a state from which every later (discarded) step is finite.
            kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, state)
            total = carry.cost
            if cost is not None:
                stage = cost(t, state, control(t), kept)
                total = jax.tree.map(
                    lambda c, s: c + jnp.where(good, s, jnp.zeros_like(s)).astype(c.dtype), total, stage
                )
            failure = jnp.where(healthy, Result.STEP_FAILED.value, Result.DIVERGED.value)
            result = jnp.where(running & ~good, failure, carry.result)
            if stop is not None:
                result = jnp.where(good & stop(time(index + 1), kept), Result.STOPPED.value, result)
            return _Carry(kept, total, result, carry.steps + good.astype(jnp.int32), memory)

        def record(index, row, carry: _Carry) -> PyTree:
            control, _ = in_force(index, row, carry.state, carry.memory)
            return save(time(index), carry.state, control(time(index)))

        def block(carry: _Carry, stretch: tuple[Array | np.ndarray, Array | None]) -> tuple[_Carry, PyTree]:
            index, row = jax.tree.map(lambda x: x[0], stretch)
            return _checkpointed_loop(advance, carry, stretch, save_every), record(jnp.asarray(index), row, carry)

        first_row, last_row = (None, None) if rows is None else (rows[0], rows[-1])
        memory = source.begin(state) if isinstance(source, Controller) else None
        initial_cost = None
        if cost is not None:
            u0 = in_force(jnp.zeros((), int), first_row, state, memory)[0](t0)
            shapes = jax.eval_shape(cost, t0, state, u0, state)
            initial_cost = jax.tree.map(lambda s: jnp.zeros(s.shape, jnp.int32 if s.dtype == bool else s.dtype), shapes)
        zero = jnp.zeros((), jnp.int32)
        carry = _Carry(state, initial_cost, zero, zero, memory)
        blocks = steps // save_every
        schedule = jax.tree.map(lambda x: x.reshape(blocks, save_every, *x.shape[1:]), (np.arange(steps), rows))
        if blocks == 1:
            # A single block needs no checkpoint of its own: the loop within has them.
            carry, only = block(carry, jax.tree.map(lambda x: x[0], schedule))
            records = jax.tree.map(lambda x: jnp.asarray(x)[None], only)
        else:
            carry, records = jax.lax.scan(jax.checkpoint(block, prevent_cse=False), carry, schedule)
        last = record(jnp.asarray(steps), last_row, carry)
        return jax.tree.map(lambda r, x: jnp.concatenate([r, jnp.asarray(x)[None]]), records, last), carry

    arguments = (state, controls, dt, t0, key)
    (saved, end), served = lanes.run(simulate, arguments, backend=backend, name="rollout")
    return saved, end, lanes.Served(served)


def _number(x, dtype) -> float | Array:
    """Plain numbers stay plain, so that they are constants of the compiled code."""
    return float(x) if isinstance(x, int | float) else jnp.asarray(x, dtype)


def _substeps(integrator: Integrator, system: System, state: State, control, t: Time, h: Array, count: int):
    """`count` steps of the integrator, and whether all could be made."""
    if count == 1:
        return integrator.step(system, state, control, t, h)

    def body(carry, k):
        state, solved = carry
        state, ok = integrator.step(system, state, control, t + k.astype(t.dtype) * h, h)
        return (state, solved & ok), None

    return jax.lax.scan(jax.checkpoint(body, prevent_cse=False), (state, jnp.asarray(True)), jnp.arange(count))[0]


def _check_precision(system: System, state: State, controls) -> None:
    """Refuse mixed precision, which would end in an error deep within a loop.

    Raises:
        ValueError: the message names the types and `as_dtype`.
    """
    given = controls.values if isinstance(controls, Knots) else None if callable(controls) else controls
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
    return jnp.all(jnp.abs(new.v) < limit) & jnp.all(jnp.abs(step) < limit) & jnp.all(jnp.isfinite(new.q))


def _checkpointed_loop(advance, carry: PyTree, schedule: PyTree, length: int) -> PyTree:
    """`length` applications of advance(carry, step), the steps along the leading axis of `schedule`.

    A long loop is cut into stretches of about sqrt(length) steps. Reverse mode keeps the carry at the start of each stretch
    and, while it works on one, the carries within it. A short loop is one stretch: each level costs compile time.
    """
    step = jax.checkpoint(lambda carry, x: (advance(carry, x), None), prevent_cse=False, policy=lanes.KEEPS)
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
    """About sqrt(length), a divisor of `length` if one is near, for then no second loop has to be compiled for the rest."""
    root = max(1, math.isqrt(length))
    near = [d for d in range(root, max(1, root // 2) - 1, -1) if length % d == 0]
    return near[0] if near else root
