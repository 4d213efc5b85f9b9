"""Option of file readers: position limits are stored as data (for samplers and optimizers), or are also enforced by joint stops."""

from pathlib import Path
from typing import Literal, get_args

from jaxdyn.dynamics.forces.joint_limits import JointLimits
from jaxdyn.dynamics.system import System
from jaxdyn.errors import check_name

LimitsUse = Literal["data", "enforced"]


def check_limits(limits: str, path: Path | str) -> None:
    """Check that a value is one of the options in `LimitsUse`.

    Raises:
        UnknownName: It is not; the message names the file.
    """
    check_name("option limits", limits, get_args(LimitsUse), where=str(path))


def with_limits(system: System, limits: LimitsUse) -> System:
    """The system, with an additional force `JointLimits` if `limits` is "enforced" and the system does not contain one already."""
    if limits == "data" or any(isinstance(force, JointLimits) for force in system.forces):
        return system
    return system.changed(forces=(*system.forces, JointLimits.of(system.model)))
