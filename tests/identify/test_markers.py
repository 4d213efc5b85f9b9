"""Cameras that are not where they should be, undone by what they do to lengths."""

from pathlib import Path

import numpy as np
import pytest

from jaxdyn.identify.markers import Markers, calibrated, links
from jaxdyn.io.config import ConfigError, read_config
from jaxdyn.jobs.identify_config import IdentifyConfig
from jaxdyn.jobs.identify_plant import plant_of, recordings_of

COLUMNS = {"frame_rate": 100.0, "down": (0, 2, 4), "sideways": (1, 3, 5)}
LENGTHS = np.array([100.0, 80.0])


def chain() -> tuple[np.ndarray, np.ndarray]:
    """Angles from the vertical, and places of pivot, elbow and tip in a picture, down + i sideways."""
    angles = np.random.default_rng(1).uniform(-np.pi, np.pi, (2000, 2))
    places = np.concatenate([np.zeros((2000, 1)), np.cumsum(LENGTHS * np.exp(1j * angles), axis=1)], axis=1)
    return angles, places + 240.0 + 236.0j


def film(places: np.ndarray) -> np.ndarray:
    return np.stack([np.real(places), np.imag(places)], axis=2).reshape(len(places), 6)


def angle_errors(film: np.ndarray, markers: Markers, angles: np.ndarray) -> np.ndarray:
    return np.abs(np.angle(links(film, markers) * np.exp(-1j * angles))).max(axis=0)


def test_a_shift_and_a_joint_beside_its_marker():
    angles, places = chain()
    places[:, 1] += 3.0 - 4.0j + 2.0j * np.exp(1j * angles[:, 0])
    markers = Markers(
        **COLUMNS, shift=(0.0, 0.0, 3.0, -4.0, 0.0, 0.0), beside=(0.0, 0.0, *_turned(-2.0j, LENGTHS[0]), 0.0, 0.0)
    )
    np.testing.assert_allclose(np.abs(links(film(places), markers)), np.broadcast_to(LENGTHS, (2000, 2)), rtol=1e-12)
    assert np.all(angle_errors(film(places), markers, angles) < 1e-12)


def _turned(beside: complex, length: float) -> tuple[float, float]:
    """What is beside the marker, as seen along the line from joint to marker."""
    turned = beside * np.exp(-1j * np.angle(length - beside))
    return float(turned.real), float(turned.imag)


def test_lengths_tell_what_a_camera_does():
    """Tilted, with a lens that bends and colors that are shifted: angles off by 5e-3 and more, by less than 2e-4 afterwards."""
    angles, places = chain()
    seen = places - places[:, :1]
    seen = seen * (1.0 + 5e-5 * np.real(seen) - 3e-5 * np.imag(seen) - 1e-7 * np.abs(seen) ** 2)
    seen[:, 1] += 0.5 + 0.2j - 0.4 * np.exp(1j * angles[:, 0])
    seen[:, 2] += -0.3 + 0.4j
    plain = Markers(**COLUMNS, calibrate=True)
    markers = calibrated(plain, [film(seen[:1000]), film(seen[1000:])])
    assert not markers.calibrate
    assert np.all(angle_errors(film(seen), plain, angles) > 5e-3)
    assert np.all(angle_errors(film(seen), markers, angles) < 2e-4)
    assert np.all(np.std(np.abs(links(film(seen), markers)), axis=0) < 0.02)


def test_a_config_says_so(tmp_path):
    """Training recordings calibrate, and the held-out ones are read with what they told."""
    angles, places = chain()
    places[:, 1] += 0.5 + 0.2j
    np.savez(tmp_path / "film.npz", a=film(places), b=film(places[::2]))
    (tmp_path / "config.toml").write_text(
        'data = "."\n[markers]\nframe_rate = 100.0\ndown = [0, 2, 4]\nsideways = [1, 3, 5]\ncalibrate = true\n'
        '[[study]]\nname = "s"\nmechanism = "m.toml"\ntrain = ["film.npz:a"]\nvalidation = ["film.npz:b"]\n'
        '[[free]]\ninertia = ["all"]\n'
    )
    config = read_config(tmp_path / "config.toml", IdentifyConfig)
    (_,), (held_out,) = recordings_of(config, config.study[0])
    first = angles[::2, 0]
    assert np.abs(np.angle(np.exp(1j * (held_out.recording.q[:, 0] - first)))).max() < 1e-6


def test_pairs_are_counted(tmp_path):
    (tmp_path / "config.toml").write_text(
        'data = "."\nfree = []\nstudy = []\n'
        "[markers]\nframe_rate = 100.0\ndown = [0, 2, 4]\nsideways = [1, 3, 5]\nshift = [1.0, 2.0]\n"
    )
    with pytest.raises(ConfigError, match="shift has 2 values; give 6, two per marker, or omit it"):
        read_config(tmp_path / "config.toml", IdentifyConfig)


def test_noise_of_coordinates_is_that_of_differences_of_angles(tmp_path):
    """Markers tell the angles of links from the vertical, with 1 and 2 mrad; the second coordinate is the second less the first."""
    machine = Path(__file__).parents[2] / "configs" / "machines" / "chaotic_pendulum.toml"
    (tmp_path / "config.toml").write_text(
        f'data = "."\n[markers]\nframe_rate = 100.0\ndown = [0, 2, 4]\nsideways = [1, 3, 5]\n[fit]\nnoise = [1e-3, 2e-3]\n'
        f'[[study]]\nname = "s"\nmechanism = "{machine}"\ntrain = ["film.npz:a"]\n[[free]]\ninertia = ["all"]\n'
    )
    config = read_config(tmp_path / "config.toml", IdentifyConfig)
    noise = plant_of(config, config.study[0]).sensors.noise
    np.testing.assert_allclose(noise, [[1e-6, -1e-6], [-1e-6, 5e-6]], rtol=1e-6)
