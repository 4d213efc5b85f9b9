"""What was compiled, and by which backend: for reports and tests."""

import collections
import dataclasses

import equinox as eqx


@dataclasses.dataclass(frozen=True)
class Record:
    """One compiled call.

    Attributes:
        name: Of the function, with ".jvp", ".transpose" or ".tangent" for its derivatives.
        backend: "lanes" or "xla".
        width: Samples per vector.
        operations: Scalar operations per sample, loops counted turn by turn.
        code_s: Time that code generation took, s.
        reason: Why XLA took over.
    """

    name: str
    backend: str
    width: int = 0
    operations: int = 0
    code_s: float = 0.0
    reason: str = ""


class Served(eqx.Module):
    """The backend that runs a program, "lanes" or "xla", as a part of its results."""

    backend: str = eqx.field(static=True)


# So many that a long run of tests or a notebook loses none; a record is a few hundred bytes.
_RECORDS: collections.deque[Record] = collections.deque(maxlen=100_000)


def note(record: Record) -> None:
    """Remember a compiled call."""
    _RECORDS.append(record)


def records() -> tuple[Record, ...]:
    """The latest compiled calls, oldest first."""
    return tuple(_RECORDS)
