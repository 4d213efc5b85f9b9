"""Zeros of sensors in recordings that a fit has not seen, estimated from a part of these recordings."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxdyn.identify.fitting import fit
from jaxdyn.identify.levenberg_marquardt import LevenbergMarquardt
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import GaussianPrior, Parameter, Parameters
from jaxdyn.identify.recording import Windows

# Standard deviation of the prior, in units of the measurements. It only prevents a singular matrix for recordings without motion.
_WEAK = 1.0
_TOLERANCE = 1e-4
_MAX_STEPS = 20


def estimated_zeros(plant: Plant, windows: Windows) -> Plant:
    """The plant with one zero of each sensor for each recording of the windows, estimated from these windows.

    Encoders that are zeroed by hand have another zero in each recording. A fit estimates the zeros of its training recordings with
    `Parameter("sensors.zeros")`. For other recordings, only their zeros are estimated here, while all other values of the plant
    remain fixed: the zeros minimize the squared errors of the simulated windows.

        beginning = identify.cut([recording.between(0.0, 2.0)], duration=0.5, interval=0.002)
        plant = identify.estimated_zeros(plant, beginning)
        rest = identify.cut([recording], duration=0.5, interval=0.002, first=2.0)
        identify.validation.predicted_measurements(plant, rest)

    Args:
        plant: Plant with fixed parameters; zeros of other recordings are discarded.
        windows: Windows of the recordings. Prediction errors are meaningful only for other windows of the same recordings.

    Returns:
        The plant whose `sensors.zeros` have one row for each recording, in the order in which the recordings were cut.
    """
    count = int(np.max(np.asarray(windows.sources))) + 1
    none = jnp.zeros((count, plant.sensors.noise.shape[-1]), plant.sensors.noise.dtype)
    blank = eqx.tree_at(lambda plant: plant.sensors.zeros, plant.bare, none)
    free = Parameters(blank, [Parameter("sensors.zeros", prior=GaussianPrior(_WEAK))])
    problem = OutputError(free, windows, free_starts=False)
    found = fit(problem, LevenbergMarquardt(_TOLERANCE), max_steps=_MAX_STEPS, throw=False, progress=False)
    return eqx.tree_at(lambda plant: plant.sensors.zeros, plant, found.value.sensors.zeros)
