"""Attitude dynamics of one rigid body about its center of mass, theory.md section (o).

The state has two forms. The s-parameter form has 6 components: the magnitude w of the angular velocity, two angles alpha and beta
of its direction in inertial space, and three s-parameters of the attitude of the body relative to this direction. If no moment acts
on the body, its s-parameters stay on a surface in s-space (O12). The s-parameter form is singular at w = 0, at sin(beta) = 0 and at
the pole of s (O10). The quaternion form has 7 components, the attitude quaternion and the body rates. It has no singular points, so
it is preferable for simulation.

Frames: body axes are principal axes of inertia; the third axis of the frame of the angular velocity is along the angular velocity;
inertial axes are X, Y, Z.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.lazy import own_names
from jaxdyn.spatial import attitude, quaternion
from jaxdyn.spatial.rotation import Matrix33, Vector3, cross
from jaxdyn.spatial.series import decay_quotient

Scalar = Float[Array, ""]
PrincipalMoments = Float[Array | np.ndarray, "3"]


class SParameterState(eqx.Module):
    """Attitude and angular velocity of a body, in terms of s-parameters (`jaxdyn.spatial.attitude`).

    Attributes:
        speed: Magnitude w > 0 of the angular velocity, rad/s.
        alpha: Azimuth of the angular velocity, from inertial Z towards X, rad.
        beta: Angle of the angular velocity from inertial Y, rad.
        s: S-parameters of the rotation from body axes to the frame of the angular velocity.
    """

    speed: Float[Array, "*batch"]
    alpha: Float[Array, "*batch"]
    beta: Float[Array, "*batch"]
    s: Float[Array, "*batch 3"]

    @property
    def rotation(self) -> Matrix33:
        """Rotation matrix K(alpha, beta) N(s) from body to inertial components. Source: theory.md (O7)."""
        return dot(frame_of_angular_velocity(self.alpha, self.beta), attitude.to_matrix(self.s))  # (O7)

    @property
    def body_rates(self) -> Vector3:
        """Angular velocity N(s)^T (0, 0, w) on body axes, rad/s. Source: theory.md (O7)."""
        return self.speed * attitude.to_matrix(self.s)[2]  # (O7)


class QuaternionState(eqx.Module):
    """Attitude quaternion and angular velocity of a body; this form of the state has no singular points.

    Attributes:
        quaternion: Attitude quaternion from body to inertial components, of any nonzero norm.
        body_rates: Angular velocity, body axes, rad/s.
    """

    quaternion: Float[Array, "*batch 4"]
    body_rates: Float[Array, "*batch 3"]

    @property
    def rotation(self) -> Matrix33:
        """Rotation matrix from body to inertial components. Source: theory.md (A5)."""
        return quaternion.to_matrix(self.quaternion)


State = SParameterState | QuaternionState
# On body axes, N m: a constant, or a function of the state; both forms of the state have `rotation` and `body_rates`.
Moment = Vector3 | Callable[[State], Vector3] | None


def frame_of_angular_velocity(alpha: Scalar, beta: Scalar) -> Matrix33:
    """Rotation matrix K(alpha, beta) from the frame of the angular velocity to inertial components. Source: theory.md (O7)."""
    sa, ca, sb, cb = jnp.sin(alpha), jnp.cos(alpha), jnp.sin(beta), jnp.cos(beta)
    zero = jnp.zeros_like(sa)
    return jnp.stack([sa * cb, ca, sa * sb, -sb, zero, cb, ca * cb, -sa, ca * sb]).reshape(3, 3)  # (O7)


def to_quaternion_state(state: SParameterState) -> QuaternionState:
    """Convert a state in s-parameters to attitude quaternion and body rates.

    The conversion is smooth for every s. Source: theory.md (O1), (O7).
    """
    second = jnp.array([0.0, 1.0, 0.0], state.s.dtype)
    # K rotates the cyclic permutation of axes, K(0, 0), by alpha about inertial Y and by beta about the second axis of the frame.
    permutation = jnp.array([0.5, -0.5, -0.5, -0.5], state.s.dtype)
    frame = quaternion.multiply(quaternion.from_axis_angle(second, state.alpha), permutation)
    frame = quaternion.multiply(frame, quaternion.from_axis_angle(second, state.beta))
    return QuaternionState(quaternion.multiply(frame, attitude.to_quaternion(state.s)), state.body_rates)


def from_quaternion_state(state: QuaternionState) -> SParameterState:
    """Convert a state with attitude quaternion to one with s-parameters, where |s| <= 1, |alpha| <= pi and 0 <= beta <= pi.

    At w = 0 and at sin(beta) = 0 the frame of the angular velocity is undefined, and the result is NaN or arbitrary.

    Source: theory.md (O7).
    """
    rotation = state.rotation
    x, y, z = dot(rotation, state.body_rates)
    level = jnp.sqrt(x * x + z * z)
    alpha, beta = jnp.arctan2(x, z), jnp.arctan2(level, y)  # third column of (O7)
    relative = einsum("ki,kj->ij", frame_of_angular_velocity(alpha, beta), rotation)
    return SParameterState(jnp.sqrt(level * level + y * y), alpha, beta, attitude.from_matrix(relative))


def attitude_rates(
    principal_moments: PrincipalMoments, state: SParameterState, moment: Moment = None
) -> SParameterState:
    """Time derivatives of speed, alpha, beta and s, in the fields of an `SParameterState`; rad/s^2, rad/s, rad/s, 1/s.

    (w beta', w alpha' sin(beta), w')^T = N I^-1 (M - w_body x I w_body),
    s' = B^T (alpha' sin(beta), -beta', w - alpha' cos(beta))^T.

    The result is infinite or NaN at w = 0 and at sin(beta) = 0.

    Args:
        principal_moments: Principal moments I1, I2, I3 about the center of mass, kg m^2.
        state: Attitude and angular velocity.
        moment: Moment M about the center of mass, body axes, N m; an array or a function of the state; zero if None.

    Source: theory.md (O8), (O9).
    """
    cosines = attitude.to_matrix(state.s)
    body_rates = state.speed * cosines[2]  # (O7)
    acceleration = _body_acceleration(principal_moments, body_rates, _applied(moment, state))
    across, along, speed_rate = dot(cosines, acceleration)  # (O8)
    sine, cosine = jnp.sin(state.beta), jnp.cos(state.beta)
    beta_rate, alpha_rate = across / state.speed, along / (state.speed * sine)  # (O8)
    relative = jnp.stack([alpha_rate * sine, -beta_rate, state.speed - alpha_rate * cosine])
    return SParameterState(speed_rate, alpha_rate, beta_rate, attitude.rate(-state.s, relative))  # (O9)


def quaternion_rates(
    principal_moments: PrincipalMoments, state: QuaternionState, moment: Moment = None
) -> QuaternionState:
    """Time derivatives of attitude quaternion and body rates, in the fields of a `QuaternionState`; 1/s, rad/s^2.

    Args:
        principal_moments: Principal moments I1, I2, I3 about the center of mass, kg m^2.
        state: Attitude and angular velocity.
        moment: Moment M about the center of mass, body axes, N m; an array or a function of the state; zero if None.

    Source: theory.md (O10), (A11).
    """
    acceleration = _body_acceleration(principal_moments, state.body_rates, _applied(moment, state))
    return QuaternionState(quaternion.rate(state.quaternion, state.body_rates), acceleration)  # (O10)


def _applied(moment: Moment, state: State) -> Vector3 | float:
    if moment is None:
        return 0.0
    return moment(state) if callable(moment) else moment


def _body_acceleration(principal_moments: PrincipalMoments, body_rates: Vector3, moment: Vector3 | float) -> Vector3:
    """Euler's equations on principal axes, rad/s^2."""
    return (moment - cross(body_rates, principal_moments * body_rates)) / principal_moments  # (O10)


def switch(state: SParameterState) -> SParameterState:
    """Replace s by its shadow -s/|s|^2, the s-parameters of the same attitude inside the unit sphere, if |s| > 1.

    Applied after every step of an integration, it keeps s away from the pole |s| = infinity. Source: theory.md (O6).
    """
    return SParameterState(state.speed, state.alpha, state.beta, attitude.switch(state.s))


# --- first integrals of the balanced body ---


def angular_momentum(principal_moments: PrincipalMoments, state: State) -> Vector3:
    """Angular momentum R I w_body about the center of mass, inertial axes, kg m^2/s; constant without a moment.

    Source: theory.md, before (O12).
    """
    return dot(state.rotation, principal_moments * state.body_rates)


def kinetic_energy(principal_moments: PrincipalMoments, state: State) -> Scalar:
    """Kinetic energy E = 1/2 w_body . I w_body of the rotation, J; constant without a moment. Source: theory.md, before (O12)."""
    w = state.body_rates
    return 0.5 * dot(principal_moments * w, w)


def dynamic_inertia(principal_moments: PrincipalMoments, state: State) -> Scalar:
    """Moment of inertia d = Lam^2/(2 E), min I <= d <= max I, kg m^2; constant without a moment, and NaN at rest.

    Lam is the angular momentum. A body with the moment of inertia d about a fixed axis of rotation has the same kinetic energy E if
    its angular momentum is Lam.

    Source: theory.md, before (O12).
    """
    momentum = principal_moments * state.body_rates
    return dot(momentum, momentum) / dot(momentum, state.body_rates)


# --- surfaces on which the balanced body moves in s-space ---


def configuration_surface(
    principal_moments: PrincipalMoments, inertia: Scalar, s: attitude.SParameters
) -> Float[Array, ""]:
    """Function whose zeros are the configuration surface: sum of Ik (Ik - d) N3k(s)^2, kg^2 m^4.

    If no moment acts on a body, s stays on the surface for its d = `dynamic_inertia`. The surface is bounded unless d = I3.

    Args:
        principal_moments: Principal moments I1, I2, I3 about the center of mass, kg m^2.
        inertia: Moment of inertia d of `dynamic_inertia`, kg m^2.
        s: S-parameters.

    Source: theory.md (O12).
    """
    return einsum("k,k->", principal_moments * (principal_moments - inertia), attitude.to_matrix(s)[2] ** 2)  # (O12)


def torus_angle(principal_moments: PrincipalMoments, inertia: Scalar, cosine: Scalar) -> Scalar:
    """Angle th0 of the torus on which s of a symmetric body (I1 = I2, not I3) moves without a moment, rad, 0 <= th0 <= pi/2.

    The angle between the angular velocity and the axis of symmetry is 2 th0. The constant of motion d determines only sin^2(2 th0),
    so two tori have the same d.

    Args:
        principal_moments: Principal moments I1 = I2, I3, kg m^2.
        inertia: Moment of inertia d of `dynamic_inertia`, kg m^2.
        cosine: Direction cosine N33(s) at any time of the motion; its sign selects one of the two tori with the same d.

    Source: theory.md (O13), in the form tan^2(2 th0) = I3 (d - I3)/(I1 (I1 - d)), which has no cancellation at any angle.
    """
    across, along = principal_moments[0], principal_moments[2]
    sine = jnp.sqrt(jnp.maximum(along * (inertia - along) / (across - along), 0.0))
    cosine = jnp.copysign(jnp.sqrt(jnp.maximum(across * (across - inertia) / (across - along), 0.0)), cosine)
    return 0.5 * jnp.arctan2(sine, cosine)  # (O13)


def torus(angle: Scalar, longitude: Scalar, latitude: Scalar) -> attitude.SParameters:
    """Point of the configuration torus of a symmetric body, in s-parameters.

    Args:
        angle: Angle th0 of `torus_angle`, rad; the center circle of the torus has the radius 1/sin(th0), its tube the radius
            cot(th0).
        longitude: Angle l about the third axis of s-space, rad.
        latitude: Angle g about the center circle, rad.

    Source: theory.md (O14).
    """
    from_axis = (1.0 + jnp.cos(angle) * jnp.cos(latitude)) / jnp.sin(angle)
    height = jnp.sin(latitude) / jnp.tan(angle)
    return jnp.stack([jnp.cos(longitude) * from_axis, jnp.sin(longitude) * from_axis, height])  # (O14)


# --- a symmetric body in a resisting medium ---


def resisted_body_rates(
    principal_moments: PrincipalMoments, body_rates: Vector3, resistance: Scalar, t: Scalar
) -> Vector3:
    """Exact body rates at time t of a symmetric body (I1 = I2) under the moment -h w_body, rad/s.

    Args:
        principal_moments: Principal moments I1 = I2, I3, kg m^2.
        body_rates: Angular velocity at t = 0, body axes, rad/s.
        resistance: Resistance coefficient h >= 0 of the medium around the body, N m s; h = 0 gives the motion without a moment.
        t: Time (s).

    Source: theory.md (O15).
    """
    across, along = principal_moments[0], principal_moments[2]
    x, y, z = body_rates
    decay = resistance * t / along
    turned = (across - along) / across * z * t * decay_quotient(decay)  # exponent of (O15), smooth at h = 0
    sine, cosine = jnp.sin(turned), jnp.cos(turned)
    level = jnp.exp(-resistance * t / across) * jnp.stack([x * cosine + y * sine, y * cosine - x * sine])  # (O15)
    return jnp.concatenate([level, (z * jnp.exp(-decay))[None]])  # (O15)


__all__ = own_names(globals())


def __dir__() -> list[str]:
    return __all__
