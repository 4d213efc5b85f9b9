"""Readers of recordings: tables of named columns in files of many kinds, which their content shows."""

import codecs
import contextlib
import csv
import importlib
import itertools
import os
import re
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
from jaxdyn.io.units import scale_of_name, without_unit

_LARGEST_TABLE = 2**30  # bytes of a .csv file
_MOST_COLUMNS = 10_000
_REMEDY = "give a table with numeric data: a .csv, .npz, Parquet, HDF5, MATLAB or MCAP file, or a bag of ROS 2"
# Kinds of files by their first bytes, with the module of jaxdyn.io.logs that reads them.
_KINDS = {
    b"PAR1": ("a Parquet file", "parquet"),
    b"\x89HDF": ("an HDF5 file", "hdf5"),
    b"MATLAB 7.3": ("a MATLAB file", "hdf5"),
    b"MATLAB 5.0": ("a MATLAB file", "matlab"),
    b"\x89MCAP": ("an MCAP log", "ros"),
    b"SQLite format 3": ("a bag of ROS 2", "ros"),
}
# Kinds that are not read, and how they become tables.
_OTHERS = {
    b"#ROSBAG": "a bag of ROS 1; convert it with rosbags-convert",
    b"\x93NUMPY": "a single array (.npy); save all arrays of the recording with numpy.savez",
    b"\x80": "a pickle, which can run programs; save the arrays of the recording with numpy.savez",
    b"\x1f\x8b": "compressed by gzip; unpack it with gunzip",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard; unpack it with zstd -d",
    b"<": "an HTML or XML document; check the download",
    b"version https://git-lfs": "a pointer of Git LFS; get the file with git lfs pull",
}
_LONGEST_START = max(map(len, (*_KINDS, *_OTHERS)))
_EPISODE = re.compile(r"episode_\d{1,9}")
_NUMBER = re.compile(r"(\d+)")


def load_recording(path: Path | str, columns: Columns) -> Recording:
    """Read a recording from a file or a folder, or from two if measurements and inputs have their own time stamps.

    The content of a file shows its kind: a table with a header line (.csv), NumPy arrays (.npz), Parquet, HDF5, MATLAB, MCAP, or a
    bag of ROS 2, which may be a folder. In a folder with a LeRobot data set, the name of a recording is "episode_" and an index.

    Args:
        path: Folder and name of the recording; by default the name is that of the file.
        columns: Names of the files, and of the time stamps, coordinates, velocities, accelerations and inputs in them.

    Raises:
        ConfigError: The file cannot be used, or reading it needs a package that is not installed; the message is one line with the
            file, the name and the remedy.
    """
    name = Path(path).stem if columns.file == Columns.file else Path(path).name
    with contextlib.ExitStack() as stack:
        sources = zip(columns.paths(Path(path)), columns.names, strict=True)
        return _recording(name, [(file, stack.enter_context(_arrays(file, names))) for file, names in sources], columns)


def recording_of_table(name: str, table: Any, columns: Columns) -> Recording:
    """A recording of a pandas `DataFrame`, or of any other table of named columns, such as a dictionary of arrays.

    Args:
        name: Name of the recording, for messages.
        table: Values of each column.
        columns: Names of the time stamps, coordinates, velocities, accelerations and inputs in the table, as in `load_recording`.

    Raises:
        ConfigError: A column does not exist or does not fit; the message is one line with the name and the remedy.

    Example:
        ```python
        import jaxdyn
        import pandas

        log = pandas.DataFrame({"t": [0.0, 0.1, 0.2], "elbow [deg]": [0.0, 9.0, 18.0], "motor": [1.0, 1.0, 0.0]})
        recording = jaxdyn.io.recording_of_table("log", log, jaxdyn.io.Columns(q=("elbow [deg]",), u=("motor",)))
        ```
    """
    if columns.u_file:
        raise ConfigError(
            f"{name}: u_file = {columns.u_file!r} is not read; leave it out, and add the inputs to the table"
        )
    arrays = {str(key): table[key] for key in table}
    return _recording(name, [(name, arrays)] * len(columns.names), columns)


def _recording(name: str, tables: list[tuple[Path | str, Mapping[str, Any]]], columns: Columns) -> Recording:
    """A recording of one table, or of a table of measurements and one of inputs."""
    (source, arrays), (other, of_inputs) = tables[0], tables[-1]
    time = _table(source, arrays, columns.time, ("s",)).ravel()
    kept = _once(time)
    q = _rows(source, arrays, columns.q, ("rad", "m"), kept)
    v = _rows(source, arrays, columns.v, ("rad/s", "m/s"), kept) if columns.v else None
    a = _rows(source, arrays, columns.a, ("rad/s^2", "m/s^2"), kept) if columns.a else None
    u_time = time if len(tables) == 1 else _table(other, of_inputs, columns.u_time or columns.time, ("s",)).ravel()
    u_kept = _once(u_time)
    stamps = u_time[u_kept]
    u = _rows(other, of_inputs, columns.u, ("N m", "N"), u_kept) if columns.u else np.zeros((len(stamps), 0))
    missing = np.flatnonzero(~np.all(np.isfinite(u), axis=1))
    if len(missing):
        raise ConfigError(
            f"{other}: {', '.join(columns.u)}: {len(missing)} of {len(u)} rows lack a value of the inputs, the "
            f"first one at {stamps[missing[0]]:g} s; interpolate the inputs, or remove these rows (other columns may have gaps)"
        )
    try:
        if len(tables) == 2:
            return Recording.of_streams(name, time[kept], q, stamps, u, v=v, a=a, inputs=columns.inputs)
        return Recording(name, stamps, q, v, u, a, inputs=columns.inputs)
    except RecordingError as error:
        raise ConfigError(f"{' and '.join(dict.fromkeys(str(where) for where, _ in tables))}: {error}") from None


def _once(time: np.ndarray) -> np.ndarray:
    """Rows that are later than all before them, since loggers sometimes write a sample twice, or a row of another clock."""
    return time > np.fmax.accumulate(np.append(-np.inf, time))[:-1]


def _rows(
    path: Path | str, arrays: Mapping[str, Any], names: tuple[str, ...], units: tuple[str, ...], kept: np.ndarray
) -> np.ndarray:
    """The kept rows of a table that has one row for each time stamp."""
    table = _table(path, arrays, names, units)
    if len(table) != len(kept):
        raise ConfigError(
            f"{path}: {', '.join(names)} has {len(table)} rows, but there are {len(kept)} time stamps; give one row per time stamp"
        )
    return table[kept]


@contextlib.contextmanager
def _arrays(path: Path, columns: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """Arrays of a file or folder by name; at least those with these names have values. A damaged file raises `ConfigError`."""
    names = {*columns, *map(without_unit, columns)}
    if _EPISODE.fullmatch(path.name) and (path.parent / "meta" / "info.json").is_file():
        yield _of_library(path, ("an episode of a LeRobot data set", "lerobot"), path, names)
        return
    parts = _parts(path) if path.is_dir() else [path]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(opened(part, LARGEST_ARRAYS, _REMEDY)) for part in parts]
        first = files[0].read(_LONGEST_START)
        files[0].seek(0)
        for start, words in _OTHERS.items():
            if first.startswith(start):
                raise ConfigError(f"{path}: it is {words}")
        kind = next((kind for start, kind in _KINDS.items() if first.startswith(start)), None)
        if kind is not None:
            yield _of_library(path, kind, files, names)
            return
        try:
            yield NpzArrays(files[0]) if first.startswith(b"PK") else _columns(files[0])
        except ConfigError:
            raise
        except (ValueError, csv.Error) as error:
            raise _unreadable(path, error) from None


def _parts(folder: Path) -> list[Path]:
    """The files of a bag, which may be split into numbered files. The names in its list of files are not trusted."""
    found = [path for suffix in (".mcap", ".db3") for path in folder.glob(f"*{suffix}")]
    if not found:
        raise ConfigError(f"{folder}: it is a folder without the files of a bag (.mcap or .db3); {_REMEDY}")
    return sorted(
        found, key=lambda path: [int(text) if text.isdecimal() else text for text in _NUMBER.split(path.name)]
    )


def _of_library(path: Path, kind: tuple[str, str], content: Any, names: set[str]) -> Mapping[str, Any]:
    """Columns that a module of jaxdyn.io.logs reads."""
    noun, module = kind
    try:
        return importlib.import_module(f"jaxdyn.io.logs.{module}").columns(content, names)
    except (ConfigError, MemoryError):
        raise
    except ModuleNotFoundError as error:
        remedy = 'install it with pip install "jaxdyn[recordings]"'
        raise ConfigError(f"{path}: it is {noun}, and {error.name} is not installed; {remedy}") from None
    except Exception as error:  # libraries raise errors of many kinds for damaged files
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> ConfigError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ConfigError(f"{path}: cannot be read as a recording ({reason}); {_REMEDY}")


def _columns(file: BinaryIO) -> dict[str, np.ndarray]:
    """The columns of a table below its header.

    Raises:
        ValueError, csv.Error: The file is not a numeric table.
    """
    if file.seek(0, os.SEEK_END) > _LARGEST_TABLE:
        raise ValueError(f"a table of text may have {_LARGEST_TABLE >> 30} GiB")
    file.seek(0)
    lines = codecs.iterdecode(file, "utf-8-sig")
    header = next(lines, "")
    delimiter = next((mark for mark in ",;\t" if mark in header), ",")
    # Fields with line breaks are not numeric.
    reader = csv.reader(itertools.chain([header], lines), delimiter=delimiter)
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


def _array(path: Path | str, arrays: Mapping[str, Any], name: str) -> np.ndarray:
    key = name if name in arrays else without_unit(name)
    if key not in arrays:
        raise ConfigError(str(UnknownName("array", name, sorted(arrays), str(path))))
    numbers = np.asarray(arrays[key])
    if numbers.dtype.kind == "M":
        numbers = numbers - np.datetime64(0, "s")
    if numbers.dtype.kind == "m":
        return numbers / np.timedelta64(1, "s")
    if numbers.dtype.kind not in "fiu":
        raise ConfigError(f"{path}: {name!r} has type {numbers.dtype}; give a numeric array")
    return numbers.astype(float)


def _table(path: Path | str, arrays: Mapping[str, Any], names: tuple[str, ...], units: tuple[str, ...]) -> np.ndarray:
    """The arrays with these names side by side, in SI units."""
    found = [_array(path, arrays, name) for name in names]
    try:
        with np.errstate(invalid="ignore"):  # a signaling NaN is a missing value, too
            found = [x * scale_of_name(name, units) for name, x in zip(names, found, strict=True)]
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    for name, x in zip(names, found, strict=True):
        if x.ndim not in (1, 2) or len(x) != len(found[0]):
            raise ConfigError(f"{path}: {name!r} has shape {x.shape}; give one row or one value per time stamp")
    return np.concatenate([x[:, None] if x.ndim == 1 else x for x in found], axis=1)
