"""Colliders of URDF and MJCF files as contacts with the ground."""

import itertools
import struct
import warnings

import numpy as np
import pytest

import jaxdyn
from jaxdyn.dynamics import GroundContact
from jaxdyn.dynamics.contact.surfaces import HalfSpace, HeightGrid
from jaxdyn.io import ConfigError, IgnoredContent, load_mjcf, load_system, load_urdf
from jaxdyn.io.shapes.colliders import MOST_POINTS_OF_MESH, check_contact, extreme_points
from jaxdyn.io.shapes.solids import revolved

INERTIAL = '<inertial><mass value="2"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
SPHERE = '<geometry><sphere radius="0.1"/></geometry>'


def urdf(tmp_path, collisions: str, *, extra: str = "", gravity: str = ""):
    """A file with one link, which carries the elements `collisions`."""
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="r"><link name="hull">{INERTIAL}{collisions}</link>{extra}{gravity}</robot>')
    return path


def contacts(system) -> list[GroundContact]:
    return [force for force in system.forces if isinstance(force, GroundContact)]


def mjcf(tmp_path, world: str, *, asset: str = ""):
    pytest.importorskip("mujoco")
    path = tmp_path / "robot.xml"
    path.write_text(f"<mujoco><asset>{asset}</asset><worldbody>{world}</worldbody></mujoco>")
    return path


def ball(geom: str) -> str:
    return f"<body name='ball' pos='0 0 1'><freejoint/><geom {geom}/></body>"


def stl(path, triangles) -> None:
    """Write triangles as a binary STL file."""
    with path.open("wb") as file:
        file.write(bytes(80) + struct.pack("<I", len(triangles)))
        for triangle in triangles:
            file.write(struct.pack("<12f", 0, 0, 0, *np.ravel(triangle)) + bytes(2))


@pytest.mark.parametrize(
    ("collision", "centers", "radius"),
    [
        (f'<origin xyz="0 0 1" rpy="0 0 0"/>{SPHERE}', [(0, 0, 1)], 0.1),
        (
            '<origin rpy="0 1.5707963267948966 0"/><geometry><capsule radius="0.2" length="2"/></geometry>',
            [(-1, 0, 0), (1, 0, 0)],
            0.2,
        ),
        ('<geometry><box size="2 4 6"/></geometry>', list(itertools.product((-1, 1), (-2, 2), (-3, 3))), 0.0),
        (
            '<geometry><cylinder radius="2" length="3"/></geometry>',
            [(0, 0, -1.5), (0, 0, 1.5)],
            0.0,
        ),
    ],
)
def test_shapes_of_urdf_become_spheres_and_points(tmp_path, collision, centers, radius):
    path = urdf(tmp_path, f"<collision>{collision}</collision>")
    (contact,) = contacts(load_urdf(path, base="free", contact="ground"))
    found = np.asarray(contact.centers)
    assert len(found) == len(centers)
    for center in centers:
        assert np.min(np.linalg.norm(found - center, axis=1)) < 1e-6
    np.testing.assert_allclose(contact.radii, radius, atol=1e-7)


def test_a_mesh_is_represented_by_its_extreme_points(tmp_path):
    pytest.importorskip("trimesh")
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    inner = np.array([[0.4, 0.5, 0.6]] * 3)
    stl(tmp_path / "foot.stl", [corners[:3], corners[3:6], corners[[6, 7, 0]], inner])
    mesh = '<collision><geometry><mesh filename="foot.stl" scale="2 1 1"/></geometry></collision>'
    (contact,) = contacts(load_urdf(urdf(tmp_path, mesh), base="free", contact="ground"))
    found = sorted(np.asarray(contact.centers).tolist())
    assert found == sorted((corners * [2.0, 1.0, 1.0]).tolist())
    cloud = np.random.default_rng(0).normal(size=(500, 3))
    assert 8 <= len(extreme_points(cloud)) <= MOST_POINTS_OF_MESH


def test_a_mesh_of_a_wheel_becomes_its_rims():
    profile = np.array([(0.1, -0.03), (0.28, -0.03), (0.3, -0.01), (0.3, 0.01), (0.28, 0.03), (0.1, 0.03)])
    vertices, _ = revolved(profile, 24)
    for axis in range(3):
        placed = np.roll(vertices, axis - 2, axis=1) + np.array([0.0, 0.4, 0.0])
        rims = extreme_points(placed)
        radii = sorted(np.linalg.norm(rim.axes[0]) for rim in rims)
        np.testing.assert_allclose(radii, [0.28, 0.28, 0.3, 0.3], rtol=1e-6)
        assert all(rim.axes[0][axis] == rim.axes[1][axis] == 0.0 for rim in rims)
        assert all(rim.center[1] == pytest.approx(0.4) for rim in rims if axis != 1)
    hexagon = extreme_points(revolved(profile, 6)[0])
    assert all(not np.any(point.axes) for point in hexagon)


def test_the_rims_of_a_ball_include_its_poles_its_equator_and_the_circles_between_them():
    latitude = np.linspace(-0.5, 0.5, 33) * np.pi
    vertices, _ = revolved(np.stack([np.cos(latitude), np.sin(latitude)], axis=1), 24)
    found = sorted((point.center[2], np.linalg.norm(point.axes[0])) for point in extreme_points(vertices))
    expected = np.linspace(-0.5, 0.5, 9) * np.pi
    np.testing.assert_allclose(found, np.stack([np.sin(expected), np.cos(expected)], axis=1), atol=1e-12)


def test_points_inside_of_another_collider_of_the_body_are_left_out(tmp_path):
    inner = '<collision><geometry><box size="0.4 0.4 0.4"/></geometry></collision>'
    outer = '<collision><geometry><box size="1 1 1"/></geometry></collision>'
    (contact,) = contacts(load_urdf(urdf(tmp_path, inner + outer), base="free", contact="ground"))
    np.testing.assert_allclose(np.abs(contact.centers), np.full((8, 3), 0.5))


def test_a_body_stands_on_its_colliders(tmp_path):
    box = '<collision><origin xyz="0 0 0.1"/><geometry><box size="0.4 0.4 0.2"/></geometry></collision>'
    system = load_urdf(urdf(tmp_path, box), base="free", contact="ground")
    start = system.at_rest(jaxdyn.neutral_state(system).q.at[2].set(0.1))
    landed = jaxdyn.rollout(system, start, dt=0.002, steps=1000).final
    assert abs(float(landed.q[2])) < 2e-3
    assert float(np.max(np.abs(landed.v))) < 1e-3


def test_links_with_different_friction_have_separate_contacts(tmp_path):
    slippery = (
        f'<link name="toe">{INERTIAL}<collision>{SPHERE}</collision>'
        '<contact><lateral_friction value="0.3"/><stiffness value="9"/></contact></link>'
        '<joint name="j" type="continuous"><parent link="hull"/><child link="toe"/></joint>'
    )
    path = urdf(tmp_path, f"<collision>{SPHERE}</collision>", extra=slippery)
    with pytest.warns(IgnoredContent, match="stiffness.*other than friction"):
        system = load_urdf(path, base="free", contact="ground")
    assert [float(contact.material.friction) for contact in contacts(system)] == pytest.approx([0.8, 0.3])
    assert [contact.bodies for contact in contacts(system)] == [(0,), (1,)]


def test_left_out_colliders_are_named_in_one_note(tmp_path):
    pytest.importorskip("trimesh")
    shapes = (
        f"<collision>{SPHERE}</collision>"
        '<collision><geometry><mesh filename="lost.stl"/></geometry></collision>'
        '<collision><geometry><mesh filename="../outside.stl"/></geometry></collision>'
    )
    (tmp_path / "robot").mkdir()
    (tmp_path / "outside.stl").write_bytes(b"")
    fixed = f'<link name="world"><collision>{SPHERE}</collision></link><joint name="j" type="floating">'
    path = urdf(tmp_path / "robot", shapes, extra=f'{fixed}<parent link="world"/><child link="hull"/></joint>')
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        system = load_urdf(path, contact="ground")
    (message,) = [str(warning.message) for warning in said]
    for name in ("lost.stl", "no such file", "outside.stl", "leads elsewhere", "world", "fixed to the ground"):
        assert name in message
    assert "\n" not in message
    assert [contact.bodies for contact in contacts(system)] == [(0,)]


def test_the_ground_is_perpendicular_to_gravity(tmp_path):
    sideways = '<jaxdyn><gravity xyz="-5 0 0"/></jaxdyn>'
    path = urdf(tmp_path, f"<collision>{SPHERE}</collision>", gravity=sideways)
    (contact,) = contacts(load_urdf(path, base="free", contact="ground"))
    np.testing.assert_array_equal(contact.surface.normal, [1.0, 0.0, 0.0])


def test_a_summary_states_how_many_colliders_are_not_simulated(tmp_path):
    path = urdf(tmp_path, f"<collision>{SPHERE}</collision>" * 3)
    system = load_urdf(path, base="free")
    assert "contacts     3 colliders not simulated" in system.summary()
    assert 'contact="ground"' in system.summary()
    with_contacts = load_system(path, base="free", contact="ground")
    for text in (with_contacts.summary(), repr(with_contacts)):
        assert "1 point of 1 body with the plane z = 0, friction 0.8" in text
    assert "contacts" not in load_urdf(urdf(tmp_path, ""), base="free").summary()


@pytest.mark.parametrize(
    ("collision", "message"),
    [
        ('<geometry><sphere radius="-1"/></geometry>', "radius.*negative"),
        ('<geometry><box size="1 -1 1"/></geometry>', "size.*negative"),
        ('<geometry><cylinder radius="1" length="wide"/></geometry>', "length"),
        ('<geometry><mesh filename="lost.stl"/></geometry>', "no collider.*lost.stl.*no such file"),
        ("", r"no collider.*known kind"),
    ],
)
def test_wrong_colliders_are_refused_in_one_line(tmp_path, collision, message):
    if "mesh" in collision:
        pytest.importorskip("trimesh")
    path = urdf(tmp_path, f"<collision>{collision}</collision>")
    with pytest.raises(ConfigError, match=message) as error:
        load_urdf(path, base="free", contact="ground")
    assert "\n" not in str(error.value)


def test_negative_friction_in_a_file_is_refused(tmp_path):
    text = f'<collision>{SPHERE}</collision><contact><lateral_friction value="-0.5"/></contact>'
    with pytest.raises(ConfigError, match=r"line 1.*friction.*-0.5.*negative"):
        load_urdf(urdf(tmp_path, text), base="free", contact="ground")


def test_contacts_need_masses_colliders_and_a_known_option(tmp_path):
    path = urdf(tmp_path, f"<collision>{SPHERE}</collision>")
    with pytest.raises(ConfigError, match="kinematic"):
        load_urdf(path, base="free", contact="ground", kinematic=True)
    with pytest.raises(jaxdyn.UnknownName, match="none, ground"):
        check_contact("floor", False, path)
    jaxdyn.io.save_system(load_urdf(path, base="free", contact="ground"), tmp_path / "robot.toml")
    with pytest.raises(ConfigError, match="contact is an option of URDF and MJCF files"):
        load_system(tmp_path / "robot.toml", contact="ground")
    with pytest.raises(ConfigError, match="no collider"):
        load_urdf(urdf(tmp_path, ""), base="free", contact="ground")


def test_geoms_touch_the_planes_of_the_world_with_the_friction_of_the_pair(tmp_path):
    path = mjcf(
        tmp_path,
        "<geom type='plane' size='1 1 1' pos='0 0 0.5' friction='0.4 0.02 0'/>"
        + ball("type='sphere' size='0.1' friction='0.7 0.01 0' condim='4'"),
    )
    (contact,) = contacts(load_mjcf(path, contact="ground"))
    assert isinstance(contact.surface, HalfSpace)
    assert float(contact.surface.height) == pytest.approx(0.5)
    assert float(contact.material.friction) == pytest.approx(0.7)
    assert float(contact.material.torsion_radius) == pytest.approx(0.02 / 0.7)


def test_shapes_of_mjcf_and_height_fields(tmp_path):
    tetrahedron = "<mesh name='t' vertex='0 0 0 1 0 0 0 1 0 0 0 1'/>"
    field = "<hfield name='h' nrow='2' ncol='3' size='2 1 1 1' elevation='0 0.5 1 0 0.5 1'/>"
    shapes = "".join(
        f"<geom {geom}/>"
        for geom in (
            "type='capsule' size='0.1 0.5'",
            "type='box' size='0.1 0.2 0.3'",
            "type='cylinder' size='0.1 0.3'",
            "type='ellipsoid' size='0.1 0.2 0.3'",
            "type='mesh' mesh='t'",
            "type='sphere' size='0.4' contype='0' conaffinity='0'",
        )
    )
    world = f"<geom type='hfield' hfield='h' pos='0 0 0.25'/><body name='b'><freejoint/>{shapes}</body>"
    system = load_mjcf(mjcf(tmp_path, world, asset=tetrahedron + field), contact="ground")
    (sharp,) = [contact for contact in contacts(system) if contact.axes is None]
    (contact,) = [contact for contact in contacts(system) if contact.axes is not None]
    assert (len(sharp.bodies), len(contact.bodies)) == (2 + 8 + 4, 2 + 1)
    np.testing.assert_allclose(
        np.linalg.norm(contact.axes, axis=2), [[0.1, 0.1, 0.0]] * 2 + [[0.1, 0.2, 0.3]], atol=1e-6
    )
    assert isinstance(contact.surface, HeightGrid)
    np.testing.assert_allclose(contact.surface.heights, [[0.25, 0.25], [0.75, 0.75], [1.25, 1.25]], atol=1e-6)
    np.testing.assert_array_equal(contact.surface.corner, [-2.0, -1.0])
    assert float(contact.surface.spacing) == 2.0


def test_geoms_that_cannot_be_used_are_named_and_others_do_not_touch_the_ground(tmp_path):
    world = (
        "<geom name='floor' type='plane' size='1 1 1' contype='1' conaffinity='1'/>"
        "<geom name='step' type='box' size='1 1 1'/>"
        + ball("size='0.1'")
        + "<body name='other'><freejoint/><geom size='0.1' contype='2' conaffinity='2'/></body>"
    )
    with pytest.warns(IgnoredContent, match="'step'.*does not move") as said:
        system = load_mjcf(mjcf(tmp_path, world), contact="ground")
    assert len(said) == 1
    assert [contact.bodies for contact in contacts(system)] == [(0,)]
    with pytest.warns(IgnoredContent, match="geoms with contact"):
        without = load_mjcf(tmp_path / "robot.xml")
    assert "2 colliders not simulated" in without.summary()


def test_a_file_without_geoms_that_collide_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no collider on a moving body"):
        load_mjcf(
            mjcf(tmp_path, ball("size='0.1' contype='0' conaffinity='0'") + "<geom type='plane' size='1 1 1'/>"),
            contact="ground",
        )
