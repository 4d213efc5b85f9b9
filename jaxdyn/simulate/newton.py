"""Implicit equations of a step, solved by Newton's method with derivatives by the implicit function theorem."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def solve_by_newton(
    residual: Callable[[Float[Array, "n"]], Float[Array, "n"]], guess: Float[Array, "n"], iterations: int
) -> tuple[Float[Array, "n"], Bool[Array, ""]]:
    """Root of `residual` near `guess`, and whether the last of the iterations moved it by less than sqrt(machine epsilon).

    The derivative of the root does not depend on the iterations or on the guess.
    """

    def newton(equation, start):
        def iterate(_, previous):
            x, _ = previous
            value, change = jax.linearize(equation, x)
            correction = jnp.linalg.solve(jax.vmap(change, out_axes=1)(jnp.eye(x.size, dtype=x.dtype)), value)
            return x - correction, correction

        x, correction = jax.lax.fori_loop(0, iterations, iterate, (start, jnp.zeros_like(start)))
        return x, jnp.max(jnp.abs(correction)) / (1.0 + jnp.max(jnp.abs(x)))

    def tangent_solve(linear, right):
        return jnp.linalg.solve(jax.jacfwd(linear)(jnp.zeros_like(right)), right)

    start = jax.lax.stop_gradient(guess)
    x, correction = jax.lax.custom_root(residual, start, newton, tangent_solve, has_aux=True)
    # Newton's error squares at each iteration, so after a correction this small the rest is rounding.
    return x, correction <= jnp.sqrt(jnp.finfo(x.dtype).eps)
