"""Records of compiled calls and their backends, for reports and tests."""

import collections
import dataclasses

import equinox as eqx


@dataclasses.dataclass(frozen=True)
class Record:
    """One compiled call.

    Attributes:
        name: Name of the function, with ".jvp", ".transpose" or ".tangent" for its derivatives.
        backend: Backend, "lanes" or "xla".
        width: Samples per vector.
        operations: Scalar operations per sample, with loops counted by their iterations.
        code_s: Time of code generation, s.
        reason: Reason why XLA was used.
    """

    name: str
    backend: str
    width: int = 0
    operations: int = 0
    code_s: float = 0.0
    reason: str = ""


class Served(eqx.Module):
    """The backend that runs a program, "lanes" or "xla", as a static part of the results of the program."""

    backend: str = eqx.field(static=True)


# Large enough for a long run of tests or a notebook; a record is a few hundred bytes.
_RECORDS: collections.deque[Record] = collections.deque(maxlen=100_000)


def note(record: Record) -> None:
    """Add a compiled call to the records."""
    _RECORDS.append(record)


def records() -> tuple[Record, ...]:
    """Records of the latest compiled calls, oldest first."""
    return tuple(_RECORDS)
