"""Mechanics: kinematics, metric tensor, Christoffel symbols, forces, inverse and forward dynamics, and energy.

All functions are pure and work on one sample; `jax.vmap` and `jaxdyn.batched` extend them to batches.
"""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.dynamics.contact import GroundContact as GroundContact
    from jaxdyn.dynamics.contact import SphereContact as SphereContact
    from jaxdyn.dynamics.contact.material import ContactMaterial as ContactMaterial
    from jaxdyn.dynamics.contact.points import contact_forces as contact_forces
    from jaxdyn.dynamics.contact.restitution import damping_ratio as damping_ratio
    from jaxdyn.dynamics.contact.restitution import restitution as restitution
    from jaxdyn.dynamics.contact.shapes import contact_box as contact_box
    from jaxdyn.dynamics.contact.shapes import contact_capsule as contact_capsule
    from jaxdyn.dynamics.contact.shapes import contact_cylinder as contact_cylinder
    from jaxdyn.dynamics.contact.shapes import contact_ellipsoid as contact_ellipsoid
    from jaxdyn.dynamics.contact.shapes import contact_sphere as contact_sphere
    from jaxdyn.dynamics.contact.shapes import contact_torus as contact_torus
    from jaxdyn.dynamics.contact.surfaces import HalfSpace as HalfSpace
    from jaxdyn.dynamics.contact.surfaces import HeightFunction as HeightFunction
    from jaxdyn.dynamics.contact.surfaces import HeightGrid as HeightGrid
    from jaxdyn.dynamics.contact.surfaces import Surface as Surface
    from jaxdyn.dynamics.derivatives import forward_dynamics_derivatives as forward_dynamics_derivatives
    from jaxdyn.dynamics.derivatives import inverse_dynamics_derivatives as inverse_dynamics_derivatives
    from jaxdyn.dynamics.drives import Actuator as Actuator
    from jaxdyn.dynamics.drives import Actuators as Actuators
    from jaxdyn.dynamics.drives import Drives as Drives
    from jaxdyn.dynamics.drives import JointDrives as JointDrives
    from jaxdyn.dynamics.energy import angular_momentum as angular_momentum
    from jaxdyn.dynamics.energy import center_of_mass as center_of_mass
    from jaxdyn.dynamics.energy import center_of_mass_jacobian as center_of_mass_jacobian
    from jaxdyn.dynamics.energy import centroidal_momentum_matrix as centroidal_momentum_matrix
    from jaxdyn.dynamics.energy import centroidal_momentum_rate as centroidal_momentum_rate
    from jaxdyn.dynamics.energy import generalized_momentum as generalized_momentum
    from jaxdyn.dynamics.energy import kinetic_energy as kinetic_energy
    from jaxdyn.dynamics.energy import momentum as momentum
    from jaxdyn.dynamics.energy import subtree_centers as subtree_centers
    from jaxdyn.dynamics.equations_of_motion import acceleration as acceleration
    from jaxdyn.dynamics.equations_of_motion import applied_forces as applied_forces
    from jaxdyn.dynamics.equations_of_motion import total_energy as total_energy
    from jaxdyn.dynamics.forces import AppliedForce as AppliedForce
    from jaxdyn.dynamics.forces import BodyForce as BodyForce
    from jaxdyn.dynamics.forces import BoxDrag as BoxDrag
    from jaxdyn.dynamics.forces import Damper as Damper
    from jaxdyn.dynamics.forces import EllipsoidDrag as EllipsoidDrag
    from jaxdyn.dynamics.forces import GeneralizedForce as GeneralizedForce
    from jaxdyn.dynamics.forces import GravityCompensation as GravityCompensation
    from jaxdyn.dynamics.forces import JointForce as JointForce
    from jaxdyn.dynamics.forces import JointServo as JointServo
    from jaxdyn.dynamics.forces import JointSpring as JointSpring
    from jaxdyn.dynamics.forces import Resistance as Resistance
    from jaxdyn.dynamics.forces import Spring as Spring
    from jaxdyn.dynamics.forces.friction import AsymmetricFriction as AsymmetricFriction
    from jaxdyn.dynamics.forces.friction import BearingFriction as BearingFriction
    from jaxdyn.dynamics.forces.friction import JointFriction as JointFriction
    from jaxdyn.dynamics.forces.friction import LoadFriction as LoadFriction
    from jaxdyn.dynamics.forces.friction import QuadraticDrag as QuadraticDrag
    from jaxdyn.dynamics.forces.friction import StribeckFriction as StribeckFriction
    from jaxdyn.dynamics.forces.joint_limits import JointLimits as JointLimits
    from jaxdyn.dynamics.forces.tendons import Tendon as Tendon
    from jaxdyn.dynamics.forward import forward_dynamics as forward_dynamics
    from jaxdyn.dynamics.frame_targets import FrameTarget as FrameTarget
    from jaxdyn.dynamics.frame_targets import InverseKinematicsResult as InverseKinematicsResult
    from jaxdyn.dynamics.frame_targets import inverse_kinematics as inverse_kinematics
    from jaxdyn.dynamics.given_jacobian import constrained_dynamics as constrained_dynamics
    from jaxdyn.dynamics.given_jacobian import impulse_dynamics as impulse_dynamics
    from jaxdyn.dynamics.inverse import bias_force as bias_force
    from jaxdyn.dynamics.inverse import gravity_force as gravity_force
    from jaxdyn.dynamics.kinematics import body_jacobian as body_jacobian
    from jaxdyn.dynamics.kinematics import forward_kinematics as forward_kinematics
    from jaxdyn.dynamics.kinematics import frame_acceleration as frame_acceleration
    from jaxdyn.dynamics.kinematics import frame_placement as frame_placement
    from jaxdyn.dynamics.kinematics import frame_velocity as frame_velocity
    from jaxdyn.dynamics.kinematics import mass_center_accelerations as mass_center_accelerations
    from jaxdyn.dynamics.kinematics import mass_center_velocities as mass_center_velocities
    from jaxdyn.dynamics.kinematics import partial_velocities as partial_velocities
    from jaxdyn.dynamics.metric import christoffel_first_kind as christoffel_first_kind
    from jaxdyn.dynamics.metric import christoffel_second_kind as christoffel_second_kind
    from jaxdyn.dynamics.metric import connection_first_kind as connection_first_kind
    from jaxdyn.dynamics.metric import connection_second_kind as connection_second_kind
    from jaxdyn.dynamics.metric import coriolis_matrix as coriolis_matrix
    from jaxdyn.dynamics.metric import covariant_derivative as covariant_derivative
    from jaxdyn.dynamics.metric import mass_matrix as mass_matrix
    from jaxdyn.dynamics.of_systems import frame_jacobian as frame_jacobian
    from jaxdyn.dynamics.of_systems import inverse_dynamics as inverse_dynamics
    from jaxdyn.dynamics.of_systems import potential_energy as potential_energy
    from jaxdyn.dynamics.paths import Waypoint as Waypoint
    from jaxdyn.dynamics.reactions import driving_forces as driving_forces
    from jaxdyn.dynamics.reactions import driving_power as driving_power
    from jaxdyn.dynamics.reactions import joint_reactions as joint_reactions
    from jaxdyn.dynamics.sensors import Accelerometer as Accelerometer
    from jaxdyn.dynamics.sensors import ContactSensors as ContactSensors
    from jaxdyn.dynamics.sensors import ForceTorqueSensor as ForceTorqueSensor
    from jaxdyn.dynamics.sensors import Gyroscope as Gyroscope
    from jaxdyn.dynamics.sensors import JointEncoders as JointEncoders
    from jaxdyn.dynamics.sensors import JointTorqueSensors as JointTorqueSensors
    from jaxdyn.dynamics.sensors import Markers as Markers
    from jaxdyn.dynamics.sensors import MotorCurrents as MotorCurrents
    from jaxdyn.dynamics.sensors import Sensor as Sensor
    from jaxdyn.dynamics.sensors import observe as observe
    from jaxdyn.dynamics.system import State as State
    from jaxdyn.dynamics.system import System as System
    from jaxdyn.dynamics.system import neutral_state as neutral_state
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
