"""Visual geometry of URDF and MJCF files: shapes, places, colors and bounds, and files that are not what they should be."""

import importlib.util
import os
import struct
import sys
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.io import IgnoredContent, load_system, load_visuals
from jaxdyn.io.shapes.solids import box, capsule, cylinder, simplified, sphere, with_sharp_edges
from jaxdyn.io.shapes.visual_files import MOST_TRIANGLES
from jaxdyn.io.shapes.visuals import Visual, with_fewer_triangles
from jaxdyn.jobs.commands.arguments import ConvertArguments
from jaxdyn.jobs.commands.convert import convert
from jaxdyn.spatial.plain import rotation_matrix

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
TIP = np.array([0.1, 0.2, 0.3])  # m, a vertex of the mesh files
CORNERS = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.1, 0.0], TIP])
FACES = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
OBJ = "mtllib colors.mtl\nusemtl red\n" + "".join(f"v {x} {y} {z}\n" for x, y, z in CORNERS)
OBJ += "".join(f"f {a} {b} {c}\n" for a, b, c in FACES + 1)
DAE = """<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
<asset><unit meter="0.01"/></asset>
<library_effects><effect id="e"><profile_COMMON><technique sid="t"><lambert><diffuse><color>0 0 1 1</color></diffuse></lambert>
</technique></profile_COMMON></effect></library_effects>
<library_materials><material id="m"><instance_effect url="#e"/></material></library_materials>
<library_geometries><geometry id="g"><mesh><source id="s"><float_array id="a" count="9">0 0 0 10 0 0 10 20 30</float_array>
<technique_common><accessor source="#a" count="3" stride="3"><param name="X" type="float"/><param name="Y" type="float"/>
<param name="Z" type="float"/></accessor></technique_common></source><vertices id="v"><input semantic="POSITION" source="#s"/>
</vertices><triangles count="1" material="M"><input semantic="VERTEX" source="#v" offset="0"/><p>0 1 2</p></triangles></mesh>
</geometry></library_geometries>
<library_visual_scenes><visual_scene id="w"><node><instance_geometry url="#g"><bind_material><technique_common>
<instance_material symbol="M" target="#m"/></technique_common></bind_material></instance_geometry></node></visual_scene>
</library_visual_scenes><scene><instance_visual_scene url="#w"/></scene></COLLADA>"""


def stl(corners: np.ndarray = CORNERS, faces: np.ndarray = FACES) -> bytes:
    triangles = np.zeros(len(faces), np.dtype([("normal", "<f4", 3), ("points", "<f4", (3, 3)), ("rest", "<u2")]))
    triangles["points"] = corners[faces]
    return bytes(80) + struct.pack("<I", len(faces)) + triangles.tobytes()


@pytest.fixture
def robot(tmp_path):
    """robot(visuals): the path of a URDF file in robot/urdf with a link "arm" on a joint, and "hand" fixed to it, with visuals."""
    folder = tmp_path / "robot" / "urdf"
    folder.mkdir(parents=True)

    def write(visuals: str, more: str = ""):
        path = folder / "robot.urdf"
        path.write_text(
            f'<robot name="robot">{more}<link name="base">{INERTIAL}</link>'
            f'<link name="arm">{INERTIAL}</link><link name="hand">{visuals}</link>'
            '<joint name="shoulder" type="revolute"><parent link="base"/><child link="arm"/><origin xyz="0 0 1"/>'
            '<axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="1" velocity="1"/></joint>'
            '<joint name="wrist" type="fixed"><parent link="arm"/><child link="hand"/>'
            '<origin xyz="0.5 0 0" rpy="0 0 0.7"/></joint></robot>'
        )
        return path

    return write


def drawn(geometry: str, more: str = "") -> str:
    return f'<visual><origin xyz="0 0.2 0" rpy="0.3 0 0"/><geometry>{geometry}</geometry>{more}</visual>'


def read(path, **options) -> tuple[Visual, ...]:
    return load_visuals(path, load_system(path), **options)


def said(path, **options) -> tuple[tuple[Visual, ...], str]:
    """The visuals, and the warning about the others."""
    system = load_system(path)
    with pytest.warns(IgnoredContent) as caught:
        visuals = load_visuals(path, system, **options)
    (message,) = {str(warning.message) for warning in caught}
    return visuals, message


def volume(mesh) -> float:
    a, b, c = np.moveaxis(mesh[0][mesh[1]], 1, 0)
    return float(np.sum(a * np.cross(b, c)) / 6)


# --- triangles ---


def test_solids_are_closed_and_their_faces_look_outward():
    round_part = 4 / 3 * np.pi
    for mesh, expected in (
        (box(), 1.0),
        (cylinder(64), np.pi),
        (sphere(), round_part),
        (capsule(0.5, 2.0), round_part / 8 + np.pi / 4 * 2.0),
    ):
        assert volume(mesh) == pytest.approx(expected, rel=0.03)
    points, _ = capsule(0.5, 2.0)
    np.testing.assert_allclose(np.ptp(points, axis=0), [1, 1, 3], atol=1e-6)


def test_vertices_are_separate_at_sharp_edges_only():
    points, faces = with_sharp_edges(box())
    assert (len(points), len(faces)) == (24, 12)
    merged = np.unique(box()[0], axis=0, return_inverse=True)
    points, faces = with_sharp_edges((merged[0], merged[1].reshape(-1)[box()[1]]))
    assert (len(points), len(faces)) == (24, 12)
    assert volume((points, faces)) == pytest.approx(1.0)
    points, faces = with_sharp_edges(sphere(24, 36))
    assert len(points) == 23 * 36 + 2
    assert volume((points, faces)) == pytest.approx(volume(sphere(24, 36)))


def test_a_simplified_mesh_keeps_its_shape_and_the_bound():
    fine = sphere(100, 150)
    points, faces = simplified(fine, 1000)
    assert 300 < len(faces) <= 1000
    assert volume((points, faces)) == pytest.approx(4 / 3 * np.pi, rel=0.1)
    scattered = np.random.default_rng(0).normal(size=(900, 3)), np.arange(900).reshape(-1, 3)
    points, faces = simplified(scattered, 12)
    assert len(faces) <= 12


def test_only_the_finest_visuals_are_simplified():
    place = (0, np.zeros(3), np.array([1.0, 0, 0, 0]))
    fine, coarse = (Visual(*place, sphere(*size), np.ones(3), (1, 1, 1, 1)) for size in ((100, 150), (8, 12)))
    reduced = with_fewer_triangles([fine, coarse, fine], 5000)
    assert sum(len(visual.mesh[1]) for visual in reduced) <= 5000
    assert reduced[1].mesh is coarse.mesh
    assert reduced[0].mesh is reduced[2].mesh
    assert len(reduced[0].mesh[1]) > 1000


# --- URDF ---


def test_primitives_of_a_urdf_file_have_its_sizes_and_colors(robot):
    paint = '<material name="paint"><color rgba="0.2 0.4 0.6 0.5"/></material>'
    visuals = read(
        robot(
            drawn('<box size="1 2 3"/>', paint)
            + drawn('<sphere radius="0.5"/>', '<material name="skin"/>')
            + drawn('<cylinder radius="0.5" length="3"/>')
            + drawn('<capsule radius="0.5" length="3"/>'),
            '<material name="skin"><color rgba="1 0 0 1"/></material>',
        )
    )
    sizes = [np.ptp(visual.mesh[0] * visual.scale, axis=0) for visual in visuals]
    np.testing.assert_allclose(sizes, [[1, 2, 3], [1, 1, 1], [1, 1, 3], [1, 1, 4]], atol=0.01)
    assert [visual.color for visual in visuals[:2]] == [(0.2, 0.4, 0.6, 0.5), (1, 0, 0, 1)]


def test_a_vertex_lands_where_forward_kinematics_puts_it(robot):
    pytest.importorskip("trimesh")
    path = robot(drawn('<mesh filename="../meshes/tip.STL" scale="1 2 -1"/>'))
    (path.parents[1] / "meshes").mkdir()
    (path.parents[1] / "meshes" / "tip.STL").write_bytes(stl())
    for base in ("fixed", "free"):
        model = load_system(path, base=base).model
        (visual,) = load_visuals(path, model)
        q = jaxdyn.configuration.neutral(model).at[-1].set(0.4)
        hand = jaxdyn.frame_placement(model, q, "hand")
        c, s = np.cos(0.3), np.sin(0.3)
        expected = np.array([0, 0.2, 0]) + np.array([[1, 0, 0], [0, c, -s], [0, s, c]]) @ (TIP * [1, 2, -1])
        expected = np.array(hand.translation) + rotation_matrix(np.array(hand.quaternion)) @ expected
        body = jaxdyn.forward_kinematics(model, q)
        place = np.array(body.translation[visual.body]), rotation_matrix(np.array(body.quaternion[visual.body]))
        ends = place[0] + visual.points() @ place[1].T
        assert np.linalg.norm(ends - expected, axis=1).min() < 1e-6


@pytest.mark.parametrize(
    ("name", "content", "color"), [("tip.obj", OBJ, (1.0, 0.0, 0.0, 1.0)), ("tip.dae", DAE, (0.0, 0.0, 1.0, 1.0))]
)
def test_mesh_files_with_colors_are_read_from_the_folder_of_their_package(robot, name, content, color):
    for package in ("trimesh", "collada"):
        pytest.importorskip(package)
    path = robot(drawn(f'<mesh filename="package://robot/meshes/{name}"/>'))
    (path.parents[1] / "meshes").mkdir()
    (path.parents[1] / "meshes" / name).write_text(content)
    (path.parents[1] / "meshes" / "colors.mtl").write_text("newmtl red\nKd 1 0 0\nmap_Kd /etc/hostname\n")
    (visual,) = read(path)
    assert np.linalg.norm(visual.mesh[0] - TIP, axis=1).min() < 1e-6
    assert visual.color == color


def test_a_mesh_that_is_missing_is_named_and_the_other_shapes_are_drawn(robot):
    pytest.importorskip("trimesh")
    visuals, message = said(robot(drawn('<mesh filename="tip.stl"/>') + drawn('<sphere radius="1"/>')))
    assert len(visuals) == 1
    assert all(word in message for word in ("tip.stl", "no such file", "--folder"))
    assert "\n" not in message


def test_without_trimesh_the_pip_line_is_named_and_primitives_are_drawn(robot, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "trimesh" else found(name))
    path = robot(drawn('<mesh filename="tip.stl"/>') + drawn('<sphere radius="1"/>'))
    (path.parent / "tip.stl").write_bytes(stl())
    visuals, message = said(path)
    assert len(visuals) == 1
    assert 'pip install "jaxdyn[view]"' in message


@pytest.mark.parametrize(
    "name",
    [
        "../../secret.stl",
        "file://{outside}",
        "{outside}",
        "package://../secret.stl",
        "package://robot/../../secret.stl",
        "link.stl",
        "linked/secret.stl",
        "https://127.0.0.1/secret.stl",
        "..\\..\\secret.stl",
    ],
)
def test_no_file_outside_of_the_folder_of_the_robot_is_opened(robot, tmp_path, name, monkeypatch):
    pytest.importorskip("trimesh")
    outside = tmp_path / "secret.stl"
    outside.write_bytes(stl())
    path = robot(drawn(f'<mesh filename="{name.format(outside=outside)}"/>'))
    (path.parent / "link.stl").symlink_to(outside)
    (path.parent / "linked").symlink_to(tmp_path)
    visuals, message = said(path)
    assert not visuals
    assert "secret" in message or "link" in message
    if "https" not in name and "package://.." not in name:
        assert len(read(path, folder=tmp_path)) == 1, "the folder can be named"


def test_limits_of_shapes_and_triangles_admit_their_own_value(robot, monkeypatch):
    shape = drawn('<box size="1 1 1"/>')  # 12 triangles
    for name, most, message in (("VISUALS", 2, "only the first 2 shapes"), ("TRIANGLES", 24, "simplified to 24")):
        with monkeypatch.context() as patch:
            patch.setattr(f"jaxdyn.io.shapes.visual_files.MOST_{name}", most)
            assert len(read(robot(2 * shape))) == 2
            assert message in said(robot(3 * shape))[1]


def test_material_files_outside_of_the_folder_are_not_opened(robot, tmp_path):
    pytest.importorskip("trimesh")
    (tmp_path / "colors.mtl").write_text("newmtl red\nKd 1 0 0\n")
    path = robot(drawn('<mesh filename="tip.obj"/>'))
    (path.parent / "tip.obj").write_text(OBJ.replace("colors.mtl", "../../colors.mtl"))
    (visual,) = read(path)
    assert visual.color != (1.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tip.stl", b"solid nothing", "trimesh"),
        ("tip.obj", b"v nan nan nan\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "trimesh"),
        ("tip.dae", b"<!DOCTYPE x [<!ENTITY a 'b'>]>" + DAE.encode(), "entities"),
        ("tip.dae", b"PK\x03\x04 a zip file", "not XML"),
        ("tip.dae", DAE.replace("<node>", '<node><instance_node url="#w"/>').encode(), "repeats"),
        ("tip.ply", b"ply", "kind that is read"),
        ("tip.stl\x07", b"", "kind that is read"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(robot, name, content, reason):
    for package in ("trimesh", "collada"):
        pytest.importorskip(package)
    path = robot(drawn(f'<mesh filename="{name.replace(chr(7), "&#9;")}"/>'))
    (path.parent / name).write_bytes(content)
    visuals, message = said(path)
    assert not visuals
    assert reason in message
    assert message.isprintable()


def test_a_file_that_is_too_large_is_named_and_not_read(robot):
    pytest.importorskip("trimesh")
    path = robot(drawn('<mesh filename="tip.stl"/>'))
    with (path.parent / "tip.stl").open("wb") as file:
        os.truncate(file.fileno(), 2**26 + 1)
    visuals, message = said(path)
    assert not visuals
    assert "larger than 64 MiB" in message


def test_a_mesh_with_too_many_triangles_is_simplified_and_a_note_says_so(robot):
    pytest.importorskip("trimesh")
    path = robot(drawn('<mesh filename="fine.stl"/>'))
    (path.parent / "fine.stl").write_bytes(stl(*sphere(250, 300)))
    (visual,), message = said(path)
    assert 0.3 * MOST_TRIANGLES < len(visual.mesh[1]) <= MOST_TRIANGLES
    assert str(MOST_TRIANGLES) in message
    assert volume(visual.mesh) == pytest.approx(4 / 3 * np.pi, rel=0.02)


def test_a_shape_with_a_wrong_value_is_named_with_its_line_and_left_out(robot):
    shapes = drawn('<box size="1 2"/>') + drawn("<sphere/>") + drawn('<sphere radius="1"/>')
    visuals, message = said(robot(shapes + drawn('<sphere radius="1"/>', '<material><color rgba="red"/></material>')))
    assert len(visuals) == 1
    assert all(word in message for word in ("size", "radius", "rgba", "line 1"))


def test_without_mujoco_the_pip_line_of_mjcf_files_is_named(tmp_path, monkeypatch):
    (tmp_path / "arm.xml").write_text("<mujoco/>")
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.warns(IgnoredContent, match=r'pip install "jaxdyn\[mjcf\]"'):
        assert load_visuals(tmp_path / "arm.xml", jaxdyn.library.pendulum()) == ()


def test_visuals_of_another_mechanism_are_refused(robot):
    path = robot(drawn('<sphere radius="1"/>'))
    with pytest.raises(jaxdyn.io.ConfigError, match="hand"):
        load_visuals(path, jaxdyn.library.pendulum())
    assert load_visuals(path.with_suffix(".toml"), jaxdyn.library.pendulum()) == ()


# --- MJCF ---

MJCF = """<mujoco><asset><mesh name="tip" vertex="{vertices}"/><mesh name="lost" file="lost.stl"/></asset><worldbody>
<body name="arm" pos="0 0 1"><joint axis="0 1 0" pos="0.1 0 0.2"/><joint name="slide" type="slide" axis="1 0 0"/>
<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
<body name="hand" pos="0.5 0 0" euler="0 0 40"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
<geom name="shown" type="mesh" mesh="tip" pos="0 0.2 0" euler="17 0 0" rgba="1 0 0 1" contype="0" conaffinity="0"/>
<geom type="mesh" mesh="lost" contype="0" conaffinity="0"/>
<geom type="box" size="1 1 1"/><geom type="sphere" size="1" group="3"/><geom type="sphere" size="1" rgba="0 0 0 0"/></body>
<geom name="trunk" type="box" size="0.1 0.2 0.3" pos="0 0.1 0"/></body></worldbody></mujoco>"""


def test_geoms_of_an_mjcf_file_lie_where_mujoco_puts_them(tmp_path):
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "arm.xml"
    path.write_text(MJCF.format(vertices=" ".join(map(str, CORNERS.reshape(-1)))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredContent)
        model = load_system(path).model
    with pytest.warns(IgnoredContent, match=r"lost\.stl") as caught:
        visuals = load_visuals(path, model)
    assert len(caught) == 1
    by_color = {visual.color: visual for visual in visuals}
    assert len(visuals) == 2, "a mesh, and the box of the body without meshes"
    shown = by_color[(1.0, 0.0, 0.0, 1.0)]
    (other,) = (visual for visual in visuals if visual is not shown)
    np.testing.assert_allclose(np.ptp(other.mesh[0] * other.scale, axis=0), [0.2, 0.4, 0.6])

    theirs = mujoco.MjModel.from_xml_string(
        path.read_text().replace('file="lost.stl"', 'vertex="0 0 0 1 0 0 0 1 0 0 0 1"')
    )
    data = mujoco.MjData(theirs)
    data.qpos[:] = q = jnp.array([0.4, 0.3])
    mujoco.mj_forward(theirs, data)
    geom = mujoco.mj_name2id(theirs, mujoco.mjtObj.mjOBJ_GEOM, "shown")
    expected = data.geom_xpos[geom] + theirs.mesh_vert[:4] @ data.geom_xmat[geom].reshape(3, 3).T
    poses = jaxdyn.forward_kinematics(model, q)
    origins, turns = np.array(poses.translation), np.array(poses.rotation)
    found = origins[shown.body] + shown.points() @ turns[shown.body].T
    assert np.linalg.norm(found[:, None] - expected[None], axis=-1).min(axis=0).max() < 1e-6
    trunk = data.geom_xpos[mujoco.mj_name2id(theirs, mujoco.mjtObj.mjOBJ_GEOM, "trunk")]
    np.testing.assert_allclose(origins[other.body] + turns[other.body] @ other.position, trunk, atol=1e-6)


def test_shapes_of_an_mjcf_file_stay_in_place_in_a_urdf_file(tmp_path, capsys):
    """Meshes by reference, which MuJoCo moves to their principal axes, and solids; the URDF file is in another folder."""
    for package in ("trimesh", "mujoco"):
        pytest.importorskip(package)
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "tip.stl").write_bytes(stl())
    robot = tmp_path / "robot.xml"
    robot.write_text(
        '<mujoco><compiler meshdir="meshes"/><default><geom contype="0" conaffinity="0"/></default>'
        '<asset><mesh name="tip" file="tip.stl" scale="1 2 3"/></asset><worldbody>'
        '<geom type="box" size="1 2 3" rgba="1 0 0 0.5"/><body pos="0 0 1"><joint/>'
        '<geom type="mesh" mesh="tip" pos="0.1 0.2 0.3" quat="0.5 0.5 0.5 -0.5" rgba="0 1 0 1"/>'
        '<geom type="cylinder" size="0.1 0.4" euler="30 40 50"/><geom type="ellipsoid" size="1 2 3"/></body>'
        "</worldbody></mujoco>"
    )
    target = tmp_path / "urdf" / "robot.urdf"
    target.parent.mkdir()
    convert(ConvertArguments(source=robot, target=target))
    assert "left out visual ellipsoid" in capsys.readouterr().out
    before, after = load_visuals(robot, load_system(robot)), load_visuals(target, load_system(target), folder=tmp_path)
    assert [visual.shape.kind for visual in after] == ["box", "mesh", "cylinder"]
    assert after[1].shape.file == tmp_path / "meshes" / "tip.stl"

    def corners(points):
        return np.unique(points.round(6), axis=0)

    stated = (CORNERS * (1.0, 2.0, 3.0)) @ rotation_matrix(np.array([0.5, 0.5, 0.5, -0.5])).T + (0.1, 0.2, 0.3)
    np.testing.assert_allclose(corners(before[1].points()), corners(stated), atol=3e-6)
    for old, new in zip(before[:3], after, strict=True):
        assert old.body == new.body
        assert old.color == pytest.approx(new.color)
        np.testing.assert_allclose(corners(old.points()), corners(new.points()), atol=3e-6)
    robot.write_text(robot.read_text().replace('scale="1 2 3"', 'refpos="0.5 0 0"'))
    convert(ConvertArguments(source=robot, target=target, force=True))
    assert "left out visual mesh, visual ellipsoid" in capsys.readouterr().out
