"""Problems of optimal control with known answers, shared by the tests of all solvers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn.control import (
    ContinuousDynamics,
    ControlProblem,
    DiscreteDynamics,
    Equality,
    Inequality,
    Plan,
    rollout_controls,
    solve,
)
from jaxdyn.control.solution import begun, continued, ended


@eqx.filter_jit
def solved(problem, solver, initial, **options):
    """The solution of one problem, compiled once for problems of the same functions."""
    return solve(problem, solver, initial, **options)


def searched(problem, solver, initial):
    """The solution after at most a given number of iterations, as a function that is compiled once for all numbers."""

    def found(most):
        return ended(problem, solver, continued(problem, solver, begun(problem, solver, initial), most))

    return jax.jit(found)


A, B = np.array([[1.0, 0.1], [0.2, 1.05]]), np.array([[0.0], [0.1]])


# Functions of the module, so that problems of the same functions are compiled once.
LINEAR = DiscreteDynamics(lambda x, u, t, dt: A @ x + B @ u, 2, 1)


def squares(dynamics, t, x, u):
    return (0.5 * x @ x + 0.05 * u @ u) / 0.2


def square_of_end(dynamics, t, x, u):
    return 5.0 * x @ x


def effort(dynamics, t, x, u):
    return u @ u


def regulator(**options) -> ControlProblem:
    """A linear step, and costs whose sums are those of the discrete problem."""
    return ControlProblem(
        LINEAR,
        jnp.array([1.0, -0.5]),
        duration=6.0,
        steps=30,
        running=squares,
        final=square_of_end,
        **options,
    )


def cost_to_go_of_regulator() -> tuple[np.ndarray, np.ndarray]:
    """Hessian of the cost to go from the start and the gains of all steps, by the Riccati equation written out."""
    P, gains = 10.0 * np.eye(2), []
    for _ in range(30):
        K = -np.linalg.solve(0.1 * np.eye(1) + B.T @ P @ B, B.T @ P @ A)
        P = np.eye(2) + A.T @ P @ A + A.T @ P @ B @ K
        gains.append(K)
    return P, np.stack(gains[::-1])


def fixed_at(problem: ControlProblem, x) -> ControlProblem:
    return eqx.tree_at(lambda p: p.initial, problem, problem.initial.at[0].set(x))


def start_of(problem: ControlProblem) -> Plan:
    return rollout_controls(problem, jnp.zeros((problem.steps, 1)))


def sutton(x, u, t, dt):
    """Acrobot, explicit Euler; angle 0 hangs."""
    q1, q2, v1, v2 = x
    d1, d2 = 3.5 + jnp.cos(q2), 1.25 + 0.5 * jnp.cos(q2)
    phi2 = 0.5 * 9.8 * jnp.sin(q1 + q2)
    phi1 = -0.5 * v2**2 * jnp.sin(q2) - v2 * v1 * jnp.sin(q2) + 1.5 * 9.8 * jnp.sin(q1) + phi2
    a2 = (u[0] + d2 / d1 * phi1 - 0.5 * v1**2 * jnp.sin(q2) - phi2) / (1.25 - d2**2 / d1)
    return x + dt * jnp.stack([v1, v2, -(d2 * a2 + phi1) / d1, a2])


GOAL = np.array([np.pi, 0.0, 0.0, 0.0])


def acrobot() -> ControlProblem:
    return ControlProblem(
        DiscreteDynamics(sutton, 4, 1),
        jnp.zeros(4),
        duration=5.0,
        steps=50,
        running=lambda dynamics, t, x, u: (0.05 * (x - GOAL) @ (x - GOAL) + 0.005 * u @ u) / 0.1,
        final=lambda dynamics, t, x, u: 500.0 * (x - GOAL) @ (x - GOAL),
    )


def kelly(x, u, t=0.0):
    """Cart and pole of Kelly 2017."""
    _, q, v, w = x
    s, c = jnp.sin(q), jnp.cos(q)
    D = 1.0 + 0.3 * s**2
    return jnp.stack(
        [
            v,
            w,
            (u[0] + 0.3 * 9.81 * c * s + 0.15 * s * w**2) / D,
            -(c * u[0] + 1.3 * 9.81 * s + 0.15 * c * s * w**2) / (0.5 * D),
        ]
    )


UP = np.array([1.0, np.pi, 0.0, 0.0])


def cart_pole(steps: int, force: float, goal=UP) -> ControlProblem:
    return ControlProblem(
        ContinuousDynamics(kelly, 4, 1),
        jnp.zeros(4),
        duration=2.0,
        steps=steps,
        running=effort,
        lower=-force,
        upper=force,
        constraints=Inequality(lambda dynamics, t, x, u: jnp.stack([x[0] - 2.0, -2.0 - x[0]]), "track"),
        final_constraints=Equality(lambda dynamics, t, x, u: x - goal, "upright at the goal"),
    )


def double_link(x, u, t=0.0):
    """Acrobot of OptimTraj: two point masses, absolute angles from hanging, a motor between the links."""
    q1, q2, w1, w2 = x
    c, s = jnp.cos(q1 - q2), jnp.sin(q1 - q2)
    first = -u[0] - 0.25 * s * w2**2 - 9.81 * jnp.sin(q1)
    second = u[0] + 0.25 * s * w1**2 - 4.905 * jnp.sin(q2)
    D = 0.125 - (0.25 * c) ** 2
    return jnp.stack([w1, w2, (0.25 * first - 0.25 * c * second) / D, (0.5 * second - 0.25 * c * first) / D])


def folded_acrobot(steps: int) -> tuple[ControlProblem, Plan]:
    """Swing-up of the acrobot, and the published guess to begin with."""
    goal = np.array([np.pi, np.pi, 0.0, 0.0])
    problem = ControlProblem(
        ContinuousDynamics(double_link, 4, 1),
        jnp.zeros(4),
        duration=2.0,
        steps=steps,
        running=effort,
        lower=-20.0,
        upper=20.0,
        final_constraints=Equality(lambda dynamics, t, x, u: x - goal, "both links up"),
    )
    time, knots = np.linspace(0.0, 2.0, steps + 1), [0.0, 0.5, 1.5, 2.0]
    q1 = np.interp(time, knots, [0.0, -np.pi / 2, np.pi / 2, np.pi])
    q2 = np.interp(time, knots, [0.0, 0.0, np.pi, np.pi])
    states = jnp.asarray(np.stack([q1, q2, 0.0 * time, 0.0 * time], axis=1))
    return problem, Plan(states, jnp.zeros((steps, 1)), jnp.zeros(0))


def pendulum() -> jaxdyn.System:
    """A rod of 1 kg whose center hangs 0.5 m below its hinge."""
    builder = jaxdyn.MechanismBuilder("pendulum")
    builder.add_body(
        "rod",
        joint=jaxdyn.Revolute((0.0, 1.0, 0.0)),
        mass=1.0,
        com=(0.0, 0.0, -0.5),
        inertia=(0.1, 0.1, 0.01, 0.0, 0.0, 0.0),
    )
    return jaxdyn.System(builder.build())
