"""Counts the programs that XLA compiles."""

import contextlib
from collections.abc import Iterator

import jax

_COMPILED: list[str] = []


def _note(event: str, _: float, **about) -> None:
    if event.endswith("backend_compile_duration"):
        _COMPILED.append(str(about))


jax.monitoring.register_event_duration_secs_listener(_note)


@contextlib.contextmanager
def no_compilation() -> Iterator[None]:
    """Fails if anything is compiled within it."""
    _COMPILED.clear()
    yield
    assert not _COMPILED
