"""Self-test of the lane compiler on CPUs, for a version of JAX with which it was not tested.

The functions of `canary` together contain every operation of scalar programs. Their values and derivatives in both modes, for a
batch and for one sample, are compared with those of XLA. That takes 20 s, once: the verdict is stored in the cache.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.cache import location
from jaxdyn.cache.fingerprint import HasNoName, versions
from jaxdyn.compute.switch import backend
from jaxdyn.lanes import canary

# The newest version of JAX whose tests have passed; the oldest one is in pyproject.toml.
NEWEST_TESTED = (0, 12, 0, 1)


def obstacle() -> str:
    """Reason why the lane compiler cannot be used with the installed JAX; empty if it can be used."""
    if jax.__version_info__ <= NEWEST_TESTED:
        return ""
    files = location.files()
    try:
        name = f"{hashlib.sha256(versions().encode()).hexdigest()[:40]}.verdict"
    except HasNoName:  # a source file was changed meanwhile
        files, name = None, ""
    known = None if files is None else files.read(name)
    if known is not None:
        return known.decode()
    reason = failure()
    if files is not None:
        files.write(name, reason.encode())
    return reason


def failure() -> str:
    """Run the self-test; returns a description of the first failure, or an empty text."""
    for function, arrays in canary.cases(with_float64=True):
        with jax.disable_jit(False), jax.enable_x64(True), backend("lanes"):
            for name, transformed, given in _transformed(function, arrays):
                what = f"{name} of {function.__name__!r} with JAX {jax.__version__}"
                expected = _computed(jax.vmap(transformed), given)
                try:
                    ours = _in_lanes(transformed)
                    found = _computed(jax.vmap(ours), given)
                    single = _computed(ours, [x[0] for x in given])
                except Exception as error:
                    return (
                        f"the compiler cannot serve the {what} ({type(error).__name__}: {str(error).splitlines()[0]})"
                    )
                pairs = zip(*map(jax.tree.leaves, (found, single, expected)), strict=True)
                for batch, one, right in ((np.asarray(x) for x in leaves) for leaves in pairs):
                    if name != "value":  # rounding of a derivative is relative to its largest summands
                        size = np.maximum(1.0, np.max(np.abs(right))).astype(right.dtype)
                        batch, one, right = batch / size, one / size, right / size
                    if not (canary.agree(batch, right) and canary.agree(one, right[0])):
                        return f"the compiler computes a wrong {what}"
    return ""


def _computed(function: Callable, given: list[np.ndarray]) -> Any:
    """Results of a program, also while another function is traced."""
    return jax.jit(function).lower(*given).compile()(*given)


def _in_lanes(function: Callable) -> Callable:
    from jaxdyn.lanes.entry import run  # only the first process with a new version needs it

    return lambda *args: run(function, args, name="self-test")[0]


def _transformed(function: Callable, arrays: list[np.ndarray]) -> Iterator[tuple[str, Callable, list[np.ndarray]]]:
    """Names of a function of one sample and of its derivatives, the functions, and their arguments for a batch."""
    yield "value", function, arrays
    first, *others = arrays
    if not np.issubdtype(first.dtype, np.floating):
        return

    def floats(x: Any, *rest: Any) -> list[jax.Array]:
        return [y for y in jax.tree.leaves(function(x, *rest)) if jnp.issubdtype(y.dtype, jnp.floating)]

    def forward(x, dx, *rest):
        return jax.jvp(lambda x: floats(x, *rest), (x,), (dx,))[1]

    def reverse(x, *rest):
        values, pull = jax.vjp(lambda x: floats(x, *rest), x)
        return pull([jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape) for y in values])

    yield "derivative in forward mode", forward, [first, np.sin(first), *others]
    if function is not canary.loops_and_positions:  # one of its loops has no derivative in reverse mode
        yield "derivative in reverse mode", reverse, arrays
    else:
        yield "gradient of a loop", jax.grad(_looped), arrays


def _looped(x: jax.Array, k: jax.Array) -> jax.Array:
    """A sum over a loop that carries, records and reads at positions known only at run time."""

    def turn(carry, t):
        carry = carry.at[(k[0] + t) % len(x)].mul(jnp.cos(t.astype(x.dtype) * x[k[1] % len(x)]))
        return carry, carry @ x

    end, records = jax.lax.scan(jax.checkpoint(turn), x, jnp.arange(20, dtype=k.dtype))
    return jnp.sum(records * jnp.tanh(records)) + end @ end
