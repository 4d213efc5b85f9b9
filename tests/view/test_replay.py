"""The replay: what it computes, and what a real browser shows of it without server and network.

The browser tests need a Chromium (`apt-get install chromium`) and playwright; they are skipped where there is none.
"""

import io
import re

import jax
import numpy as np
import pytest
from browsers import chromium, content_of, numbers_of, wait_until

import jaxdyn
from jaxdyn.io.config import ConfigError
from jaxdyn.view.page import poses_of
from jaxdyn.view.recorded_samples import RecordedSamples
from jaxdyn.view.replay import Replay


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


def test_page_holds_everything_and_names_cannot_break_out_of_it(page_file, replay, tmp_path):
    text, content = page_file.read_text(), content_of(page_file)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), "nothing is fetched from elsewhere"
    assert content["samples"] == [[2, [0]], [0, [1]]]
    for number in (0, 1, 2):
        placed = replay.sample(number).placed
        poses = numbers_of(content, number, "poses", 7)
        np.testing.assert_allclose(poses[..., 4:], placed.origins[0], atol=1e-6)
        turns = np.sum(poses[..., :4] * placed.quaternions[0], axis=-1)
        np.testing.assert_allclose(np.abs(turns), 1.0, atol=1e-6)
        flipped = placed.quaternions * (-1.0) ** np.arange(len(poses))[:, None, None]
        np.testing.assert_allclose(poses_of(placed._replace(quaternions=flipped)), poses, atol=1e-6)
    evil = '</script><script>alert("x")</script>'
    builder = jaxdyn.MechanismBuilder(evil)
    builder.add_body(evil, joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1))
    path = tmp_path / "evil.html"
    Replay(builder.build(), np.array([0.0, 0.1]), np.zeros((1, 2, 1))).write_html(path)
    assert "<script>alert" not in path.read_text()


def test_a_page_of_many_long_motions_has_less_than_five_megabytes(tmp_path):
    time = np.linspace(0.0, 60.0, 11)
    many = Replay(jaxdyn.library.double_pendulum(), time, np.sin(np.outer(np.arange(60), time))[..., None] * [1.0, 2.0])
    many.write_html(tmp_path / "replay.html", samples=range(60), overlay=0)
    assert 4e6 < (tmp_path / "replay.html").stat().st_size < 5e6


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


def test_file_plays_in_a_browser_without_network(replay, page_file, browser):
    context = browser.new_context(offline=True, viewport={"width": 770, "height": 400})
    page = context.new_page()
    asked, problems = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(page_file.as_uri())
    scene, panel = np.s_[:, :390], np.s_[:, 405:]
    wait_until(page, lambda: blue(pixels(page)[scene]) > 150)
    assert blue(pixels(page)[panel]) > 100, "the charts show curves"

    assert page.locator("h1").inner_text() == "double_pendulum: 2 of 3 samples"
    captions = page.locator("figcaption").all_inner_texts()
    assert [caption.split("\n")[0].split(")")[0] for caption in captions] == [
        "energy (J",
        "shoulder (rad",
        "elbow (rad",
    ]
    clock = page.get_by_role("spinbutton").input_value()
    wait_until(page, lambda: page.get_by_role("spinbutton").input_value() != clock)  # it plays by itself
    page.get_by_text("pause").click()
    page.get_by_role("slider").fill("1.5")
    page.get_by_label("sample", exact=True).select_option("0")
    sample = replay.sample(0)
    at_cursor = [sample.energy - sample.energy[0], sample.work, *sample.q.T]
    shown = page.evaluate("[values[0], ...rowOf(tables[0], 'curves', curves)[0]]")
    np.testing.assert_allclose(shown, [1.5, *np.array(at_cursor)[:, 45]], atol=1e-6)
    poses = page.evaluate("poses().map((pose) => pose.at)")
    np.testing.assert_allclose(poses, sample.placed.origins[0, 45], atol=1e-6)
    page.wait_for_function("!drawing")
    with_others = pixels(page)
    page.get_by_label("other samples").uncheck()
    page.wait_for_function("!drawing")
    wait_until(page, lambda: np.mean(np.any(pixels(page)[scene] != with_others[scene], axis=-1)) > 1e-3)
    assert not problems
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in asked), asked
    context.close()
