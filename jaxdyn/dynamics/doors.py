"""Checks of the arguments of all public functions that take a model. Internal functions do not repeat these checks."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from jaxdyn.compute import kernel_function
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import MechanismError, described
from jaxdyn.mechanism.model import Model

# Names of parameters that are checked in every public function.
_COORDINATES = {"q"}
_VELOCITIES = {"v", "a", "p", "tau", "w", "w_rate", "weights"}
# Functions of a system that include the forces, drives and constraints that a function of a model leaves out.
_OF_SYSTEMS = {
    "bias_force": "inverse_dynamics(system, state, a) with a = 0",
    "body_jacobian": "dynamics.frame_jacobian(system, state, name, independent)",
    "forward_dynamics": "acceleration(system, state, u)",
    "forward_dynamics_derivatives": "jax.jacfwd of acceleration(system, state, u)",
    "gravity_force": "inverse_dynamics(system, system.at_rest(q), a) with a = 0",
    "inertial_regressor": "identify.regressor(system, state, a)",
    "inverse_dynamics_derivatives": "jax.jacfwd of inverse_dynamics(system, state, a)",
    "partial_velocities": "dynamics.frame_jacobian(system, state, name, independent)",
}


def model_function(function: Callable) -> Callable:
    """Decorator of a public function that needs masses; it checks the arguments (model, q, v, ...) and, outside of `jit`, compiles
    it."""
    return _checked(function, check_masses)


def kinematic_function(function: Callable) -> Callable:
    """Decorator like `model_function`, for functions that need no masses."""
    return _checked(function, lambda model, name: None)


def checked_model(function: Callable) -> Callable:
    """Decorator like `kinematic_function`, for functions that are not compiled."""
    return with_check(function, _check_of(function, lambda model, name: None))


def with_check(function: Callable, check: Callable[[tuple, dict], None]) -> Callable:
    """The function after a check of the arguments and the options of each call."""

    @functools.wraps(function)
    def checked(*args, **options):
        check(args, options)
        return function(*args, **options)

    return checked


def _checked(function: Callable, check: Callable[[Model, str], None]) -> Callable:
    return kernel_function(function, check=_check_of(function, check))


def _check_of(function: Callable, check: Callable[[Model, str], None]) -> Callable[[tuple, dict], None]:
    """Check of the arguments and the options of a call."""
    names = tuple(inspect.signature(function).parameters)

    def check_call(args: tuple, options: dict) -> None:
        given = dict(zip(names, args, strict=False)) | options
        if "model" in given:
            check_model(given["model"], function.__name__)
            check(given["model"], function.__name__)
            check_vectors(given["model"], given)

    return check_call


def check_model(model: Any, name: str) -> None:
    """Raise an error unless the argument is a `Model`.

    Args:
        model: Argument to check.
        name: Name of the called function, for the message.

    Raises:
        TypeError: The argument is not a `Model`; the message states the remedy.
    """
    if isinstance(model, Model):
        return
    remedy = "build one with MechanismBuilder"
    if isinstance(getattr(model, "model", None), Model):
        remedy, left_out = "use system.model", getattr(model, "left_out", "")
        if left_out and name in _OF_SYSTEMS:
            remedy = f"use {_OF_SYSTEMS[name]}, since system.model leaves out {left_out}"
        elif left_out:
            remedy += f", which leaves out {left_out}"
            if model.constraints:
                remedy += (
                    "; give it coordinates and velocities that satisfy the constraints (assemble, project_velocity)"
                )
    raise TypeError(f"you passed {described(model)}; {name} works on a Model: {remedy}")


def check_masses(model: Model, name: str) -> None:
    """Raise an error if no body has mass, as in a model that was built for kinematics alone; traced masses are not checked.

    Args:
        model: Model to check.
        name: Name of the called function, for the message.

    Raises:
        MechanismError: No body has mass and no joint has armature; the message states the remedy.
    """
    if isinstance(model.mass, jax.Array) and not isinstance(model.mass, Tracer) and not np.asarray(model.mass).any():
        armature = model.armature
        if model.rotors.count == 0 and not isinstance(armature, Tracer) and not np.asarray(armature).any():
            raise MechanismError(
                f"{name} needs masses, and no body of mechanism {model.topology.name!r} has one; it was built for kinematics alone "
                "(kinematic=True): give the masses and leave this option out"
            )


def check_vectors(model: Model, given: dict[str, Any]) -> None:
    """Raise an error if the shape of an argument does not fit the model; `given` maps the names of arguments to their values."""
    for name, value in given.items():
        if value is not None and name in _COORDINATES:
            configuration.check_coordinates(model, value)
        elif value is not None and name in _VELOCITIES:
            configuration.check_velocities(model, **{name: value})
