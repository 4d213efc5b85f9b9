"""Recordings of a machine, and the windows into which they are cut."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.deprecated import renamed_property
from jaxdyn.dynamics.system import State
from jaxdyn.mechanism.messages import described
from jaxdyn.mechanism.quantity import ACCELERATION, EFFORT, POSITION, VELOCITY, quantity
from jaxdyn.simulate.controls import Knots

Samples = Float[np.ndarray, "samples _"]


class RecordingError(ValueError):
    """A recording that cannot be used; one line with its name and the remedy."""


def _table(values: Any) -> Any:
    """Values of a recording as a floating-point array; None stays None."""
    array = None if values is None else np.asarray(values)
    return array if array is None or np.issubdtype(array.dtype, np.floating) else array.astype(float)


class Recording(eqx.Module):
    """What was measured in one go. Time stamps need not be regular.

    Attributes:
        name: For messages.
        time: Ascending time stamps.
        q: Coordinates; NaN where a sample is missing.
        v: Velocities, or None if they were not measured.
        u: Inputs; shape (samples, 0) for a machine without inputs.
        a: Accelerations, or None if they were not recorded.

    Raises:
        RecordingError: Lengths differ, stamps do not ascend, inputs are not finite.
    """

    name: str = eqx.field(static=True)
    time: Float[np.ndarray, "samples"] = eqx.field(converter=_table, metadata=quantity("s"))
    q: Samples = eqx.field(converter=_table, metadata=quantity(POSITION, along="coordinate"))
    v: Samples | None = eqx.field(converter=_table, metadata=quantity(VELOCITY))
    u: Samples = eqx.field(converter=_table, metadata=quantity(EFFORT, along="input"))
    a: Samples | None = eqx.field(converter=_table, default=None, metadata=quantity(ACCELERATION))

    def __check_init__(self):
        count = len(self.time)
        for what in ("q", "v", "u", "a"):
            array = getattr(self, what)
            if array is not None and (array.ndim != 2 or len(array) != count):
                raise RecordingError(
                    f"{self.name}: {what} has shape {array.shape}; give {count} rows, one per time stamp"
                )
        if count < 2 or not np.all(np.diff(self.time) > 0):
            raise RecordingError(f"{self.name}: time stamps do not ascend; sort them and drop what is there twice")
        if not np.all(np.isfinite(self.u)):
            raise RecordingError(f"{self.name}: inputs are not finite; repair or cut the recording")

    @property
    def duration(self) -> float:
        """From the first to the last stamp, s."""
        return float(self.time[-1] - self.time[0])

    def between(self, start: float, end: float) -> "Recording":
        """The part with start <= time < end."""
        kept = (self.time >= start) & (self.time < end)
        return self._with(self.time[kept], lambda column: column[kept])

    def resampled(self, interval: float) -> "Recording":
        """The recording on a regular grid, linear between samples; gaps are bridged."""
        grid = self.time[0] + interval * np.arange(int(np.floor(self.duration / interval + 1e-9)) + 1)

        def on_grid(column: np.ndarray) -> np.ndarray:
            known = np.isfinite(column)
            if not known.any():
                return np.full(len(grid), np.nan)
            return np.interp(grid, self.time[known], column[known])

        return self._with(grid, on_grid)

    def smoothed(self, interval: float, cutoff: float | None = None, order: int = 4) -> "Recording":
        """The recording on a regular grid with velocities and accelerations, everything low-passed without delay.

        What was recorded of them is taken; the rest are central differences, right where velocities are rates of coordinates.

        Args:
            interval: of the grid, s.
            cutoff, order: of the Butterworth filter, Hz; None for no filter.
        """
        grid = self.resampled(interval)

        def smooth(table: Float[np.ndarray, "_ _"]) -> Float[np.ndarray, "_ _"]:
            return table if cutoff is None else low_passed(table, interval, cutoff, order)

        q = smooth(grid.q)
        v = np.gradient(q, interval, axis=0) if grid.v is None else smooth(grid.v)
        a = np.gradient(v, interval, axis=0) if grid.a is None else smooth(grid.a)
        return Recording(self.name, grid.time, q, v, smooth(grid.u), a)

    def _with(self, time: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> "Recording":
        """The recording with other stamps, and every column changed to suit."""

        def changed(table: Samples) -> Float[np.ndarray, "_ _"]:
            columns = [change(column) for column in table.T]
            return np.stack(columns, axis=1) if columns else np.zeros((len(time), 0))

        v, a = (None if table is None else changed(table) for table in (self.v, self.a))
        return Recording(self.name, time, changed(self.q), v, changed(self.u), a)


def low_passed(values: Samples, interval: float, cutoff: float, order: int = 4) -> Samples:
    """Columns of a regular grid without what is faster than `cutoff` (Hz): Butterworth, forward and backward, so without delay.

    A grid that holds nothing so fast stays as it is.
    """
    if 2.0 * cutoff * interval >= 1.0:
        return values
    from scipy import signal  # takes half a second to import

    sections = signal.butter(order, 2.0 * cutoff * interval, output="sos")
    return signal.sosfiltfilt(sections, values, axis=0, padlen=min(3 * (order + 1), len(values) - 1))


class Windows(eqx.Module):
    """Pieces of recordings of equal length, stacked; each is simulated on its own.

    Attributes:
        controls: (W,) inputs on the grid of the simulation, time 0 at the start of the window.
        times: Stamps of the measurements in the window, from its start, s.
        measurements: What the sensors said then.
        weights: 1 for a reading that counts, 0 for one that is missing or fills up the array.
        starts: First guess of the states at the starts.
        followed: 1 if the next window begins where this one ends, else 0.
        sources: Index of the recording of each window.
        interval: Step of the grid, s.
        steps: Per window.
    """

    controls: Knots
    times: Float[Array, "*windows M"]
    measurements: Float[Array, "*windows M ny"]
    weights: Float[Array, "*windows M ny"]
    starts: State
    followed: Float[Array, "*windows"]
    sources: Float[Array, "*windows"]
    interval: float = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    readings = renamed_property("readings", "measurements")

    @property
    def count(self) -> int:
        """Number of windows."""
        return self.times.shape[0]

    def select(self, chosen: np.ndarray | Sequence[int] | slice) -> "Windows":
        """Some of the windows; one whose successor is left out is no longer followed.

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
    velocity_cutoff: float = 20.0,
    with_velocities: bool = False,
    both_ends: bool = False,
) -> Windows:
    """Windows of equal duration from recordings, as many as fit. Those in which nothing was measured are left out.

    A reading at the very moment where one window ends and the next begins belongs to the next, so that it counts once, unless
    `both_ends` is true.

    Args:
        duration: of a window, s.
        interval: Step of the simulation, s; must divide the duration.
        stride: From the start of a window to that of the next, s, a multiple of the interval; the duration if not given.
        first: Start of the first window, from the start of each recording, s, to the nearest step.
        lead: How much of the inputs before the start is kept, for inputs with delay, s.
        velocity_cutoff: of the zero-phase low-pass for the guess of the initial velocities, Hz. They are those measured if there
            are any, else d/dt of q; so machines whose velocities are not the rates of their coordinates need measured velocities.
        with_velocities: Whether measurements are q and v, not q alone.
        both_ends: Whether a reading between two windows belongs to both, as it does where each is judged on its own.

    Raises:
        TypeError: `recordings` is not a sequence of recordings.
        RecordingError: No window fits, duration or stride is not a whole number of steps, a coordinate was never measured, or
            velocities are wanted that were not measured.
    """
    if isinstance(recordings, Recording) or not all(isinstance(entry, Recording) for entry in recordings):
        wrong = (
            recordings
            if isinstance(recordings, Recording)
            else next(x for x in recordings if not isinstance(x, Recording))
        )
        inside = "" if wrong is recordings else "among the recordings "
        raise TypeError(f"{inside}there is {described(wrong)}; give a list of Recording objects")
    steps = _whole_steps("windows", duration, interval)
    stride_steps = steps if stride is None else _whole_steps("strides", stride, interval)
    ahead = int(np.ceil(lead / interval - 1e-9))
    found: list[_Piece] = []
    for number, recording in enumerate(recordings):
        if with_velocities and recording.v is None:
            raise RecordingError(f"{recording.name}: velocities are wanted but were not measured; read positions only")
        grid = recording.resampled(interval)
        starts = range(round(first / interval), len(grid.time) - steps, stride_steps)
        found += _pieces(recording, number, grid, starts, steps, interval, ahead, velocity_cutoff, with_velocities)
    if not found:
        longest = max((r.duration for r in recordings), default=0.0)
        raise RecordingError(f"no window of {duration:g} s fits; the longest recording has {longest:g} s")
    followed = [b.source == a.source and b.first == a.first + steps for a, b in itertools.pairwise(found)]
    count, followed = len(found), np.array([*followed, False])

    def stacked(name: str) -> np.ndarray:
        """The arrays of all windows; shorter ones are filled up with their last row."""
        rows = [getattr(piece, name) for piece in found]
        longest = max(len(row) for row in rows)
        return np.stack([np.concatenate([r, np.repeat(r[-1:], longest - len(r), axis=0)]) for r in rows])

    times, measurements = stacked("times"), stacked("measurements")
    lengths = np.array([len(piece.times) for piece in found])
    shared = followed[:, None] & (times > duration - 1e-9) & (not both_ends)
    counted = (np.arange(times.shape[1]) < lengths[:, None]) & ~shared
    counted = counted[:, :, None] & np.isfinite(measurements)
    controls = jax.vmap(Knots)(jnp.asarray(stacked("u")), jnp.full(count, interval), jnp.full(count, -ahead * interval))
    return Windows(
        controls,
        jnp.asarray(times),
        jnp.asarray(np.where(counted, measurements, 0.0)),
        jnp.asarray(counted.astype(float)),
        State(jnp.asarray(stacked("q")), jnp.asarray(stacked("v"))),
        jnp.asarray(followed.astype(float)),
        jnp.asarray([float(piece.source) for piece in found]),
        interval,
        steps,
    )


def _whole_steps(what: str, duration: float, interval: float) -> int:
    steps = round(duration / interval)
    if steps < 1 or abs(steps * interval - duration) > 1e-6 * duration:
        raise RecordingError(
            f"{what} of {duration:g} s are not a whole number of steps of {interval:g} s; choose others"
        )
    return steps


@dataclasses.dataclass(frozen=True)
class _Piece:
    """One window that starts at grid point `first`; q and v at its start."""

    u: Float[np.ndarray, "knots _"]
    times: np.ndarray
    measurements: Float[np.ndarray, "stamps _"]
    q: np.ndarray
    v: np.ndarray
    source: int
    first: int


def _pieces(
    recording: Recording,
    number: int,
    grid: Recording,
    starts: Iterable[int],
    steps: int,
    interval: float,
    ahead: int,
    velocity_cutoff: float,
    with_velocities: bool,
) -> list[_Piece]:
    """The windows of one recording."""
    if grid.v is not None:
        speed = low_passed(grid.v, interval, velocity_cutoff, 3)
    else:
        speed = np.gradient(low_passed(grid.q, interval, velocity_cutoff, 3), interval, axis=0)
    if not (np.all(np.isfinite(grid.q)) and np.all(np.isfinite(speed))):
        raise RecordingError(f"{recording.name}: a coordinate or velocity was never measured; leave the recording out")
    measurements = recording.q
    if with_velocities and recording.v is not None:
        measurements = np.concatenate([recording.q, recording.v], axis=1)
    found = []
    for k in starts:
        rows = np.clip(np.arange(k - ahead, k + steps + 1), 0, len(grid.time) - 1)
        times = recording.time - (recording.time[0] + k * interval)
        inside = (times >= -1e-9) & (times <= steps * interval + 1e-9)
        if np.any(np.isfinite(measurements[inside & (times < steps * interval - 1e-9)])):
            found.append(_Piece(grid.u[rows], times[inside], measurements[inside], grid.q[k], speed[k], number, k))
    return found
