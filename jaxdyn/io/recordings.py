"""Readers of recordings: NumPy archives (.npz) and tables of numbers with a header (.csv)."""

import csv
import dataclasses
import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float

from jaxdyn.identify.recording import Recording, RecordingError
from jaxdyn.io.markers import Markers, links
from jaxdyn.io.toml import ConfigError


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of what a recording holds: arrays of a .npz file, or columns of a .csv file (one name each, or several).

    Attributes:
        time: time stamps, s.
        q, v, a, u: coordinates, velocities, accelerations, inputs, in SI units; empty where they were not measured.
    """

    time: tuple[str, ...] = ("t",)
    q: tuple[str, ...] = ("q",)
    v: tuple[str, ...] = ()
    a: tuple[str, ...] = ()
    u: tuple[str, ...] = ("tau",)


def load_recording(path: Path | str, columns: Columns, markers: Markers | None = None) -> Recording:
    """A recording from a file; "runs.npz:run_02" is the array run_02 of a file that holds several.

    Args:
        columns: what is called how.
        markers: reads the array as tracked markers instead.

    Raises:
        ConfigError: one line with file, name and remedy.
    """
    if markers is not None:
        return _from_markers(path, markers)
    source = Path(path)
    if ".npz:" in source.name:
        raise ConfigError(f"{path}: an array within a file is for markers; name the file")
    arrays = _arrays(source)
    try:
        time = _table(source, arrays, columns.time).ravel()
        q = _table(source, arrays, columns.q)
        v, a = (_table(source, arrays, names) if names else None for names in (columns.v, columns.a))
        u = _table(source, arrays, columns.u) if columns.u else np.zeros((len(time), 0))
        for name, table in (("q", q), ("v", v), ("a", a), ("u", u)):
            if table is not None and len(table) != len(time):
                raise ConfigError(
                    f"{source}: {name} has {len(table)} rows, there are {len(time)} time stamps; give one row each"
                )
        kept = np.concatenate([[True], time[1:] > np.maximum.accumulate(time)[:-1]])  # loggers write a sample twice
        v, a = (None if table is None else table[kept] for table in (v, a))
        return Recording(source.stem, time[kept], q[kept], v, u[kept], a)
    except RecordingError as error:
        raise ConfigError(f"{source}: {error}") from None


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        if path.suffix.lower() == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                header, *rows = list(csv.reader(file))
            numbers = np.array([[float(entry or "nan") for entry in row] for row in rows])
            return {name.strip(): numbers[:, k] for k, name in enumerate(header)}
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (OSError, ValueError, IndexError, EOFError, UnicodeDecodeError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(
            f"{path}: cannot be read as a recording ({reason}); give a .npz or .csv file of numbers"
        ) from None


def _array(path: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise ConfigError(f"{path}: there is no {name!r}; it has {', '.join(sorted(arrays))}")
    array = arrays[name]
    if array.dtype.kind not in "fiu":
        raise ConfigError(f"{path}: {name!r} holds {array.dtype}; give numbers")
    return array.astype(float)


def _table(path: Path, arrays: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    found = [_array(path, arrays, name) for name in names]
    return np.concatenate([x[:, None] if x.ndim == 1 else x for x in found], axis=1)


def load_film(path: Path | str, markers: Markers) -> Float[np.ndarray, "frames columns"]:
    """The places of filmed markers; "runs.npz:run_02" is the array run_02 of a file that holds several, else the first one counts.

    Raises:
        ConfigError: one line with file, name and remedy.
    """
    file, _, member = str(path).partition(".npz:")
    source = Path(file + ".npz" if member else file)
    arrays = _arrays(source)
    film = _array(source, arrays, member or next(iter(arrays)))
    count = film.shape[1] if film.ndim == 2 else 0
    if len(markers.down) != len(markers.sideways) or max((*markers.down, *markers.sideways), default=0) >= count:
        raise ConfigError(f"{path}: it has {count} columns; name one for down and one for sideways per marker")
    return film


def _from_markers(path: Path | str, markers: Markers) -> Recording:
    angles = np.unwrap(np.angle(links(load_film(path, markers), markers)), axis=0)
    q = np.diff(angles, axis=1, prepend=0.0)
    return Recording(str(path), np.arange(len(q)) / markers.frame_rate, q, None, np.zeros((len(q), 0)))
