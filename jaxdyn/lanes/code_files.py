"""Machine code in files, for later processes.

What is read from a file is run, and damaged object code ends the process. So a file counts only if

    it belongs to the user and nobody else may write to it, and the same holds for the folder and, up to the root, for those that
        contain it (system folders belong to root; in a folder with the sticky bit, such as /tmp, others cannot replace what is ours);
    its first bytes are the checksum of its name and of what follows, so that damage, and files that were swapped, are found.

A program of the same user can write a file with the right checksum: against it there is no protection. On Windows, where a file's mode
does not tell who may write to it, only checksums are compared; folders in the user's profile are safe there by default.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

_POSIX = os.name == "posix"
_FLAGS = (os.O_NOFOLLOW | os.O_NONBLOCK) if _POSIX else getattr(os, "O_BINARY", 0)


class CodeFiles:
    """A folder of machine code.

    Raises:
        ValueError: others may write to the folder, or replace it.
    """

    def __init__(self, folder: Path):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder.resolve()
        if not _POSIX:
            return
        status = self.folder.stat()
        if status.st_uid != os.geteuid() or _others_write(status):
            raise ValueError(f"others may write to {folder}, and code from it would be run; choose a folder of your own")
        for parent in self.folder.parents:
            status = parent.stat()
            if status.st_uid not in (0, os.geteuid()) or (_others_write(status) and not status.st_mode & stat.S_ISVTX):
                raise ValueError(
                    f"others may write to {parent} and replace {folder}, and code from it would be run; "
                    "choose another folder, or take this right from them"
                )

    def code(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The code of this name; it is made, and kept, if there is none or if it is damaged."""
        path = self.folder / f"{key}.code"
        content = self._read(path)
        if content is not None:
            checksum, code = content[:32], content[32:]
            if checksum == _checksum(key, code):
                return code
            _remove(path)
        code = make()
        self._write(path, _checksum(key, code) + code)
        return code

    def _read(self, path: Path) -> bytes | None:
        """The content of a file of the user's own."""
        try:
            # The file that is looked at is the one that is read, whatever happens to its name; a link or a pipe is not followed.
            with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
                status = os.fstat(file.fileno())
                if not _POSIX or (
                    stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not _others_write(status)
                ):
                    return file.read()
        except FileNotFoundError:
            return None
        except OSError:
            pass
        warnings.warn(
            f"machine code in {path} is not run, because somebody else may have put it there; it is compiled again",
            RuntimeWarning,
            stacklevel=2,
        )
        _remove(path)
        return None

    def _write(self, path: Path, content: bytes) -> None:
        """All at once, so that no other process finds a part. Without the file (say, on a full disk) the code stays in memory."""
        with contextlib.suppress(OSError):
            number, unfinished = tempfile.mkstemp(dir=self.folder, suffix=".unfinished")
            try:
                with open(number, "wb") as file:
                    file.write(content)
                Path(unfinished).replace(path)
            except OSError:
                _remove(Path(unfinished))


def _checksum(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


def _others_write(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
