"""Files from strangers: what is opened is a regular file of bounded size, and what cannot be used is refused in one line.

A path may lead anywhere: to a device that never ends, to a pipe that never begins, to a file that is exchanged while it is read.
So a file is opened without waiting, and judged once it is open.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jaxdyn.io.errors import ConfigError

# URDF, MJCF and mechanism files of more bodies are refused: what is known of a tree grows with the square of their number.
MOST_BODIES = 2000
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)  # Windows has no pipes among its files
_PIECE = 2**16  # bytes that are read at a time


@contextlib.contextmanager
def opened(path: Path, largest: int, remedy: str, absent: str = "check the path") -> Iterator[BinaryIO]:
    """A regular file, open for reading.

    Args:
        largest: Bytes that it may have.
        remedy: What to do about a file that is larger or cannot be read.
        absent: What to do if there is none.

    Raises:
        ConfigError: The file cannot be opened or read, is a device, a pipe or a folder, or is too large.
    """
    if "\0" in str(path):
        raise ConfigError(f"{path}: no path has a character of number 0; {absent}")
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAITING)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{path}: it is a device or a pipe and no regular file; {remedy}")
            if status.st_size > largest:
                raise ConfigError(f"{path}: it is larger than {_size(largest)}; {remedy}")
            yield file
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; {absent}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); {remedy}") from None
    except MemoryError:
        raise ConfigError(f"{path}: its content does not fit into the memory; {remedy}") from None


def content(path: Path, largest: int, remedy: str) -> bytes:
    """All bytes of a regular file; arguments and errors are those of `opened`."""
    with opened(path, largest, remedy) as file:
        pieces, left = [], largest  # in pieces, because files of the system have size 0, and others may grow
        while piece := file.read(_PIECE):
            pieces.append(piece)
            left -= len(piece)
            if left < 0:
                raise ConfigError(f"{path}: it is larger than {_size(largest)}; {remedy}")
        return b"".join(pieces)


@contextlib.contextmanager
def calculable(file: Path | str) -> Iterator[None]:
    """Around calculations with the numbers of a file: what overflows is refused.

    Raises:
        ConfigError: A result is not finite.
    """
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        try:
            yield
        except FloatingPointError:
            raise ConfigError(
                f"{file}: its numbers are too large or too small to calculate with; check their units"
            ) from None


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count % 2**20 == 0 else f"{count} bytes"
