"""Filmed markers on a planar chain: from places in the picture to links, and what the camera does to them, learned from lengths."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Complex, Float

from jaxdyn.mechanism.quantity import Quantity, metadata

_PAIRS = ("tilt", "shift", "beside")
_MOST_FRAMES = 20_000  # more do not improve a dozen parameters


@dataclasses.dataclass(frozen=True)
class Markers:
    """Where to read coordinates of a planar chain that hangs: markers at its pivot, its joints and its tip, filmed.

    The angle of each link is that of the line between its joints from the downward vertical; coordinates are the angles of the
    first link and, for the others, relative to the link before. Any unit of length will do.

    What the camera does to a marker at r, seen from the first one, is undone by r (1 + tilt . r) (1 + distortion r . r) - shift;
    where it sits beside the joint that it marks, by adding what is beside. Each is a pair (down, sideways) per marker, one after
    the other, or empty for none.

    Attributes:
        frame_rate: The film has so many frames per second.
        down: These columns of the array hold the vertical coordinates, growing downwards, marker by marker from the pivot on.
        sideways: These columns hold the horizontal coordinates.
        calibrate: If true, the values below are estimated from the training recordings, and the given ones are the initial guess.
        tilt: The scale grows by this along the picture, as a tilted camera has it, per unit of length.
        distortion: The scale grows by this with the square of the distance, per unit of length squared.
        shift: The marker appears by this further down and sideways than the first one does, as colors may.
        beside: This leads from the marker to its joint while the link that ends there hangs straight down; it turns with the link.
    """

    frame_rate: float = dataclasses.field(metadata=metadata(Quantity("Hz", minimum=0.0, exclusive=True)))
    down: tuple[int, ...]
    sideways: tuple[int, ...]
    calibrate: bool = False
    tilt: tuple[float, ...] = ()
    distortion: float = 0.0
    shift: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()

    def __post_init__(self):
        for name in _PAIRS:
            if len(getattr(self, name)) not in (0, 2 * len(self.down)):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} values; give {2 * len(self.down)}, two per marker, or none"
                )


def links(film: Float[np.ndarray, "frames columns"], markers: Markers) -> Complex[np.ndarray, "frames links"]:
    """Lines from joint to joint: down + i sideways, in the unit of the film."""
    tilt, shift, beside = (_complex(getattr(markers, name), len(markers.down)) for name in _PAIRS)
    return _links(_seen(film, markers), tilt, markers.distortion, shift, beside)


def calibrated(markers: Markers, films: Sequence[Float[np.ndarray, "frames columns"]]) -> Markers:
    """The markers with the camera that leaves the lengths of the links as constant as can be; least squares.

    Lengths do not determine everything. The place of the last marker beside its joint is taken as given, which only turns the last
    link. For a chain with a single link, tilt and shift cannot be distinguished.
    """
    from scipy.optimize import least_squares

    film = np.concatenate(films)
    seen = _seen(film[:: -(-len(film) // _MOST_FRAMES)], markers)
    count, size = seen.shape[1], float(np.median(np.abs(seen[:, -1])))
    seen = seen / size  # so that all unknowns are small
    start = [_complex(getattr(markers, name), count) for name in _PAIRS]
    start = [start[0] * size, start[1] / size, start[2] / size]
    # The first marker is the origin, and the last joint is where its marker is.
    free = [np.arange(count) > 0, np.arange(count) > 0, (np.arange(count) > 0) & (np.arange(count) < count - 1)]

    def camera(x: np.ndarray):
        pairs, position = [], 1
        for values, chosen in zip(start, free, strict=True):
            values, n = values.copy(), int(chosen.sum())
            values[chosen] += x[position : position + 2 * n].reshape(-1, 2) @ np.array([1.0, 1.0j])
            pairs.append(values)
            position += 2 * n
        return pairs[0], markers.distortion * size**2 + x[0], pairs[1], pairs[2]

    def stretches(x: np.ndarray) -> np.ndarray:
        lengths = np.abs(_links(seen, *camera(x)))
        return (lengths - lengths.mean(axis=0)).ravel()

    found = least_squares(stretches, np.zeros(1 + 2 * sum(int(chosen.sum()) for chosen in free)))
    tilt, distortion, shift, beside = camera(found.x)
    return dataclasses.replace(
        markers,
        calibrate=False,
        tilt=_pairs(tilt / size),
        distortion=float(distortion / size**2),
        shift=_pairs(shift * size),
        beside=_pairs(beside * size),
    )


def _seen(film: np.ndarray, markers: Markers) -> np.ndarray:
    """Places in the picture from the first marker on, down + i sideways."""
    places = film[:, markers.down] + 1j * film[:, markers.sideways]
    return places - places[:, :1]


def _links(seen: np.ndarray, tilt: np.ndarray, distortion: float, shift: np.ndarray, beside: np.ndarray) -> np.ndarray:
    scale = (1.0 + np.real(tilt.conj() * seen)) * (1.0 + distortion * np.abs(seen) ** 2)
    places = seen * scale - shift
    joints = [places[:, 0]]
    for k in range(1, places.shape[1]):
        line = places[:, k] - joints[-1]
        joints.append(places[:, k] + beside[k] * line / np.abs(line))
    return np.diff(np.stack(joints, axis=1), axis=1)


def _complex(pairs: tuple[float, ...], count: int) -> np.ndarray:
    return np.array(pairs or 2 * count * (0.0,)).reshape(-1, 2) @ np.array([1.0, 1.0j])


def _pairs(places: np.ndarray) -> tuple[float, ...]:
    return tuple(float(x) for place in places for x in (place.real, place.imag))
