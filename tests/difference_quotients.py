"""Derivatives compared with difference quotients, for tests."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from random_trees import close


def flat(tree):
    return jax.flatten_util.ravel_pytree(tree)[0]


def direction(numbers, seed: int):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), numbers)


def check_derivatives(f, x, orders: int) -> None:
    """Forward, reverse and, of order two, forward over reverse mode of f at the numbers x, along one direction."""
    w, dx = direction(jax.eval_shape(f, x), 2), direction(x, 3)

    def weighted(x):
        return w @ f(x)

    # One program for the point and those ahead and behind: compiling takes nearly all of the time.
    @jax.jit
    def derivatives(x):
        value, forward = jax.jvp(weighted, (x,), (dx,))
        gradient_of = jax.grad(weighted)
        gradient, second = (gradient_of(x), None) if orders == 1 else jax.jvp(gradient_of, (x,), (dx,))
        return value, forward, gradient, second

    value, forward, gradient, second = derivatives(x)
    step = 1e-6
    ahead, behind = (derivatives(jax.tree.map(lambda x, d, s=sign: x + s * step * d, x, dx))[::2] for sign in (1, -1))
    quotient = jax.tree.map(lambda a, b: (a - b) / (2 * step), ahead, behind)
    # Truncation step^2 and rounding 1e-16/step are some 1e-10, times the size of higher derivatives.
    sizes = [float(np.max(np.abs(flat(y)))) for y in (value, gradient, second) if y is not None]
    scale = max(1.0, *sizes)
    np.testing.assert_allclose(forward, quotient[0], rtol=0, atol=1e-7 * scale)
    if second is not None:
        np.testing.assert_allclose(flat(second), flat(quotient[1]), rtol=0, atol=1e-7 * scale)
    close(flat(gradient) @ flat(dx), forward, scale=100 * scale)
