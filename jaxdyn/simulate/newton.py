"""Implicit equations of a step, solved by Newton's method with derivatives by the implicit function theorem."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxdyn.spatial import factorizations

# The regularization of the matrix causes a small error of the derivative, which each refinement reduces by the same factor.
_REFINEMENTS = 2


def solve_by_newton(
    residual: Callable[[Float[Array, "n"]], Float[Array, "n"]],
    guess: Float[Array, "n"],
    iterations: int,
    *,
    regularization: Float[Array, "n"] | None = None,
    judged: int | None = None,
) -> tuple[Float[Array, "n"], Bool[Array, ""]]:
    """Find a root of `residual` near an initial guess by a fixed number of Newton iterations.

    The root is differentiated by the implicit function theorem, so its derivative does not depend on the iterations or the guess.

    Args:
        residual: Function whose root is computed.
        guess: Initial guess.
        iterations: Number of iterations.
        regularization: Values that are added to the diagonal of the matrix of Newton's method, for redundant equations. These
            values affect only the speed of convergence.
        judged: Number of leading unknowns that must have converged at the end; by default all unknowns.

    Returns:
        The root, and whether the last iteration changed it, relative to 1 + its magnitude, by less than sqrt(machine epsilon).
    """
    residual = jax.jit(residual)  # one trace serves the value, its derivative, and the derivative of the root

    def matrix(change):
        return jax.vmap(change, out_axes=1)(jnp.eye(guess.size, dtype=guess.dtype))

    def solve(columns, right):
        return factorizations.solve(columns if regularization is None else columns + jnp.diag(regularization), right)

    def newton(equation, start):
        def iterate(_, previous):
            x, _ = previous
            value, change = jax.linearize(equation, x)
            correction = solve(matrix(change), value)
            return x - correction, correction

        x, correction = jax.lax.fori_loop(0, iterations, iterate, (start, jnp.zeros_like(start)))
        return x, jnp.max(jnp.abs(correction[:judged])) / (1.0 + jnp.max(jnp.abs(x[:judged])))

    def tangent_solve(linear, right):
        columns = matrix(linear)
        x = solve(columns, right)
        for _ in range(0 if regularization is None else _REFINEMENTS):
            x = x + solve(columns, right - linear(x))
        return x

    start = jax.lax.stop_gradient(guess)
    x, correction = jax.lax.custom_root(residual, start, newton, tangent_solve, has_aux=True)
    # Newton's error squares at each iteration, so after a correction this small the rest is rounding.
    return x, correction <= jnp.sqrt(jnp.finfo(x.dtype).eps)
