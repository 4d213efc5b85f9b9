"""MATLAB files up to version 7, read with SciPy: numeric matrices. Structures are nested without a bound and are not read."""

import io
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import numpy as np
from scipy.io import loadmat, whosmat

from jaxdyn.io.files import check_unpacked, most_unpacked

_HEADER = 128  # bytes, the last two of which state the order of bytes
_COMPRESSED = 15
_NUMBERS = {"double", "single", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def columns(files: Sequence[BinaryIO], wanted: Iterable[str]) -> dict[str, np.ndarray | None]:
    """The matrices of one file; those that are not wanted are None.

    Raises:
        ValueError, TypeError, OSError, zlib.error, struct.error: The file is damaged, or a variable is no matrix of numbers.
    """
    unpacked = _unpacked(*files)
    kinds = {name: kind for name, _, kind in whosmat(unpacked)}
    chosen = [name for name in kinds if name in set(wanted)]
    for name in chosen:
        if kinds[name] not in _NUMBERS:
            raise ValueError(
                f"{name!r} has type {kinds[name]}; give a matrix (save(..., '-struct', ...) writes fields)"
            )
    unpacked.seek(0)
    read = loadmat(unpacked, variable_names=chosen) if chosen else {}
    return dict.fromkeys(kinds) | {name: columns_of_matlab(read[name]) for name in chosen}


def columns_of_matlab(array: np.ndarray) -> np.ndarray:
    """A matrix of MATLAB, in which a series of values is often one row."""
    return array.ravel() if array.ndim == 2 and 1 in array.shape else array


def _unpacked(file: BinaryIO) -> io.BytesIO:
    """The file with variables that are not compressed, so that its size in memory is bounded."""
    bound = most_unpacked(file)
    file.seek(0)
    result = io.BytesIO(header := file.read(_HEADER))
    result.seek(0, io.SEEK_END)
    order = "<" if header.endswith(b"IM") else ">"
    while tag := file.read(8):
        kind, size = struct.unpack(f"{order}II", tag)
        data = file.read(size)
        if len(data) < size:
            raise ValueError("it ends too early")
        result.write(zlib.decompressobj().decompress(data, bound) if kind == _COMPRESSED else tag + data)
        check_unpacked(file, result.tell())
    result.seek(0)
    return result
