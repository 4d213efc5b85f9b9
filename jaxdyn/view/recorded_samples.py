"""Recorded motions of many samples, prepared for display frame by frame."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.view import contacts, skeleton
from jaxdyn.view.contacts import Touching
from jaxdyn.view.skeleton import Mechanism, Placed, Values

_FRAME_RATE = 30.0  # frames per second of the motion
_MOST_FRAMES = 900
_SAMPLES_OF_BOX = 8


class Sample(NamedTuple):
    """One sample at the instants of a recording.

    Attributes:
        placed: Positions of all parts; the axis of samples has length one.
        q: Coordinates, rad or m.
        energy: Kinetic and potential energy, J, or None.
        work: Work done on the mechanism so far, J, or None.
        touching: Contacts, or None for a mechanism without contacts.
    """

    placed: Placed
    q: Float[np.ndarray, "instants nq"]
    energy: Float[np.ndarray, "instants"] | None
    work: Float[np.ndarray, "instants"] | None
    touching: Touching | None


def check_samples(numbers: Iterable[int], samples: int) -> list[int]:
    """Check indices of samples and return them as a list.

    Raises:
        ConfigError: An index is negative or not below `samples`, or no index is given.
    """
    chosen = list(numbers)
    if not chosen or not all(0 <= sample < samples for sample in chosen):
        raise ConfigError(f"not all of the samples {chosen} exist; choose from 0 to {samples - 1}")
    return chosen


class RecordedSamples:
    """Motions of one mechanism, interpolated to frames of equal duration.

    Attributes:
        mechanism: The model or system.
        model: The mechanism, without constraints.
        samples: Number of samples.
        instants: Times of the frames, s: 30 frames per second, fewer for motions longer than half a minute.
        visuals: Shapes of the bodies.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        time: Values,
        q: Values,
        *,
        v: Values | None = None,
        energy: Values | None = None,
        work: Values | None = None,
        visuals: Sequence[Visual] = (),
    ):
        """Take recorded motions, which are interpolated between records.

        Args:
            mechanism: A model, or a system; the loops, the ground and the contacts of a system are drawn too.
            time: Times of the records (T,), s, ascending.
            q: Coordinates (samples, T, nq), rad or m.
            v: Velocities (samples, T, nv), rad/s or m/s; without them, contact forces are not drawn.
            energy: Kinetic and potential energy (samples, T), J.
            work: Work done up to each time (samples, T), J.
            visuals: Shapes of the bodies, see `jaxdyn.io.load_visuals`. Samples in gray are drawn as sticks.

        Raises:
            ValueError: The shapes do not match.
        """
        self.mechanism, self.visuals = mechanism, tuple(visuals)
        self.model = model = skeleton.model_of(mechanism)
        self._time, self._q = np.asarray(time, float), np.asarray(q)
        self._v = None if v is None else np.asarray(v)
        self._energy, self._work = (None if x is None else np.asarray(x, float) for x in (energy, work))
        records = len(self._time)
        for name, values, width in (("q", self._q, model.nq), ("v", self._v, model.nv)):
            needed = (*self._q.shape[:1], records, width)
            if values is not None and (values.shape != needed or not needed[0]):
                raise ValueError(
                    f"{name} has shape {values.shape}; mechanism {model.name!r} and the {records} times given need "
                    f"({'samples' if name == 'q' else needed[0]}, {records}, {width})"
                )
        self.samples = len(self._q)
        span = float(self._time[-1] - self._time[0])
        frames = int(np.clip(round(span * _FRAME_RATE) + 1, 2, _MOST_FRAMES))
        self.instants = np.linspace(self._time[0], self._time[-1], frames)
        self._known: dict[int, Sample] = {}

    def sample(self, number: int) -> Sample:
        """Displayed data of one sample, computed on first access."""
        if number not in self._known:
            # The caller may have loaded the model within a context of double precision that has ended.
            with jax.enable_x64(self.model.dtype == np.float64):
                q = skeleton.resampled(self.model, self._time, self._q[number : number + 1], self.instants)
                placed = skeleton.place(self.mechanism, self.instants, q)
            v = None if self._v is None else self._v[number]
            touching = contacts.touching(self.mechanism, self._time, self._q[number], v, self.instants, q[0])
            energy, work = (
                None if x is None else np.interp(self.instants, self._time, x[number])
                for x in (self._energy, self._work)
            )
            self._known[number] = Sample(placed, q[0], energy, work, touching)
        return self._known[number]

    def others(self, number: int, count: int) -> list[int]:
        """Indices of the samples to draw in gray with a sample: the next ones, beginning again with 0 after the last one."""
        return [(number + k) % self.samples for k in range(1, min(count, self.samples - 1) + 1)]

    def box(self, visuals: Sequence[Visual] = ()) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
        """Corners (m) of a box around the motion of the first samples."""
        shown = [self.sample(number).placed for number in range(min(self.samples, _SAMPLES_OF_BOX))]
        return skeleton.box_around(shown, self.model, visuals)
