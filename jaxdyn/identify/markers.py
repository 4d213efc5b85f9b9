"""Filmed markers on a planar chain: link angles from marker positions in the picture, and calibration of the camera."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Complex, Float

from jaxdyn.mechanism.quantity import Quantity, metadata

_PAIRS = ("tilt", "shift", "beside")
_MOST_FRAMES = 20_000  # more frames do not improve the calibration


@dataclasses.dataclass(frozen=True)
class Markers:
    """Filmed markers at the pivot, the joints and the tip of a hanging planar chain, from whose positions joint angles are
    computed.

    The angle of a link is measured from the downward vertical to the line between its two joints. The first coordinate is the angle
    of the first link; the other coordinates are angles relative to the previous link. Any unit of length can be used.

    For a marker at r relative to the first marker, the position without the distortion of the camera is
    r (1 + tilt . r) (1 + distortion r . r) - shift. The vector `beside` is added for a marker that is not at its joint. tilt, shift
    and beside contain a pair (down, sideways) for each marker in sequence, or are empty for no correction.

    Attributes:
        frame_rate: Number of frames per second of the film.
        down: Indices of the columns with the vertical coordinates of the markers, positive downwards, in their order from the
            pivot.
        sideways: Indices of the columns with the horizontal coordinates of the markers, in their order from the pivot.
        calibrate: If true, tilt, distortion, shift and beside are estimated from the training recordings; the given values are the
            initial guess.
        tilt: Relative change of the scale per unit of length along each direction of the picture, as for a tilted camera.
        distortion: Relative change of the scale with the squared distance from the first marker, per unit of length squared.
        shift: Apparent displacement of each marker relative to the first one, for example because of its color.
        beside: Vector from each marker to its joint when the link that ends at the joint hangs straight down; the vector rotates
            with the link.
    """

    frame_rate: float = dataclasses.field(metadata=metadata(Quantity("Hz", minimum=0.0, exclusive=True)))
    down: tuple[int, ...]
    sideways: tuple[int, ...]
    calibrate: bool = False
    tilt: tuple[float, ...] = ()
    distortion: float = 0.0
    shift: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()

    @property
    def is_calibrated(self) -> bool:
        """Whether the distortion of the camera or the positions of the markers are corrected."""
        return bool(self.tilt or self.distortion or self.shift or self.beside)

    def __post_init__(self):
        for name in _PAIRS:
            if len(getattr(self, name)) not in (0, 2 * len(self.down)):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} values; give {2 * len(self.down)}, two per marker, or omit it"
                )


def links(film: Float[np.ndarray, "frames columns"], markers: Markers) -> Complex[np.ndarray, "frames links"]:
    """Lines from joint to joint as complex values, down + i sideways, in the unit of the film."""
    tilt, shift, beside = (_complex(getattr(markers, name), len(markers.down)) for name in _PAIRS)
    return _links(_seen(film, markers), tilt, markers.distortion, shift, beside)


def calibrated(markers: Markers, films: Sequence[Float[np.ndarray, "frames columns"]]) -> Markers:
    """Markers with the camera calibration that makes the lengths of the links as constant as possible, by least squares.

    The lengths of the links do not determine the whole calibration. The vector from the last marker to its joint is assumed to be
    known; an error of this vector only rotates the last link. For a chain with a single link, tilt and shift cannot be
    distinguished.

    Args:
        markers: Markers with the initial guess of the calibration.
        films: Arrays of marker positions, one per film.
    """
    from scipy.optimize import least_squares

    film = np.concatenate(films)
    seen = _seen(film[:: -(-len(film) // _MOST_FRAMES)], markers)
    count, size = seen.shape[1], float(np.median(np.abs(seen[:, -1])))
    seen = seen / size  # scaled so that all unknowns are small
    start = [_complex(getattr(markers, name), count) for name in _PAIRS]
    start = [start[0] * size, start[1] / size, start[2] / size]
    # The first marker is the origin, and the last joint is at its marker.
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
    """Positions in the picture relative to the first marker, down + i sideways."""
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
