"""Derivatives compared with difference quotients, for tests."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from random_trees import close

from jaxdyn.compute import per_sample


def flat(tree):
    return jax.flatten_util.ravel_pytree(tree)[0]


def direction(numbers, seed: int):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), numbers)


def check_derivatives(f, *points, orders: int, in_lanes: bool = False) -> None:
    """Forward, reverse and, of order two, forward over reverse mode of f at each of the points, along one direction.

    With `in_lanes` the lane compiler compiles what JAX has differentiated, where it can, which takes less time than XLA; of order
    one, both modes are then from one linearization.
    """

    # One program for the points and those ahead and behind: compiling takes nearly all of the time.
    def derivatives(x, w, dx):
        def weighted(x):
            return w @ f(x)

        if orders == 1 and in_lanes:
            value, along = jax.linearize(weighted, x)
            return value, along(dx), *jax.linear_transpose(along, x)(jnp.ones_like(value)), None
        if orders == 1:
            return *jax.jvp(weighted, (x,), (dx,)), jax.grad(weighted)(x), None
        (value, gradient), (forward, second) = jax.jvp(jax.value_and_grad(weighted), (x,), (dx,))
        return value, forward, gradient, second

    compiled = jax.jit(per_sample(derivatives) if in_lanes else derivatives)
    for x in points:
        _check(
            compiled,
            *(jax.tree.map(np.asarray, y) for y in (x, direction(jax.eval_shape(f, x), 2), direction(x, 3))),
        )


def _check(derivatives, x, w, dx) -> None:
    """Of arrays of NumPy, because JAX would compile the operations here for each shape."""
    step = 1e-6
    around = [jax.tree.map(lambda x, d, s=sign: x + s * step * d, x, dx) for sign in (0, 1, -1)]
    found, *others = (jax.tree.map(np.asarray, derivatives(at, w, dx)) for at in around)
    value, forward, gradient, second = found
    quotient = jax.tree.map(lambda a, b: (a - b) / (2 * step), *(y[::2] for y in others))
    # Truncation step^2 and rounding 1e-16/step are some 1e-10, times the size of higher derivatives.
    sizes = [float(np.max(np.abs(flat(y)))) for y in (value, gradient, second) if y is not None]
    scale = max(1.0, *sizes)
    np.testing.assert_allclose(forward, quotient[0], rtol=0, atol=1e-7 * scale)
    if second is not None:
        np.testing.assert_allclose(flat(second), flat(quotient[1]), rtol=0, atol=1e-7 * scale)
    close(flat(gradient) @ flat(dx), forward, scale=100 * scale)
