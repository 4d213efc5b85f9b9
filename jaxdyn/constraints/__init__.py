"""Closed kinematic chains: construction, kinds of constraints, assembly, projection, minimal coordinates, and reactions."""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.constraints.assembly import AssemblyResult as AssemblyResult
    from jaxdyn.constraints.assembly import assemble as assemble
    from jaxdyn.constraints.assembly import random_closed as random_closed
    from jaxdyn.constraints.independence import describe_mobility as describe_mobility
    from jaxdyn.constraints.independence import independent_velocities as independent_velocities
    from jaxdyn.constraints.independence import mobility as mobility
    from jaxdyn.constraints.kinds import Coupling as Coupling
    from jaxdyn.constraints.kinds import Distance as Distance
    from jaxdyn.constraints.kinds import LoopJoint as LoopJoint
    from jaxdyn.constraints.linkage import LinkageBuilder as LinkageBuilder
    from jaxdyn.constraints.nonholonomic import KnifeEdge as KnifeEdge
    from jaxdyn.constraints.nonholonomic import Rolling as Rolling
    from jaxdyn.constraints.nonholonomic import Touching as Touching
    from jaxdyn.constraints.nonholonomic import rolling as rolling
    from jaxdyn.constraints.projection import project_position as project_position
    from jaxdyn.constraints.projection import project_velocity as project_velocity
    from jaxdyn.constraints.reactions import loop_reactions as loop_reactions
    from jaxdyn.dynamics.constraint import Constraint as Constraint
    from jaxdyn.dynamics.constraint import VelocityConstraint as VelocityConstraint
    from jaxdyn.dynamics.constraint_forces import constraint_forces as constraint_forces
    from jaxdyn.dynamics.constraint_forces import constraint_jacobian as constraint_jacobian
    from jaxdyn.dynamics.equations_of_motion import constraint_errors as constraint_errors
    from jaxdyn.dynamics.minimal import minimal_acceleration as minimal_acceleration
    from jaxdyn.dynamics.minimal import minimal_motion as minimal_motion
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
