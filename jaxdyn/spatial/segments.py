"""The distance between two line segments: closed form, with derivatives also for parallel, touching and degenerate segments."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.spatial.rotation import cross


def closest_fractions(
    a: Float[Array, "3"], b: Float[Array, "3"], c: Float[Array, "3"], d: Float[Array, "3"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The fractions s and t of the closest points a + s (b - a) and c + t (d - c) of two segments, both from 0 to 1.

    If the segments are parallel and several pairs of points are closest, the pair in the middle of their overlap is returned. The
    fraction of a segment of zero length is 1/2.

    Args:
        a, b: End points of the first segment, m.
        c, d: End points of the second segment, m.

    Source: Ericson 2005, section 5.1.9.
    """
    u, v, r = b - a, d - c, a - c
    normal = cross(u, v)
    uu, vv, uv, ur, vr, nn = dot(u, u), dot(v, v), dot(u, v), dot(u, r), dot(v, r), dot(normal, normal)
    ends = (_quotient(-ur, uu), _quotient(uv - ur, uu))  # of the second segment, projected on the first line
    overlap = jnp.clip(jnp.stack([jnp.minimum(*ends), jnp.maximum(*ends)]), 0.0, 1.0)
    crossing = _quotient(dot(normal, cross(v, r)), nn)  # closest points of the two lines
    s = jnp.where(nn > jnp.finfo(nn.dtype).eps * uu * vv, jnp.clip(crossing, 0.0, 1.0), 0.5 * jnp.sum(overlap))
    t = jnp.clip(_quotient(uv * s + vr, vv, 0.5), 0.0, 1.0)
    return jnp.clip(_quotient(uv * t - ur, uu, 0.5), 0.0, 1.0), t


def squared_distance(
    a: Float[Array, "3"], b: Float[Array, "3"], c: Float[Array, "3"], d: Float[Array, "3"]
) -> Float[Array, ""]:
    """The squared distance D^2 = min over 0 <= s, t <= 1 of |a + s (b - a) - c - t (d - c)|^2 of two segments, m^2.

    D^2 is continuously differentiable except where several pairs of points are closest, that is, for parallel segments that overlap
    and for segments of zero length. There its derivatives are the means of the one-sided derivatives. Second derivatives are exact
    except where a closest point reaches an end of its segment; for nearly parallel segments, they are those for a fixed closest
    point of the second segment. All derivatives are finite. The first derivatives are zero where the segments intersect.

    Args:
        a, b: End points of the first segment, m.
        c, d: End points of the second segment, m.

    Source: Ericson 2005, section 5.1.9; the envelope theorem for the derivatives.
    """
    s, t = jax.lax.stop_gradient(closest_fractions(a, b, c, d))
    u, v = b - a, d - c
    apart = a + s * u - c - t * v
    # The derivatives of s and t do not affect the first derivatives, since s and t minimize the distance. Their effect on the
    # second derivatives is that of a term which is zero together with its first derivatives.
    first, second = (x - jax.lax.stop_gradient(x) for x in (dot(u, apart), -dot(v, apart)))
    uu, vv, uv, nn = jax.lax.stop_gradient((dot(u, u), dot(v, v), dot(u, v), dot(*[cross(u, v)] * 2)))
    inside_s, inside_t = (s > 0.0) & (s < 1.0) & (uu > 0.0), (t > 0.0) & (t < 1.0) & (vv > 0.0)
    across = nn > np.sqrt(jnp.finfo(nn.dtype).eps) * uu * vv
    both = _quotient(vv * first**2 + 2.0 * uv * first * second + uu * second**2, nn)
    of_s, of_t = jnp.where(inside_s, _quotient(first**2, uu), 0.0), _quotient(second**2, vv)
    moved = jnp.where(inside_s & inside_t & across, both, jnp.where(inside_t & ~inside_s, of_t, of_s))
    return dot(apart, apart) - moved


def _quotient(a: Float[Array, ""], b: Float[Array, ""], otherwise: float = 0.0) -> Float[Array, ""]:
    """a / b for b > 0, otherwise another value."""
    return jnp.where(b > 0.0, a / jnp.where(b > 0.0, b, 1.0), otherwise)
