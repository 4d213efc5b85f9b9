"""Ctrl-C and SIGTERM, the signal of a cluster at the time limit: a command ends within a second, with one line.

The first signal raises `KeyboardInterrupt` in the main thread, so that child processes, temporary files and locks are cleaned up.
That alone does not end every command. Callbacks of the garbage collector, of which JAX has one, and destructors swallow exceptions;
a swallowed interrupt is raised again. And Python does not handle a signal while XLA compiles in the main thread; a second thread
ends the process after a grace period. Nothing is lost then: at any moment, a file of a run directory is complete or absent.

This module imports nothing that takes time, so that `jaxdyn.cli` can use it before all other imports.
"""

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE = 0.6  # s, from the signal to the end of the process without cleaning up
_PAUSE = 0.01  # s
_LONGEST_FLUSH = 0.2  # s, if nobody reads the output
_handled: list[signal.Signals] = []


class _Command:
    """State of the command of this process.

    Attributes:
        received: Number of the first signal, or 0.
        line: Line that states the interruption.
        said: Whether the line has been printed.
        waits: Whether the command waits for Ctrl-C as its usual end.
        swallowed: Set if an interrupt was swallowed.
    """

    def __init__(self):
        self.received = 0
        self.line = "interrupted"
        self.said = False
        self.waits = False
        self.swallowed = threading.Event()
        self._printing = threading.Lock()

    def handle(self, number: int, frame: object) -> None:
        """Raise an interrupt for the first signal; further signals do not disturb the cleaning up."""
        if self.waits and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.received or self.swallowed.is_set():
            self.received = self.received or number
            self.swallowed.clear()
            raise KeyboardInterrupt

    def ignored(self, unraisable: Any) -> None:
        """Hook for exceptions that are swallowed. After a signal, they are not reported."""
        if not self.received:
            sys.__unraisablehook__(unraisable)
        elif unraisable.exc_type is KeyboardInterrupt:
            self.swallowed.set()

    def watch(self, signals: int) -> None:
        """End the process after the first signal, in a separate thread; `signals` is a file with the numbers of the signals."""
        while (number := os.read(signals, 1)[0]) not in _SIGNALS or (self.waits and number == signal.SIGINT):
            pass
        end = time.monotonic() + _GRACE
        while (left := end - time.monotonic()) > 0:
            if self.swallowed.wait(left):
                time.sleep(_PAUSE)  # until the hook has returned, in which the next interrupt would be swallowed, too
                _thread.interrupt_main()
                time.sleep(_PAUSE)  # until it is handled
        self.received = self.received or number
        self.end()

    def end(self) -> None:
        """End the process with the line."""
        said = threading.Thread(target=self._say, daemon=True)
        said.start()
        said.join(_LONGEST_FLUSH)
        os._exit(128 + self.received)

    def _say(self) -> None:
        with self._printing, contextlib.suppress(OSError, ValueError):  # the output is closed
            if not self.said:
                self.said = True
                tqdm = sys.modules.get("tqdm")
                bars = tqdm is not None and getattr(tqdm.tqdm, "_instances", None)
                print(f"{chr(10) if bars else ''}jaxdyn: {self.line}", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()


_command = _Command()


def own_process(act: Callable[[], int]) -> int:
    """Execute the command of this process; returns its exit status, unless a signal ends the process.

    After the command, a signal ends the process without a line.
    """
    if threading.current_thread() is not threading.main_thread():
        return act()
    try:
        try:
            _begin()
            status = act()
            sys.stdout.flush()  # a signal may end the process from now on
        finally:
            _end()
    except BaseException:
        if _command.received:
            _command.end()
        raise
    if _command.received:
        _command.end()
    return status


def said_if_interrupted(line: str) -> None:
    """Set the line that is printed if a signal ends this process."""
    _command.line = line


def received() -> bool:
    """Whether a signal is ending this process."""
    return _command.received > 0


def ctrl_c_is_the_usual_end() -> None:
    """From now on, Ctrl-C raises `KeyboardInterrupt` and does not end the process; for a command that waits for it."""
    _command.waits = True


def handle_signals() -> None:
    """Handle the signals of the command again if another library has replaced the handlers, as `jax.distributed` does."""
    for number in _handled:
        signal.signal(number, _command.handle)


def _begin() -> None:
    _handled[:] = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # as `nohup` sets
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    threading.Thread(target=_command.watch, args=(signals,), daemon=True).start()
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    sys.unraisablehook = _command.ignored
    handle_signals()
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_end_in_child)


def _end() -> None:
    for number in _handled:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def _hold() -> None:
    """Hold back the signals; a forked process shares the pipe, through which its signals would end the parent."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _handled)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _handled)


def _end_in_child() -> None:
    _end()
    _release()
