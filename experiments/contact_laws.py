"""Does contact follow its closed forms, and which step and stiffness should a simulation have?

Method. Each scene runs in float64 for several steps dt, all steps in one batch. A sphere strikes the ground without gravity, with
several damping ratios; the square of the ratio of its speeds is that of the heights of fall and rebound (T9). A sliding sphere
begins to roll; a sphere rolls down an incline; a block stands on an incline, or slides from rest. With MuJoCo
(`pip install mujoco`), the same scenes run with its soft contacts and elliptic friction cones. A sphere and a quadruped with servos
fall 0.1 m, for each step, stiffness and integrator; the reference is the default integrator with `reference_step`. An oblique
impact measures the ratio of the tangential and the normal impulse.

Expected. Errors of the bounce decrease with dt, as if w dt/2 with the frequency w = sqrt(k/m) were added to a small damping ratio.
The final speed, the acceleration of the rolling sphere and the creep speed are exact at every step. A block that starts to slide
follows a rigid one within 0.7 % at 2 ms. The default integrator is stable and gains no energy;
stiff contacts with long steps penetrate deeper, because an impact can close other contacts of a body. Explicit steps of the
quadruped are unstable. The ratio of impulses is the friction coefficient at every step.

Run time. About 2 min on two cores.

    python experiments/contact_laws.py [configs/contact_laws.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import view
from jaxdyn.dynamics import GroundContact, HalfSpace, contact_box, contact_forces, contact_sphere
from jaxdyn.io import RunDirectory, setting
from jaxdyn.jobs import Job, main
from jaxdyn.view import style

RADIUS, MASS, G = 0.1, 1.0, 9.80665
BLOCK = np.array([0.2, 0.2, 0.1])
SPHERE_INERTIA = np.full(3, 0.4 * MASS * RADIUS**2)
BLOCK_INERTIA = MASS / 12.0 * (np.sum(BLOCK**2) - BLOCK**2)
SLIDE_SPEED, SLIDE_FRICTION, BLOCK_FRICTION = 2.0, 0.3, 0.5
ROLL_ANGLE = math.radians(10.0)
DROP = 0.1
COMPARED = 2e-3  # s, the step nearest to this is compared with MuJoCo
CREEP_ANGLE = math.radians(20.0)
START_SHARES = (1.1, 1.5)  # slopes on which a block starts to slide, divided by the friction coefficient
_BOUNCE_STIFFNESS, _BOUNCE_ONSET, _BOUNCE_SPEED = 2.5e4, 1e-5, 2.0
_FALLING, _OBLIQUE = 2.0, (10.0, 2.0)
INTEGRATORS = {
    "implicit": jaxdyn.SemiImplicitEuler(),
    "explicit": jaxdyn.SemiImplicitEuler("explicit"),
    "Runge-Kutta 4": jaxdyn.RungeKutta4(),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        steps: Time steps.
        reference_step: Time step of the reference.
        stiffness: Stiffness of the contact, as multiples of the default.
        damping_ratios: Damping ratios of the bounces.
        angles: Angles of the incline on which the block stands or slides.
        phases: Number of impacts per step whose starts are shifted by fractions of the step.
        integrators: Integrators of the falls.
        falling: Falling mechanisms.
        animation: If true, an animation is drawn.
    """

    steps: tuple[float, ...] = setting((0.5e-3, 1e-3, 2e-3, 5e-3, 10e-3), unit="s", positive=True)
    reference_step: float = setting(5e-5, unit="s", positive=True)
    stiffness: tuple[float, ...] = setting((1.0, 10.0, 100.0), unit="1", positive=True)
    damping_ratios: tuple[float, ...] = setting((0.05, 0.1, 0.2, 0.4, 0.7), unit="1", minimum=0.0)
    angles: tuple[float, ...] = setting((0.1, 0.3, 0.6), unit="rad")
    phases: int = setting(8, positive=True)
    integrators: tuple[Literal["implicit", "explicit", "Runge-Kutta 4"], ...] = ("implicit",)
    falling: tuple[Literal["sphere", "quadruped"], ...] = ("sphere", "quadruped")
    animation: bool = setting(True)


def restitution(ratio: float) -> float:
    """Ratio of the speeds after and before an impact. Source: theory.md (T9), by Simpson's rule."""
    angle = np.linspace(-np.pi / 2, np.pi / 2, 20001)
    sine, cosine = np.sin(angle), np.cos(angle)
    pushed = 2.0 * ratio * sine + np.sqrt(cosine**2 + (2.0 * ratio * sine) ** 2)
    rate = sine * (cosine - pushed) / (sine**2 + pushed * cosine)
    weights = np.concatenate([[1.0], np.tile([4.0, 2.0], 9999), [4.0, 1.0]])
    return float(np.exp(np.dot(weights, rate) * (angle[1] - angle[0]) / 3.0))


def free_body(inertia: np.ndarray, gravity: float = G) -> jaxdyn.Model:
    builder = jaxdyn.MechanismBuilder("body", gravity=(0.0, 0.0, -gravity))
    builder.add_body("body", joint=jaxdyn.Free(), mass=MASS, inertia=np.diag(inertia))
    return builder.build()


def on_ground(model: jaxdyn.Model, points, angle: Any = 0.0, **material) -> jaxdyn.System:
    """System on a plane that descends along x."""
    incline = HalfSpace(jnp.stack([jnp.sin(angle), jnp.zeros_like(angle), jnp.cos(angle)]))
    return jaxdyn.System(model, (GroundContact.of(model, points, incline, **material),))


def placed(height: Any, angle: Any = 0.0, tilt: Any = 0.0) -> jax.Array:
    """Coordinates of a body at a height above the incline, tilted about y."""
    half = 0.5 * (angle + tilt)
    zero = jnp.zeros_like(half)
    return jnp.stack([height * jnp.sin(angle), zero, height * jnp.cos(angle), jnp.cos(half), zero, jnp.sin(half), zero])


def rest_depth(load: Any, system: jaxdyn.System) -> jax.Array:
    """Depth of a contact point that carries a load."""
    (contact,) = system.forces
    assert isinstance(contact, GroundContact)
    return load / contact.material.stiffness + 0.5 * contact.material.onset


def rollout(system, state, dt, duration, shortest, integrator=INTEGRATORS["implicit"], **options):
    """Rollout of a given duration whose step can differ between the samples of a batch."""
    steps = math.ceil(duration / shortest - 1e-6)
    end = lambda t, state: t > duration - 0.5 * dt  # noqa: E731
    return jaxdyn.rollout(system, state, dt=dt, steps=steps, integrator=integrator, stop=end, **options)


def over_batch(function, *axes):
    """Results for all combinations of arguments, with one axis per argument."""
    grid = [jnp.ravel(x) for x in jnp.meshgrid(*map(jnp.asarray, axes), indexing="ij")]
    results = jax.jit(jax.vmap(function))(*grid)
    shape = tuple(len(axis) for axis in axes)
    return jax.tree.map(lambda x: np.asarray(x).reshape(*shape, *x.shape[1:]), results)


def made(steps, *records) -> list[tuple]:
    """Records of each sample of a batch, without those after its end."""
    arrays = [np.asarray(record) for record in records]
    return [tuple(array[k][: int(count) + 1] for array in arrays) for k, count in enumerate(np.asarray(steps))]


def bounces(config: Config) -> dict[str, Any]:
    """Ratios of the heights of fall and rebound (damping ratios, steps, phases), and the closed form."""
    model, steps = free_body(SPHERE_INERTIA, 0.0), (config.reference_step, *config.steps)
    duration = 8.0 * math.pi * math.sqrt(MASS / _BOUNCE_STIFFNESS) + 2.0 * max(steps)

    def rebound(ratio, dt, phase):
        system = on_ground(
            model,
            contact_sphere("body", radius=RADIUS),
            stiffness=_BOUNCE_STIFFNESS,
            damping=2.0 * ratio * jnp.sqrt(_BOUNCE_STIFFNESS * MASS),
            onset=_BOUNCE_ONSET,
        )
        v = jnp.zeros(6).at[5].set(-_BOUNCE_SPEED)
        start = jaxdyn.State(placed(RADIUS + phase * dt * _BOUNCE_SPEED), v)
        steps = math.ceil(duration / min(config.steps[0], config.reference_step))
        end = rollout(system, start, dt, duration, duration / steps, save_every=steps).final
        return (end.v[5] / _BOUNCE_SPEED) ** 2

    phases = (np.arange(config.phases) + 0.5) / config.phases
    exact = np.array([restitution(ratio) ** 2 for ratio in config.damping_ratios])
    return {"steps": steps, "heights": over_batch(rebound, config.damping_ratios, steps, phases), "exact": exact}


def spheres(config: Config) -> dict[str, Any]:
    """A sliding sphere and a sphere on an incline: time, and downhill position, speed and slip (records, 3), by step."""
    model, points = free_body(SPHERE_INERTIA), contact_sphere("body", radius=RADIUS)

    def motion(angle, speed, friction, dt):
        system = on_ground(model, points, angle, friction=friction)
        depth = rest_depth(MASS * G * jnp.cos(angle), system)
        q = placed(RADIUS - depth, angle)

        def record(t, state, u):
            ahead = jnp.stack([jnp.cos(angle), 0.0 * angle, -jnp.sin(angle)])
            slip = contact_forces(system, state).velocity[0]
            p = jaxdyn.momentum(model, state.q, state.v)
            return jnp.stack([ahead @ state.q[:3], ahead @ p / MASS, ahead @ slip])

        run = rollout(system, jaxdyn.State(q, jnp.zeros(6).at[3].set(speed)), dt, 1.0, min(config.steps), save=record)
        return run.steps, run.time, run.saved

    both = [(0.0, SLIDE_SPEED, SLIDE_FRICTION), (ROLL_ANGLE, 0.0, 0.8)]
    cases = jnp.asarray([(*case, dt) for case in both for dt in config.steps])
    each = made(*jax.jit(jax.vmap(motion))(*cases.T))
    return {"slide": each[: len(config.steps)], "roll": each[len(config.steps) :]}


def slide_results(t, speed, slip) -> tuple[float, float]:
    """Final speed relative to the initial one, and the time of the transition to rolling.

    The time is that at which the slip velocity has fallen to 1 % of its initial value, divided by 0.99.
    """
    k = int(np.argmax(slip < 0.01 * SLIDE_SPEED))
    share = (slip[k - 1] - 0.01 * SLIDE_SPEED) / (slip[k - 1] - slip[k])
    return float(speed[-1] / SLIDE_SPEED), float((t[k - 1] + share * (t[k] - t[k - 1])) / 0.99)


def fitted(t, x) -> tuple[float, float]:
    """Speed at the end and acceleration of a motion, from its second half."""
    late = t > 0.5 * t[-1]
    second, first, _ = np.polyfit(t[late] - t[-1], x[late], 2)
    return float(first), 2.0 * float(second)


def blocks(config: Config, angles: tuple[float, ...]) -> list[list[tuple]]:
    """Times and downhill positions of a block, by angle and step."""
    model = free_body(BLOCK_INERTIA)

    def motion(angle, dt):
        system = on_ground(model, contact_box("body", BLOCK), angle, friction=BLOCK_FRICTION)
        depth = rest_depth(0.25 * MASS * G * jnp.cos(angle), system)
        q = placed(0.5 * BLOCK[2] - depth, angle)
        record = lambda t, state, u: jnp.cos(angle) * state.q[0] - jnp.sin(angle) * state.q[2]  # noqa: E731
        run = rollout(system, system.at_rest(q), dt, 2.0, min(config.steps), save=record)
        return run.steps, run.time, run.saved

    return [made(*of_angle) for of_angle in zip(*over_batch(motion, angles, config.steps), strict=True)]


def start_angles() -> tuple[float, ...]:
    return tuple(math.atan(share * BLOCK_FRICTION) for share in START_SHARES)


def slid(t, x) -> float:
    """Distance in the first second."""
    return float(np.interp(1.0, t, x) - x[0])


def creep_speed(angle: float, friction: float, slip_speed: float = 1e-5) -> float:
    used = math.tan(angle) / friction
    return slip_speed * used / math.sqrt(1.0 - used**2)


def gain(energy: np.ndarray, stored: np.ndarray) -> float:
    """Largest energy of the bodies, without the energy stored in contacts, beyond an earlier sum of both."""
    return float(np.max(energy - stored - np.minimum.accumulate(energy)))


def quadruped_pose() -> tuple[jaxdyn.Model, np.ndarray, tuple]:
    """Quadruped with bent legs whose feet touch the ground."""
    model = jaxdyn.library.quadruped()
    feet = sum((contact_sphere(f"{leg}_foot", radius=0.02) for leg in ("fl", "fr", "rl", "rr")), ())
    q = np.zeros(model.nq)
    q[3] = 1.0
    q[7:] = np.tile([0.0, 0.6, -1.2], 4)
    lowest = jaxdyn.frame_placement(model, jnp.asarray(q), "fl_foot").translation[2] - 0.02
    q[2] -= float(lowest)
    return model, q, feet


def scenes() -> dict[str, tuple]:
    """Model, coordinates in contact without load, contact points and forces of the falling mechanisms."""
    model, q, feet = quadruped_pose()
    gains = np.concatenate([np.zeros(6), np.ones(12)])
    sphere = free_body(SPHERE_INERTIA), np.asarray(placed(RADIUS)), contact_sphere("body", radius=RADIUS), ()
    return {"sphere": sphere, "quadruped": (model, q, feet, (jaxdyn.JointServo(60.0 * gains, 2.0 * gains, q),))}


def fall(scene: tuple, config: Config, integrator: jaxdyn.simulate.Integrator) -> dict[str, np.ndarray]:
    """Measurements of a fall of 0.1 m: arrays (stiffness, steps), the reference step first."""
    model, q, points, forces = scene
    weight, steps = float(np.sum(model.mass)) * G, (config.reference_step, *config.steps)
    default = float(GroundContact.of(model, points).material.stiffness)

    def motion(share, dt):
        contact = GroundContact.of(model, points, stiffness=share * default)
        system = jaxdyn.System(model, (*forces, contact))

        def record(t, state, u):
            depth = contact_forces(system, state).depth
            energy = jaxdyn.total_energy(system, state)
            for servo in forces:  # their springs store energy
                energy += 0.5 * servo.stiffness @ jaxdyn.configuration.difference(model, state.q, servo.target) ** 2
            stored = contact.material.energy(depth)
            return jnp.stack([jnp.max(depth), energy, stored, jaxdyn.momentum(model, state.q, state.v)[2]])

        start = system.at_rest(jnp.asarray(q).at[2].add(DROP))
        run = rollout(system, start, dt, _FALLING, min(steps), integrator, save=record)
        return run.time, run.saved, run.healthy

    t, saved, healthy = over_batch(motion, config.stiffness, steps)
    names = ("deepest", "at_rest", "energy_error", "force", "gain")
    found = {name: np.zeros(healthy.shape) for name in names}
    for at in np.ndindex(*healthy.shape):
        depth, energy, stored, momentum = saved[at].T
        falling = t[at] < _FALLING + 1e-9
        force = np.diff(momentum[falling]) / np.diff(t[at][falling]) + weight
        late = falling & (t[at] > _FALLING - 0.2)
        values = (
            np.max(depth),
            np.mean(depth[late]),
            0.0,
            np.max(force) / weight,
            gain(energy, stored) / (weight * DROP),
        )
        for name, value in zip(names, values, strict=True):
            found[name][at] = value
    return found | {"healthy": healthy, "time": t, "energy": saved[..., 1] / (weight * DROP)}


def falls(config: Config) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Results of `fall` by scene and integrator; energy errors are means over time, relative to the energy of the fall.

    A run is stable if it does not diverge and its depth at rest differs by less than 5 % from that of the reference.
    """
    results = {}
    for name in config.falling:
        scene = scenes()[name]
        runs = {kind: fall(scene, config, INTEGRATORS[kind]) for kind in config.integrators}
        reference = runs[config.integrators[0]]
        for run in runs.values():
            for at in np.ndindex(*run["healthy"].shape):
                base = reference["time"][at[0], 0], reference["energy"][at[0], 0]
                instants = np.linspace(0.0, _FALLING, 2001)
                here = np.interp(instants, run["time"][at], run["energy"][at])
                run["energy_error"][at] = np.mean(np.abs(here - np.interp(instants, *base)))
            settled = np.abs(run["at_rest"] / reference["at_rest"][:, :1] - 1.0) < 0.05
            run["stable"] = run["healthy"] & settled
        results[name] = runs
    return results


def oblique(config: Config) -> np.ndarray:
    """Ratio of tangential and normal impulse, divided by the friction coefficient (stiffness, steps, phases)."""
    model, points = free_body(SPHERE_INERTIA, 0.0), contact_sphere("body", radius=RADIUS)
    default = float(GroundContact.of(model, points).material.stiffness)
    along, down = _OBLIQUE
    duration = 0.4

    def impulses(share, dt, phase):
        system = on_ground(model, points, stiffness=share * default, friction=SLIDE_FRICTION)
        v = jnp.zeros(6).at[3].set(along).at[5].set(-down)
        steps = math.ceil(duration / min(config.steps))
        start = jaxdyn.State(placed(RADIUS + phase * dt * down), v)
        end = rollout(system, start, dt, duration, duration / steps, save_every=steps).final
        x, _, z = jaxdyn.momentum(model, end.q, end.v)
        return (MASS * along - x) / (z + MASS * down) / SLIDE_FRICTION

    phases = (np.arange(config.phases) + 0.5) / config.phases
    return over_batch(impulses, config.stiffness, config.steps, phases)


def _compared_ratio(config: Config) -> float:
    return min(config.damping_ratios, key=lambda ratio: abs(ratio - 0.2))


def in_mujoco(config: Config, dt: float) -> dict[str, Any] | None:
    """Results of MuJoCo for the same scenes with a step dt; None if MuJoCo is not installed."""
    try:
        from peers.contact_scenes import Motion
    except ModuleNotFoundError as error:
        if error.name != "mujoco":
            raise
        return None
    flat = {"gravity": -G, "mass": MASS, "tilt": (1.0, 0.0, 0.0, 0.0), "friction": SLIDE_FRICTION}
    sphere = flat | {"inertia": SPHERE_INERTIA, "shape": f'type="sphere" size="{RADIUS}"'}
    block = flat | {"inertia": BLOCK_INERTIA, "friction": BLOCK_FRICTION}
    block["shape"] = 'type="box" size="{} {} {}"'.format(*(0.5 * BLOCK))
    still = np.zeros(6)

    def moved(scene, start, angle=0.0, duration=1.0, v=still, **changes):
        q = np.asarray(placed(*map(jnp.asarray, (start[0], angle, start[1]))))
        tilt = np.asarray(placed(0.0, jnp.asarray(angle)))[3:]
        run = Motion(scene | {"tilt": tilt} | changes, q, v, dt, duration)
        ahead = np.array([math.cos(angle), 0.0, -math.sin(angle)])
        return run, run.q[:, :3] @ ahead, run.v[:, :3] @ ahead

    frequency, ratio = math.sqrt(_BOUNCE_STIFFNESS / MASS), _compared_ratio(config)
    soft = f'solref="{-(frequency**2):.12g} {-2.0 * ratio * frequency:.12g}" solimp="0.99 0.99 0.001"'
    down = np.array([0.0, 0.0, -_BOUNCE_SPEED, 0.0, 0.0, 0.0])
    bounce, _, _ = moved(sphere, (RADIUS + 0.5 * dt * _BOUNCE_SPEED, 0.0), duration=0.2, v=down, gravity=0.0, soft=soft)
    run, _, speed = moved(sphere, (RADIUS, 0.0), v=np.array([SLIDE_SPEED, 0, 0, 0, 0, 0]))
    share, transition = slide_results(run.time, speed, speed - RADIUS * run.v[:, 4])
    roll, x, _ = moved(sphere, (RADIUS, 0.0), ROLL_ANGLE, friction=0.8)
    results = {
        "rebound": float((bounce.v[-1, 2] / _BOUNCE_SPEED) ** 2),
        "slide": share,
        "transition": transition,
        "roll": fitted(roll.time, x)[1],
    }
    height = (0.5 * BLOCK[2], 0.0)
    for name, changes in {"creep": {}, "creep_stiff": {"impratio": 10.0}, "creep_noslip": {"noslip": 5}}.items():
        run, x, _ = moved(block, height, CREEP_ANGLE, 2.0, **changes)
        results[name] = fitted(run.time, x)[0]
    for share, angle in zip(START_SHARES, start_angles(), strict=True):
        run, x, _ = moved(block, height, angle)
        results[f"start_{share}"] = slid(run.time, x)
    return results


def markdown(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def law_table(config: Config, found: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """Table of the scenes beside their closed forms and MuJoCo, and the values of jaxdyn."""
    k = int(np.argmin(np.abs(np.array(config.steps) - COMPARED)))
    dt, peer = config.steps[k], found["mujoco"] or {}
    share, transition = slide_results(found["spheres"]["slide"][k][0], *found["spheres"]["slide"][k][1][:, 1:].T)
    creeping, angle = found["blocks"][found["compared_angle"]][k], config.angles[found["compared_angle"]]
    bounce = config.damping_ratios.index(_compared_ratio(config))
    ours = {
        "rebound": float(np.mean(found["bounces"]["heights"][bounce, k + 1])),
        "slide": share,
        "transition": transition,
        "roll": fitted(found["spheres"]["roll"][k][0], found["spheres"]["roll"][k][1][:, 0])[1],
        "creep": fitted(*creeping)[0],
        **{f"start_{share}": slid(*run[k]) for share, run in zip(START_SHARES, found["starts"], strict=True)},
    }
    lines = [
        (
            f"rebound / height of fall, damping ratio {_compared_ratio(config):g}",
            "rebound",
            found["bounces"]["exact"][bounce],
            1,
            ".3f",
        ),
        ("final / initial speed, sliding sphere", "slide", 5 / 7, 1, ".5f"),
        (
            "time of the transition to rolling (ms)",
            "transition",
            2 * SLIDE_SPEED / (7 * SLIDE_FRICTION * G),
            1e3,
            ".1f",
        ),
        ("acceleration, rolling at 10 degrees (m/s^2)", "roll", 5 / 7 * G * math.sin(ROLL_ANGLE), 1, ".5f"),
        (
            f"creep speed, block at {math.degrees(angle):.0f} degrees (mm/s)",
            "creep",
            creep_speed(angle, BLOCK_FRICTION),
            1e3,
            ".4f",
        ),
        *(
            (
                f"distance of a block from rest in 1 s, slope {share:g} times the friction (m)",
                f"start_{share}",
                0.5 * G * (math.sin(start) - BLOCK_FRICTION * math.cos(start)),
                1,
                ".4f",
            )
            for share, start in zip(START_SHARES, start_angles(), strict=True)
        ),
        ("creep speed with impratio = 10 (mm/s)", "creep_stiff", None, 1e3, ".4f"),
        ("creep speed with noslip_iterations = 5 (mm/s)", "creep_noslip", None, 1e3, ".4f"),
    ]
    rows = []
    for label, key, exact, scale, shape in lines:
        values = (exact, ours.get(key), peer.get(key))
        rows.append([label, *("" if value is None else format(scale * value, shape) for value in values)])
    head = [f"dt = {1e3 * dt:g} ms", "closed form", "jaxdyn", "MuJoCo"]
    return markdown(head, rows), ours


def fall_table(config: Config, runs: dict[str, dict[str, np.ndarray]]) -> str:
    """Table of the falls of one mechanism."""
    rows, steps = [], (config.reference_step, *config.steps)
    for kind, run in runs.items():
        for i, share in enumerate(config.stiffness):
            for j, dt in enumerate(steps):
                values = [f"{1e3 * run['deepest'][i, j]:.2f}", f"{1e3 * run['at_rest'][i, j]:.2f}"]
                values += [f"{100 * run['energy_error'][i, j]:.2f}", f"{100 * run['gain'][i, j]:.1f}"]
                values.append(f"{run['force'][i, j]:.1f}")
                stable = bool(run["stable"][i, j])
                rows.append(
                    [kind, f"{share:g}", f"{1e3 * dt:g}", *(values if stable else [""] * 5), "yes" if stable else "no"]
                )
    head = [
        "integrator",
        "stiffness / default",
        "dt (ms)",
        "deepest (mm)",
        "at rest (mm)",
        "energy error (%)",
        "energy gain (%)",
        "force / weight",
        "stable",
    ]
    return markdown(head, rows)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    compared = int(np.argmin(np.abs(np.array(config.angles) - CREEP_ANGLE)))
    dt = min(config.steps, key=lambda step: abs(step - COMPARED))
    with jax.enable_x64(True):
        found = {
            "bounces": bounces(config),
            "spheres": spheres(config),
            "blocks": blocks(config, config.angles),
            "starts": blocks(config, start_angles()),
            "oblique": oblique(config),
            "falls": falls(config),
            "mujoco": in_mujoco(config, dt),
            "compared_angle": compared,
        }
        table, ours = law_table(config, found)
    print(table if found["mujoco"] else table + "MuJoCo is not installed: pip install mujoco\n")
    tables = {name: fall_table(config, runs) for name, runs in found["falls"].items()}
    directory.write_text("laws.md", table)
    for name, text in tables.items():
        directory.write_text(f"fall_{name}.md", text)
        print(f"{name}, fall of {DROP:g} m\n{text}")
    draw_laws(directory, config, found)
    if config.animation:
        animate(directory)
    ratio = np.mean(found["oblique"], axis=-1)
    print(f"tangential / normal impulse over friction, by stiffness and step:\n{np.round(ratio, 2)}")
    return {
        "jaxdyn": ours,
        "mujoco": found["mujoco"],
        "rebound": {
            "exact": found["bounces"]["exact"].tolist(),
            "measured": np.mean(found["bounces"]["heights"], -1).tolist(),
        },
        "impulse_ratio_over_friction": ratio.tolist(),
        "falls": {
            name: {
                kind: {
                    key: run[key].tolist() for key in ("deepest", "at_rest", "energy_error", "gain", "force", "stable")
                }
                for kind, run in runs.items()
            }
            for name, runs in found["falls"].items()
        },
    }


def draw_laws(directory: RunDirectory, config: Config, found: dict[str, Any]) -> None:
    """Scenes beside their closed forms."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    bounce, error, slide, block, impulse, fall = axes
    colors = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.GRAY, "black")
    measured = found["bounces"]
    milliseconds = 1e3 * np.array(measured["steps"])
    heights = np.mean(measured["heights"], axis=-1)
    ratios = np.linspace(0.0, 1.0, 41)[1:]
    bounce.plot(ratios, [restitution(ratio) ** 2 for ratio in ratios], color="black", label="closed form (T9)")
    for k, color in zip(range(len(milliseconds)), colors, strict=False):
        bounce.plot(config.damping_ratios, heights[:, k], "o", ms=4, color=color, label=f"{milliseconds[k]:g} ms")
    bounce.set(xlabel="damping ratio", ylabel="rebound / height of fall", title="sphere that bounces")
    frequency = math.sqrt(_BOUNCE_STIFFNESS / MASS)
    for k, (ratio, color) in enumerate(zip(config.damping_ratios, colors, strict=False)):
        error.loglog(
            milliseconds, np.abs(heights[k] - measured["exact"][k]), "o", ms=4, color=color, label=f"{ratio:g}"
        )
        added = [restitution(ratio + 0.5 * frequency * dt) ** 2 for dt in measured["steps"]]
        error.loglog(milliseconds, np.abs(added - measured["exact"][k]), "--", lw=0.8, color=color)
    error.set(xlabel="dt (ms)", ylabel="error of rebound / fall", title="error; dashed: w dt/2 added to the ratio")
    for (t, values), dt, color in zip(found["spheres"]["slide"], config.steps, colors, strict=False):
        slide.plot(t, values[:, 1], color=color, label=f"{1e3 * dt:g} ms")
    t = np.linspace(0.0, 0.4, 400)
    slide.plot(t, np.maximum(SLIDE_SPEED - SLIDE_FRICTION * G * t, 5 / 7 * SLIDE_SPEED), "k:", label="closed form")
    slide.set(xlim=(0.0, 0.4), xlabel="time (s)", ylabel="speed (m/s)", title="sphere that begins to roll")
    limit = math.atan(BLOCK_FRICTION)
    below = np.linspace(0.02, limit - 1e-3, 200)
    block.semilogy(np.degrees(below), [1e3 * creep_speed(a, BLOCK_FRICTION) for a in below], "k", label="creep (mm/s)")
    above = np.linspace(limit + 1e-3, math.radians(40.0), 100)
    block.semilogy(
        np.degrees(above), G * (np.sin(above) - BLOCK_FRICTION * np.cos(above)), "k--", label="acceleration (m/s²)"
    )
    for angle, runs in zip(config.angles, found["blocks"], strict=True):
        for k, (run, color) in enumerate(zip(runs, colors, strict=False)):
            speed, acceleration = fitted(*run)
            shown = 1e3 * speed if angle < limit else acceleration
            block.plot(np.degrees(angle), shown, "o", ms=6 - k, color=color)
    block.set(xlabel="angle (degrees)", title="block on an incline, friction 0.5")
    for share, ratio, color in zip(config.stiffness, np.mean(found["oblique"], axis=-1), colors, strict=False):
        off = np.abs(ratio - 1.0)
        impulse.loglog(1e3 * np.array(config.steps), off, "o-", ms=4, color=color, label=f"{share:g} x default")
    impulse.set(xlabel="dt (ms)", ylabel="|ratio / friction - 1|", title="oblique impact: error of impulses")
    name, runs = list(found["falls"].items())[-1]
    kind = config.integrators[0]
    for share, deepest, color in zip(config.stiffness, runs[kind]["deepest"], colors, strict=False):
        fall.loglog(milliseconds, 1e3 * deepest, "o-", ms=4, color=color, label=f"{share:g} x default")
    fall.set(xlabel="dt (ms)", ylabel="deepest point (mm)", title=f"fall of a {name}, {kind}")
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.legend(frameon=False, fontsize=7)
        axis.title.set_fontsize(9)
    view.save(figure, directory.path("laws.png"))


def animate(directory: RunDirectory) -> None:
    """The quadruped falls 0.1 m and stands."""
    model, posture, feet, forces = scenes()["quadruped"]
    system = jaxdyn.System(model, (*forces, GroundContact.of(model, feet)))
    start = system.at_rest(jnp.asarray(posture).at[2].add(DROP))
    run = jaxdyn.rollout(system, start, dt=COMPARED, steps=500)
    q, v = (np.asarray(values)[None] for values in (run.saved.q, run.saved.v))
    view.animate(system, run.time, q, directory.path("landing.gif"), v=v, fps=20, speed=0.5, size=400, progress=False)


JOB = Job("contact-laws", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
