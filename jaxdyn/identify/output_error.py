"""Output error: windows of recordings are simulated with the recorded inputs and compared with the measurements.

Single shooting uses one long window per recording. Multiple shooting uses many short windows with free initial states, which can be
coupled by continuity constraints. All windows of all recordings are simulated at once.
"""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import einsum, floating_or_none
from jaxdyn.dynamics.equations_of_motion import drives_over_step
from jaxdyn.dynamics.system import State
from jaxdyn.identify.addresses import ParameterError
from jaxdyn.identify.charts import Unconstrained
from jaxdyn.identify.least_squares import (
    Normal,
    Problem,
    Unknowns,
    jacobian_by_fewer_sweeps,
    local_response,
    prior_terms,
)
from jaxdyn.identify.losses import Loss, Squares, check_loss
from jaxdyn.identify.measurement import MeasurementError, Plant, check_lead, check_plant
from jaxdyn.identify.parameters import Parameters
from jaxdyn.identify.recording import Windows
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import POSITIVE, invalid, plain, quantity
from jaxdyn.simulate.controls import Knots, Step
from jaxdyn.simulate.integrators import Integrator, RungeKutta4
from jaxdyn.simulate.trajectory import rollout

_CUT = "windows, cut(recordings, duration=..., interval=...)"


def predict(
    plant: Plant,
    window: Windows,
    start: State,
    *,
    integrator: Integrator = RungeKutta4(),  # noqa: B008 (immutable)
) -> tuple[Float[Array, "M ny"], State]:
    """Noiseless measurements of a plant in one window, and the state at its end; values are NaN after a simulation has diverged.

    Between the steps of the simulation, states are interpolated by cubic Hermite polynomials of coordinates and velocities.

    Args:
        plant: Plant that is simulated.
        window: One window (not a batch) with its inputs, time stamps and steps.
        start: State at the beginning of the window. Without states z of the drives, these follow from the inputs: they are steady
            at the first input of the window, which a `lead` of `cut` places before its beginning.
        integrator: Integrator of the simulation.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: There are several windows.
    """
    check_prediction("predict", plant, window)
    if window.times.ndim != 1:
        raise ValueError(f"predict: there are {window.count} windows; use predicted_measurements")
    if plant.system.nz and start.z is None:
        start = dataclasses.replace(start, z=_states_of_inputs(plant, window, start))
    controls = plant.inputs.acting(window.controls)
    assert isinstance(controls, Knots)
    trajectory = rollout(
        plant.system,
        start,
        controls,
        dt=window.interval,
        steps=window.steps,
        integrator=integrator,
        throw=False,  # predictions after a divergence are NaN
    )
    states = trajectory.saved

    def reading(t):
        x = jnp.clip(t / window.interval, 0.0, float(window.steps))
        left = jnp.minimum(jnp.floor(x).astype(int), window.steps - 1)
        a, b = (jax.tree.map(lambda z, k=k: z[left + k], states) for k in (0, 1))
        state = between(plant.system.model, a, b, x - left.astype(x.dtype), window.interval)
        reached = x <= trajectory.steps.astype(x.dtype)
        measured = plant.sensors.read(plant.system, state, controls(t), t, recording=window.sources)
        return jnp.where(reached, measured, jnp.nan)

    end = jax.tree.map(lambda z: jnp.where(trajectory.steps == window.steps, z, jnp.nan), trajectory.final)
    return jax.vmap(reading)(window.times), end


def _states_of_inputs(plant: Plant, window: Windows, start: State) -> Float[Array, "nz"]:
    """States of the drives at the beginning of a window, after its earlier inputs."""
    system, h, source = plant.system, window.interval, plant.inputs.acting(window.controls)
    lead = (window.controls.values.shape[0] - window.steps - 1) // 2
    times = h * jnp.arange(-lead, 1).astype(start.v.dtype)

    def mean_control(t) -> Any:
        step = Step(jnp.zeros((), int), t, None, None, jnp.asarray(h, t.dtype), 2)
        return source.in_force(step, start, None)[0](t + 0.5 * h)

    def after_step(z, t) -> tuple[Any, None]:
        return drives_over_step(system, State(start.q, start.v, z), mean_control(t), h)[1], None

    z = None if system.drives is None else system.drives.steady_states(mean_control(times[0]))
    if z is None:
        raise ValueError(
            f"the states of the drives of {system.model.name!r} do not follow from the inputs, since some are integrals; give "
            "initial states with z to predict"
        )
    return jax.lax.scan(after_step, z, times[:-1])[0]


def check_prediction(name: str, plant: Any, windows: Any) -> None:
    """Check the types of the plant and of the windows of a prediction.

    Args:
        name: Name of the function, for messages.
        plant: Argument that must be a `Plant`.
        windows: Argument that must be `Windows`.

    Raises:
        TypeError: An argument has another type.
    """
    check_instance(f"the plant of {name}", plant, Plant, "Plant(system, sensors)")
    check_instance(f"the data of {name}", windows, Windows, _CUT)


def check_zeros(plant: Plant, windows: Windows) -> None:
    """Check that sensors with zeros have one zero for each recording.

    Raises:
        MeasurementError: There are fewer zeros than recordings.
    """
    count = len(plant.sensors.zeros)
    if not count or isinstance(windows.sources, Tracer):
        return
    number = int(np.max(np.asarray(windows.sources)))
    if number >= count:
        raise MeasurementError(
            f"sensors: there are zeros for {count} recordings, but windows of recording {number}; "
            "use sensors.without_zeros for other recordings"
        )


def between(model: Model, a: State, b: State, fraction: Float[Array, ""], interval: float) -> State:
    """State between two states that are an interval (s) apart: cubic Hermite interpolation in tangent coordinates, and a linear one
    of states of drives."""
    s, h = fraction, interval
    whole = configuration.difference(model, a.q, b.q)
    step = (3.0 - 2.0 * s) * s**2 * whole + (1.0 - s) ** 2 * s * h * a.v - s**2 * (1.0 - s) * h * b.v
    v = 6.0 * s * (1.0 - s) / h * whole + (1.0 - s) * (1.0 - 3.0 * s) * a.v + s * (3.0 * s - 2.0) * b.v
    z = None if a.z is None or b.z is None else a.z + s * (b.z - a.z)
    return State(configuration.integrate(model, a.q, step), v, z)


class OutputError(Problem):
    """Estimation of parameters, and of the initial states of all windows, from measurements.

    Attributes:
        parameters: Free parameters of a `Plant`.
        windows: Windows of the recordings.
        loss: Loss of the measurements, in standard deviations of their noise.
        free_starts: If true, the initial states are unknown; otherwise they are the guesses in the windows, corrected for offset,
            zeros and scale of the sensors (`Sensors.state_read`).
        start_noise: Standard deviations of the errors of the guessed initial states, coordinates then velocities (2 nv); if None,
            the guesses do not enter the loss.
        continuity: Standard deviations (2 nv) of the jumps of the state between consecutive windows; if None, jumps do not enter
            the loss.
        growth_time: Time (s) after which the standard deviation of the errors of a prediction is twice the noise of the sensors,
            since errors of the initial state and of the model grow along a window: at time t it is noise (1 + t / growth_time). If
            None, it is constant. With growing errors, long windows that overlap (`cut(..., stride=)`) compare predictions over all
            times up to their duration with similar weights.
        integrator: Integrator of the simulation.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A standard deviation is not positive, or there are not 2 nv of them.
        MeasurementError: The sensors have zeros, but not one for each recording; or the delays of the inputs are longer than the
            recorded inputs before the windows; or the windows have another number of measurements than the sensors.
        ParameterError: The noise of the sensors is free.
    """

    channels: ClassVar[str] = "measurements"

    parameters: Parameters
    windows: Windows
    loss: Loss = Squares()
    free_starts: bool = eqx.field(static=True, converter=plain, default=True, kw_only=True)
    start_noise: Float[Array, "L"] | None = eqx.field(
        converter=floating_or_none, default=None, kw_only=True, metadata=POSITIVE
    )
    continuity: Float[Array, "L"] | None = eqx.field(
        converter=floating_or_none, default=None, kw_only=True, metadata=POSITIVE
    )
    growth_time: Float[Array, ""] | None = eqx.field(
        converter=floating_or_none, default=None, kw_only=True, metadata=quantity("s", positive=True)
    )
    integrator: Integrator = eqx.field(default=RungeKutta4(), kw_only=True)

    def __check_init__(self):
        check_plant(self.parameters)
        check_loss(self.loss)
        check_instance("the integrator", self.integrator, Integrator, "an Integrator, such as RungeKutta4()")
        check_instance("the argument windows", self.windows, Windows, _CUT)
        wrong = invalid(self, {"L": 2 * self._model.nv})
        if wrong is not None:
            raise ValueError(f"output error: {wrong}")
        recorded, read = self.windows.measurements.shape[-1], self.parameters.subject.sensors.scale.shape[-1]
        if recorded != read:
            raise MeasurementError(
                f"output error: the windows have {recorded} measurements, but the sensors read {read}; give the `readings` of all "
                "sensors to each Recording"
            )
        system = self.parameters.subject.system
        if system.nz and system.drives.steady_states(jnp.zeros(system.nu)) is None:
            raise MeasurementError(
                "output error: the drives integrate their controls, so that inputs do not determine their states; identify with "
                "the integral as the input of a drive without states"
            )
        check_zeros(self.parameters.subject, self.windows)
        check_lead(self.parameters.subject, self.parameters.frees("inputs.delay"), self.windows.controls)
        for path in ("sensors.noise", "sensors.quantization"):
            if self.parameters.frees(path):
                raise ParameterError(
                    f"parameters: {path} scales the residuals, so that a fit can decrease them by increasing it; fix it, and "
                    "estimate the noise from the residuals afterwards"
                )

    @property
    def initial(self) -> Unknowns:
        return Unknowns(self.parameters.initial, self.windows.starts)

    @property
    def channel_noise(self) -> Float[Array, "ny"]:
        return self.parameters.subject.sensors.deviations

    def moved(self, unknowns: Unknowns, dx: Unconstrained, ds: Float[Array, "W L"]) -> Unknowns:
        local = unknowns.local
        if self.free_starts:
            local = jax.vmap(lambda state, step: moved(self._model, state, step))(local, ds)
        return Unknowns(unknowns.x + dx, local)

    def residuals(self, x: Unconstrained, start: State, window: Windows) -> tuple[Float[Array, "M ny"], State]:
        """Errors of the predicted measurements of one window, in standard deviations, and the state at the end of the window.

        An error is zero where the weight of the measurement is zero.

        Args:
            x: Unconstrained parameters.
            start: Initial state of the window.
            window: One window.
        """
        plant = self.parameters.place(x)
        start = start if self.free_starts else plant.sensors.state_read(start, window.sources)
        measurements, end = predict(plant, window, start, integrator=self.integrator)
        whitened = jax.vmap(plant.sensors.whitened)(measurements - window.measurements, window.weights)
        if self.growth_time is not None:
            whitened = whitened / (1.0 + window.times / self.growth_time)[:, None]
        return whitened, end

    def start_errors(self, start: State, window: Windows) -> Float[Array, "_"]:
        """Errors of the guessed initial state of a window, in standard deviations; empty without `start_noise`."""
        if not self.free_starts or self.start_noise is None:
            return jnp.zeros(0, start.v.dtype)
        return _difference(self._model, window.starts, start) / self.start_noise

    @property
    def pieces(self) -> Windows:
        return self.windows

    @property
    def without_data(self) -> "OutputError":
        return eqx.tree_at(lambda problem: problem.windows, self, None)

    def own(self, unknowns: Unknowns) -> tuple[State, State]:
        return unknowns.local, _after(unknowns.local)

    def assembled(self, unknowns: Unknowns, parts: tuple) -> Normal:
        x = unknowns.x
        size = 2 * self._model.nv if self.free_starts else 0
        loss, gradient, matrix, after_gradient, after_matrix, mixed_after = parts
        P = x.shape[0]
        prior, prior_jacobian = prior_terms(self.parameters, x)
        shared = jnp.sum(matrix[:, :P, :P], axis=0) + prior_jacobian.T @ prior_jacobian
        shared_gradient = jnp.sum(gradient[:, :P], axis=0) + prior_jacobian.T @ prior
        mixed, own, own_gradient = matrix[:, P:, :P], matrix[:, P:, P:], gradient[:, P:]
        following = None
        if self.free_starts and self.continuity is not None:
            # Contributions of window k to the start of window k + 1.
            own = own.at[1:].add(after_matrix[:-1])
            own_gradient = own_gradient.at[1:].add(after_gradient[:-1])
            mixed = mixed.at[1:].add(jnp.swapaxes(mixed_after[:-1, :P], 1, 2))
            following = mixed_after[:, P:]
        assert own.shape[1] == size
        return Normal(
            jnp.sum(loss) + 0.5 * jnp.sum(prior**2), shared, shared_gradient, mixed, own, own_gradient, following
        )

    def scores(self, unknowns: Unknowns, parts: tuple) -> Float[Array, "groups P"]:
        gradient, of_next = parts[1], parts[3]
        P = unknowns.x.size
        if not self.free_starts:
            return gradient
        response = local_response(self.assembled(unknowns, parts))
        scores = gradient[:, :P] - einsum("wlp,wl->wp", response, gradient[:, P:])
        if self.continuity is None:
            return scores
        return scores.at[:-1].add(-einsum("wlp,wl->wp", response[1:], of_next[:-1]))

    @property
    def count(self) -> int:
        joins = int(jnp.sum(self.windows.followed[:-1])) if self.free_starts and self.continuity is not None else 0
        guesses = self.windows.count if self.free_starts and self.start_noise is not None else 0
        return int(jnp.sum(self.windows.weights)) + 2 * self._model.nv * (joins + guesses)

    @property
    def _model(self) -> Model:
        return self.parameters.subject.system.model

    def linearized(self, x: Unconstrained, own: tuple[State, State], piece: Windows) -> tuple[Array, ...]:
        """Loss, gradient and Gauss-Newton matrix of one window with respect to (x, start), and terms of the next window's start."""
        (start, after), window = own, piece
        model, P = self._model, x.shape[0]
        L = 2 * model.nv

        def errors(z):
            begin = moved(model, start, z[P:]) if self.free_starts else start
            errors, end = self.residuals(z[:P], begin, window)
            return errors, end

        def with_end(z):
            r, end = errors(z)
            return (r, _difference(model, end0, end) if joins else None), r

        z0 = jnp.concatenate([x, jnp.zeros(L if self.free_starts else 0, x.dtype)])
        joins = self.free_starts and self.continuity is not None
        end0 = jax.lax.stop_gradient(errors(z0)[1]) if joins else start
        rows = window.measurements.size + (L if joins else 0)
        (J, J_end), r = jacobian_by_fewer_sweeps(rows, z0.size)(with_end, has_aux=True)(z0)
        squared = r**2
        weight = self.loss.weight(squared)
        loss = 0.5 * jnp.sum(self.loss.rho(squared))
        gradient = einsum("miz,mi,mi->z", J, weight, r)
        matrix = einsum("miz,mi,miy->zy", J, weight, J)
        if self.free_starts and self.start_noise is not None:

            def guess(step):
                return self.start_errors(moved(model, start, step), window)

            off, J_off = guess(z0[P:]), jax.jacfwd(guess)(z0[P:])
            loss = loss + 0.5 * jnp.sum(off**2)
            gradient = gradient.at[P:].add(J_off.T @ off)
            matrix = matrix.at[P:, P:].add(J_off.T @ J_off)
        nothing = jnp.zeros((len(z0), 0), x.dtype)
        if not joins or self.continuity is None:
            return loss, gradient, matrix, nothing[0], nothing[:0], nothing
        jump_noise = self.continuity

        def jump(end_step, after_step):
            return _difference(model, moved(model, after, after_step), moved(model, end0, end_step)) / jump_noise

        zero = jnp.zeros(L, x.dtype)
        c = window.followed * jump(zero, zero)
        by_end, by_after = (window.followed * jax.jacfwd(jump, argnums=k)(zero, zero) for k in (0, 1))
        by_z = by_end @ J_end
        loss = loss + 0.5 * jnp.sum(c**2)
        return (
            loss,
            gradient + by_z.T @ c,
            matrix + by_z.T @ by_z,
            by_after.T @ c,
            by_after.T @ by_after,
            by_z.T @ by_after,
        )


def moved(model: Model, state: State, step: Float[Array, "L"]) -> State:
    """The state after a step, which contains tangent coordinates and then changes of velocities."""
    return State(configuration.integrate(model, state.q, step[: model.nv]), state.v + step[model.nv :])


def _difference(model: Model, a: State, b: State) -> Float[Array, "L"]:
    return jnp.concatenate([configuration.difference(model, a.q, b.q), b.v - a.v])


def _after(local: State) -> State:
    """For each window the start of the next one; for the last window it is the start of the first one, which is not used."""
    return jax.tree.map(lambda z: jnp.roll(z, -1, axis=0), local)
