"""Files that are written completely or not at all, and npz files of arrays without pickle, optionally with a seal.

A seal shows whether an npz file has been changed: it is the SHA-256 digest of a key and of all bytes before the digest, stored as
the comment of the file.
"""

import contextlib
import hashlib
import io
import math
import os
import re
import secrets
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.leftovers import removed_at_end

_SEAL, _DIGITS = b"sha256:", 64
_BLOCK = 1 << 20  # bytes
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that equal arrays result in equal files
# Bytes of an npz file, enough for the results of large runs. jaxdyn writes uncompressed files, but recordings may be compressed.
LARGEST_ARRAYS = 2**36
LARGEST_UNPACKED = 2**29
# First bytes that NumPy writes for an array, by version, and the number of bytes that state the length of the header after them.
_LENGTHS = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4, b"\x93NUMPY\x03\x00": 4}
_LONGEST_HEADER = 10_000
_HEADER = re.compile(
    rb"\{'descr': '(?P<type>[<>|=]?(?:f[248]|[iu][1248]|b1|c8|c16|U[1-9]\d{0,5}))', 'fortran_order': (?P<order>True|False), "
    rb"'shape': \((?P<shape>[\d, ]{0,200})\),? ?\} *\n?"
)
_LONGEST_AXIS = 2**40
_UNFINISHED = re.compile(r".*\.[0-9a-f]{8}\.part(\.\w+)?", re.DOTALL)
_PIECE = 2**20  # bytes that are read at a time


def write_files(fillers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Write files under temporary names and rename them once all of them are complete.

    Raises:
        OSError: A file cannot be written. In this case no file has changed, unless the renaming failed.
    """
    with contextlib.ExitStack() as stack:
        parts = {path: stack.enter_context(unfinished(path)) for path in fillers}
        for path, fill in fillers.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with parts[path].open("x+b") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())  # otherwise a renamed file may be empty after a power failure
        for path, part in parts.items():
            try:
                os.replace(part, path)
            except FileNotFoundError:  # another process wrote the file, completed the run and cleared it
                if not path.exists():
                    raise


def unfinished(path: Path, suffix: str = "") -> contextlib.AbstractContextManager[Path]:
    """Context with a temporary name for a file that is renamed once it is complete. A file that still has this name is removed.

    No two processes that write one file use the same name.

    Args:
        path: Final path of the file.
        suffix: Suffix of the temporary name, if its writer needs one.
    """
    return removed_at_end(path.with_name(f"{path.name}.{secrets.token_hex(4)}.part{suffix}"))


def is_unfinished(path: Path) -> bool:
    """Whether the name of a file is one of `unfinished`; only a killed process leaves such a file."""
    return _UNFINISHED.fullmatch(path.name) is not None


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Context in which a file is written on request of the user.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another path") from None


def write_content(path: Path | str, content: str | bytes) -> None:
    """Write a file, completely or not at all.

    Raises:
        ConfigError: The file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with writing(path):
        write_files({Path(path): lambda file: file.write(data)})


def fill_npz(file: BinaryIO, arrays: Mapping[str, Any], comment: bytes = b"") -> None:
    """Write arrays as an uncompressed npz file.

    Raises:
        ValueError: An array contains Python objects.
    """
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = comment
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy", _ZIP_EPOCH), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array, order="C"), allow_pickle=False)


def fill_sealed_npz(file: BinaryIO, arrays: Mapping[str, Any], key: str, comment: bytes = b"") -> None:
    """Write arrays as an uncompressed npz file with a seal, the SHA-256 digest of a key and of the content.

    Args:
        file: File to write.
        arrays: Arrays by name.
        key: Key that enters the digest.
        comment: Comment before the seal.

    Raises:
        ValueError: An array contains Python objects.
    """
    fill_npz(file, arrays, comment + _SEAL + bytes(_DIGITS))
    digest = _digest(file, key)
    file.seek(-_DIGITS, os.SEEK_END)
    file.write(digest)


def is_sealed(path: Path, key: str) -> bool:
    """Whether the seal of a file matches this key and the content of the file, so that the file is unchanged."""
    try:
        with path.open("rb") as file:
            digest = _digest(file, key)
            return file.read() == digest
    except OSError:
        return False


def has_seal(path: Path) -> bool:
    """Whether a file has a seal (see `fill_sealed_npz`), valid or not."""
    return comment_of_sealed(path, 0) is not None


def comment_of_sealed(path: Path, length: int) -> bytes | None:
    """The last bytes before the seal of a file, which may be valid or not; None if there is no seal."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - length - len(_SEAL) - _DIGITS))
        end = file.read(length + len(_SEAL))
    return end[: -len(_SEAL)] if end.endswith(_SEAL) else None


def _digest(file: BinaryIO, key: str) -> bytes:
    """Digest of a key and of a file without the digest at its end; the file position is then at the start of this digest."""
    digest, left = hashlib.sha256(key.encode()), file.seek(0, os.SEEK_END) - _DIGITS
    file.seek(0)
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest().encode()


def most_unpacked(file: BinaryIO) -> int:
    """Bytes to which the content of a file may unpack; the position in the file is kept."""
    here, size = file.tell(), file.seek(0, os.SEEK_END)
    file.seek(here)
    return max(size, LARGEST_UNPACKED)


def check_unpacked(file: BinaryIO, size: int) -> None:
    """Refuse content that unpacks to too many bytes.

    Raises:
        ValueError: The size is more than `most_unpacked`.
    """
    if size > (largest := most_unpacked(file)):
        raise ValueError(f"its arrays unpack to more than {largest >> 20} MiB")


class NpzArrays(Mapping[str, np.ndarray]):
    """Arrays of an npz file by name, each read on access. Only numeric arrays and arrays of strings are read.

    Args:
        file: Open file of bounded size. The unpacked size may not exceed the larger of the file size and `LARGEST_UNPACKED`.

    Raises:
        ValueError: The file is not an npz file, or an array is damaged; the message names the entry. A damaged array raises this
            error when it is accessed.
    """

    def __init__(self, file: BinaryIO):
        with _damage_is_a_value_error():
            self._archive = zipfile.ZipFile(file)
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self._archive.infolist():
            key = entry.filename.removesuffix(".npy")
            if key in self._entries or key == entry.filename:
                raise ValueError(f"entry {entry.filename!r} is given twice or is not an array")
            # Other methods of compression would be unpacked without a bound.
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"array {key!r} is compressed in a way that NumPy does not use")
            self._entries[key] = entry
        check_unpacked(file, sum(entry.file_size for entry in self._entries.values()))

    def __getitem__(self, key: str) -> np.ndarray:
        with _damage_is_a_value_error(), self._archive.open(self._entries[key]) as stream:
            return _npy_array(cast(io.BufferedIOBase, stream), self._entries[key].file_size, key)

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of an array, of which only the header is read."""
        with _damage_is_a_value_error(), self._archive.open(self._entries[key]) as stream:
            return _npy_header(cast(io.BufferedIOBase, stream), self._entries[key].file_size, key)[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@contextlib.contextmanager
def _damage_is_a_value_error() -> Iterator[None]:
    """Context that converts the various exceptions of `zipfile` for damaged files to `ValueError`."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, struct.error) as error:
        raise ValueError(" ".join(str(error).split()) or "it ends too early") from None


def _npy_header(stream: io.BufferedIOBase, size: int, key: str) -> tuple[np.dtype, tuple[int, ...], Literal["F", "C"]]:
    """Type, shape and order of an array in an entry of `size` bytes."""
    magic = stream.read(8)
    width = _LENGTHS.get(magic)
    if width is None:
        raise ValueError(f"array {key!r} is not a plain numeric array")
    length = int.from_bytes(stream.read(width), "little")
    header = _HEADER.fullmatch(stream.read(min(length, _LONGEST_HEADER)))
    if header is None:
        raise ValueError(f"array {key!r} is not a plain numeric array")
    kind = np.dtype(header["type"].decode())
    shape = tuple(map(int, re.findall(rb"\d+", header["shape"])))
    count = math.prod(shape)
    if count * kind.itemsize != size - len(magic) - width - length or max(shape, default=0) > _LONGEST_AXIS:
        raise ValueError(f"array {key!r} is not complete")
    return kind, shape, "F" if header["order"] == b"True" else "C"


def _npy_array(stream: io.BufferedIOBase, size: int, key: str) -> np.ndarray:
    """Read an array from an entry of `size` bytes; memory is allocated only after the header has been checked against this size."""
    kind, shape, order = _npy_header(stream, size, key)
    count = math.prod(shape)
    array = np.empty(count, kind)
    filled, place = 0, array.view(np.uint8) if count else np.empty(0, np.uint8)
    # The last read reaches the end of the entry, where the checksum is compared.
    while part := stream.read(min(len(place) - filled, _PIECE) or 1):
        filled += len(part)
        if filled > len(place):
            break
        place[filled - len(part) : filled] = np.frombuffer(part, np.uint8)
    if filled != len(place):
        raise ValueError(f"array {key!r} is not complete")
    return array.reshape(shape, order=order)
