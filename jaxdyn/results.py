"""Outcomes of computations: the codes that rollouts, fits and solvers of optimal control return, and the error of a failure.

class SolveResult(ResultCode):
    RUNNING = 0, "The search reached the largest number of steps; increase max_steps."
    SOLVED = 1, "The problem is solved.", True

raise_unsuccessful(SolveResult, codes)
"""

import enum
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.core import Tracer

from jaxdyn.display import counted, known


class ResultCode(enum.IntEnum):
    """Base of result codes. Each member is defined by an integer, a message, and True if the computation succeeded.

    Attributes:
        message: Full sentence, which names the remedy if the computation failed.
        successful: True if the computation succeeded.
    """

    message: str
    successful: bool

    def __new__(cls, code: int, message: str, successful: bool = False):
        member = int.__new__(cls, code)
        member._value_, member.message, member.successful = code, message, successful
        return member

    @property
    def words(self) -> str:
        """Name in lowercase letters, such as "step failed"."""
        return self.name.lower().replace("_", " ")


def outcome_text(codes: type[ResultCode], result: Any) -> str:
    """Outcome of a computation, or the number of each outcome in a batch; "unknown" while JAX traces the codes.

    Args:
        codes: Enumeration of the codes.
        result: Integer codes of any shape.
    """
    values = known(result)
    if values is None:
        return "unknown"
    words = [codes(code).words for code in sorted(np.ravel(values).tolist())]
    return words[0] if values.ndim == 0 else counted(words)


def message_text(codes: type[ResultCode], result: Any) -> str:
    """Message of a single code; "unknown" while JAX traces it."""
    value = known(result)
    return "unknown" if value is None else codes(int(value)).message


class UnsuccessfulError(RuntimeError):
    """A computation did not succeed. With `throw=False` the computation returns a result code and does not raise this error.

    Attributes:
        result: Code of the first element of the batch that failed.
    """

    def __init__(self, message: str, result: ResultCode):
        super().__init__(message)
        self.result = result


def raise_unsuccessful(
    codes: type[ResultCode], result: Any, error: type[UnsuccessfulError] = UnsuccessfulError
) -> None:
    """Raise an error if a computation, or an element of a batch, failed; do nothing while JAX traces the codes.

    Args:
        codes: Enumeration of the codes.
        result: Integer codes of any shape.
        error: Class of the error to raise.

    Raises:
        UnsuccessfulError: Its message names the code and the remedy.
    """
    if isinstance(result, Tracer):
        return
    found = np.ravel(np.asarray(result))
    failed = [k for k, code in enumerate(found) if not codes(int(code)).successful]
    if failed:
        code = codes(int(found[failed[0]]))
        which = f"{len(failed)} of {len(found)} failed, the first has index {failed[0]}: " if found.size > 1 else ""
        raise error(f"{which}{codes.__name__}.{code.name}: {code.message} Pass throw=False to get result codes.", code)


def raising(codes: type[ResultCode]) -> Callable[[Callable], Callable]:
    """Decorator of a compiled function with the argument `throw`, whose result has a field or property `result`: if `throw` is
    true, a call outside of `jit` raises an error for an unsuccessful result.

    Args:
        codes: Enumeration of the codes.
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, throw: bool = False, **options: Any) -> Any:
            found = function(*args, **options)
            if throw:
                raise_unsuccessful(codes, found.result)
            return found

        return call

    return decorate
