"""System identification: physical parameters from recorded motion, with exact derivatives and uncertainty.

Free parameters
    addresses               paths to parameters, names of their rows, and their units
    charts, parameters      maps between unconstrained parameters and physical values; priors, ties, names
    measurement             sensors and inputs of a mechanism
Data
    recording, processing   recordings, their parts, windows, grids and filters
Nonlinear fits
    losses, least_squares   robust losses; problems with shared and local unknowns, and their normal equations
    output_error            comparison of simulated windows with measurements: single and multiple shooting
    inverse_dynamics_error  comparison of the forces required by a motion with measured forces
    fitting, solver         the function `fit`, which all solvers share, its result, and result codes
    levenberg_marquardt     the default solver, for one initial guess or many
    stages                  the usual way: parameters, noise, and problems that are fitted in turn
    gradient_descent        first-order fits by the adjoint, on random batches of windows
Linear fits
    regression, identifiability, linear_fit
Experiments and validation
    excitation              the most informative motions
    covariance, estimates   confidence intervals, unidentifiable parameters
    diagnosis               faults of recordings, before a fit
    verdict                 judgment of a fit: doubts, and the next thing to try
    validation, checks      predictions of recordings, and figures of merit of their errors
    evaluation              judgment of stored plants on recordings, without a fit
    zeros                   zeros of encoders in recordings that a fit has not seen
    prediction_intervals    standard deviations of predictions
    posterior               machines drawn from the distribution of the estimates
    extrapolation           predictions that depend on parameters that the training data do not determine
"""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.identify.charts import Bounded as Bounded
    from jaxdyn.identify.charts import Chart as Chart
    from jaxdyn.identify.charts import PhysicalInertia as PhysicalInertia
    from jaxdyn.identify.charts import Positive as Positive
    from jaxdyn.identify.charts import Real as Real
    from jaxdyn.identify.charts import Rotation as Rotation
    from jaxdyn.identify.charts import UnitVector as UnitVector
    from jaxdyn.identify.checks import Check as Check
    from jaxdyn.identify.checks import ForcesCheck as ForcesCheck
    from jaxdyn.identify.checks import ValidTimeCheck as ValidTimeCheck
    from jaxdyn.identify.checks import WindowsCheck as WindowsCheck
    from jaxdyn.identify.covariance import uncertainty as uncertainty
    from jaxdyn.identify.diagnosis import diagnose as diagnose
    from jaxdyn.identify.evaluation import evaluate as evaluate
    from jaxdyn.identify.excitation import design_excitation as design_excitation
    from jaxdyn.identify.excitation import random_motions as random_motions
    from jaxdyn.identify.extrapolation import undetermined_predictions as undetermined_predictions
    from jaxdyn.identify.fitting import FitError as FitError
    from jaxdyn.identify.fitting import fit as fit
    from jaxdyn.identify.gradient_descent import GradientDescent as GradientDescent
    from jaxdyn.identify.identifiability import base_parameters as base_parameters
    from jaxdyn.identify.identifiability import system_base_parameters as system_base_parameters
    from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError as InverseDynamicsError
    from jaxdyn.identify.inverse_dynamics_error import Motions as Motions
    from jaxdyn.identify.least_squares import Problem as Problem
    from jaxdyn.identify.least_squares import Unknowns as Unknowns
    from jaxdyn.identify.levenberg_marquardt import LevenbergMarquardt as LevenbergMarquardt
    from jaxdyn.identify.linear_fit import Prior as Prior
    from jaxdyn.identify.linear_fit import reweighted_least_squares as reweighted_least_squares
    from jaxdyn.identify.linear_fit import weighted_least_squares as weighted_least_squares
    from jaxdyn.identify.losses import Cauchy as Cauchy
    from jaxdyn.identify.losses import Huber as Huber
    from jaxdyn.identify.losses import Loss as Loss
    from jaxdyn.identify.losses import Squares as Squares
    from jaxdyn.identify.measurement import Inputs as Inputs
    from jaxdyn.identify.measurement import Plant as Plant
    from jaxdyn.identify.measurement import Sensors as Sensors
    from jaxdyn.identify.output_error import OutputError as OutputError
    from jaxdyn.identify.parameters import DivergencePrior as DivergencePrior
    from jaxdyn.identify.parameters import GaussianPrior as GaussianPrior
    from jaxdyn.identify.parameters import Parameter as Parameter
    from jaxdyn.identify.parameters import Parameters as Parameters
    from jaxdyn.identify.parameters import Tie as Tie
    from jaxdyn.identify.parameters import body_inertia as body_inertia
    from jaxdyn.identify.posterior import samples as samples
    from jaxdyn.identify.processing import Processing as Processing
    from jaxdyn.identify.processing import Smoothing as Smoothing
    from jaxdyn.identify.recording import Part as Part
    from jaxdyn.identify.recording import Recording as Recording
    from jaxdyn.identify.recording import cut as cut
    from jaxdyn.identify.regression import TorqueOffset as TorqueOffset
    from jaxdyn.identify.regression import inertial_parameters as inertial_parameters
    from jaxdyn.identify.regression import kinetic_energy_regressor as kinetic_energy_regressor
    from jaxdyn.identify.regression import labels as labels
    from jaxdyn.identify.regression import linear_parameters as linear_parameters
    from jaxdyn.identify.regression import potential_energy_regressor as potential_energy_regressor
    from jaxdyn.identify.regression import regressor as regressor
    from jaxdyn.identify.regression import remaining_forces as remaining_forces
    from jaxdyn.identify.regression import with_linear_parameters as with_linear_parameters
    from jaxdyn.identify.solver import FitResult as FitResult
    from jaxdyn.identify.stages import recipe as recipe
    from jaxdyn.identify.validation import predicted_measurements as predicted_measurements
    from jaxdyn.identify.verdict import judge as judge
    from jaxdyn.identify.zeros import estimated_zeros as estimated_zeros
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
