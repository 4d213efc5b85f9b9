"""MATLAB files of versions 5 to 7: numeric matrices. Structures and other variables are named, but not read.

A file has elements, each with a tag of its type and its size; a variable is an element whose elements are its flags, dimensions,
name and values. SciPy is not used, because a damaged type crashes it.
"""

import itertools
import struct
import zlib
from collections.abc import Container, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from jaxdyn.io.files import check_unpacked, most_unpacked

_HEADER = 128  # bytes, the last two of which state the order of bytes
_COMPRESSED, _MATRIX = 15, 14  # types of elements
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMBERS, _COMPLEX = range(6, 16), 0x0800  # classes of variables, and a flag


def columns(files: Sequence[BinaryIO], wanted: Container[str]) -> dict[str, np.ndarray | None]:
    """The matrices of one file; those that are not wanted are None.

    Raises:
        ValueError, KeyError, zlib.error, struct.error: The file is damaged, or a variable is not a numeric matrix.
    """
    (file,) = files
    order = "<" if file.read(_HEADER).endswith(b"IM") else ">"
    found: dict[str, np.ndarray | None] = {}
    size = 0
    for kind, data in _elements(file.read(), order):
        if kind == _COMPRESSED:
            unpacked = zlib.decompressobj().decompress(data, most_unpacked(file) + 1)
            check_unpacked(file, size := size + len(unpacked))
            kind, data = next(_elements(unpacked, order), (0, b""))
        if kind == _MATRIX:
            (_, flags), (_, shape), (_, text), *values = itertools.islice(_elements(data, order), 4)
            name = bytes(text).decode()
            found[name] = _matrix(name, flags, shape, values, order) if name in wanted else None
    return found


def _elements(data: bytes | memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Types and contents of adjacent elements."""
    data, place = memoryview(data), 0
    while place < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, place)
        is_small = kind >> 16  # at most four bytes, which are a part of the tag
        if is_small:
            kind, size = kind & 0xFFFF, kind >> 16
        start = place + (4 if is_small else 8)
        if start + size > len(data):
            raise ValueError("it ends too early")
        yield kind, data[start : start + size]
        place = start + size if kind == _COMPRESSED else (start + size + 7) // 8 * 8


def _matrix(name: str, flags: memoryview, shape: memoryview, values: list, order: str) -> np.ndarray:
    (flag,) = struct.unpack_from(f"{order}I", flags)
    if flag & 0xFF not in _NUMBERS or flag & _COMPLEX:
        raise ValueError(
            f"{name!r} is not a matrix of real numbers; save(..., '-struct', ...) writes the fields of a structure"
        )
    ((kind, content),) = values
    lengths = np.frombuffer(shape, f"{order}i4")
    return columns_of_matlab(np.frombuffer(content, order + _TYPES[kind]).reshape(lengths, order="F"))


def columns_of_matlab(array: np.ndarray) -> np.ndarray:
    """A matrix of MATLAB, in which a series of values is often one row."""
    return array.ravel() if array.ndim == 2 and 1 in array.shape else array
