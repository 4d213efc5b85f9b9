"""Initial states and controls of the samples of `jaxdyn rollout`.

Sample k draws its random values from its own key, so its motion does not depend on the batch, the chunks and the devices.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.constraints.assembly import assemble
from jaxdyn.constraints.projection import project_velocity
from jaxdyn.dynamics.contact.points import contact_names
from jaxdyn.dynamics.energy import kinetic_energy
from jaxdyn.dynamics.equations_of_motion import total_energy
from jaxdyn.dynamics.system import State, System
from jaxdyn.identify.measurement import Inputs
from jaxdyn.identify.posterior import Posterior
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.rollout.config import ControlConfig, RolloutConfig
from jaxdyn.jobs.rollout.contacts import contact_record
from jaxdyn.jobs.rollout.replay import ReplayedPlan
from jaxdyn.jobs.tables import each
from jaxdyn.mechanism import configuration
from jaxdyn.simulate.controllers import PDControl, random_knots
from jaxdyn.simulate.controls import Controls, Knots, Policy
from jaxdyn.simulate.diagnostics import output

# Number of samples that are drawn by one call. It is fixed, because the rounding of the code depends on it.
_DRAWN_AT_ONCE = 256
_OF_MACHINE = 3  # index of the random key of the machine; the initial state and the torques have other keys


class SamplePlan(eqx.Module):
    """Controls of one sample.

    Attributes:
        target: Configuration that the PD control holds.
        torques: Torque sequence that is added to the PD control.
        parameters: Estimated values of the machine of the sample; none if all samples have the same machine.
    """

    target: Float[Array, "*batch nq"]
    torques: Knots
    parameters: Float[Array, "*batch values"] | None


class SampleProgress(eqx.Module):
    """Progress of one sample.

    Attributes:
        state: Current state.
        work: Work done by the drives and by dissipative forces so far, J.
        largest_kinetic: Largest kinetic energy of all records so far, J.
        result: Code of `RolloutResult`.
        steps: Number of completed steps.
    """

    state: State
    work: Float[Array, "*batch"]
    largest_kinetic: Float[Array, "*batch"]
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]


class Machines(eqx.Module):
    """The machines of the samples.

    Attributes:
        system: Mechanism with the estimates of the parameters, for controllers.
        inputs: Inputs through which the controls act, or None.
        posterior: Distribution of the machines; None if all samples have the same machine.
    """

    system: System
    inputs: Inputs | None
    posterior: Posterior | None

    def of(self, parameters: Float[Array, "values"] | None) -> tuple[System, Inputs | None]:
        """The system and the inputs of a sample."""
        if self.posterior is None or parameters is None:
            return self.system, self.inputs
        plant = self.posterior.machine(parameters)
        return plant.system, None if self.inputs is None else plant.inputs


def record(
    system: System,
    outputs: tuple[str, ...],
    sample: SampleProgress,
    t: Float[Array, ""],
    passed: Float[Array, "steps contacts"] | None = None,
) -> dict[str, Array]:
    """The record of a sample; `passed` has the depths of its contacts (m) since the previous record, if there is one."""
    state = sample.state
    values = {"q": state.q, "v": state.v, "energy": total_energy(system, state), "work": sample.work}
    values |= {} if state.z is None else {"z": state.z}
    values |= {name: output(system, state, name, t) for name in outputs}
    return values | contact_record(system, state, t, passed) if contact_names(system) else values


def controls_of_samples(
    config: RolloutConfig, machines: Machines, replay: ReplayedPlan | None
) -> Callable[[SamplePlan], Policy | Controls]:
    """Return a function from the plan of a sample to the controls that act, in the limits of the efforts.

    Without a replay, these are the torques of the PD control to the target plus the random torques; with delays, the random torques
    alone as a function of time.

    Raises:
        ConfigError: Controls that depend on the state would act with a delay.
    """
    system, inputs, control = machines.system, machines.inputs, config.control
    delayed = inputs is not None and inputs.delayed
    if inputs is not None and delayed and control.depends_on_state:
        remedy = "set stiffness = 0, damping = 0 and compensate_gravity = false"
        remedy = remedy if replay is None else "set replay_feedback = false"
        raise ConfigError(
            f"control: the inputs of {config.mechanism} have the delays {np.asarray(inputs.delay).tolist()} s, but only controls "
            f"that are functions of time can be delayed; {remedy}"
        )
    stiffness, damping = (_gains(control, system, name) for name in ("stiffness", "damping"))

    def commands(plan: SamplePlan) -> Policy | Controls:
        if replay is not None:
            return replay.policy(system)
        if delayed:
            effort = system.model.limits.effort[None]
            return eqx.tree_at(lambda knots: knots.values, plan.torques, jnp.clip(plan.torques.values, -effort, effort))
        return PDControl(system.model, plan.target, stiffness, damping, plan.torques, control.compensate_gravity)

    def acting(plan: SamplePlan) -> Policy | Controls:
        own = machines.of(plan.parameters)[1]
        return commands(plan) if own is None else own.acting(commands(plan))

    return acting


def _gains(control: ControlConfig, system: System, name: str) -> Float[Array, "nv"]:
    return jnp.asarray(each(getattr(control, name), "nv", system, f"control.{name}"), system.model.dtype)


def sample_source(
    config: RolloutConfig, machines: Machines, replay: ReplayedPlan | None
) -> Callable[[np.ndarray], tuple[SamplePlan, SampleProgress, dict[str, Array]]]:
    """Return a function that draws the controls, the initial states and their records of the samples with given indices.

    Raises:
        ConfigError: The loops cannot be closed; raised when the function is called.
    """
    system, model, dtype = machines.system, machines.system.model, machines.system.model.dtype
    initial, control, seed = config.initial, config.control, jax.random.key(config.seed)
    spread, speed = initial.spread, jnp.asarray(each(initial.speed, "nv", system, "initial.speed"), dtype)
    torque = _gains(control, system, "random_torque")

    middle = None
    if control.target != "initial":
        # With spread 0 the random coordinates are in the middle of the limits.
        middle = configuration.random(model, jax.random.key(0), spread=0.0)
        middle = assemble(system, system.at_rest(middle), throw=False).q

    def sample(seed, index):
        key = jax.random.fold_in(seed, index)
        posterior = machines.posterior
        parameters = None if posterior is None else posterior.values(jax.random.fold_in(key, _OF_MACHINE))
        system = machines.of(parameters)[0]
        q_key, v_key, torque_key = jax.random.split(key, 3)
        v = speed * jax.random.normal(v_key, (model.nv,), dtype)
        if replay is None:
            q = configuration.random(model, q_key, spread=0.5 if spread is None else spread)
        else:
            off = (spread or 0.0) * jax.random.normal(q_key, (model.nv,), dtype)
            q, v = configuration.integrate(model, replay.states.q[0], off), replay.states.v[0] + v
        interval = control.random_interval
        torques = random_knots(torque_key, torque, duration=config.time.duration, interval=interval)
        start = assemble(system, system.at_rest(q), throw=False)  # the configuration is unchanged if there are no loops
        target = start.q if middle is None else middle
        z = system.at_rest(start.q).z if replay is None or replay.states.z is None else replay.states.z[0]
        state = State(start.q, project_velocity(system, State(start.q, v)), z)
        none, zero = jnp.zeros((), jnp.int32), jnp.zeros((), dtype)
        progress = SampleProgress(state, zero, kinetic_energy(system.model, state.q, state.v), none, none)
        first = record(system, config.outputs, progress, zero)
        return (SamplePlan(target, torques, parameters), progress, first), start.closed

    draw = stored_jit(jax.vmap(per_sample(sample, name="start"), (None, 0)))

    @announced_as("the starts")
    def samples(indices: np.ndarray) -> tuple[SamplePlan, SampleProgress, dict[str, Array]]:
        filled = np.resize(indices, -(-len(indices) // _DRAWN_AT_ONCE) * _DRAWN_AT_ONCE)
        parts = [jax.tree.map(np.asarray, draw(seed, part)) for part in filled.reshape(-1, _DRAWN_AT_ONCE)]
        drawn, closed = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(indices)], *parts)
        if not np.all(closed):
            raise ConfigError(
                f"the loops of {config.mechanism} could not be closed from {np.sum(~closed)} of {len(indices)} random "
                "configurations; lower initial.spread"
            )
        return jax.tree.map(jnp.asarray, drawn)

    return samples
