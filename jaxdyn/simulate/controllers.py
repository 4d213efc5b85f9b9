"""Predefined controls for `rollout`: joint-space PD control, and random sequences that excite a mechanism."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.compute.arrays import floating
from jaxdyn.dynamics.doors import check_model
from jaxdyn.dynamics.inverse import gravity_force
from jaxdyn.dynamics.system import State
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import DAMPING, EFFORT, POSITION, STIFFNESS, plain, quantity
from jaxdyn.simulate.controls import Knots


class PDControl(eqx.Module):
    """Policy for PD control of all joints of a system without drives, whose controls are the forces of all velocity components.

        tau = stiffness (target - q) - damping v + feedforward(t) [- gravity force],   clipped at the effort limits of the model

    The difference target - q is taken in tangent coordinates. The controls are constant in each step, as for a digital controller.
    If the gains are too high for a stable simulation, use a `JointServo` in the system instead.

    Attributes:
        model: The mechanism; its effort limits bound the controls.
        target: Target coordinates.
        stiffness: Proportional gain.
        damping: Derivative gain.
        feedforward: Additional controls, N m or N; None for no additional controls.
        compensate_gravity: If true, the generalized forces that balance gravity are added.
    """

    model: Model
    target: Float[Array, "nq"] = eqx.field(converter=floating, metadata=quantity(POSITION, along="coordinate"))
    stiffness: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(STIFFNESS, minimum=0.0))
    damping: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(DAMPING, minimum=0.0))
    feedforward: Knots | None = eqx.field(default=None, metadata=quantity(EFFORT))
    compensate_gravity: bool = eqx.field(static=True, converter=plain, default=False)

    def __check_init__(self):
        check_model(self.model, "PDControl")

    def __call__(self, t: Float[Array, ""], state: State, key: PRNGKeyArray | None) -> Float[Array, "nv"]:
        """Controls at time t (s) in a state; `key` is not used."""
        away = configuration.difference(self.model, state.q, self.target)
        tau = self.stiffness * away - self.damping * state.v
        if self.feedforward is not None:
            tau = tau + self.feedforward(t)
        if self.compensate_gravity:
            tau = tau - gravity_force(self.model, state.q)
        return jnp.clip(tau, -self.model.limits.effort, self.model.limits.effort)


def random_knots(key: PRNGKeyArray, deviation: Float[Array, "nu"], *, duration: float, interval: float) -> Knots:
    """Random controls: normally distributed values at equally spaced times (knots), with linear interpolation in between.

    Each knot has its own random key, so that the controls at a given time do not depend on the duration.

    Args:
        key: Random key.
        deviation: Standard deviation of each control, N m or N.
        duration: Duration that the knots cover, s.
        interval: Time between knots, s.
    """
    deviation = floating(deviation)
    count, dtype = math.ceil(duration / interval) + 1, deviation.dtype
    keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(count))
    values = deviation[None] * jax.vmap(lambda k: jax.random.normal(k, deviation.shape, dtype))(keys)
    return Knots(values, jnp.asarray(interval, dtype), jnp.zeros((), dtype))
