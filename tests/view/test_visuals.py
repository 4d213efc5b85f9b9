"""Visual geometry in the browser: on the mechanism page, and in the replay of a run."""

import base64

import jax.numpy as jnp
import numpy as np
import pytest
from browsers import chromium, content_of, numbers_of
from PIL import Image

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.io import load_run, load_system, load_visuals
from jaxdyn.io.shapes.visual_files import MOST_TRIANGLES, visuals_of_run
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.io.xml import IgnoredContent
from jaxdyn.view.animation import animate
from jaxdyn.view.mechanism_page import write_mechanism_page
from jaxdyn.view.replay import Replay

URDF = """<robot name="pusher"><link name="base"/><link name="rod">
<inertial><origin xyz="0 0 -0.2"/><mass value="1"/><inertia ixx="0.02" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><origin xyz="0 0 -0.2" rpy="0 0 0.3"/><geometry><box size="0.3 0.3 0.4"/></geometry>
<material name="red"><color rgba="1 0 0 1"/></material></visual></link>
<joint name="pivot" type="revolute"><parent link="base"/><child link="rod"/><origin xyz="0 0 1"/><axis xyz="0 1 0"/>
<limit lower="-2" upper="2" effort="1" velocity="1"/></joint></robot>"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pusher.urdf"
    path.write_text(URDF)
    return path


def test_a_page_has_the_shapes_of_a_file_on_their_bodies(file, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["view", str(file), "--html", str(page)]) == 0
    content = content_of(page)
    (shape,) = content["visuals"]
    assert (shape["node"], shape["color"]) == (0, [1.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(shape["at"], [0, 0, -0.2])
    np.testing.assert_allclose(shape["turn"], [np.cos(0.15), 0, 0, np.sin(0.15)])
    mesh = content["meshes"][shape["mesh"]]
    points = np.frombuffer(base64.b64decode(mesh["points"]), "<u2").reshape(-1, 3) * mesh["steps"] + mesh["low"]
    faces = np.frombuffer(base64.b64decode(mesh["faces"]), "<u2").reshape(-1, 3)
    np.testing.assert_allclose(
        np.ptp(points[faces].reshape(-1, 3) * shape["scale"], axis=0), [0.3, 0.3, 0.4], atol=1e-6
    )
    assert dict(content["switches"]) == dict.fromkeys(("sticks", "joint axes", "ellipsoids", "frames"), False) | {
        "visuals": True
    }


def test_bodies_without_shapes_keep_their_sticks(file, tmp_path):
    page, system = tmp_path / "page.html", load_system(file)
    write_mechanism_page(system, page)
    assert dict(content_of(page)["switches"])["sticks"] is True
    (visual,) = load_visuals(file, system)
    write_mechanism_page(system, page, visuals=[visual._replace(body=-1)])
    assert dict(content_of(page)["switches"])["sticks"] is True


def test_a_page_with_as_many_triangles_as_are_read_has_at_most_five_megabytes(file, tmp_path):
    soup = np.random.default_rng(0).normal(size=(3 * MOST_TRIANGLES, 3)), np.arange(3 * MOST_TRIANGLES).reshape(-1, 3)
    visual = Visual(0, np.zeros(3), np.array([1.0, 0, 0, 0]), soup, np.ones(3), (1.0, 1.0, 1.0, 1.0))
    write_mechanism_page(load_system(file), tmp_path / "page.html", visuals=[visual])
    assert (tmp_path / "page.html").stat().st_size < 5e6


def test_a_browser_shows_a_body_in_its_color(file, tmp_path):
    with chromium() as browser:
        page = browser.new_context(offline=True, viewport={"width": 700, "height": 400}).new_page()
        problems = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        write_mechanism_page(load_system(file), tmp_path / "page.html", visuals=load_visuals(file, load_system(file)))
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_function("meshes.length === 4 && !drawing")
        reds = page.evaluate(
            """() => {
              draw();
              const bytes = new Uint8Array(4 * canvas.width * canvas.height);
              gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
              let count = 0;
              for (let k = 0; k < bytes.length; k += 4) count += bytes[k] > 80 && bytes[k + 1] < 60 && bytes[k + 2] < 60;
              return count;
            }"""
        )
        assert not problems
        assert reds > 1000


def test_a_replay_moves_the_shapes_with_their_bodies_and_hides_the_sticks(file, tmp_path):
    system = load_system(file)
    replay = Replay(system, np.array([0.0, 1.0]), np.array([[[0.6], [0.6]]]), visuals=load_visuals(file, system))
    replay.write_html(tmp_path / "replay.html")
    content = content_of(tmp_path / "replay.html")
    assert {"visuals": True, "sticks": False}.items() <= dict(content["switches"]).items()
    assert [shape["node"] for shape in content["visuals"]] == [0]
    poses = jaxdyn.forward_kinematics(system.model, jnp.array([0.6]))
    expected = np.concatenate([poses.quaternion[0], poses.translation[0]])
    np.testing.assert_allclose(numbers_of(content, 0, "poses", 7)[0, 0], expected, atol=1e-6)


def test_the_replay_of_a_run_has_the_shapes_of_the_file_it_was_started_with(file, tmp_path, capsys):
    out = tmp_path / "run"
    options = ["batch=2", "pictures=false", "time.duration=0.01", "time.save_every=10", "backend=xla"]
    assert main(["rollout", str(file), *options, "--out", str(out)]) == 0
    run = load_run(out)
    (visual,) = visuals_of_run(run)
    assert visual.body == 0
    file.write_text(URDF + " ")
    with pytest.warns(IgnoredContent, match=r"pusher\.urdf.*changed"):
        assert visuals_of_run(run) == ()


def test_an_animation_draws_the_shapes_of_the_first_sample(file, tmp_path):
    system = load_system(file)
    time, q = np.array([0.0, 0.1]), np.zeros((1, 2, 1))
    animate(system, time, q, tmp_path / "motion.gif", fps=10, progress=False, visuals=load_visuals(file, system))
    with Image.open(tmp_path / "motion.gif") as picture:
        red, green, blue = np.moveaxis(np.asarray(picture.convert("RGB"), int), -1, 0)
    assert np.sum((red > 100) & (green < 60) & (blue < 60)) > 5000
