"""Direct collocation: derivatives, exact solutions, orders, published optima, manifolds, and how searches end."""

import dataclasses
import signal
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brachistochrone import Velocities
from control_problems import UP, cart_pole
from first_cases import first

import jaxdyn
from jaxdyn.control import (
    Collocation,
    ContinuousDynamics,
    ControlProblem,
    ControlResult,
    Design,
    DiscreteDynamics,
    Equality,
    Inequality,
    MultibodyDynamics,
    Plan,
    solve,
)
from jaxdyn.control.constraint_terms import Workless
from jaxdyn.control.nonlinear_program import NonlinearProgram, minimized
from jaxdyn.control.scheme import collocation_points, scheme_of
from jaxdyn.control.transcription import program_of, transcribed

SCHEMES = ("trapezoid", "hermite_simpson", "legendre_gauss")


def line(problem: ControlProblem, end, design=()) -> Plan:
    """States on the shortest way to an end, no controls."""
    dynamics, N = problem.dynamics, problem.steps
    step = dynamics.difference(problem.initial, end)
    states = jax.vmap(lambda share: dynamics.retract(problem.initial, share * step))(jnp.linspace(0.0, 1.0, N + 1))
    return Plan(states, jnp.zeros((N, dynamics.nu)), jnp.array(design, float))


# --- the scheme and the derivatives ---


def test_schemes_are_the_textbook_ones():
    simpson = scheme_of(collocation_points("hermite_simpson", 3))
    np.testing.assert_allclose(simpson.weights, [1 / 6, 4 / 6, 1 / 6], rtol=1e-13)
    np.testing.assert_allclose(simpson.rates[0], [5 / 24, 1 / 3, -1 / 24], rtol=1e-12)  # Kelly 2017, (4.4) with (4.3)
    assert simpson.places == (0.5, 1.0)
    np.testing.assert_allclose(scheme_of((0.0, 1.0)).rates, [[0.5, 0.5]], rtol=1e-14)
    gauss = scheme_of(collocation_points("legendre_gauss", 2))
    A = [[1 / 4, 1 / 4 - np.sqrt(3) / 6], [1 / 4 + np.sqrt(3) / 6, 1 / 4]]  # Hairer, Norsett and Wanner, table II.7.3
    np.testing.assert_allclose(np.linalg.inv(gauss.steps[:2, :2]), A, rtol=1e-12)
    F = np.array([0.3, -1.2])
    xi = A @ F
    np.testing.assert_allclose(gauss.steps @ [*xi, 0.5 * F.sum()], gauss.rates @ F, atol=1e-13)


def ball_system():
    builder = jaxdyn.MechanismBuilder("ball pendulum")
    builder.add_body(
        "bob", joint=jaxdyn.Spherical(), mass=1.0, com=(0.02, 0.0, -0.3), inertia=(0.02, 0.03, 0.015, 0.0, 0.002, 0.0)
    )
    return jaxdyn.System(builder.build())


def everything(manifold: bool) -> tuple[ControlProblem, Plan]:
    """Costs, conditions and the first state depend on state, control, time and design, duration included."""
    if manifold:
        dynamics = Velocities(ball_system())
        start, end = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.8, 0.36, 0.48, 0.0])

        def place(p, design):
            first = dynamics.retract(start, jnp.array([0.1, 0.2, 0.0]) * design[1])
            return eqx.tree_at(lambda x: (x.duration, x.initial), p, (design[0], first))

        def numbers(x):
            return x[1:]

    else:
        dynamics = ContinuousDynamics(lambda x, u, t: jnp.stack([jnp.sin(x[1]) * u[0], x[0] ** 2 + t * u[1]]), 2, 2)
        start, end = jnp.array([0.3, -0.2]), jnp.array([1.0, 0.5])

        def place(p, design):
            return eqx.tree_at(lambda x: (x.duration, x.initial), p, (design[0], start * design[1]))

        def numbers(x):
            return x

    def limits(d, t, x, u):
        return jnp.stack([numbers(x)[0] * u[1] - 1.0, t * numbers(x)[1] ** 2 - 2.0])

    problem = ControlProblem(
        dynamics,
        start,
        duration=1.0,
        steps=2,
        running=lambda d, t, x, u: (1.0 + t) * u @ u + numbers(x)[0] ** 2 * u[0],
        final=lambda d, t, x, u: t**2 * numbers(x)[1] ** 3,
        constraints=(Inequality(limits), Equality(lambda d, t, x, u: (numbers(x)[0] ** 3 - t * u[0])[None])),
        final_constraints=Equality(lambda d, t, x, u: d.difference(end, x) * t),
        design=Design(place, [0.7, 0.1]),
    )
    return problem, line(problem, end, [0.7, 0.1])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("manifold", "scheme"),
    [(False, "trapezoid"), (False, "hermite_simpson"), (False, "legendre_gauss"), (True, "trapezoid")],
)
def test_derivatives_are_those_of_the_values(manifold, scheme):
    problem, plan = everything(manifold)
    transcription = transcribed(problem, plan, collocation_points(scheme, 2))
    assert (transcription.straight is None) == manifold
    program = program_of(transcription)
    draw = np.random.default_rng(0)
    z = transcription.start(plan.controls, plan.design)
    z = z + 0.3 * draw.normal(size=z.size)
    m, share = program.g_lower.size, 0.7
    # The first state, motion, three conditions at each point (once at nodes), the end.
    nx, places, counted = problem.dynamics.nx, len(transcription.scheme.places), {"trapezoid": 3, "hermite_simpson": 5}
    assert m == nx + 2 * places * nx + 3 * counted.get(scheme, 4) + nx
    pull = draw.normal(size=m)

    def values(z):
        f, g = program.values(z)
        return np.append(np.asarray(g), f)

    def rows(z):
        gradient, entries = program.slopes(z)
        jacobian = np.zeros((m, z.size))
        np.add.at(jacobian, program.jacobian_places, np.asarray(entries))
        return np.vstack([jacobian, gradient])

    def quotient(function, e=1e-6):
        return np.stack([(function(z + e * d) - function(z - e * d)) / (2.0 * e) for d in np.eye(z.size)], axis=-1)

    np.testing.assert_allclose(rows(z), quotient(values), atol=1e-7)
    lower = np.zeros((z.size, z.size))
    np.add.at(lower, program.hessian_places, np.asarray(program.curvature(z, share, pull)))
    assert not np.any(np.triu(lower, 1))
    hessian = lower + np.tril(lower, -1).T
    np.testing.assert_allclose(hessian, quotient(lambda z: np.append(pull, share) @ rows(z)), atol=2e-7)
    assert np.max(np.abs(hessian)) > 1.0


# --- exact solutions ---


@pytest.mark.parametrize(
    ("scheme", "degree", "order"),
    first(
        3,
        [
            ("trapezoid", 1, 2),
            ("hermite_simpson", 1, 4),
            ("legendre_gauss", 3, 6),
            ("legendre_gauss", 1, 2),
            ("legendre_gauss", 2, 4),
        ],
    ),
)
def test_linear_quadratic_problem_takes_one_iteration_and_shows_the_order(scheme, degree, order):
    """x' = x + u with the integral of (x^2 + u^2) / 2: the cost is P x_0^2 / 2 with P from its Riccati equation."""

    def cost(steps):
        problem = ControlProblem(
            ContinuousDynamics(lambda x, u, t: x + u, 1, 1),
            jnp.array([1.5]),
            duration=1.5,
            steps=steps,
            running=lambda d, t, x, u: 0.5 * (x @ x + u @ u),
        )
        found = solve(problem, Collocation(scheme=scheme, degree=degree), line(problem, jnp.zeros(1)))
        assert (int(found.result), int(found.stats.iterations)) == (ControlResult.SUCCESSFUL, 1)
        return float(found.cost)

    # P' = -2 P + P^2 - 1, P(T) = 0: with w = sqrt 2, P = tanh(w T) / (w - tanh(w T)).
    bend = np.tanh(np.sqrt(2.0) * 1.5)
    exact = 0.5 * 1.5**2 * bend / (np.sqrt(2.0) - bend)
    coarse, fine = abs(cost(3) - exact), abs(cost(6) - exact)
    np.testing.assert_allclose(np.log2(coarse / fine), order, atol=0.35)
    assert fine < {2: 0.1, 4: 5e-4, 6: 1e-6}[order]


def test_rates_are_those_of_the_time_at_their_points():
    """x' = 5 t^4 + u, best left alone: three points of Gauss integrate powers up to the fifth."""
    problem = ControlProblem(
        ContinuousDynamics(lambda x, u, t: 5.0 * t**4 + u, 1, 1),
        jnp.zeros(1),
        duration=1.5,
        steps=2,
        running=lambda d, t, x, u: u @ u,
    )
    found = solve(problem, Collocation(), line(problem, jnp.ones(1)))
    np.testing.assert_allclose(found.value.states[:, 0], [0.0, 0.75**5, 1.5**5], atol=1e-9)


def double_integrator(**options) -> ControlProblem:
    start = options.pop("start", (0.0, 0.0))
    return ControlProblem(
        ContinuousDynamics(lambda x, u, t: jnp.stack([x[1], u[0]]), 2, 1), jnp.array(start), **options
    )


def lasting(problem, design):
    return eqx.tree_at(lambda p: p.duration, problem, design[0])


def reaching(*goal) -> Equality:
    return Equality(lambda d, t, x, u: x - jnp.array(goal))


def test_free_duration_and_multipliers():
    """From rest to rest over d = 1 m with the integral of u^2 plus the time: 12 d^2 / T^3 + T, smallest at T = sqrt(6)."""
    problem = double_integrator(
        duration=1.0,
        steps=3,
        running=lambda d, t, x, u: u @ u,
        final=lambda d, t, x, u: t,
        final_constraints=reaching(1.0, 0.0),
        design=Design(lasting, [1.0], lower=0.1, upper=10.0),
    )
    found = solve(problem, Collocation(degree=3), line(problem, jnp.array([1.0, 0.0]), [1.0]))
    T = np.sqrt(6.0)
    assert int(found.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(found.value.design, [T], rtol=1e-8)
    np.testing.assert_allclose([found.duration, found.cost], [T, 4.0 / 3.0 * T], rtol=1e-8)
    # What a longer way would cost more.
    np.testing.assert_allclose(found.multipliers.end[0], -24.0 / T**3, rtol=1e-7)
    # The motion between the nodes is the exact cubic, its control the exact line, the plan has the means.
    s = jnp.linspace(0.0, 1.0, 8)
    np.testing.assert_allclose(jax.vmap(found.state)(s * T)[:, 0], 3 * s**2 - 2 * s**3, atol=1e-8)
    np.testing.assert_allclose(jax.vmap(found.control)(s * T)[:, 0], (6 - 12 * s) / T**2, atol=1e-7)
    np.testing.assert_allclose(found.value.controls[:, 0], np.array([4.0, 0.0, -4.0]) / T**2, atol=1e-7)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bounds_are_kept_and_the_fastest_way_switches_once(scheme):
    """1 m from rest to rest in least time with |u| <= 1 m/s^2: 2 s."""
    problem = double_integrator(
        duration=3.0,
        steps=4,
        lower=-1.0,
        upper=1.0,
        final=lambda d, t, x, u: t,
        final_constraints=reaching(1.0, 0.0),
        design=Design(lasting, [3.0], lower=0.1, upper=10.0),
    )
    found = solve(problem, Collocation(scheme=scheme, degree=2), line(problem, jnp.array([1.0, 0.0]), [3.0]))
    assert int(found.result) == ControlResult.SUCCESSFUL
    assert float(jnp.max(jnp.abs(found.point_controls))) <= 1.0
    # Lobatto's controls (1, 1, 0, -1, -1) at the nodes are continuous; between them they are lines, 3.5 h^2 = 1, or parabolas whose
    # way, 2 h^2 in each half, happens to be that of the jump.
    np.testing.assert_allclose(found.cost, 4.0 / np.sqrt(3.5) if scheme == "trapezoid" else 2.0, rtol=1e-7)
    if scheme == "legendre_gauss":
        np.testing.assert_allclose(found.value.controls[:, 0], [1.0, 1.0, -1.0, -1.0], atol=1e-6)


def test_path_condition_of_bryson_and_denham():
    """x'' = u, x <= l: half the integral of u^2 is 4 / (9 l), and the ceiling pulls with its slope 4 / (9 l^2)."""
    ceiling = 1.0 / 9.0
    problem = double_integrator(
        start=(0.0, 1.0),
        duration=1.0,
        steps=9,
        running=lambda d, t, x, u: 0.5 * u @ u,
        constraints=Inequality(lambda d, t, x, u: x[:1] - ceiling, "ceiling"),
        final_constraints=reaching(0.0, -1.0),
    )
    found = solve(problem, Collocation(scheme="hermite_simpson"), line(problem, jnp.array([0.0, -1.0])))
    assert int(found.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(found.cost, 4.0, rtol=1e-3)
    np.testing.assert_allclose(jnp.sum(found.multipliers.path), 36.0, rtol=1e-2)
    np.testing.assert_allclose(jnp.max(found.value.states[:, 0]), ceiling, atol=1e-7)
    np.testing.assert_allclose(found.value.controls[3:6], 0.0, atol=0.05)


# --- published optima ---


@pytest.mark.parametrize(
    ("scheme", "steps", "cost", "digits"),
    first(
        3,
        [
            ("legendre_gauss", 20, 58.80790577, 2e-10),
            ("trapezoid", 40, 59.32554, 1e-7),
            ("hermite_simpson", 40, 58.807576, 1e-8),
            ("legendre_gauss", 40, 58.80766748, 2e-10),
            ("trapezoid", 10, 59.51540, 1e-7),
            ("trapezoid", 20, 60.68246, 1e-7),
        ],
    ),
)
def test_cart_pole_of_kelly(scheme, steps, cost, digits):
    """Optimum 58.807667 N^2 s; what each scheme makes of it to all digits known."""
    problem = cart_pole(steps, 20.0)
    found = solve(problem, Collocation(scheme=scheme, degree=4), line(problem, jnp.asarray(UP)), throw=False)
    # Steps of 50 to 200 ms of a trapezoid have an optimum, but no motion.
    assert int(found.result) == (ControlResult.COARSE if scheme == "trapezoid" else ControlResult.SUCCESSFUL)
    np.testing.assert_allclose(found.cost, cost, rtol=digits)
    assert float(found.violation) < 1e-8


# --- mechanisms ---


@pytest.mark.thorough
def test_motion_on_a_manifold_is_that_of_its_controls():
    """A ball joint turned about axes that change: controls follow them, and the end is that of many small turns."""
    dynamics = Velocities(ball_system())
    first = jnp.array([1.0, 0.0, 0.0, 0.0])

    def wanted(t):
        return 3.0 * jnp.stack([jnp.sin(3.0 * t), jnp.cos(2.0 * t), t])

    def follow(dynamics, t, x, u):
        return (u - wanted(t)) @ (u - wanted(t))

    def turn(q, k):
        return dynamics.retract(q, h * wanted((k + 0.5) * h)), None

    h = 2.0**-12
    turned, _ = jax.lax.scan(turn, first, jnp.arange(4096.0))
    problem = ControlProblem(dynamics, first, duration=1.0, steps=12, running=follow)
    found = solve(problem, Collocation(scheme="hermite_simpson"), line(problem, first))
    assert int(found.result) == ControlResult.SUCCESSFUL
    # Without the derivative of the exponential the error is hundreds of times as large.
    np.testing.assert_allclose(dynamics.difference(turned, found.value.states[-1]), 0.0, atol=2e-5)


def chain(n: int):
    """AnyState masses of 1 kg on links of 1 m."""
    builder = jaxdyn.MechanismBuilder("chain")
    for i in range(n):
        builder.add_body(
            f"link {i}",
            parent=f"link {i - 1}" if i else "ground",
            position=(0.0, 0.0, -1.0 if i else 0.0),
            joint=jaxdyn.Revolute((0.0, 1.0, 0.0)),
            mass=1.0,
            com=(0.0, 0.0, -1.0),
        )
    return jaxdyn.System(builder.build())


class At(eqx.Module):
    """Configuration, less the one to be at."""

    goal: jax.Array

    def __call__(self, dynamics, t, x, u):
        return (x.q if isinstance(x, jaxdyn.State) else x) - self.goal


def elapsed(dynamics, t, x, u):
    return t


def test_brachistochrones_of_a_chain():
    """Two links fall from rest in least time, without work: 0.753587 s to hang, 0.849909 s with the second turned by 45 degrees.

    SciPy shot geodesics of M / (E - V) from the ends, with tolerances of 1e-12: 0.7535871 and 0.8499093 s.
    """
    system, rest = chain(2), jnp.array([np.pi / 2.0, 0.0])
    still = jaxdyn.State(rest, jnp.zeros(2))
    for bent, time in ((0.0, 0.7535871), (-np.pi / 4.0, 0.8499093)):
        end = jnp.array([0.0, bent])
        forces = ControlProblem(
            MultibodyDynamics(system),
            still,
            steps=5,
            duration=1.0,
            final=elapsed,
            constraints=Equality(Workless()),
            final_constraints=Equality(At(end)),
            design=Design(lasting, [1.0], lower=0.05, upper=5.0),
        )
        share, way = np.linspace(0.0, 1.0, 6)[:, None], np.asarray(end - rest)
        guess = jaxdyn.State(jnp.array(np.asarray(rest) + share**2 * way), jnp.array(2.0 * share * way))
        found = solve(forces, Collocation(degree=4), Plan(guess, jnp.zeros((5, 2)), jnp.ones(1)))
        assert int(found.result) == ControlResult.SUCCESSFUL
        np.testing.assert_allclose(found.cost, time, rtol=1e-6)
        levels = jax.vmap(lambda x: jaxdyn.total_energy(system, x))(found.value.states)
        np.testing.assert_allclose(levels, jaxdyn.total_energy(system, still), atol=1e-5)


# --- how searches end ---


def test_conditions_that_exclude_each_other():
    here, there = (Equality(lambda d, t, x, u, at=at: x[:1] - at) for at in (1.0, -1.0))
    problem = double_integrator(
        duration=1.0, steps=3, running=lambda d, t, x, u: u @ u, final_constraints=(here, there)
    )
    lost = solve(problem, Collocation(), line(problem, jnp.zeros(2)), throw=False)
    assert int(lost.result) == ControlResult.INFEASIBLE
    np.testing.assert_allclose(lost.violation, 1.0, atol=1e-3)


@pytest.mark.parametrize(("lower", "upper"), [(2.0, np.inf), (-np.inf, -1.0)])
def test_a_violation_counts_on_either_side(lower, upper):
    """A number between 0 and 1 that should be 2 or more, or -1 or less: it lacks 1."""
    program = NonlinearProgram(
        np.zeros(1),
        np.ones(1),
        np.array([lower]),
        np.array([upper]),
        lambda z: (z @ z, z),
        lambda z: (2.0 * z, np.ones(1)),
        lambda z, share, multipliers: np.array([2.0 * share]),
        (np.array([0]), np.array([0])),
        (np.array([0]), np.array([0])),
    )
    found = minimized(program, np.full(1, 0.5), tolerance=1e-9, feasibility=1e-8, max_steps=100)
    assert found.result == ControlResult.INFEASIBLE
    np.testing.assert_allclose(found.violation, 1.0, atol=1e-6)


def pushed(steps: int = 3) -> tuple[ControlProblem, list]:
    """A nonlinear problem that counts how often its velocity is traced."""
    traced = []

    def velocity(x, u, t):
        traced.append(t)
        return jnp.stack([x[1], u[0] - jnp.sin(x[0])])

    problem = ControlProblem(
        ContinuousDynamics(velocity, 2, 1),
        jnp.zeros(2),
        duration=2.0,
        steps=steps,
        running=lambda d, t, x, u: u @ u,
        final_constraints=reaching(np.pi, 0.0),
    )
    return problem, traced


def test_problems_alike_are_compiled_once_and_other_ends_are_told():
    problem, traced = pushed()
    solver, goal = Collocation(scheme="hermite_simpson"), jnp.array([np.pi, 0.0])
    short = solve(problem, solver, line(problem, goal), max_steps=2, throw=False)
    assert (int(short.result), int(short.stats.iterations)) == (ControlResult.OUT_OF_STEPS, 2)
    assert traced
    other = eqx.tree_at(lambda p: p.initial, problem, jnp.array([0.5, 0.1]))
    # Both parts of the check of a plan are compiled for the first ones that need them.
    solve(problem, solver, line(problem, goal))
    solve(other, solver, line(other, goal))
    checked, other = len(traced), eqx.tree_at(lambda p: p.initial, problem, jnp.array([0.4, 0.1]))
    done = solve(other, solver, line(other, goal))
    assert int(done.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(done.value.states[0], [0.4, 0.1], atol=1e-12)
    broken = eqx.tree_at(lambda plan: plan.controls, line(problem, goal), jnp.full((3, 1), jnp.nan))
    assert int(solve(problem, solver, broken, throw=False).result) == ControlResult.NOT_FINITE
    # The check divides the intervals, and a problem with other steps examines the shapes of its functions once.
    assert len(traced) == checked + 2


def test_errors_within_the_problem_come_out():
    def broken(x, u, t):
        raise RuntimeError("no velocity today")

    problem = eqx.tree_at(lambda p: p.dynamics, pushed()[0], ContinuousDynamics(broken, 2, 1))
    with pytest.raises(RuntimeError, match="no velocity today"):
        solve(problem, Collocation(), line(problem, jnp.zeros(2)))


def test_an_interrupt_within_a_search_ends_it():
    place, bounds = np.zeros(1, int), np.full(1, np.inf)

    def values(z):
        values.count += 1
        if values.count == 2:
            signal.raise_signal(signal.SIGINT)
        return float(np.cosh(z[0])), z

    values.count = 0
    program = NonlinearProgram(
        -bounds, bounds, -bounds, bounds, values, lambda z: (np.sinh(z), np.ones(1)), lambda z, w, _: w * np.cosh(z),
        (place, place), (place, place),
    )  # fmt: skip
    usual = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells switch it off for commands in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            minimized(program, np.ones(1), tolerance=1e-8, feasibility=1e-8, max_steps=9)
    finally:
        signal.signal(signal.SIGINT, usual)
    found = minimized(program, np.ones(1), tolerance=1e-8, feasibility=1e-8, max_steps=9)
    assert found.result == ControlResult.SUCCESSFUL
    assert abs(found.z[0]) < 1e-8


def test_numbers_that_are_not_finite_and_errors_in_equations_end_a_step_or_the_search():
    """z^2 such that log z = -2: Newton's first step from z = 8 ends at z < 0, where the logarithm is undefined."""
    place, bounds, goal = np.zeros(1, int), np.full(1, np.inf), np.full(1, -2.0)

    def values(z):
        with np.errstate(invalid="ignore"):
            values.undefined += int(z[0] < 0.0)
            return z[0] ** 2, np.log(z)

    values.undefined = 0
    program = NonlinearProgram(
        -bounds, bounds, goal, goal, values, lambda z: (2.0 * z, 1.0 / z), lambda z, w, y: 2.0 * w - y / z**2,
        (place, place), (place, place),
    )  # fmt: skip

    def search(start: float, values=values):
        changed = dataclasses.replace(program, values=values)
        return minimized(changed, np.full(1, start), tolerance=1e-8, feasibility=1e-8, max_steps=50)

    found = search(8.0)
    assert found.result == ControlResult.SUCCESSFUL
    assert values.undefined
    np.testing.assert_allclose(found.z, np.exp(-2.0), rtol=1e-8)
    assert search(-1.0).result == ControlResult.NOT_FINITE
    with pytest.raises(ValueError, match="could not broadcast"):
        search(1.0, lambda z: (z[0], np.zeros(3)))
    with pytest.raises(ZeroDivisionError):
        search(1.0, lambda z: (z[0], 1 // 0))


def test_wrong_uses_are_refused(as_a_user, monkeypatch):
    problem, _ = pushed()
    plan = line(problem, jnp.zeros(2))
    with pytest.raises(TypeError, match="cannot be transformed by jit, vmap or grad"):
        jax.jit(lambda plan: solve(problem, Collocation(), plan).cost)(plan)
    with pytest.raises(ValueError, match="no scheme 'radau'"):
        Collocation(scheme="radau")
    with pytest.raises(ValueError, match="the degree is 0"):
        Collocation(degree=0)
    with pytest.raises(ValueError, match=r"controls of the plan have shape \(2, 1\); give shape \(3, 1\)"):
        solve(problem, Collocation(), eqx.tree_at(lambda p: p.controls, plan, jnp.zeros((2, 1))))
    steps = eqx.tree_at(lambda p: p.dynamics, problem, DiscreteDynamics(lambda x, u, t, dt: x, 2, 1))
    with pytest.raises(TypeError, match="DiscreteDynamics has no time derivative"):
        solve(steps, Collocation(), plan)
    held = Design(lambda p, numbers: eqx.tree_at(lambda x: x.upper, p, numbers), [1.0])
    bounded = ControlProblem(problem.dynamics, problem.initial, duration=1.0, steps=3, upper=1.0, design=held)
    with pytest.raises(ValueError, match="bounds of the controls depend on the design"):
        solve(bounded, Collocation(), Plan(plan.states, plan.controls, jnp.ones(1)))
    fixed = double_integrator(duration=1.0, steps=1, constraints=Equality(lambda d, t, x, u: jnp.concatenate([x, u])))
    with pytest.raises(ValueError, match=r"\d+ equations, including the dynamics, for \d+ free variables"):
        solve(fixed, Collocation(scheme="trapezoid"), line(fixed, jnp.zeros(2)))
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(ImportError, match=r'pip install "jaxdyn\[nlp\]"'):
        solve(problem, Collocation(), plan)
