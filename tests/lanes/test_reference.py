"""Programs in arithmetic of many digits: against formulas written by hand in mpmath, and against what they should not do."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jaxdyn
from jaxdyn.lanes import CannotFlatten
from jaxdyn.lanes.reference import Reference

CLOSE = 1e-45  # of 50 digits, a few are lost in the sums
STATE = tuple(jnp.asarray(x) for x in ([0.3, -1.1], [0.7, 1.9], [2.3, -0.4]))
WEIGHTS = (3.0, -2.0)


@functools.cache
def double_pendulum():
    """Of rods whose numbers are no short binary fractions."""
    builder = jaxdyn.MechanismBuilder("double", gravity=(0, 0, -9.81))
    hinge = jaxdyn.Revolute((0, 1, 0))
    builder.add_body("upper", joint=hinge, mass=1.1, com=(0, 0, -0.43), inertia=(0.07, 0.0731, 0.01))
    place = {"parent": "upper", "position": (0, 0, -0.97)}
    builder.add_body("lower", joint=hinge, mass=0.37, com=(0, 0, -0.21), inertia=(0.01, 0.0123, 0.01), **place)
    return jaxdyn.System(builder.build())


def by_hand(mp, m2, q, v, tau):
    """Energy and accelerations of the double pendulum, as in textbooks; all numbers those of the model, exactly."""
    m1, c1, I1, l1 = (mp.mpf(x) for x in (1.1, 0.43, 0.0731, 0.97))
    c2, I2, g = (mp.mpf(x) for x in (0.21, 0.0123, 9.81))
    cosine, sine = mp.cos(q[1]), mp.sin(q[1])
    height1 = -c1 * mp.cos(q[0])
    height2 = -l1 * mp.cos(q[0]) - c2 * mp.cos(q[0] + q[1])
    a = I1 + I2 + m1 * c1**2 + m2 * (l1**2 + c2**2 + 2 * l1 * c2 * cosine)
    b = I2 + m2 * (c2**2 + l1 * c2 * cosine)
    d = I2 + m2 * c2**2
    energy = a * v[0] ** 2 / 2 + b * v[0] * v[1] + d * v[1] ** 2 / 2 + g * (m1 * height1 + m2 * height2)
    k = m2 * l1 * c2 * sine
    r1 = tau[0] + k * (2 * v[0] * v[1] + v[1] ** 2)
    r2 = tau[1] - k * v[0] ** 2
    r1 -= g * (m1 * c1 * mp.sin(q[0]) + m2 * (l1 * mp.sin(q[0]) + c2 * mp.sin(q[0] + q[1])))
    r2 -= g * m2 * c2 * mp.sin(q[0] + q[1])
    det = a * d - b**2
    return energy, ((d * r1 - b * r2) / det, (a * r2 - b * r1) / det)


@pytest.fixture
def mp():
    """Twice the digits, so that a quotient of differences has 50."""
    context = mpmath.MPContext()
    context.dps = 120
    return context


def test_double_pendulum_to_the_last_digits_but_few(mp):
    system = double_pendulum()

    def both(system, q, v, tau):
        state = jaxdyn.State(q, v)
        return jaxdyn.total_energy(system, state), jaxdyn.acceleration(system, state, tau)

    energy, a = Reference(both, system, *STATE)(system, *STATE)
    q, v, tau = ([mp.mpf(float(x)) for x in part] for part in STATE)
    energy_by_hand, a_by_hand = by_hand(mp, mp.mpf(0.37), q, v, tau)
    assert abs(energy.item() - energy_by_hand) < CLOSE
    assert all(abs(x - y) < CLOSE * 10 for x, y in zip(a, a_by_hand, strict=True))  # accelerations are some 10 rad/s^2
    assert max(abs(float(x)) for x in a) > 1.0


def test_gradients_of_accelerations_by_angle_and_mass(mp):
    """Central differences of the formulas by hand in 120 digits: steps of 1e-30 are exact to 1e-58."""
    system = double_pendulum()

    def gradient(system, q, v, tau):
        def weighted(system, q):
            return jnp.dot(jnp.array(WEIGHTS), jaxdyn.acceleration(system, jaxdyn.State(q, v), tau))

        return jax.grad(weighted, (0, 1))(system, q)

    by_system, by_q = Reference(lambda *x: (lambda g: (g[0].model.mass, g[1]))(gradient(*x)), system, *STATE)(
        system, *STATE
    )
    q, v, tau = ([mp.mpf(float(x)) for x in part] for part in STATE)
    step, mass = mp.mpf(10) ** -30, mp.mpf(0.37)

    def weighted(mass, bend):
        _, a = by_hand(mp, mass, [q[0], q[1] + bend], v, tau)
        return WEIGHTS[0] * a[0] + WEIGHTS[1] * a[1]

    by_bend = (weighted(mass, step) - weighted(mass, -step)) / (2 * step)
    by_mass = (weighted(mass + step, 0) - weighted(mass - step, 0)) / (2 * step)
    assert abs(by_q[1] - by_bend) < 1e-43 > abs(by_system[1] - by_mass)  # gradients are some 100
    assert abs(float(by_bend)) > 1.0 < abs(float(by_mass))


def test_a_perturbed_operation_is_seen():
    system = double_pendulum()
    reference = Reference(lambda s, q, v, tau: jaxdyn.acceleration(s, jaxdyn.State(q, v), tau), system, *STATE)
    exact = reference(system, *STATE)
    for op in ("mul", "sin", "sqrt", "div"):
        healthy = reference._operations[op]
        reference._operations[op] = lambda *x, healthy=healthy: healthy(*x) * (1 + reference.context.mpf("1e-30"))
        difference = np.max(np.abs(reference(system, *STATE) - exact))
        reference._operations[op] = healthy
        assert 1e-31 < difference < 1e-27


def test_loops_branches_and_memory():
    """A loop too long to be unrolled, with collected results read at a position that is data, and a choice in every turn."""

    def iterated(x, weights):
        def turn(carry, w):
            carry = jnp.where(carry > 1.0, carry / 3.0, carry * w)
            return carry, carry

        last, all_of_them = jax.lax.scan(turn, x, weights)
        return last, all_of_them[jnp.floor(x * 100.0).astype(int)], all_of_them[7]

    weights = jnp.linspace(1.1, 1.9, 1500)
    last, chosen, seventh = Reference(iterated, jnp.array(0.7), weights)(jnp.array(0.7), weights)
    context = mpmath.MPContext()
    context.dps = 50
    x, trail = context.mpf(0.7), []
    for w in weights.tolist():
        x = x / 3 if x > 1 else x * w
        trail.append(x)
    # the product 0.7 * 100 rounds up to 70 in double precision; exactly it is less
    assert (last.item(), chosen.item(), seventh.item()) == (trail[-1], trail[69], trail[7])


def test_functions_undefined_results_and_integers():
    def results(x):
        n = jnp.round(x).astype(int) * 3
        return (
            jnp.stack([jnp.sin(x), jnp.exp(x), jnp.arctan2(x, 2.0), jnp.power(x, x), jnp.log1p(x), jnp.expm1(x)]),
            jnp.stack([jnp.sqrt(-x), jnp.log(-x), 1.0 / (x - x), jnp.arcsin(x), jnp.maximum(jnp.sqrt(-x), 1.0)]),
            n % 4,
            jnp.remainder(-x, 2.0),
        )

    x = jnp.array(2.75)
    defined, undefined, whole, rest = Reference(results, x)(x)
    with mpmath.workdps(50):
        y = mpmath.mpf("2.75")
        functions = [mpmath.sin(y), mpmath.exp(y), mpmath.atan2(y, 2), y**y, mpmath.log1p(y), mpmath.expm1(y)]
        assert all(abs(a - b) < 1e-48 for a, b in zip(defined, functions, strict=True))
    np.testing.assert_array_equal(undefined.astype(float), np.asarray(results(x)[1]))
    assert (whole.item(), float(rest.item())) == (1, 1.25)


def test_what_has_no_scalar_form_is_refused_with_its_name():
    with pytest.raises(CannotFlatten, match="reduce_precision"):
        Reference(lambda x: jax.lax.reduce_precision(x, 5, 4), jnp.array(0.3))


def test_a_loop_ends_when_its_condition_does():
    root = Reference(lambda x: jax.lax.while_loop(lambda y: abs(y * y - x) > 1e-40, lambda y: (y + x / y) / 2, x), 2.0)
    with mpmath.workdps(50):
        assert abs(root(2.0).item() - mpmath.sqrt(2)) < 1e-40


def test_the_precision_of_mpmath_stays():
    before = mpmath.mp.dps
    value = Reference(lambda x: x / 3.0, jnp.array(1.0), digits=30)(jnp.array(1.0)).item()
    assert mpmath.mp.dps == before
    with mpmath.workdps(50):
        assert 1e-33 < abs(mpmath.mpf(value) - mpmath.mpf(1) / 3) < 1e-29
