"""The force of a one-sided spring and damper, theory.md (H15), which acts only where a depth is positive and never pulls.

Stops at joint limits and contacts use this law. The effective depth p(x) increases with the third power of the depth x and equals
x - onset/2 beyond the depth `onset`, so force and damping vanish smoothly at x = 0.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Values = Float[Array, "*shape"]
Parameters = Float[Array, "*#shape"]  # one for all values, or one for each


class UnilateralForce(NamedTuple):
    """Magnitude of the force, and coefficients for its linear law in an implicit step, see `jaxdyn.dynamics.Resistance`.

    Attributes:
        force: Magnitude of the force, not negative.
        damping: Derivative of the force with respect to the speed.
        stiffness: Derivative of the spring force S with respect to the depth. At rest, it is that of the whole force.
        per_spring_force: Derivative of the force with respect to the spring force S, which is 1 at rest.
    """

    force: Values
    damping: Values
    stiffness: Values
    per_spring_force: Values


def unilateral_force(
    depth: Values, speed: Values, stiffness: Values, damping: Values, onset: Values
) -> UnilateralForce:
    """Force D + sqrt(S^2 + D^2) with the spring force S = k p(x) and the damper force D = d p'(x) dx/dt.

    The value and the derivatives are zero where the depth is zero.

    Args:
        depth: Depth x, not negative.
        speed: Rate dx/dt of the depth.
        stiffness: Stiffness k.
        damping: Damping coefficient d.
        onset: Depth at which the stiffness reaches k.

    Source: theory.md (H15).
    """
    x = _share(depth, onset)
    slope = x**2 * (3.0 - 2.0 * x)
    in_effect = onset * x**3 * (1.0 - 0.5 * x) + jnp.maximum(depth - onset, 0.0)
    spring, damper = stiffness * in_effect, damping * slope * speed
    squared = spring**2 + damper**2
    acts = squared > jnp.finfo(squared.dtype).tiny ** 0.65  # below, second derivatives overflow
    root = jnp.sqrt(jnp.where(acts, squared, 1.0))
    inverse = 1.0 / root
    return UnilateralForce(
        jnp.where(acts, damper + root, 0.0),
        damping * slope * (1.0 + damper * inverse),
        stiffness * slope,
        jnp.where(acts, spring * inverse, 1.0),
    )


def stored_energy(depth: Values, stiffness: Parameters, onset: Parameters) -> Values:
    """Potential energy of the spring force S.

    Args:
        depth: Depth x, not negative.
        stiffness: Stiffness k.
        onset: Depth at which the stiffness reaches k.

    Source: theory.md (H15).
    """
    x, further = jnp.minimum(depth / onset, 1.0), jnp.maximum(depth - onset, 0.0)
    return stiffness * (onset**2 * x**4 * (0.25 - 0.1 * x) + 0.5 * further * (onset + further))


def secant_slope(start: Values, end: Values, onset: Values) -> Values:
    """Mean of p'(x) between two depths, which may be negative: (p(end) - p(start)) / (end - start).

    Args:
        start, end: Depths.
        onset: Depth at which the stiffness reaches k.

    Source: theory.md (T8).
    """
    within_a, within_b = _share(jnp.maximum(start, 0.0), onset), _share(jnp.maximum(end, 0.0), onset)
    # The difference of z^3 - z^4/2, divided by that of z, without cancellation.
    cubic = within_a**2 + within_a * within_b + within_b**2
    mean_within = cubic - 0.5 * (within_a + within_b) * (within_a**2 + within_b**2)
    width = (end - start) * (1.0 / onset)
    apart = (
        jnp.abs(width) > jnp.finfo(width.dtype).eps ** 0.375
    )  # closer, the share of the width within does not matter
    safe = jnp.where(apart, width, 1.0)
    beyond = (jnp.maximum(end - onset, 0.0) - jnp.maximum(start - onset, 0.0)) * (1.0 / onset)
    return jnp.where(apart, ((within_b - within_a) * mean_within + beyond) / safe, mean_within)


def _share(depth: Values, onset: Parameters) -> Values:
    """Share of the onset that a depth takes, at most 1. The onset is divided once for all contacts."""
    return jnp.minimum(depth * (1.0 / onset), 1.0)
