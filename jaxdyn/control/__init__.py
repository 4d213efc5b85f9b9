"""Optimal control: computation of the controls and design parameters of a system that minimize a cost.

problem           discrete-time dynamics, costs, bounds, constraints, design parameters
costs, rates      predefined costs and constraints of mechanisms; problems with rates of the controls as new controls
ensembles         problems of one plan for several machines
guess             initial guesses
plan              states, controls and design parameters, with their costs, constraint values and multipliers
solution, batch   the function `solve` for all solvers, result codes and histories; batches of searches and their local optima
expansion         second-order expansion of a problem about a plan
linear_quadratic  Riccati recursions, sequential and parallel in time
ilqr              iLQR and DDP, which simulate the optimal policy of an expansion
interior_point, filter_search, restoration, multiple_shooting
                  interior-point method with Newton steps for states and controls together
single_shooting   gradient descent on the controls
sampling          MPPI, cross-entropy method and predictive sampling
sensitivity       derivatives of optimal plans
auto              choice of the solver by the structure of the problem
verification      check of a plan that does not depend on the solver
tracking          linear feedback (LQR) along a plan, and its region of attraction
receding_horizon  model-predictive control, as a controller in simulations
scheme, transcription, nonlinear_program, collocation
                  direct collocation, solved by Ipopt
"""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.control.auto import Auto as Auto
    from jaxdyn.control.batch import best_of as best_of
    from jaxdyn.control.batch import describe_optima as describe_optima
    from jaxdyn.control.batch import optima as optima
    from jaxdyn.control.batch import solve_batch as solve_batch
    from jaxdyn.control.collocation import CollocatedSolution as CollocatedSolution
    from jaxdyn.control.collocation import Collocation as Collocation
    from jaxdyn.control.constraint_terms import StateBounds as StateBounds
    from jaxdyn.control.constraint_terms import TargetState as TargetState
    from jaxdyn.control.cost_terms import ConstraintTerm as ConstraintTerm
    from jaxdyn.control.cost_terms import CostTerm as CostTerm
    from jaxdyn.control.cost_terms import LeastSquares as LeastSquares
    from jaxdyn.control.costs import AngularDeviation as AngularDeviation
    from jaxdyn.control.costs import Deviation as Deviation
    from jaxdyn.control.costs import Effort as Effort
    from jaxdyn.control.costs import ElapsedTime as ElapsedTime
    from jaxdyn.control.ensembles import ensemble as ensemble
    from jaxdyn.control.ensembles import nominal_plan as nominal_plan
    from jaxdyn.control.frame_costs import ContactForce as ContactForce
    from jaxdyn.control.frame_costs import FramePose as FramePose
    from jaxdyn.control.frame_costs import FrameVelocity as FrameVelocity
    from jaxdyn.control.frame_costs import Manipulability as Manipulability
    from jaxdyn.control.ilqr import ILQR as ILQR
    from jaxdyn.control.multiple_shooting import MultipleShooting as MultipleShooting
    from jaxdyn.control.obstacles import Penetration as Penetration
    from jaxdyn.control.obstacles import Spheres as Spheres
    from jaxdyn.control.plan import Plan as Plan
    from jaxdyn.control.plan import rollout_controls as rollout_controls
    from jaxdyn.control.problem import ContinuousDynamics as ContinuousDynamics
    from jaxdyn.control.problem import ControlProblem as ControlProblem
    from jaxdyn.control.problem import Design as Design
    from jaxdyn.control.problem import DiscreteDynamics as DiscreteDynamics
    from jaxdyn.control.problem import Dynamics as Dynamics
    from jaxdyn.control.problem import Equality as Equality
    from jaxdyn.control.problem import Inequality as Inequality
    from jaxdyn.control.problem import MultibodyDynamics as MultibodyDynamics
    from jaxdyn.control.problem import free_duration as free_duration
    from jaxdyn.control.rates import with_rates as with_rates
    from jaxdyn.control.rates import without_rates as without_rates
    from jaxdyn.control.receding_horizon import RecedingHorizon as RecedingHorizon
    from jaxdyn.control.receding_horizon import run_receding_horizon as run_receding_horizon
    from jaxdyn.control.sampling import Sampling as Sampling
    from jaxdyn.control.sensitivity import optimal_plan as optimal_plan
    from jaxdyn.control.single_shooting import SingleShooting as SingleShooting
    from jaxdyn.control.solution import ControlResult as ControlResult
    from jaxdyn.control.solution import IterativeSolver as IterativeSolver
    from jaxdyn.control.solution import Solution as Solution
    from jaxdyn.control.solution import Solver as Solver
    from jaxdyn.control.solution import UnsolvedError as UnsolvedError
    from jaxdyn.control.solution import solve as solve
    from jaxdyn.control.tracking import Tracker as Tracker
    from jaxdyn.control.tracking import arrives as arrives
    from jaxdyn.control.tracking import follow as follow
    from jaxdyn.control.tracking import tracking_gains as tracking_gains
    from jaxdyn.control.verification import verify as verify
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
