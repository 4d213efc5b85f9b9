"""Option of file readers: position limits are stored as data (for samplers and optimizers), or are also enforced by joint stops."""

from pathlib import Path
from typing import Literal, get_args

from jaxdyn.dynamics.joint_limits import JointLimits
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError

LimitsUse = Literal["data", "enforced"]


def check_limits(limits: str, path: Path | str) -> None:
    """Check that a value is one of the options in `LimitsUse`.

    Raises:
        ConfigError: The value is not allowed; the message names the file and the allowed values.
    """
    if limits not in get_args(LimitsUse):
        raise ConfigError(f"{path}: limits is {limits!r}; use one of {', '.join(get_args(LimitsUse))}")


def with_limits(system: System, limits: LimitsUse) -> System:
    """The system, with an additional force `JointLimits` if `limits` is "enforced" and the system does not contain one already."""
    if limits == "data" or any(isinstance(force, JointLimits) for force in system.forces):
        return system
    return system.changed(forces=(*system.forces, JointLimits.of(system.model)))
