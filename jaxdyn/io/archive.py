"""Archives: a whole system in two files, for exact round trips.

`<name>.json` has the structure (names, parents, kinds of joints, forces, drives, algorithm), readable, and `<name>.npz` has every
number under its path, such as "model.mass" or "forces.0.stiffness", uncompressed, without pickle: NumPy alone can read it. What
comes back is equal bit by bit, type by type, and in structure; a batch of models stays one.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxdyn.dynamics.system import System
from jaxdyn.io.archive_checks import check_system
from jaxdyn.io.archive_structure import StructureError, known_classes, structure_of, value_of
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import LARGEST_ARRAYS, NpzArrays, fill_npz, write_files
from jaxdyn.io.reading import content, opened

_FORMAT, _VERSION = "jaxdyn archive", 1
_LARGEST_STRUCTURE = 50_000_000  # bytes; a mechanism of ten thousand bodies is far below
_MOST_DIGITS = 18  # of an integer of 64 bits
_REWRITE = "write the file again"


def save_archive(system: System, path: Path | str, classes: Sequence[type] = ()) -> None:
    """Write a system as `<path>.json` and `<path>.npz`; `load_archive` gives it back exactly.

    Args:
        path: With one of the two suffixes or without.
        classes: Joints, motions and forces of your own that the system has; `load_archive` wants them too.

    Raises:
        ConfigError: A part of the system is of an unknown class, or the files cannot be written.
    """
    structure_path, arrays_path = _paths(path)
    arrays: dict[str, Any] = {}
    try:
        structure = structure_of(system, "", known_classes(classes), arrays)
    except StructureError as error:
        raise ConfigError(f"{structure_path}: {error}") from None
    text = json.dumps({"format": _FORMAT, "version": _VERSION, "system": structure}, indent=1, allow_nan=False) + "\n"
    try:
        write_files(
            {
                arrays_path: lambda file: fill_npz(file, arrays),
                structure_path: lambda file: file.write(text.encode()),
            }
        )
    except OSError as error:
        raise ConfigError(f"{structure_path}: cannot be written ({error.strerror}); choose another path") from None


def load_archive(path: Path | str, classes: Sequence[type] = ()) -> System:
    """The system in an archive, equal in structure and bit by bit in every number to the one that was saved.

    Double precision has to be on (`jax.enable_x64`) if the archive has it. Nothing in the files is executed.

    Args:
        path: With one of the two suffixes or without.
        classes: Joints, motions and forces of your own that the file may name.

    Raises:
        ConfigError: A file is missing or is no archive, or the two do not fit together; one line with file, part and remedy.
    """
    structure_path, arrays_path = _paths(path)
    structure, arrays = _read_structure(structure_path), _read_arrays(arrays_path)
    try:
        system = value_of(structure, "", known_classes(classes), arrays)
        check_system(system)
        for name in arrays:
            raise StructureError(f"the npz file has an array {name!r} too many; keep the two files together")
    except StructureError as error:
        raise ConfigError(f"{structure_path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{structure_path}: it is nested too deep; {_REWRITE}") from None
    return system


def _paths(path: Path | str) -> tuple[Path, Path]:
    path = Path(path)
    stem = path.name.removesuffix(".json").removesuffix(".npz")
    return path.with_name(f"{stem}.json"), path.with_name(f"{stem}.npz")


def _read_structure(path: Path) -> Any:
    text = content(path, _LARGEST_STRUCTURE, "give an archive")
    try:
        structure = json.loads(
            text, parse_constant=_no_constant, parse_int=_integer, object_pairs_hook=_without_repetition
        )
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deep; {_REWRITE}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: no valid JSON, {' '.join(str(error).split())}; {_REWRITE}") from None
    if (
        not isinstance(structure, dict)
        or structure.get("format") != _FORMAT
        or structure.keys() != {"format", "version", "system"}
    ):
        raise ConfigError(f"{path}: it is no {_FORMAT}; give a file written by jaxdyn.io.save_archive")
    if structure["version"] != _VERSION:
        raise ConfigError(f"{path}: it has version {structure['version']!r}; this jaxdyn reads version {_VERSION}")
    return structure["system"]


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has more than {_MOST_DIGITS} digits")
    return int(digits)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in values if names.count(name) > 1)!r} is given twice in one object")
    return values


def _read_arrays(path: Path) -> dict[str, Any]:
    with opened(path, LARGEST_ARRAYS, _REWRITE, absent="keep it beside the json file") as file:
        try:
            return dict(NpzArrays(file))
        except ValueError as error:
            raise ConfigError(f"{path}: no npz file of plain arrays, {error}; {_REWRITE}") from None
