"""Recordings in files of other programs: one log in every format, and files that are damaged, of another kind or hostile."""

import contextlib
import dataclasses
import json
import sqlite3
import struct
import sys

import numpy as np
import pytest
import scipy.io

from jaxdyn.io import Columns, ConfigError, files, load_recording, read_config, recording_of_table
from jaxdyn.jobs.identify.config import IdentifyConfig
from jaxdyn.jobs.identify.study import parts_of

# Two joints at 0.25 s, and commands at other times. The values are exact in binary and as float32.
TIME, U_TIME = 0.25 * np.arange(6), 0.125 + 0.5 * np.arange(3)
Q, V, U = (np.arange(12.0).reshape(6, 2) + shift for shift in (0.5, 100.0, -3.0))
Q[2, 1] = np.nan
COMMANDS = U[:3]
JOINTS = "shoulder", "elbow"
MATRICES = Columns(q=("q",), v=("v",), u=("u",))
SPLIT = {f"{name}{k + 1}": x[:, k] for name, x in (("q", Q), ("v", V), ("u", U)) for k in range(2)}
NAMED = Columns(q=("q1", "q2"), v=("v1", "v2"), u=("u1", "u2"))


def write_parquet(folder):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    table = {"t": TIME} | SPLIT | {"q2": pandas.array(Q[:, 1], "Float64"), "words": ["x"] * 6}
    pandas.DataFrame(table).to_parquet(folder / "log")
    return NAMED


def write_hdf5(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "log", "w") as file:
        for name, x in {"t": TIME, "q": Q, "v": V, "u": U}.items():
            file.create_dataset(f"arm/{name}", data=x, compression="gzip")
        file["words"] = "x"
    return Columns(("arm/t",), ("arm/q",), ("arm/v",), u=("arm/u",))


def write_hdf5_of_matlab(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "log", "w", userblock_size=512) as file:
        for name, x in {"t": TIME[:, None], "q": Q, "v": V, "u": U}.items():
            file[name] = x.T
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
    with (folder / "log").open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")
    return MATRICES


def write_matlab(folder):
    log = {"t": TIME, "q": Q, "v": V, "u": U, "words": "x", "other": {"q": Q}}
    with (folder / "log").open("wb") as file:
        scipy.io.savemat(file, log, do_compression=True)
    return MATRICES


def write_lerobot(folder, version):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    names = [f"{joint}.pos" for joint in JOINTS]
    of_state = {"dtype": "float32", "shape": [2], "names": {"motors": names} if version == 2 else names}
    features = {"observation.state": of_state, "action": {"dtype": "float32", "shape": [2], "names": None}}
    features["observation.images.top"] = {"dtype": "video", "names": ["height", "width", "channel"]}
    (folder / "meta").mkdir()
    (folder / "meta" / "info.json").write_text(json.dumps({"features": features}))
    (folder / "data" / "chunk-000").mkdir(parents=True)
    state = {"observation.state": list(Q.astype(np.float32)), "velocity": list(V), "action": list(U)}
    table = pandas.DataFrame({"timestamp": TIME, "episode_index": 12} | state)
    if version == 3:
        table = pandas.concat([table.assign(episode_index=11), table, table.assign(episode_index=13)])
    name = "episode_000012" if version == 2 else "file-003"
    table.to_parquet(folder / "data" / "chunk-000" / f"{name}.parquet")
    (folder / "log").symlink_to(folder)  # a name for all formats
    return Columns(
        ("timestamp",),
        tuple(f"observation.state.{name}" for name in names),
        ("velocity",),
        u=("action",),
        file="{}/episode_12",
    )


def write_bag(folder, plugin, compressed=False):
    """Joint states, whose joints come in alternating order and in messages of two nodes, and commands on another clock."""
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.LATEST)
    kinds = {name.rpartition("/")[2]: kind for name, kind in store.types.items()}
    bag = rosbag2.Writer(folder / "log", version=9, storage_plugin=rosbag2.StoragePlugin[plugin])
    if compressed:
        bag.set_compression(rosbag2.CompressionMode.STORAGE, rosbag2.CompressionFormat.ZSTD)
    with bag:
        states = bag.add_connection("/arm/joint_states", kinds["JointState"].__msgtype__, typestore=store)
        commands = bag.add_connection("/arm/commands", kinds["Float64MultiArray"].__msgtype__, typestore=store)
        images = bag.add_connection("/camera", kinds["Image"].__msgtype__, typestore=store)

        def write(connection, time, message):
            data = store.serialize_cdr(message, connection.msgtype)
            bag.write(connection, int(time * 1e9), data)

        header = kinds["Header"](kinds["Time"](0, 0), "")
        write(images, 0.0, kinds["Image"](header, 1, 1, "mono8", 0, 1, np.zeros(1, np.uint8)))
        for k, time in enumerate(TIME):
            order = [k % 2, 1 - k % 2]
            header = kinds["Header"](kinds["Time"](int(time), int(time % 1 * 1e9)), "base")
            values = (x[k, order] for x in (Q, V, U))
            write(states, 1.0 + time, kinds["JointState"](header, [JOINTS[j] for j in order], *values))
        for time, command in zip(U_TIME, COMMANDS, strict=True):
            write(commands, time, kinds["Float64MultiArray"](kinds["MultiArrayLayout"]([], 0), command))

    def named(field):
        return tuple(f"/arm/joint_states/{joint}.{field}" for joint in JOINTS)

    return Columns(("/arm/joint_states/header.stamp",), named("position"), named("velocity"), u=named("effort"))


FORMATS = {
    "parquet": write_parquet,
    "hdf5": write_hdf5,
    "matlab 7.3": write_hdf5_of_matlab,
    "matlab": write_matlab,
    "lerobot 2": lambda folder: write_lerobot(folder, 2),
    "lerobot 3": lambda folder: write_lerobot(folder, 3),
    "bag": lambda folder: write_bag(folder, "SQLITE3"),
    "mcap": lambda folder: write_bag(folder, "MCAP"),
    "compressed mcap": lambda folder: write_bag(folder, "MCAP", compressed=True),
}


def check(recording, time=TIME, q=Q, v=V, u=U):
    for found, expected in ((recording.time, time), (recording.q, q), (recording.v, v), (recording.u, u)):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == float


CONFIG = """
data = "."
[[study]]
name = "arm"
mechanism = "arm.toml"
train = ["log"]
[columns]
"""


@pytest.mark.parametrize("kind", FORMATS)
def test_a_log_is_the_same_recording_in_every_format_by_python_and_by_a_config(tmp_path, kind):
    columns = FORMATS[kind](tmp_path)
    check(load_recording(tmp_path / "log", columns))
    table = {key: list(x) if isinstance(x, tuple) else x for key, x in vars(columns).items() if x}
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in table.items())
    (tmp_path / "fit.toml").write_text(CONFIG + "".join(lines))
    (part,) = parts_of(read_config(tmp_path / "fit.toml", IdentifyConfig), ["log"], (0.0, 9.0))
    check(part.recording)
    wrong = dataclasses.replace(columns, q=(f"{columns.q[-1]}x",))
    with pytest.raises(ConfigError, match=f"there is no array '{wrong.q[0]}' .did you mean '{columns.q[-1]}'"):
        load_recording(tmp_path / "log", wrong)


def test_a_topic_has_its_own_clock_like_a_second_file(tmp_path):
    columns = write_bag(tmp_path, "MCAP")
    commanded = dataclasses.replace(columns, u=("/arm/commands/data",), u_time=("/arm/commands/received",))
    for name, names, table in (("q", "t,q1,q2", [TIME, *Q.T]), ("u", "t,u1,u2", [U_TIME, *COMMANDS.T])):
        np.savetxt(tmp_path / f"{name}.csv", np.stack(table, axis=1), delimiter=",", header=names, comments="")
    (tmp_path / "q.csv").write_text((tmp_path / "q.csv").read_text().replace("nan", ""))
    expected = load_recording(tmp_path, Columns(q=NAMED.q, u=NAMED.u, file="{}/q.csv", u_file="{}/u.csv"))
    found = load_recording(tmp_path / "log", commanded)
    np.testing.assert_array_equal(found.time, expected.time)
    np.testing.assert_array_equal(found.q, expected.q)
    np.testing.assert_array_equal(found.u, expected.u)
    received = load_recording(tmp_path / "log", dataclasses.replace(columns, time=("/arm/joint_states/received",)))
    check(received, time=1.0 + TIME)


def test_tables_in_memory_with_gaps_dates_and_two_clocks(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"t": TIME} | SPLIT)
    check(recording_of_table("log", frame, NAMED))
    check(recording_of_table("log", {"t": TIME, "q": Q, "v": V, "u": U}, MATRICES))
    in_degrees = dataclasses.replace(NAMED, time=("t [ms]",), q=("q1 [deg]", "q2"))
    check(recording_of_table("log", frame, in_degrees), time=1e-3 * TIME, q=Q * [np.pi / 180.0, 1.0])
    dated = frame.assign(t=pandas.to_datetime(1e3 + TIME, unit="s"))
    check(recording_of_table("log", dated, NAMED), time=1e3 + TIME)
    merged = pandas.merge(frame, pandas.DataFrame({"t": U_TIME, "c": COMMANDS[:, 0], "s": U_TIME}), "outer", on="t")
    found = recording_of_table("log", merged, Columns(q=("q1",), u=("c",), u_time=("s",)))
    np.testing.assert_array_equal(found.u[found.time == 0.25, 0], COMMANDS[0, 0])
    with pytest.raises(ConfigError, match=r"^log: there is no array 'q3'; use one of q1, q2, t, u1"):
        recording_of_table("log", frame, Columns(q=("q3",)))
    with pytest.raises(ConfigError, match="add the inputs to the table"):
        recording_of_table("log", frame, Columns(u_file="{}.csv"))


@pytest.mark.parametrize("kind", ["parquet", "hdf5", "matlab", "bag", "mcap"])
def test_damaged_files_are_refused_in_one_line(tmp_path, kind):
    columns = FORMATS[kind](tmp_path)
    path = tmp_path / "log"
    (path,) = (entry for entry in path.iterdir() if entry.suffix != ".yaml") if path.is_dir() else [path]
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for k in range(30):
        damaged = bytearray(content[: len(content) * (k % 10 + 1) // 11] if k < 10 else content)
        for place in rng.integers(16, len(damaged), 0 if k < 10 else 40):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        with contextlib.nullcontext() if k >= 10 else pytest.raises(ConfigError):
            try:
                load_recording(path, columns)
            except ConfigError as error:
                if k < 10 or not str(error).startswith(str(path)):
                    raise


def test_without_its_package_a_file_is_named_with_the_remedy(tmp_path, monkeypatch):
    (tmp_path / "run").write_bytes(b"PAR1" + bytes(100))
    monkeypatch.setitem(sys.modules, "jaxdyn.io.logs.parquet", None)
    with pytest.raises(
        ConfigError, match=r"it is a Parquet file, .* is not installed; .*pip install \"jaxdyn\[recordings\]\""
    ):
        load_recording(tmp_path / "run", Columns())


def parquet_of_equal_values(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"t": np.zeros(10**6)}), folder / "log")
    return "unpack to more than"


def hdf5_of_equal_values(folder):
    with pytest.importorskip("h5py").File(folder / "log", "w") as file:
        file.create_dataset("t", (10**6,), "f8", compression="gzip", chunks=True)
    return "unpack to more than"


def hdf5_of_another_file(folder):
    with pytest.importorskip("h5py").File(folder / "log", "w") as file:
        file.create_dataset("t", (2,), "f8", external=[("/etc/passwd", 0, 16)])
    return "in another file"


def hdf5_with_a_link(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "other", "w") as file:
        file["t"] = TIME
    with h5py.File(folder / "log", "w") as file:
        file["t"] = h5py.ExternalLink("other", "t")
    return "there is no array 't'"


def hdf5_of_texts(folder):
    with pytest.importorskip("h5py").File(folder / "log", "w") as file:
        file["t"] = ["a", "b"]
    return "'t' has type object"


def matlab_of_equal_values(folder):
    with (folder / "log").open("wb") as file:
        scipy.io.savemat(file, {"t": np.zeros(10**6)}, do_compression=True)
    return "unpack to more than"


def matlab_with_a_structure(folder):
    with (folder / "log").open("wb") as file:
        scipy.io.savemat(file, {"t": {"q": Q}})
    return "'t' is not a matrix of real numbers"


def database_without_an_end(folder):
    pytest.importorskip("rosbags")
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x, x, x, 'cdr' FROM c WHERE x < 0"
    with contextlib.closing(sqlite3.connect(folder / "log")) as database:
        database.execute(f"CREATE VIEW topics(id, name, type, serialization_format) AS {endless}")
        database.commit()
    return "interrupted"


def mcap_that_unpacks_to_more(folder):
    pytest.importorskip("rosbags")
    import zstandard

    data = zstandard.compress(bytes(10**6))
    with (folder / "log").open("wb") as file:
        file.write(b"\x89MCAP0\r\n")
        chunk = struct.pack("<QQQII4sQ", 0, 0, 10, 0, 4, b"zstd", len(data)) + data
        file.write(struct.pack("<BQ", 6, len(chunk)) + chunk)
    return "not that which it states"


def bag_of_another_type(folder):
    write_bag(folder, "SQLITE3")
    (path,) = (folder / "log").glob("*.db3")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE topics SET name = 't', type = 'other_msgs/msg/State' WHERE name = '/arm/commands'")
        database.commit()
    return "t has messages of type other_msgs/msg/State"


HOSTILE = [parquet_of_equal_values, hdf5_of_equal_values, hdf5_of_another_file, hdf5_with_a_link, hdf5_of_texts]
HOSTILE += [matlab_of_equal_values, matlab_with_a_structure, database_without_an_end, mcap_that_unpacks_to_more]
HOSTILE += [bag_of_another_type]


@pytest.mark.parametrize("write", HOSTILE)
def test_hostile_files_are_refused(tmp_path, monkeypatch, write):
    monkeypatch.setattr(files, "LARGEST_UNPACKED", 2**18)
    fragment = write(tmp_path)
    names = ("t/x",) if write is bag_of_another_type else ("t",)
    with pytest.raises(ConfigError, match=fragment):
        load_recording(tmp_path / "log", Columns(names))
