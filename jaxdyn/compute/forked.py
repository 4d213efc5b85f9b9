"""Processes that were forked after JAX had started its threads.

A forked process has only one thread, so it would wait for the threads of JAX for ever: whenever it compiled or loaded a program,
and in calls with large arrays. In such a process, the functions of jaxdyn and all compilations raise an error.
"""

import os
import threading
import weakref
from typing import Any

from jaxdyn.compute.internals import xla_bridge

_refused: weakref.WeakSet[Any] = weakref.WeakSet()
_threads_are_lost = threading.Event()


def refused_if_forked(function: Any) -> Any:
    """Let a function of `jax.jit`, which calls `check_not_forked` when it is traced, be traced again in a forked process."""
    _refused.add(function)
    return function


def check_not_forked() -> None:
    """Raise an error in a process that was forked after JAX had started.

    Raises:
        RuntimeError: The process was forked.
    """
    if _threads_are_lost.is_set():
        raise RuntimeError(
            "this process was forked from one in which JAX had started its threads, so it would wait for them for ever; start it "
            'with multiprocessing.get_context("spawn")'
        )


def _note_fork() -> None:
    if xla_bridge is not None and xla_bridge.backends_are_initialized():
        _threads_are_lost.set()
        for function in list(_refused):
            function.clear_cache()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_note_fork)
