"""The ground, the contact points and the contact forces in pictures, animations and pages."""

import jax.numpy as jnp
import numpy as np
import pytest
from browsers import content_of, numbers_of
from legible import assert_legible

import jaxdyn
from jaxdyn.dynamics import (
    GroundContact,
    HalfSpace,
    HeightFunction,
    SphereContact,
    contact_forces,
    contact_sphere,
)
from jaxdyn.dynamics.contact.points import contact_names
from jaxdyn.view import contacts
from jaxdyn.view.replay import Replay

RADIUS = 0.1
LOW, HIGH = np.array([-0.5, -0.5, 0.2]), np.array([0.7, 0.5, 1.0])


def balls(*surfaces) -> jaxdyn.System:
    """Two free bodies of 1 kg: the first touches the given surfaces, and both touch each other."""
    builder = jaxdyn.MechanismBuilder("balls")
    for name in ("a", "b"):
        builder.add_body(name, joint=jaxdyn.Free(), mass=1.0, inertia=0.004 * jnp.eye(3))
    model = builder.build()
    forces = [GroundContact.of(model, contact_sphere("a", radius=RADIUS), surface) for surface in surfaces]
    pair = contact_sphere("a", radius=RADIUS)[0], contact_sphere("b", center=(0.0, 0.0, 0.1), radius=RADIUS)[0]
    return jaxdyn.System(model, forces=(*forces, SphereContact.of(model, [pair])))


def fall(records: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, coordinates and velocities: body a sinks into the plane z = 0 until its depth is 2 cm; body b is far away."""
    time = 0.1 * np.arange(records)
    q = np.zeros((1, records, 14))
    q[:, :, [3, 10]] = 1.0
    q[:, :, 2], q[:, :, 9] = RADIUS + np.linspace(0.02, -0.02, records), 0.6
    v = np.zeros((1, records, 12))
    v[:, :, 5] = -0.2
    return time, q, v


@pytest.mark.parametrize(
    "surface",
    [
        HalfSpace(normal=[-0.2, 0.1, 2.0], height=-0.3),
        HalfSpace(normal=[1.0, 0.0, 0.0], height=0.1),
        HeightFunction(lambda xy: 0.1 * jnp.sin(4.0 * xy[0]) + 0.05 * xy[1]),
    ],
    ids=["incline", "wall", "waves"],
)
def test_the_drawn_ground_lies_on_the_surface_and_in_the_picture(surface):
    (ground,) = contacts.grounds_under(balls(surface, surface), LOW, HIGH)  # the same surface twice is drawn once
    gaps = [float(surface.gap(jnp.asarray(point))) for point in ground.points[::6, ::6].reshape(-1, 3)]
    np.testing.assert_allclose(gaps, 0.0, atol=1e-9)
    (shown,), low, high = contacts.with_ground(balls(surface), LOW, HIGH)
    assert np.all(low <= np.minimum(LOW, shown.points.min(axis=(0, 1))) + 1e-9)
    assert np.all(high >= np.maximum(HIGH, shown.points.max(axis=(0, 1))) - 1e-9)
    assert np.ptp(shown.points, axis=(0, 1)).max() > 0.5 * (high - low).max(), "the ground fills the picture"


def test_ground_far_below_a_motion_does_not_shrink_the_motion():
    _, low, _ = contacts.with_ground(balls(HalfSpace(height=-1000.0)), LOW, HIGH)
    assert low[2] == pytest.approx(LOW[2] - 2.0 * 1.2)


def test_forces_at_records_are_those_of_the_recorded_states_and_unknown_without_velocities():
    system = balls(HalfSpace())
    time, q, v = fall()
    instants = np.array([0.1, 0.15, 0.2])
    between = np.stack([q[0, 1], 0.5 * (q[0, 1] + q[0, 2]), q[0, 2]])
    shown = contacts.touching(system, time, q[0], v[0], instants, between)
    exact = contact_forces(system, jaxdyn.State(jnp.asarray(q[0, 2]), jnp.asarray(v[0, 2])))
    assert len(contact_names(system)) == shown.forces.shape[1] == 2
    np.testing.assert_allclose(shown.forces[2], exact.force, rtol=1e-9)
    np.testing.assert_allclose(shown.forces[1], 0.5 * (shown.forces[0] + shown.forces[2]), rtol=1e-9)
    np.testing.assert_allclose(shown.depths[:, 0], [0.0, 0.01, 0.02], atol=1e-12)
    np.testing.assert_allclose(shown.positions[:, 0, 2], [0.0, -0.01, -0.02], atol=1e-12)
    assert not np.any(contacts.touching(system, time, q[0], None, instants, between).forces)


def test_the_arrow_of_the_weight_has_the_length_of_the_legend_and_no_arrow_is_endless():
    scale = contacts.Arrows.of(balls(), size=1.0)
    weight = 2.0 * 9.81
    np.testing.assert_allclose(np.linalg.norm(scale.vectors(np.array([[0.0, 0.0, weight]]))), scale.length, rtol=1e-3)
    assert f"{scale.length:g} m is {weight:.3g} N" in scale.legend
    assert np.linalg.norm(scale.vectors(np.array([0.0, 1e9, 0.0]))) == pytest.approx(3.0 * scale.length)
    assert not np.any(scale.vectors(np.full((1, 3), np.nan)))


def test_animations_and_pictures_show_the_ground_the_contacts_and_the_forces():
    from jaxdyn.view import animation
    from jaxdyn.view.pictures import mechanism_picture
    from jaxdyn.view.skeleton import place
    from jaxdyn.view.style import RED

    system = balls(HalfSpace())
    time, q, v = fall()
    touching = contacts.touching(system, time, q[0], v[0], time, q[0])
    figure, move, _ = animation._stage(system, place(system, time, q), "", 2, touching=touching)
    (axes,) = figure.axes
    assert axes.get_zlim()[0] <= 0.0
    red = [line for line in axes.lines if line.get_color() == RED]
    heights = []
    for frame in (0, 2):
        move(frame, "t =   0.00 s")
        assert_legible(figure)
        heights.append([np.nanmax(line.get_data_3d()[2], initial=-1.0) for line in red])
    assert heights[0] == [-1.0, -1.0], "nothing is red before the contact"
    assert heights[1][0] == pytest.approx(-0.02), "the contact point"
    assert heights[1][1] > 0.1, "the arrow of the force points upward"
    assert "weight" in " ".join(text.get_text() for text in figure.texts)
    legend = mechanism_picture(system, q[0, 0]).legends[0]
    assert "contact" in [text.get_text() for text in legend.get_texts()]


def test_a_mechanism_page_has_the_contacts_and_the_lines_of_the_true_ground(tmp_path):
    from jaxdyn.view.mechanism_page import write_mechanism_page

    write_mechanism_page(balls(HalfSpace(height=-0.25)), tmp_path / "page.html")
    content = content_of(tmp_path / "page.html")
    assert ["contacts", True] in content["switches"]
    assert len(content["contacts"]) == 3
    assert content["contacts"][0]["radius"] == pytest.approx(RADIUS)
    np.testing.assert_allclose(np.reshape(content["lines"], (-1, 3))[:, 2], -0.25, atol=1e-6)


@pytest.mark.parametrize("height", [0.0, -0.05])
def test_a_replay_states_the_scale_of_the_forces_and_has_the_contacts_and_the_true_ground(height, tmp_path):
    system = balls(HalfSpace(height=height))
    time, q, v = fall()
    with pytest.raises(ValueError, match=r"v has shape \(1, 2, 12\)"):
        Replay(system, time, q, v=v[:, :2])
    replay = Replay(system, time, q, v=v)
    replay.write_html(tmp_path / "replay.html")
    content = content_of(tmp_path / "replay.html")
    assert "contact forces:" in content["note"]
    assert {"contacts", "contact forces"} <= {name for name, _ in content["switches"]}
    assert [sphere["contact"] for sphere in content["contacts"]] == [0, 1, 1]
    np.testing.assert_allclose(np.reshape(content["lines"], (-1, 3))[:, 2], height, atol=1e-6)
    positions, arrows, depths = np.split(numbers_of(content, 0, "contacts", 7), [3, 6], axis=-1)
    touching = replay.sample(0).touching
    np.testing.assert_allclose(positions, touching.positions, atol=1e-6)
    assert np.all((depths[..., 0] > 0.0) == (touching.depths > 0.0))
    seen = height == 0.0  # else the ball hangs above the lowered ground
    assert (depths[-1, 0, 0] > 0.0, arrows[-1, 0, 2] > 0.1) == (seen, seen)
    assert not np.any(arrows[0])


def test_lines_of_a_ground_join_neighboring_points():
    rows, columns = np.meshgrid(np.arange(4.0), 10.0 * np.arange(4.0), indexing="ij")
    lines = contacts.lines_of(contacts.Ground(np.stack([rows, columns, 0.0 * rows], -1), None))
    steps = lines[:, 1] - lines[:, 0]
    assert len(lines) == 2 * 4 * 3
    assert sorted(map(tuple, steps)) == [(0.0, 10.0, 0.0)] * 12 + [(1.0, 0.0, 0.0)] * 12
