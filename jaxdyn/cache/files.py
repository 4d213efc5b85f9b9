"""A folder of compiled programs for later processes.

The content of a file is executed, and damaged machine code terminates the process. Therefore a file is used only if

    it belongs to the user and other users may not write to it;
    other users cannot replace it: the folder belongs to the user, the folders that contain it belong to the user or to root, and
        other users may not write to them, except to parents with the sticky bit (such as /tmp), where they cannot rename files of
        the user;
    it starts with the checksum of its name and its content, so that damaged and exchanged files are detected.

The checksum does not protect against a program that runs as the same user: such a program can write a file with a valid checksum.
On Windows, the mode of a file does not show who may write to it. Therefore only checksums are verified on Windows, and the cache
folder should be in the user's profile.
"""

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

# Maximum size of a folder, and the fraction to keep when it is exceeded. The least recently used files are removed first.
LARGEST_BYTES = 2**30
_KEPT_SHARE = 0.8
# The size of the folder is checked once in this number of writes.
_WRITES_PER_CHECK = 50
# Resolution of the time of last use of a file, s.
_USE_RESOLUTION = 3600.0

_LOGGER = logging.getLogger("jaxdyn")
_POSIX = os.name == "posix"
_FLAGS = (os.O_NOFOLLOW | os.O_NONBLOCK) if _POSIX else getattr(os, "O_BINARY", 0)


class CacheFiles:
    """A folder of bounded size that contains compiled programs.

    Raises:
        ValueError: Other users may write to the folder, or replace it.
        OSError: The folder cannot be created.
    """

    def __init__(self, folder: Path, largest_bytes: int = LARGEST_BYTES):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self._largest_bytes = largest_bytes
        self._writes = 0
        self._has_reported = False
        if not _POSIX:
            return
        status = self.folder.stat()
        if status.st_uid != os.geteuid() or _others_write(status):
            raise ValueError(
                f"others may write to {folder}, and programs from it would be executed; choose a folder that only you can write to"
            )
        for parent in self.folder.parents:
            status = parent.stat()
            if status.st_uid not in (0, os.geteuid()) or (_others_write(status) and not status.st_mode & stat.S_ISVTX):
                raise ValueError(
                    f"others may write to {parent} and replace {folder}, and programs from it would be executed; "
                    "choose another folder, or revoke this permission"
                )

    def content(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Content of the file with this name; the content is created and stored if the file does not exist or is damaged."""
        content = self.read(key)
        if content is None:
            content = make()
            self.write(key, content)
        return content

    def read(self, key: str) -> bytes | None:
        """Content of the file with this name, or None if the file does not exist. Damaged files are removed."""
        path = self.folder / key
        stored = self._stored(path)
        if stored is None:
            return None
        checksum, content = stored[:32], stored[32:]
        if checksum != _checksum(key, content):
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _USE_RESOLUTION:
                os.utime(path)
        return content

    def write(self, key: str, content: bytes) -> None:
        """Store the content in the file with this name. If writing fails, later processes do not find the content."""
        self._write(self.folder / key, _checksum(key, content) + content)
        if self._writes % _WRITES_PER_CHECK == 0:
            self._make_room()
        self._writes += 1

    def _make_room(self) -> None:
        """Remove the least recently used files if the total size is too large."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                with contextlib.suppress(OSError):  # another process may remove files too
                    status = path.lstat()
                    found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        if total <= self._largest_bytes:
            return
        for _, size, path in sorted(found):
            if total <= _KEPT_SHARE * self._largest_bytes:
                return
            _remove(path)
            total -= size

    def _stored(self, path: Path) -> bytes | None:
        """Content of the file; None if it cannot be read or if another user could have written it."""
        try:
            # The opened file is checked, so it cannot be exchanged after the check. Links are not followed, and pipes do not block.
            handle = os.open(path, os.O_RDONLY | _FLAGS)
            try:
                if _is_of_user(os.fstat(handle)):
                    with open(handle, "rb", closefd=False) as file:
                        return file.read()
            finally:
                os.close(handle)
        except OSError as error:
            try:
                if _is_of_user(path.lstat()):
                    _LOGGER.info("a compiled program is not read from the cache: %s", error)
                    return None
            except OSError:  # it does not exist, or the folder is gone
                return None
        warnings.warn(
            f"the compiled program in {path} is not executed, because somebody else may have put it there; "
            "it is compiled again",
            RuntimeWarning,
            stacklevel=3,
        )
        _remove(path)
        return None

    def _write(self, path: Path, content: bytes) -> None:
        """Write the file atomically, since other processes may read it."""
        try:
            handle, unfinished = tempfile.mkstemp(dir=self.folder, suffix=".unfinished")
            try:
                with open(handle, "wb") as file:
                    file.write(content)
                Path(unfinished).replace(path)
            except OSError:
                _remove(Path(unfinished))
                raise
        except OSError as error:
            if not self._has_reported:  # a full disk concerns every program
                _LOGGER.info("compiled programs are not kept in the cache folder %s: %s", self.folder, error)
            self._has_reported = True


def _checksum(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + content).digest()


def _is_of_user(status: os.stat_result) -> bool:
    """True for a file that only the user can have written. On Windows, the mode does not show this."""
    return not _POSIX or (stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not _others_write(status))


def _others_write(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
