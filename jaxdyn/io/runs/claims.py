"""Claims: files by which any number of processes, on any number of machines, divide the work in a run directory.

A process claims work by creating a file exclusively, which file systems do atomically, and NFS since version 3. The file names the
process and its machine, and the process renews the time stamp of the file while it works. A claim ends if the process removes the
file, if the process has ended (as a process of the same machine sees), or if the time stamp is older than a minute by the clock
of the file system.

A claim saves work and protects nothing. A process that was only thought to have ended repeats work of another one; files are
written completely or not at all, and their content does not depend on the process that writes them.
"""

import contextlib
import datetime
import os
import platform
import threading
from collections.abc import Iterator
from pathlib import Path

from jaxdyn.io.files import unfinished
from jaxdyn.io.leftovers import removed_at_end

LASTING = 60.0  # s, for which a claim lasts after its last renewal
_RENEWED = 10.0  # s, from one renewal to the next


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[str | None]:
    """Context in which this process holds a claim, if nobody else does; yields None, or the name of the process that holds it.

    Raises:
        OSError: The folder of the claim cannot be written.
    """
    holder = _taken(path)
    if holder is not None:
        yield holder
        return
    with removed_at_end(path), _renewed(path):
        yield None


def _taken(path: Path) -> str | None:
    """Create the file of a claim; returns None, or the name of the process that holds the claim."""
    while True:
        with contextlib.suppress(FileExistsError), path.open("x") as file:
            file.write(f"process {os.getpid()} on {platform.node()}, since {datetime.datetime.now():%Y-%m-%d %H:%M:%S}")
            file.write(f"\n{os.getpid()} {_machine()}\n")
            return None
        holder = _holder(path)
        if holder is not None:
            return holder
        path.unlink(missing_ok=True)


def _holder(path: Path) -> str | None:
    """The name of the process that holds a claim; None if the claim has ended."""
    try:
        # A network file system asks its server; without opening, the answer may be a minute old.
        with path.open() as file:
            name, _, process = file.read().partition("\n")
            stamp = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    number, _, machine = process.strip().partition(" ")
    has_ended = machine == _machine() and not _exists(int(number))
    return None if has_ended or _now(path.parent) - stamp > LASTING else name or "another process"


def _machine() -> str:
    """Text that is the same for processes that see each other; those in different containers do not, and names may be equal."""
    with contextlib.suppress(OSError):
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{started} {os.readlink('/proc/self/ns/pid')}"
    return platform.node()


def _exists(process: int) -> bool:
    """Whether a process of this machine exists, or may exist."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _now(folder: Path) -> float:
    """Time of the file system, which may differ from that of this machine, s."""
    with unfinished(folder / "clock") as path, path.open("x") as file:
        return os.fstat(file.fileno()).st_mtime


@contextlib.contextmanager
def _renewed(path: Path) -> Iterator[None]:
    """Context in which the time stamp of a file is renewed."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_RENEWED):
            with contextlib.suppress(OSError):
                os.utime(path)

    threading.Thread(target=renew, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
