"""Closed kinematic chains: the kinds of constraints that come with jaxdyn, and assembly of mechanisms that have them."""

from jaxdyn.constraints.assembly import Assembly as Assembly
from jaxdyn.constraints.assembly import assemble as assemble
from jaxdyn.constraints.assembly import project_velocity as project_velocity
from jaxdyn.constraints.kinds import Coupling as Coupling
from jaxdyn.constraints.kinds import Distance as Distance
from jaxdyn.constraints.kinds import LoopJoint as LoopJoint
from jaxdyn.constraints.linkage import LinkageBuilder as LinkageBuilder
