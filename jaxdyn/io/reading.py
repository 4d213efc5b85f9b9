"""Reading of untrusted files: only regular files of bounded size are opened, and unusable files are refused with a one-line
message.

A path may refer to a device that never ends, to a pipe that never starts, or to a file that is replaced while it is read. Therefore
a file is opened in non-blocking mode, and is checked after it has been opened.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxdyn.io.errors import ConfigError

# URDF, MJCF and mechanism files with more bodies are refused, because memory and time grow quadratically with the number of bodies.
MOST_BODIES = 2000
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)  # Windows has no pipes among its files
_PIECE = 2**16  # bytes that are read at a time


@contextlib.contextmanager
def opened(path: Path, largest: int, remedy: str, absent: str = "check the path") -> Iterator[BinaryIO]:
    """Context in which a regular file is open for reading.

    Args:
        path: Path of the file.
        largest: Maximum size of the file in bytes.
        remedy: Advice for a file that is too large or cannot be read.
        absent: Advice if there is no such file.

    Raises:
        ConfigError: The file cannot be opened or read, is a device, a pipe or a folder, or is too large.
    """
    if "\0" in str(path):
        raise ConfigError(f"{path}: a path cannot contain a null character; {absent}")
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAITING)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{path}: it is a device or a pipe and not a regular file; {remedy}")
            if status.st_size > largest:
                raise ConfigError(f"{path}: it is larger than {_size(largest)}; {remedy}")
            yield file
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; {absent}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); {remedy}") from None
    except MemoryError:
        raise ConfigError(f"{path}: its content does not fit into memory; {remedy}") from None


def content(path: Path, largest: int, remedy: str) -> bytes:
    """All bytes of a regular file; see `opened` for arguments and errors."""
    with opened(path, largest, remedy) as file:
        pieces, left = [], largest  # in pieces, because system files report size 0 and other files may grow
        while piece := file.read(_PIECE):
            pieces.append(piece)
            left -= len(piece)
            if left < 0:
                raise ConfigError(f"{path}: it is larger than {_size(largest)}; {remedy}")
        return b"".join(pieces)


@contextlib.contextmanager
def calculable(file: Path | str) -> Iterator[None]:
    """Context for calculations with the values of a file, in which an overflow raises an error.

    Raises:
        ConfigError: A result is not finite.
    """
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        try:
            yield
        except FloatingPointError:
            raise ConfigError(
                f"{file}: its values are too large or too small for floating-point arithmetic; check their units"
            ) from None


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count % 2**20 == 0 else f"{count} bytes"
