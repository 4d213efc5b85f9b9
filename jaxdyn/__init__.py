"""Differentiable multibody dynamics in covariant form, as pure JAX functions.

Every function acts on one mechanism at one instant. Apply `jax.vmap` to a function for batches, `jax.grad` for derivatives and
`jax.jit` for compilation. `jaxdyn.batched` is an alternative to `jax.vmap`: its compiler assigns one sample of the batch to each
SIMD lane. Start with `MechanismBuilder` or `jaxdyn.library`, put the model into a `System`, and call `rollout`. The docstrings cite
equations of the file `jaxdyn/theory.md`.
"""

from typing import TYPE_CHECKING

from jaxdyn.lazy import LOADERS, lazy_names

if TYPE_CHECKING:
    from jaxdyn import cache as cache
    from jaxdyn import compute as compute
    from jaxdyn import constraints as constraints
    from jaxdyn import control as control
    from jaxdyn import dynamics as dynamics
    from jaxdyn import formulations as formulations
    from jaxdyn import identify as identify
    from jaxdyn import io as io
    from jaxdyn import lanes as lanes
    from jaxdyn import library as library
    from jaxdyn import mechanism as mechanism
    from jaxdyn import simulate as simulate
    from jaxdyn import view as view
    from jaxdyn.compute import backend as backend
    from jaxdyn.compute import batched as batched
    from jaxdyn.compute import kernel as kernel
    from jaxdyn.constraints import Coupling as Coupling
    from jaxdyn.constraints import Distance as Distance
    from jaxdyn.constraints import LinkageBuilder as LinkageBuilder
    from jaxdyn.constraints import LoopJoint as LoopJoint
    from jaxdyn.constraints import assemble as assemble
    from jaxdyn.constraints import loop_reactions as loop_reactions
    from jaxdyn.constraints import project_velocity as project_velocity
    from jaxdyn.dynamics.constraint_forces import constraint_forces as constraint_forces
    from jaxdyn.dynamics.derivatives import forward_dynamics_derivatives as forward_dynamics_derivatives
    from jaxdyn.dynamics.derivatives import inverse_dynamics_derivatives as inverse_dynamics_derivatives
    from jaxdyn.dynamics.drives import JointDrives as JointDrives
    from jaxdyn.dynamics.energy import angular_momentum as angular_momentum
    from jaxdyn.dynamics.energy import center_of_mass as center_of_mass
    from jaxdyn.dynamics.energy import kinetic_energy as kinetic_energy
    from jaxdyn.dynamics.energy import momentum as momentum
    from jaxdyn.dynamics.equations_of_motion import acceleration as acceleration
    from jaxdyn.dynamics.equations_of_motion import applied_forces as applied_forces
    from jaxdyn.dynamics.equations_of_motion import total_energy as total_energy
    from jaxdyn.dynamics.forces import AppliedForce as AppliedForce
    from jaxdyn.dynamics.forces import BodyForce as BodyForce
    from jaxdyn.dynamics.forces import Damper as Damper
    from jaxdyn.dynamics.forces import JointForce as JointForce
    from jaxdyn.dynamics.forces import JointServo as JointServo
    from jaxdyn.dynamics.forces import JointSpring as JointSpring
    from jaxdyn.dynamics.forces import Spring as Spring
    from jaxdyn.dynamics.forces.friction import BearingFriction as BearingFriction
    from jaxdyn.dynamics.forces.friction import JointFriction as JointFriction
    from jaxdyn.dynamics.forces.friction import LoadFriction as LoadFriction
    from jaxdyn.dynamics.forces.friction import StribeckFriction as StribeckFriction
    from jaxdyn.dynamics.forces.joint_limits import JointLimits as JointLimits
    from jaxdyn.dynamics.forward import forward_dynamics as forward_dynamics
    from jaxdyn.dynamics.frame_targets import FrameTarget as FrameTarget
    from jaxdyn.dynamics.frame_targets import inverse_kinematics as inverse_kinematics
    from jaxdyn.dynamics.inverse import bias_force as bias_force
    from jaxdyn.dynamics.inverse import gravity_force as gravity_force
    from jaxdyn.dynamics.kinematics import body_jacobian as body_jacobian
    from jaxdyn.dynamics.kinematics import forward_kinematics as forward_kinematics
    from jaxdyn.dynamics.kinematics import frame_placement as frame_placement
    from jaxdyn.dynamics.kinematics import mass_center_velocities as mass_center_velocities
    from jaxdyn.dynamics.kinematics import partial_velocities as partial_velocities
    from jaxdyn.dynamics.metric import christoffel_first_kind as christoffel_first_kind
    from jaxdyn.dynamics.metric import christoffel_second_kind as christoffel_second_kind
    from jaxdyn.dynamics.metric import connection_first_kind as connection_first_kind
    from jaxdyn.dynamics.metric import coriolis_matrix as coriolis_matrix
    from jaxdyn.dynamics.metric import mass_matrix as mass_matrix
    from jaxdyn.dynamics.of_systems import inverse_dynamics as inverse_dynamics
    from jaxdyn.dynamics.of_systems import potential_energy as potential_energy
    from jaxdyn.dynamics.reactions import driving_forces as driving_forces
    from jaxdyn.dynamics.reactions import joint_reactions as joint_reactions
    from jaxdyn.dynamics.system import State as State
    from jaxdyn.dynamics.system import System as System
    from jaxdyn.dynamics.system import neutral_state as neutral_state
    from jaxdyn.errors import Error as Error
    from jaxdyn.errors import UnknownName as UnknownName
    from jaxdyn.mechanism import configuration as configuration
    from jaxdyn.mechanism.builder import MechanismBuilder as MechanismBuilder
    from jaxdyn.mechanism.joints import Cylindrical as Cylindrical
    from jaxdyn.mechanism.joints import Fixed as Fixed
    from jaxdyn.mechanism.joints import Free as Free
    from jaxdyn.mechanism.joints import Planar as Planar
    from jaxdyn.mechanism.joints import Prismatic as Prismatic
    from jaxdyn.mechanism.joints import Revolute as Revolute
    from jaxdyn.mechanism.joints import Rheonomic as Rheonomic
    from jaxdyn.mechanism.joints import Screw as Screw
    from jaxdyn.mechanism.joints import Spherical as Spherical
    from jaxdyn.mechanism.joints import Universal as Universal
    from jaxdyn.mechanism.messages import MechanismError as MechanismError
    from jaxdyn.mechanism.model import Model as Model
    from jaxdyn.mechanism.model import as_dtype as as_dtype
    from jaxdyn.mechanism.prescribed import ConstantRate as ConstantRate
    from jaxdyn.mechanism.prescribed import Sinusoid as Sinusoid
    from jaxdyn.mechanism.prescribed import Spline as Spline
    from jaxdyn.mechanism.transformations import decompose_joints as decompose_joints
    from jaxdyn.mechanism.transformations import release_joints as release_joints
    from jaxdyn.simulate.controls import Controller as Controller
    from jaxdyn.simulate.controls import Knots as Knots
    from jaxdyn.simulate.integrators import ImplicitMidpoint as ImplicitMidpoint
    from jaxdyn.simulate.integrators import RungeKutta4 as RungeKutta4
    from jaxdyn.simulate.integrators import SemiImplicitEuler as SemiImplicitEuler
    from jaxdyn.simulate.projected import Projected as Projected
    from jaxdyn.simulate.single_step import stepper as stepper
    from jaxdyn.simulate.trajectory import Trajectory as Trajectory
    from jaxdyn.simulate.trajectory import rollout as rollout
    from jaxdyn.simulate.variational import Variational as Variational
    from jaxdyn.version import __version__ as __version__
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
    LOADERS["view"] = lambda: __getattr__("view")  # which draws objects of all packages
