"""Announcements of long compilations, by Python's logger "jaxdyn" at level INFO; silent unless logging is configured.

    logging.basicConfig(level=logging.INFO)

JAX calls its listeners at the start and at the end of three phases: tracing a function, lowering it (in which the lane compiler
runs), and compiling it. An announcement names the function that was passed to JAX and, within the context `announced_as`, its
purpose. Functions of JAX itself, such as the conversion of an array, are not named, and without a purpose they are not announced.
The announced time is the sum of the three phases. The last phase ends when the machine code is made, too.
"""

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator

import jax
import jax.monitoring
from jax.extend.core import primitives

from jaxdyn.compute.forked import check_not_forked

_LOG = logging.getLogger("jaxdyn")
_PATIENCE = 2.0  # s
_LAST = "/jax/core/compile/backend_compile_duration"
# Functions of compilers that wait for code which is still being made when JAX has finished.
WAITS: list[Callable[[], None]] = []
_PHASES = ("/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration", _LAST)


class _Compilation:
    """Compilation of one function.

    Attributes:
        name: Name of the function, with its purpose; empty if it is not announced.
        seconds: Duration of the completed phases, s.
        announced: True after the announcement.
    """

    def __init__(self, name: str):
        self.name = name
        self.seconds = 0.0
        self.announced = False

    def announce(self) -> None:
        """Announce the compilation, once."""
        if self.name and not self.announced:
            self.announced = True
            _LOG.info("compiling %s ...", self.name)


class _Thread(threading.local):
    """State of the compilations of a thread; a phase inside of another phase belongs to the outer one."""

    purpose = ""
    depth = 0
    compilation = _Compilation("")
    timer = threading.Timer(0.0, lambda: None)


_thread = _Thread()


@contextlib.contextmanager
def announced_as(purpose: str) -> Iterator[None]:
    """Context manager or decorator that adds a purpose, such as "the search", to the announcements of compilations within it."""
    before, _thread.purpose = _thread.purpose, purpose
    try:
        yield
    finally:
        _thread.purpose = before


def _is_of_jax(function: str) -> bool:
    """Whether JAX compiles a function of this name for one of its operations. Some public names in `jax.random` are too short."""
    name = function.lstrip("_")
    is_private = name != function
    return (
        hasattr(primitives, f"{name}_p")
        or callable(getattr(jax.numpy, name, None))
        or (is_private and hasattr(jax.random, name))
    )


def _begin(event: str, value: float | int, **facts: str | int) -> None:
    if event in _PHASES[1:]:
        check_not_forked()
    if event not in _PHASES or not _LOG.isEnabledFor(logging.INFO):
        return
    _thread.depth += 1
    if _thread.depth > 1:
        return
    function = re.sub(r"^\w+\((.*)\)$", r"\1", str(facts.get("fun_name", "")))  # the name may be jit(f)
    own = "" if _is_of_jax(function) else function.lstrip("_")
    name = f"{_thread.purpose} ({own})" if _thread.purpose and own else _thread.purpose or own
    if name != _thread.compilation.name:
        _thread.compilation = _Compilation(name)
    left = max(0.0, _PATIENCE - _thread.compilation.seconds)
    _thread.timer = threading.Timer(left, _thread.compilation.announce)
    _thread.timer.daemon = True
    _thread.timer.start()


def _end(event: str, duration_secs: float, **facts: str | int) -> None:
    if event == _LAST:
        start = time.perf_counter()
        for wait in WAITS:
            wait()
        duration_secs += time.perf_counter() - start
    if event not in _PHASES or _thread.depth == 0:  # the logger was configured in between
        return
    _thread.depth -= 1
    if _thread.depth > 0:
        return
    _thread.timer.cancel()
    _thread.timer.join()  # an announcement in progress is completed first
    compilation = _thread.compilation
    compilation.seconds += duration_secs
    if event == _LAST:
        if compilation.announced:
            _LOG.info("compiled %s in %.1f s", compilation.name, compilation.seconds)
        _thread.compilation = _Compilation("")


jax.monitoring.register_scalar_listener(_begin)
jax.monitoring.register_event_duration_secs_listener(_end)
