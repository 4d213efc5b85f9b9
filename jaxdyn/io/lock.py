"""A lock that lets only one process work in a run directory.

The operating system holds the lock and releases it whenever the process ends, so that a killed run leaves nothing that must be
removed.
"""

import contextlib
import datetime
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from jaxdyn.errors import Error
from jaxdyn.io.leftovers import removed_at_end

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

LOCK = "run.lock"


class LockedError(Error, RuntimeError):
    """Error if another process holds the lock; the message names the process."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Context in which this process holds the lock of a folder. The lock file names this process and is removed when the context
    ends.

    Raises:
        LockedError: Another process holds the lock.
        OSError: The folder cannot be written.
    """
    # The file is removed before the release: a process that opens the lock from then on creates a new file.
    with _acquired(folder / LOCK) as file, removed_at_end(folder / LOCK):
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}, since {datetime.datetime.now():%Y-%m-%d %H:%M:%S}\n")
        file.flush()
        yield


def _acquired(path: Path) -> TextIO:
    while True:
        file = path.open("a+")
        try:
            _lock(file, path)
            if _is(file, path):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # the previous holder has removed the file


def _lock(file: TextIO, path: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise LockedError(file.read().strip() or "another process") from None
    except OSError as error:  # some network file systems have no locks
        print(
            f"note: {path.parent}: the file system does not support locks ({error.strerror}); do not start a second process in "
            "this directory"
        )


def _is(file: TextIO, path: Path) -> bool:
    """Whether an open file is still the file at a path, so that it has not been removed or replaced."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False
