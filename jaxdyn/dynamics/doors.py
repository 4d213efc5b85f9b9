"""Doors: the checks of arguments that all public functions of a model share. What is behind a door checks nothing again."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from jaxdyn.lanes import compiled_outside_jit
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model

# Parameters that are checked wherever a function has one of this name.
_COORDINATES = {"q"}
_VELOCITIES = {"v", "a", "p", "tau", "w", "w_rate", "weights"}


def model_function(function: Callable) -> Callable:
    """Decorator of a public function (model, q, v, ...): its arguments are checked, and outside of `jit` it is one program."""
    names = tuple(inspect.signature(function).parameters)
    compiled = compiled_outside_jit(function)

    @functools.wraps(function)
    def checked(*args, **options):
        given = dict(zip(names, args, strict=False)) | options
        if "model" in given:
            check_model(given["model"], function.__name__)
            check_vectors(given["model"], given)
        return compiled(*args, **options)

    return checked


def check_model(model: Any, name: str) -> None:
    """Refuse what is no model.

    Raises:
        TypeError: the message says what to pass to the function `name`.
    """
    if isinstance(model, Model):
        return
    kind = type(model).__name__
    remedy = (
        "use system.model" if isinstance(getattr(model, "model", None), Model) else "build one with MechanismBuilder"
    )
    raise TypeError(f"you passed a {kind}; {name} works on a Model: {remedy}")


def check_vectors(model: Model, given: dict[str, Any]) -> None:
    """Refuse coordinates, velocities, accelerations and forces among arguments by name that do not fit the model."""
    for name, value in given.items():
        if value is not None and name in _COORDINATES:
            configuration.check_coordinates(model, value)
        elif value is not None and name in _VELOCITIES:
            configuration.check_velocities(model, **{name: value})
