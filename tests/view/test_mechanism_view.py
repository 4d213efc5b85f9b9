"""A mechanism with one slider per joint coordinate: the postures, and the page without a server."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from browsers import chromium, content_of
from mixed_mechanisms import every_joint

import jaxdyn
from jaxdyn import Spring
from jaxdyn.cli import main
from jaxdyn.constraints import Distance
from jaxdyn.dynamics import Actuator, Actuators, Tendon, Waypoint, kinematics
from jaxdyn.io import ConfigError
from jaxdyn.mechanism.joints import Rheonomic
from jaxdyn.mechanism.prescribed import ConstantRate
from jaxdyn.view import skeleton
from jaxdyn.view.mechanism_page import write_mechanism_page
from jaxdyn.view.postures import Postures

LENGTH = 0.5


def ladder(length: float = LENGTH) -> jaxdyn.System:
    """Two prismatic joints, along the floor and up the wall, and a rod between them."""
    builder = jaxdyn.MechanismBuilder("ladder")
    for name, axis, start in (("foot", (1, 0, 0), (0.3, 0, 0)), ("top", (0, 0, 1), (0, 0, 0.4))):
        joint = jaxdyn.Prismatic(axis)
        builder.add_body(name, joint=joint, position=start, mass=1.0, inertia=(0.01, 0.01, 0.01), joint_name=name)
    rod = Distance("rod", 0, np.zeros(3), 1, np.zeros(3), length)
    return jaxdyn.System(builder.build(), constraints=(rod,))


def crane() -> jaxdyn.System:
    """A jib with a cable over a pulley and another one around a ball, a spring between jib and hook, and a jet on the hook."""
    builder, given = jaxdyn.MechanismBuilder("crane"), {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}
    builder.add_body("jib", joint=jaxdyn.Revolute((0, -1, 0)), position=(0, 0, 1), **given)
    builder.add_body(
        "hook", joint=jaxdyn.Revolute((0, 1, 0)), parent="jib", position=(1, 0, 0), com=(0, 0, -1), **given
    )
    model = builder.build()
    pulley = Waypoint("jib", (1.0, 0.0, 0.0), radius=0.1, axis=(0.1, 1.0, 0.0), side=(1.5, 0.0, 1.0))
    cable = (Waypoint("ground", (-0.5, 0.0, 0.2)), pulley, Waypoint("hook", (0.2, 0.0, -0.8)))
    ball = (
        Waypoint("jib", (0.2, 0.0, 0.1)),
        Waypoint("jib", (0.5, 0.0, 0.0), radius=0.15),
        Waypoint("hook", (-0.2, 0.1, 0.0)),
    )
    forces = (
        Tendon.of(model, path=cable),
        Spring(*model.locate("hook", (0.0, 0.0, -0.5)), *model.locate("jib", (0.5, 0.0, 0.0)), 9.0),
    )
    jet = Actuator("jet", body="hook", point=(0.0, 0.0, -1.0), force=(0.0, 2.0, 0.0))
    return jaxdyn.System(model, forces, Actuators.of(model, [Actuator("winch", path=ball), jet]))


@pytest.fixture(scope="module")
def mixed() -> Postures:
    return Postures(every_joint())


@pytest.fixture(scope="module")
def closed() -> Postures:
    return Postures(ladder())


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


# --- postures ---


def test_every_degree_of_freedom_has_one_slider_with_its_unit(mixed):
    model = every_joint()
    assert len(mixed.sliders) == len(mixed.independent) == model.nv
    names = [slider.name for slider in mixed.sliders]
    assert len(set(names)) == len(names)
    assert {slider.unit for slider in mixed.sliders} == {"rad", "m"}
    assert all(slider.low < slider.high for slider in mixed.sliders)
    free = [slider for slider in mixed.sliders if re.search(r" (along|about) [xyz]$", slider.name)]
    assert {"along", "about"} <= {slider.name.split()[-2] for slider in free}


def test_limits_are_the_ends_of_a_slider_and_the_middle_lies_between_them():
    builder = jaxdyn.MechanismBuilder("arm")
    given = {"mass": 1.0, "inertia": (1, 1, 1)}
    builder.add_body("a", joint=jaxdyn.Revolute((0, 0, 1)), position_limits=(-0.5, 2.0), **given)
    builder.add_body("b", joint=jaxdyn.Prismatic((0, 0, 1)), parent="a", position_limits=(0.1, np.inf), **given)
    postures = Postures(builder.build())
    a, b = postures.sliders
    assert (a.low, a.high, a.limited) == (-0.5, 2.0, True)
    assert b.low == pytest.approx(0.1)
    assert not b.limited
    np.testing.assert_allclose(postures.middle.values, [0.75, 0.0])
    drawn = [postures.random(seed).values for seed in range(20)]
    assert np.all((np.array(drawn)[:, 0] > -0.5) & (np.array(drawn)[:, 0] < 2.0))
    assert np.ptp(np.array(drawn)[:, 0]) > 0.5
    assert np.all(np.array(drawn)[:, 1] == 0.0), "a displacement without limits stays where it is"


def test_the_other_coordinates_close_the_loops(closed):
    (index,) = closed.independent
    values = closed.middle.values.copy()
    for reached in (0.3, 0.1):
        values[index] = reached - (0.3, 0.4)[index]
        posture = closed.moved(closed.middle, values)
        assert posture.values[index] == pytest.approx(values[index])
        x, z = posture.q + np.array([0.3, 0.4])
        np.testing.assert_allclose(x**2 + z**2, LENGTH**2, atol=1e-9)
    assert closed.neutral() is not None
    values[index] = 2 * LENGTH
    assert closed.moved(closed.middle, values) is None, "the rod is not that long"


def test_a_prescribed_motion_has_a_slider_of_time():
    builder = jaxdyn.MechanismBuilder("crank")
    joint = Rheonomic(jaxdyn.Revolute((0, 0, 1)), ConstantRate(3.0))
    builder.add_body("crank", joint=joint, mass=1.0, com=(0.2, 0, 0), inertia=(1, 1, 1))
    postures = Postures(builder.build())
    slider = postures.sliders[-1]
    assert (slider.name, slider.unit) == ("time", "s")
    values = postures.middle.values.copy()
    values[-1] = 0.7
    later = postures.moved(postures.middle, values)
    placed = postures.placed([postures.middle, later])
    expected = [[1, 0, 0, 0], [np.cos(0.5 * 3.0 * 0.7), 0, 0, np.sin(0.5 * 3.0 * 0.7)]]
    np.testing.assert_allclose(placed.quaternions[0, :, 0], expected, atol=1e-12)


def test_lines_of_forces_go_through_their_points_and_touch_their_obstacles():
    system, q = crane(), jnp.array([0.3, 0.4])
    pieces = skeleton.place(system, np.zeros(1), q[None, None]).force_lines[0, 0]
    cable, spring, ball, arrow = np.split(pieces, [14, 15, 29])
    poses, (winch,) = jaxdyn.forward_kinematics(system.model, q), system.drives.paths
    rotations, origins = np.asarray(poses.rotation), np.asarray(poses.translation)
    on_jib, on_hook = (lambda *x, k=k: origins[k] + rotations[k] @ np.array(x) for k in (0, 1))
    np.testing.assert_allclose(cable[[0, -1], [0, 1]], [[-0.5, 0, 0.2], on_hook(0.2, 0, -0.8)], atol=1e-12)
    np.testing.assert_allclose(ball[[0, -1], [0, 1]], [on_jib(0.2, 0, 0.1), on_hook(-0.2, 0.1, 0)], atol=1e-12)
    np.testing.assert_allclose(spring[0], [on_hook(0, 0, -0.5), on_jib(0.5, 0, 0)], atol=1e-12)
    start, tip = arrow[0, ::-1]
    np.testing.assert_allclose([start, np.cross(tip - start, [0, 1, 0])], [on_hook(0, 0, -1), np.zeros(3)], atol=1e-12)
    axis = rotations[0] @ np.array([0.1, 1, 0]) / np.hypot(0.1, 1)
    for line, path, center, radius, flat in (
        (cable, system.forces[0].path, on_jib(1, 0, 0), 0.1, np.eye(3) - np.outer(axis, axis)),
        (ball, winch, on_jib(0.5, 0, 0), 0.15, np.eye(3)),
    ):
        np.testing.assert_array_equal(line[:-1, 1], line[1:, 0])
        np.testing.assert_allclose(np.linalg.norm((line[1:, 0] - center) @ flat, axis=1), radius, rtol=1e-9)
        length = jax.jit(lambda q, path=path: path.length(system.model, q, kinematics.placements(system.model, q)))(q)
        np.testing.assert_allclose(np.linalg.norm(line[:, 1] - line[:, 0], axis=1).sum(), length, rtol=2e-3)


# --- the page without a server ---


def opened(browser, path, **options):
    context = browser.new_context(offline=True, viewport={"width": 700, "height": 400}, **options)
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_function("typeof view === 'object' && !drawing")
    return page, problems


def test_the_page_places_all_bodies_as_the_library_does(mixed, browser, tmp_path):
    path = tmp_path / "mixed.html"
    write_mechanism_page(every_joint(), path)
    page, problems = opened(browser, path)
    posture = mixed.random(5)
    poses = page.evaluate("given => { values = given; return poses(); }", posture.values.tolist())
    expected = mixed.placed([posture], primitives=True)
    np.testing.assert_allclose([pose["at"] for pose in poses], expected.origins[0, 0], atol=1e-9)
    turns = np.array([pose["turn"] for pose in poses])
    np.testing.assert_allclose(np.abs(np.sum(turns * expected.quaternions[0, 0], axis=1)), 1.0, atol=1e-9)

    assert page.locator("input[type=range]").count() == len(mixed.sliders)
    picture = page.screenshot()
    page.get_by_text("random", exact=True).click()
    page.wait_for_function("!drawing")
    assert page.screenshot() != picture
    assert page.evaluate("values.every((value, k) => sliders[k].low <= value && value <= sliders[k].high)")
    page.get_by_text("neutral", exact=True).click()
    assert page.evaluate("values.every((value) => value === 0)")
    assert not problems
    page.context.close()


def test_the_page_draws_lines_of_forces_as_the_library_does(browser, tmp_path):
    path, system = tmp_path / "crane.html", crane()
    write_mechanism_page(system, path)
    page, problems = opened(browser, path)
    lines = page.evaluate(
        "() => { values = [0.3, 0.4]; const found = poses();"
        "return content.forceLines.map((line) => pointsOf(line, (k) => (k < 0 ? GROUND : found[k]))); }"
    )
    expected = skeleton.place(system, np.zeros(1), np.array([[[0.3, 0.4]]])).force_lines[0, 0]
    pieces = [np.stack([points[:-1], points[1:]], axis=1) for points in map(np.array, lines)]
    np.testing.assert_allclose(np.concatenate(pieces), expected, atol=1e-9)
    assert page.get_by_label("lines of forces").is_checked()
    assert not problems
    page.context.close()


def test_the_sliders_of_a_page_with_loops_end_where_the_loops_do(browser, tmp_path):
    path = tmp_path / "ladder.html"
    write_mechanism_page(ladder(), path)
    page, problems = opened(browser, path, color_scheme="dark")
    assert page.locator("input[type=range]").count() == 1
    move = "share => { const r = document.querySelector('input[type=range]');"
    move += "r.value = Number(r.min) + share * (r.max - r.min); r.dispatchEvent(new Event('input')); return poses(); }"
    for share in (0.0, 0.3, 1.0):
        foot, top = (np.array(pose["at"]) for pose in page.evaluate(move, share))
        assert np.linalg.norm(top - foot) == pytest.approx(LENGTH, rel=0.02)
    assert "loops stay closed" in page.locator("#note").inner_text()
    assert not problems
    page.context.close()


def test_names_of_strangers_stay_text_in_the_page(tmp_path):
    evil = '</script><script>alert("x")</script>'
    builder = jaxdyn.MechanismBuilder(evil)
    builder.add_body(evil, joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1))
    path = tmp_path / "evil.html"
    write_mechanism_page(builder.build(), path)
    text = path.read_text()
    assert "<script>alert" not in text
    assert evil in content_of(path)["title"]
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), "nothing is fetched from elsewhere"
    with pytest.raises(ConfigError, match="cannot be written"):
        write_mechanism_page(builder.build(), path / "inside.html")


# --- the command ---


def test_view_of_a_file_writes_a_page_with_its_sliders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    body = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
    (tmp_path / "robot.urdf").write_text(f'<robot name="rod"><link name="rod">{body}</link></robot>')
    assert main(["view", "robot.urdf", "--base", "free"]) == 0
    assert "robot.html" in capsys.readouterr().out
    assert "about z" in (tmp_path / "robot.html").read_text()
    assert main(["view", "robot.urdf", "--base", "free", "--samples", "1"]) == 2
    assert "--samples" in capsys.readouterr().err
    assert main(["view", "nowhere.urdf"]) == 2
    assert "no such file" in capsys.readouterr().err
