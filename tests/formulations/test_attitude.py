"""Attitude dynamics of one body, theory.md (O7) to (O15): both forms against each other, the first integrals, the surface, and
the resisting medium against an independent integration, the closed form and the theory's vectors."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations
from jaxtyping import Array, Float
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from jaxdyn.compute.hints import written_out
from jaxdyn.formulations import attitude
from jaxdyn.formulations.attitude import QuaternionState, SParameterState
from jaxdyn.spatial import attitude as maps
from jaxdyn.spatial import quaternion

_SHARED = Path(os.environ.get("JAXDYN_SHARED", Path(__file__).parents[3] / "shared"))
_FILE = _SHARED / "theory_vectors.json"
_VECTORS = json.loads(_FILE.read_text())["s_parameters"] if _FILE.exists() else {}

PRECISIONS = [np.float64, np.float32]
GENERAL = np.array([1.3, 2.9, 2.2])
SYMMETRIC = {"oblong": np.array([3.0, 3.0, 2.0]), "flat": np.array([2.0, 2.0, 3.5])}

# The theory's case of a resisting medium.
MOMENTS, RESISTANCE = SYMMETRIC["oblong"], 0.1
SAMPLES = np.arange(11.0)


def resisting(state):
    return -RESISTANCE * state.body_rates


def start(dtype=np.float64) -> SParameterState:
    return SParameterState(*(jnp.asarray(x, dtype) for x in (2.0, 0.0, np.pi / 2, [1.0, 0.0, 1.0])))


def close(actual: Array, expected, roundings: float = 256) -> None:
    """Equal but for roundings of numbers of order one to ten; a wrong sign or factor is an error of order one."""
    tolerance = roundings * np.finfo(actual.dtype).eps
    np.testing.assert_allclose(actual, np.broadcast_to(expected, actual.shape), rtol=tolerance, atol=tolerance)


def all_close(actual, expected, roundings: float = 256) -> None:
    jax.tree.map(lambda a, e: close(a, e, roundings), actual, expected)


def states(seed: int, dtype=np.float64, count: int = 16) -> SParameterState:
    """States away from the singular ones; s inside and outside of the unit ball."""
    rng = np.random.default_rng(seed)
    speed, alpha, beta = rng.uniform(0.5, 2, count), rng.uniform(-3, 3, count), rng.uniform(0.4, 2.7, count)
    return SParameterState(*(jnp.asarray(x, dtype) for x in (speed, alpha, beta, rng.normal(size=(count, 3)))))


def vectors(seed: int, dtype=np.float64, count: int = 16) -> Float[Array, "count 3"]:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(count, 3)), dtype)


def each(function, *batches):
    """The function at every sample; compiled without optimization, for it runs once."""
    return jax.jit(jax.vmap(function))(*batches)


def along(function, moments=GENERAL):
    """Rate of a function of the state along the motion under a moment: (state, moment) -> rate."""

    def rate(state, moment):
        return jax.jvp(function, (state,), (attitude.attitude_rates(moments.astype(moment.dtype), state, moment),))[1]

    return rate


def runge_kutta(rates, state, dt: float, steps: int, after=lambda state: state):
    """All states of an integration, the first included."""

    def moved(state, k, h):
        return jax.tree.map(lambda x, dx: x + h * dx, state, k)

    def step(state, _):
        k1 = rates(state)
        k2 = rates(moved(state, k1, dt / 2))
        k3 = rates(moved(state, k2, dt / 2))
        k4 = rates(moved(state, k3, dt))
        mean = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
        return after(moved(state, mean, dt)), state

    last, earlier = jax.lax.scan(step, state, length=steps)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), earlier, last)


# --- the two forms describe one motion, (O7) ---


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_forms_have_the_same_rotation_and_body_rates_and_convert_into_each_other(dtype):  # (O7)
    state = states(0, dtype)

    def everything(state):
        other = attitude.to_quaternion_state(state)
        back = attitude.from_quaternion_state(other)
        views = [(form.rotation, form.body_rates) for form in (state, other, back)]
        return views, back, attitude.switch(state), jnp.sum(other.quaternion**2)

    views, back, switched, norm = each(everything, state)
    all_close(views[1], views[0])
    all_close(views[2], views[0])
    all_close(back, switched)
    close(norm, 1.0)


def test_angular_velocity_is_along_the_third_axis_of_its_frame_and_has_the_angles_of_the_theory():  # (O7)
    state = states(1)
    frame, inertial = each(
        lambda state: (
            attitude.frame_of_angular_velocity(state.alpha, state.beta),
            state.rotation @ state.body_rates,
        ),
        state,
    )
    close(jnp.einsum("bij,bkj->bik", frame, frame), np.eye(3))
    close(jnp.linalg.det(frame), 1.0)
    close(state.speed[:, None] * frame[:, :, 2], inertial)
    close(jnp.arccos(inertial[:, 1] / state.speed), state.beta)
    close(jnp.arctan2(inertial[:, 0], inertial[:, 2]), state.alpha)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_both_equations_of_motion_move_the_body_alike(dtype):  # (O8), (O9), (O10)
    """The quaternion form of the moving s-parameter form moves by the equation of the quaternion form, and back."""
    state, moment = states(3, dtype), vectors(4, dtype)
    moments = GENERAL.astype(dtype)

    def there(state, moment):
        return attitude.quaternion_rates(moments, attitude.to_quaternion_state(state), moment)

    def back(state, moment):
        other = attitude.to_quaternion_state(state)
        rates = attitude.quaternion_rates(moments, other, moment)
        return jax.jvp(attitude.from_quaternion_state, (other,), (rates,))[1]

    def everything(state, moment):
        expected = attitude.attitude_rates(moments, attitude.switch(state), moment)
        forth = along(attitude.to_quaternion_state)(state, moment)
        return forth, there(state, moment), back(state, moment), expected

    forth, there_rates, back_rates, expected = each(everything, state, moment)
    all_close(forth, there_rates, 1024)
    all_close(back_rates, expected, 4096)


# --- the published equations of motion, (O8), (O9), (O11) ---


def published_rates(moments, state, moment):
    """(O8) line by line, and (O9) with the matrix of (O4)."""
    i1, i2, i3 = moments
    n, w = maps.to_matrix(state.s), state.speed
    gyroscopic = (i1 - i2) * (i2 - i3) * (i1 - i3) * n[2, 0] * n[2, 1] * n[:, 2] + jnp.stack(
        [
            i1 * i3 * (i1 - i3) * n[1, 0] * n[2, 0] + i2 * i3 * (i2 - i3) * n[1, 1] * n[2, 1],
            -i1 * i3 * (i1 - i3) * n[0, 0] * n[2, 0] - i2 * i3 * (i2 - i3) * n[0, 1] * n[2, 1],
            jnp.zeros_like(w),
        ]
    )
    return from_accelerations(state, n @ (moment / moments) + w**2 / (i1 * i2 * i3) * gyroscopic)


def published_symmetric_rates(moments, state, moment):
    """(O11)."""
    n, w = maps.to_matrix(state.s), state.speed
    gyroscopic = [
        n[1, 0] * n[2, 0] + n[1, 1] * n[2, 1],
        -n[0, 0] * n[2, 0] - n[0, 1] * n[2, 1],
        jnp.zeros_like(w),
    ]
    factor = w**2 * (moments[0] - moments[2]) / moments[0]
    return from_accelerations(state, n @ (moment / moments) + factor * jnp.stack(gyroscopic))


def from_accelerations(state, accelerations):
    """Rates of the state from (w beta', w alpha' sin(beta), w')."""
    across, along, speed_rate = accelerations
    w, sine, cosine = state.speed, jnp.sin(state.beta), jnp.cos(state.beta)
    alpha_rate, beta_rate = along / (w * sine), across / w
    relative = jnp.stack([alpha_rate * sine, -beta_rate, w - alpha_rate * cosine])
    return SParameterState(speed_rate, alpha_rate, beta_rate, maps.rate_matrix(state.s).T @ relative)


@pytest.mark.parametrize(
    ("published", "moments"),
    [(published_rates, GENERAL), (published_rates, MOMENTS), (published_symmetric_rates, MOMENTS)],
    ids=["general", "general form of a symmetric body", "symmetric"],
)
def test_compact_equations_of_motion_are_the_published_ones(published, moments):  # (O8), (O9), (O11)
    arguments = states(5), vectors(6)
    expected = each(lambda state, moment: published(moments, state, moment), *arguments)
    all_close(each(lambda state, moment: attitude.attitude_rates(moments, state, moment), *arguments), expected)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_two_derivatives_of_the_equations_of_motion_at_zero(dtype):  # (O8), (O9)
    """At s = 0, where the body and its angular velocity have common axes: along every pair of directions of a basis."""
    usual, moments, moment = states(7, dtype), GENERAL.astype(dtype), vectors(8, dtype)[0]
    first, second = (jnp.asarray(x.reshape(9, 3), dtype) for x in np.broadcast_arrays(np.eye(3)[:, None], np.eye(3)))

    def jet(rates, a, b):
        def of(s):
            return rates(moments, SParameterState(usual.speed[0], usual.alpha[0], usual.beta[0], s), moment)

        return jax.jvp(lambda s: jax.jvp(of, (s,), (a,)), (jnp.zeros_like(a),), (b,))

    actual, expected = (
        each(lambda a, b, f=f: jet(f, a, b), first, second) for f in (attitude.attitude_rates, published_rates)
    )
    all_close(actual, expected, 1024)


def test_moment_may_be_a_function_of_what_both_forms_offer():
    """A constant moment in inertial space and a resistance are the same moment in both forms; no moment is zero moment."""

    def moment(state):
        return state.rotation.T @ jnp.array([0.3, -0.2, 0.5]) - 0.4 * state.body_rates

    def rates(state):
        value = moment(state)
        other = attitude.to_quaternion_state(state)
        as_function = attitude.attitude_rates(GENERAL, state, moment), attitude.quaternion_rates(GENERAL, other, moment)
        as_array = attitude.attitude_rates(GENERAL, state, value), attitude.quaternion_rates(GENERAL, other, value)
        none = attitude.attitude_rates(GENERAL, state), attitude.quaternion_rates(GENERAL, other)
        zero = (
            attitude.attitude_rates(GENERAL, state, jnp.zeros(3)),
            attitude.quaternion_rates(GENERAL, other, jnp.zeros(3)),
        )
        return (as_function, none), (as_array, zero)

    actual, expected = each(rates, states(9))
    all_close(actual, expected)


def test_erratum_the_s_parameter_form_has_three_singularities_and_the_quaternion_form_none():  # (O10)
    usual = jax.tree.map(lambda x: x[0], states(10))
    zero = jnp.zeros_like(usual.speed)
    moment = jnp.array([0.1, -0.3, 0.2])
    near = SParameterState(usual.speed, usual.alpha, zero + 1e-7, usual.s)
    assert abs(attitude.attitude_rates(GENERAL, near, moment).alpha) > 1e4
    for singular in (
        SParameterState(usual.speed, usual.alpha, zero, usual.s),
        SParameterState(zero, usual.alpha, usual.beta, usual.s),
    ):
        assert not np.isfinite(attitude.attitude_rates(GENERAL, singular, moment).alpha)
        other = attitude.quaternion_rates(GENERAL, attitude.to_quaternion_state(singular), moment)
        assert np.all(np.isfinite(other.quaternion))
        assert np.all(np.isfinite(other.body_rates))


# --- first integrals ---


def test_integrals_are_constant_without_a_moment_and_follow_their_laws_with_one():
    state, moment = states(11), vectors(12)

    def integrals(state):
        views = attitude.angular_momentum(GENERAL, state), attitude.kinetic_energy(GENERAL, state)
        return *views, attitude.dynamic_inertia(GENERAL, state)

    def everything(state, moment):
        rates = along(integrals)(state, jnp.zeros_like(moment)), along(integrals)(state, moment)
        laws = state.rotation @ moment, jnp.sum(state.body_rates * moment)
        return *rates, laws, integrals(attitude.to_quaternion_state(state)), integrals(state)

    balanced, moved, laws, other, own = each(everything, state, moment)
    all_close(balanced, (0.0, 0.0, 0.0), 4096)
    all_close(moved[:2], laws, 4096)
    all_close(other, own)


def test_integrals_have_the_values_of_the_theory():
    state = states(13)
    cosines = each(maps.to_matrix, state.s)
    on_frame = jnp.einsum("bij,j,bkj->bik", cosines, GENERAL, cosines)
    energy = each(lambda state: attitude.kinetic_energy(GENERAL, state), state)
    close(energy, 0.5 * state.speed**2 * on_frame[:, 2, 2])
    transposed = jnp.einsum("bji,j,bjk->bik", cosines, GENERAL, cosines)  # erratum: the direction cosines transposed
    assert np.abs(energy - 0.5 * state.speed**2 * transposed[:, 2, 2]).max() > 0.1
    squares = jnp.einsum("j,bj->b", GENERAL**2, cosines[:, 2] ** 2) * state.speed**2
    inertia = each(lambda state: attitude.dynamic_inertia(GENERAL, state), state)
    close(inertia, squares / (2 * energy))
    assert np.all((inertia >= GENERAL.min()) & (inertia <= GENERAL.max()))
    momentum = each(lambda state: attitude.angular_momentum(GENERAL, state), state)
    close(jnp.sum(momentum**2, axis=1), squares)


# --- the configuration surface, (O12) to (O14) ---


def test_body_is_on_its_surface_and_stays_there():  # (O12)
    state = states(14)

    def height(state):
        return attitude.configuration_surface(GENERAL, attitude.dynamic_inertia(GENERAL, state), state.s)

    close(each(height, state), 0.0)
    close(each(along(height), state, jnp.zeros_like(state.s)), 0.0, 1024)


def test_erratum_surface_is_bounded_unless_d_is_the_third_moment():  # (O12)
    far = 1e9 * vectors(15)
    values = each(lambda s: attitude.configuration_surface(GENERAL, jnp.asarray(1.7), s), far)
    close(values, GENERAL[2] * (GENERAL[2] - 1.7))
    values = each(lambda s: attitude.configuration_surface(GENERAL, jnp.asarray(GENERAL[2]), s), far)
    close(values, 0.0)


@pytest.mark.parametrize("body", SYMMETRIC)
def test_angle_of_the_torus_is_half_that_between_spin_and_axis_of_symmetry(body):  # (O13)
    moments, state = SYMMETRIC[body], states(17)

    def angle_and_cosine(state):
        cosine = maps.to_matrix(state.s)[2, 2]
        inertia = attitude.dynamic_inertia(moments, state)
        return attitude.torus_angle(moments, inertia, cosine), cosine, inertia

    angle, cosine, inertia = each(angle_and_cosine, state)
    assert (
        np.min(cosine) < -0.1 < 0.1 < np.max(cosine)
    )  # both tori of the equation below, which does not tell them apart
    close(jnp.cos(2 * angle), cosine, 4096)
    i1, _, i3 = moments
    close(jnp.sin(2 * angle) ** 2, i3 * (inertia - i3) / ((i1 - i3) * (i1 + i3 - inertia)), 4096)
    rates = each(lambda state: attitude.attitude_rates(moments, state), state)
    close(rates.speed, 0.0)


def test_angle_of_the_torus_at_its_ends():  # (O13)
    """Spin about the axis of symmetry, either way, and across it: the torus is a circle or a line."""
    d = np.array([2.0, 2.0, 3.0])
    angles = each(lambda d, n: attitude.torus_angle(MOMENTS, d, n), jnp.asarray(d), jnp.array([1.0, -1.0, 0.0]))
    close(angles, [0.0, np.pi / 2, np.pi / 4])


def test_torus_is_the_surface_of_its_angle():  # (O14)
    rng = np.random.default_rng(18)
    angle, longitude, latitude = (
        jnp.asarray(x) for x in (rng.uniform(0.3, 1.2, 20), *rng.uniform(-np.pi, np.pi, (2, 20)))
    )
    s = each(attitude.torus, angle, longitude, latitude)
    cosines, lam = each(lambda s: (maps.to_matrix(s), maps.to_quaternion(s)), s)
    close(cosines[:, 2, 2], jnp.cos(2 * angle))
    from_axis = jnp.hypot(s[:, 0], s[:, 1])
    close((from_axis - 1 / jnp.sin(angle)) ** 2 + s[:, 2] ** 2, 1 / jnp.tan(angle) ** 2, 1024)
    close(jnp.arctan2(s[:, 1], s[:, 0]), longitude)
    close(jnp.hypot(lam[:, 1], lam[:, 2]), jnp.sin(angle))
    close(jnp.hypot(lam[:, 0], lam[:, 3]), jnp.cos(angle))
    misprinted = jnp.stack([s[:, 0], s[:, 1], jnp.tan(angle) * jnp.sin(latitude)], axis=1)
    assert np.abs(each(maps.to_matrix, misprinted)[:, 2, 2] - jnp.cos(2 * angle)).max() > 0.1


def test_balanced_bodies_keep_their_integrals_and_surfaces_over_many_turns():  # (O12), (O13)
    @jax.jit
    def history(moments, state):
        d = attitude.dynamic_inertia(moments, state)
        angle = attitude.torus_angle(moments, d, maps.to_matrix(state.s)[2, 2])
        moved = runge_kutta(lambda s: attitude.attitude_rates(moments, s), state, 2e-3, 10000, attitude.switch)
        kept = jax.vmap(lambda s: (attitude.angular_momentum(moments, s), attitude.kinetic_energy(moments, s)))(moved)
        heights = jax.vmap(lambda s: attitude.configuration_surface(moments, d, s))(moved.s)
        return moved, kept, heights, angle

    for moments in (GENERAL, MOMENTS):
        moved, (momentum, energy), heights, angle = history(jnp.asarray(moments), start())
        np.testing.assert_allclose(momentum, np.broadcast_to(momentum[0], momentum.shape), atol=1e-9)
        np.testing.assert_allclose(energy, energy[0], atol=1e-9)
        np.testing.assert_allclose(heights, 0.0, atol=1e-9)
        assert np.linalg.norm(moved.s[1:], axis=1).max() <= 1
    # The symmetric body: the shadow of a point of the torus is on the torus.
    from_axis = np.hypot(moved.s[:, 0], moved.s[:, 1])
    tube = (from_axis - 1 / np.sin(angle)) ** 2 + moved.s[:, 2] ** 2
    np.testing.assert_allclose(tube, 1 / np.tan(angle) ** 2, rtol=1e-9)
    np.testing.assert_allclose(moved.speed, 2.0, rtol=1e-12)


# --- resisting medium, (O15) ---


@pytest.fixture(scope="module")
def precise():
    """Rotation matrices and body rates at the samples from SciPy, with nothing of jaxdyn but the initial state."""
    first = attitude.to_quaternion_state(start())

    def rates(t, y):
        q, w = y[:4], y[4:]
        vector = q[0] * w + np.cross(q[1:], w)
        angular = (-RESISTANCE * w - np.cross(w, MOMENTS * w)) / MOMENTS
        return np.concatenate([[-q[1:] @ w / 2], vector / 2, angular])

    initial = np.concatenate([first.quaternion, first.body_rates])
    solved = solve_ivp(rates, (0, SAMPLES[-1]), initial, "DOP853", SAMPLES, rtol=1e-13, atol=1e-15)
    q = solved.y[:4].T
    return Rotation.from_quat(q[:, [1, 2, 3, 0]]).as_matrix(), solved.y[4:].T


@pytest.fixture(scope="module")
def simulated():
    """States at the samples by the s-parameter form, without switching and with it."""

    def histories(state):
        def rates(state):
            return attitude.attitude_rates(MOMENTS, state, resisting)

        return runge_kutta(rates, state, 1e-3, 10000), runge_kutta(rates, state, 1e-3, 10000, attitude.switch)

    return jax.tree.map(lambda x: x[::1000], jax.jit(histories)(start()))


@pytest.mark.parametrize("switched", [False, True])
def test_s_parameter_form_agrees_with_a_precise_quaternion_solution(switched, simulated, precise):
    rotations, body_rates = each(lambda state: (state.rotation, state.body_rates), simulated[switched])
    np.testing.assert_allclose(rotations, precise[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(body_rates, precise[1], rtol=0, atol=1e-9)
    assert (np.linalg.norm(simulated[switched].s[1:], axis=1).max() > 1) == (not switched)


def test_closed_form_agrees_with_a_precise_solution(precise):  # (O15)
    initial = start().body_rates
    close(initial, np.array([16, 8, 2]) / 9)
    computed = each(lambda t: attitude.resisted_body_rates(MOMENTS, initial, jnp.asarray(RESISTANCE), t), SAMPLES)
    np.testing.assert_allclose(computed, precise[1], rtol=0, atol=1e-12)


@pytest.mark.skipif(not _VECTORS, reason=f"{_FILE} is not there")
def test_vectors_of_the_resisting_medium(simulated):
    vector = _VECTORS["resisting_medium"]
    inputs, rows = vector["inputs"], vector["samples"]
    assert (inputs["principal_moments"], inputs["h"], inputs["s0"]) == (MOMENTS.tolist(), RESISTANCE, [1, 0, 1])
    state = simulated[0]
    for name, computed in {
        "omega": state.speed,
        "alpha": state.alpha,
        "beta": state.beta,
        "s": state.s,
        "body_rates": each(lambda state: state.body_rates, state),
    }.items():
        np.testing.assert_allclose(computed, [row[name] for row in rows], rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("body", SYMMETRIC)
def test_closed_form_solves_the_equation_of_motion_with_every_resistance_and_none(body, dtype):  # (O15)
    moments, initial = SYMMETRIC[body].astype(dtype), vectors(19, dtype)[0]
    resistance, t = (x.ravel().astype(dtype) for x in np.meshgrid([0.0, 1e-9, 0.3, 4.0], [0.0, 0.7, 3.0]))

    def error(h, t):
        rates, change = jax.jvp(
            lambda t: attitude.resisted_body_rates(moments, initial, h, t), (t,), (jnp.ones_like(t),)
        )
        state = QuaternionState(quaternion.identity(dtype), rates)
        expected = attitude.quaternion_rates(moments, state, lambda state: -h * state.body_rates).body_rates
        return rates, change - expected

    rates, error = each(error, jnp.asarray(resistance), jnp.asarray(t))
    close(error, 0.0)
    np.testing.assert_array_equal(rates[t == 0], np.broadcast_to(initial, rates[t == 0].shape))


# --- transformations ---


def smooth_numbers(state, moment, moments):
    """Every function once, as one number."""
    rates = attitude.attitude_rates(moments, state, moment)
    other = attitude.to_quaternion_state(state)
    back = attitude.from_quaternion_state(attitude.QuaternionState(other.quaternion, other.body_rates))
    d = attitude.dynamic_inertia(moments, state)
    cosine = maps.to_matrix(state.s)[2, 2]
    parts = [
        rates,
        attitude.quaternion_rates(moments, other, moment),
        attitude.switch(back),
        attitude.angular_momentum(moments, state),
        attitude.kinetic_energy(moments, state),
        attitude.configuration_surface(moments, d, state.s),
        attitude.torus(attitude.torus_angle(moments, d, cosine), state.alpha, state.beta),
        attitude.resisted_body_rates(moments, state.body_rates, state.beta, state.alpha),
    ]
    return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(parts))


def arguments(dtype):
    """Of `smooth_numbers`, a batch."""
    return states(20, dtype, 4), vectors(21, dtype, 4), jnp.asarray(np.tile(MOMENTS, (4, 1)), dtype)


def test_gradient_agrees_with_central_differences():
    """Reverse mode through the equation of motion, a conversion and the angle of the torus."""

    def number(state, moment):
        rates = attitude.attitude_rates(MOMENTS, state, moment)
        d = attitude.dynamic_inertia(MOMENTS, state)
        angle = attitude.torus_angle(MOMENTS, d, maps.to_matrix(state.s)[2, 2])
        parts = [rates, attitude.to_quaternion_state(state), angle]
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(parts))

    function = jax.jit(jax.value_and_grad(number, argnums=(0, 1)))
    one = jax.tree.map(lambda x: x[0], (states(20), vectors(21)))
    direction = jax.tree.map(lambda x: x[0], (states(22), vectors(23)))
    step = 1e-5
    ahead, _ = function(*jax.tree.map(lambda x, d: x + step * d, one, direction))
    behind, _ = function(*jax.tree.map(lambda x, d: x - step * d, one, direction))
    _, gradient = function(*one)
    product = sum(np.sum(g * x) for g, x in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
    np.testing.assert_allclose((ahead - behind) / (2 * step), product, rtol=1e-7)


def test_single_precision_stays_single():
    gradient = jax.vmap(jax.grad(smooth_numbers, argnums=(0, 1, 2)))
    shapes = jax.eval_shape(lambda *a: (jax.vmap(smooth_numbers)(*a), gradient(*a)), *arguments(np.float32))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {np.dtype(np.float32)}


def test_products_are_at_full_precision():
    with written_out():  # where sums of few products are products of arrays too
        traced = jax.make_jaxpr(jax.value_and_grad(smooth_numbers))(
            *jax.tree.map(lambda x: x[0], arguments(np.float32))
        )
    full = jax.lax.Precision.HIGHEST
    products = [e for e in equations(traced.jaxpr) if e.primitive is jax.lax.dot_general_p]
    assert products
    assert all(e.params["precision"] == (full, full) for e in products)
