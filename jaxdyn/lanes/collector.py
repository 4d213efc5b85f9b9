"""Pauses of Python's collector of cyclic garbage.

Tracing a function creates millions of objects. Reference counts free nearly all of them, but the collector examines them
repeatedly, which takes up to a quarter of the time before a first result.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Context manager or decorator without collections; afterwards, the collector is on again if it was on before."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
