"""Differentiable multibody dynamics in covariant form, as pure JAX functions.

Every function works on one mechanism at one instant; batch it with `jax.vmap`, differentiate it with `jax.grad`, compile it with
`jax.jit`; or batch it with `jaxdyn.batched`, whose own compiler puts one sample into each SIMD lane. Start with
`MechanismBuilder` or `jaxdyn.library`, put the model into a `System`, and run `rollout`. The theory, with the equation numbers
that the docstrings cite, is in `theory.md` beside this file.
"""

from jaxdyn import io, lanes, library
from jaxdyn.dynamics.energy import angular_momentum, center_of_mass, kinetic_energy, momentum, potential_energy
from jaxdyn.dynamics.forces import (
    AppliedForce,
    BodyForce,
    Damper,
    Force,
    JointDrives,
    JointForce,
    JointFriction,
    JointSpring,
    Spring,
)
from jaxdyn.dynamics.forward import forward_dynamics
from jaxdyn.dynamics.inverse import bias_force, gravity_force, inverse_dynamics
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
from jaxdyn.dynamics.system import (
    State,
    System,
    acceleration,
    applied_forces,
    neutral_state,
    total_energy,
    total_potential_energy,
)
from jaxdyn.lanes import batched
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.builder import MechanismBuilder, model_from_arrays
from jaxdyn.mechanism.checks import MechanismError
from jaxdyn.mechanism.joints import (
    Cylindrical,
    Fixed,
    Free,
    Joint,
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
from jaxdyn.mechanism.topology import Topology
from jaxdyn.simulate.controls import Knots
from jaxdyn.simulate.diagnostics import power_balance_error, work_of_step
from jaxdyn.simulate.integrators import ImplicitMidpoint, Integrator, RungeKutta4, SemiImplicitEuler
from jaxdyn.simulate.rollout import Result, Trajectory, rollout

__all__ = [
    "AppliedForce",
    "BodyForce",
    "ConstantRate",
    "Cylindrical",
    "Damper",
    "Fixed",
    "Force",
    "Free",
    "ImplicitMidpoint",
    "Integrator",
    "Joint",
    "JointDrives",
    "JointForce",
    "JointFriction",
    "JointSpring",
    "Knots",
    "Limits",
    "MechanismBuilder",
    "MechanismError",
    "Model",
    "Planar",
    "PrescribedMotion",
    "Prismatic",
    "Result",
    "Revolute",
    "Rheonomic",
    "RungeKutta4",
    "Screw",
    "SemiImplicitEuler",
    "Sinusoid",
    "Spherical",
    "Spline",
    "Spring",
    "State",
    "System",
    "Topology",
    "Trajectory",
    "Universal",
    "acceleration",
    "angular_momentum",
    "applied_forces",
    "as_dtype",
    "batched",
    "bias_force",
    "body_accelerations",
    "body_jacobian",
    "body_velocities",
    "center_of_mass",
    "christoffel_first_kind",
    "christoffel_second_kind",
    "configuration",
    "connection_first_kind",
    "connection_second_kind",
    "coriolis_matrix",
    "covariant_derivative",
    "forward_dynamics",
    "forward_kinematics",
    "frame_placement",
    "gravity_force",
    "inverse_dynamics",
    "io",
    "kinetic_energy",
    "lanes",
    "library",
    "mass_matrix",
    "model_from_arrays",
    "momentum",
    "neutral_state",
    "partial_velocities",
    "potential_energy",
    "power_balance_error",
    "rollout",
    "total_energy",
    "total_potential_energy",
    "work_of_step",
]
