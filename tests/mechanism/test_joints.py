"""Every kind of joint by itself, in both precisions: its own closed forms against the protocol's defaults and against derivatives.

Value, first and second derivative of the maps between steps and coordinates are compared with formulas where those maps like to be
0/0: at no step and at no rotation.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from random_trees import ALL_KINDS, close, random_joint, random_model, random_motion, random_sinusoid
from scipy.interpolate import CubicSpline
from stacked_trees import evaluated

from jaxdyn import (
    ConstantRate,
    Cylindrical,
    Fixed,
    Free,
    MechanismBuilder,
    MechanismError,
    Planar,
    Revolute,
    Rheonomic,
    Screw,
    Sinusoid,
    Spherical,
    Spline,
    Universal,
    as_dtype,
    configuration,
    forward_kinematics,
    mass_center_velocities,
)
from jaxdyn.dynamics import mass_center_accelerations
from jaxdyn.mechanism import Joint, PrescribedMotion
from jaxdyn.spatial import quaternion, rotation
from jaxdyn.spatial.sixvector import cross_motion

PRECISIONS = ["float64", "float32"]
COUNT = 3


def drawn(kind: str, dtype: str, at_rest: bool = False):
    """COUNT times a joint, coordinates of it (quaternions of any norm) and two velocities, stacked."""
    rng = np.random.default_rng([5, ALL_KINDS.index(kind)])
    samples = []
    for _ in range(COUNT):
        joint = random_joint(rng, kind)
        q = jnp.asarray(joint.neutral() if at_rest else rng.normal(size=joint.nq))
        v, w = (jnp.asarray(rng.normal(size=joint.nv)) for _ in range(2))
        samples.append((joint, q, v, w))
    return as_dtype(jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *samples), dtype)


def same(pairs, dtype: str, roundings: float = 1e3):
    """Every named pair equal; the names in the message, and every number of the given precision."""
    for law, (one, other) in pairs.items():
        assert one.dtype == dtype, law
        tolerance = roundings * np.finfo(dtype).eps
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=law)


def rate(function, q, q_rate):
    return jax.jvp(function, (q,), (q_rate,))


def placed(joint, q):
    at = joint.transform(q)
    return at.rotation, at.translation


# --- the motion subspace and the rates of coordinates ---


def laws_of_motion(joint: Joint, q, v, w):
    q_rate = joint.coordinate_rate(q, v)
    (turned, _), (turning, shifting) = rate(lambda q: placed(joint, q), q, q_rate)
    twist = jnp.concatenate([rotation.unskew(turned.T @ turning), turned.T @ shifting])  # (B8) in child axes
    _, default = rate(lambda step: joint.integrate(q, step), jnp.zeros_like(v), v)
    columns = joint.motion_subspace(q).T
    units = jnp.eye(joint.nv, dtype=q.dtype)
    # Derivative of column beta along column alpha, as it is in the child.
    changes = jax.vmap(lambda unit: rate(lambda q: joint.motion_subspace(q).T, q, joint.coordinate_rate(q, unit))[1])(
        units
    )
    brackets = (
        jax.vmap(jax.vmap(cross_motion, (None, 0)), (0, None))(columns, columns) + changes - changes.swapaxes(0, 1)
    )
    k = joint.structure_coefficients(q)
    zero = jnp.zeros_like(v[0])
    (q_now, v_now), (q_slope, v_slope) = rate(lambda dt: joint.advance(q, v, w, dt), zero, zero + 1.0)
    drives = joint.drive_columns(q)
    along_motion = columns.T @ jnp.linalg.solve(columns @ columns.T, columns @ drives)
    return {
        "an Euler step of no length, coordinates": (q_now, q),
        "an Euler step of no length, velocities": (v_now, v),
        "a short Euler step, coordinates": (q_slope, q_rate),
        "a short Euler step, velocities": (v_slope, w),
        "each drive does work in its own column only": (columns @ drives, units),
        # The motor of a screw exerts a moment only.
        "drives act along the motion": (drives, drives if joint.kind == "screw" else along_motion),
        "twist of the child": (columns.T @ v, twist),
        "rate of the columns": (joint.subspace_rate(q, v), rate(lambda q: joint.motion_subspace(q) @ v, q, q_rate)[1]),
        "rate of coordinates is the derivative of integrate": (q_rate, default),
        "velocity of the rate": (joint.velocity_of_rate(q, q_rate), v),
        "velocity of any rate is the derivative of difference": (
            joint.velocity_of_rate(q, q[::-1]),
            rate(lambda end: joint.difference(q, end), q, q[::-1])[1],
        ),
        "structure coefficients (D3)": (jnp.einsum("abd,dc->abc", k, columns), brackets),
        "structure coefficients by default": (k, Joint.structure_coefficients(joint, q)),
    }


def laws_of_steps(joint: Joint, q, v, w):
    there = joint.integrate(q, v)
    small = 0.5 * v
    same_place = lambda a, b: (joint.transform(a).rotation, joint.transform(b).rotation)  # noqa: E731
    unit = joint.normalize(q)
    return {
        "steps add up along one velocity": (joint.integrate(there, 0.7 * v), joint.integrate(q, 1.7 * v)),
        "steps backwards": (joint.integrate(there, -v), q),
        "no step": (joint.integrate(q, jnp.zeros_like(v)), q),
        "difference undoes integrate": (joint.difference(q, joint.integrate(q, small)), small),
        "integrate undoes difference, rotation": same_place(joint.integrate(q, joint.difference(q, there)), there),
        "integrate undoes difference, translation": (
            joint.transform(joint.integrate(q, joint.difference(q, there))).translation,
            joint.transform(there).translation,
        ),
        "no difference": (joint.difference(q, q), jnp.zeros_like(v)),
        "velocity is constant along a step": (
            joint.velocity_of_rate(
                there, rate(lambda s: joint.integrate(q, s * v), jnp.ones_like(v[0]), jnp.ones_like(v[0]))[1]
            ),
            v,
        ),
        "normalized, rotation": same_place(unit, q),
        "normalized twice": (joint.normalize(unit), unit),
    }


@pytest.mark.parametrize("dtype", first(1, PRECISIONS))
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_motion_and_steps_obey_their_laws(kind, dtype):
    def laws(*sample):
        return laws_of_motion(*sample) | laws_of_steps(*sample)

    same(evaluated(laws, *drawn(kind, dtype), in_lanes=True), dtype)


def test_quaternions_are_normalized_and_nothing_else_is():
    for kind in ALL_KINDS:
        joint, q, _, _ = jax.tree.map(lambda x: x[0], drawn(kind, "float64"))
        expected = np.array(q)
        if kind in "SF":
            expected[-4:] /= np.linalg.norm(expected[-4:])
        close(joint.normalize(q), expected)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_primitives_one_after_the_other_do_the_same(kind):
    joint, _, c, _ = jax.tree.map(lambda x: x[0], drawn(kind, "float64"))
    primitives = joint.primitives()
    assert [(p.nq, p.nv) for p in primitives] == [(1, 1)] * joint.nv
    moved = primitives[0].transform(c[:1])
    for i, primitive in enumerate(primitives[1:], start=1):
        moved = moved.compose(primitive.transform(c[i : i + 1]))
    q = joint.from_primitives(c)
    close(joint.transform(q).rotation, moved.rotation)
    close(joint.transform(q).translation, moved.translation)
    close(joint.to_primitives(q), c)  # all middle angles of the draws are within a quarter turn


# --- value, first and second derivative at no step and at no rotation ---


def jet(function, x, direction):
    """Value, first and second derivative of function(x + s direction) at s = 0."""

    def first(s):
        return jax.jvp(lambda s: function(x + s * direction), (s,), (jnp.ones_like(s),))

    zero = jnp.zeros((), x.dtype)
    (value, slope), (_, curvature) = jax.jvp(first, (zero,), (jnp.ones_like(zero),))
    return value, slope, curvature


def _quaternion_step(p, w):
    """Jet of p exp(s w) at s = 0."""
    return p, 0.5 * quaternion.multiply(p, jnp.concatenate([jnp.zeros(1, p.dtype), w])), -0.25 * jnp.sum(w * w) * p


def _quaternion_difference(p, d):
    """Jet of log(p^-1 (p + s d)) at s = 0: 2 y_v and -4 y_0 y_v with y = p^-1 d."""
    y = quaternion.multiply(quaternion.inverse(p), d)
    return jnp.zeros(3, p.dtype), 2.0 * y[1:], -4.0 * y[0] * y[1:]


def _plane_turned(angle, x, y):
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([c * x - s * y, s * x + c * y])


def integrate_by_hand(kind, q, v):
    """Jet of integrate(q, s v) at s = 0."""
    if kind == "S":
        return _quaternion_step(q, v)
    if kind == "F":
        turn = quaternion.to_matrix(q[3:])
        shifts = q[:3], turn @ v[3:], turn @ jnp.cross(v[:3], v[3:])
        return tuple(jnp.concatenate(x) for x in zip(shifts, _quaternion_step(q[3:], v[:3]), strict=True))
    if kind == "L":
        first = jnp.concatenate([_plane_turned(q[2], v[1], v[2]), v[:1]])
        second = jnp.concatenate([v[0] * _plane_turned(q[2], -v[2], v[1]), jnp.zeros(1, q.dtype)])
        return q, first, second
    return q, v, jnp.zeros_like(v)


def difference_by_hand(kind, q, d):
    """Jet of difference(q, q + s d) at s = 0."""
    if kind == "S":
        return _quaternion_difference(q, d)
    if kind == "F":
        _, w, w_curvature = _quaternion_difference(q[3:], d[3:])
        shift = quaternion.to_matrix(q[3:]).T @ d[:3]
        return jnp.zeros(6, q.dtype), jnp.concatenate([w, shift]), jnp.concatenate([w_curvature, -jnp.cross(w, shift)])
    if kind == "L":
        shift = _plane_turned(-q[2], d[0], d[1])
        second = jnp.concatenate([jnp.zeros(1, q.dtype), -d[2] * jnp.stack([-shift[1], shift[0]])])
        return jnp.zeros(3, q.dtype), jnp.concatenate([d[2:], shift]), second
    return jnp.zeros_like(d), d, jnp.zeros_like(d)


def transform_by_hand(joint, kind, d):
    """Jet of the rotation and of the translation at the neutral coordinates plus s d, at s = 0."""
    dtype = d.dtype
    dot, none = jnp.zeros((3, 3), dtype), jnp.zeros(3, dtype)
    turning, doubled, shift = dot, dot, none
    if kind in "RHC":
        turning = d[0] * rotation.skew(joint.axis)
    if kind in "PHC":
        shift = (
            {"P": d[0], "C": d[-1], "H": d[0]}[kind]
            * joint.axis
            * (joint.pitch if kind == "H" else jnp.ones((), dtype))
        )
    if kind == "L":
        turning = d[2] * rotation.skew(joint.normal)
        shift = d[0] * joint.direction + d[1] * jnp.cross(joint.normal, joint.direction)
    if kind == "U":
        one, two = d[0] * rotation.skew(joint.first_axis), d[1] * rotation.skew(joint.second_axis)
        turning, doubled = one + two, one @ one + 2.0 * one @ two + two @ two
    elif kind in "SF":
        s = rotation.skew(d[-3:])
        turning, doubled = 2.0 * s, 4.0 * s @ s - 4.0 * d[-4] * s
        shift = d[:3] if kind == "F" else none
    else:
        doubled = turning @ turning
    return (jnp.eye(3, dtype=dtype), none), (turning, shift), (doubled, none)


@pytest.mark.thorough
@pytest.mark.parametrize("at_rest", [True, False])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_jets_at_no_step_and_no_rotation_are_those_by_hand(kind, at_rest):
    def jets(joint, q, v, w):
        # Any direction of coordinates will do, one that changes the norm of a quaternion too.
        d = jnp.concatenate([w, jnp.full(joint.nq - joint.nv, 0.7, q.dtype)])
        found = {
            "integrate": (jet(lambda v: joint.integrate(q, v), jnp.zeros_like(v), v), integrate_by_hand(kind, q, v)),
            "difference": (jet(lambda end: joint.difference(q, end), q, d), difference_by_hand(kind, q, d)),
            # log(x^-1) = -log(x)
            "difference, start": (
                jet(lambda start: -joint.difference(start, q), q, d),
                difference_by_hand(kind, q, d),
            ),
        }
        if at_rest:
            found["transform"] = jet(lambda q: placed(joint, q), q, d), transform_by_hand(joint, kind, d)
        return found

    for dtype in PRECISIONS if at_rest else PRECISIONS[:1]:
        for law, (found, by_hand) in evaluated(jets, *drawn(kind, dtype, at_rest), in_lanes=True).items():
            for order, (one, other) in enumerate(zip(found, by_hand, strict=True)):
                for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
                    same({f"{law}, derivative {order}": (x, y)}, dtype, 1e2)


# --- whole mechanisms ---


@pytest.fixture(scope="module")
def mixed():
    return random_model(np.random.default_rng(1), 3, kinds="LRS")


def test_interpolation_goes_from_one_end_to_the_other_at_constant_velocity(mixed):
    q0, step, _ = random_motion(np.random.default_rng(2), mixed)
    step = 0.5 * step
    q1 = configuration.integrate(mixed, q0, step)

    def path(s):
        q, q_rate = jax.jvp(lambda s: configuration.interpolate(mixed, q0, q1, s), (s,), (jnp.ones_like(s),))
        return (
            q,
            configuration.velocity_of_rate(mixed, q, q_rate),
            configuration.coordinate_rate(mixed, q, step) - q_rate,
        )

    q, velocity, difference = evaluated(path, jnp.array([0.0, 0.3, 1.0]))
    close(q[0], q0, scale=10.0)
    close(q[2], q1, scale=10.0)
    close(velocity, np.broadcast_to(step, (3, mixed.nv)), scale=10.0)
    close(difference, 0.0, scale=10.0)


def test_distance_is_the_weighted_length_of_the_step_and_grows_along_it_at_that_rate(mixed):
    rng = np.random.default_rng(3)
    q0, step, _ = random_motion(rng, mixed)
    step = 0.5 * step
    weights = jnp.asarray(rng.uniform(0.5, 2.0, (2, mixed.nv))).at[0].set(1.0)

    def distance_and_rate(weights):
        def distance(s):
            return configuration.distance(mixed, q0, configuration.integrate(mixed, q0, s * step), weights)

        return jax.value_and_grad(distance)(jnp.ones(()))

    length, rate_ = evaluated(distance_and_rate, weights)
    expected = np.sqrt(np.asarray(weights) @ np.asarray(step) ** 2)
    close(length, expected)
    close(rate_, expected)
    close(configuration.distance(mixed, q0, configuration.integrate(mixed, q0, step)), expected[0])


def test_distance_of_equal_coordinates_is_zero_with_zero_gradient(mixed):
    q = configuration.neutral(mixed)
    for dtype in PRECISIONS:
        model, end = as_dtype((mixed, q), dtype)
        distance = jax.jit(jax.value_and_grad(lambda q1, model=model, q0=end: configuration.distance(model, q0, q1)))
        length, slope = distance(end)
        assert length.dtype == slope.dtype == dtype
        assert length == 0.0
        assert not np.any(slope)


# --- what the builder refuses ---

Z, X = (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("joint", "message"),
    [
        (Universal(Z, Z), "universal joint of body 'arm': its axes are parallel.*use one revolute joint"),
        (Universal(Z, (0, 0, -1)), "universal joint of body 'arm': its axes are parallel"),
        (
            Universal((0, 0, 2), X),
            r"universal joint of body 'arm': its first_axis has length 2; give the unit vector \(0.0, 0.0, 1.0\)",
        ),
        (Universal(X, (0, 0, 0)), "universal joint of body 'arm': its second_axis is zero"),
        (Planar(Z, (0.6, 0, 0.8)), "planar joint of body 'arm': its direction does not lie in the plane"),
        (Planar((0, 0, 3), X), "planar joint of body 'arm': its normal has length 3"),
        (Planar(Z, (0, 2, 0)), "planar joint of body 'arm': its direction has length 2"),
        (Screw(Z, np.inf), "screw joint of body 'arm': its pitch is inf; give one finite value"),
        (Screw(Z, (1.0, 2.0)), r"screw joint of body 'arm': its pitch is \[1.0, 2.0\]; give one finite value"),
        (Screw((0, 0, 0), 1.0), "screw joint of body 'arm': its axis is zero"),
        (
            Cylindrical((np.nan, 0, 1)),
            r"cylindrical joint of body 'arm': its axis is \[nan, 0.0, 1.0\]; give three finite",
        ),
        (
            Rheonomic(Revolute(Z), ConstantRate((1.0, 2.0))),
            r"rheonomic joint of body 'arm': its motion has values of shape \(2,\); a revolute joint needs shape \(1,\)",
        ),
        (Rheonomic(Spherical(), ConstantRate((1.0, 2.0, 3.0))), r"a spherical joint needs shape \(4,\)"),
        (Rheonomic(Fixed(), ConstantRate(())), "it drives a fixed joint; give a joint that can move"),
        (Rheonomic(Rheonomic(Revolute(Z), ConstantRate(1.0)), ConstantRate(1.0)), "it drives a rheonomic joint"),
        (Rheonomic(Revolute((0, 0, 2)), ConstantRate(1.0)), "rheonomic joint of body 'arm': its axis has length 2"),
    ],
)
def test_numbers_that_make_no_joint_are_refused_with_the_body_and_the_remedy(joint, message, as_a_user):
    builder = MechanismBuilder()
    with pytest.raises(MechanismError, match=message):
        builder.add_body("arm", joint=joint, mass=1.0, inertia=(1, 1, 1))


def test_oblique_universal_axes_and_any_motion_of_the_right_size_are_accepted():
    for joint in (
        Universal(Z, (0.6, 0, 0.8)),
        Planar(Z, X),
        Planar(),
        Rheonomic(Spherical(), ConstantRate((0, 1, 0, 0), (1, 0, 0, 0))),
    ):
        assert joint.validate() is None


# --- prescribed motion ---


class Tumbling(PrescribedMotion):
    """A quaternion that turns about two axes while its norm changes."""

    def __call__(self, t):
        first = quaternion.from_axis_angle(jnp.array([0.0, 0.0, 1.0], t.dtype), 1.3 * t)
        second = quaternion.from_axis_angle(jnp.array([0.6, 0.8, 0.0], t.dtype), t * t)
        return (1.5 + jnp.sin(t)) * quaternion.multiply(first, second)


def prescribed_motions():
    rng = np.random.default_rng(6)
    knots = rng.normal(size=(6, 1))
    return {
        "constant rate": ("R", ConstantRate(1.7, 0.4)),
        "sinusoid": ("L", Sinusoid((0.3, -0.4, 0.8), (1.1, 2.3, 1.7), (0.2, 0.5, -1.0), (0.1, 0.0, 2.0))),
        "spline": ("P", Spline(knots, 0.5, 0.1)),
        "tumbling": ("S", Tumbling()),
        "free": ("F", random_sinusoid(rng, Free())),
        "universal": ("U", Sinusoid((1.3, -0.7), (1.1, 1.9))),
        "cylindrical": ("C", ConstantRate((1.0, -0.5), (0.2, 0.3))),
        "screw": ("H", Sinusoid(1.0, 2.0)),
    }


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float64") for name in prescribed_motions()), ("tumbling", "float32"), ("spline", "float32")],
)
def test_a_driven_body_moves_as_its_placement_does_in_time(name, dtype):
    """The driven body carries a hinge, whose body has accelerations of both kinds."""
    kind, motion = prescribed_motions()[name]
    rng = np.random.default_rng(7)
    builder = MechanismBuilder()
    numbers = {"mass": 1.0, "com": rng.normal(size=3), "inertia": (1.0, 1.0, 1.0)}
    driven = Rheonomic(random_joint(rng, kind), motion)
    builder.add_body("driven", joint=driven, position=rng.normal(size=3), **numbers)
    builder.add_body(
        "swinging", parent="driven", joint=Revolute((0.6, 0.0, 0.8)), position=rng.normal(size=3), **numbers
    )
    model = as_dtype(builder.build(), dtype)
    assert (model.nq, model.nv) == (1, 1)

    def rates(t, q, v, a):
        def bodies(q, t):
            at = forward_kinematics(model.at(t), q)
            return at.rotation, at.translation + jnp.einsum("bij,bj->bi", at.rotation, model.com)

        def velocities(q, v, t):
            (turned, _), (turning, linear) = jax.jvp(bodies, (q, t), (v, jnp.ones_like(t)))
            return jax.vmap(rotation.unskew)(turning @ turned.swapaxes(1, 2)), linear

        first, second = jax.jvp(velocities, (q, v, t), (v, a, jnp.ones_like(t)))
        velocity, accelerated = (
            mass_center_velocities(model.at(t), q, v),
            mass_center_accelerations(model.at(t), q, v, a),
        )
        return {
            "angular velocity": (velocity.angular, first[0]),
            "velocity": (velocity.linear, first[1]),
            "angular acceleration": (accelerated.angular, second[0]),
            "acceleration": (accelerated.linear, second[1]),
        }

    times = jnp.asarray([0.0, 0.33, 1.9], dtype)
    same(evaluated(rates, times, *jnp.asarray(rng.normal(size=(3, 3, 1)), dtype), in_lanes=True), dtype, 1e4)


def test_a_crank_at_constant_rate_has_the_twist_of_its_rate():
    joint = Rheonomic(Revolute(Z), ConstantRate(3.0, 0.2)).at(jnp.asarray(0.5))
    q = jnp.zeros(0)
    close(joint.transform(q).rotation, rotation.rodrigues(jnp.array(Z), jnp.asarray(1.7)))
    close(joint.drift(q), np.array([0.0, 0.0, 3.0, 0.0, 0.0, 0.0]))
    close(joint.drift_rate(q, q), 0.0)
    assert joint.motion_subspace(q).shape == (6, 0)


def test_a_sinusoid_has_its_amplitude_frequency_phase_and_offset():
    motion = Sinusoid((2.0, 0.5), (3.0, 1.0), (0.1, 0.0), (-1.0, 4.0))
    t = jnp.asarray(0.7)
    position, rate_, acceleration = jet(motion, t, jnp.ones(()))
    close(position, np.array([-1.0 + 2.0 * np.sin(2.2), 4.0 + 0.5 * np.sin(0.7)]))
    close(rate_, np.array([6.0 * np.cos(2.2), 0.5 * np.cos(0.7)]))
    close(acceleration, np.array([-18.0 * np.sin(2.2), -0.5 * np.sin(0.7)]), scale=10.0)


@pytest.mark.parametrize("knots", [2, 3, 7])
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_spline_is_the_natural_one_and_straight_beyond_its_ends(knots, dtype):
    values = np.random.default_rng(8).normal(size=(knots, 2))
    start, interval = 0.3, 0.4
    motion = as_dtype(Spline(values, interval, start), dtype)
    at = start + interval * np.arange(knots)
    end = at[-1]
    times = np.concatenate([np.linspace(start, end, 29)[1:-1] + 1e-3, [start - 1.0, end + 2.0]])
    straight = CubicSpline(at, values, bc_type="natural")

    def expected(t, order):
        inside = np.clip(t, start, end)
        inner = straight(inside, order) if order < 2 or inside == t else np.zeros(2)
        return inner + (t - inside) * straight(inside, 1) if order == 0 else inner

    found = jax.jit(jax.vmap(lambda t: jet(motion, t, jnp.ones_like(t))))(jnp.asarray(times, dtype))
    for order, x in enumerate(found):
        assert x.dtype == dtype
        # In single precision, times themselves are known to 1e-7, and third derivatives are hundreds.
        tolerance = 1e-10 if dtype == "float64" else [1e-5, 1e-4, 1e-3][order]
        np.testing.assert_allclose(x, [expected(t, order) for t in times], atol=tolerance)


def test_a_spline_and_its_first_two_derivatives_are_continuous_at_knots_and_ends():
    motion = Spline(np.random.default_rng(9).normal(size=(5, 1)), 0.5, -1.0)
    close(jax.vmap(motion)(jnp.linspace(-1.0, 1.0, 5)), motion.values)
    both_sides = jnp.linspace(-1.0, 1.0, 5)[:, None] + jnp.array([[-1e-9, 1e-9]])
    for derivative in jax.jit(jax.vmap(jax.vmap(lambda t: jet(motion, t, jnp.ones_like(t)))))(both_sides):
        np.testing.assert_allclose(derivative[:, 0], derivative[:, 1], atol=1e-6)
