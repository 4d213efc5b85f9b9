"""Ten problems of optimal control from the literature, for the benchmark of solvers.

Each function returns one `control.ControlProblem`, and its docstring states dynamics, cost, bounds, horizon and steps. Costs are
per second along the path, and controls are constant during a step. Path constraints hold at the nodes t_0 to t_{N-1}.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import jaxdyn
from jaxdyn import control

CARRIERS = ("link5", "link7", "link7")
CENTERS = np.array([[0.0, 0.08, -0.1], [0.0, 0.0, 0.0], [0.0, 0.0, 0.1]])  # m, of the spheres on the arm
RADII = np.array([0.07, 0.07, 0.06])  # m
CIRCLES = np.array([[0.9, 0.6, 0.4], [1.7, 1.9, 0.5], [2.6, 1.4, 0.35]])  # m: centers and radii
CHAIN_MASSES, CHAIN_MASS, CHAIN_STIFFNESS, CHAIN_LENGTH, GRAVITY = 3, 0.03, 1.0, 0.033, 9.81
QUADROTOR_MASS, QUADROTOR_ARM, QUADROTOR_INERTIA = 0.486, 0.25, 0.00383
CRANK, COUPLER, ROCKER = 0.1, 0.3, 0.25  # m


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A problem of the benchmark.

    Attributes:
        name: Name in the tables.
        build: Function that returns the problem; its argument is the number of steps.
        steps: Number of steps of the benchmark.
        exact: Optimal cost in continuous time, where it is known.
        origin: Source of this optimal cost.
        large: Whether `SingleShooting` leaves the problem out.
    """

    name: str
    build: Callable[[int], control.ControlProblem]
    steps: int
    exact: float | None = None
    origin: str = ""
    large: bool = False


def _reaching(target) -> control.Equality:
    return control.Equality(control.TargetState(target), "final state")


def cart_pole(steps: int) -> control.ControlProblem:
    """Swing-up of a cart-pole: cart 1 kg, point mass 0.3 kg at 0.5 m; from rest, hanging, to rest, upright and 1 m away, in 2 s.

    Minimize the integral of F^2, with |F| <= 20 N and |x| <= 2 m. Runge-Kutta steps of order 4.

    Source: Kelly, SIAM Review 59(4), 2017, section 6.
    """
    system = jaxdyn.library.system("cart_pole_kelly")
    start, up = system.at_rest(jnp.zeros(2)), system.at_rest(jnp.array([1.0, jnp.pi]))
    far = np.array([2.0, np.inf, np.inf, np.inf])
    track = control.StateBounds(start, -far, far, nx=4)
    return control.ControlProblem(
        control.MultibodyDynamics(system),
        start,
        duration=2.0,
        steps=steps,
        running=control.Effort(2.0),
        lower=-20.0,
        upper=20.0,
        constraints=control.Inequality(track, "ends of the track"),
        final_constraints=_reaching(up),
    )


def quadrotor_rate(x, u, t):
    """Planar quadrotor with states x, z, angle and their rates, and the thrusts of two rotors."""
    sine, cosine = jnp.sin(x[2]), jnp.cos(x[2])
    lift, turn = (u[0] + u[1]) / QUADROTOR_MASS, QUADROTOR_ARM * (u[0] - u[1]) / QUADROTOR_INERTIA
    return jnp.concatenate([x[3:], jnp.stack([-lift * sine, lift * cosine - GRAVITY, turn])])


def quadrotor(steps: int) -> control.ControlProblem:
    """Planar quadrotor (0.486 kg, 0.25 m, 0.00383 kg m^2): from hovering to hovering 3 m beside and 1 m above, in 1.5 s.

    Minimize the integral of |u - m g / 2|^2, with 0 <= u <= 6 N for each of the two rotors. Runge-Kutta steps of order 4.

    Source: mechanism and parameters: Tedrake, Underactuated Robotics, chapter 3.
    """
    hover = 0.5 * QUADROTOR_MASS * GRAVITY

    def effort(dynamics, t, x, u):
        return jnp.sum((u - hover) ** 2)

    return control.ControlProblem(
        control.ContinuousDynamics(quadrotor_rate, 6, 2),
        jnp.zeros(6),
        duration=1.5,
        steps=steps,
        running=effort,
        lower=0.0,
        upper=6.0,
        final_constraints=_reaching(jnp.array([3.0, 1.0, 0.0, 0.0, 0.0, 0.0])),
    )


def unicycle_rate(x, u, t):
    """Unicycle with states x, y and heading, and controls speed and turning rate."""
    return jnp.stack([u[0] * jnp.cos(x[2]), u[0] * jnp.sin(x[2]), u[1]])


def unicycle(steps: int) -> control.ControlProblem:
    """Unicycle from (0, 0), heading along x, to (3, 3), heading along y, in 5 s, outside of the three circles `CIRCLES`.

    Minimize the integral of v^2 + w^2, with |v| <= 2 m/s and |w| <= 2 rad/s. Runge-Kutta steps of order 4.

    Source: after the obstacle avoidance of Howell, Jackson and Manchester, ALTRO, IROS 2019; circles of this benchmark.
    """
    circles = jnp.asarray(CIRCLES)

    def inside(dynamics, t, x, u):
        return circles[:, 2] ** 2 - jnp.sum((x[:2] - circles[:, :2]) ** 2, axis=1)

    return control.ControlProblem(
        control.ContinuousDynamics(unicycle_rate, 3, 2),
        jnp.zeros(3),
        duration=5.0,
        steps=steps,
        running=control.Effort(2.0),
        lower=-2.0,
        upper=2.0,
        constraints=control.Inequality(inside, "outside of the circles"),
        final_constraints=_reaching(jnp.array([3.0, 3.0, 0.5 * jnp.pi])),
    )


def furuta(steps: int) -> control.ControlProblem:
    """Swing-up of a Furuta pendulum, `library.furuta_pendulum`, from rest to rest with the arm where it was, in 2 s.

    Minimize the integral of (torque / 0.1 N m)^2, with |torque| <= 0.15 N m. Runge-Kutta steps of order 4.

    Source: mechanism: Cazzolato and Prime 2011; task: Furuta, Yamakita and Kobayashi 1992.
    """
    system = jaxdyn.library.system("furuta_pendulum")
    return control.ControlProblem(
        control.MultibodyDynamics(system),
        system.at_rest(jnp.zeros(2)),
        duration=2.0,
        steps=steps,
        running=control.Effort(2.0 / 0.1**2),
        lower=-0.15,
        upper=0.15,
        final_constraints=_reaching(system.at_rest(jnp.array([0.0, jnp.pi]))),
    )


def integrator_rate(x, u, t):
    """Position and speed of a unit mass under a force."""
    return jnp.stack([x[1], u[0]])


def double_integrator(steps: int) -> control.ControlProblem:
    """Unit mass from rest to rest over 1 m in the shortest time with |u| <= 1 N; the duration is free from 0.5 s to 10 s.

    The optimum is bang-bang, with a switch at the middle, and takes 2 sqrt(d / a) = 2 s; with an even number of steps the controls
    of the discrete problem contain it. The initial guess of the duration is 3 s. Runge-Kutta steps of order 4 are exact here.

    Source: Pontryagin et al. 1962; Bryson and Ho 1975, section 3.9.
    """
    return control.ControlProblem(
        control.ContinuousDynamics(integrator_rate, 2, 1),
        jnp.zeros(2),
        duration=3.0,
        steps=steps,
        final=control.ElapsedTime(),
        lower=-1.0,
        upper=1.0,
        final_constraints=_reaching(jnp.array([1.0, 0.0])),
        design=control.free_duration(3.0, 0.5, 10.0),
    )


def bryson_denham(steps: int) -> control.ControlProblem:
    """Unit mass from x = 0, v = 1 to x = 0, v = -1 in 1 s with x <= l = 1/9 m; minimize the integral of u^2 / 2.

    The optimum in continuous time is 4 / (9 l) = 4. Runge-Kutta steps of order 4, which are exact here; controls that are constant
    in each step cost more, and a bound on x at the nodes alone costs less.

    Source: Bryson, Denham and Dreyfus, AIAA Journal 1(11), 1963; Bryson and Ho 1975, section 3.11.
    """
    origin = jnp.zeros(2)
    bound = control.StateBounds(origin, upper=np.array([1.0 / 9.0, np.inf]), nx=2)
    return control.ControlProblem(
        control.ContinuousDynamics(integrator_rate, 2, 1),
        jnp.array([0.0, 1.0]),
        duration=1.0,
        steps=steps,
        running=control.Effort(1.0),
        constraints=control.Inequality(bound, "x <= l"),
        final_constraints=_reaching(jnp.array([0.0, -1.0])),
    )


def chain_accelerations(places: jax.Array) -> jax.Array:
    """Accelerations (masses, 2) of the masses between the fixed end and the moved end, from all places (masses + 2, 2)."""
    along = jnp.diff(places, axis=0)
    tension = CHAIN_STIFFNESS * (1.0 - CHAIN_LENGTH / jnp.sqrt(jnp.sum(along**2, axis=1, keepdims=True))) * along
    return jnp.diff(tension, axis=0) / CHAIN_MASS - jnp.array([0.0, GRAVITY])


def chain_rate(x, u, t):
    """Chain of masses: places of the masses and of the moved end, then the velocities of the masses; u moves the end."""
    n = 2 * CHAIN_MASSES
    places = jnp.concatenate([jnp.zeros((1, 2)), x[: n + 2].reshape(-1, 2)])
    return jnp.concatenate([x[n + 2 :], u, chain_accelerations(places).ravel()])


def hanging(end: tuple[float, float]) -> jax.Array:
    """The state of the chain in equilibrium, for a place of its moved end."""

    def forces(inner):
        places = np.concatenate([[0.0, 0.0], inner, end]).reshape(-1, 2)
        return np.asarray(chain_accelerations(jnp.asarray(places))).ravel()

    share = np.linspace(0.0, 1.0, CHAIN_MASSES + 2)[1:-1, None]
    sag = np.array([0.0, -2.0]) * share * (1.0 - share)
    inner = least_squares(forces, (share * np.array(end) + sag).ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15).x
    return jnp.asarray(np.concatenate([inner, end, np.zeros(2 * CHAIN_MASSES)]))


def chain(steps: int) -> control.ControlProblem:
    """Hanging chain of three masses of 0.03 kg on springs of 1 N/m and 0.033 m; one end is fixed, the velocity of the other is u.

    In the vertical plane, the moved end goes from 0.6 m on one side of the fixed end to 0.6 m on the other one in 2.5 s, at rest in
    equilibrium before and after. Minimize the integral of |u|^2, with |u_i| <= 1 m/s. Runge-Kutta steps of order 4.

    Source: after Wirsching, Bock and Diehl, CCA 2006; parameters of the example "masses chain" of acados.
    """
    n = 4 * CHAIN_MASSES + 2
    return control.ControlProblem(
        control.ContinuousDynamics(chain_rate, n, 2),
        hanging((0.6, 0.0)),
        duration=2.5,
        steps=steps,
        running=control.Effort(2.0),
        lower=-1.0,
        upper=1.0,
        final_constraints=_reaching(hanging((-0.6, 0.0))),
    )


def arm(steps: int) -> control.ControlProblem:
    """Reach of a Panda arm around a sphere of 0.16 m radius in 1 s, from rest to rest; three spheres on the arm keep 10 mm away.

    Minimize the integral of the sum of 50 (torque / limit)^2 and half of the squared speeds, with torques, angles and speeds within
    their limits. Steps of semi-implicit Euler.

    Source: arm: Gaz et al. 2019; obstacle of this benchmark.
    """
    system = jaxdyn.library.system("panda")
    model = system.model
    start, goal = (system.at_rest(jnp.array([waist, 0.2, 0.0, -2.0, 0.0, 2.2, 0.785])) for waist in (-0.8, 0.8))
    obstacle = jnp.array([[0.52, 0.0, 0.42]]), jnp.array([0.16])
    spheres = control.Spheres(CARRIERS, jnp.asarray(CENTERS), jnp.asarray(RADII), *obstacle, jnp.asarray(0.01))
    lower = np.concatenate([model.limits.lower, -model.limits.velocity])
    upper = np.concatenate([model.limits.upper, model.limits.velocity])
    within = control.StateBounds(system.at_rest(jnp.zeros(7)), lower, upper, nx=14)
    limits = model.limits.effort
    return control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        start,
        duration=1.0,
        steps=steps,
        running=(
            control.Effort(100.0 / limits**2),
            control.Deviation(start, jnp.concatenate([jnp.zeros(7), jnp.ones(7)])),
        ),
        lower=-limits,
        upper=limits,
        constraints=(control.Inequality(spheres, "clear of the sphere"), control.Inequality(within, "limits")),
        final_constraints=_reaching(goal),
    )


def satellite(steps: int) -> control.ControlProblem:
    """Rigid body with unit moments of inertia and three torques |u_i| <= 1: half a turn about z from rest to rest, in least time.

    The orientation is a quaternion. The duration is free from 1 s to 10 s, its initial guess is 4 s. A turn about the fixed axis
    takes 2 sqrt(pi) = 3.5449 s; the optimum, with five switches, takes 3.2431 s. Controls that are constant in each step cannot
    switch everywhere, so the discrete optimum is larger. Steps of the implicit midpoint rule.

    Source: Bilimoria and Wie, Journal of Guidance, Control, and Dynamics 16(3), 1993.
    """
    builder = jaxdyn.MechanismBuilder("rigid body", gravity=(0.0, 0.0, 0.0))
    builder.add_body("hull", joint=jaxdyn.Spherical(), mass=1.0, inertia=(1.0, 1.0, 1.0))
    system = jaxdyn.System(builder.build(), drives=jaxdyn.JointDrives((0, 1, 2), [1.0, 1.0, 1.0]))
    return control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.ImplicitMidpoint()),
        system.at_rest(jnp.array([1.0, 0.0, 0.0, 0.0])),
        duration=4.0,
        steps=steps,
        final=control.ElapsedTime(),
        lower=-1.0,
        upper=1.0,
        final_constraints=_reaching(system.at_rest(jnp.array([0.0, 0.0, 0.0, 1.0]))),
        design=control.free_duration(4.0, 1.0, 10.0),
    )


def four_bar(steps: int) -> control.ControlProblem:
    """Swing-up of a four-bar linkage (crank 0.1 m, coupler 0.3 m, rocker 0.25 m, rods of 1 kg/m, 1 kg at the end of the crank).

    From rest in the lowest position to rest in the highest one in 1 s, with |torque| <= b = 0.5 N m; a slow turn takes 1.2 N m.
    Minimize the integral of 50 (torque / b)^2. The loop is a constraint of the accelerations; the final constraint is that of the
    crank alone, and a final cost of weight zero defines the goal of the initial guesses. Steps of semi-implicit Euler.

    Source: Grashof's crank-rocker; parameters of this benchmark.
    """
    builder = jaxdyn.LinkageBuilder("four-bar")

    def rod(name: str, along: int, length: float, load: float = 0.0) -> None:
        end = np.eye(3)[along] * length
        com = (0.5 * length + load) / (length + load) * end
        about = length**3 / 12.0 + length * load / (length + load) * (0.5 * length) ** 2
        builder.add_body(name, mass=length + load, com=tuple(com), inertia=tuple(about * (1.0 - np.eye(3)[along])))

    hinge = jaxdyn.Revolute((0, 1, 0))
    rod("crank", 2, CRANK, 1.0)
    rod("coupler", 0, COUPLER)
    rod("rocker", 2, ROCKER)
    builder.add_joint("shaft", hinge, "ground", "crank")
    builder.add_joint("crank pin", hinge, "crank", "coupler", position_a=(0.0, 0.0, CRANK))
    builder.add_joint("rocker pivot", hinge, "ground", "rocker", position_a=(COUPLER, 0.0, CRANK - ROCKER))
    end = (COUPLER, 0.0, 0.0)
    builder.add_joint("rocker pin", hinge, "coupler", "rocker", position_a=end, position_b=(0.0, 0.0, ROCKER))
    system = dataclasses.replace(builder.build(), drives=jaxdyn.JointDrives((0,), [1.0]))

    @jax.jit
    def turn(angles):
        def closed(q, angle):
            q = jaxdyn.assemble(system, system.at_rest(q.at[0].set(angle))).q
            return q, (q, jaxdyn.potential_energy(system.model, q))

        return jax.lax.scan(closed, jnp.zeros(system.model.nq), angles)[1]

    q, energy = turn(jnp.linspace(0.0, 2.0 * jnp.pi, 361))
    lowest, highest = system.at_rest(q[jnp.argmin(energy)]), system.at_rest(q[jnp.argmax(energy)])

    def at_the_top(dynamics, t, x, u):
        return jnp.stack([x.q[0] - highest.q[0], x.v[0]])

    return control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        lowest,
        duration=1.0,
        steps=steps,
        running=control.Effort(100.0 / 0.5**2),
        final=control.Deviation(highest, 0.0),
        lower=-0.5,
        upper=0.5,
        final_constraints=control.Equality(at_the_top, "at rest at the top"),
    )


def parameters() -> dict[str, np.ndarray]:
    """Parameters that the peers need to state the same problems."""
    return {
        "quadrotor": np.array([QUADROTOR_MASS, QUADROTOR_ARM, QUADROTOR_INERTIA, GRAVITY]),
        "circles": CIRCLES,
        "chain": np.array([CHAIN_MASSES, CHAIN_MASS, CHAIN_STIFFNESS, CHAIN_LENGTH, GRAVITY]),
    }


BENCHMARKS = (
    Benchmark("cart-pole", cart_pole, 50),
    Benchmark("quadrotor", quadrotor, 40),
    Benchmark("unicycle", unicycle, 50),
    Benchmark("Furuta pendulum", furuta, 60),
    Benchmark("double integrator", double_integrator, 20, 2.0, "2 sqrt(d / a)"),
    Benchmark("Bryson-Denham", bryson_denham, 50, 4.0, "4 / (9 l)"),
    Benchmark("hanging chain", chain, 40),
    Benchmark("arm", arm, 20, large=True),
    Benchmark("satellite", satellite, 40, 3.2431, "Bilimoria and Wie 1993"),
    Benchmark("four-bar linkage", four_bar, 80, large=True),
)
