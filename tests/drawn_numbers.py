"""Numbers of order one, random and compared, for tests of vectors and rotations."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def draw(seed: int, *shape: int) -> Float[Array, "..."]:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def close(actual: Array, expected, roundings: float = 32) -> None:
    """Equal but for some roundings of numbers of order one; a wrong sign or factor is an error of order one."""
    tolerance = roundings * np.finfo(actual.dtype).eps
    np.testing.assert_allclose(actual, np.broadcast_to(expected, actual.shape), rtol=tolerance, atol=tolerance)
