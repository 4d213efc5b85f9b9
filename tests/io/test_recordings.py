"""Recordings from files: what is read, and what is refused in one line."""

import dataclasses

import numpy as np
import pytest

from jaxdyn.io import ConfigError
from jaxdyn.io.recordings import Columns, load_recording


def test_archive_with_a_repeated_sample(tmp_path):
    q = np.arange(8.0).reshape(4, 2)
    np.savez(tmp_path / "run.npz", t=[0.0, 0.1, 0.1, 0.2], q=q, qd=q + 1, tau=q.astype(np.float32) + 2)
    recording = load_recording(tmp_path / "run.npz", Columns(v=("qd",)))
    assert recording.name == "run"
    np.testing.assert_array_equal(recording.time, [0.0, 0.1, 0.2])
    np.testing.assert_array_equal(recording.q, q[[0, 1, 3]])
    np.testing.assert_array_equal(recording.v, q[[0, 1, 3]] + 1)
    np.testing.assert_array_equal(recording.u, q[[0, 1, 3]] + 2)
    assert recording.a is None
    assert recording.u.dtype == float


def test_table_with_a_header_and_a_missing_number(tmp_path):
    (tmp_path / "run.csv").write_text("time, shoulder, elbow, motor\n0,1,2,3\n0.5,4,,6\n")
    columns = Columns(("time",), ("shoulder", "elbow"), u=("motor",))
    recording = load_recording(tmp_path / "run.csv", columns)
    np.testing.assert_array_equal(recording.q, [[1, 2], [4, np.nan]])
    np.testing.assert_array_equal(recording.u, [[3], [6]])


def test_units_in_the_names_of_columns_are_converted_and_any_usual_delimiter_is_read(tmp_path):
    for delimiter in ",;\t":
        rows = (
            ["time [ms]", "elbow [deg]", "speed (rpm)", "motor (left)"],
            ["0", "90", "30", "1"],
            ["500", "", "60", "2"],
        )
        text = "\n".join(delimiter.join(row) for row in rows)
        (tmp_path / "run.csv").write_text(text, encoding="utf-8-sig")  # as spreadsheets write it
        columns = Columns(("time [ms]",), ("elbow [deg]",), ("speed (rpm)",), u=("motor (left)",))
        recording = load_recording(tmp_path / "run.csv", columns)
        np.testing.assert_allclose(recording.time, [0.0, 0.5])
        np.testing.assert_allclose(recording.q, [[np.pi / 2], [np.nan]])
        np.testing.assert_allclose(recording.v, [[np.pi], [2 * np.pi]])
        np.testing.assert_allclose(recording.u, [[1.0], [2.0]])
    with pytest.raises(ConfigError, match=r"speed \(rpm\).*deg"):
        load_recording(tmp_path / "run.csv", Columns(("time [ms]",), ("speed (rpm)",), u=("motor (left)",)))


def test_gaps_in_the_inputs_are_located(tmp_path):
    (tmp_path / "run.csv").write_text("t,q,tau\n0,1,2\n0.5,2,\n0.7,3,1\n")
    with pytest.raises(ConfigError, match=r"tau.*1 of 3.*0\.5 s.*interpolate"):
        load_recording(tmp_path / "run.csv", Columns())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"t": [0, 1], "q": [[1], [2]]}, "there is no array 'tau'; use one of q, t"),
        ({"t": [0, 1], "q": [[1], [2]], "tau": ["a", "b"]}, "'tau' has type"),
        ({"t": [0, 1], "q": [[1]], "tau": [[1], [2]]}, "q has 1 rows, but there are 2 time stamps"),
        ({"t": [0], "q": [[1]], "tau": [[1]]}, "time stamps are not ascending"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, arrays, message):
    np.savez(tmp_path / "run.npz", **arrays)
    with pytest.raises(ConfigError, match=message) as refusal:
        load_recording(tmp_path / "run.npz", Columns())
    assert "\n" not in str(refusal.value)
    assert "run.npz" in str(refusal.value)


def test_files_that_are_no_recordings(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK no archive")
    np.savez(tmp_path / "objects.npz", t=np.array([None, {}], dtype=object))
    (tmp_path / "words.csv").write_text("t,q\n0,zero\n")
    for name in ("broken.npz", "objects.npz", "words.csv"):
        with pytest.raises(ConfigError, match="cannot be read as a recording"):
            load_recording(tmp_path / name, Columns())


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (b"#ROSBAG V2.0\n", "bag of ROS 1"),
        (b"\x93NUMPY\x01\0", "a single array"),
        (b"\x80\x04\x95", "a pickle, which can run programs"),
        (b"\x28\xb5\x2f\xfd", "compressed by Zstandard"),
        (b"<!DOCTYPE html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
    ],
)
@pytest.mark.parametrize("name", ["run.npz", "run.csv", "run.bag"])
def test_a_file_of_another_kind_is_refused_by_its_kind(tmp_path, first, kind, name):
    (tmp_path / name).write_bytes(first + bytes(100))
    with pytest.raises(ConfigError, match=kind) as refusal:
        load_recording(tmp_path / name, Columns())
    assert len(str(refusal.value).splitlines()) == 1


def test_measurements_and_inputs_of_two_files_have_their_own_time_stamps(tmp_path):
    (tmp_path / "run.1_angle.csv").write_text("t,q [deg]\n0,0\n0.01,90\n0.02,180\n")
    (tmp_path / "run.1_torque.csv").write_text("time [ms],tau\n0,1\n15,2\n")
    columns = Columns(q=("q [deg]",), file="{}_angle.csv", u_file="{}_torque.csv", u_time=("time [ms]",))
    found = load_recording(tmp_path / "run.1", columns)
    assert found.name == "run.1"
    np.testing.assert_allclose(found.time, [0.0, 0.01, 0.015, 0.02])
    np.testing.assert_allclose(found.u[:, 0], [1.0, 1.0, 2.0, 2.0])  # held
    np.testing.assert_allclose(found.q[:, 0], [0.0, np.pi / 2, np.nan, np.pi])
    assert [path.name for path in columns.paths(tmp_path / "run")] == ["run_angle.csv", "run_torque.csv"]
    same = dataclasses.replace(columns, file="{}.csv", u_file="")
    assert [path.name for path in same.paths(tmp_path / "run")] == ["run.csv", "run.csv"]
    with pytest.raises(ValueError, match="one file for all recordings"):
        Columns(u_file="torque.csv")
    (tmp_path / "run.1_angle.csv").write_text("t,q [deg]\n")
    with pytest.raises(ConfigError, match=r"run.1_angle.csv"):
        load_recording(tmp_path / "run.1", columns)
