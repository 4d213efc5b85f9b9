"""How does a one-legged robot jump to a given place, if the times of its contacts are not prescribed?

Method. A planar hopper (a trunk that does not turn, thigh, shank and a point foot) has motors at hip and knee. It stands, and must
stand at rest `distance` ahead at the end; a cost term lifts its trunk by `apex` in the middle of the motion. The dynamics contain
the contact force, so the times of lift-off and touch-down follow from the optimization by multiple shooting. In the first solve,
the ground is soft and the friction smooth; each further solve starts from the last solution, on stiffer ground with a shorter onset
and a smaller slip speed. The initial guess of the first solve comes from a simulated hop with PD controllers, which ILQR improves
with a penalty instead of the final constraint. For comparison, the last problem is also solved directly from this guess. The
torques have no limits in the problem; the table states the largest one.

The plan is then carried out on ground of default material and on ground that is ten times stiffer, with time steps that are four
times shorter: with the planned torques alone, and with PD controllers of hip and knee that follow the planned angles.

Expected. Every stage converges, most of them in about ten iterations. The planned torques alone do not bring the hopper to rest at
its target, because small differences grow from touch-down on. With the PD controllers, it stands some centimeters from its target.

Run time. About 1 min of processor time, most of it for compilation.

    python experiments/hopper_jump.py [configs/hopper_jump.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import brentq

import jaxdyn
from jaxdyn import control, view
from jaxdyn.dynamics import ContactMaterial, GroundContact, contact_forces, contact_sphere
from jaxdyn.io import RunDirectory, setting
from jaxdyn.jobs import Job, main
from jaxdyn.view import style

LINK, FOOT = 0.25, 0.02  # m; length of thigh and shank, radius of the foot
TRUNK, CARRIAGE, THIGH, SHANK, ARMATURE = 2.5, 0.5, 0.6, 0.3, 0.01  # kg, kg m^2
WEIGHT = 9.81 * (TRUNK + CARRIAGE + THIGH + SHANK)  # N
HIP = 0.8  # rad; the angle of the knee is -2 HIP, so that the foot is below the hip
EFFORT = 10.0 / 30.0**2  # per (N m)^2
POSTURE = 0.1  # weight of deviations of joint angles and of joint speeds
LIFT, LIFT_TIME = (
    1e6,
    0.02,
)  # weight of the height of the trunk in the middle of the motion, and width of this time in s
ENDS = (1e3, 1e5)  # penalties of the final state in ILQR, one after the other
GAINS, LARGEST = (
    (200.0, 5.0),
    30.0,
)  # of the PD controllers of hip and knee, N m/rad and N m s/rad; limit in the guess, N m
PUSH, STRETCH = (0.15, 0.3), 0.5  # s, rad; time and extension of the push of the initial guess
TOUCHES = 0.01 * WEIGHT  # N; normal force from which the foot counts as in contact


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        distance: Length of the jump.
        apex: Height to which the trunk is lifted in the middle of the motion.
        duration: Duration of the motion.
        steps: Number of time steps of the plan.
        sinks: Onset of the contact and depth at which its stiffness carries the weight, one for each stage.
        slip_speeds: Slip speed of the friction, one for each stage.
        max_steps: Maximum number of iterations of each solve.
        stiffness: Stiffness of the ground in the checks, in units of the default stiffness.
        refinement: Number of time steps of the checks per time step of the plan.
        animation: Whether to write an animation.
    """

    distance: float = setting(0.3, unit="m")
    apex: float = setting(0.15, unit="m", positive=True)
    duration: float = setting(0.8, unit="s", positive=True)
    steps: int = setting(160, positive=True)
    sinks: tuple[float, ...] = setting(
        (0.01, 0.007, 0.005, 0.0035, 0.0025, 0.0021, 0.0018, 0.0015, 0.0012, 0.001), unit="m", positive=True
    )
    slip_speeds: tuple[float, ...] = setting(
        (0.3, 0.2, 0.1, 0.06, 0.04, 0.03, 0.025, 0.02, 0.015, 0.01), unit="m/s", positive=True
    )
    max_steps: int = setting(300, positive=True)
    stiffness: tuple[float, ...] = setting((1.0, 10.0), positive=True)
    refinement: int = setting(4, positive=True)
    animation: bool = setting(True)

    def __post_init__(self):
        if not self.sinks or len(self.sinks) != len(self.slip_speeds):
            raise ValueError("sinks, slip_speeds: give as many sinks as slip speeds, one for each stage")


class Height(control.LeastSquares):
    """Quadratic cost of the deviation of the trunk from a height, near a given time.

    Attributes:
        height: Desired height, m.
        time: Time, s.
    """

    height: Float[Array, ""]
    time: Float[Array, ""]

    def residuals(self, dynamics, t, x, u):
        near = jnp.exp(-(((t - self.time) / LIFT_TIME) ** 2))
        return x.q[1:2] - self.height, LIFT * near[None]


class TrunkAtRest(control.ConstraintTerm):
    """Constraint: the trunk is at its target, at rest.

    Attributes:
        target: Coordinates of the trunk, m.
    """

    target: Float[Array, "2"]

    def __call__(self, dynamics, t, x, u):
        return jnp.concatenate([x.q[:2] - self.target, x.v[:2]])


def hopper() -> jaxdyn.Model:
    """The coordinates are x and z of the trunk, and the angles of hip and knee."""
    builder = jaxdyn.MechanismBuilder("hopper")
    builder.add_body("carriage", joint=jaxdyn.Prismatic((1.0, 0.0, 0.0)), mass=CARRIAGE, inertia=(1e-3,) * 3)
    builder.add_body(
        "trunk", parent="carriage", joint=jaxdyn.Prismatic((0.0, 0.0, 1.0)), mass=TRUNK, inertia=(1e-2,) * 3
    )
    for name, parent, height, mass in (("thigh", "trunk", 0.0, THIGH), ("shank", "thigh", -LINK, SHANK)):
        across = mass * LINK**2 / 12.0
        builder.add_body(
            name,
            parent=parent,
            position=(0, 0, height),
            joint=jaxdyn.Revolute((0.0, -1.0, 0.0)),
            mass=mass,
            com=(0, 0, -0.5 * LINK),
            inertia=(across, across, 1e-4),
            armature=ARMATURE,
        )
    builder.add_frame("foot", body="shank", position=(0, 0, -LINK))
    return builder.build()


def on_ground(model: jaxdyn.Model, **material: Any) -> jaxdyn.System:
    contact = GroundContact.of(model, contact_sphere("foot", radius=FOOT), **material)
    return jaxdyn.System(model, (contact,), drives=jaxdyn.JointDrives((2, 3), [1.0, 1.0]))


def material_of(system: jaxdyn.System) -> ContactMaterial:
    (contact,) = system.forces
    assert isinstance(contact, GroundContact)
    return contact.material


def of_stage(model: jaxdyn.Model, sink: float, slip_speed: float) -> jaxdyn.System:
    stiffness, mass = WEIGHT / sink, WEIGHT / 9.81
    values = {
        "stiffness": stiffness,
        "damping": math.sqrt(stiffness * mass),
        "onset": sink,
        "slip_speed": slip_speed,
    }
    return on_ground(model, **{name: jnp.asarray(value) for name, value in values.items()})


@eqx.filter_jit
def forces_along(system: jaxdyn.System, states: jaxdyn.State) -> Float[Array, "T 3"]:
    """Contact force on the foot along a motion, N."""
    return jax.vmap(lambda q, v: contact_forces(system, jaxdyn.State(q, v)).force[0])(states.q, states.v)


def standing(system: jaxdyn.System) -> jaxdyn.State:
    """The state at rest in which the ground carries the weight."""
    q, v = jnp.asarray([0.0, 0.0, HIP, -2.0 * HIP]), jnp.zeros((1, 4))

    def excess(height):
        return float(forces_along(system, jaxdyn.State(q.at[1].set(height)[None], v))[0, 2]) - WEIGHT

    touching = 2.0 * LINK * math.cos(HIP) + FOOT
    return system.at_rest(q.at[1].set(brentq(excess, touching - 0.1, touching + 0.01, xtol=1e-12)))


def jump(config: Config, system: jaxdyn.System, penalty: float | None = None) -> control.ControlProblem:
    """The control problem; with a penalty, a final cost replaces the final constraint."""
    start = standing(system)
    target = jaxdyn.State(start.q.at[0].add(config.distance), start.v)
    trunk, joints = np.array([1.0, 1, 0, 0] * 2), np.array([0.0, 0, 1, 1] * 2)
    end, constraints = 100.0 * POSTURE * joints * np.repeat([1.0, 0.01], 4), ()
    if penalty is None:
        constraints = control.Equality(TrunkAtRest(target.q[:2]), "at rest there")
    else:
        end = end + penalty * trunk * np.repeat([1.0, 0.1], 4)
    middle = jnp.asarray(0.5 * config.duration)
    return control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        start,
        duration=config.duration,
        steps=config.steps,
        running=(
            control.Effort(jnp.full(2, EFFORT)),
            control.Deviation(start, jnp.asarray(POSTURE * joints)),
            Height(start.q[1] + config.apex, middle),
        ),
        final=control.Deviation(target, jnp.asarray(end)),
        final_constraints=constraints,
    )


@eqx.filter_jit
def hop_on_the_spot(problem: control.ControlProblem) -> control.Plan:
    """A simulated hop with PD controllers."""
    base, dt = problem.initial.q[2:], problem.dt
    stretched = base + jnp.asarray([-STRETCH, 2.0 * STRETCH])

    def step(x, k):
        pushes = (k * dt >= PUSH[0]) & (k * dt < PUSH[1])
        u = GAINS[0] * (jnp.where(pushes, stretched, base) - x.q[2:]) - GAINS[1] * x.v[2:]
        u = jnp.clip(u, -LARGEST, LARGEST)
        return problem.dynamics.step(x, u, k * dt, dt), (x, u)

    end, (states, controls) = jax.lax.scan(step, problem.initial, jnp.arange(problem.steps))
    states = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), states, end)
    return control.Plan(states, controls, jnp.zeros(0))


@eqx.filter_jit
def solved(solver: Any, problem: control.ControlProblem, plan: control.Plan, iterations: int) -> control.Solution:
    return control.solve(problem, solver, plan, max_steps=iterations, throw=False)


def solve(
    config: Config, solver: Any, system: jaxdyn.System, penalty: float | None, plan: control.Plan, name: str
) -> tuple[control.Plan, dict[str, Any]]:
    """The solution of `jump`, and a row of the table of solves."""
    problem = jump(config, system, penalty)
    begin = time.process_time()
    found = jax.block_until_ready(solved(solver, problem, plan, config.max_steps))
    return found.value, {
        "stage": name,
        "result": control.ControlResult(int(found.result)).name,
        "iterations": int(found.stats.iterations),
        "violation": float(found.violation),
        "cost": float(found.cost),
        "processor_s": time.process_time() - begin,
        **contact_of(system, found.value, config.duration),
    }


def contact_of(system: jaxdyn.System, plan: control.Plan, duration: float) -> dict[str, float]:
    """Time in the air, apex, largest force and torque, and least margin to the friction cone of a motion."""
    force, z = np.asarray(forces_along(system, plan.states)), np.asarray(plan.states.q[:, 1])
    touches, friction = force[:, 2] > TOUCHES, float(material_of(system).friction)
    sideways = np.abs(force[touches, 0]) / (friction * force[touches, 2])
    return {
        "air_s": duration * float(np.mean(~touches)),
        "apex_m": float(np.max(z) - z[0]),
        "force_over_weight": float(np.max(force[:, 2])) / WEIGHT,
        "margin": float(1.0 - np.max(sideways, initial=0.0)),
        "torque_Nm": float(jnp.max(jnp.abs(plan.controls))),
    }


def refined(config: Config, problem: control.ControlProblem, plan: control.Plan, system: jaxdyn.System):
    """The problem and the plan with shorter time steps, on other ground."""
    count = config.refinement
    nodes, fine = np.arange(config.steps + 1), np.arange(count * config.steps + 1) / count

    def between(values):
        return jnp.asarray(np.stack([np.interp(fine, nodes, column) for column in np.asarray(values).T], axis=1))

    states = jaxdyn.State(*(between(values) for values in (plan.states.q, plan.states.v)))
    finer = control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        standing(system),
        duration=config.duration,
        steps=count * config.steps,
        running=problem.running,
    )
    return finer, control.Plan(states, jnp.repeat(plan.controls, count, axis=0), plan.design)


def carried_out(config: Config, model: jaxdyn.Model, problem: control.ControlProblem, plan: control.Plan):
    """Motions on stiff ground without and with feedback, and a row of the table of checks for each."""
    proportional, derivative = (jnp.concatenate([jnp.zeros((2, 2)), -gain * jnp.eye(2)], axis=1) for gain in GAINS)
    gains = jnp.broadcast_to(
        jnp.concatenate([proportional, derivative], axis=1), (config.refinement * config.steps, 2, 8)
    )
    default = float(material_of(on_ground(model)).stiffness)
    motions, rows = [], []
    for factor in config.stiffness:
        material = {} if factor == 1.0 else {"stiffness": factor * default}
        system = on_ground(model, **material)
        finer, reference = refined(config, problem, plan, system)
        goal = np.asarray(finer.initial.q[:2]) + np.array([config.distance, 0.0])
        for feedback in (False, True):
            motion = control.follow(finer, reference, float(feedback) * gains, finer.initial)
            end = np.asarray(motion.states.q[-1, :2]) - goal
            rows.append(
                {
                    "stiffness": factor,
                    "feedback": feedback,
                    "off_x_m": float(end[0]),
                    "off_z_m": float(end[1]),
                    "final_speed": float(jnp.max(jnp.abs(motion.states.v[-1, :2]))),
                    **contact_of(system, motion, config.duration),
                }
            )
            motions.append((system, motion))
    return motions, rows


def contact_cells(row: dict[str, Any]) -> str:
    return (
        f"{1e3 * row['air_s']:.0f} | {1e3 * row['apex_m']:.0f} | {row['force_over_weight']:.1f} | {row['margin']:.2f} | "
        f"{row['torque_Nm']:.1f} |"
    )


def tables(solves: list[dict[str, Any]], checks: list[dict[str, Any]]) -> str:
    shared = "air (ms) | apex (mm) | force / weight | margin to the friction cone | torque (N m) |"
    lines = [f"| solve | result | iterations | violation | cost | processor time (s) | {shared}", "|---" * 11 + "|"]
    for row in solves:
        lines.append(
            f"| {row['stage']} | {row['result'].lower()} | {row['iterations']} | {row['violation']:.0e} | {row['cost']:.3f} | "
            f"{row['processor_s']:.1f} | {contact_cells(row)}"
        )
    lines += ["", f"| stiffness / default | feedback | x off (mm) | z off (mm) | final speed (m/s) | {shared}"]
    lines.append("|---" * 10 + "|")
    for row in checks:
        lines.append(
            f"| {row['stiffness']:g} | {'yes' if row['feedback'] else 'no'} | {1e3 * row['off_x_m']:.1f} | "
            f"{1e3 * row['off_z_m']:.1f} | {row['final_speed']:.3f} | {contact_cells(row)}"
        )
    return "\n".join(lines)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        model = hopper()
        systems = [of_stage(model, *values) for values in zip(config.sinks, config.slip_speeds, strict=True)]
        names = [f"{1e3 * a:g} mm, {b:g} m/s" for a, b in zip(config.sinks, config.slip_speeds, strict=True)]
        guess, rows, plans = hop_on_the_spot(jump(config, systems[0])), [], []
        for penalty in ENDS:
            guess, row = solve(
                config, control.ILQR(tolerance=1e-6), systems[0], penalty, guess, f"initial guess, penalty {penalty:g}"
            )
            rows.append(row)
        shooting, plan = control.MultipleShooting(tolerance=1e-6), guess
        for system, name in zip(systems, names, strict=True):
            plan, row = solve(config, shooting, system, None, plan, name)
            rows.append(row)
            plans.append(plan)
        _, direct = solve(config, shooting, systems[-1], None, guess, f"{names[-1]}, directly")
        motions, checks = carried_out(config, model, jump(config, systems[-1]), plan)
        table = tables([*rows, direct], checks)
        print(table)
        directory.write_text("table.md", table + "\n")
        system, motion = motions[1]
        times = np.linspace(0.0, config.duration, len(motion.states.q))
        directory.write_arrays("states", time=times, q=motion.states.q, v=motion.states.v)
        directory.write_mechanism(system)
        draw(directory, config, systems, plans, names, motions)
        if config.animation:
            q, v = (np.asarray(values)[None] for values in (motion.states.q, motion.states.v))
            view.animate(
                system, times, q, directory.path("jump.gif"), v=v, fps=20, speed=0.25, size=360, progress=False
            )
    return {"solves": rows[len(ENDS) :], "guess": rows[: len(ENDS)], "direct": direct, "checks": checks}


def draw(directory: RunDirectory, config: Config, systems, plans, names, motions) -> None:
    """Postures of the jump, contact forces of stages and checks, and torques."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    (postures, stages), (torques, checks) = figure.subplots(2, 2)
    model, motion = systems[-1].model, motions[1][1]

    @jax.jit
    @jax.vmap
    def points(q):
        at = [jaxdyn.frame_placement(model, q, name).translation for name in ("trunk", "shank", "foot")]
        return jnp.stack(at)

    chosen = np.linspace(0, len(motion.states.q) - 1, 17).round().astype(int)
    path = np.asarray(points(motion.states.q))
    for share, line in zip(np.linspace(0.25, 1.0, len(chosen)), path[chosen], strict=True):
        postures.plot(line[:, 0], line[:, 2], "-o", color=style.BLUE, alpha=share, lw=1.6, ms=3)
    postures.plot(path[:, 2, 0], path[:, 2, 2], color=style.ORANGE, lw=1.0)
    postures.axhline(0.0, color=style.GRAY, lw=1.0)
    postures.set(aspect="equal", xlabel="x (m)", ylabel="z (m)", title="default ground, with feedback")
    time_of_nodes = np.linspace(0.0, config.duration, config.steps + 1)
    for k, (system, plan, name) in enumerate(zip(systems, plans, names, strict=True)):
        share = (k + 1) / len(systems)
        force = np.asarray(forces_along(system, plan.states))[:, 2] / WEIGHT
        stages.plot(time_of_nodes, force, color=style.BLUE, alpha=share, lw=1.0, label=name)
    stages.set(xlabel="time (s)", ylabel="normal force / weight", title="plans, by stage")
    for k, (name, color) in enumerate((("hip", style.BLUE), ("knee", style.ORANGE))):
        torques.step(time_of_nodes[:-1], plans[0].controls[:, k], where="post", color=color, lw=1.0, ls=":")
        torques.step(time_of_nodes[:-1], plans[-1].controls[:, k], where="post", color=color, lw=1.2, label=name)
    torques.set(xlabel="time (s)", ylabel="torque (N m)", title="torques; dotted: first stage")
    for (system, done), factor, color in zip(
        motions[1::2], config.stiffness, (style.BLUE, style.ORANGE, style.GREEN), strict=False
    ):
        times = np.linspace(0.0, config.duration, len(done.states.q))
        force = np.asarray(forces_along(system, done.states))[:, 2] / WEIGHT
        checks.plot(times, force, color=color, lw=1.0, label=f"{factor:g} x default stiffness")
    checks.set(xlabel="time (s)", ylabel="normal force / weight", title="carried out with feedback")
    for axis in (postures, stages, torques, checks):
        axis.grid(alpha=0.25)
        axis.title.set_fontsize(9)
    for axis in (stages, torques, checks):
        axis.legend(frameon=False, fontsize=7)
    view.save(figure, directory.path("jump.png"))


def verdict(metrics: dict[str, Any]) -> str | None:
    if metrics["smoke"] or all(row["result"] == "SUCCESSFUL" for row in metrics["solves"]):
        return None
    return "a stage did not converge; use more stages or more iterations"


JOB = Job("hopper-jump", __doc__ or "", Config, work, verdict=verdict, then=("jaxdyn view {run}",))

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
