"""The point of an ellipsoid or of a rim that is nearest to the ground, theory.md (T10) and (T11).

The semi-axes of an ellipsoid are the rows of a matrix. A rim, the edge of a flat disc, is an ellipsoid whose last semi-axis is
zero.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot

# Inclination (rad) of a disc below which its contacts are distributed over the rim.
_FLAT = 0.01
# Contacts of a shape: three points are the fewest that support a disc that lies flat.
CONTACTS = 3
_ANGLES = 2.0 * np.pi * np.arange(CONTACTS) / CONTACTS
ON_RIM = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)


def support_point(
    axes: Float[Array, "3 3"], normal: Float[Array, "3"], on_rim: Float[Array, "2"] | None = None
) -> Float[Array, "3"]:
    """Point of an ellipsoid or rim that extends farthest against a normal, relative to its center, m.

    The points of a rim for the directions `ON_RIM` coincide if the disc is inclined, and are distributed over the rim if it lies
    flat. They move smoothly in between. Such a point x = -H n - (dH/dn)_t follows from the extension H(n) = -n . x of the shape, so
    that the power of a force F n at this point is F n . v = -F dH/dt, also while the disc falls flat.

    Args:
        axes: Semi-axes of the shape as rows.
        normal: Unit vector that points out of the ground, on the same axes.
        on_rim: One of the directions `ON_RIM`; None for the exact point, which is not smooth if a disc lies flat.

    Source: theory.md (T10), (T11).
    """

    # Lengths in units of the first semi-axis; a sphere has no axes.
    is_sphere = jnp.all(axes == 0.0)
    unit = jnp.sqrt(jnp.where(is_sphere, 1.0, dot(axes[0], axes[0])))

    def extension(normal):
        along = dot(axes, normal) / unit
        square = dot(along, along)
        if on_rim is None:
            return jnp.where(is_sphere, 0.0, jnp.sqrt(jnp.where(is_sphere, 1.0, square)))  # (T10)
        edge = jnp.where(jnp.any(axes[2] != 0.0), 0.0, _FLAT).astype(axes.dtype)
        wide = square + edge**2
        smooth = square**2 * ((1.0 + edge**2) / wide) ** 1.5
        return smooth - dot(on_rim, along[:2]) * (edge**2 / wide) ** 2  # (T11)

    reach, slope = jax.value_and_grad(extension)(normal)
    return unit * ((dot(normal, slope) - reach) * normal - slope)
