"""Rollouts: many steps of one system from one state. Batch them with `jax.vmap` over states, controls and models alike.

Memory of reverse mode. Nothing inside a step is stored; of the states between steps, those at the records are kept, and
between two records those that the backward pass is just working on. With N steps, a record every n-th, and S numbers in
the carried state (nq + nv + 2 and the accumulated cost), reverse mode keeps at most

    (N/n + max(64, 3 sqrt(n)) + 2) S numbers plus the intermediate results of one step,

at the price of at most three more evaluations of each step. So a record of the end only (n = N) costs about 2 sqrt(N) states.
"""

import enum
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jaxdyn.dynamics.system import State, System
from jaxdyn.mechanism import configuration
from jaxdyn.simulate.controls import Knots, Policy, check_controls, control_in_force
from jaxdyn.simulate.integrators import Integrator, SemiImplicitEuler

Time = Float[Array, ""]


# Loops of at most this many steps keep all their carries while the backward pass is in them.
_SHORT = 64


class Result(enum.IntEnum):
    """How a rollout ended; one code per lane of a batch."""

    COMPLETED = 0
    STOPPED = 1
    DIVERGED = 2
    STEP_FAILED = 3

    @property
    def meaning(self) -> str:
        """One line for a report."""
        return {
            Result.COMPLETED: "ran to the end",
            Result.STOPPED: "met the stop condition and was held there",
            Result.DIVERGED: "a coordinate or velocity grew beyond the limit or was not finite; held at the last good state",
            Result.STEP_FAILED: "an implicit step was not solved; held at the last good state, use a shorter dt",
        }[self]


class Trajectory(eqx.Module):
    """Outcome of a rollout.

    Attributes:
        time: times of the records, s.
        saved: records, leading axis T+1, the start included; states (q, v) unless `save` says otherwise.
        final: state at the end.
        cost: sum of the stage costs, or None.
        result: code of `Result`.
        steps: number of steps made before the lane ended.
    """

    time: Float[Array, "*batch records"]
    saved: PyTree
    final: State
    cost: PyTree
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]


class _Carry(eqx.Module):
    state: State
    cost: PyTree
    result: Int[Array, ""]
    steps: Int[Array, ""]


def save_state(t: Time, state: State, u: Float[Array, "nu"] | None) -> State:
    """The default record of `rollout`: the state."""
    return state


def rollout(
    system: System,
    state: State,
    controls: Float[Array | np.ndarray, "steps nu"] | Knots | Policy | None = None,
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
) -> Trajectory:
    """Simulate `steps` steps of length dt from `state`.

        trajectory = jax.jit(lambda s: rollout(system, s, dt=1e-3, steps=2000))(state)

    Args:
        system: mechanism, forces and drives.
        state: initial state.
        controls: None; an array with one row per step, held over the step; `Knots`, a function of time; or a policy
            u = policy(t, state, key), evaluated at the start of each step and held.
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

    Returns:
        `Trajectory`. Reverse mode is checkpointed; the module docstring states the memory bound.

    Raises:
        ValueError: wrong shapes of state or controls, or `save_every` does not divide `steps`.
    """
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
    dt, t0 = jnp.asarray(dt, dtype), jnp.asarray(t0, dtype)
    h = dt / substeps

    def time(index):
        return t0 + index.astype(dtype) * dt

    def advance(carry: _Carry, index: Array) -> _Carry:
        t, state = time(index), carry.state
        control = control_in_force(controls, index, t, state, key)
        new, solved = _substeps(integrator, system, state, control, t, h, substeps)
        healthy = _is_healthy(system, state, new, divergence_limit)
        running = carry.result == Result.COMPLETED
        good = running & healthy & solved
        # A held lane keeps a state from which every later (discarded) step is finite.
        kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, state)
        total = carry.cost
        if cost is not None:
            stage = cost(t, state, control(t), kept)
            total = jax.tree.map(lambda c, s: c + jnp.where(good, s, jnp.zeros_like(s)).astype(c.dtype), total, stage)
        failure = jnp.where(healthy, Result.STEP_FAILED.value, Result.DIVERGED.value)
        result = jnp.where(running & ~good, failure, carry.result)
        if stop is not None:
            result = jnp.where(good & stop(time(index + 1), kept), Result.STOPPED.value, result)
        return _Carry(kept, total, result, carry.steps + good.astype(jnp.int32))

    def block(carry: _Carry, first: Array) -> tuple[_Carry, PyTree]:
        record = _record(save, controls, first, time(first), carry.state, key)
        return _checkpointed_loop(advance, carry, first, save_every), record

    initial_cost = None
    if cost is not None:
        u0 = control_in_force(controls, jnp.zeros((), int), t0, state, key)(t0)
        shapes = jax.eval_shape(cost, t0, state, u0, state)
        initial_cost = jax.tree.map(lambda s: jnp.zeros(s.shape, jnp.int32 if s.dtype == bool else s.dtype), shapes)
    zero = jnp.zeros((), jnp.int32)
    carry = _Carry(state, initial_cost, zero, zero)
    firsts = jnp.arange(0, steps, save_every)
    # A single block needs no checkpoint of its own: the loop within has them.
    body = block if len(firsts) == 1 else jax.checkpoint(block, prevent_cse=False)
    carry, records = jax.lax.scan(body, carry, firsts)
    end = jnp.asarray(steps)
    last = _record(save, controls, end, time(end), carry.state, key)
    saved = jax.tree.map(lambda r, x: jnp.concatenate([r, jnp.asarray(x)[None]]), records, last)
    times = time(jnp.arange(0, steps + 1, save_every))
    return Trajectory(times, saved, carry.state, carry.cost, carry.result, carry.steps)


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


def _is_healthy(system: System, old: State, new: State, limit: float) -> Array:
    # Large but finite numbers are caught before they overflow, so that the discarded step does not poison derivatives with NaN.
    step = configuration.difference(system.model, old.q, new.q)
    return jnp.all(jnp.abs(new.v) < limit) & jnp.all(jnp.abs(step) < limit) & jnp.all(jnp.isfinite(new.q))


def _record(save, controls, index: Array, t: Time, state: State, key: PRNGKeyArray | None) -> PyTree:
    return save(t, state, control_in_force(controls, index, t, state, key)(t))


def _checkpointed_loop(advance, carry: PyTree, first: Array, length: int) -> PyTree:
    """`length` applications of advance(carry, index), index counted from `first`.

    A long loop is cut into stretches of about sqrt(length) steps. Reverse mode keeps the carry at the start of each stretch
    and, while it works on one, the carries within it. A short loop is one stretch: each level costs compile time.
    """
    step = jax.checkpoint(lambda carry, index: (advance(carry, index), None), prevent_cse=False)
    stretch = length if length <= _SHORT else _stretch_length(length)

    def run(carry, start, count):
        return jax.lax.scan(lambda c, k: step(c, start + k), carry, np.arange(count))[0]

    whole, rest = divmod(length, stretch)
    if whole > 1:
        outer = jax.checkpoint(lambda carry, k: (run(carry, first + k * stretch, stretch), None), prevent_cse=False)
        carry = jax.lax.scan(outer, carry, np.arange(whole))[0]
    else:
        carry = run(carry, first, stretch)
    return run(carry, first + whole * stretch, rest) if rest else carry


def _stretch_length(length: int) -> int:
    """About sqrt(length), a divisor of `length` if one is near, for then no second loop has to be compiled for the rest."""
    root = max(1, math.isqrt(length))
    near = [d for d in range(root, max(1, root // 2) - 1, -1) if length % d == 0]
    return near[0] if near else root
