"""Which four-bar linkage draws a given curve, and what torque does its crank take?

Method. A crank, a coupler and a rocker, closed by a hinge, in the vertical x-z plane. The crank is a joint with prescribed
motion, so `jaxdyn.assemble` closes the linkage at every crank angle; a point of the coupler traces a curve. The distance between
this curve and the wanted one, of every point of either to the other, is made small by Adam over nine parameters: the lengths of
crank, coupler, rocker and base, two coordinates of the point on the coupler, place and direction of the base. Derivatives are
those of the implicit function theorem, through placements of joints and markers of the loop. Lengths are functions of
unconstrained parameters that make every choice a crank-rocker whose crank turns all the way. Many random starts run at once;
those that do not close are out.

The best linkage then turns: at constant speed, where `jaxdyn.driving_forces` gives the torque on the crank, and with a motor and
a speed controller, simulated with exactly closed loops (`jaxdyn.Projected`). Masses are those of uniform rods; a weight sits at the
tracing point.

Expected. The default curve, a straight stroke that returns along half an ellipse, is not a coupler curve of a crank-rocker, so an
error remains, some percent of its width. Without friction the work over a turn is zero, and the simulated point stays on the
curve of the kinematics.

Run time. About 90 s on two cores.

    python experiments/fourbar_coupler.py [configs/fourbar_coupler.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import ConfigError, RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main
from jaxdyn.spatial.transform import RigidTransform


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        curve: Shape of the desired curve: "stroke" (straight, back along half an ellipse), "eight" or "triangle".
        points: Corners (x, z), in order, of a closed curve that replaces `curve`.
        width, height: Width and height of the desired curve.
        angles: Crank angles at which the linkage is assembled.
        starts: Number of random linkages as initial guesses.
        steps: Number of steps of the optimizer.
        rate: Initial learning rate, which decreases to zero.
        transmission: Smallest allowed angle between coupler and rocker.
        seed: Seed of the random initial guesses.
        density: Mass of the rods per meter, in kg.
        weight: Mass at the tracing point.
        rotor: Inertia of the motor on the crank about its axis.
        speed: Speed of the crank.
        gain: Gain of the speed controller of the motor.
        turns: Number of simulated turns of the crank.
        step: Time step of the simulation.
    """

    curve: Literal["stroke", "eight", "triangle"] = "stroke"
    points: tuple[tuple[float, float], ...] = ()
    width: float = setting(0.2, unit="m", positive=True)
    height: float = setting(0.06, unit="m", positive=True)
    angles: int = setting(72, minimum=8.0)
    starts: int = setting(64, positive=True)
    steps: int = setting(1500, positive=True)
    rate: float = setting(0.03, positive=True)
    transmission: float = setting(0.5, unit="rad", positive=True)
    seed: int = seed_setting()
    density: float = setting(1.0, positive=True)
    weight: float = setting(0.5, unit="kg", positive=True)
    rotor: float = setting(0.01, unit="kg m^2", positive=True)
    speed: float = setting(6.0, unit="rad/s", positive=True)
    gain: float = setting(0.5, unit="N m s/rad", positive=True)
    turns: int = setting(3, positive=True)
    step: float = setting(1e-3, unit="s", positive=True)

    def __post_init__(self):
        if self.points and len(self.points) < 3:
            raise ValueError(f"points: {len(self.points)} of them do not make a closed curve; give at least 3")


class Linkage(NamedTuple):
    """The nine parameters, m and rad.

    Attributes:
        crank, coupler, rocker, base: Lengths; `base` is the distance of the two pivots on the ground.
        along, across: Position of the tracing point on the coupler, relative to the crank pin.
        x, z: Position of the pivot of the crank.
        direction: Direction of the base, from the pivot of the crank to that of the rocker, above x.
    """

    crank: Array
    coupler: Array
    rocker: Array
    base: Array
    along: Array
    across: Array
    x: Array
    z: Array
    direction: Array


def linkage_of(free: Array, size: float) -> Linkage:
    """The crank-rocker of nine unconstrained parameters; each crank-rocker corresponds to one choice of these.

    The crank turns all the way if |coupler - rocker| < base - crank and base + crank < coupler + rocker (Grashof).
    """
    crank, excess, slack = size * jnp.exp(free[0]), size * jnp.exp(free[1]), size * jnp.exp(free[2])
    base = crank + excess
    total, difference = base + crank + slack, excess * jnp.tanh(free[3])
    along, across, x, z = size * free[4:8]
    return Linkage(crank, 0.5 * (total + difference), 0.5 * (total - difference), base, along, across, x, z, free[8])


def random_numbers(config: Config, count: int) -> Array:
    """(count, 9) unconstrained parameters of linkages about as large as the curve."""
    rng = np.random.default_rng(config.seed)
    middle = np.array([-1.5, 0.0, -1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0])
    spread = np.array([0.4, 0.4, 0.5, 0.6, 0.7, 0.7, 0.7, 0.7, np.pi])
    return jnp.asarray(middle + spread * rng.normal(size=(count, 9)))


# --- the mechanism ---


def template(config: Config) -> jaxdyn.System:
    """A four-bar whose crank turns at constant speed; its parameters are replaced by `with_numbers`."""
    across = (0.0, -1.0, 0.0)  # turns x towards z
    builder = jaxdyn.MechanismBuilder("four-bar")
    rod = {"mass": 1.0, "inertia": (1.0, 1.0, 1.0)}
    crank = jaxdyn.Rheonomic(jaxdyn.Revolute(across), jaxdyn.ConstantRate(config.speed))
    builder.add_body("crank", joint=crank, joint_name="shaft", **rod)
    builder.add_body("coupler", parent="crank", joint=jaxdyn.Revolute(across), position=(1, 0, 0), **rod)
    builder.add_body("rocker", joint=jaxdyn.Revolute(across), position=(1, 0, 0), **rod)
    builder.add_frame("point", body="coupler", position=(1, 0, 0))
    model = builder.build()
    # The axis of a loop joint is z of its markers; about x, z is turned to y.
    marker = RigidTransform(jnp.array([1.0, -1.0, 0.0, 0.0]) / jnp.sqrt(2.0), jnp.array([1.0, 0.0, 0.0]))
    pin = jaxdyn.LoopJoint("rocker pin", "revolute", 1, marker, 2, marker)
    return jaxdyn.System(model, constraints=(pin,))


def with_numbers(system: jaxdyn.System, linkage: Linkage, config: Config) -> jaxdyn.System:
    """The linkage as a mechanism: places of joints, loop markers and tracing point, and masses of uniform rods."""
    pivot = in_plane(linkage.x, linkage.z)
    far_pivot = pivot + linkage.base * in_plane(jnp.cos(linkage.direction), jnp.sin(linkage.direction))
    zero = jnp.zeros_like(linkage.crank)
    crank_pin = in_plane(linkage.crank, zero)
    point = in_plane(linkage.along, linkage.across)
    coupler_end, rocker_end = in_plane(linkage.coupler, zero), in_plane(linkage.rocker, zero)
    rods = [[crank_pin], [coupler_end, point], [rocker_end]]
    weights = [0.0, config.weight, 0.0]
    numbers = (rods_and_weight(*x, point, config.density) for x in zip(rods, weights, strict=True))
    mass, com, inertia = map(jnp.stack, zip(*numbers, strict=True))
    disc = config.rotor * jnp.array([0.5, 1.0, 0.5, 0.0, 0.0, 0.0])
    inertia = inertia.at[0].add(disc)
    return eqx.tree_at(
        lambda s: (
            s.model.placement.translation,
            s.model.mass,
            s.model.com,
            s.model.inertia,
            s.model.frames.translation,
            s.constraints[0].frame_a.translation,
            s.constraints[0].frame_b.translation,
        ),
        system,
        (jnp.stack([pivot, crank_pin, far_pivot]), mass, com, inertia, point[None], coupler_end, rocker_end),
    )


def in_plane(x: Array, z: Array) -> Array:
    return jnp.stack([x, jnp.zeros_like(x), z])


def rods_and_weight(ends: list[Array], weight: float, at: Array, density: float):
    """Mass, mass center and inertia (xx, yy, zz, xy, xz, yz) of thin rods from the origin to these ends, and a weight."""
    lengths = [jnp.sqrt(jnp.sum(end * end) + 1e-12) for end in ends]
    mass = weight + density * sum(lengths)
    first = weight * at + density * sum(0.5 * length * end for length, end in zip(lengths, ends, strict=True))
    rods = sum(length / 3.0 * jnp.outer(end, end) for length, end in zip(lengths, ends, strict=True))
    com = first / mass
    planar = weight * jnp.outer(at, at) + density * rods - mass * jnp.outer(com, com)
    tensor = jnp.trace(planar) * jnp.eye(3) - planar
    return mass, com, tensor[np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])]


def traced(system: jaxdyn.System, q: Array, t: Array, iterations: int) -> tuple[Array, jaxdyn.constraints.Assembly]:
    """Tracing point (x, z) at time t, and the assembly from the guess q."""
    found = jaxdyn.assemble(system, system.at_rest(q), t, max_steps=iterations)
    return jaxdyn.frame_placement(system.model.at(t), found.q, "point").translation[jnp.array([0, 2])], found


def one_turn(
    system: jaxdyn.System, linkage: Linkage, times: Array, mode: Array
) -> tuple[Array, jaxdyn.constraints.Assembly]:
    """`traced` over a turn, each angle from the one before; the first from a guess with the rocker at one side of the base.

    Args:
        mode: Assembly mode of the linkage, 1 or -1.
    """

    def follow(q, t):
        point, found = traced(system, q, t, 30)
        return found.q, (point, found)

    guess = jnp.stack([linkage.direction + mode, linkage.direction + 1.5 * mode])
    return jax.lax.scan(follow, guess, times)[1]


# --- the curve ---


def wanted_curve(config: Config, count: int) -> np.ndarray:
    """(count, 2) points of the wanted curve at equal distances along it."""
    half, height = 0.5 * config.width, config.height
    turn = np.linspace(0.0, 2.0 * np.pi, 721)
    match config.curve:
        case "stroke":
            back = np.linspace(0.0, np.pi, 361)
            corners = np.concatenate([[(-half, 0.0)], np.stack([half * np.cos(back), height * np.sin(back)], axis=1)])
        case "eight":
            corners = np.stack([half * np.sin(turn), 0.5 * height * np.sin(2.0 * turn)], axis=1)
        case "triangle":
            corners = np.array([(-half, 0.0), (half, 0.0), (0.0, height), (-half, 0.0)])
    if config.points:
        corners = np.array([*config.points, config.points[0]], float)
    steps = np.linalg.norm(np.diff(corners, axis=0), axis=1)
    corners, along = corners[np.append(True, steps > 0)], np.append(0.0, np.cumsum(steps[steps > 0]))
    places = np.linspace(0.0, along[-1], count, endpoint=False)
    return np.stack([np.interp(places, along, column) for column in corners.T], axis=1)


def squared_distances(points: Array, curve: Array) -> Array:
    """From each point to a closed polygon, m^2."""
    start, side = curve, jnp.roll(curve, -1, axis=0) - curve
    to_point = points[:, None] - start[None]
    share = jnp.sum(to_point * side[None], axis=2) / (jnp.sum(side * side, axis=1) + 1e-12)[None]
    apart = to_point - jnp.clip(share, 0.0, 1.0)[..., None] * side[None]
    squares = jnp.sum(apart * apart, axis=2)
    # The derivative of jnp.min compares with the minimum, which compiled code may round otherwise: then it is 0/0.
    nearest = jnp.argmin(jax.lax.stop_gradient(squares), axis=1)
    return jnp.take_along_axis(squares, nearest[:, None], axis=1)[:, 0]


def mean_square_error(points: Array, wanted: Array) -> Array:
    """Mean over both curves of the squared distance to the other, m^2."""
    return 0.5 * (jnp.mean(squared_distances(points, wanted)) + jnp.mean(squared_distances(wanted, points)))


def bad_transmission(linkage: Linkage, smallest: float) -> Array:
    """How far the angle between coupler and rocker comes below the smallest wanted, where it is worst; by cosines."""
    sides = linkage.coupler**2 + linkage.rocker**2
    near, far = (jnp.abs(sides - (linkage.base + side * linkage.crank) ** 2) for side in (-1.0, 1.0))
    cosine = jnp.maximum(near, far) / (2.0 * linkage.coupler * linkage.rocker)
    return jnp.maximum(cosine - jnp.cos(smallest), 0.0) ** 2


# --- optimization ---


class Search(NamedTuple):
    """All starts.

    Attributes:
        free: Unconstrained parameters, (starts, 9).
        q: Coordinates at all crank angles, (starts, angles, 2).
        optimizer: State of the optimizer.
    """

    free: Array
    q: Array
    optimizer: optax.OptState


class Turn(NamedTuple):
    """A turn of each of many linkages, assembled from scratch.

    Attributes:
        points: Positions of the tracing point, (starts, angles, 2), m.
        q: Coordinates, (starts, angles, 2).
        error: Root mean square error of the curve, (starts,), m.
        closed: True if the linkage closes at every angle, (starts,).
    """

    points: np.ndarray
    q: np.ndarray
    error: np.ndarray
    closed: np.ndarray


class Designer:
    """The search for linkages; the computation per linkage and crank angle is compiled by `jaxdyn.batched`."""

    def __init__(self, config: Config):
        self.config, self.system, size = config, template(config), config.width
        self.wanted = jnp.asarray(wanted_curve(config, 2 * config.angles))
        self.times = jnp.linspace(0.0, 2.0 * jnp.pi / config.speed, config.angles, endpoint=False)
        self.modes = jnp.where(jnp.arange(config.starts) % 2 == 0, 1.0, -1.0)

        def turn(free: Array, mode: Array):
            linkage = linkage_of(free, size)
            points, found = one_turn(with_numbers(self.system, linkage, config), linkage, self.times, mode)
            return points, found.q, jnp.all(found.closed)

        def step(free: Array, q: Array, t: Array):
            # A step of the optimizer changes little: the assembly of the step before is near.
            point, found = traced(with_numbers(self.system, linkage_of(free, size), config), q, t, 3)
            return point, found.q

        self._turns, self._steps = jaxdyn.batched(turn), jaxdyn.batched(step)
        self.optimizer = optax.adam(optax.cosine_decay_schedule(config.rate, config.steps))
        self._improve = jax.jit(self._improved, static_argnums=1)

    def turns(self, free: Array) -> Turn:
        """All linkages through a turn."""
        points, q, closed = self._turns(free, self.modes)
        error = jnp.sqrt(jax.jit(jax.vmap(mean_square_error, (0, None)))(points, self.wanted))
        return Turn(*map(np.asarray, (points, q, error, closed)))

    def search(self, free: Array, q: Array) -> tuple[Array, np.ndarray]:
        """Unconstrained parameters after the search, and the root mean square errors in its course, (steps, starts), m."""
        state, errors, total = Search(free, q, self.optimizer.init(free)), [], self.config.steps
        chunk = max(1, total // 50)
        with tqdm(total=total, unit="step", desc=f"{self.config.starts} linkages") as bar:
            while bar.n < total:
                count = min(chunk, total - bar.n)
                state, error = self._improve(state, count)
                errors.append(np.sqrt(np.asarray(error)))
                bar.update(count)
        return state.free, np.concatenate(errors)

    def _improved(self, state: Search, count: int) -> tuple[Search, Array]:
        def step(state, _):
            slope, (error, q) = jax.grad(self._loss, has_aux=True)(state.free, state.q)
            slope = jnp.where(jnp.isfinite(slope), slope, 0.0)  # a linkage that does not close stays unchanged
            updates, memory = self.optimizer.update(slope, state.optimizer)
            return Search(state.free + jnp.asarray(updates), q, memory), error

        return jax.lax.scan(step, state, None, length=count)

    def _loss(self, free: Array, q: Array):
        """Sum over all linkages, so that its gradient holds that of each; their mean square errors and assemblies beside it."""
        starts, angles = q.shape[:2]
        points, q_new = self._steps(
            jnp.repeat(free, angles, axis=0), q.reshape(starts * angles, -1), jnp.tile(self.times, starts)
        )
        error = jax.vmap(mean_square_error, (0, None))(points.reshape(starts, angles, 2), self.wanted)
        linkages = jax.vmap(lambda numbers: linkage_of(numbers, self.config.width))(free)
        poor = jax.vmap(lambda linkage: bad_transmission(linkage, self.config.transmission))(linkages)
        total = jnp.sum(error / self.config.width**2 + 0.1 * poor)
        return total, (error, q_new.reshape(q.shape))


# --- the best linkage at work ---


def torque_over_a_turn(system: jaxdyn.System, q: Array, times: Array) -> tuple[Array, Array]:
    """Torque on the crank at constant speed (N m) and velocities of all three joints (rad/s)."""

    def at(q, t):
        v = jaxdyn.project_velocity(system, jaxdyn.State(q, jnp.zeros_like(q)), t)
        torque = jaxdyn.driving_forces(system, jaxdyn.State(q, v), t=t)["shaft"]
        return torque[0], v

    return jaxdyn.batched(at)(q, times)


def simulate(system: jaxdyn.System, config: Config, q: Array, v: Array) -> dict[str, np.ndarray]:
    """Turns with a motor in the crank, from an assembly at crank angle 0, with exactly closed loops."""
    motor = jaxdyn.JointDrives((0,), [1.0])
    free = jaxdyn.System(jaxdyn.released(system.model), drives=motor, constraints=system.constraints)
    start = jaxdyn.State(jnp.append(0.0, q), jnp.append(config.speed, v))

    def controller(t, state, key):
        return config.gain * (config.speed - state.v[:1])

    def record(t, state, u):
        place = jaxdyn.frame_placement(free.model, state.q, "point").translation
        residual = jnp.concatenate(
            [jnp.ravel(x) for x in jax.tree.leaves(jaxdyn.constraints.constraint_errors(free, state))]
        )
        return {
            "q": state.q,
            "v": state.v,
            "point": place[jnp.array([0, 2])],
            "torque": u[0],
            "residual": jnp.max(jnp.abs(residual)),
            "energy": jaxdyn.total_energy(free, state),
        }

    count = round(config.turns * 2.0 * np.pi / (config.speed * config.step))

    @jax.jit
    def run(start):
        return jaxdyn.rollout(
            free,
            start,
            controller,
            dt=config.step,
            steps=count,
            integrator=jaxdyn.Projected(),
            save=record,
            cost=jaxdyn.simulate.work_of_step(free),
        )

    done = run(start)
    arrays = {"time": done.time, **done.saved, "work": done.cost}
    return {name: np.asarray(x) for name, x in arrays.items()}


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        designer = Designer(config)
        free = random_numbers(config, config.starts)
        before = designer.turns(free)
        found, course = designer.search(free, jnp.asarray(before.q))
        after = designer.turns(found)
        failed = int(np.sum(~after.closed))
        if failed == config.starts:
            raise ConfigError("no linkage closes at every crank angle; change seed, or give more starts")
        best = int(np.argmin(np.where(after.closed, after.error, np.inf)))
        linkages = {
            name: linkage_of(numbers[best], config.width) for name, numbers in (("before", free), ("after", found))
        }
        systems = {name: with_numbers(designer.system, linkage, config) for name, linkage in linkages.items()}
        turns = {"before": before, "after": after}
        torque = {
            name: torque_over_a_turn(system, jnp.asarray(turns[name].q[best]), designer.times)
            for name, system in systems.items()
        }
        motion = simulate(systems["after"], config, jnp.asarray(after.q[best, 0]), torque["after"][1][0])
        stray = np.sqrt(np.max(jax.jit(squared_distances)(motion["point"], jnp.asarray(after.points[best]))))
        placed = {name: positions(system, turns[name].q[best], designer.times) for name, system in systems.items()}
    torques = {name: np.asarray(values) for name, (values, _) in torque.items()}
    wanted, points = np.asarray(designer.wanted), {name: turn.points[best] for name, turn in turns.items()}
    directory.write_mechanism(systems["after"])
    directory.write_arrays("curves", wanted=wanted, **points)
    directory.write_arrays("search", error=course, closed=after.closed, free=np.asarray(found))
    directory.write_arrays("torque", time=np.asarray(designer.times), **torques)
    directory.write_arrays("motion", **motion)
    draw_design(directory, config, wanted, points, placed, course, best, torques)
    draw_motion(directory, config, motion, wanted)

    errors = {name: float(turn.error[best]) for name, turn in turns.items()}
    largest = {name: float(np.max(np.abs(values))) for name, values in torques.items()}
    mean = float(np.mean(torques["after"]))
    print(table(linkages, errors, largest))
    print(f"{config.starts} starts: {failed} do not close; errors of the others, 10 best (mm): ", end="")
    print(", ".join(f"{1e3 * x:.2f}" for x in np.sort(after.error[after.closed])[:10]))
    print(f"Remaining error: {errors['after'] / config.width:.1%} of the width of the curve.")
    print(
        f"At constant speed the work over a turn is {2 * np.pi * mean:.1e} J, the largest torque {largest['after']:.3g} N m."
    )
    balance = float(jaxdyn.simulate.power_balance_error(motion["energy"], motion["work"]))
    residual = float(np.max(motion["residual"]))
    print(
        f"With a motor, {config.turns} turns: loop residual at most {residual:.1e}, power balance off by {balance:.1e} J, "
        f"speed {np.min(motion['v'][:, 0]):.2f} to {np.max(motion['v'][:, 0]):.2f} rad/s, "
        f"at most {1e3 * stray:.2g} mm off the polygon of the assembled positions."
    )
    return {
        "error": errors,
        "lengths": {
            name: {key: float(x) for key, x in linkage._asdict().items()} for name, linkage in linkages.items()
        },
        "failed": failed,
        "largest_torque": largest,
        "mean_torque": mean,
        "loop_residual": residual,
        "power_balance_error": balance,
        "off_the_kinematic_curve": float(stray),
    }


def table(linkages: dict[str, Linkage], errors: dict[str, float], torques: dict[str, float]) -> str:
    lines = ["| | before | after |", "|---|---|---|"]
    for name, *values in zip(Linkage._fields, *linkages.values(), strict=True):
        unit, scale = ("deg", 180.0 / np.pi) if name == "direction" else ("mm", 1e3)
        lines.append(f"| {name} ({unit}) | " + " | ".join(f"{scale * float(x):.1f}" for x in values) + " |")
    lines.append("| error of the curve (mm) | " + " | ".join(f"{1e3 * x:.2f}" for x in errors.values()) + " |")
    lines.append("| largest torque (N m) | " + " | ".join(f"{x:.3g}" for x in torques.values()) + " |")
    return "\n".join(lines)


# --- pictures ---


def positions(system: jaxdyn.System, q: np.ndarray, times: Array) -> np.ndarray:
    """(angles, 5, 2) pivot of the crank, crank pin, tracing point, rocker pin and pivot of the rocker, in the plane, m."""
    (pin,) = (joint for joint in system.constraints if isinstance(joint, jaxdyn.LoopJoint))

    def at(q, t):
        placed = jaxdyn.forward_kinematics(system.model.at(t), q)
        point = jaxdyn.frame_placement(system.model.at(t), q, "point").translation
        end = jax.tree.map(lambda x: x[2], placed).compose(pin.frame_b).translation
        return jnp.stack([placed.translation[0], placed.translation[1], point, end, placed.translation[2]])

    return np.asarray(jaxdyn.batched(at)(jnp.asarray(q), times))[:, :, ::2]


def draw_mechanism(axis: Any, corners: np.ndarray, alpha: float) -> None:
    pivot, crank_pin, point, rocker_pin, far_pivot = corners
    axis.fill(*np.stack([crank_pin, point, rocker_pin]).T, color="#9db8d9", alpha=0.5 * alpha, lw=0, zorder=3)
    for line in ([pivot, crank_pin], [crank_pin, point, rocker_pin, crank_pin], [rocker_pin, far_pivot]):
        axis.plot(*np.stack(line).T, color="#1f5fa8", alpha=alpha, lw=2.2, solid_capstyle="round", zorder=3)
    axis.plot(*np.stack([crank_pin, rocker_pin]).T, "o", color="white", mec="#1f5fa8", ms=4, alpha=alpha, zorder=4)
    axis.plot(*np.stack([pivot, far_pivot]).T, "^", color="#374151", ms=8, zorder=4)


def closed_line(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points, points[:1]]).T


def draw_design(
    directory: RunDirectory,
    config: Config,
    wanted: np.ndarray,
    points: dict[str, np.ndarray],
    placed: dict[str, np.ndarray],
    course: np.ndarray,
    best: int,
    torques: dict[str, np.ndarray],
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 5.4), layout="constrained")
    axes = figure.subplot_mosaic([["plane", "course"], ["plane", "torque"]], width_ratios=(1.35, 1.0))
    plane, right, below = axes["plane"], axes["course"], axes["torque"]
    plane.plot(*closed_line(wanted), color="#d9822b", lw=7, alpha=0.45, label="wanted")
    plane.plot(*closed_line(points["before"]), color="#6b7280", lw=1.2, ls="--", label="random start")
    plane.plot(*closed_line(points["after"]), color="#1b8a6b", lw=2.0, label="after optimization", zorder=5)
    count = len(placed["after"])
    for index in range(0, count, max(1, count // 6)):
        draw_mechanism(plane, placed["after"][index], 0.16)
    draw_mechanism(plane, placed["after"][0], 1.0)
    plane.plot(*placed["after"][0, 2], "o", color="#1b8a6b", ms=7, zorder=6)
    plane.set_aspect("equal")
    plane.set_xlabel("x (m)")
    plane.set_ylabel("z (m)")
    plane.legend(frameon=False, loc="best")
    millimeters = 1e3 * course
    right.semilogy(np.delete(millimeters, best, axis=1), color="#6b7280", lw=0.5, alpha=0.4)
    right.semilogy(millimeters[:, best], color="#1b8a6b", lw=2)
    right.set_xlabel("step of the optimizer")
    right.set_ylabel("error of the curve (mm)")
    angle = np.linspace(0.0, 360.0, config.angles, endpoint=False)
    below.plot(angle, torques["before"], color="#6b7280", lw=1.2, ls="--")
    below.plot(angle, torques["after"], color="#1b8a6b", lw=2)
    below.set_xlabel("crank angle (deg)")
    below.set_ylabel("torque on the crank (N m)")
    for axis in axes.values():
        axis.grid(alpha=0.25)
    figure.suptitle(f"A four-bar linkage learns a curve: best of {config.starts} starts")
    figure.savefig(directory.path("design.png"), dpi=90)


def draw_motion(directory: RunDirectory, config: Config, motion: dict[str, np.ndarray], wanted: np.ndarray) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 6.5), layout="constrained")
    axes = figure.subplots(2, 2)
    time = motion["time"]
    axes[0, 0].plot(time, motion["v"][:, 0], color="#1f5fa8")
    axes[0, 0].axhline(config.speed, color="#d9822b", ls="--")
    axes[0, 0].set_ylabel("speed of the crank (rad/s)")
    axes[0, 1].plot(*motion["point"].T, color="#1b8a6b", label="simulated")
    axes[0, 1].plot(*closed_line(wanted), color="#d9822b", lw=5, alpha=0.4, label="wanted")
    axes[0, 1].set_aspect("equal")
    axes[0, 1].set_xlabel("x (m)")
    axes[0, 1].set_ylabel("z (m)")
    axes[0, 1].legend(frameon=False)
    axes[1, 0].plot(time, motion["torque"], color="#1f5fa8")
    axes[1, 0].set_ylabel("torque of the motor (N m)")
    axes[1, 1].semilogy(time, np.maximum(motion["residual"], 1e-18), color="#1f5fa8")
    axes[1, 1].set_ylabel("residual of the loop and its rate (m, m/s)")
    for axis in axes.ravel():
        axis.grid(alpha=0.25)
    for axis in (axes[0, 0], axes[1, 0], axes[1, 1]):
        axis.set_xlabel("time (s)")
    figure.suptitle("The best linkage with a motor and a speed controller")
    figure.savefig(directory.path("motion.png"), dpi=90)


JOB = Job("fourbar-coupler", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
