"""The command `jaxdyn animate`: an animation of a run, or of a mechanism that moves freely from a random configuration."""

import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.compute.announcements import announced_as
from jaxdyn.compute.arrays import zero_safe_norm
from jaxdyn.constraints.projection import project_velocity
from jaxdyn.dynamics.contact import GroundContact
from jaxdyn.dynamics.contact.points import contact_forces
from jaxdyn.dynamics.doors import check_masses
from jaxdyn.dynamics.system import State, System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.runs.loaded import load_run
from jaxdyn.io.shapes.visual_files import load_visuals, visuals_of_run
from jaxdyn.jobs.commands.arguments import AnimateArguments
from jaxdyn.jobs.commands.command import needs
from jaxdyn.jobs.notes import warnings_as_notes
from jaxdyn.jobs.source import load_source, random_starts
from jaxdyn.mechanism.joints import Free
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.simulate.outcome import RolloutResult
from jaxdyn.simulate.trajectory import rollout

_STEP = 1e-3  # s
_RECORD_EVERY = 10  # steps
_SPREAD = 0.7  # fraction of the range of joint limits; standard deviation in rad or m for joints without limits
_DROP = 0.1  # m, height of the lowest contact point above the ground at the start
_DRIFT = 0.7  # rad/s and m/s, standard deviation of the initial velocities without gravity


def animate(arguments: AnimateArguments) -> None:
    """Write an animation."""
    with needs("pictures"):
        from jaxdyn.view import animation
    source: Path = arguments.source
    if source.is_dir():
        ghosts = 3 if arguments.ghosts is None else arguments.ghosts
        run = load_run(source, samples=arguments.sample + 1 + ghosts)
        with warnings_as_notes():
            visuals = visuals_of_run(run)
        system, time, q, v = run.system, run.arrays["time"], run.arrays["q"], run.arrays.get("v")
        if arguments.duration is not None:
            kept = time <= time[0] + arguments.duration
            time, q, v = time[kept], q[:, kept], None if v is None else v[:, kept]
        others = [(arguments.sample + k) % len(q) for k in range(1, min(ghosts, len(q) - 1) + 1)]
        samples = [arguments.sample, *others]
        out = arguments.out or source / "motion.gif"
    else:
        if arguments.ghosts is not None:
            raise ConfigError(
                f"{source}: --ghosts shows samples of a run, but this file is a mechanism; omit the option"
            )
        system = load_source(arguments, source)
        with warnings_as_notes():
            visuals = load_visuals(source, system, folder=arguments.folder)
        time, q, v = _let_go(system, arguments)
        samples, out = None, arguments.out or Path(f"{source.stem}.gif")
    shown = {"samples": samples, "visuals": visuals, "v": v}
    with announced_as("the pictures"):
        frames = animation.animate(
            system, time, q, out, fps=arguments.fps, speed=arguments.speed, size=arguments.size, **shown
        )
    print(f"{out}: {frames} frames, {time[-1] - time[0]:g} s of {system.model.name}")


def _let_go(system: System, arguments: AnimateArguments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, coordinates (1, T, nq) and velocities of a mechanism that starts at rest from a random configuration.

    A mechanism with a free base falls from 0.1 m above the ground if it has contacts with it, and else drifts without gravity.
    """
    model = system.model
    check_masses(model, "a simulation")
    kinds = zip(model.topology.parents, model.topology.joint_classes, strict=True)
    free = [body for body, (parent, kind) in enumerate(kinds) if parent == GROUND and issubclass(kind, Free)]
    lands = any(isinstance(force, GroundContact) for force in system.forces)
    floats = bool(free) and not lands
    duration = 3.0 if arguments.duration is None else arguments.duration
    print(f"simulating {duration:g} s of {model.name}")
    if floats:
        print(
            f"{model.name} has a free base and would fall without end; it is simulated without gravity "
            "(--contact ground turns colliders of URDF and MJCF files into contacts with the ground)"
        )
        system = eqx.tree_at(lambda s: s.model.gravity, system, jnp.zeros_like(model.gravity))
    of_q, of_v = jax.random.split(jax.random.fold_in(jax.random.key(arguments.seed), arguments.sample))
    (q,) = random_starts(system, of_q[None], _SPREAD, arguments.source)
    if free and lands:
        height = _DROP + jnp.max(contact_forces(system, system.at_rest(q)).depth)
        for body in free:
            first = model.topology.q_starts[body]
            q = q.at[first : first + 3].add(-height * zero_safe_norm(model.gravity)[1] * model.gravity)
    drift = jax.random.normal(of_v, (model.nv,), model.dtype) * (_DRIFT if floats else 0.0)
    start = State(q, project_velocity(system, State(q, drift)), system.at_rest(q).z)
    steps = _RECORD_EVERY * max(1, math.ceil(duration / (_STEP * _RECORD_EVERY)))
    with announced_as("the simulation"):
        run = rollout(system, start, dt=_STEP, steps=steps, save_every=_RECORD_EVERY, throw=False)
    if not (result := RolloutResult(int(run.result))).successful:
        raise ConfigError(f"{arguments.source}: from seed {arguments.seed}, {result.message}; try --seed")
    return np.asarray(run.time), np.asarray(run.saved.q)[None], np.asarray(run.saved.v)[None]
