"""Whether the code being traced is to become a scalar program.

Code that has two equivalent forms, one short for XLA and one cheap when written out, may ask `writing_out()`.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

# Values of this name are stored for reverse mode, within a kernel, instead of being computed again.
_KEPT = "jaxdyn.lanes.kept"
# Policy of `jax.checkpoint` that stores just those.
KEEPS = jax.checkpoint_policies.save_only_these_names(_KEPT)

_KEEPING = contextvars.ContextVar("jaxdyn_lanes_keeping", default=True)
_WRITING_OUT = contextvars.ContextVar("jaxdyn_lanes_writing_out", default=False)


def writing_out() -> bool:
    """True while a function is traced for the lane compiler, where loops over known positions cost nothing."""
    return _WRITING_OUT.get()


@contextlib.contextmanager
def _during(variable: contextvars.ContextVar[bool], value: bool) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def written_out() -> contextlib.AbstractContextManager[None]:
    """Functions traced within become scalar programs."""
    return _during(_WRITING_OUT, True)


def keep(x: jax.Array) -> jax.Array:
    """Marks a value as worth storing between the forward and the backward part of one kernel, where memory is near.

    What one kernel stores for another goes through far memory, where computing it again is cheaper, and XLA is left to itself.
    """
    return checkpoint_name(x, _KEPT) if writing_out() and _KEEPING.get() else x


def keep_triangle(factor: jax.Array) -> jax.Array:
    """A lower triangular matrix of which only the triangle is marked by `keep`."""
    rows, columns = np.tril_indices(factor.shape[0])
    return jnp.zeros_like(factor).at[rows, columns].set(keep(factor[rows, columns]))


def nothing_kept() -> contextlib.AbstractContextManager[None]:
    """Functions differentiated within store only what their loops carry."""
    return _during(_KEEPING, False)
