"""Files that should not outlast the process that uses them, such as half-written ones.

A context removes its file when it ends. If another thread ends the process, it calls `remove_leftovers`. Only a process that is
killed leaves such files.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_paths: set[Path] = set()


@contextlib.contextmanager
def removed_at_end(path: Path) -> Iterator[Path]:
    """Context at whose end a file is removed, if it is still there."""
    _paths.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _paths.discard(path)


def remove_leftovers() -> None:
    """Remove the files of all such contexts, at the end of the process."""
    for path in list(_paths):
        _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
