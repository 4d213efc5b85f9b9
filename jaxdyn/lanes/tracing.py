"""Whether the code being traced is to become a scalar program.

Code that has two equivalent forms, one short for XLA and one cheap when written out, may ask `writing_out()`.
"""

import contextlib
import contextvars
from collections.abc import Iterator

_WRITING_OUT = contextvars.ContextVar("jaxdyn_lanes_writing_out", default=False)


def writing_out() -> bool:
    """True while a function is traced for the lane compiler, where loops over known positions cost nothing."""
    return _WRITING_OUT.get()


@contextlib.contextmanager
def written_out() -> Iterator[None]:
    """Functions traced within become scalar programs."""
    token = _WRITING_OUT.set(True)
    try:
        yield
    finally:
        _WRITING_OUT.reset(token)
