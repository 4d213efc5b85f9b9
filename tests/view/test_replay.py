"""The replay: what it computes, and what a real browser shows of it without server and network.

The browser tests need a Chromium (`apt-get install chromium`) and playwright; they are skipped where there is none.
"""

import io
import re

import jax
import numpy as np
import pytest
from browsers import FIRST_PICTURE, chromium, handshake_status, wait_until

import jaxdyn
from jaxdyn.io.config import ConfigError

pytest.importorskip("viser", reason="the replay needs viser")
from jaxdyn.view.recorded_samples import RecordedSamples
from jaxdyn.view.replay import Replay, page_writer
from jaxdyn.view.skeleton import inertia_ellipsoids
from jaxdyn.view.staging import product, quaternions_of, quaternions_to


def swing() -> dict[str, np.ndarray]:
    """Three samples of a double pendulum that turns by a radian in 2 s, and invented energies."""
    time = np.linspace(0.0, 2.0, 21)
    q = np.stack([(0.5 + 0.5 * time)[:, None] * [1.0, -0.6] + 0.4 * sample for sample in range(3)])
    energy = 5.0 + np.sin(3 * time) * np.arange(1, 4)[:, None]
    return {"time": time, "q": q, "energy": energy, "work": energy - energy[:, :1] + 0.1}


@pytest.fixture(scope="module")
def replay() -> Replay:
    return Replay(jaxdyn.library.double_pendulum(), **swing())


@pytest.fixture(scope="module")
def page_file(replay, tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "replay.html"
    replay.write_html(path, samples=[2, 0], overlay=1)
    return path


# --- without a browser ---


def test_frames_are_interpolated_and_samples_follow_around_the_end():
    motion = swing()
    recording = RecordedSamples(jaxdyn.library.double_pendulum(), **motion)
    assert len(recording.instants) == 61
    sample = recording.sample(1)
    np.testing.assert_allclose(sample.q[:, 0], 0.9 + 0.5 * recording.instants, atol=1e-12)
    np.testing.assert_allclose(sample.energy[::3], motion["energy"][1][::1], atol=1e-12)
    assert recording.others(1, 1) == [2]
    assert recording.others(1, 9) == [2, 0]
    low, high = recording.box()
    assert np.all(low < sample.placed.lines.reshape(-1, 3).min(axis=0))
    assert np.all(high > sample.placed.lines.reshape(-1, 3).max(axis=0))


def test_samples_are_computed_in_the_precision_of_the_model_also_where_that_is_switched_off():
    recording = RecordedSamples(jaxdyn.library.double_pendulum(), **swing())
    with jax.enable_x64(False):
        sample = recording.sample(1)
    assert sample.placed.lines.dtype == np.float64
    np.testing.assert_allclose(sample.q[:, 0], 0.9 + 0.5 * recording.instants, atol=1e-12)


def test_wrong_shapes_and_samples_are_refused_in_one_line(replay, tmp_path):
    motion = swing()
    with pytest.raises(ValueError, match=r"q has shape \(3, 21, 2\).*need \(samples, 20, 2\)"):
        Replay(jaxdyn.library.double_pendulum(), motion["time"][:20], motion["q"])
    with pytest.raises(ConfigError, match=r"samples \[3\] exist; choose from 0 to 2"):
        replay.write_html(tmp_path / "replay.html", samples=[3])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        replay.write_html(tmp_path / "file" / "replay.html", samples=[0])


def test_rotations_of_sticks_and_ellipsoids():
    rng = np.random.default_rng(0)
    directions = np.concatenate([rng.normal(size=(20, 3)), [[0, 0, 1.0], [0, 0, -1.0]]])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    w, x, y, z = quaternions_to(directions).T
    z_axis = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    np.testing.assert_allclose(z_axis, directions, atol=1e-9)
    axes = inertia_ellipsoids(jaxdyn.library.panda()).axes
    q = quaternions_of(axes)
    for matrix, unit in zip(axes, q, strict=True):
        for column, image in zip(np.eye(3), matrix.T, strict=True):
            turned = product(product(unit[None], np.array([[0.0, *column]])), unit[None] * [1, -1, -1, -1])
            np.testing.assert_allclose(turned[0, 1:], image, atol=1e-9)


def test_page_holds_everything_and_names_cannot_break_out_of_it(page_file, replay, tmp_path):
    text = page_file.read_text()
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), "nothing is fetched from elsewhere"
    assert text.count("\\u003c!doctype html>") + text.count("\\u003c!DOCTYPE html>") <= 1, "the player is in it once"
    evil = '</script><script>alert("x")</script>'
    builder = jaxdyn.MechanismBuilder(evil)
    builder.add_body(evil, joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1))
    path = tmp_path / "evil.html"
    Replay(builder.build(), np.array([0.0, 0.1]), np.zeros((1, 2, 1))).write_html(path)
    assert "<script>alert" not in path.read_text()


# --- who may connect ---


def test_the_server_that_writes_a_page_refuses_all_requests(capsys):
    with page_writer() as server:
        port = server.get_port()
        for origin in (f"http://127.0.0.1:{port}", "https://example.org", None):  # None: a program that is no browser
            assert " 403 " in handshake_status(port, f"127.0.0.1:{port}", origin)
    assert capsys.readouterr().out == ""


def test_a_server_that_cannot_refuse_requests_is_stopped(replay, monkeypatch, tmp_path):
    stopped = []

    class OtherServer:
        """A server that does not serve through websockets."""

        def __init__(self, *_, **__):
            pass

        def stop(self):
            stopped.append(self)

    monkeypatch.setattr("viser.ViserServer", OtherServer)
    with pytest.raises(ConfigError, match="refuse requests"):
        replay.write_html(tmp_path / "replay.html")
    assert stopped


# --- in a browser ---


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


def pixels(page) -> np.ndarray:
    """What the page shows, (height, width, 3)."""
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(page.screenshot())).convert("RGB"), int)


def blue(picture: np.ndarray) -> int:
    """Pixels of the sticks in focus, whatever the light on them."""
    red, green, blue = np.moveaxis(picture, -1, 0)
    return int(np.sum((blue > red + 70) & (blue > green + 25)))


def moved(picture: np.ndarray, other: np.ndarray) -> float:
    """Share of the pixels in which two pictures differ clearly."""
    return float(np.mean(np.abs(picture - other).sum(axis=-1) > 60))


def until_blue(page, area: slice) -> np.ndarray:
    """The picture as soon as the mechanism stands in it."""
    for _ in range(100):
        picture = pixels(page)[:, area]
        if blue(picture) > 150:
            return picture
        page.wait_for_timeout(100)
    raise AssertionError("the mechanism never appeared")


def test_file_plays_in_a_browser_without_network(page_file, browser):
    context = browser.new_context(offline=True, viewport={"width": 720, "height": 400})
    page = context.new_page()
    asked, problems = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(page_file.as_uri())
    player = page.frame_locator("#player")
    player.locator("[role=slider]").wait_for(state="attached", timeout=FIRST_PICTURE)
    scene, bar = slice(0, 340), 350  # the player without its bar below
    first = until_blue(page, scene)[:bar]
    assert blue(pixels(page)[:, 360:]) > 100, "the charts show curves"
    wait_until(page, lambda: moved(pixels(page)[:bar, scene], first) > 1e-3)  # it plays by itself

    assert page.locator("h1").inner_text() == "double_pendulum: 2 of 3 samples"
    captions = page.locator("figcaption").all_inner_texts()
    assert [caption.split("\n")[0].split(")")[0] for caption in captions] == [
        "energy (J",
        "shoulder (rad",
        "elbow (rad",
    ]
    clock = page.locator("#clock").inner_text()
    page.wait_for_function("text => document.getElementById('clock').textContent !== text", arg=clock)

    shown = "[document.querySelector('canvas').toDataURL(), document.querySelector('iframe').srcdoc]"
    curve, motion = page.evaluate(shown)
    page.select_option("#sample", "0")
    other_curve, other_motion = page.evaluate(shown)
    assert other_curve != curve
    assert other_motion != motion
    assert len(other_motion) == pytest.approx(len(motion), rel=0.01), "the same player with another recording"
    assert not problems
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in asked), asked
    context.close()
