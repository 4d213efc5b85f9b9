"""Records of compiled calls and their backends, for reports and tests."""

import collections
import dataclasses
import math
from concurrent.futures import Future


@dataclasses.dataclass(frozen=True)
class Record:
    """One compiled call.

    Attributes:
        name: Name of the function, with ".jvp", ".transpose" or ".tangent" for its derivatives.
        backend: Backend, "lanes" or "xla".
        width: Samples per vector.
        operations: Scalar operations per sample, with loops counted by their iterations; a `while_loop` counts once.
        code_s: Time of code generation, s; NaN if the code could not be made.
        reason: Reason why XLA was used.
    """

    name: str
    backend: str
    width: int = 0
    operations: int = 0
    code_s: float = 0.0
    reason: str = ""


@dataclasses.dataclass(slots=True)
class _Entry:
    """A record, and the time of its code generation if that is not known yet."""

    record: Record
    code_s: Future[float] | None

    def completed(self) -> Record:
        """The record with the time of code generation, which may have to be waited for."""
        code_s = self.code_s
        if code_s is not None:
            seconds = math.nan if code_s.exception() else code_s.result()
            self.record, self.code_s = dataclasses.replace(self.record, code_s=seconds), None
        return self.record


# Large enough for a notebook; a record is a few hundred bytes.
_ENTRIES: collections.deque[_Entry] = collections.deque(maxlen=10_000)


def note(record: Record, code_s: Future[float] | None = None) -> None:
    """Add a compiled call to the records; the time of code generation may follow later."""
    entry = _Entry(record, code_s)
    _ENTRIES.append(entry)
    if code_s is not None:
        code_s.add_done_callback(lambda _: entry.completed())


def records() -> tuple[Record, ...]:
    """Records of the latest compiled calls, oldest first; waits for machine code that is being made."""
    return tuple(entry.completed() for entry in tuple(_ENTRIES))
