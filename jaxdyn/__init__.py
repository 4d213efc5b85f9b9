"""Differentiable multibody dynamics in covariant form, as pure JAX functions.

Every function works on one mechanism at one instant; batch it with `jax.vmap`, differentiate it with `jax.grad`, compile it with
`jax.jit`; or batch it with `jaxdyn.batched`, whose own compiler puts one sample into each SIMD lane. Start with
`MechanismBuilder` or `jaxdyn.library`, put the model into a `System`, and run `rollout`. The theory, with the equation numbers
that the docstrings cite, is in `theory.md` beside this file.
"""

from jaxdyn import cache, control, identify, io, lanes, library, view
from jaxdyn.constraints import (
    Assembly,
    Coupling,
    Distance,
    LinkageBuilder,
    LoopJoint,
    LoopReaction,
    MinimalMotion,
    Mobility,
    Projection,
    assemble,
    describe_mobility,
    independent_velocities,
    loop_reactions,
    minimal_acceleration,
    minimal_motion,
    mobility,
    project_position,
    project_velocity,
)
from jaxdyn.dynamics.acceleration_energy import (
    acceleration_energy,
    acceleration_energy_from_kinetic,
    acceleration_energy_of_velocity,
    acceleration_energy_terms,
    gibbs_appell_accelerations,
    gibbs_appell_forces,
    lagrange_forces,
    lagrange_terms,
)
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.constraint_forces import ConstraintForces, constraint_forces, constraint_jacobian
from jaxdyn.dynamics.derivatives import (
    forward_dynamics_derivatives,
    forward_dynamics_hessian_product,
    inverse_dynamics_derivatives,
    inverse_dynamics_hessian_product,
)
from jaxdyn.dynamics.energy import angular_momentum, center_of_mass, kinetic_energy, momentum, potential_energy
from jaxdyn.dynamics.exponentials import (
    screw_accelerations,
    screw_displacements,
    screw_exponential,
    screw_poses,
    screw_velocities,
    screws,
)
from jaxdyn.dynamics.forces import (
    AppliedForce,
    BodyForce,
    Damper,
    Force,
    JointDrives,
    JointForce,
    JointServo,
    JointSpring,
    Resistance,
    Spring,
)
from jaxdyn.dynamics.forward import forward_dynamics
from jaxdyn.dynamics.friction import (
    AsymmetricFriction,
    BearingFriction,
    JointFriction,
    LoadFriction,
    QuadraticDrag,
    StribeckFriction,
)
from jaxdyn.dynamics.hamilton import canonical_rates, generalized_momentum, hamiltonian
from jaxdyn.dynamics.inverse import bias_force, gravity_force, inverse_dynamics
from jaxdyn.dynamics.joint_limits import JointLimits
from jaxdyn.dynamics.kane import kane_forces
from jaxdyn.dynamics.kinematics import (
    body_accelerations,
    body_jacobian,
    body_velocities,
    forward_kinematics,
    frame_placement,
    partial_velocities,
)
from jaxdyn.dynamics.metric import (
    christoffel_first_kind,
    christoffel_second_kind,
    connection_first_kind,
    connection_second_kind,
    coriolis_matrix,
    covariant_derivative,
    mass_matrix,
)
from jaxdyn.dynamics.reactions import Reactions, driving_forces, driving_power, joint_reactions
from jaxdyn.dynamics.system import (
    ConstraintErrors,
    State,
    System,
    acceleration,
    applied_forces,
    constraint_errors,
    neutral_state,
    stabilizing_correction,
    total_energy,
    total_potential_energy,
)
from jaxdyn.lanes import batched
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.builder import MechanismBuilder, model_from_arrays
from jaxdyn.mechanism.checks import MechanismError
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import (
    Cylindrical,
    Fixed,
    Free,
    Planar,
    Prismatic,
    Revolute,
    Rheonomic,
    Screw,
    Spherical,
    Universal,
)
from jaxdyn.mechanism.model import Limits, Model, as_dtype
from jaxdyn.mechanism.prescribed import ConstantRate, PrescribedMotion, Sinusoid, Spline
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.mechanism.topology import Topology
from jaxdyn.mechanism.transformations import decomposed, released
from jaxdyn.simulate.adaptive import rollout_adaptive
from jaxdyn.simulate.controls import Controller, Knots
from jaxdyn.simulate.diagnostics import power_balance_error, work_of_step
from jaxdyn.simulate.geodesics import geodesic
from jaxdyn.simulate.integrators import ExplicitEuler, ImplicitMidpoint, Integrator, RungeKutta4, SemiImplicitEuler
from jaxdyn.simulate.outcome import DivergenceWarning, Result
from jaxdyn.simulate.projected import Projected
from jaxdyn.simulate.rollout import Trajectory, rollout
from jaxdyn.simulate.variational import Variational

__all__ = [
    "AppliedForce",
    "Assembly",
    "AsymmetricFriction",
    "BearingFriction",
    "BodyForce",
    "ConstantRate",
    "Constraint",
    "ConstraintErrors",
    "ConstraintForces",
    "Controller",
    "Coupling",
    "Cylindrical",
    "Damper",
    "Distance",
    "DivergenceWarning",
    "ExplicitEuler",
    "Fixed",
    "Force",
    "Free",
    "ImplicitMidpoint",
    "Integrator",
    "Joint",
    "JointDrives",
    "JointForce",
    "JointFriction",
    "JointLimits",
    "JointServo",
    "JointSpring",
    "Knots",
    "Limits",
    "LinkageBuilder",
    "LoadFriction",
    "LoopJoint",
    "LoopReaction",
    "MechanismBuilder",
    "MechanismError",
    "MinimalMotion",
    "Mobility",
    "Model",
    "Planar",
    "PrescribedMotion",
    "Prismatic",
    "Projected",
    "Projection",
    "QuadraticDrag",
    "Reactions",
    "Resistance",
    "Result",
    "Revolute",
    "Rheonomic",
    "Rotors",
    "RungeKutta4",
    "Screw",
    "SemiImplicitEuler",
    "Sinusoid",
    "Spherical",
    "Spline",
    "Spring",
    "State",
    "StribeckFriction",
    "System",
    "Topology",
    "Trajectory",
    "Universal",
    "Variational",
    "acceleration",
    "acceleration_energy",
    "acceleration_energy_from_kinetic",
    "acceleration_energy_of_velocity",
    "acceleration_energy_terms",
    "angular_momentum",
    "applied_forces",
    "as_dtype",
    "assemble",
    "batched",
    "bias_force",
    "body_accelerations",
    "body_jacobian",
    "body_velocities",
    "cache",
    "canonical_rates",
    "center_of_mass",
    "christoffel_first_kind",
    "christoffel_second_kind",
    "configuration",
    "connection_first_kind",
    "connection_second_kind",
    "constraint_errors",
    "constraint_forces",
    "constraint_jacobian",
    "control",
    "coriolis_matrix",
    "covariant_derivative",
    "decomposed",
    "describe_mobility",
    "driving_forces",
    "driving_power",
    "forward_dynamics",
    "forward_dynamics_derivatives",
    "forward_dynamics_hessian_product",
    "forward_kinematics",
    "frame_placement",
    "generalized_momentum",
    "geodesic",
    "gibbs_appell_accelerations",
    "gibbs_appell_forces",
    "gravity_force",
    "hamiltonian",
    "identify",
    "independent_velocities",
    "inverse_dynamics",
    "inverse_dynamics_derivatives",
    "inverse_dynamics_hessian_product",
    "io",
    "joint_reactions",
    "kane_forces",
    "kinetic_energy",
    "lagrange_forces",
    "lagrange_terms",
    "lanes",
    "library",
    "loop_reactions",
    "mass_matrix",
    "minimal_acceleration",
    "minimal_motion",
    "mobility",
    "model_from_arrays",
    "momentum",
    "neutral_state",
    "partial_velocities",
    "potential_energy",
    "power_balance_error",
    "project_position",
    "project_velocity",
    "released",
    "rollout",
    "rollout_adaptive",
    "screw_accelerations",
    "screw_displacements",
    "screw_exponential",
    "screw_poses",
    "screw_velocities",
    "screws",
    "stabilizing_correction",
    "total_energy",
    "total_potential_energy",
    "view",
    "work_of_step",
]
