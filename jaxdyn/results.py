"""How a computation ended: the codes that rollouts, fits and solvers of optimal control return, and the error of a failed one.

class SolveResult(ResultCode):
    RUNNING = 0, "The search reached the largest number of steps; increase max_steps."
    SOLVED = 1, "The problem is solved.", True

raise_unsuccessful(SolveResult, codes)
"""

import enum
from typing import Any

import numpy as np
from jax.core import Tracer


class ResultCode(enum.IntEnum):
    """Base of result codes. A member is its integer, its message and whether the computation succeeded (False if not given).

    Attributes:
        message: a full sentence, which names the remedy if the computation failed.
        successful: whether the computation did what it was asked to do.
    """

    message: str
    successful: bool

    def __new__(cls, code: int, message: str, successful: bool = False):
        member = int.__new__(cls, code)
        member._value_, member.message, member.successful = code, message, successful
        return member


class UnsuccessfulError(RuntimeError):
    """A computation did not succeed. With `throw=False` it returns its result code instead of this error.

    Attributes:
        result: code of the first element of the batch that failed.
    """

    def __init__(self, message: str, result: ResultCode):
        super().__init__(message)
        self.result = result


def raise_unsuccessful(
    codes: type[ResultCode], result: Any, error: type[UnsuccessfulError] = UnsuccessfulError
) -> None:
    """Raise if a computation, or an element of a batch of them, failed. Does nothing while JAX traces the codes.

    Args:
        codes: the enumeration that the codes belong to.
        result: integer codes of any shape.
        error: the class of error to raise.

    Raises:
        UnsuccessfulError: its message names the code and the remedy.
    """
    if isinstance(result, Tracer):
        return
    found = np.ravel(np.asarray(result))
    failed = [k for k, code in enumerate(found) if not codes(int(code)).successful]
    if failed:
        code = codes(int(found[failed[0]]))
        which = f"{len(failed)} of {len(found)} failed, the first is number {failed[0]}: " if found.size > 1 else ""
        raise error(f"{which}{codes.__name__}.{code.name}: {code.message} Pass throw=False to get result codes.", code)
