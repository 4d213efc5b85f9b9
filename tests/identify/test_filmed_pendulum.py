"""The experiment that calibrates a camera: errors of the camera are found from the lengths of the links, which do not change."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
from filmed_pendulum import IDEAL, calibrated, links, positions


def test_a_calibrated_camera_shows_the_angles_of_the_links():
    """With a tilt, a distortion, displaced markers and a joint beside its marker the errors are 5e-3 rad and more."""
    angles = np.random.default_rng(1).uniform(-np.pi, np.pi, (2000, 2))
    seen = np.cumsum(np.array([100.0, 80.0]) * np.exp(1j * angles), axis=1)
    seen = seen * (1.0 + 5e-5 * np.real(seen) - 3e-5 * np.imag(seen) - 1e-7 * np.abs(seen) ** 2)
    seen += np.array([0.5 + 0.2j, -0.3 + 0.4j])
    seen[:, 0] -= 0.4 * np.exp(1j * angles[:, 0])
    places = np.concatenate([np.zeros((2000, 1)), seen], axis=1) + 240.0 + 236.0j
    film = positions(np.stack([np.real(places), np.imag(places)], axis=2).reshape(2000, 6))

    def largest_errors(camera):
        return np.abs(np.angle(links(film, camera) * np.exp(-1j * angles))).max(axis=0)

    assert np.all(largest_errors(IDEAL) > 5e-3)
    assert np.all(largest_errors(calibrated([film[:1000], film[1000:]])) < 2e-4)
