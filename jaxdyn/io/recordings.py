"""Readers of recordings: NumPy archives (.npz) and numeric tables with a header line (.csv)."""

import codecs
import contextlib
import csv
import itertools
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxdyn.errors import UnknownName
from jaxdyn.identify.recording import Recording, RecordingError
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import LARGEST_ARRAYS, NpzArrays
from jaxdyn.io.reading import opened
from jaxdyn.io.recording_columns import Columns
from jaxdyn.io.units import scale_of_name

_LARGEST_TABLE = 2**30  # bytes of a .csv file
_MOST_COLUMNS = 10_000
_REMEDY = "give a .npz or .csv file with numeric data"
# Files of other kinds by their first bytes, and how they become tables.
_OTHERS = {
    b"PAR1": "a Parquet file; write it as a table, pandas.read_parquet(path).to_csv(other)",
    b"\x89HDF": "an HDF5 file (or MATLAB 7.3); save its arrays with numpy.savez",
    b"MATLAB 5.0": "a MATLAB file; save the arrays of scipy.io.loadmat(path) with numpy.savez",
    b"\x89MCAP": "an MCAP log; save its messages as arrays with numpy.savez, which the package rosbags or mcap reads",
    b"SQLite format 3": "a database, such as a bag of ROS 2; save its messages as arrays with numpy.savez, which rosbags reads",
    b"#ROSBAG": "a bag of ROS 1; save its messages as arrays with numpy.savez, which the package rosbags reads",
    b"\x93NUMPY": "a single array (.npy); save all arrays of the recording with numpy.savez",
}


def load_recording(path: Path | str, columns: Columns) -> Recording:
    """Read a recording from a file, or from two files if measurements and inputs have their own time stamps.

    Args:
        path: Folder and name of the recording; by default the name is that of the file.
        columns: Names of the files, and of the time stamps, coordinates, velocities, accelerations and inputs in them.

    Raises:
        ConfigError: The file cannot be used; the message is one line with the file, the name and the remedy.
    """
    source, *of_inputs = columns.paths(Path(path))
    u_time, u = None, None
    with _arrays(source) as arrays:
        time = _table(source, arrays, columns.time, ("s",)).ravel()
        kept = _once(time)
        q = _rows(source, arrays, columns.q, ("rad", "m"), kept)
        v = _rows(source, arrays, columns.v, ("rad/s", "m/s"), kept) if columns.v else None
        a = _rows(source, arrays, columns.a, ("rad/s^2", "m/s^2"), kept) if columns.a else None
        if not of_inputs:
            u = _rows(source, arrays, columns.u, ("N m", "N"), kept) if columns.u else np.zeros((kept.sum(), 0))
    for other in of_inputs:
        with _arrays(other) as arrays:
            u_time = _table(other, arrays, columns.u_time or columns.time, ("s",)).ravel()
            u = _rows(other, arrays, columns.u, ("N m", "N"), _once(u_time))
            u_time = u_time[_once(u_time)]
    assert u is not None  # from one file or the other
    stamps = time[kept] if u_time is None else u_time
    missing = np.flatnonzero(~np.all(np.isfinite(u), axis=1))
    if len(missing):
        raise ConfigError(
            f"{[source, *of_inputs][-1]}: {', '.join(columns.u)}: {len(missing)} of {len(u)} rows lack a value of the inputs, the "
            f"first one at {stamps[missing[0]]:g} s; interpolate the inputs, or remove these rows (other columns may have gaps)"
        )
    name = Path(path).stem if columns.file == Columns.file else Path(path).name
    try:
        if of_inputs:
            return Recording.of_streams(name, time[kept], q, stamps, u, v=v, a=a, inputs=columns.inputs)
        return Recording(name, stamps, q, v, u, a, inputs=columns.inputs)
    except RecordingError as error:
        raise ConfigError(f"{' and '.join(map(str, (source, *of_inputs)))}: {error}") from None


def _once(time: np.ndarray) -> np.ndarray:
    """Rows that are later than all before them, since loggers sometimes write a sample twice."""
    kept = np.ones(len(time), bool)
    kept[1:] = time[1:] > np.maximum.accumulate(time)[:-1]
    return kept


def _rows(
    path: Path, arrays: Mapping[str, Any], names: tuple[str, ...], units: tuple[str, ...], kept: np.ndarray
) -> np.ndarray:
    """The kept rows of a table that has one row for each time stamp."""
    table = _table(path, arrays, names, units)
    if len(table) != len(kept):
        raise ConfigError(
            f"{path}: {', '.join(names)} has {len(table)} rows, but there are {len(kept)} time stamps; give one row per time stamp"
        )
    return table[kept]


@contextlib.contextmanager
def _arrays(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """Arrays of a file by name; a damaged file raises `ConfigError`."""
    is_table = path.suffix.lower() == ".csv"
    with opened(path, _LARGEST_TABLE if is_table else LARGEST_ARRAYS, _REMEDY) as file:
        first = file.read(max(map(len, _OTHERS)))
        file.seek(0)
        for kind, words in _OTHERS.items():
            if first.startswith(kind):
                raise ConfigError(f"{path}: it is {words}")
        try:
            yield _columns(file) if is_table else NpzArrays(file)
        except ConfigError:
            raise
        except (ValueError, csv.Error) as error:
            raise ConfigError(f"{path}: cannot be read as a recording ({error}); {_REMEDY}") from None


def _columns(file: BinaryIO) -> dict[str, np.ndarray]:
    """The columns of a table below its header.

    Raises:
        ValueError, csv.Error: The file is not a numeric table.
    """
    lines = codecs.iterdecode(file, "utf-8-sig")
    header = next(lines, "")
    delimiter = next((mark for mark in ",;\t" if mark in header), ",")
    reader = csv.reader(
        itertools.chain([header], lines), delimiter=delimiter
    )  # fields with line breaks are not numeric
    names = [name.strip() for name in next(reader, [])]
    if len(names) > _MOST_COLUMNS:
        raise ValueError(f"it has {len(names)} columns, and at most {_MOST_COLUMNS} are read")
    for name, count in Counter(names).items():
        if name and count > 1:
            raise ValueError(f"two columns are called {name!r}")
    numbers = array("d")  # a list of texts would take ten times as much memory
    for row in reader:
        if len(row) != len(names):
            raise ValueError(f"line {reader.line_num} has {len(row)} entries, the header has {len(names)}")
        numbers.extend(float(entry or "nan") for entry in row)
    table = np.array(numbers).reshape(-1, max(len(names), 1))
    return {name: table[:, k] for k, name in enumerate(names)}


def _array(path: Path, arrays: Mapping[str, Any], name: str) -> np.ndarray:
    if name not in arrays:
        raise ConfigError(str(UnknownName("array", name, sorted(arrays), str(path))))
    numbers = arrays[name]
    if numbers.dtype.kind not in "fiu":
        raise ConfigError(f"{path}: {name!r} has type {numbers.dtype}; give a numeric array")
    return numbers.astype(float)


def _table(path: Path, arrays: Mapping[str, Any], names: tuple[str, ...], units: tuple[str, ...]) -> np.ndarray:
    """The arrays with these names side by side, in SI units."""
    found = [_array(path, arrays, name) for name in names]
    try:
        found = [x * scale_of_name(name, units) for name, x in zip(names, found, strict=True)]
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    for name, x in zip(names, found, strict=True):
        if x.ndim not in (1, 2) or len(x) != len(found[0]):
            raise ConfigError(f"{path}: {name!r} has shape {x.shape}; give one row or one value per time stamp")
    return np.concatenate([x[:, None] if x.ndim == 1 else x for x in found], axis=1)
