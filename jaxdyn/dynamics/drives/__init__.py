"""Drives, the maps from the controls of a system to generalized forces, theory.md section (h).

A `System` has one object of this kind. `JointDrives` are motors in single joints, whose forces are proportional to the controls.
`Actuators` are motors and servos with ranges and lags, that act on joints, on linear combinations of joints, or at points of
bodies. To add another law, derive from `Drives` and define `count` and `forces`, and `state_count`, `rates` and `acting` if it has
states.
"""

from jaxdyn.dynamics.drives.actuators import Actuator as Actuator
from jaxdyn.dynamics.drives.actuators import Actuators as Actuators
from jaxdyn.dynamics.drives.base import Drives as Drives
from jaxdyn.dynamics.drives.base import JointDrives as JointDrives
from jaxdyn.dynamics.drives.base import drives_of_joints as drives_of_joints
