"""Files made to cost more than they have, to lead elsewhere, or to drive the terminal: each is refused in one line, at once.

`test_fuzz` looks for more of them.
"""

import dataclasses
import io
import os
import time
import warnings
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxdyn import MechanismError
from jaxdyn.errors import suggestion
from jaxdyn.io import (
    ConfigError,
    RunDirectory,
    RunError,
    files,
    load_archive,
    load_mjcf,
    load_system,
    load_urdf,
    read_config,
)
from jaxdyn.io.mechanism.file import load_mechanism
from jaxdyn.io.reading import ConfigError as RaisedError
from jaxdyn.io.recordings import Columns, load_recording
from jaxdyn.io.toml import read_toml

pytestmark = pytest.mark.usefixtures("as_a_user")

READERS = {
    "x.toml": load_mechanism,
    "x.urdf": load_urdf,
    "x.xml": load_mjcf,
    "x.json": load_archive,
    "x.csv": lambda path: load_recording(path, Columns()),
    "x.npz": lambda path: load_recording(path, Columns()),
}
BODY = '<body name="b"><joint/><geom size="1" contype="0" conaffinity="0"/></body>'


@pytest.mark.parametrize("name", READERS)
def test_a_link_to_a_device_and_a_pipe_are_refused_without_waiting(tmp_path, refusal, name):
    path = tmp_path / name
    for make in (lambda: path.symlink_to("/dev/zero"), lambda: os.mkfifo(path)):
        make()
        message = refusal(ConfigError, READERS[name], path)
        assert "not a regular file" in message
        assert message.startswith(str(path))
        path.unlink()


def test_results_that_are_a_device_are_refused(tmp_path, refusal):
    run = RunDirectory(tmp_path)
    run.path("states.npz").symlink_to("/dev/zero")
    with pytest.raises(RunError, match="not a file in the run directory"):  # where it leads
        run.read_arrays("states")
    os.mkfifo(tmp_path / "plan.npz")
    assert "not a regular file" in refusal(RunError, run.read_arrays, "plan")


def test_a_file_of_the_system_that_says_it_is_empty_is_read_to_its_bound_only(tmp_path, refusal, monkeypatch):
    """Files such as those in /proc have size 0 and a content."""
    monkeypatch.setattr("jaxdyn.io.toml._LARGEST_FILE", 10)
    assert "larger than 10 bytes; split it" in refusal(ConfigError, read_toml, "/proc/self/status")


# --- TOML ---


@pytest.mark.parametrize("part", ["x", '"x"', "'x'", '"a.b"'])
def test_a_key_of_many_dotted_parts_is_refused_at_once(tmp_path, refusal, part):
    path = tmp_path / "x.toml"
    path.write_text("name = 'a # b'\n[" + " . ".join([part] * 50_000) + "]\n")
    start = time.process_time()
    assert "nested more than 16 levels deep; flatten them" in refusal(ConfigError, read_toml, path)
    assert time.process_time() - start < 2.0


def test_dots_in_texts_and_comments_make_no_key(tmp_path):
    path, dotted = tmp_path / "x.toml", ".".join("x" * 100)
    path.write_text(
        f"# {dotted} it's\na = \"{dotted}\"\nb = '{dotted}'\nc = '''\n{dotted}'''''\nd = \"\"\"{dotted}\\\"\"\"\"\n"
    )
    assert read_toml(path) == {"a": dotted, "b": dotted, "c": dotted + "''", "d": dotted + '"'}


@pytest.mark.parametrize("text", ['a = "' + '\\"' * 200_000, 'a = """' + '\\"""' * 100_000, "a " * 200_000])
def test_texts_that_are_not_closed_take_no_more_than_linear_time(tmp_path, refusal, text):
    path = tmp_path / "x.toml"
    path.write_text(text)
    start = time.process_time()
    assert "not valid TOML" in refusal(ConfigError, read_toml, path)
    assert time.process_time() - start < 3.0


def test_an_integer_beyond_64_bits_is_refused(tmp_path, refusal):
    """Python does not write one of more than 4300 digits into a message."""
    path = tmp_path / "x.toml"
    path.write_text("name = 0x" + "f" * 5000)
    assert "more than 64 bits" in refusal(ConfigError, load_mechanism, path)


def test_many_bodies_are_ordered_in_linear_time_and_too_many_refused(tmp_path, refusal):
    def written(count: int):
        path = tmp_path / "x.toml"
        bodies = "".join(f'[[body]]\nname="{i}"\nparent="{i + 1}"\njoint.kind="revolute"\n' for i in range(count))
        path.write_text(f'name="n"\nsource="s"\n{bodies}')
        return path

    assert "2001 bodies, but at most 2000" in refusal(ConfigError, load_mechanism, written(2001))


def test_the_closest_name_is_not_looked_for_among_endless_ones():
    names = ["".join(chr(0x4E00 + (7 * i * k + i) % 5000) for i in range(60_000)) for k in (1, 2)]
    start = time.process_time()
    assert "use one of" in suggestion(names[0], names[1:])
    assert time.process_time() - start < 1.0


# --- messages ---


def test_control_characters_of_files_and_their_names_are_escaped(tmp_path, refusal):
    path = tmp_path / "\x1b[31m\udc80.toml"
    path.write_bytes(b"name = \x1b[2J")
    message = refusal(ConfigError, load_mechanism, path)
    assert message.isprintable()
    assert "\\x1b[31m\\udc80.toml" in message
    table = tmp_path / "t.csv"
    table.write_bytes(b"t,q,tau\n0,\x1b[2J,1\n")
    assert refusal(ConfigError, load_recording, table, Columns()).isprintable()
    assert str(RaisedError("a\nb")) == "a\\nb"


def test_a_message_has_the_ends_of_what_is_too_long(tmp_path, refusal):
    path = tmp_path / "x.toml"
    path.write_text(f'name = "a"\nsource = "s"\n{"x" * 100_000} = 1\nbody = []')
    message = refusal(ConfigError, load_mechanism, path)
    assert len(message) < 5000
    assert message.startswith(f"{path}: x")
    assert "use one of" in message


@pytest.mark.parametrize("where", ["name", "body", "joint", "loop"])
def test_names_that_would_drive_a_terminal_are_refused(tmp_path, refusal, where):
    names = {key: "\\u001b[2J" if key == where else key for key in ("name", "body", "joint", "loop")}
    path = tmp_path / "x.toml"
    path.write_text(
        f'name = "{names["name"]}"\nsource = "s"\n[[body]]\nname = "{names["body"]}"\nmass = 1\ncom = [0.1, 0.0, 0.0]\n'
        f'joint = {{kind = "revolute", axis = [0, 1, 0], name = "{names["joint"]}"}}\n'
        f'[[rod]]\nname = "{names["loop"]}"\nlength = 1\nbody_a = "ground"\npoint_a = [0, 0, 0]\n'
        f'body_b = "{names["body"]}"\npoint_b = [0, 0, 1]\n'
    )
    assert "invisible characters; remove them" in refusal((ConfigError, MechanismError), load_mechanism, path)


# --- MJCF ---


def mjcf(tmp_path, text: str):
    (tmp_path / "robot").mkdir(exist_ok=True)
    path = tmp_path / "robot" / "x.xml"
    path.write_text(f"<mujoco>{text}</mujoco>")
    return path


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("<worldbody>" + '<replicate count="20">' * 8 + BODY + "</replicate>" * 8 + "</worldbody>", "repeat less"),
        (f'<worldbody><replicate count="{"9" * 30}">{BODY}</replicate></worldbody>', "repeats too often"),
        (f"<worldbody>{BODY * 2001}</worldbody>", "2001 bodies"),
        ('<asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>', "make it coarser"),
        ('<asset><texture name="t" builtin="flat" type="2d" width="9999999" height="99"/></asset>', "make it coarser"),
    ],
)
def test_what_mujoco_would_repeat_for_hours_is_refused_at_once(tmp_path, refusal, text, fragment):
    start = time.process_time()
    assert fragment in refusal(ConfigError, load_mjcf, mjcf(tmp_path, text))
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside.xml", "link.xml", "linked/outside.xml", "..\\outside.xml"])
@pytest.mark.parametrize(
    "text",
    [
        '<include file="{}"/>',
        '<asset><mesh name="m" file="{}"/></asset>',
        '<asset><texture type="cube" name="t" fileright="{}"/></asset>',
        '<asset><model name="m" file="{}"/></asset>',
        '<compiler meshdir="/"/><asset><mesh name="m" file="{}"/></asset>',
    ],
)
def test_files_outside_of_the_folder_are_not_opened(tmp_path, refusal, text, name):
    path = mjcf(tmp_path, text.format(name))
    (tmp_path / "outside.xml").write_text("<mujoco><option timestep='1'/></mujoco>")
    (path.parent / "link.xml").symlink_to(tmp_path / "outside.xml")
    (path.parent / "linked").symlink_to(tmp_path)
    message = refusal(ConfigError, load_mjcf, path)
    assert "lies outside of" in message or "there is no file" in message
    assert "folder" in message or name.startswith("..\\")


def test_a_folder_that_is_given_holds_includes_and_meshes(tmp_path):
    cube = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "cube.obj").write_text(cube)
    (tmp_path / "world.xml").write_text("<mujoco><option gravity='0 0 -3'/></mujoco>")
    text = (
        '<compiler meshdir="../assets"/><include file="../world.xml"/><asset><mesh file="cube.obj"/></asset><worldbody>'
        '<body><joint/><geom type="mesh" mesh="cube" contype="0" conaffinity="0"/></body></worldbody>'
    )
    path = mjcf(tmp_path, text)
    with pytest.raises(ConfigError, match="lies outside"):
        load_mjcf(path)
    system = load_system(path, folder=tmp_path)
    np.testing.assert_allclose(system.model.mass, [1000 / 6])  # MuJoCo's density of water
    np.testing.assert_allclose(system.model.gravity, [0, 0, -3])


def test_a_model_that_is_a_part_of_itself_and_an_include_of_itself_are_refused(tmp_path, refusal):
    path = mjcf(tmp_path, '<asset><model name="m" file="x.xml"/></asset>')
    assert "part of itself" in refusal(ConfigError, load_mjcf, path)
    path = mjcf(tmp_path, '<include file="x.xml"/>')
    assert "been included before" in refusal(ConfigError, load_mjcf, path)


@pytest.mark.parametrize("rotation", ['quat="1e-200 0 0 0"', 'quat="nan 0 0 0"'])
def test_rotations_that_are_none_are_refused(tmp_path, refusal, rotation):
    """MuJoCo takes them."""
    text = f"<worldbody>{BODY.replace('<body', f'<body {rotation}')}</worldbody>"
    assert "x.xml: " in refusal((ConfigError, MechanismError), load_mjcf, mjcf(tmp_path, text))


def test_a_name_of_any_length_is_a_file_that_is_not_there(tmp_path, refusal):
    assert "there is no file" in refusal(ConfigError, load_mjcf, mjcf(tmp_path, f'<include file="{"a" * 5000}.xml"/>'))


def test_paths_of_a_config_that_lead_nowhere_are_refused(tmp_path, refusal):
    @dataclasses.dataclass(frozen=True)
    class Paths:
        mechanism: Path

    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for value in ("~nobody at all/x.toml", "circle/x.toml"):
        (tmp_path / "c.toml").write_text(f'mechanism = "{value}"')
        assert "cannot be resolved" in refusal(ConfigError, read_config, tmp_path / "c.toml", Paths)


def test_messages_of_mujoco_name_the_line_of_the_file(tmp_path, refusal):
    path = mjcf(tmp_path, f"\n<worldbody>\n\n{BODY}\n<wheel/></worldbody>")
    assert "'wheel', line 5" in refusal(ConfigError, load_mjcf, path)


# --- arrays and tables ---


def npy(shape: str, content: bytes, kind: str = "<f8") -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def written_npz(path, entries: dict[str, bytes], method: int = zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return path


def measurements(tmp_path, entries: dict[str, bytes], method: int = zipfile.ZIP_STORED):
    """Calls that read the same arrays as a recording and as results, with the errors that they may raise."""
    path = written_npz(tmp_path / "states.npz", entries, method)
    return [
        (ConfigError, load_recording, path, Columns()),
        (RunError, RunDirectory(tmp_path).read_arrays, "states"),
    ]


@pytest.mark.parametrize(
    "shape", ["(1000000000000,)", "(100000000000000000000,)", "(0, 100000000000000000000)", "(-1,)"]
)
def test_headers_that_promise_more_than_there_is_are_refused(tmp_path, refusal, shape):
    for call in measurements(tmp_path, {"t": npy(shape, bytes(8))}):
        assert "array 't'" in refusal(*call)


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path, refusal, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_UNPACKED", 2**20)
    for call in measurements(tmp_path, {"t": npy("(1000000,)", bytes(8_000_000))}, zipfile.ZIP_DEFLATED):
        assert "unpack to more than 1 MiB" in refusal(*call)


def test_entries_that_share_their_bytes_are_refused(tmp_path, refusal, monkeypatch):
    """Each is as large as the file, and there may be sixty thousand."""
    monkeypatch.setattr(files, "LARGEST_UNPACKED", 0)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("t.npy", npy("(10000,)", bytes(80_000)))
        first = archive.infolist()[0]
        for k in range(20):
            entry = zipfile.ZipInfo(f"{k}.npy")
            for name in ("header_offset", "CRC", "file_size", "compress_size"):
                setattr(entry, name, getattr(first, name))
            archive.filelist.append(entry)
    (tmp_path / "states.npz").write_bytes(buffer.getvalue())
    assert "unpack to more than" in refusal(RunError, RunDirectory(tmp_path).read_arrays, "states")


def test_arrays_of_numpy_come_back_whatever_their_order_and_packing(tmp_path):
    arrays = {
        "a": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "b": np.arange(3, dtype=">i2"),
        "c": np.zeros((0, 4)),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "states.npz", **arrays)
        back = RunDirectory(tmp_path).read_arrays("states")
        for name, array in arrays.items():
            np.testing.assert_array_equal(back[name], array)
            assert back[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("arrays", "fragment"),
    [
        ({"t": np.zeros(0), "q": np.zeros((0, 1)), "tau": np.zeros((0, 1))}, "time stamps"),
        ({"t": np.arange(2.0), "q": np.zeros((2, 1, 1)), "tau": np.zeros(2)}, "shape (2, 1, 1)"),
        ({"t": np.array(0.0), "q": np.zeros(2), "tau": np.zeros(2)}, "shape ()"),
    ],
)
def test_arrays_that_make_no_recording_are_refused(tmp_path, refusal, arrays, fragment):
    np.savez(tmp_path / "r.npz", **arrays)
    assert fragment in refusal(ConfigError, load_recording, tmp_path / "r.npz", Columns())


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("t,q,tau\n0," + "1" * 200_000 + ",0\n", "field larger than"),
        ("t,q,tau\n0,1\n", "line 2 has 2 entries, the header has 3"),
        ("t,q,q,tau\n0,1,2,3\n", "two columns are called 'q'"),
        ("", "there is no array 't'"),
        ("t,q,tau\n0,\0,1\n", "cannot be read as a recording"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path, refusal, text, fragment):
    path = tmp_path / "r.csv"
    path.write_text(text)
    assert fragment in refusal(ConfigError, load_recording, path, Columns())


def test_numbers_that_overflow_are_refused_without_a_warning(tmp_path, refusal):
    path = tmp_path / "x.toml"
    path.write_text(
        'name = "a"\nsource = "s"\n[[body]]\nname = "b"\njoint = {kind = "revolute", axis = [0, 1, 0]}\n'
        "mass = 1e99\ninertia = [1e99, 1e99, 1e99]\n"
    )
    with warnings.catch_warnings(), jax.enable_x64(False):
        warnings.simplefilter("error")
        assert "too large or too small" in refusal((ConfigError, MechanismError), load_mechanism, path)
