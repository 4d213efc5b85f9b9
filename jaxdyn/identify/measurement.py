"""What stands between a mechanism and its recordings: sensors that read it, and inputs that drive it."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxdyn.dynamics.system import State, System
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.simulate.controls import Knots
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import floating

Observe = Callable[[System, State], Float[Array, "ny"]]


def joint_positions(system: System, state: State) -> Float[Array, "nq"]:
    """The coordinates, as joint encoders read them, rad or m."""
    return state.q


def joint_velocities(system: System, state: State) -> Float[Array, "nv"]:
    """The velocities, as tachometers read them, rad/s or m/s."""
    return state.v


def joint_positions_and_velocities(system: System, state: State) -> Float[Array, "_"]:
    """The coordinates, then the velocities."""
    return jnp.concatenate([state.q, state.v])


class Sensors(eqx.Module):
    """Readings of a state: y = scale * observe(state) + offset + zero + noise, rounded to steps of `quantization`.

    Attributes:
        noise: standard deviations (ny,), or the covariance (ny, ny), of the readings.
        observe: what is read, observe(system, state); the coordinates if not given.
        scale, offset: per reading.
        quantization: step of the readings; 0 for none. It counts as noise of variance step^2/12.
        zeros: what each single recording has on top of the offset, as encoders do that are zeroed by hand before each run; no
            recordings if all share one zero. They tell nothing about other recordings: see `without_zeros`.

    Raises:
        MechanismError: a length does not match, or the noise is not positive.
    """

    noise: Float[Array, "ny"] | Float[Array, "ny ny"] = eqx.field(converter=floating)
    scale: Float[Array, "ny"] = eqx.field(converter=floating, default=None)
    offset: Float[Array, "ny"] = eqx.field(converter=floating, default=None)
    quantization: Float[Array, "ny"] = eqx.field(converter=floating, default=None)
    zeros: Float[Array, "recordings ny"] = eqx.field(converter=floating, default=None)
    observe: Observe = eqx.field(static=True, default=joint_positions)

    def __init__(
        self, noise, *, scale=None, offset=None, quantization=None, zeros=None, observe: Observe = joint_positions
    ):
        self.noise = floating(noise)
        count = self.noise.shape[0]
        self.scale = jnp.ones(count, self.noise.dtype) if scale is None else floating(scale)
        self.offset = jnp.zeros(count, self.noise.dtype) if offset is None else floating(offset)
        self.quantization = jnp.zeros(count, self.noise.dtype) if quantization is None else floating(quantization)
        self.zeros = jnp.zeros((0, count), self.noise.dtype) if zeros is None else floating(zeros)
        self.observe = observe

    def __check_init__(self):
        for name in ("scale", "offset", "quantization"):
            if getattr(self, name).shape != self.noise.shape[:1]:
                raise MechanismError(
                    f"sensors: {name} has shape {getattr(self, name).shape}, noise has {self.noise.shape}; "
                    "give one number per reading"
                )
        if self.zeros.shape[1:] != self.noise.shape[:1]:
            raise MechanismError(
                f"sensors: zeros has shape {self.zeros.shape}; give a row of {self.noise.shape[0]} for each recording"
            )
        if not isinstance(self.quantization, Tracer) and not np.all(np.asarray(self.quantization) >= 0):
            raise MechanismError(
                f"sensors: quantization is {np.asarray(self.quantization).tolist()}; give positive steps, 0 for none"
            )
        if not isinstance(self.noise, Tracer):
            noise = np.asarray(self.noise)
            positive = np.all(noise > 0) if noise.ndim == 1 else np.linalg.eigvalsh(noise)[0] > 0
            if not positive:
                raise MechanismError(
                    f"sensors: noise is {noise.tolist()}; give positive standard deviations or a positive definite covariance"
                )

    def read(
        self, system: System, state: State, recording: Float[Array, ""] | Int[Array, ""] | int = 0
    ) -> Float[Array, "ny"]:
        """Readings without noise and rounding.

        Args:
            recording: its number, which only matters to sensors with zeros.
        """
        return self.scale * self.observe(system, state) + self.shift(recording)

    def shift(self, recording: Float[Array, ""] | Int[Array, ""] | int) -> Float[Array, "ny"]:
        """Offset of the readings of a recording, its zero included."""
        if not len(self.zeros):
            return self.offset
        return self.offset + self.zeros[jnp.asarray(recording).astype(int)]

    def state_read(self, read: State, recording: Float[Array, ""] | Int[Array, ""] | int) -> State:
        """The state behind one whose coordinates are readings and whose velocities are their rates, offset, zero and scale undone.

        Sensors that do not read coordinates first leave it as it is.
        """
        if self.observe not in (joint_positions, joint_positions_and_velocities):
            return read
        scale = self.scale[: read.q.size]
        q = (read.q - self.shift(recording)[: read.q.size]) / scale
        # Where a rate has no coordinate of its own, as in a ball joint, the scale is no number of the rate.
        return State(q, read.v / scale if read.v.size == read.q.size else read.v)

    @property
    def without_zeros(self) -> "Sensors":
        """The sensors as they are expected to read another recording."""
        return eqx.tree_at(lambda sensors: sensors.zeros, self, self.zeros[:0])

    def rounded(self, readings: Float[Array, "ny"]) -> Float[Array, "ny"]:
        """Readings as the sensor tells them; its derivative is not that of the staircase but that of the reading itself."""
        step = jnp.where(self.quantization > 0, self.quantization, 1.0)
        rounding = jax.lax.stop_gradient(step * jnp.round(readings / step) - readings)
        return jnp.where(self.quantization > 0, readings + rounding, readings)

    def whitened(self, errors: Float[Array, "ny"], weights: Float[Array, "ny"] | None = None) -> Float[Array, "ny"]:
        """Errors of readings in units of their standard deviation, correlations removed.

        Args:
            weights: 0 for readings that are missing, whose errors become 0 and tell nothing about the others, else 1; 1 each if
                not given.
        """
        weights = jnp.ones_like(errors) if weights is None else weights
        rounding = self.quantization**2 / 12.0
        errors = jnp.where(weights > 0, errors, 0.0)
        if self.noise.ndim == 1:
            return errors / jnp.sqrt(self.noise**2 + rounding)
        covariance = self.noise + jnp.diag(rounding)
        known = weights[:, None] * covariance * weights[None] + jnp.diag(1.0 - weights)
        return factorizations.solve_triangular(factorizations.cholesky(known), errors, lower=True)


class Inputs(eqx.Module):
    """From recorded inputs to what acts on the mechanism: u(t) = gain * recorded(t - delay) + offset.

    Attributes:
        gain: per input.
        offset: N m, N, or the unit of the input.
        delay: by which the action comes later than the record, s.
    """

    gain: Float[Array, "nu"] = eqx.field(converter=floating)
    offset: Float[Array, "nu"] = eqx.field(converter=floating)
    delay: Float[Array, "nu"] = eqx.field(converter=floating)

    def acting(self, recorded: Knots) -> Knots:
        """The inputs in force."""
        values = recorded.values * self.gain[None] + self.offset[None]
        start = recorded.start
        if isinstance(self.delay, Tracer) or np.any(np.asarray(self.delay)):  # else all inputs share one start
            start = start + self.delay
        return Knots(values, recorded.interval, start, recorded.interpolation)


class Plant(eqx.Module):
    """A machine as its recordings show it.

    Attributes:
        system: mechanism, forces, drives.
        sensors: how it is read.
        inputs: how records of inputs act on it; as recorded if not given.

    Raises:
        MechanismError: the number of inputs is not that of the system's controls.
    """

    system: System
    sensors: Sensors
    inputs: Inputs

    def __init__(self, system: System, sensors: Sensors, inputs: Inputs | None = None):
        zero = jnp.zeros(system.nu, system.model.dtype)
        self.system, self.sensors = system, sensors
        self.inputs = Inputs(zero + 1.0, zero, zero) if inputs is None else inputs

    def __check_init__(self):
        if self.inputs.gain.shape != (self.system.nu,):
            raise MechanismError(
                f"the plant has {self.inputs.gain.shape[0]} inputs, its system {self.system.nu} controls; "
                "give one input per control"
            )
