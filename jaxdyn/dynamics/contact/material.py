"""Force of one contact from its depth and its velocities, theory.md (T2)-(T4) and (T8)."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating, zero_safe_norm
from jaxdyn.dynamics.forces import Scalar, Vector3
from jaxdyn.dynamics.forces.unilateral import secant_slope, stored_energy, unilateral_force
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import invalid, quantity

_SINK = 0.001  # m
_SHARE_OF_WEIGHT = 0.25
_STANDARD_GRAVITY = 9.81  # m/s^2


class Response(NamedTuple):
    """Force of one contact, and the matrices of the force that an implicit step adds per relative acceleration.

    Attributes:
        force, couple: Force and couple on the first body.
        per_linear, per_angular: Matrices per acceleration of the contact point and per angular acceleration.
        normal: Unit normal.
        bound: Largest magnitude of the friction, mu N.
        motion: Relative angular velocity, followed by the relative velocity at the contact point.
        drift: Change of `motion` per time at zero generalized acceleration, which `without_drift` enters; zero before.
    """

    force: Vector3
    couple: Vector3
    per_linear: Float[Array, "3 3"]
    per_angular: Float[Array, "3 3"]
    normal: Vector3
    bound: Scalar
    motion: Float[Array, "6"]
    drift: Float[Array, "6"]


class ContactMaterial(eqx.Module):
    """Parameters of the force in contacts.

    The normal force is that of a one-sided spring and damper: D + sqrt(S^2 + D^2) with the spring force S = k p(x) at the depth x
    and the damper force D = d p'(x) dx/dt. A mass m that falls on the ground rebounds with a share of its speed that depends on the
    damping ratio d / (2 sqrt(k m)) alone, see `damping_ratio`. The friction force is -mu N v / sqrt(v^2 + (r w)^2 + s^2) with the
    normal force N, the slip velocity v, the angular velocity w about the normal, the torsion radius r and the slip speed s. The
    force is proportional to v near rest, so a body that sticks creeps: under a tangential load Q, the slip speed is
    s Q / sqrt((mu N)^2 - Q^2).

    Attributes:
        stiffness: Stiffness k of a contact.
        damping: Damping coefficient d of a contact.
        friction: Friction coefficient mu.
        slip_speed: Slip speed s at which the friction force is 71 % of its final value.
        onset: Depth at which the stiffness reaches its final value k.
        torsion_radius: Radius r of the contact patch, which resists rotation about the normal with the moment mu N r.

    Source: theory.md (T2)-(T4).
    """

    stiffness: Scalar = eqx.field(converter=floating, metadata=quantity("N/m", minimum=0.0))
    damping: Scalar = eqx.field(converter=floating, metadata=quantity("N s/m", minimum=0.0))
    friction: Scalar = eqx.field(converter=floating, default=0.8, metadata=quantity("1", minimum=0.0))
    slip_speed: Scalar = eqx.field(converter=floating, default=1e-5, metadata=quantity("m/s", positive=True))
    onset: Scalar = eqx.field(converter=floating, default=_SINK, metadata=quantity("m", positive=True))
    torsion_radius: Scalar = eqx.field(converter=floating, default=0.0, metadata=quantity("m", minimum=0.0))

    @staticmethod
    def of(model: Model, **values: Any) -> "ContactMaterial":
        """Material whose stiffness and damping follow from the mass of the mechanism.

        A quarter of the weight compresses the spring by 0.5 mm: it sinks 1 mm into the ground with the default `onset`, whose half
        is added. The damping is critical for a quarter of the mass.

        Args:
            model: Mechanism.
            values: Fields by name, which replace the derived and default values.
        """
        quarter = _SHARE_OF_WEIGHT * jnp.sum(model.mass)
        stiffness = values.pop("stiffness", 2.0 * quarter * _STANDARD_GRAVITY / _SINK)
        damping = values.pop("damping", 2.0 * jnp.sqrt(stiffness * quarter))
        return ContactMaterial(stiffness, damping, **values)

    def response(
        self, gradient: Vector3, depth: Scalar, velocity: Vector3, spin: Vector3, step: Scalar | float | None
    ) -> Response:
        """Force of one contact.

        Args:
            gradient: Derivative of the gap with respect to the position of the body.
            depth: Depth of penetration.
            velocity, spin: Relative velocity and angular velocity at the contact point.
            step: Length of an implicit step (s), which predicts the depth at its end; None to evaluate the force at this instant.

        Source: theory.md (T2)-(T4), (T8).
        """
        ahead = jnp.zeros_like(depth) if step is None else step
        steepness, inverse = zero_safe_norm(gradient)  # spheres with the same center have no normal
        normal = inverse * gradient
        speed = -dot(gradient, velocity)
        predicted = jnp.maximum(depth + ahead * speed, 0.0)  # (T8)
        pushed = unilateral_force(predicted, speed, self.stiffness, self.damping, self.onset)
        slipping = self.slip(normal, velocity, spin)
        bound = self.friction * pushed.force * steepness
        resistance = self.resistance(bound, slipping)
        secant = self.stiffness * secant_slope(depth, depth + ahead * speed, self.onset)
        along = ahead * (pushed.damping + ahead * secant * pushed.per_spring_force) * steepness**2
        across = ahead * resistance
        both = jnp.outer(normal, normal)
        return Response(
            pushed.force * gradient - resistance * slipping[:3],
            -(resistance * self.torsion_radius * slipping[3]) * normal,
            across * jnp.asarray(np.eye(3), depth.dtype) + (along - across) * both,
            across * self.torsion_radius**2 * both,
            normal,
            bound,
            jnp.concatenate([spin, velocity]),
            jnp.zeros(6, depth.dtype),
        )

    def slip(self, normal: Vector3, velocity: Vector3, spin: Vector3) -> Float[Array, "4"]:
        """Slip velocity v_t of a contact, followed by the speed r w of its patch, m/s.

        Args:
            normal: Unit normal.
            velocity, spin: Relative velocity and angular velocity at the contact point.
        """
        twist = self.torsion_radius * dot(normal, spin)
        # In scalar programs, the matrix leaves out components that vanish for a known normal.
        across = jnp.asarray(np.eye(3), normal.dtype) - jnp.outer(normal, normal)
        return jnp.append(dot(across, velocity), twist)

    def resistance(self, bound: Scalar, slip: Float[Array, "4"]) -> Scalar:
        """Friction per slip velocity, N s/m.

        Args:
            bound: Largest magnitude of the friction, mu N.
            slip: Slip velocity, see `slip`.
        """
        return bound * jax.lax.rsqrt(dot(slip, slip) + self.slip_speed**2)  # (T4)

    def energy(self, depth: Float[Array, "contacts"]) -> Scalar:
        """Energy that is stored in contacts at given depths, J. Source: theory.md (T3)."""
        of_one = jax.vmap(stored_energy, (0, None, None))
        return jnp.sum(of_one(jnp.maximum(depth, 0.0), self.stiffness, self.onset))

    def validate(self) -> str | None:
        """Error message with a remedy if a parameter is not valid, else None."""
        wrong = invalid(self, {})
        if wrong is not None:
            return wrong
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Tracer) and not np.all(np.isfinite(value)):
                return f"{field.name} is {np.asarray(value).tolist()}; give a finite value"
        return None
