"""Ctrl-C and SIGTERM, the signal of a cluster at the time limit: they end a command at once, with one line.

A `KeyboardInterrupt` in the main thread does not suffice. Callbacks of the garbage collector swallow exceptions, and JAX has such a
callback; C++ code of JAX aborts the process if an exception reaches it at some points; and Python raises no exception while XLA
compiles in the main thread. Therefore a second thread ends the process. Nothing is lost: at any moment, a file of a run directory
is complete or absent, and the operating system releases the lock of the directory.

This module imports nothing that takes time, so that `jaxdyn.cli` can use it before all other imports.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from jaxdyn.io.leftovers import remove_leftovers

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LONGEST = 0.3  # s, for the line if nobody reads the output


class _Command:
    """State of the command of this process.

    Attributes:
        handled: Signals that end the command; those that are ignored from the beginning, as by `nohup`, stay ignored.
        line: Line that states the interruption.
        is_ending: Whether a signal is ending the process.
    """

    def __init__(self):
        self.handled: list[signal.Signals] = []
        self.line = "interrupted"
        self.is_ending = False

    def handle(self, number: int, frame: object) -> None:
        """Handler of the signals in the main thread, where `watch` does the work."""

    def watch(self, signals: int) -> None:
        """End the process after the first signal, in a separate thread; `signals` is a file with the numbers of the signals."""
        while (number := os.read(signals, 1)[0]) not in self.handled:
            pass
        self.is_ending = True
        said = threading.Thread(target=self._say, daemon=True)
        said.start()
        said.join(_LONGEST)
        _end_children()
        remove_leftovers()
        os._exit(128 + number)

    def _say(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the output is closed
            tqdm = sys.modules.get("tqdm")
            is_below_bar = tqdm is not None and getattr(tqdm.tqdm, "_instances", None)
            print(f"{chr(10) if is_below_bar else ''}jaxdyn: {self.line}", file=sys.stderr, flush=True)
            sys.stdout.flush()


_command = _Command()


def own_process(act: Callable[[], int]) -> int:
    """Execute the command of this process, which a signal ends; returns its exit status.

    After the command, a signal still ends the process, but says nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return act()
    _begin()
    try:
        return act()
    finally:
        if _command.is_ending:
            threading.Event().wait()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        _end()


def said_if_interrupted(line: str) -> None:
    """Set the line that is printed if a signal ends this process."""
    _command.line = line


def is_ending() -> bool:
    """Whether a signal is ending this process, so that nothing else should be printed."""
    return _command.is_ending


def handle_signals() -> None:
    """Handle the signals of the command, also if another library has replaced the handlers, as `jax.distributed` does."""
    for number in _command.handled:
        signal.signal(number, _command.handle)


def _begin() -> None:
    _command.handled = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    signals, wakeup = os.pipe()
    if hasattr(os, "set_blocking"):  # on Windows since Python 3.12
        os.set_blocking(wakeup, False)
    threading.Thread(target=_command.watch, args=(signals,), daemon=True).start()
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    handle_signals()
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_end_in_child)


def _end() -> None:
    for number in _command.handled:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def _hold() -> None:
    """Hold back the signals; a forked process shares the pipe, through which its signals would end the parent."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _command.handled)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _command.handled)


def _end_in_child() -> None:
    _end()
    _release()


def _end_children() -> None:
    """End the child processes, where the operating system lists them."""
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in listed.read_text().split():
                os.kill(int(child), signal.SIGTERM)
