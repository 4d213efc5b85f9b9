"""What is drawn, and where: against the definition of inertia, frames of the dynamics, and positions by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixed_mechanisms import driven, every_joint, some_motion

import jaxdyn
from jaxdyn.constraints import Coupling, Distance, LoopJoint
from jaxdyn.mechanism import components
from jaxdyn.spatial.transform import RigidTransform
from jaxdyn.view import skeleton


@pytest.fixture(scope="module")
def mixed():
    """Every kind of joint, placed at two instants of two samples."""
    model = every_joint()
    q = np.stack([[some_motion(model, 2 * sample + k)[0].q for k in range(2)] for sample in range(2)])
    return model, q, skeleton.place(model, np.array([0.0, 1.0]), q)


def test_ellipsoid_filled_with_mass_has_the_inertia_of_the_body():
    model = every_joint()
    solids = skeleton.inertia_ellipsoids(model)
    # Gauss-Legendre radii and directions that integrate quadratic functions over a ball exactly.
    directions = np.concatenate([np.eye(3), -np.eye(3)])
    for body, center, axes, radii in zip(*solids, strict=True):
        mass = float(model.mass[body])
        points = directions @ np.diag(radii * np.sqrt(3 / 5)) @ axes.T  # mean square radius of a ball is 3/5
        second = mass * np.einsum("pi,pj->ij", points, points) / len(points)
        xx, yy, zz, xy, xz, yz = np.asarray(model.inertia[body])
        expected = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        np.testing.assert_allclose(np.trace(second) * np.eye(3) - second, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(center, model.com[body])
        np.testing.assert_allclose(np.linalg.det(axes), 1.0)


def test_rod_is_thin_and_massless_bodies_have_no_ellipsoid():
    rod = jaxdyn.library.double_pendulum()
    radii = skeleton.inertia_ellipsoids(rod).radii
    np.testing.assert_allclose(radii[:, 2], np.sqrt(5 / 12) * np.array([1.0, 0.5]), rtol=1e-6)  # J = m l^2 / 12
    assert skeleton.visible_radii(skeleton.inertia_ellipsoids(rod)).min() > 0
    builder = jaxdyn.MechanismBuilder("carrier")
    builder.add_body("empty", joint=jaxdyn.Revolute((0, 0, 1)), mass=0.0, inertia=(0, 0, 0))
    builder.add_body("full", parent="empty", joint=jaxdyn.Revolute((1, 0, 0)), mass=1.0, inertia=(1, 1, 1))
    assert skeleton.inertia_ellipsoids(builder.build()).bodies.tolist() == [1]


def test_corners_of_an_ellipsoid_touch_it(mixed):
    model, _, placed = mixed
    solids = skeleton.inertia_ellipsoids(model)
    corners = skeleton.ellipsoid_corners(placed, solids)
    rng = np.random.default_rng(0)
    sphere = rng.normal(size=(20000, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    n, body = 2, solids.bodies[2]
    surface = solids.centers[n] + (sphere * solids.radii[n]) @ solids.axes[n].T
    surface = placed.origins[1, 1, body] + surface @ placed.rotations[1, 1, body].T
    np.testing.assert_allclose(surface.min(axis=0), corners[1, 1, n, 0], atol=2e-3)
    np.testing.assert_allclose(surface.max(axis=0), corners[1, 1, n, 1], atol=2e-3)


def test_poses_are_those_of_forward_kinematics(mixed):
    model, q, placed = mixed
    expected = jax.jit(lambda q: jaxdyn.forward_kinematics(model, q))(jnp.asarray(q[1, 0]))
    np.testing.assert_allclose(placed.origins[1, 0], expected.translation, atol=1e-12)
    np.testing.assert_allclose(placed.rotations[1, 0], expected.rotation, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(placed.quaternions, axis=-1), 1.0, atol=1e-12)


def test_sticks_lead_from_joint_to_joint_to_frame():
    model = jaxdyn.library.double_pendulum()
    q = np.array([[[0.0, 0.0], [-np.pi / 2, 0.0]]])
    hanging, stretched = skeleton.place(model, np.zeros(2), q).lines[0]
    np.testing.assert_allclose(hanging[:, :, 2], [[0.0, -1.0], [-1.0, -1.5]], atol=1e-12)
    np.testing.assert_allclose(stretched[:, :, 0], [[0.0, 1.0], [1.0, 1.5]], atol=1e-12)


def test_sticks_end_where_the_joints_are(mixed):
    """Free and planar joints have no stick across; sliding ones have one from the joint point to the body that slides."""
    model, _, placed = mixed
    bodies, points = skeleton.sticks(model)
    lines, origins = placed.lines[0, 1], placed.origins[0, 1]
    ground = bodies == -1
    assert not ground[bodies[:, 1] == 0].any(), "nothing holds a free body"
    slider = model.topology.joint_classes.index(jaxdyn.Prismatic)
    (row,) = np.flatnonzero((bodies[:, 1] == slider) & (bodies[:, 0] != slider))
    np.testing.assert_allclose(lines[row, 1], origins[slider], atol=1e-12)
    axis = list(skeleton.joint_axes(model)).index(slider)
    along = (lines[row, 1] - lines[row, 0]) / np.linalg.norm(lines[row, 1] - lines[row, 0])
    np.testing.assert_allclose(abs(along @ placed.axes[0, 1, axis]), 1.0, rtol=1e-12)
    for (_, b), (_, point), (_, end) in zip(bodies, points, lines, strict=True):
        on_body = (end - origins[b]) @ placed.rotations[0, 1, b] if b >= 0 else end
        np.testing.assert_allclose(on_body, point, atol=1e-12)


def test_prescribed_motion_is_drawn_at_its_time():
    model = driven()
    q = np.asarray(some_motion(model)[0].q)
    placed = skeleton.place(model, np.array([0.0, 0.5]), np.stack([q, q])[None])
    crank = placed.rotations[0, :, 0]
    turned = crank[0].T @ crank[1]
    np.testing.assert_allclose(np.arccos(0.5 * (np.trace(turned) - 1.0)), 2.0 * 0.5, rtol=1e-9)  # 2 rad/s
    assert skeleton.joint_kind(model, 0) == "driven revolute"
    assert skeleton.joint_motion(model, 2) == "slides"
    np.testing.assert_allclose(np.linalg.norm(placed.axes, axis=-1), 1.0)


def test_names_units_and_motions_of_joints():
    model = every_joint()
    names, units = components.coordinate_names(model), components.coordinate_units(model)
    assert len(names) == len(units) == model.nq
    by_name = dict(zip(names, units, strict=True))
    assert [by_name[f"body 0_joint.{k}"] for k in ("x", "qw")] == ["m", "1"]
    assert [by_name[f"body 3_joint[{k}]"] for k in (0, 1)] == ["rad", "m"]
    assert by_name["body 5_joint"] == "rad"
    assert by_name["body 7_joint"] == "m"
    motions = [skeleton.joint_motion(model, i) for i in range(model.nb)]
    assert motions == ["turns and slides", "turns", "turns", *["turns and slides"] * 3, "turns", "slides"]


def test_resampling_keeps_records_and_turns_evenly_between_them():
    model = every_joint()
    q0, q1 = (np.asarray(some_motion(model, k)[0].q) for k in range(2))
    between = skeleton.resampled(model, np.array([1.0, 3.0]), np.stack([q0, q1])[None], np.array([1.0, 1.5, 3.0]))[0]
    normalized = jax.jit(lambda q: jaxdyn.configuration.normalize(model, q))
    start, quarter, end = (np.asarray(normalized(jnp.asarray(q))) for q in between)
    np.testing.assert_allclose(start, normalized(jnp.asarray(q0)), atol=1e-12)
    np.testing.assert_allclose(np.abs(end), np.abs(normalized(jnp.asarray(q1))), atol=1e-9)
    step = jax.jit(lambda a, b: jaxdyn.configuration.difference(model, a, b))
    whole, part = step(jnp.asarray(start), jnp.asarray(end)), step(jnp.asarray(start), jnp.asarray(quarter))
    np.testing.assert_allclose(part, 0.25 * whole, atol=1e-9)


def test_box_holds_all_points_and_is_never_flat():
    points = np.array([[0.0, 0.0, 0.0], [3.0, 1.0, 0.0]])
    low, high = skeleton.box_of(points)
    assert np.all(low < points.min(axis=0))
    assert np.all(high > points.max(axis=0))
    assert (high - low).min() > 0.45 * (high - low).max()


def test_loops_are_drawn_as_rods_and_lines_to_the_closing_joint():
    builder = jaxdyn.MechanismBuilder("two cranks")
    for name, x in (("left", 0.0), ("right", 1.0)):
        builder.add_body(name, joint=jaxdyn.Revolute((0, -1, 0)), position=(x, 0, 0), mass=1.0, inertia=(1, 1, 1))
    model = builder.build()
    eye = jnp.array([1.0, 0.0, 0.0, 0.0])
    ends = [RigidTransform(eye, jnp.array([x, 0.0, 0.0])) for x in (0.7, -0.3)]
    system = jaxdyn.System(
        model,
        constraints=(
            Distance("rod", 0, (0.0, 0.0, 0.5), 1, (0.0, 0.0, 0.4), 1.0),
            LoopJoint("pin", "revolute", 0, ends[0], 1, ends[1]),
            Coupling("gear", 1, 0, (0.0, 1.0)),
        ),
    )
    assert len(skeleton.sticks(model).bodies) == 1, "without the loops only the ground leads to a joint"
    lines = skeleton.place(system, np.zeros(1), np.zeros((1, 1, 2))).lines[0, 0]
    expected = [
        [[0, 0, 0], [1, 0, 0]],  # ground to the right joint
        [[0, 0, 0.5], [1, 0, 0.4]],  # rod
        [[0, 0, 0], [0.7, 0, 0]],  # both sides of the pin
        [[1, 0, 0], [0.7, 0, 0]],
    ]
    np.testing.assert_allclose(lines, expected, atol=1e-12)
