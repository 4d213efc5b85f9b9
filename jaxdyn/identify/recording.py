"""Recordings of a machine, and the windows into which they are cut."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import on_device
from jaxdyn.dynamics.system import State
from jaxdyn.errors import Error, check_name
from jaxdyn.identify.processing import Processing
from jaxdyn.mechanism.messages import check_instance, checked_list, described
from jaxdyn.mechanism.quantity import ACCELERATION, EFFORT, POSITION, VELOCITY, plain, quantity
from jaxdyn.simulate.controls import Knots
from jaxdyn.simulate.outcome import RolloutResult
from jaxdyn.simulate.trajectory import Trajectory

Samples = Float[np.ndarray, "samples _"]


class RecordingError(Error, ValueError):
    """Error of a recording that cannot be used; the message is one line with the name of the recording and the remedy."""


def _table(values: Any) -> Any:
    """Values of a recording as a floating-point array; None is kept."""
    array = None if values is None else np.asarray(values)
    return array if array is None or np.issubdtype(array.dtype, np.floating) else array.astype(float)


class Recording(eqx.Module):
    """Measurements of one continuous recording. Time stamps need not be equidistant.

    Attributes:
        name: Name of the recording, for messages.
        time: Time stamps, ascending.
        q: Coordinates; NaN for missing samples.
        v: Velocities, or None if they were not measured.
        u: Inputs; shape (samples, 0) for a machine without inputs.
        a: Accelerations, or None if they were not recorded.
        readings: Readings of all sensors of a plant, in their order, if these are not the coordinates and velocities. Then q and v
            are guesses, which may come from an observer, and fits use them for initial states only.
        inputs: "held" if each input acts from its time stamp until the next one, as the commands of a digital controller do;
            "linear" if inputs are samples of a continuous signal, such as measured torques, which is linear between time stamps.
            The two differ by a delay of half a sample, which biases friction if the wrong one is chosen and no delay is free.

    Raises:
        RecordingError: Arrays have different lengths, time stamps are not ascending, or inputs are not finite.
        UnknownName: `inputs` is neither "held" nor "linear".
    """

    name: str = eqx.field(static=True)
    time: Float[np.ndarray, "samples"] = eqx.field(converter=_table, metadata=quantity("s"))
    q: Samples = eqx.field(converter=_table, metadata=quantity(POSITION, along="coordinate"))
    v: Samples | None = eqx.field(converter=_table, metadata=quantity(VELOCITY))
    u: Samples = eqx.field(converter=_table, metadata=quantity(EFFORT, along="input"))
    a: Samples | None = eqx.field(converter=_table, default=None, metadata=quantity(ACCELERATION))
    readings: Samples | None = eqx.field(converter=_table, default=None, metadata=quantity(along="measurement"))
    inputs: Literal["held", "linear"] = eqx.field(static=True, default="held")

    def __check_init__(self):
        check_name("kind of inputs", self.inputs, ("held", "linear"), where=self.name)
        count = len(self.time)
        for what in ("q", "v", "u", "a", "readings"):
            array = getattr(self, what)
            if array is not None and (array.ndim != 2 or len(array) != count):
                raise RecordingError(
                    f"{self.name}: {what} has shape {array.shape}; give {count} rows, one per time stamp"
                )
        if count < 2 or not np.all(np.diff(self.time) > 0):
            raise RecordingError(f"{self.name}: time stamps are not ascending; sort them and remove duplicates")
        if not np.all(np.isfinite(self.u)):
            raise RecordingError(f"{self.name}: inputs are not finite; repair or cut the recording")

    @staticmethod
    def of_rollout(name: str, trajectory: Trajectory, controls: Any = None) -> "Recording":
        """The states of a rollout, without noise, with its controls, which are held or linear as they acted.

        Args:
            name: Name of the recording.
            trajectory: Rollout of one sample, whose records are states.
            controls: The controls of the rollout: None; an array with one row per record but the last; or `Knots` at the times of
                records, of which cubic ones become linear.

        Raises:
            TypeError: The controls are neither of these, or the records are not states.
            RecordingError: The rollout did not complete, there are several samples, or an array has another number of rows.

        Example:
            ```python
            import jax.numpy as jnp, jaxdyn

            system = jaxdyn.library.system("pendulum")
            controls = jnp.ones((100, 1))
            motion = jaxdyn.rollout(system, system.at_rest(jnp.array([0.5])), controls, dt=0.01, steps=100)
            recording = jaxdyn.identify.Recording.of_rollout("held torque", motion, controls)
            ```
        """
        states = trajectory.saved
        check_instance("the records of a rollout", states, State, "a rollout without `save`")
        if np.any(np.asarray(trajectory.result) != RolloutResult.SUCCESSFUL) or trajectory.time.ndim != 1:
            raise RecordingError(f"{name}: give one sample that completed its rollout")
        if isinstance(controls, Knots):
            u = jax.vmap(controls)(trajectory.time)
        elif controls is None:
            u = np.zeros((len(trajectory.time), 0))
        elif isinstance(controls, jax.Array | np.ndarray):
            u = np.concatenate([controls, controls[-1:]])
        else:
            raise TypeError(f"{name}: controls are {described(controls)}; give the array of the controls that acted")
        held = not isinstance(controls, Knots) or controls.interpolation == "zero_order"
        return Recording(name, trajectory.time, states.q, states.v, u, inputs="held" if held else "linear")

    @staticmethod
    def of_streams(
        name: str,
        time: Any,
        q: Any,
        u_time: Any,
        u: Any,
        *,
        v: Any = None,
        a: Any = None,
        readings: Any = None,
        inputs: Literal["held", "linear"] = "held",
    ) -> "Recording":
        """A recording of measurements and inputs that have their own time stamps, and so their own rates.

        The inputs keep their meaning, as they are also known between their time stamps. The recording ends with the inputs: at the
        last of linear inputs, or one median interval later, until which the last held input acts. A constant shift between the two
        clocks is the parameter `inputs.delay` of a plant.

        Args:
            name: Name of the recording, for messages.
            time: Time stamps of the measurements, s, ascending.
            q, v, a, readings: Coordinates, velocities, accelerations and readings of sensors at these times, as in `Recording`.
            u_time: Time stamps of the inputs, s, ascending.
            u: Inputs at these times.
            inputs: Meaning of the inputs between their time stamps.

        Raises:
            RecordingError: One of the streams is not valid, or the two do not overlap in time.

        Example:
            ```python
            import jaxdyn

            # Angles at 100 Hz and torques at 200 Hz.
            recording = jaxdyn.identify.Recording.of_streams(
                "run", [0.0, 0.01, 0.02], [[0.0], [0.1], [0.3]], [0.0, 0.005, 0.01, 0.015], [[1.0], [2.0], [2.0], [0.0]]
            )
            print(recording.u[:, 0])  # at 0, 0.005, 0.01, 0.015 and 0.02 s
            ```
        """
        measured = Recording(name, time, q, v, np.zeros((len(time), 0)), a, readings)
        driven = Recording(name, u_time, np.zeros((len(u_time), 0)), None, u, inputs=inputs)
        # Inputs are not known before their first time stamp. The last held input acts for one interval, apart from rounding.
        end = driven.time[-1] + (0.0 if inputs == "linear" else (1.0 + 1e-6) * np.median(np.diff(driven.time)))
        stamps = np.union1d(measured.time, driven.time)
        stamps = stamps[(stamps >= driven.time[0]) & (stamps <= end)]
        before = np.searchsorted(driven.time, stamps, side="right") - 1
        if inputs == "held":
            inside = driven.u[before]
        else:
            inside = np.reshape([np.interp(stamps, driven.time, column) for column in driven.u.T], (-1, len(stamps))).T
        rows, at = np.isin(measured.time, stamps), np.isin(stamps, measured.time)
        if rows.sum() < 2:
            raise RecordingError(
                f"{name}: measurements from {measured.time[0]:g} to {measured.time[-1]:g} s, and inputs from {driven.time[0]:g} to "
                f"{driven.time[-1]:g} s do not overlap; give both in seconds of the same origin"
            )

        def spread(table: Samples | None) -> Samples | None:
            if table is None:
                return None
            found = np.full((len(stamps), table.shape[1]), np.nan)
            found[at] = table[rows]
            return found

        q, v, a, readings = map(spread, (measured.q, measured.v, measured.a, measured.readings))
        return Recording(name, stamps, q, v, inside, a, readings, inputs)

    @property
    def duration(self) -> float:
        """Time from the first to the last time stamp, s."""
        return float(self.time[-1] - self.time[0])

    def between(self, start: float, end: float) -> "Recording":
        """The part of the recording with start <= time < end (s)."""
        kept = (self.time >= start) & (self.time < end)
        return self._with(self.time[kept], lambda column: column[kept])

    def resampled(self, interval: float) -> "Recording":
        """The recording on a regular grid with this interval (s), interpolated linearly between samples, also across gaps.

        Held inputs are averaged over each interval instead, so that their impulse is kept.
        """
        grid = self.time[0] + interval * np.arange(int(np.floor(self.duration / interval + 1e-9)) + 1)

        def on_grid(column: np.ndarray) -> np.ndarray:
            known = np.isfinite(column)
            if not known.any():
                return np.full(len(grid), np.nan)
            return np.interp(grid, self.time[known], column[known])

        whole = self._with(grid, on_grid)
        return whole if self.inputs == "linear" else dataclasses.replace(whole, u=self._means(grid, interval))

    def _means(self, starts: np.ndarray, interval: float) -> Float[np.ndarray, "_ _"]:
        """Means of the held inputs over adjacent intervals; the first and the last input are held outside of the recording."""
        edges = np.append(starts, starts[-1] + interval)
        stamps = np.append(self.time, max(self.time[-1], edges[-1]) + interval)
        stamps[0] = min(stamps[0], edges[0])
        impulse = np.concatenate([np.zeros((1, self.u.shape[1])), np.cumsum(self.u * np.diff(stamps)[:, None], axis=0)])
        at_edges = [np.interp(edges, stamps, column) for column in impulse.T]
        return np.diff(np.reshape(at_edges, (-1, len(edges))).T, axis=0) / interval

    def smoothed(self, interval: float, *, cutoff: float | None = None, order: int = 4) -> "Recording":
        """The recording on a regular grid with velocities and accelerations, low-pass filtered without delay.

        Velocities and accelerations that were not recorded are computed by central differences, which are valid if velocities are
        the rates of the coordinates. A held input jumps at its time stamps, and a central difference contains the accelerations
        before and after a sample; so the input at a sample is its mean from half an interval before to half an interval after the
        sample. The inputs of the result are linear.

        Args:
            interval: Interval of the grid, s.
            cutoff: Cutoff frequency of the Butterworth filter, Hz; None for no filter.
            order: Order of the Butterworth filter.
        """
        grid = self.resampled(interval)

        def smooth(table: Float[np.ndarray, "_ _"]) -> Float[np.ndarray, "_ _"]:
            return table if cutoff is None else low_passed(table, interval, cutoff, order)

        q = smooth(grid.q)
        v = np.gradient(q, interval, axis=0) if grid.v is None else smooth(grid.v)
        a = np.gradient(v, interval, axis=0) if grid.a is None else smooth(grid.a)
        readings = None if grid.readings is None else smooth(grid.readings)
        u = grid.u if self.inputs == "linear" else self._means(grid.time - 0.5 * interval, interval)
        return Recording(self.name, grid.time, q, v, smooth(u), a, readings, "linear")

    def _with(self, time: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> "Recording":
        """The recording with new time stamps and columns, which a function computes from the old ones."""

        def changed(table: Samples) -> Float[np.ndarray, "_ _"]:
            columns = [change(column) for column in table.T]
            return np.stack(columns, axis=1) if columns else np.zeros((len(time), 0))

        v, a, readings = (None if table is None else changed(table) for table in (self.v, self.a, self.readings))
        return Recording(self.name, time, changed(self.q), v, changed(self.u), a, readings, self.inputs)


def low_passed(values: Samples, interval: float, cutoff: float, order: int = 4) -> Samples:
    """Filter columns on a regular grid with zero phase, by a Butterworth low-pass filter that is applied forward and backward.

    The values are not changed if the cutoff frequency is not below the Nyquist frequency of the grid.

    Args:
        values: Values, one column per channel.
        interval: Interval of the grid, s.
        cutoff: Cutoff frequency, Hz.
        order: Order of the filter.
    """
    if 2.0 * cutoff * interval >= 1.0:
        return values
    from scipy import signal  # this import takes 0.5 s

    sections = signal.butter(order, 2.0 * cutoff * interval, output="sos")
    return signal.sosfiltfilt(sections, values, axis=0, padlen=min(3 * (order + 1), len(values) - 1))


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a recording, with its processing.

    Attributes:
        recording: Complete recording, because filters need the surrounding samples.
        start, end: Interval of the part, measured from the first time stamp, s.
        processing: Grid and filters of this recording; None for those of the plant with which the part is compared.
    """

    recording: Recording
    start: float = 0.0
    end: float = np.inf
    processing: Processing | None = None

    @property
    def alone(self) -> Recording:
        """The part as a separate recording.

        Raises:
            RecordingError: There are no samples in the interval.
        """
        first, name = float(self.recording.time[0]), self.recording.name
        try:
            return self.recording.between(first + self.start, first + self.end)
        except RecordingError:
            raise RecordingError(
                f"{name}: no samples between {self.start:g} and {self.end:g} s; its duration is {self.recording.duration:g} s"
            ) from None

    @property
    def processed(self) -> Processing:
        """The processing of this part, or `Processing()` if the part has none."""
        return self.processing or Processing()

    def smoothed(self) -> Recording:
        """The smoothed samples of the part, with accelerations. The whole recording is smoothed before the part is selected.

        Raises:
            RecordingError: No samples are left.
        """
        return self._filtered[0]

    @property
    def input_spacing(self) -> int:
        """Spacing of the inputs around a sample, as a multiple of the interval of the filter.

        Inputs without frequencies above the cutoff are linear within 1/40 of its period, up to errors of 0.3 %.
        """
        how = self.processed.smoothing
        return max(1, int(1.0 / (40.0 * how.cutoff * how.interval))) if how.cutoff else 1

    def smoothed_with_inputs(self, ahead: int) -> tuple[Recording, Float[np.ndarray, "samples knots nu"]]:
        """The smoothed samples, and inputs around each of them: `ahead` ones before and after it, with `input_spacing`."""
        smooth, kept, u = self._filtered
        around = self.input_spacing * np.arange(-ahead, ahead + 1)
        return smooth, u[np.clip(kept[:, None] + around, 0, len(u) - 1)]

    @property
    def _filtered(self) -> tuple[Recording, np.ndarray, Samples]:
        """The smoothed samples, their rows on the grid of the filter, and all inputs on this grid."""
        how = self.processed.smoothing
        grid = self.recording.smoothed(how.interval, cutoff=how.cutoff or None, order=how.order)
        since = grid.time - grid.time[0]
        kept = np.arange(how.drop, len(since) - how.drop, how.decimate)
        kept = kept[(since[kept] >= self.start) & (since[kept] < self.end)]
        if len(kept) < 2:
            raise RecordingError(
                f"{grid.name}: no samples are left after removing {how.drop} at both ends; lower motion.drop, or use a longer part"
            )
        return grid._with(grid.time[kept], lambda column: column[kept]), kept, grid.u


class Windows(eqx.Module):
    """Windows: parts of recordings of equal duration, stacked along the leading axis; each is simulated separately.

    Attributes:
        controls: Inputs of each window on the grid of the simulation, held or linear between its points, with time 0 at the start
            of the window. Held inputs are constant within each step of the simulation, also with delays, see `Knots`.
        times: Time stamps of the measurements from the start of the window, s.
        measurements: Measured values at these times.
        weights: 1 for valid measurements, 0 for missing ones and for padding.
        starts: Guess of the initial states.
        followed: 1 if the next window in the batch starts at the time at which this one ends, otherwise 0.
        sources: Index of the recording of each window.
        interval: Step of the grid, s.
        steps: Number of steps per window.
    """

    controls: Knots
    times: Float[Array, "*windows M"]
    measurements: Float[Array, "*windows M ny"]
    weights: Float[Array, "*windows M ny"]
    starts: State
    followed: Float[Array, "*windows"]
    sources: Float[Array, "*windows"]
    interval: float = eqx.field(static=True, converter=plain)
    steps: int = eqx.field(static=True, converter=plain)

    @property
    def count(self) -> int:
        """Number of windows."""
        return self.times.shape[0]

    def select(self, chosen: np.ndarray | Sequence[int] | slice) -> "Windows":
        """Some of the windows; a window whose successor is not selected is not marked as followed.

        Args:
            chosen: Indices, a slice or a mask.
        """
        index = np.arange(self.count)[chosen]
        part = jax.tree.map(lambda x: x[index], self)
        neighbors = np.concatenate([np.diff(index) == 1, [False]])
        return eqx.tree_at(lambda w: w.followed, part, part.followed * jnp.asarray(neighbors, part.followed.dtype))


def cut(
    recordings: Sequence[Recording],
    *,
    duration: float,
    interval: float,
    stride: float | None = None,
    first: float = 0.0,
    lead: float = 0.0,
    velocity_cutoff: float | Sequence[float] = 20.0,
    with_velocities: bool = False,
    both_ends: bool = False,
) -> Windows:
    """Cut recordings into windows of equal duration. Windows without measurements are left out.

    A measurement at the moment at which one window ends and the next begins belongs to the next window only, unless `both_ends` is
    true. If some recordings have held inputs and others linear ones, the linear inputs are replaced by their means over each step.

    Args:
        recordings: Recordings to cut.
        duration: Duration of a window, s.
        interval: Step of the simulation, s; it must divide the duration.
        stride: Time from the start of a window to the start of the next one, s, a multiple of the interval; by default the
            duration.
        first: Start of the first window, measured from the start of each recording, s; it is rounded to a step.
        lead: Duration by which the inputs of each window begin before the window and end after it, for inputs with delay, s; the
            largest delay of either sign.
        velocity_cutoff: Cutoff frequency of the zero-phase low-pass filter for the guess of the initial velocities, Hz; one value,
            or one per recording. The filter is applied to measured velocities or, without them, to q before d/dt is computed; so
            machines whose velocities are not the rates of their coordinates need measured velocities.
        with_velocities: If true, the velocities are measurements after the coordinates.
        both_ends: If true, a measurement at the common end of two windows belongs to both windows, as needed for windows that are
            evaluated separately.

    Raises:
        TypeError: `recordings` is not a sequence of recordings.
        RecordingError: No window fits, duration or stride is not a whole number of steps, a coordinate was never measured, or
            `with_velocities` is true without measured velocities.
    """
    recordings = checked_list("recordings", recordings, Recording, "Recording(name, time, q, v, u)")
    steps = _whole_steps("windows", duration, interval)
    stride_steps = steps if stride is None else _whole_steps("strides", stride, interval)
    ahead = int(np.ceil(lead / interval - 1e-9))
    found: list[_Piece] = []
    cutoffs = np.broadcast_to(np.asarray(velocity_cutoff, float), (len(recordings),))
    interpolation = "zero_order" if any(recording.inputs == "held" for recording in recordings) else "linear"
    for number, recording in enumerate(recordings):
        if with_velocities and recording.v is None:
            raise RecordingError(
                f"{recording.name}: with_velocities is true, but velocities were not measured; use positions only"
            )
        if with_velocities and recording.readings is not None:
            raise RecordingError(f"{recording.name}: its readings are the measurements; leave with_velocities out")
        grid = recording.resampled(interval)
        if interpolation == "zero_order" and recording.inputs == "linear":
            grid = dataclasses.replace(grid, u=0.5 * (grid.u + np.append(grid.u[1:], grid.u[-1:], axis=0)))
        starts = range(round(first / interval), len(grid.time) - steps, stride_steps)
        tables = [recording.q, recording.v] if with_velocities else [recording.q]
        measurements = np.concatenate(tables, axis=1) if recording.readings is None else recording.readings
        found += _pieces(recording, measurements, number, grid, starts, steps, interval, ahead, cutoffs[number])
    if not found:
        longest = max((r.duration for r in recordings), default=0.0)
        raise RecordingError(f"no window of {duration:g} s fits; the longest recording has {longest:g} s")
    followed = [b.source == a.source and b.first == a.first + steps for a, b in itertools.pairwise(found)]
    count, followed = len(found), np.array([*followed, False])

    def stacked(name: str) -> np.ndarray:
        """The arrays of all windows; shorter ones are padded with their last row."""
        rows = [getattr(piece, name) for piece in found]
        longest = max(len(row) for row in rows)
        return np.stack([np.concatenate([r, np.repeat(r[-1:], longest - len(r), axis=0)]) for r in rows])

    times, measurements = stacked("times"), stacked("measurements")
    lengths = np.array([len(piece.times) for piece in found])
    shared = followed[:, None] & (times > duration - 1e-9) & (not both_ends)
    counted = (np.arange(times.shape[1]) < lengths[:, None]) & ~shared
    counted = counted[:, :, None] & np.isfinite(measurements)
    begins, intervals = on_device(np.full(count, -ahead * interval)), on_device(np.full(count, interval))
    each = functools.partial(Knots, interpolation=interpolation)
    return Windows(
        jax.vmap(each)(on_device(stacked("u")), intervals, begins),
        on_device(times),
        on_device(np.where(counted, measurements, 0.0)),
        on_device(counted.astype(float)),
        State(on_device(stacked("q")), on_device(stacked("v"))),
        on_device(followed.astype(float)),
        on_device(np.array([float(piece.source) for piece in found])),
        interval,
        steps,
    )


def _whole_steps(what: str, duration: float, interval: float) -> int:
    steps = round(duration / interval)
    if steps < 1 or abs(steps * interval - duration) > 1e-6 * duration:
        raise RecordingError(
            f"{what} of {duration:g} s are not a whole number of steps of {interval:g} s; choose a multiple of the step"
        )
    return steps


@dataclasses.dataclass(frozen=True)
class _Piece:
    """One window that starts at grid point `first`, with q and v at its start."""

    u: Float[np.ndarray, "knots _"]
    times: np.ndarray
    measurements: Float[np.ndarray, "stamps _"]
    q: np.ndarray
    v: np.ndarray
    source: int
    first: int


def _pieces(
    recording: Recording,
    measurements: Samples,
    number: int,
    grid: Recording,
    starts: Iterable[int],
    steps: int,
    interval: float,
    ahead: int,
    velocity_cutoff: float,
) -> list[_Piece]:
    """The windows of one recording."""
    if grid.v is not None:
        speed = low_passed(grid.v, interval, velocity_cutoff, 3)
    else:
        speed = np.gradient(low_passed(grid.q, interval, velocity_cutoff, 3), interval, axis=0)
    if not (np.all(np.isfinite(grid.q)) and np.all(np.isfinite(speed))):
        raise RecordingError(f"{recording.name}: a coordinate or velocity was never measured; remove the recording")
    found = []
    for k in starts:
        rows = np.clip(np.arange(k - ahead, k + steps + 1 + ahead), 0, len(grid.time) - 1)
        times = recording.time - (recording.time[0] + k * interval)
        inside = (times >= -1e-9) & (times <= steps * interval + 1e-9)
        if np.any(np.isfinite(measurements[inside & (times < steps * interval - 1e-9)])):
            found.append(_Piece(grid.u[rows], times[inside], measurements[inside], grid.q[k], speed[k], number, k))
    return found
