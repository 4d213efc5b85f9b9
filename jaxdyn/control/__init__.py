"""Optimal control: plans of controls, and of numbers of the machine, that cost least.

problem           dynamics in steps of time, costs, bounds, conditions, designs
costs, rates      ready costs and conditions of mechanisms; rates of controls
plan              states, controls and design, and what they come to
expansion         a problem about a plan, to second order
linear_quadratic  Riccati recursions, sequential and parallel in time
newton, ilqr      solvers by expansions: iLQR and DDP
interior_point, multiple_shooting
                  Newton's method on states and controls at once, with an interior-point method
single_shooting   gradient descent on the controls
sampling          MPPI, cross entropy and predictive sampling
sensitivity       derivatives of optimal plans
tracking          feedback along a plan, and from where it arrives
receding_horizon  plans made anew at every step, as a controller of rollouts
scheme, transcription, nonlinear_program, collocation
                  direct collocation, a solver of the whole motion at once by Ipopt
workless          velocities as controls, kept energy, forces without work: brachistochrones
solution, batch   the call that all solvers share, and how it can end; many starts, and the optima they lead to
history           how cost and violation went
"""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.control.batch import Optimum as Optimum
    from jaxdyn.control.batch import best_of as best_of
    from jaxdyn.control.batch import describe_optima as describe_optima
    from jaxdyn.control.batch import optima as optima
    from jaxdyn.control.batch import solve_batch as solve_batch
    from jaxdyn.control.collocation import CollocatedSolution as CollocatedSolution
    from jaxdyn.control.collocation import Collocation as Collocation
    from jaxdyn.control.costs import AngularDeviation as AngularDeviation
    from jaxdyn.control.costs import Deviation as Deviation
    from jaxdyn.control.costs import Effort as Effort
    from jaxdyn.control.costs import ElapsedTime as ElapsedTime
    from jaxdyn.control.costs import EnergyLevel as EnergyLevel
    from jaxdyn.control.costs import FramePose as FramePose
    from jaxdyn.control.costs import Penetration as Penetration
    from jaxdyn.control.costs import Spheres as Spheres
    from jaxdyn.control.costs import StateBounds as StateBounds
    from jaxdyn.control.history import History as History
    from jaxdyn.control.history import Recorded as Recorded
    from jaxdyn.control.history import RecordedSolution as RecordedSolution
    from jaxdyn.control.ilqr import ILQR as ILQR
    from jaxdyn.control.multiple_shooting import MultipleShooting as MultipleShooting
    from jaxdyn.control.plan import Plan as Plan
    from jaxdyn.control.plan import planned as planned
    from jaxdyn.control.problem import Condition as Condition
    from jaxdyn.control.problem import ControlProblem as ControlProblem
    from jaxdyn.control.problem import Design as Design
    from jaxdyn.control.problem import Dynamics as Dynamics
    from jaxdyn.control.problem import Flow as Flow
    from jaxdyn.control.problem import Mechanics as Mechanics
    from jaxdyn.control.problem import StepFunction as StepFunction
    from jaxdyn.control.rates import WithRates as WithRates
    from jaxdyn.control.rates import with_rates as with_rates
    from jaxdyn.control.rates import without_rates as without_rates
    from jaxdyn.control.receding_horizon import HorizonRun as HorizonRun
    from jaxdyn.control.receding_horizon import RecedingHorizon as RecedingHorizon
    from jaxdyn.control.receding_horizon import run_receding_horizon as run_receding_horizon
    from jaxdyn.control.sampling import CrossEntropy as CrossEntropy
    from jaxdyn.control.sampling import PathIntegral as PathIntegral
    from jaxdyn.control.sampling import PredictiveSampling as PredictiveSampling
    from jaxdyn.control.sampling import Sampling as Sampling
    from jaxdyn.control.sensitivity import optimal_plan as optimal_plan
    from jaxdyn.control.single_shooting import SingleShooting as SingleShooting
    from jaxdyn.control.solution import ControlResult as ControlResult
    from jaxdyn.control.solution import IterativeSolver as IterativeSolver
    from jaxdyn.control.solution import Solution as Solution
    from jaxdyn.control.solution import Solver as Solver
    from jaxdyn.control.solution import solve as solve
    from jaxdyn.control.tracking import Tracker as Tracker
    from jaxdyn.control.tracking import arrives as arrives
    from jaxdyn.control.tracking import follow as follow
    from jaxdyn.control.tracking import tracking_gains as tracking_gains
    from jaxdyn.control.workless import KeptEnergy as KeptEnergy
    from jaxdyn.control.workless import Velocities as Velocities
    from jaxdyn.control.workless import Workless as Workless
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
