"""The switch between compilers: which of them serves the programs that are traced within a context."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Literal

from jaxdyn.compute import internals
from jaxdyn.errors import Error, check_name

Backend = Literal["auto", "lanes", "xla"]


class CannotCompile(Error):
    """Error of a function that a required compiler does not support, or of a compiler that cannot be used."""


_VARIABLE = "JAXDYN_BACKEND"


def check_backend(name: Any, *, where: str = "backend") -> None:
    """Raise an error for an unknown backend; None stands for that of the context.

    Raises:
        UnknownName: The message lists the known backends.
    """
    if name is not None:
        check_name(where, name, ("auto", "lanes", "xla"))


def _at_start() -> str:
    name = os.environ.get(_VARIABLE, "auto")
    check_backend(name, where=_VARIABLE)
    return name


# A setting of JAX, so that its caches distinguish traces for one compiler from traces for another. A JAX without such settings has
# no lane compiler either (`internals`), so that all traces are the same.
_chosen: Any = None
if hasattr(internals.config, "config_ext"):
    _chosen = internals.config.config_ext.Config(
        "jaxdyn_backend", _at_start(), include_in_jit_key=True, include_in_trace_context=True
    )


def chosen_backend() -> str:
    """The backend of programs that are traced now: "auto", "lanes" or "xla"."""
    return "auto" if _chosen is None else _chosen.value


@contextlib.contextmanager
def backend(name: Backend | None) -> Iterator[None]:
    """Choose the compiler of all functions of jaxdyn that are called, or traced by `jax.jit`, within this context.

    The environment variable JAXDYN_BACKEND states the backend of a whole process. Like the settings of JAX, a context concerns its
    own thread, and an inner context replaces an outer one.

    Args:
        name: "lanes" requires the lane compiler, "xla" leaves everything to XLA, "auto" uses the lane compiler on CPUs and on GPUs
            that pass the self-test, for functions that it supports, and XLA otherwise. None changes nothing.

    Raises:
        UnknownName: The backend is unknown. The message lists the known ones.
        CannotCompile: In a call of a function within the context: the name is "lanes", and the lane compiler does not support the
            function.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        with jaxdyn.backend("xla"):
            inertia = jaxdyn.mass_matrix(model, jnp.array([0.3, -0.2]))
        ```
    """
    check_backend(name)
    if _chosen is None and name == "lanes":
        raise CannotCompile('backend "lanes": the lane compiler cannot be used with this version of JAX')
    if _chosen is None or name is None:
        yield
        return
    before = _chosen.swap_local(name)
    try:
        yield
    finally:
        _chosen.set_local(before)
