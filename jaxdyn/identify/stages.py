"""The usual way from recordings of a machine to its parameters, in stages with the same free parameters.

1. Inverse dynamics needs no simulation, and converges from distant initial guesses, but its filters bias friction.
2. Output error with short windows has no filter, and converges from the estimates of the first stage.
3. Output error with longer windows determines slow effects, such as gravity and friction, more precisely.

`recipe` makes the problems of all stages; the other functions make the parts that nobody has stated: initial guesses, free
parameters and noise.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxdyn.compute import stored_jit
from jaxdyn.dynamics.forces.friction import JointFriction, StribeckFriction
from jaxdyn.dynamics.metric import mass_matrix
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions
from jaxdyn.identify.least_squares import Problem
from jaxdyn.identify.losses import Loss, Squares
from jaxdyn.identify.measurement import MeasurementError, Plant
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import DivergencePrior, GaussianPrior, Parameter, Parameters, body_inertia
from jaxdyn.identify.recording import Part, Recording, RecordingError, Windows, cut
from jaxdyn.identify.validation import needed_and_acting, smoothed_motions

DURATIONS = (0.1, 0.3)  # s, of the windows of output error
LEAD = 0.05  # s, the longest delay that is searched for
_DELAY = 0.02  # s, standard deviation of the prior of a delay
_DIVERGENCE = 1.0  # weight of the prior of an inertia
# Initial guesses, relative to the typical force, speed or inertia of a joint.
_COULOMB, _VISCOUS, _STRIBECK, _ARMATURE = 0.05, 0.05, 0.02, 0.5
_VELOCITY_SCALE, _STRIBECK_VELOCITY = 0.006, 0.06
_FORCE_NOISE = 0.05  # errors of forces after smoothing, relative to the typical force
# Errors of guessed initial states: motion at the typical speed for this time (s); part of it.
_START_TIME, _START_SPEED = 0.05, 0.5


def usual_plant(plant: Plant, parts: Sequence[Part], *, friction: bool = True) -> Plant:
    """The plant with armature and friction in all joints, whose initial guesses have the order of magnitude of the recordings.

    Args:
        plant: Plant whose positive values are kept. The velocity scales of its friction become large enough for a simulation that
            is not stiff.
        parts: Recordings.
        friction: If false, the forces of the plant are kept as they are.
    """
    model, motions = plant.system.model, smoothed_motions(parts, delays=plant.inputs.delayed)
    needed, acting = (np.std(np.asarray(forces), axis=0) for forces in needed_and_acting(plant, motions))
    force, speed = _typical(acting, needed), _typical(np.std(np.asarray(motions.v), axis=0))
    own = JointFriction(_COULOMB * force / speed, _COULOMB * force, _VELOCITY_SCALE * speed)
    at_low_speed = StribeckFriction(_STRIBECK * force, _STRIBECK_VELOCITY * speed, _VELOCITY_SCALE * speed)
    forces: list[Any] = list(plant.system.forces)
    for guess in (at_low_speed, own) if friction else ():
        alike = [k for k, known in enumerate(forces) if type(known) is type(guess)]
        for k in alike[1:]:  # their coefficients are kept
            forces[k] = _merged(forces[k], guess, ())
        forces.insert(0, _merged(forces.pop(alike[0]), guess, guess.linear) if alike else guess)
    inertia = np.diagonal(np.asarray(stored_jit(mass_matrix)(model, motions.q[len(motions.q) // 2])))
    armature = jnp.where(model.armature > 0, model.armature, _ARMATURE * inertia)
    system = plant.system.changed(
        model=eqx.tree_at(lambda model: model.armature, model, armature), forces=tuple(forces)
    )
    return Plant(system, plant.sensors, plant.inputs, plant.processing)


def _typical(sizes: Float[np.ndarray, "nv"], instead: Float[np.ndarray, "nv"] | float = 0.0) -> Float[np.ndarray, "nv"]:
    """Typical sizes in the joints.

    Args:
        sizes: Sizes in the joints; one below 0.1 % of the largest is that of a joint without a drive or at rest.
        instead: Sizes for such joints, which have at least 1 % of the largest size, or 0.01 if all sizes are zero.
    """
    largest = np.max(sizes) or np.max(instead) or 1.0
    return np.where(sizes > 1e-3 * largest, sizes, np.maximum(instead, 1e-2 * largest))


def _merged(given: Any, guess: JointFriction | StribeckFriction, names: tuple[str, ...]) -> Any:
    """Friction with the given coefficients where they are positive, or not named, and with at least the guessed velocity scale."""
    kept = {name: jnp.where(getattr(given, name) > 0, getattr(given, name), getattr(guess, name)) for name in names}
    return dataclasses.replace(given, velocity_scale=jnp.maximum(given.velocity_scale, guess.velocity_scale), **kept)


def usual_parameters(plant: Plant) -> list[Parameter]:
    """Inertias near those of the plant, armature, the coefficients of its friction, and a delay of each input."""
    model, forces = plant.system.model, enumerate(plant.system.forces)
    bodies = [name for name, mass in zip(model.topology.body_names, np.asarray(model.mass), strict=True) if mass > 0]
    # Of several terms of the same kind, the data determine only the sum.
    friction = [
        (f"system.forces.{k}", force)
        for k, force in forces
        if isinstance(force, JointFriction | StribeckFriction) and type(force) not in map(type, plant.system.forces[:k])
    ]
    return [
        *(body_inertia(body, prior=DivergencePrior(_DIVERGENCE)) for body in bodies),
        Parameter("system.model.armature", prior=GaussianPrior((2.0 * np.asarray(model.armature)).tolist())),
        *(Parameter(f"{path}.{name}") for path, force in friction for name in force.linear),
        *(
            Parameter(
                f"{path}.stribeck_velocity", prior=GaussianPrior((0.5 * np.asarray(force.stribeck_velocity)).tolist())
            )
            for path, force in friction
            if isinstance(force, StribeckFriction)
        ),
        Parameter("inputs.delay", prior=GaussianPrior(_DELAY)),
    ]


def measured_noise(parts: Sequence[Part]) -> Float[np.ndarray, "nq"]:
    """Standard deviation of the errors of measured coordinates, from neighboring samples and the steps between their values."""
    found = []
    for part in parts:
        q = part.alone.q[np.isfinite(part.alone.q).all(axis=1)]
        # Smooth motions vanish in third differences, with the binomials 1, 3, 3, 1; errors of time stamps in fast motions do not.
        white = np.std(np.diff(q, 3, axis=0), axis=0) / np.sqrt(20.0) if len(q) > 4 else np.zeros(q.shape[1])
        # Slow motions repeat a rounded value, so that differences do not show its error.
        steps = [np.min(np.diff(np.unique(column)), initial=np.inf) for column in q.T]
        found.append(np.maximum(white, np.where(np.isfinite(steps), steps, 0.0) / np.sqrt(12.0)))
    noise = np.sqrt(np.mean(np.square(found), axis=0))
    return np.maximum(noise, 1e-6 * np.max(noise, initial=1e-6))


def usual_force_noise(plant: Plant, motions: Motions, parts: Sequence[Part]) -> Float[np.ndarray, "nv"]:
    """Standard deviations of errors of forces, parts of the typical forces, for samples whose errors a filter correlates."""
    both = (np.asarray(forces) for forces in needed_and_acting(plant, motions))
    needed, acting = (np.sqrt(np.mean(forces**2, axis=0)) for forces in both)
    filters = [part.processed.smoothing for part in parts]
    samples = max(1.0 / (2.0 * how.cutoff * how.interval * how.decimate) if how.cutoff else 1.0 for how in filters)
    return _FORCE_NOISE * np.sqrt(max(samples, 1.0)) * _typical(acting, needed)


def usual_start_noise(windows: Windows) -> Float[np.ndarray, "L"]:
    """Standard deviations of the errors of guessed initial states, from the typical speeds in the windows."""
    speed = np.std(np.asarray(windows.starts.v), axis=0)
    speed = np.maximum(speed, 1e-3 * np.max(speed, initial=1e-3))
    return np.concatenate([_START_TIME * speed, _START_SPEED * speed])


def recipe(
    plant: Plant,
    recordings: Sequence[Recording | Part],
    *,
    free: Sequence[Parameter] | None = None,
    durations: Sequence[float] = DURATIONS,
    interval: float = 0.002,
) -> list[Problem]:
    """The problems that identify a machine from its recordings, in the order in which `fit` solves them.

        problems = identify.recipe(plant, [recording])
        found = identify.fit(problems)
        known = identify.uncertainty(problems[-1], found.unknowns)

    Inverse dynamics comes first if the system has no constraints, then output error with windows of each duration. The sensors
    have the noise of the recordings, and otherwise are those of the plant.

    Args:
        plant: Machine whose coordinates are measured. Its inertias are the center of their priors.
        recordings: Recordings, or parts of them. A part without `Processing` has that of the plant, with a lead of at least
            0.05 s, for free delays.
        free: Free parameters. By default they are inertias, armature, viscous, Coulomb and Stribeck friction in all joints, and
            the delay of each input; armature and friction start at values of the order of magnitude of the recordings.
        durations: Durations of the windows, s, from short to long.
        interval: Time step of the simulation, s.

    Raises:
        RecordingError, MeasurementError, ParameterError: A recording, the sensors or a parameter cannot be used.
    """
    if not plant.sensors.reads_coordinates_only:
        raise MeasurementError(
            "recipe: the sensors of the plant do not observe the coordinates alone; give Sensors without observe, or "
            "make an OutputError with cut(..., with_velocities=True)"
        )
    given = [entry if isinstance(entry, Part) else Part(entry) for entry in recordings]
    usual = dataclasses.replace(plant.processing, lead=max(plant.processing.lead, LEAD))
    parts = [part if part.processing else dataclasses.replace(part, processing=usual) for part in given]
    check_parts(plant, parts)
    plant = plant if free is not None else usual_plant(plant, parts)
    # The errors of measurements contain those of their resolution, which sensors add to the noise.
    measured, rounding = measured_noise(parts), np.asarray(plant.sensors.quantization) / np.sqrt(12.0)
    noise = np.sqrt(np.maximum(measured**2 - rounding**2, (0.1 * measured) ** 2))
    plant = Plant(plant.system, dataclasses.replace(plant.sensors, noise=noise), plant.inputs)
    parameters = Parameters(plant, usual_parameters(plant) if free is None else free)
    windows = [windows_of(parts, duration=duration, interval=interval) for duration in durations]
    return staged_problems(parameters, parts, windows, Squares())


def check_parts(plant: Plant, parts: Sequence[Part]) -> None:
    """Check that the recordings have inputs, and velocities if these are not the rates of the coordinates."""
    model = plant.system.model
    for recording in (part.recording for part in parts):
        if not recording.u.size:
            raise RecordingError(
                f"{recording.name}: it has no inputs, from which forces could be identified; use OutputError"
            )
        if model.nq != model.nv and recording.v is None:
            raise RecordingError(
                f"{recording.name}: the velocities of {model.name!r} are not the rates of its coordinates; give velocities"
            )


def windows_of(parts: Sequence[Part], **options) -> Windows:
    """Windows of parts, with the filters of each part; options as in `cut`."""
    lead = max(part.processed.lead for part in parts)
    cutoffs = [part.processed.velocity_cutoff for part in parts]
    return cut([part.alone for part in parts], **({"lead": lead, "velocity_cutoff": cutoffs} | options))


def staged_problems(
    parameters: Parameters, parts: Sequence[Part], windows: Sequence[Windows], loss: Loss, **options
) -> list[Problem]:
    """The problems of all stages; `loss` and further options are those of `OutputError`."""
    found: list[Problem] = []
    plant = parameters.subject
    if not plant.system.constraints and not plant.system.nz:
        motions = smoothed_motions(parts, delays=plant.inputs.delayed or parameters.frees("inputs.delay"))
        found.append(InverseDynamicsError(parameters, motions, usual_force_noise(plant, motions, parts), loss))
    for cut_to in windows:
        own: dict[str, Any] = {"start_noise": usual_start_noise(cut_to)} if options.get("free_starts", True) else {}
        found.append(OutputError(parameters, cut_to, loss, **(own | options)))
    return found
