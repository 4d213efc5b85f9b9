"""Recorded motions of many samples, prepared for display frame by frame."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.visuals import Visual
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


class Recording:
    """Motions of one mechanism, interpolated to frames of equal duration; for the arguments see `Replay`.

    Attributes:
        mechanism: The model or system.
        model: The mechanism, without constraints.
        samples: Number of samples.
        instants: Times of the frames, s: 30 frames per second, fewer for motions longer than half a minute.
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
    ):
        self.mechanism = mechanism
        self.model = model = skeleton.model_of(mechanism)
        self._time, self._q = np.asarray(time, float), np.asarray(q)
        self._v = None if v is None else np.asarray(v)
        if self._v is not None and self._v.shape != (*self._q.shape[:2], model.nv):
            raise ValueError(
                f"v has shape {self._v.shape}; the coordinates given need {(*self._q.shape[:2], model.nv)}"
            )
        self._energy, self._work = (None if x is None else np.asarray(x, float) for x in (energy, work))
        expected = (len(self._time), model.nq)
        if self._q.ndim != 3 or self._q.shape[1:] != expected or not len(self._q):
            raise ValueError(
                f"q has shape {self._q.shape}; mechanism {model.name!r} and the {len(self._time)} times given need "
                f"(samples, {expected[0]}, {expected[1]})"
            )
        self.samples = len(self._q)
        span = float(self._time[-1] - self._time[0])
        frames = int(np.clip(round(span * _FRAME_RATE) + 1, 2, _MOST_FRAMES))
        self.instants = np.linspace(self._time[0], self._time[-1], frames)
        self._known: dict[int, Sample] = {}

    def sample(self, number: int) -> Sample:
        """Displayed data of one sample, computed on first access."""
        if number not in self._known:
            # A thread of the server may call this, and threads do not inherit the precision that was set when the model was loaded.
            with jax.enable_x64(self.model.dtype == np.float64):
                q = skeleton.resampled(self.model, self._time, self._q[number : number + 1], self.instants)
                placed = skeleton.place(self.mechanism, self.instants, q)
            touching = self._touching(number, q[0])
            energy, work = (
                None if x is None else np.interp(self.instants, self._time, x[number])
                for x in (self._energy, self._work)
            )
            self._known[number] = Sample(placed, q[0], energy, work, touching)
        return self._known[number]

    def _touching(self, number: int, between: Float[np.ndarray, "instants nq"]) -> Touching | None:
        if not (isinstance(self.mechanism, System) and contacts.contacts_of(self.mechanism)):
            return None
        v = None if self._v is None else self._v[number]
        return contacts.touching(self.mechanism, self._time, self._q[number], v, self.instants, between)

    def others(self, number: int, count: int) -> list[int]:
        """Indices of the samples to draw in gray with a sample: the next ones, beginning again with 0 after the last one."""
        return [(number + k) % self.samples for k in range(1, min(count, self.samples - 1) + 1)]

    def box(self, visuals: Sequence[Visual] = ()) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
        """Corners (m) of a box around the motion of the first samples."""
        shown = [self.sample(number).placed for number in range(min(self.samples, _SAMPLES_OF_BOX))]
        return skeleton.box_around(shown, self.model, visuals)
