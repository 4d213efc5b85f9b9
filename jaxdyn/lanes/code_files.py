"""Machine code in files, for later processes.

What is read from a file is executed, and damaged object code ends the process. Therefore a file is used only if

    it belongs to the user and nobody else may write to it;
    nobody else may replace it: the folder belongs to the user, the folders that contain it belong to the user or to root, and
        others may write to none of them, except to parents with the sticky bit (such as /tmp), where they cannot rename what is
        not theirs;
    it starts with the checksum of its name and its content, so that damaged and swapped files are found.

The checksum does not protect from a program that runs as the same user: it can write a file with the right checksum. On Windows
the mode of a file does not show who may write to it. There only checksums are compared, and the folder should lie in the user's
profile.
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
            raise ValueError(
                f"others may write to {folder}, and code from it would be run; choose a folder of your own"
            )
        for parent in self.folder.parents:
            status = parent.stat()
            if status.st_uid not in (0, os.geteuid()) or (_others_write(status) and not status.st_mode & stat.S_ISVTX):
                raise ValueError(
                    f"others may write to {parent} and replace {folder}, and code from it would be run; "
                    "choose another folder, or take this right from them"
                )

    def code(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The code of this name. It is made and stored if there is none or if it is damaged."""
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
        """The content of the file, or None if there is none or if somebody else could have written it."""
        try:
            # The open file is checked, so it cannot be exchanged after the check. Links are not followed, pipes do not block.
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
        """Write the file atomically, since other processes may read it. If that fails, the code stays in memory only."""
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
