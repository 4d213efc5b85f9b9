"""Archives: a complete system in two files that can be read back exactly.

`<name>.json` holds the structure (names, parents, kinds of joints, forces, drives, algorithm) as readable text. `<name>.npz` holds
all arrays, each under its path, such as "model.mass" or "forces.0.stiffness", uncompressed and without pickled objects, so that
NumPy alone can read it. Structure, types and every bit of every value are preserved; a batch of models remains a batch.
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
_LARGEST_STRUCTURE = 50_000_000  # bytes; the structure of a mechanism of ten thousand bodies is far smaller
_MOST_DIGITS = 18  # of an integer of 64 bits
_REWRITE = "write the file again"


def save_archive(system: System, path: Path | str, classes: Sequence[type] = ()) -> None:
    """Write a system as `<path>.json` and `<path>.npz`; `load_archive` reads it back exactly.

    Args:
        system: System to write.
        path: Path of the archive, with one of the two suffixes or without a suffix.
        classes: User-defined classes of joints, motions and forces in the system. `load_archive` needs the same classes.

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
    """Read the system from an archive, equal in structure and bit by bit in every value to the saved one.

    Double precision must be enabled (`jax.enable_x64`) if the archive contains it. Nothing in the files is executed.

    Args:
        path: Path of the archive, with one of the two suffixes or without a suffix.
        classes: User-defined classes of joints, motions and forces that the archive may contain.

    Raises:
        ConfigError: A file is missing, is not an archive, or does not match the other file. The message is one line with the file,
            the part and the remedy.
    """
    structure_path, arrays_path = _paths(path)
    structure, arrays = _read_structure(structure_path), _read_arrays(arrays_path)
    try:
        system = value_of(structure, "", known_classes(classes), arrays)
        check_system(system)
        for name in arrays:
            raise StructureError(f"the npz file has an unexpected array {name!r}; keep the two files together")
    except StructureError as error:
        raise ConfigError(f"{structure_path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{structure_path}: it is nested too deeply; {_REWRITE}") from None
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
        raise ConfigError(f"{path}: it is nested too deeply; {_REWRITE}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: it is not valid JSON, {' '.join(str(error).split())}; {_REWRITE}") from None
    if (
        not isinstance(structure, dict)
        or structure.get("format") != _FORMAT
        or structure.keys() != {"format", "version", "system"}
    ):
        raise ConfigError(f"{path}: it is not a {_FORMAT}; give a file written by jaxdyn.io.save_archive")
    if structure["version"] != _VERSION:
        raise ConfigError(f"{path}: it has version {structure['version']!r}; this jaxdyn reads version {_VERSION}")
    return structure["system"]


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed in JSON")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer has more than {_MOST_DIGITS} digits")
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
            raise ConfigError(f"{path}: it is not an npz file of plain arrays, {error}; {_REWRITE}") from None
