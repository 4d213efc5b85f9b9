"""The kinds of joints that jaxdyn provides, one per module. The base class `Joint` defines the methods.

A joint has coordinates q and velocities v, which are components of the twist of the child relative to the parent along the columns
of its motion subspace, on **child axes** at the child origin, angular part first.
"""

# Lists of the kinds, as in the reference of files, are in this order.
# isort: off
from jaxdyn.mechanism.joints.base import axis_problem as axis_problem
from jaxdyn.mechanism.joints.revolute import Revolute as Revolute
from jaxdyn.mechanism.joints.prismatic import Prismatic as Prismatic
from jaxdyn.mechanism.joints.screw import Screw as Screw
from jaxdyn.mechanism.joints.cylindrical import Cylindrical as Cylindrical
from jaxdyn.mechanism.joints.universal import Universal as Universal
from jaxdyn.mechanism.joints.spherical import Spherical as Spherical
from jaxdyn.mechanism.joints.planar import Planar as Planar
from jaxdyn.mechanism.joints.free import Free as Free
from jaxdyn.mechanism.joints.fixed import Fixed as Fixed
from jaxdyn.mechanism.joints.rheonomic import Rheonomic as Rheonomic
