"""Option of file readers: position limits are stored as data (for samplers and optimizers), or are also enforced by joint stops."""

from typing import Literal

from jaxdyn.dynamics.forces.joint_limits import JointLimits
from jaxdyn.dynamics.system import System

LimitsUse = Literal["data", "enforced"]


def with_limits(system: System, limits: LimitsUse) -> System:
    """The system, with an additional force `JointLimits` if `limits` is "enforced" and the system does not contain one already."""
    if limits == "data" or any(isinstance(force, JointLimits) for force in system.forces):
        return system
    return system.changed(forces=(*system.forces, JointLimits.of(system.model)))
