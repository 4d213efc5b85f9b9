"""What each lane of `jaxdyn rollout` starts from and is driven by.

Lane k draws its numbers from its own random key, so it is the same motion whatever the batch, the chunks and the devices.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxdyn.constraints.assembly import assemble
from jaxdyn.constraints.projection import project_velocity
from jaxdyn.dynamics.inverse import gravity_force
from jaxdyn.dynamics.system import State, System
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.replay import ReplayedPlan
from jaxdyn.jobs.rollout_config import ControlConfig, RolloutConfig
from jaxdyn.lanes import stored_jit
from jaxdyn.lanes.announcements import announced_as
from jaxdyn.mechanism import configuration
from jaxdyn.simulate.controls import Knots, Policy

# Lanes that are drawn by one call. Code for another number would round in another way.
_DRAWN_AT_ONCE = 256


class LanePlan(eqx.Module):
    """What one lane is to do.

    Attributes:
        target: configuration that the PD control holds.
        torques: torque sequence added to it.
    """

    target: Float[Array, "*batch nq"]
    torques: Knots


class LaneProgress(eqx.Module):
    """Where one lane has got to.

    Attributes:
        state: current state.
        work: work done by the drives and by dissipative forces so far, J.
        result: code of `Result`.
        steps: steps made.
    """

    state: State
    work: Float[Array, "*batch"]
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]


def pd_control(control: ControlConfig, system: System, plan: LanePlan) -> Policy:
    """PD control about the target plus the torque sequence, clipped at the effort limits."""
    model = system.model
    stiffness, damping = (_per_joint(control, system, name) for name in ("stiffness", "damping"))

    def policy(t: Float[Array, ""], state: State, key: PRNGKeyArray | None) -> Float[Array, "nv"]:
        tau = stiffness * configuration.difference(model, state.q, plan.target) - damping * state.v + plan.torques(t)
        if control.compensate_gravity:
            tau = tau - gravity_force(model, state.q)
        return jnp.clip(tau, -model.limits.effort, model.limits.effort)

    return policy


def lane_source(
    config: RolloutConfig, system: System, replay: ReplayedPlan | None
) -> Callable[[np.ndarray], tuple[LanePlan, LaneProgress]]:
    """What makes the lanes of given numbers before their start.

    Raises:
        ConfigError: when it is called, if loops cannot be closed.
    """
    model, dtype = system.model, system.model.dtype
    initial, control, seed = config.initial, config.control, jax.random.key(config.seed)
    spread = initial.spread
    torque = _per_joint(control, system, "random_torque")
    knots = int(np.ceil(config.time.duration / control.random_interval)) + 1

    def lane(seed, index):
        key = jax.random.fold_in(seed, index)
        q_key, v_key, torque_key = jax.random.split(key, 3)
        v = initial.speed * jax.random.normal(v_key, (model.nv,), dtype)
        if replay is None:
            q = configuration.random(model, q_key, spread=0.5 if spread is None else spread)
        else:
            off = (spread or 0.0) * jax.random.normal(q_key, (model.nv,), dtype)
            q, v = configuration.integrate(model, replay.states.q[0], off), replay.states.v[0] + v
        # One key per knot, so that the torque at a given time does not depend on the duration.
        knot_keys = jax.vmap(lambda k: jax.random.fold_in(torque_key, k))(jnp.arange(knots))
        values = torque[None] * jax.vmap(lambda k: jax.random.normal(k, (model.nv,), dtype))(knot_keys)
        torques = Knots(values, jnp.asarray(control.random_interval, dtype), jnp.zeros((), dtype))
        # Without spread, random coordinates are the middle of the limits.
        start = assemble(system, system.at_rest(q))  # the same configuration if there are no loops to close
        middle = configuration.random(model, q_key, spread=0.0)
        target = start.q if control.target == "initial" else assemble(system, system.at_rest(middle)).q
        state = State(start.q, project_velocity(system, State(start.q, v)))
        zero = jnp.zeros((), jnp.int32)
        return (LanePlan(target, torques), LaneProgress(state, jnp.zeros((), dtype), zero, zero)), start.closed

    draw = stored_jit(jax.vmap(lane, (None, 0)))

    @announced_as("the starts")
    def lanes(indices: np.ndarray) -> tuple[LanePlan, LaneProgress]:
        filled = np.resize(indices, -(-len(indices) // _DRAWN_AT_ONCE) * _DRAWN_AT_ONCE)
        parts = [jax.tree.map(np.asarray, draw(seed, part)) for part in filled.reshape(-1, _DRAWN_AT_ONCE)]
        drawn, closed = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(indices)], *parts)
        if not np.all(closed):
            raise ConfigError(
                f"the loops of {config.mechanism} cannot be closed near {np.sum(~closed)} of {len(indices)} random "
                "configurations; lower initial.spread"
            )
        return jax.tree.map(jnp.asarray, drawn)

    return lanes


def _per_joint(control: ControlConfig, system: System, name: str) -> Float[Array, "nv"]:
    values, count = getattr(control, name), system.model.nv
    if len(values) not in (1, count):
        raise ConfigError(f"control.{name} has {len(values)} numbers; give 1, or {count}: one per degree of freedom")
    return jnp.asarray(np.broadcast_to(values, (count,)), system.model.dtype)
