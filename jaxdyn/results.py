"""Outcomes of computations: the codes that rollouts, fits and solvers of optimal control return, and the error of a failure.

class SolveResult(ResultCode):
    OUT_OF_STEPS = 0, "The search made max_steps steps; increase max_steps."
    SUCCESSFUL = 1, "The problem is solved.", True

raise_unsuccessful(SolveResult, codes)
"""

import enum
import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxdyn.compute.hints import writing_out
from jaxdyn.display import counted, known
from jaxdyn.errors import Error


class ResultCode(enum.IntEnum):
    """Base of result codes, all of which call success SUCCESSFUL.

    Each member is defined by an integer, a message, and True if the computation succeeded.

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


class UnsuccessfulError(Error, RuntimeError):
    """A computation did not succeed. With `throw=False` the computation returns a result code and does not raise this error.

    Attributes:
        result: Code of the first element of the batch that failed.
    """

    def __init__(self, message: str, result: ResultCode):
        super().__init__(message)
        self.result = result


class UnsuccessfulWarning(UserWarning):
    """Some elements of a batch of computations did not succeed."""


_reported = Primitive("result_reported")


def reported(act: Callable[..., None], *values: Any, **options: Any) -> Any:
    """The first of several values, after a call of `act(*values, is_mapped=..., **options)`.

    Under `jax.vmap` there is one call for the batch, whose values have a leading axis, with `is_mapped=True`. Within `jit` the
    values are not known, and nothing happens.
    """
    if not any(isinstance(x, Tracer) for x in values):  # to bind a primitive takes longer than a step
        act(*values, is_mapped=False, **options)
        return values[0]
    return _reported.bind(*map(jax.lax.stop_gradient, values), act=act, is_mapped=False, **options)


@_reported.def_impl
def _acted(*values, act, **options):
    act(*values, **options)
    return values[0]


def _mapped(arguments, axes, **options):
    size = next(x.shape[axis] for x, axis in zip(arguments, axes, strict=True) if axis is not None)
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(arguments, axes, strict=True)
    ]
    return _reported.bind(*moved, **(options | {"is_mapped": True})), 0


_reported.def_abstract_eval(lambda result, *_, **__: result)
batching.primitive_batchers[_reported] = _mapped
ad.primitive_jvps[_reported] = lambda primals, tangents, **options: (_reported.bind(*primals, **options), tangents[0])
mlir.register_lowering(_reported, lambda context, result, *_, **__: [result])


def raise_unsuccessful(
    codes: type[ResultCode], result: Any, error: type[UnsuccessfulError] = UnsuccessfulError
) -> None:
    """Raise an error if a computation, or an element of a batch, failed; do nothing within `jit`, where the codes are not known.

    Under `jax.vmap` outside of `jit`, the error is raised only if all elements failed; if some failed, a warning is issued.

    Args:
        codes: Enumeration of the codes.
        result: Integer codes of any shape.
        error: Class of the error to raise.

    Raises:
        UnsuccessfulError: Its message names the code and the remedy.
    """
    if not writing_out():  # else it is a part of a larger program, and known only there
        reported(_raise, jnp.asarray(result), codes=codes, error=error)


def _raise(result: Any, *, codes: type[ResultCode], error: type[UnsuccessfulError], is_mapped: bool) -> None:
    found = np.ravel(np.asarray(result))
    failed = [k for k, code in enumerate(found) if not codes(int(code)).successful]
    if failed:
        code = codes(int(found[failed[0]]))
        which = f"{len(failed)} of {len(found)} failed, the first has index {failed[0]}: " if found.size > 1 else ""
        text = f"{which}{codes.__name__}.{code.name}: {code.message}"
        if not is_mapped or len(failed) == len(found):
            raise error(f"{text} Pass throw=False to get result codes.", code)
        warnings.warn(text, UnsuccessfulWarning, stacklevel=2)


def raising(codes: type[ResultCode]) -> Callable[[Callable], Callable]:
    """Decorator of a compiled function with the argument `throw`, whose result has a field or property `result`: unless `throw`
    is false, a call outside of `jit` raises an error for an unsuccessful result.

    Args:
        codes: Enumeration of the codes.
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, throw: bool = True, **options: Any) -> Any:
            found = function(*args, **options)
            if throw:
                raise_unsuccessful(codes, found.result)
            return found

        return call

    return decorate
