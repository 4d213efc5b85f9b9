"""Measurement of a mechanism: sensors that measure its state, and inputs that drive it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxdyn.compute.arrays import floating, on_device
from jaxdyn.display import Display, Displayed, plural
from jaxdyn.dynamics.sensors import DrivenInstant, JointEncoders, Labels, Sensor, observe
from jaxdyn.dynamics.system import State, System, Time, neutral_state
from jaxdyn.errors import Error
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.processing import Processing
from jaxdyn.mechanism.components import units_along
from jaxdyn.mechanism.messages import check_function, check_instance, described
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import EFFORT, Quantity, invalid, quantity
from jaxdyn.simulate.controls import Changed, Controls, Knots
from jaxdyn.spatial import factorizations

# Time constants of a drive after which its state depends on the inputs alone, but for 5 % of the difference before.
_MEMORY = 3.0
_DELAYS = 1.3  # delays of a drive after which 3 % of an error of its states is left


class StateFunction(Sensor):
    """Measurements of a user, computed from the system and its state.

    Attributes:
        function: Function observe(system, state) that returns an array with one axis.
    """

    function: Callable = eqx.field(static=True)

    def __check_init__(self):
        check_function("observe of Sensors", self.function, "system, state")

    def read(self, driven: DrivenInstant) -> Float[Array, "ny"]:
        found = self.function(driven.system, driven.state)
        shape = getattr(found, "shape", None)
        if shape is None or len(shape) > 1:
            given = described(found) if shape is None else f"shape {shape}"
            raise MeasurementError(
                f"sensors: observe {_function_name(self.function)!r} returns {given}; give an array with one axis"
            )
        return jnp.atleast_1d(found)

    def labels(self, system: System) -> Labels:
        count = jax.eval_shape(lambda state: self.function(system, state), neutral_state(system)).size
        return ((_function_name(self.function), ""),) * count

    def toml_values(self) -> dict[str, str]:
        """Name of the function, for the readable file of a plant."""
        return {"function": _function_name(self.function)}


def _function_name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _sensors(observe: Any) -> tuple[Sensor, ...]:
    """The sensors that a user gives as sensors and functions, one or several."""
    parts = observe if isinstance(observe, tuple | list) else (observe,)
    return tuple(part if isinstance(part, Sensor) else StateFunction(part) for part in parts)


_MEASURED = quantity(along="measurement")
_MOST_SHOWN = 8  # values in a message
_NEUTRAL = {"gain": 1.0, "offset": 0.0, "delay": 0.0}  # inputs that act as they are recorded


class MeasurementError(Error, ValueError):
    """Error of sensors or inputs that do not match a plant or its recordings; the message is one line with the remedy."""


class Sensors(eqx.Module):
    """Measurements of a machine: y = scale * (readings of sensors) + offset + zero + noise, rounded to steps of `quantization`.

    Attributes:
        noise: Standard deviations (ny,), or the covariance (ny, ny), of the measurements.
        observe: Sensors of the measured quantities, one after the other; by default `JointEncoders()`, which read the coordinates.
            A function observe(system, state) of your own becomes a sensor, too.
        scale: Factor of each measurement.
        offset: Constant error of each measurement.
        quantization: Resolution of each measurement, 0 for none. It is treated as noise with the variance resolution^2/12.
        zeros: Additional offsets, one row for each recording, for encoders that are zeroed by hand before each recording. An array
            without rows means that only `offset` applies, to all recordings. For recordings without known zeros, see
            `without_zeros`.

    Raises:
        MeasurementError: An array has the wrong length, or the noise is not positive.
        TypeError: `observe` is neither a sensor nor a function of (system, state), nor a tuple of these.
    """

    noise: Float[Array, "ny"] | Float[Array, "ny ny"] = eqx.field(converter=floating, metadata=_MEASURED)
    scale: Float[Array, "ny"] = eqx.field(converter=floating, default=None, metadata=quantity("1", along="measurement"))
    offset: Float[Array, "ny"] = eqx.field(converter=floating, default=None, metadata=_MEASURED)
    quantization: Float[Array, "ny"] = eqx.field(
        converter=floating, default=None, metadata=quantity(along="measurement", minimum=0.0)
    )
    zeros: Float[Array, "recordings ny"] = eqx.field(converter=floating, default=None, metadata=_MEASURED)
    observe: tuple[Sensor, ...] = (JointEncoders(),)

    def __init__(
        self,
        noise,
        *,
        scale=None,
        offset=None,
        quantization=None,
        zeros=None,
        observe: Any = JointEncoders(),  # noqa: B008 (immutable)
    ):
        self.noise = floating(noise)
        if not self.noise.ndim:
            raise MeasurementError(
                f"sensors: noise is {noise}; give one standard deviation per measurement, such as [{noise}]"
            )
        count = self.noise.shape[0]

        def filled(shape: tuple[int, ...], value: float, given: Any) -> Array:
            return on_device(np.full(shape, value, self.noise.dtype)) if given is None else floating(given)

        self.scale, self.offset = filled((count,), 1.0, scale), filled((count,), 0.0, offset)
        self.quantization, self.zeros = filled((count,), 0.0, quantization), filled((0, count), 0.0, zeros)
        self.observe = _sensors(observe)

    def __check_init__(self):
        wrong = invalid(self, {"ny": self.noise.shape[0]})
        if wrong is not None:
            raise MeasurementError(f"sensors: {wrong}")
        if not isinstance(self.noise, Tracer):
            noise = np.asarray(self.noise)
            is_matrix = noise.ndim == 2
            positive = np.linalg.eigvalsh(noise)[0] > 0 if is_matrix else np.all(noise > 0)
            # Rounding of a product of matrices is admitted.
            if not positive or (is_matrix and not np.allclose(noise, noise.T, rtol=1e-5, atol=1e-7 * np.max(noise))):
                remedy = "give positive standard deviations or a symmetric, positive definite covariance"
                raise MeasurementError(f"sensors: noise is {noise.tolist()}; {remedy}")

    def read(
        self,
        system: System,
        state: State,
        u: Float[Array, "nu"] | None = None,
        t: Time = 0.0,
        *,
        recording: Float[Array, ""] | Int[Array, ""] | int = 0,
    ) -> Float[Array, "ny"]:
        """Measurements without noise and rounding.

        Args:
            system: Mechanism with its forces.
            state: Coordinates and velocities.
            u: Controls that act on the system, of which sensors of accelerations and forces depend; zero if None.
            t: Time (s).
            recording: Index of the recording; it is used by sensors with zeros only.
        """
        return self.scale * observe(system, self.observe, state, u, t) + self.shift(recording)

    @property
    def measured(self) -> str:
        """Names of the classes of the sensors, and of functions."""
        parts = (sensor.function if isinstance(sensor, StateFunction) else type(sensor) for sensor in self.observe)
        return ", ".join(map(_function_name, parts))

    @property
    def begins_with_coordinates(self) -> bool:
        """Whether the first measurements are all coordinates, in order."""
        first = self.observe[0] if self.observe else None
        return isinstance(first, JointEncoders) and first.joints is None and not first.velocities

    def shift(self, recording: Float[Array, ""] | Int[Array, ""] | int) -> Float[Array, "ny"]:
        """Offset of the measurements of a recording, including the zero of the recording."""
        if not len(self.zeros):
            return self.offset
        return self.offset + self.zeros[jnp.asarray(recording).astype(int)]

    @property
    def reads_coordinates_only(self) -> bool:
        """Whether the measurements are all coordinates, in order, and nothing else."""
        return self.begins_with_coordinates and len(self.observe) == 1

    def state_read(self, read: State, recording: Float[Array, ""] | Int[Array, ""] | int) -> State:
        """State from measured coordinates and their rates, after correction of offset, zero and scale.

        If the first measurements are not the coordinates, `read` is returned unchanged.

        Args:
            read: Measured coordinates and their rates.
            recording: Index of the recording.
        """
        if not self.begins_with_coordinates:
            return read
        scale = self.scale[: read.q.size]
        q = (read.q - self.shift(recording)[: read.q.size]) / scale
        # The scale is not applied to rates that do not correspond to a coordinate, as in a spherical joint.
        return State(q, read.v / scale if read.v.size == read.q.size else read.v)

    @property
    def without_zeros(self) -> "Sensors":
        """The sensors without zeros, for recordings whose zeros are not known."""
        return eqx.tree_at(lambda sensors: sensors.zeros, self, self.zeros[:0])

    @property
    def deviations(self) -> Float[Array, "ny"]:
        """Standard deviation of each measurement, from noise and rounding."""
        variance = self.noise**2 if self.noise.ndim == 1 else jnp.diagonal(self.noise)
        return jnp.sqrt(variance + self.quantization**2 / 12.0)

    def whitened(self, errors: Float[Array, "ny"], weights: Float[Array, "ny"] | None = None) -> Float[Array, "ny"]:
        """Errors of measurements, transformed to unit standard deviation and zero correlation.

        Args:
            errors: Predicted minus measured values.
            weights: 1 for available and 0 for missing measurements, whose errors become 0 and do not influence the others; all 1 if
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
    """Relation of the recorded inputs to those that act on the mechanism: u(t) = gain * recorded(t - delay) + offset.

    Attributes:
        gain: Factor of each input.
        offset: Constant part of each input.
        delay: Delay between a recorded input and its action.

    Raises:
        MeasurementError: gain, offset and delay have different lengths.
    """

    gain: Float[Array, "nu"] = eqx.field(converter=floating, metadata=quantity("1", along="input"))
    offset: Float[Array, "nu"] = eqx.field(converter=floating, metadata=quantity(EFFORT, along="input"))
    delay: Float[Array, "nu"] = eqx.field(converter=floating, metadata=quantity("s", along="input"))

    def __check_init__(self):
        wrong = invalid(self, {"nu": self.gain.shape[-1] if self.gain.ndim else 0})
        if wrong is not None:
            raise MeasurementError(f"inputs: {wrong}")

    def acting(self, commands: Any) -> Controls:
        """The controls that act on the mechanism if the machine receives these commands, for `rollout`.

        Commands before the first knot equal the first knot.

        Args:
            commands: Recorded or chosen inputs in any form of the argument `controls` of `rollout`; None for zeros.

        Raises:
            MeasurementError: There is a delay, or it is not known while JAX traces it, and the commands are not `Knots`.
        """
        if isinstance(commands, Knots):
            values = commands.values * self.gain[None] + self.offset[None]
            # Otherwise all inputs have the same start.
            start = commands.start + self.delay if self.delayed else commands.start
            return Knots(values, commands.interval, start, commands.interpolation)
        if self.delayed and commands is not None:
            delay = "traced" if isinstance(self.delay, Tracer) else np.asarray(self.delay).tolist()
            raise MeasurementError(
                f"inputs: the delay is {delay}, and only commands that are functions of time can be delayed; give "
                "Knots(values, interval), or a plant without delays, whose policy delays the commands"
            )
        return Changed(commands, self.changed)

    def changed(self, command: Float[Array, "nu"] | None) -> Float[Array, "nu"]:
        """The controls that act after the delay of a command, gain * command + offset; None is a command of zeros."""
        return self.offset if command is None else self.gain * command + self.offset

    @property
    def in_words(self) -> str:
        """Gains, offsets and delays with which commands do not act as they are."""
        return ", ".join(_unusual("", self, _NEUTRAL))

    @property
    def delayed(self) -> bool:
        """Whether there is a delay, which is assumed while JAX traces it."""
        return bool(self.delay.size) and (isinstance(self.delay, Tracer) or bool(np.any(np.asarray(self.delay))))


def _unusual(prefix: str, part: Inputs | Sensors, neutral: dict[str, float]) -> list[str]:
    """Arrays of a part that differ from their neutral value, with their names and values."""
    found = []
    for name, usual in neutral.items():
        values = np.asarray(getattr(part, name))
        if np.any(values != usual):
            shown = ", ".join(f"{x:.4g}" for x in values.ravel()[:_MOST_SHOWN])
            found.append(f"{prefix}{name} [{shown}{', ...' if values.size > _MOST_SHOWN else ''}]")
    return found


class Plant(Displayed, eqx.Module):
    """A machine with its sensors and inputs: everything between recorded inputs and recorded measurements.

    `jaxdyn.io.save_plant` stores all parts of a plant, and `load_plant` loads them.

    Attributes:
        system: Mechanism with its forces and drives.
        sensors: Sensors that measure the state of the system.
        inputs: Relation of recorded inputs to acting inputs; by default they are equal.
        processing: Filters and grids by which recordings are made comparable with this plant.
        estimates: Estimates of a fit and their covariance; None if no parameter was estimated.

    Raises:
        TypeError: An argument has the wrong type.
        MeasurementError: The number of inputs is not that of the controls of the system, or the number of standard deviations of
            the sensors is not that of the measured quantities.
    """

    system: System
    sensors: Sensors
    inputs: Inputs
    processing: Processing = eqx.field(static=True)
    estimates: Uncertainty | None

    def __init__(
        self,
        system: System,
        sensors: Sensors,
        inputs: Inputs | None = None,
        processing: Processing = Processing(),  # noqa: B008 (immutable)
        estimates: Uncertainty | None = None,
    ):
        remedy = "System(model)" if isinstance(system, Model) else "a System"
        check_instance("the argument system of Plant", system, System, remedy)
        check_instance("the argument sensors of Plant", sensors, Sensors, "Sensors(noise=...)")
        check_instance("the argument inputs of Plant", inputs, Inputs | None, "Inputs(gain, offset, delay)")
        zero = on_device(np.zeros(system.nu, system.model.dtype))
        self.system, self.sensors = system, sensors
        self.inputs = (
            Inputs(on_device(np.ones(system.nu, system.model.dtype)), zero, zero) if inputs is None else inputs
        )
        self.processing, self.estimates = processing, estimates

    def __check_init__(self):
        if self.inputs.gain.shape != (self.system.nu,):
            raise MeasurementError(
                f"the plant has {self.inputs.gain.shape[0]} inputs, but its system has {self.system.nu} controls; "
                "give one input per control"
            )
        model, count = self.system.model, self.sensors.noise.shape[0]
        if model.gravity.ndim > 1:
            return  # a batch of plants, whose measurements are those of `jax.vmap`
        q = jax.ShapeDtypeStruct((model.nq,), model.dtype)
        observed = jax.eval_shape(lambda q: observe(self.system, self.sensors.observe, self.system.at_rest(q)), q)
        if observed.size != count:
            raise MeasurementError(
                f"sensors: observe {self.sensors.measured!r} returns shape {observed.shape}, but the noise has {count} values; "
                "give one standard deviation per value of the array that it returns"
            )

    def _changed(self, **parts: Any) -> "Plant":
        """Copy in which some parts are replaced; these fit the plant and are not checked again."""
        other = object.__new__(Plant)
        for field in dataclasses.fields(self):
            object.__setattr__(other, field.name, parts.get(field.name, getattr(self, field.name)))
        return other

    @property
    def without_zeros(self) -> "Plant":
        """The plant without the zeros of individual recordings and without estimates of zeros, for predictions of any recording."""
        estimates = None if self.estimates is None else self.estimates.without("sensors.zeros")
        return self._changed(sensors=self.sensors.without_zeros, estimates=estimates)

    @property
    def bare(self) -> "Plant":
        """The parts on which predictions depend (system, sensors, inputs); plants of several runs then share compiled code."""
        return self._changed(processing=Processing(), estimates=None)

    def controls(self, commands: Any) -> Controls:
        """Controls for `rollout`, so that the commands act as in the fit: gain * command(t - delay) + offset.

            motion = jaxdyn.rollout(plant.system, start, plant.controls(commands), dt=1e-3, steps=2000)
            measured = jax.vmap(lambda state: plant.sensors.read(plant.system, state))(motion.saved)

        Sensors of accelerations and forces need the controls, too: `rollout(..., save=lambda t, state, u:
        plant.sensors.read(plant.system, state, u, t))`.

        Args:
            commands: Recorded or chosen inputs: an array, `Knots`, a policy or a `Controller`; None for zeros. If the inputs have
                delays, the commands must be `Knots`.

        Raises:
            MeasurementError: The inputs have delays, and the commands are not `Knots`.
        """
        return self.inputs.acting(commands)

    def beyond_the_mechanism(self) -> list[str]:
        """Sensors, and gains, offsets and similar values, that change predictions but do not belong to the mechanism."""
        names = {"scale": 1.0, "offset": 0.0, "quantization": 0.0, "zeros": 0.0}
        sensors = [] if self.sensors.reads_coordinates_only else [f"sensors.observe {self.sensors.measured}"]
        return _unusual("inputs.", self.inputs, _NEUTRAL) + _unusual("sensors.", self.sensors, names) + sensors

    def _display(self) -> Display:
        system, sensors = self.system, self.sensors
        inputs = plural(self.inputs.gain.shape[-1], "input", "inputs")
        counts = f"{inputs}, {plural(sensors.noise.shape[-1], 'measurement', 'measurements')}"
        rows = {"measured": sensors.measured, "zeros": f"of {sensors.zeros.shape[-2]} recordings"}
        return Display(f"Plant({system.model.name!r}, {counts})", {"system": system._display().title} | rows)

    def units_along(self, declared: Quantity) -> tuple[str, ...]:
        """Unit of a quantity for each input or each measurement; "" for measurements of a user-defined function."""
        model = self.system.model
        if declared.along == "input":
            units = units_along(model, dataclasses.replace(declared, along="velocity"))
            drives = self.system.drives
            return (
                units
                if drives is None
                else tuple("" if drives.driven is None else units[k] for k in drives.driven or range(drives.count))
            )
        if declared.unit is not None:
            return (declared.unit_of(turns=True),) * self.sensors.scale.size
        return tuple(unit for sensor in self.sensors.observe for _, unit in sensor.labels(self.system))

    @property
    def measurement_names(self) -> tuple[str, ...]:
        """Name of each measurement, with its index where several have the same one."""
        names = [name for sensor in self.sensors.observe for name, _ in sensor.labels(self.system)]
        return tuple(name if names.count(name) == 1 else f"{name} [{k}]" for k, name in enumerate(names))


def check_lead(plant: Plant, free: bool, inputs: Knots | None) -> None:
    """Check that data contain the earlier and later inputs that delays require; otherwise a delay would extend the outermost ones.

    Args:
        plant: Plant with the delays.
        free: Whether a fit changes the delays.
        inputs: Inputs from before to after each piece of data; None for those at single times.

    Raises:
        MeasurementError: The inputs begin later than a delay requires.
    """
    delay, start = plant.inputs.delay, np.zeros(1) if inputs is None else inputs.start
    if isinstance(delay, Tracer) or isinstance(start, Tracer):
        return
    longest, lead = float(np.max(np.abs(np.asarray(delay)), initial=0.0)), 0.0 - float(np.max(np.asarray(start)))
    lags, late = (getattr(plant.system.drives, name, None) for name in ("time_constant", "delay"))
    lag, of_drives = (
        0.0 if x is None or isinstance(x, Tracer) else float(np.max(np.asarray(x), initial=0.0)) for x in (lags, late)
    )
    needed = longest + _DELAYS * of_drives + _MEMORY * lag
    if plant.system.nz and not lead >= max((1.0 - 1e-6) * needed, np.finfo(float).tiny):
        raise MeasurementError(
            "inputs: the drives have states, which follow from the inputs before a window, but the data contain "
            f"{lead:g} s of them; give a lead of at least {needed:g} s, the longest delays and {_MEMORY:g} time constants, to "
            "`cut`, or to the `Processing` of parts"
        )
    if longest > lead or (free and lead <= 0.0):
        raise MeasurementError(
            f"inputs: they have delays up to {longest:g} s or free delays, but the data contain {lead:g} s of inputs before and "
            "after them; give a larger lead to `cut`, or to the `Processing` of parts"
        )


def check_plant(parameters: Any) -> None:
    """Check that an argument is an instance of `Parameters` whose subject is a plant.

    Raises:
        TypeError: The argument, or its subject, has another type.
    """
    subject = getattr(parameters, "subject", None)
    if isinstance(subject, Plant):
        return
    if subject is None:
        raise TypeError(f"the parameters are {described(parameters)}; give Parameters(plant, free)")
    inner = {Model: "Plant(System(model), sensors)", System: "Plant(system, sensors)"}.get(type(subject), "a Plant")
    raise TypeError(f"the subject of the parameters is {described(subject)}; give {inner}")
