"""Moving pictures: as many frames as the motion needs, of one size, all different."""

import itertools
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from legible import assert_legible

import jaxdyn
from jaxdyn.io.config import ConfigError
from jaxdyn.view import animation
from jaxdyn.view.skeleton import place
from jaxdyn.view.style import BLUE, ORANGE, rgb

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
    colored = [np.abs(frame - rgb(BLUE)).sum(axis=-1) < 60 for frame in frames]
    assert min(mask.sum() for mask in colored) > 500, "the first sample is in color in every frame"
    for before, after in itertools.pairwise(colored):
        assert np.mean(before != after) > 1e-3, "and moves"
    for frame in frames:  # the camera stands still, and so do the labels at the bottom
        assert np.mean(np.abs(frame[-45:] - frames[0][-45:]).sum(axis=-1) > 60) == 0


def test_two_processes_may_write_one_animation_at_a_time(tmp_path, monkeypatch):
    both, write = threading.Barrier(2, timeout=60), animation._write_gif

    def written_by_both(*arguments):
        write(*arguments)
        both.wait()  # both files are there before one of them gets its name

    monkeypatch.setattr(animation, "_write_gif", written_by_both)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: animation.animate(MODEL, TIME, Q, tmp_path / "m.gif", fps=5, progress=False), "ab"))
    assert [file.name for file in tmp_path.iterdir()] == ["m.gif"]


def test_frames_of_a_gif_last_whole_hundredths_and_slow_motion_has_more_of_them(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "slow.gif"
    frames = animation.animate(MODEL, TIME, Q[:1], path, fps=30, speed=0.5, progress=False)
    assert frames == 21  # every 0.015 s of motion: 0.03 s at half the speed
    with image.open(path) as file:
        assert file.info["duration"] == 30
        assert file.n_frames == frames


def test_a_gif_of_another_size_loops_and_has_the_colors_of_the_picture_but_few(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "small.gif"
    animation.animate(MODEL, TIME, Q[:1], path, fps=10, size=260, progress=False)
    with image.open(path) as file:
        assert file.size == (260, 260)
        assert file.info["loop"] == 0  # without end
        pixels = np.asarray(file.convert("RGB"), int).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) <= 64
    for color in ((255, 255, 255), rgb(BLUE), rgb(ORANGE)):
        assert np.abs(pixels - color).sum(axis=-1).min() < 20, "background, sticks and joints keep their colors"


def test_mp4_is_written_by_whatever_ffmpeg_there_is(tmp_path):
    if animation._ffmpeg() is None:
        pytest.skip("no ffmpeg; pip install imageio-ffmpeg")
    path = tmp_path / "motion.mp4"
    assert animation.animate(MODEL, TIME, Q, path, fps=20, samples=[1, 0], progress=False) == 7
    command = [animation._ffmpeg(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    frames = np.frombuffer(pixels, np.uint8).reshape(-1, 540, 540, 3).astype(int)
    assert len(frames) == 7
    for before, after in itertools.pairwise(frames):
        assert np.mean(np.abs(after - before) > 40) > 1e-3


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"path": "motion.avi"}, ["motion.avi", ".gif", ".mp4"]),
        ({"path": "nowhere/motion.gif"}, ["motion.gif", "cannot be written"]),
        ({"samples": [0, 2]}, ["[0, 2]", "0 to 1"]),
        ({"samples": []}, ["0 to 1"]),
        ({"speed": 0.0}, ["speed = 0", "positive"]),
        ({"size": 20}, ["size = 20", "200 to 2000"]),
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
    with pytest.raises(ConfigError, match=r"pip install imageio-ffmpeg, or write a \.gif"):
        animation.animate(MODEL, TIME, Q, tmp_path / "motion.mp4", progress=False)


@pytest.mark.parametrize("model", [MODEL, jaxdyn.library.panda()], ids=lambda model: model.name)
def test_frames_are_labeled_and_legible(model):
    q = np.linspace(0.1, 0.9, 3)[None, :, None] * np.linspace(1.0, -1.0, model.nq)
    figure, move, _ = animation._stage(model, place(model, np.zeros(3), q), "", 2)
    for frame in (0, 2):
        move(frame, "t =  12.34 s (0.5x)")
        assert_legible(figure)
    assert figure.axes[0].get_zlabel() == "z (m)"
