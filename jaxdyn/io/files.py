"""Files that appear complete or not at all, and arrays in npz files without pickle, sealed if wished.

The seal of an npz file is its comment: the SHA-256 of a key and of everything that stands before the digest.
"""

import contextlib
import hashlib
import math
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_SEAL, _DIGITS = b"sha256:", 64
_BLOCK = 1 << 20  # bytes
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # a time that is always the same, so that equal arrays make equal files
# What NumPy writes before the numbers of an array in C order, in the byte order of all common machines.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<type>[<|][fiub][1248])', 'fortran_order': False, "
    rb"'shape': \((?P<shape>[\d, ]{0,200})\), \} *\n",
    re.DOTALL,
)


def write_files(fillers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Write files: each is filled under another name, and only when all are complete they get their own names.

    Raises:
        OSError: one cannot be written; then none has changed, unless it is the renaming that fails.
    """
    parts = {path: path.with_name(path.name + ".part") for path in fillers}
    try:
        for path, fill in fillers.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with parts[path].open("w+b") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())  # else a renamed file may be empty after a power failure
        for path, part in parts.items():
            os.replace(part, path)
    finally:
        for part in parts.values():
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def fill_npz(file: BinaryIO, arrays: Mapping[str, Any], comment: bytes = b"") -> None:
    """Write arrays as an uncompressed npz file.

    Raises:
        ValueError: an array of Python objects.
    """
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = comment
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy", _ZIP_EPOCH), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array, order="C"), allow_pickle=False)


def fill_sealed_npz(file: BinaryIO, arrays: Mapping[str, Any], key: str) -> None:
    """Write arrays as an uncompressed npz file, sealed with a key.

    Raises:
        ValueError: an array of Python objects.
    """
    fill_npz(file, arrays, _SEAL + bytes(_DIGITS))
    digest = _digest(file, key)
    file.seek(-_DIGITS, os.SEEK_END)
    file.write(digest)


def is_sealed(path: Path, key: str) -> bool:
    """Whether a file is as it was sealed with this key."""
    try:
        with path.open("rb") as file:
            digest = _digest(file, key)
            return file.read() == digest
    except OSError:
        return False


def has_seal(path: Path) -> bool:
    """Whether a file is sealed, intact or not."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_SEAL) - _DIGITS))
        return file.read(len(_SEAL)) == _SEAL


def _digest(file: BinaryIO, key: str) -> bytes:
    """Digest of a key and of a file without its last digits, where the file stands afterwards."""
    digest, left = hashlib.sha256(key.encode()), file.seek(0, os.SEEK_END) - _DIGITS
    file.seek(0)
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest().encode()


def npz_arrays(archive: zipfile.ZipFile, size: int) -> dict[str, np.ndarray]:
    """All arrays of an npz file as `fill_npz` writes them. Nothing is unpacked and no object is made but arrays of numbers.

    Args:
        size: of the whole file, bytes, which no array may exceed.

    Raises:
        ValueError: an entry is compressed, given twice, or no array of plain numbers.
    """
    arrays: dict[str, np.ndarray] = {}
    for entry in archive.infolist():
        key = entry.filename.removesuffix(".npy")
        if key in arrays or key == entry.filename:
            raise ValueError(f"entry {entry.filename!r} is given twice or is no array")
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > size:
            raise ValueError(f"array {key!r} is compressed")
        arrays[key] = _npy_array(archive.read(entry), key)
    return arrays


def _npy_array(content: bytes, key: str) -> np.ndarray:
    header = _HEADER.match(content)
    if header is None:
        raise ValueError(f"array {key!r} is no array of plain numbers")
    shape = tuple(map(int, re.findall(rb"\d+", header["shape"])))
    array = np.frombuffer(content[header.end() :], np.dtype(header["type"].decode()))
    if array.size != math.prod(shape):
        raise ValueError(f"array {key!r} is not complete")
    return array.reshape(shape)
