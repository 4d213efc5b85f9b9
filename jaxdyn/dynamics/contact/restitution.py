"""Restitution of contacts, theory.md (T9): the speed ratio of a rebound, and the damping ratio for a wanted rebound."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from jaxdyn.compute.arrays import floating

# Nodes of the trapezoidal rule; the error is below 1e-12 for all damping ratios from 0 to 100.
_NODES = np.linspace(-1.0, 1.0, 401)
_LAST = 40.0  # Value of y at which the integrand is below the rounding errors.
_SMALLEST = (
    1e-6  # Twice the damping ratio below which the logarithm of the restitution is proportional to the damping ratio.
)
_ITERATIONS = 30


def restitution(damping_ratio: ArrayLike, *, step_angle: ArrayLike = 0.0) -> Float[Array, "*shape"]:
    """Coefficient of restitution e: speed after a contact divided by the speed before it.

    A mass m meets the ground with any speed, in a contact with the stiffness k, the damping coefficient d and the damping ratio
    z = d / (2 sqrt(k m)). The value holds without gravity and for depths that are large compared with `onset`:

        ln e = integral over phi from -pi/2 to pi/2 of sin(phi) (cos(phi) - g) / (sin(phi)^2 + g cos(phi)),
        g = 2 z sin(phi) + sqrt(cos(phi)^2 + 4 z^2 sin(phi)^2)

    e decreases from 1 at z = 0 as exp(-pi z) at first, and is 0.137 at z = 1. Gravity and a depth near `onset` change the rebound.

    Steps of the default integrator of the length dt dissipate like an additional damping ratio of sqrt(k/m) dt / 2. With it, the
    height of a rebound, as a share of the height of the fall, is within 0.04 on average over the times of impact, and within 0.07
    for each of them.

    Args:
        damping_ratio: Damping ratio z, 0 or more.
        step_angle: Angle sqrt(k/m) dt of a step of the default integrator, rad; 0 for the exact motion.

    Raises:
        ValueError: A damping ratio or an angle is negative.

    Source: theory.md (T9).
    """
    z = floating(damping_ratio)
    _check(z, z >= 0.0, "a damping ratio", "give 0 or more")
    return jnp.exp(_logarithm(z + _of_steps(step_angle, z)))


def damping_ratio(restitution: ArrayLike, *, step_angle: ArrayLike = 0.0) -> Float[Array, "*shape"]:
    """Damping ratio for a wanted coefficient of restitution; the inverse of `restitution`.

    The damping coefficient of a contact of stiffness k that carries the mass m is 2 z sqrt(k m) with the damping ratio z. A
    simulation needs the angle of its steps, whose dissipation replaces a part of the damping: with e = 0.9 and an angle of 0.9,
    without it, a ball rebounds to 0.05 of its height instead of 0.81.

    Args:
        restitution: Coefficient of restitution, above 0 and at most 1.
        step_angle: Angle sqrt(k/m) dt of a step of the default integrator, rad; 0 for the exact motion.

    Raises:
        ValueError: A coefficient is not above 0 and at most 1, or it is larger than that of undamped contacts with steps of this
            angle; the message contains the largest possible angle.

    Example:
        ```python
        import math, jaxdyn

        stiffness, mass, dt = 2e4, 0.5, 1e-3
        z = jaxdyn.dynamics.damping_ratio(restitution=0.6, step_angle=math.sqrt(stiffness / mass) * dt)
        material = jaxdyn.dynamics.ContactMaterial(stiffness, damping=2.0 * z * math.sqrt(stiffness * mass))
        ```

    Source: theory.md (T9).
    """
    e = floating(restitution)
    _check(e, (e > 0.0) & (e <= 1.0), "a coefficient of restitution", "give a value above 0 and at most 1")
    z = _inverse(jnp.log(e))
    rest = z - _of_steps(step_angle, z)
    if not isinstance(rest, Tracer):
        remedy = f"use a shorter step or a smaller stiffness, with an angle of at most {(2.0 * z).tolist()} rad"
        _check(e, rest >= 0.0, "a coefficient of restitution", f"it is too large for steps of this angle; {remedy}")
    return rest


def _of_steps(angle: ArrayLike, z: Array) -> Array:
    """Damping ratio that steps add. Source: theory.md (T9)."""
    angle = jnp.asarray(angle, z.dtype)
    _check(angle, angle >= 0.0, "the angle of a step", "give 0 or more")
    return 0.5 * angle


def _logarithm(z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """ln e of (T9), by the trapezoidal rule.

    With tan(phi) = sinh(y) / (2 z), g is cos(phi) exp(y). The further substitution y = c sinh(x) places the poles of the integrand
    at distances from the real axis that do not vanish with z, so that the rule converges exponentially.
    """
    a = jnp.maximum(2.0 * z, _SMALLEST)[None]
    c = a / jnp.sqrt(1.0 + a**2)
    last = jnp.arcsinh(_LAST / c)
    x = last * jnp.asarray(_NODES.reshape(-1, *(1 for _ in z.shape)), a.dtype)
    y = c * jnp.sinh(x)
    q = (1.0 / jnp.cosh(y)) ** 2
    p, tangent = q * jnp.exp(y), jnp.tanh(y)
    integrand = a * tangent / (tangent**2 + a**2 * p) * ((q - p) / (tangent**2 + a**2 * q))
    spacing = last[0] * float(_NODES[1] - _NODES[0])
    return 2.0 * z * spacing * jnp.sum(integrand * c * jnp.cosh(x), axis=0)


@jax.custom_jvp
def _inverse(logarithm: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Damping ratio of a value ln e, by Newton's method, which converges from below because ln e is convex and decreasing."""

    def improved(_, z):
        value, slope = jax.jvp(_logarithm, (z,), (jnp.ones_like(z),))
        return z + (logarithm - value) / slope

    return jax.lax.fori_loop(0, _ITERATIONS, improved, jnp.zeros_like(logarithm))


@_inverse.defjvp
def _derivative_of_inverse(primals, tangents):
    z = _inverse(*primals)
    _, slope = jax.jvp(_logarithm, (z,), (jnp.ones_like(z),))
    return z, tangents[0] / slope


def _check(values: Array, admitted: Array, name: str, remedy: str) -> None:
    if not isinstance(admitted, Tracer) and not np.all(admitted):
        raise ValueError(f"{name} is {values.tolist()}; {remedy}")
