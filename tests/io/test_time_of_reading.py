"""The time to read a file grows in proportion to its size, along every axis along which a file can grow, or the size is refused.

Files come from strangers: with one loop over all pairs of names, a file of some hundred kilobytes does not end.
"""

import contextlib
import gc
import sqlite3
import struct
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from recorded import pendulum_plant

import jaxdyn
from jaxdyn.io import ConfigError, RunDirectory, RunError, load_recording, load_run, load_visuals, read_config
from jaxdyn.io.recording_columns import Columns
from jaxdyn.io.shapes.mesh_files import read_mesh_file
from jaxdyn.jobs.identify.config import IdentifyConfig
from jaxdyn.jobs.optimize.config import OptimizeConfig
from jaxdyn.jobs.rollout.config import RolloutConfig

pytestmark = pytest.mark.usefixtures("as_a_user")

# A file of 4 times the length takes 4 times as long to read, and 16 times as long if each pair of items is compared. Files that are
# read within the floor (s) are not compared.
GROWTH, MOST_GROWTH, FLOOR = 4, 8.0, 0.02
REFUSALS = (ConfigError, RunError, jaxdyn.MechanismError)

Write = Callable[[Path, int], Callable[[], object]]


class Family(NamedTuple):
    """Files that grow along one axis.

    Attributes:
        length: Length of the axis for the shorter one of two files.
        write: Function of a folder and a length that writes a file, and returns a function that reads the file.
    """

    length: int
    write: Write


def of_text(name: str, text: Callable[[int], str], read: Callable[[Path], object]) -> Write:
    def write(folder: Path, count: int) -> Callable[[], object]:
        (folder / name).write_text(text(count))
        return lambda: read(folder / name)

    return write


def many(count: int, item: Callable[[int], str] | str, between: str = "\n") -> str:
    """Items with the numbers from 0; # in a text is the number."""
    return between.join(item.replace("#", str(k)) if isinstance(item, str) else item(k) for k in range(count))


# --- mechanism files and configs ---

BODY = '[[body]]\nname = "b#"\njoint = {kind = "revolute", axis = [0, 1, 0]}\nmass = 1\ninertia = [1, 1, 1]'
NEXT_BODY = BODY.replace("name", 'parent = "b@"\nname')
POINTS = 'body_a = "b0"\npoint_a = [0, 0, 0]\nbody_b = "b1"\npoint_b = [0, 1, 0]'


def chain(count: int, body: str = NEXT_BODY) -> str:
    return many(count, lambda k: body.replace("@", str(k - 1)).replace('"b-1"', '"ground"').replace("#", str(k)))


def mechanism(text: Callable[[int], str]) -> Write:
    return of_text("x.toml", lambda n: f'name = "n"\nsource = "s"\n{text(n)}\n', jaxdyn.io.load_system)


def tables(item: str) -> Write:
    """Mechanism files of two bodies with this table many times."""
    return mechanism(lambda n: f"{many(2, BODY)}\n{many(n, item)}")


def values(before: str, item: str, after: str = "]") -> Write:
    """Mechanism files of one body with a list of these items."""
    return mechanism(lambda n: f"{many(2, BODY)}\n{before}{many(n, item, ', ')}{after}")


def config(kind: type, text: Callable[[int], str]) -> Write:
    return of_text("config.toml", text, lambda path: read_config(path, kind))


STUDY = '[[study]]\nname = "s#"\nmechanism = "x.toml"\ntrain = ["a.csv"]\nvalidation = ["b.csv"]'
IDENTIFICATION = 'data = "."\nsource = "s"\n[[free]]\ninertia = ["a"]\n'
OPTIMIZATION = 'mechanism = "x.toml"\n[time]\nduration = 1\nsteps = 10\n[solver]\nkind = "ilqr"\n'
TOML = {
    "unknown keys": Family(2000, mechanism(lambda n: many(n, "key# = 1"))),
    "digits": Family(30_000, mechanism(lambda n: "x = " + "1" * n)),
    "letters of a name": Family(50_000, mechanism(lambda n: BODY + '\nparent = "' + "a" * n + '"')),
    "unknown joints": Family(
        2000, mechanism(lambda n: many(2, BODY) + "\n[joint_friction.viscous]\n" + many(n, "c# = 1"))
    ),
    "frames": Family(100, tables('[[frame]]\nname = "f#"\nbody = "b0"')),
    "studies": Family(50, config(IdentifyConfig, lambda n: IDENTIFICATION + many(n, STUDY))),
    "recordings of a study": Family(
        2000,
        config(IdentifyConfig, lambda n: IDENTIFICATION + STUDY.replace('"a.csv"', many(n, '"#.csv"', ","))),
    ),
    "costs": Family(30, config(OptimizeConfig, lambda n: OPTIMIZATION + many(n, '[[running]]\nkind = "effort"'))),
    "initial guesses": Family(
        30,
        config(
            OptimizeConfig,
            lambda n: OPTIMIZATION + '[[running]]\nkind = "effort"\n' + many(n, '[[start]]\nkind = "controls"'),
        ),
    ),
    "coordinates of a config": Family(
        2000,
        config(
            RolloutConfig,
            lambda n: (
                'mechanism = "x.toml"\nbatch = 1\n[time]\nduration = 1\nrate = 1000\n[initial]\nspeed = ['
                + "1, " * n
                + "]"
            ),
        ),
    ),
}
# The parts of a mechanism take milliseconds each, so these families take longer.
MECHANISMS = {
    "bodies in a chain": Family(200, mechanism(chain)),
    "a circle of bodies": Family(200, mechanism(lambda n: chain(n).replace("ground", f"b{n - 1}"))),
    "stops": Family(
        50,
        mechanism(
            lambda n: chain(n, NEXT_BODY.replace("axis", "position_limits = [-1, 1], axis")) + "\n[joint_limits]"
        ),
    ),
    "springs": Family(100, tables("[[spring]]\nstiffness = 1\n" + POINTS)),
    "friction": Family(
        200,
        mechanism(
            lambda n: (
                many(n, BODY)
                + "".join(
                    f"\n[joint_friction.{key}]\n" + many(n, "b#_joint = 1")
                    for key in ("viscous", "coulomb", "velocity_scale")
                )
            )
        ),
    ),
    "loops": Family(100, tables('[[loop]]\nname = "l#"\nkind = "revolute"\na = {body = "b0"}\nb = {body = "b1"}')),
    "couplings": Family(
        100, tables('[[coupling]]\nname = "c#"\ndriven = "b0_joint"\ndriver = "b1_joint"\ncoefficients = [0, 1]')
    ),
    "points on the ground": Family(200, values("[[ground_contact]]\npoints = [", '{body = "b0"}')),
    "drives": Family(
        200, mechanism(lambda n: many(n, BODY) + "\n[drives]\njoints = [" + many(n, '"b#_joint"', ", ") + "]")
    ),
}

# --- XML ---

LINK = '<link name="l#"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>{}</link>'
JOINT = (
    '<joint name="j#" type="revolute"><parent link="l@"/><child link="l#"/><axis xyz="0 0 1"/><limit effort="1" velocity="1"/>{}'
    "</joint>"
)


def robot(count: int, *, parent: str = "@", link: str = "", joint: str = "", more: str = "") -> str:
    """A robot with some moving links; @ in a text is the number before the one of the link or joint."""
    joints = JOINT.replace("@", parent).format(joint)
    numbered = many(
        count + 1, lambda k: (LINK.format(link) + joints * (k > 0)).replace("@", str(k - 1)).replace("#", str(k))
    )
    return f'<robot name="r">{numbered}{more}</robot>'


def urdf(text: Callable[[int], str], **options) -> Write:
    return of_text("x.urdf", text, lambda path: jaxdyn.io.load_urdf(path, **options))


def visuals(name: str, text: Callable[[int], str], read: Callable[[Path], jaxdyn.System]) -> Write:
    return of_text(name, text, lambda path: load_visuals(path, read(path)))


def extended(item: str) -> Write:
    """Robots of two moving links with this element of jaxdyn many times."""
    return urdf(lambda n: robot(2, more=f"<jaxdyn>{many(n, item)}</jaxdyn>"))


def world(bodies: str, more: str = "") -> str:
    return f"<mujoco><worldbody>{bodies}</worldbody>{more}</mujoco>"


def mjcf(text: Callable[[int], str], **options) -> Write:
    return of_text("x.xml", text, lambda path: jaxdyn.io.load_mjcf(path, **options))


def included(folder: Path, count: int) -> Callable[[], object]:
    for k in range(count):
        (folder / f"{k}.xml").write_text("<mujoco/>")
    return mjcf(lambda n: world(HINGED, many(n, '<include file="#.xml"/>')))(folder, count)


BOX = '<visual><geometry><box size="1 1 1"/></geometry><material name="m#"/></visual>'
BALL = '<collision><geometry><sphere radius="1"/></geometry></collision>'
HINGED = '<body name="b#"><joint name="j#" axis="0 1 0"/><geom size="0.1"/></body>'
PLANE = '<geom type="plane" size="1 1 1"/>'
XML = {
    "unknown elements": Family(5000, urdf(lambda n: robot(1, more="<x/>" * n))),
    "kinds of unknown elements": Family(5000, urdf(lambda n: robot(1, more=many(n, "<x#/>")))),
    "repeated elements": Family(3000, urdf(lambda n: robot(1, link="<inertial/>" * n), unphysical="repair")),
    "visuals": Family(500, urdf(lambda n: robot(1, link=BOX * n))),
    "equal names": Family(
        30,
        mjcf(
            lambda n: world(
                many(
                    n,
                    lambda k: HINGED.replace("b#", "b" + "_" * k).replace("j#", str(k)) + f'<site name="b{"_" * k}"/>',
                )
            )
        ),
    ),
    "geoms": Family(500, mjcf(lambda n: world(HINGED.replace("</body>", '<geom size="0.1"/>' * n + "</body>")))),
    "sites": Family(300, mjcf(lambda n: world(HINGED + many(n, '<site name="s#"/>')))),
    "motors": Family(500, mjcf(lambda n: world(HINGED, "<actuator>" + '<motor joint="j#"/>' * n + "</actuator>"))),
    "absent meshes": Family(
        200, mjcf(lambda n: world(HINGED, "<asset>" + many(n, '<mesh name="m#" file="m#.obj"/>') + "</asset>"))
    ),
    "included files": Family(50, included),
}
ROBOTS = {
    "links in a chain": Family(100, urdf(robot)),
    "joints that mimic the one before": Family(
        200, urdf(lambda n: robot(n, parent="0", joint='<mimic joint="j@"/>').replace('<mimic joint="j0"/>', ""))
    ),
    "joints that mimic one another in a circle": Family(
        200, urdf(lambda n: robot(n, parent="0", joint='<mimic joint="j@"/>').replace('"j0"', f'"j{n}"'))
    ),
    "colliders": Family(100, urdf(lambda n: robot(1, link=BALL * n), contact="ground")),
    "drives": Family(
        100, urdf(lambda n: robot(n, parent="0", more="<jaxdyn>" + many(n, '<drive joint="j#"/>')[22:] + "</jaxdyn>"))
    ),
    "loops": Family(
        50, extended('<loop_joint name="p#" type="revolute"><link1 link="l1"/><link2 link="l2"/></loop_joint>')
    ),
    "visuals": Family(100, visuals("x.urdf", lambda n: robot(1, link=BOX * n), jaxdyn.io.load_urdf)),
    "absent meshes": Family(
        200,
        visuals(
            "x.urdf",
            lambda n: robot(
                1, link=many(n, '<visual><geometry><mesh filename="package://x/m#.obj"/></geometry></visual>')
            ),
            jaxdyn.io.load_urdf,
        ),
    ),
    "bodies of MJCF": Family(100, mjcf(lambda n: world(many(n, HINGED)))),
    "planes": Family(100, mjcf(lambda n: world(PLANE * n + many(2, HINGED)), contact="ground")),
}

# --- meshes ---


def mesh(ending: str, text: Callable[[int], str]) -> Write:
    return of_text(f"x{ending}", text, lambda path: read_mesh_file(path, lambda name: None))


FACET = "facet normal 0 0 1\nouter loop\nvertex # 0 0\nvertex 1 # 0\nvertex 0 1 #\nendloop\nendfacet"
TRIANGLE = "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"
ACCESSOR = (
    '<accessor source="#a{0}" count="3" stride="3"><param name="X" type="float"/><param name="Y" type="float"/>'
    '<param name="Z" type="float"/></accessor>'
)
GEOMETRY = (
    '<geometry id="g{0}"><mesh><source id="p{0}"><float_array id="a{0}" count="9">0 0 0 1 0 0 0 1 0</float_array>'
    f"<technique_common>{ACCESSOR}</technique_common></source>"
    '<vertices id="v{0}"><input semantic="POSITION" source="#p{0}"/></vertices>'
    '<triangles count="1"><input semantic="VERTEX" source="#v{0}" offset="0"/><p>0 1 2</p></triangles></mesh></geometry>'
)
USE = '<node><instance_geometry url="#g{0}"/></node>'


def obj(line: str) -> Write:
    """A strip of triangles with a line before each."""
    corners = "v # 0 0\nv # 1 0"
    return mesh(
        ".obj",
        lambda n: (
            many(n + 1, corners)
            + many(n, lambda k: f"\n{line}\nf {2 * k + 1} {2 * k + 2} {2 * k + 3}".replace("#", str(k)))
        ),
    )


def collada(geometries: str, nodes: str) -> str:
    return (
        '<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1"><asset><up_axis>Z_UP</up_axis></asset>'
        f"<library_geometries>{geometries}</library_geometries><library_visual_scenes>"
        f'<visual_scene id="s">{nodes}</visual_scene></library_visual_scenes>'
        '<scene><instance_visual_scene url="#s"/></scene></COLLADA>'
    )


MESHES = {
    "facets": Family(300, mesh(".stl", lambda n: "solid x\n" + many(n, FACET) + "\nendsolid x\n")),
    "materials": Family(600, obj("usemtl m#")),
    "groups and materials": Family(600, obj("g g#\nusemtl m#")),
    "files of materials": Family(2000, mesh(".obj", lambda n: many(n, "mtllib a#.mtl") + "\n" + TRIANGLE)),
    "geometries": Family(30, mesh(".dae", lambda n: collada(many(n, GEOMETRY.format), many(n, USE.format)))),
    "uses of a geometry": Family(50, mesh(".dae", lambda n: collada(GEOMETRY.format(0), USE.format(0) * n))),
}

# --- recordings, archives and runs ---


def recording(text: Callable[[int], str], columns: Callable[[int], Columns] = lambda n: Columns()) -> Write:
    def write(folder: Path, count: int) -> Callable[[], object]:
        (folder / "x.csv").write_text(text(count))
        return lambda: load_recording(folder / "x.csv", columns(count))

    return write


def table(names: Callable[[int], str]) -> Callable[[int], str]:
    """Two rows of a table with the columns t, q, tau and others."""
    return lambda n: f"t,q,tau,{names(n)}\n" + "".join(",".join([row] * (n + 3)) + "\n" for row in "01")


def bag(folder: Path, count: int) -> Callable[[], object]:
    """A database with the messages of a topic, in the encoding of ROS 2 for std_msgs/msg/Float64MultiArray."""
    pytest.importorskip("rosbags")
    path = folder / "x.db3"
    path.unlink(missing_ok=True)
    rows = ((10**9 * k, struct.pack("<4s3I4xd", b"\0\1\0\0", 0, 0, 1, k)) for k in range(count))
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE topics (id, name, type, serialization_format)")
        database.execute("CREATE TABLE messages (topic_id, timestamp, data)")
        database.execute("INSERT INTO topics VALUES (1, '/q', 'std_msgs/msg/Float64MultiArray', 'cdr')")
        database.executemany("INSERT INTO messages VALUES (1, ?, ?)", rows)
    return lambda: load_recording(path, Columns(("/q/received",), ("/q/data",), u=("/q/data",)))


def packed(arrays: Callable[[int], dict], read: Callable[[Path, int], object]) -> Write:
    def write(folder: Path, count: int) -> Callable[[], object]:
        np.savez(folder / "x.npz", **arrays(count))
        return lambda: read(folder / "x.npz", count)

    return write


def archive(change: Callable[[str, int], str]) -> Write:
    def write(folder: Path, count: int) -> Callable[[], object]:
        jaxdyn.io.save_archive(jaxdyn.library.system("pendulum"), folder / "x")
        path = folder / "x.json"
        path.write_text(change(path.read_text(), count))
        return lambda: jaxdyn.io.load_archive(path)

    return write


def with_forces(folder: Path, count: int) -> Callable[[], object]:
    system = jaxdyn.library.system("pendulum")
    spring = jaxdyn.Spring(0, np.zeros(3), -1, np.ones(3), 1.0)
    jaxdyn.io.save_archive(system.changed(forces=(spring,) * count), folder / "x")
    return lambda: jaxdyn.io.load_archive(folder / "x")


def with_arrays(folder: Path, count: int) -> Callable[[], object]:
    jaxdyn.io.save_archive(jaxdyn.library.system("pendulum"), folder / "x")
    with np.load(folder / "x.npz") as arrays:
        more: dict[str, Any] = {f"x{k}": np.ones(1) for k in range(count)}
        np.savez(folder / "x.npz", **arrays, **more)
    return lambda: jaxdyn.io.load_archive(folder / "x")


def plant(folder: Path, count: int) -> Callable[[], object]:
    jaxdyn.io.save_plant(pendulum_plant(), folder)
    (path,) = folder.glob("*.json")
    path.write_text(path.read_text().replace("{", "{" + many(count, '"x#": 1,'), 1))
    return lambda: jaxdyn.io.load_plant(folder)


def run(folder: Path, count: int) -> Callable[[], object]:
    directory = RunDirectory(folder / f"run{count}")
    directory.write_mechanism(jaxdyn.library.system("pendulum"))
    states = {"time": np.arange(3.0), "q": np.ones((2, 3, 1)), "v": np.ones((2, 3, 1))}
    directory.write_arrays("states", **states, **{f"x{k}": np.ones(2) for k in range(count)})
    return lambda: load_run(directory.root)


DATA = {
    "columns": Family(2400, recording(table(lambda n: many(n, "c#", ",")))),
    "columns that are read": Family(
        2000, recording(table(lambda n: many(n, "c#", ",")), lambda n: Columns(q=tuple(f"c{k}" for k in range(n))))
    ),
    "an absent column": Family(2400, recording(table(lambda n: many(n, "c#", ",")), lambda n: Columns(q=("x",)))),
    "rows": Family(10_000, recording(lambda n: "t,q,tau\n" + many(n, "#,0,0"))),
    "messages of a bag": Family(2000, bag),
    "arrays that are read": Family(
        300,
        packed(
            lambda n: {"t": np.arange(2.0), "tau": np.ones(2)} | {f"x{k}": np.ones(2) for k in range(n)},
            lambda path, n: load_recording(path, Columns(q=tuple(f"x{k}" for k in range(n)))),
        ),
    ),
    "a repeated key": Family(3000, archive(lambda text, n: "{" + many(n, '"k#": 1', ",") + ', "z": 1, "z": 2}')),
    "keys": Family(3000, archive(lambda text, n: text.replace("{", "{" + many(n, '"k#": 1,'), 1))),
    "forces of an archive": Family(50, with_forces),
    "arrays of an archive": Family(200, with_arrays),
    "keys of a plant": Family(3000, plant),
    "arrays of a run": Family(200, run),
}

FAST = {"TOML": TOML, "XML": XML, "meshes": MESHES, "data": DATA}
SLOW = {"mechanisms": MECHANISMS, "robots": ROBOTS}


def cases(groups: dict[str, dict[str, Family]]) -> list:
    return [
        pytest.param(family, id=f"{group}: {name}") for group, known in groups.items() for name, family in known.items()
    ]


@pytest.fixture(autouse=True, scope="module")
def _only_objects_of_these_tests_are_collected():
    """What other tests left in this process, often millions of objects, would take seconds for each of the collections below."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def seconds(read: Callable[[], object]) -> float:
    """Processor time of reading a file or of refusing it in one line."""
    gc.collect()
    refused = ""
    start = time.process_time()
    try:
        read()
    except REFUSALS as error:
        refused = str(error)
    taken = time.process_time() - start
    assert len(refused.splitlines()) <= 1
    return taken


def check(family: Family, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is not read in the files
        short = min(seconds(family.write(folder, family.length)) for _ in range(2))
        read = family.write(folder, GROWTH * family.length)
        most = max(FLOOR, MOST_GROWTH * short)
        # The first one may compile, and others of this machine may disturb several: one that is fast enough counts.
        assert any(seconds(read) <= most for _ in range(6)), f"{short:.3f} s, and then more than {most:.3f} s"


@pytest.mark.parametrize("family", cases(FAST))
def test_the_time_grows_in_proportion_to_the_size(tmp_path, family):
    check(family, tmp_path)


@pytest.mark.exhaustive  # minutes; the others cover every reader
@pytest.mark.parametrize("family", cases(SLOW))
def test_the_time_of_reading_parts_grows_in_proportion_to_their_number(tmp_path, family):
    check(family, tmp_path)


@pytest.mark.parametrize(
    ("write", "count", "message"),
    [
        (DATA["columns"].write, 100_000, r"it has 100003 columns, and at most 10000 are read"),
        (
            MESHES["groups and materials"].write,
            8_000,
            r"more than 2000 lines with usemtl; join the faces of each material",
        ),
    ],
    ids=["columns", "materials"],
)
def test_what_no_sound_file_has_in_such_number_is_refused_at_once(tmp_path, refusal, write, count, message):
    read = write(tmp_path, count)
    start = time.process_time()
    assert message in refusal(ConfigError, read)
    assert time.process_time() - start < 1.0
