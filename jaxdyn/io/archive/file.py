"""Archives: a complete system in two files that can be read back exactly.

`<name>.json` holds the structure (names, parents, kinds of joints, forces, drives, algorithm) as readable text. `<name>.npz` holds
all arrays, each under its path, such as "model.mass" or "forces.0.stiffness", uncompressed and without pickled objects, so that
NumPy alone can read it. Structure, types and every bit of every value are preserved; a batch of models remains a batch. The comment
of the npz file contains digests of both files, by which damage is noticed.

An archive of version 1 contains a system, and an archive of version 2 contains a plant (see `archive.plant`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxdyn.dynamics.system import System, checked_system
from jaxdyn.io.archive.checks import check_system
from jaxdyn.io.archive.structure import StructureError, known_classes, structure_of, value_of
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import (
    LARGEST_ARRAYS,
    NpzArrays,
    comment_of_sealed,
    fill_sealed_npz,
    is_sealed,
    write_files,
    writing,
)
from jaxdyn.io.reading import content, opened

_FORMAT = "jaxdyn archive"
_MARK = b"json:"
_VERSIONS = {"system": 1, "plant": 2}  # by the content
_LARGEST_STRUCTURE = 50_000_000  # bytes; the structure of a mechanism of ten thousand bodies is far smaller
_MOST_DIGITS = 18  # of an integer of 64 bits
_REWRITE = "write the file again"


@checked_system
def save_archive(system: System, path: Path | str, *, classes: Sequence[type] = ()) -> None:
    """Write a system as `<path>.json` and `<path>.npz`; `load_archive` reads it back exactly.

    Args:
        system: System to write.
        path: Path of the archive, with the suffix .json or .npz, or without a suffix.
        classes: User-defined classes of joints, motions and forces in the system. `load_archive` needs the same classes.

    Raises:
        TypeError: `system` is not a `System`.
        ConfigError: A part of the system is of an unknown class, or the files cannot be written.
    """
    write_structure("system", system, path, known_classes(classes))


def write_structure(content: str, value: Any, path: Path | str, classes: Mapping[str, Any]) -> None:
    """Write the two files of an archive.

    Args:
        content: Kind of the object: "system" or "plant".
        value: Object to write.
        path: Path of the archive, with the suffix .json or .npz, or without a suffix.
        classes: Classes by name that the object may contain.

    Raises:
        ConfigError: A part of the object is of an unknown class, or the files cannot be written.
    """
    structure_path, arrays_path = archive_paths(path)
    arrays: dict[str, Any] = {}
    try:
        structure = structure_of(value, "", classes, arrays)
    except StructureError as error:
        raise ConfigError(f"{structure_path}: {error}") from None
    described = {"format": _FORMAT, "version": _VERSIONS[content], content: structure}
    text = f"{json.dumps(described, indent=1, allow_nan=False)}\n".encode()
    fillers = {
        arrays_path: lambda file: fill_sealed_npz(file, arrays, _FORMAT, _mark(text)),
        structure_path: lambda file: file.write(text),
    }
    with writing(structure_path):
        write_files(fillers)


def load_archive(path: Path | str, *, classes: Sequence[type] = ()) -> System:
    """Read the system from an archive, equal in structure and bit by bit in every value to the saved one.

    Double precision must be enabled (`jax.enable_x64`) if the archive contains arrays in double precision. Nothing in the files is
    executed.

    Args:
        path: Path of the archive, with the suffix .json or .npz, or without a suffix.
        classes: User-defined classes of joints, motions and forces that the archive may contain.

    Raises:
        ConfigError: One of the two files is missing, is damaged or is not part of an archive, or the two files do not match. The
            error message is one line with the file, the part and the remedy.
    """
    return read_structure("system", path, known_classes(classes), check_system)


def read_structure(content: str, path: Path | str, classes: Mapping[str, Any], check: Callable[[Any], None]) -> Any:
    """Read the object from an archive.

    Args:
        content: Kind of the object: "system" or "plant".
        path: Path of the archive, with the suffix .json or .npz, or without a suffix.
        classes: Classes by name that the archive may contain.
        check: Function that raises a `StructureError` for an object whose parts do not fit together.

    Raises:
        ConfigError: One of the two files is missing or damaged, the archive does not have this content, or the two files do not
            match.
    """
    structure_path, arrays_path = archive_paths(path)
    described = _described(structure_path)
    if content not in described:
        remedy = "jaxdyn.io.load_plant reads it, jaxdyn.io.load_system its mechanism alone"
        other = (
            f"a plant; {remedy}"
            if content == "system"
            else "a mechanism without sensors; give a run of jaxdyn identify"
        )
        raise ConfigError(f"{structure_path}: it contains {other}")
    arrays = _read_arrays(arrays_path)
    try:
        value = value_of(described[content], "", classes, arrays)
        check(value)
        for name in arrays:
            raise StructureError(f"the npz file has an unexpected array {name!r}; keep the two files together")
    except StructureError as error:
        raise ConfigError(f"{structure_path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{structure_path}: it is nested too deeply; {_REWRITE}") from None
    damaged = damaged_file(path)
    if damaged is not None:
        raise ConfigError(f"{damaged}: it is damaged or was edited; {_REWRITE}")
    return value


def damaged_file(path: Path | str) -> Path | None:
    """The file of an archive that is missing or has changed since it was written, or None.

    A change is not noticed if jaxdyn wrote the archive before it added digests.
    """
    structure_path, arrays_path = archive_paths(path)
    missing = [file for file in (arrays_path, structure_path) if not file.is_file()]
    if missing:
        return missing[0]
    mark = comment_of_sealed(arrays_path, len(_mark(b"")))
    if mark is None:
        return None
    if not is_sealed(arrays_path, _FORMAT):
        return arrays_path
    return None if mark == _mark(structure_path.read_bytes()) else structure_path


def is_of_archive(path: Path) -> bool:
    """Whether an npz file is that of an archive."""
    return (comment_of_sealed(path, len(_mark(b""))) or b"").startswith(_MARK)


def _mark(text: bytes) -> bytes:
    """Comment of the npz file beside a json file with this text."""
    return _MARK + hashlib.sha256(text).hexdigest().encode()


def archive_content(path: Path | str) -> str:
    """Content of an archive, "system" or "plant".

    Raises:
        ConfigError: The file is missing, or is not an archive.
    """
    return next(content for content in _VERSIONS if content in _described(archive_paths(path)[0]))


def archive_paths(path: Path | str) -> tuple[Path, Path]:
    """The two files of an archive, .json and .npz."""
    path = Path(path)
    stem = path.name.removesuffix(".json").removesuffix(".npz")
    return path.with_name(f"{stem}.json"), path.with_name(f"{stem}.npz")


def _described(path: Path) -> dict[str, Any]:
    """The content of the .json file of an archive."""
    text = content(path, _LARGEST_STRUCTURE, "give an archive")
    try:
        found = json.loads(text, parse_constant=_no_constant, parse_int=_integer, object_pairs_hook=_without_repetition)
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply; {_REWRITE}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: it is not valid JSON, {' '.join(str(error).split())}; {_REWRITE}") from None
    known = [part for part in _VERSIONS if isinstance(found, dict) and found.keys() == {"format", "version", part}]
    if not known or found["format"] != _FORMAT:
        raise ConfigError(f"{path}: it is not a {_FORMAT}; give a file written by jaxdyn.io.save_archive")
    if found["version"] != _VERSIONS[known[0]]:
        raise ConfigError(
            f"{path}: it has version {found['version']!r}; this jaxdyn reads version {_VERSIONS[known[0]]} of a {known[0]}"
        )
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed in JSON")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer has more than {_MOST_DIGITS} digits")
    return int(digits)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name!r} is given twice in one object")
    return values


def _read_arrays(path: Path) -> dict[str, Any]:
    with opened(path, LARGEST_ARRAYS, _REWRITE, absent="keep it beside the json file") as file:
        try:
            return dict(NpzArrays(file))
        except ValueError as error:
            raise ConfigError(f"{path}: it is not an npz file of plain arrays, {error}; {_REWRITE}") from None
