"""Moving pictures: as many frames as the motion needs, of one size, all different."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import jaxdyn
from jaxdyn.io.config import ConfigError
from jaxdyn.view import animation

MODEL = jaxdyn.library.double_pendulum()
TIME = np.linspace(0.0, 0.3, 4)
Q = np.stack([np.outer(TIME, [2.0, -3.0]), np.outer(TIME, [1.0, 1.0])])


def test_gif_has_the_frames_and_the_duration_of_the_motion(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "motion.gif"
    assert animation.animate(MODEL, TIME, Q, path, fps=25, progress=False) == 8  # 0.00, 0.04, ... 0.28 s
    with image.open(path) as file:
        assert file.n_frames == 8
        assert file.size == (540, 540)
        frames = []
        for k in range(file.n_frames):
            file.seek(k)
            assert file.info["duration"] == 40  # milliseconds
            frames.append(np.asarray(file.convert("RGB"), int))
    for before, after in zip(frames, frames[1:], strict=False):
        assert np.mean(np.abs(after - before).sum(axis=-1) > 30) > 1e-3
    for frame in frames:  # the camera stands still, and so do the labels at the bottom
        assert np.mean(np.abs(frame[-45:] - frames[0][-45:]).sum(axis=-1) > 60) == 0


def test_frames_of_a_gif_last_whole_hundredths_and_slow_motion_has_more_of_them(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "slow.gif"
    frames = animation.animate(MODEL, TIME, Q[:1], path, fps=30, speed=0.5, progress=False)
    assert frames == 21  # every 0.015 s of motion: 0.03 s at half the speed
    with image.open(path) as file:
        assert file.info["duration"] == 30
        assert file.n_frames == frames


def test_mp4_is_written_by_whatever_ffmpeg_there_is(tmp_path):
    if animation._ffmpeg() is None:
        pytest.skip("no ffmpeg; pip install imageio-ffmpeg")
    path = tmp_path / "motion.mp4"
    assert animation.animate(MODEL, TIME, Q, path, fps=20, lanes=[1, 0], progress=False) == 7
    command = [animation._ffmpeg(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    frames = np.frombuffer(pixels, np.uint8).reshape(-1, 540, 540, 3).astype(int)
    assert len(frames) == 7
    for before, after in zip(frames, frames[1:], strict=False):
        assert np.mean(np.abs(after - before) > 40) > 1e-3


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"path": "motion.avi"}, ["motion.avi", ".gif", ".mp4"]),
        ({"path": "nowhere/motion.gif"}, ["motion.gif", "cannot be written"]),
        ({"lanes": [0, 2]}, ["[0, 2]", "0 to 1"]),
        ({"lanes": []}, ["0 to 1"]),
        ({"speed": 0.0}, ["speed = 0", "positive"]),
    ],
)
def test_bad_input_is_one_line(change, fragments, tmp_path):
    arguments = {"path": "motion.gif"} | change
    path = tmp_path / arguments.pop("path")
    with pytest.raises(ConfigError) as caught:
        animation.animate(MODEL, TIME, Q, path, progress=False, **arguments)
    assert len(str(caught.value).splitlines()) == 1
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_missing_ffmpeg_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ConfigError, match="pip install imageio-ffmpeg, or write a .gif"):
        animation.animate(MODEL, TIME, Q, tmp_path / "motion.mp4", progress=False)
