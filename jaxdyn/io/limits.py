"""What readers make of limits of position: numbers for samplers, controllers and optimizers, or stops as well."""

import dataclasses
from pathlib import Path
from typing import Literal, get_args

from jaxdyn.dynamics.joint_limits import JointLimits
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError

LimitsUse = Literal["data", "enforced"]


def check_limits(limits: str, path: Path | str) -> None:
    """Refuse what is no `LimitsUse`.

    Raises:
        ConfigError: The message names the file and the choices.
    """
    if limits not in get_args(LimitsUse):
        raise ConfigError(f"{path}: limits is {limits!r}; use one of {', '.join(get_args(LimitsUse))}")


def with_limits(system: System, limits: LimitsUse) -> System:
    """The system, with `JointLimits.of` its model if limits are "enforced" and it has no `JointLimits` of its own."""
    if limits == "data" or any(isinstance(force, JointLimits) for force in system.forces):
        return system
    return dataclasses.replace(system, forces=(*system.forces, JointLimits.of(system.model)))
