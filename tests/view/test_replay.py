"""The replay: what it computes, and what a real browser shows of it, served and as a file without server and network.

The browser tests need a Chromium (`apt-get install chromium`) and playwright; they are skipped where there is none.
"""

import io
import re
import threading
from time import sleep

import jax
import numpy as np
import pytest
from browsers import FIRST_PICTURE, chromium, handshake_status, wait_until

import jaxdyn
from jaxdyn.io.config import ConfigError

pytest.importorskip("viser", reason="the replay needs viser")
from jaxdyn.view.recorded_samples import RecordedSamples
from jaxdyn.view.replay import Replay, Served
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


def test_samples_are_computed_in_the_precision_of_the_model_by_threads_that_know_nothing_of_it():
    recording = RecordedSamples(jaxdyn.library.double_pendulum(), **swing())
    with jax.enable_x64(
        False
    ):  # as a thread of the server finds it when double precision was switched on for another one
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


def test_the_websocket_is_open_to_its_own_page_only(replay):
    client = pytest.importorskip("websockets.sync.client")
    from viser import __version__
    from websockets.exceptions import InvalidStatus

    with replay.serve(port=0) as served:
        port, protocols = served.server.get_port(), [f"viser-v{__version__}"]
        own = [f"http://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
        for origin in (*own, None):  # None: a program that is no browser
            with client.connect(f"ws://127.0.0.1:{port}", origin=origin, subprotocols=protocols) as connection:
                assert connection.recv(timeout=20), "the scene arrives"
        foreign = ["https://example.org", "null", f"http://example.org:{port}", f"http://localhost:{port + 1}"]
        foreign += ["http://localhost", f"http://localhost.example.org:{port}", f"file://localhost:{port}"]
        for origin in foreign:
            with pytest.raises(InvalidStatus) as refused:
                client.connect(f"ws://127.0.0.1:{port}", origin=origin, subprotocols=protocols)
            assert refused.value.response.status_code == 403, origin
            assert b"its page only" in refused.value.response.body
        assert " 403 " in handshake_status(port, f"localhost:{port}", "")
        assert (served._overlay.max, served._overlay.disabled) == (2, False), "two others"


def test_a_name_that_was_rebound_to_this_computer_is_refused(replay):
    with replay.serve(port=0) as served:
        port = served.server.get_port()
        for name in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", f"192.168.1.7:{port}"):
            assert " 101 " in handshake_status(port, name, f"http://{name}"), name
        assert " 101 " in handshake_status(port, "localhost:9999", "http://localhost:9999"), "a forwarded port"
        for name in (f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "evil@localhost", ""):
            assert " 403 " in handshake_status(port, name, f"http://{name}"), name
            assert " 403 " in handshake_status(port, name, None), name


def test_a_server_that_cannot_be_checked_is_not_started(replay, monkeypatch):
    stopped = []

    class OtherServer:
        """A server that does not serve through websockets."""

        def __init__(self, *_, **__):
            pass

        def stop(self):
            stopped.append(self)

    monkeypatch.setattr("viser.ViserServer", OtherServer)
    with pytest.raises(ConfigError, match="refuse requests of other pages"):
        replay.serve(port=0)
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


@pytest.mark.thorough
def test_served_replay_shows_the_time_that_is_set(replay, browser, capsys):
    with replay.serve(port=0) as served:
        context = browser.new_context(viewport={"width": 720, "height": 640})
        page = context.new_page()
        problems = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(served.address)
        page.get_by_label("play").first.wait_for(timeout=FIRST_PICTURE)
        scene = slice(0, 300)
        start = until_blue(page, scene)
        assert blue(pixels(page)[:, 340:]) > 100, "the charts show curves"
        for control in ("time (s)", "speed", "sample", "others in gray", "ellipsoids", "joint axes", "frames"):
            assert page.get_by_text(control, exact=True).count() >= 1, control

        played = page.get_by_label("play").first
        played.click()
        # The page shows a pose some time after the server has set it. It draws moving scenes with fewer pixels, so edges
        # differ from the picture before: in 1.2e-3 of the pixels at the same pose.
        wait_until(page, lambda: moved(pixels(page)[:, scene], start) > 6e-3)
        played.click()
        assert served._time.value > 0.0

        served._time.value = 0.0  # as if the slider had been drawn back
        wait_until(page, lambda: moved(pixels(page)[:, scene], start) < 2e-3)
        assert not problems
        context.close()
    assert capsys.readouterr().out == ""


def test_a_server_calls_the_function_that_follows_the_controls_again_and_again_until_it_stops():
    calls, following = threading.Semaphore(0), []
    with Served("follower", 0, "127.0.0.1") as served:
        stop = served.server.stop
        served.server.stop = lambda: (following.append(served._thread.is_alive()), stop())
        served._follow(lambda: (calls.release(), sleep(0.05)))
        assert all(calls.acquire(timeout=10.0) for _ in range(3))
    assert following == [False]
