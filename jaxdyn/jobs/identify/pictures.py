"""Pictures of `jaxdyn identify`. This module is imported only if matplotlib is installed."""

import numpy as np

from jaxdyn.identify.estimates import QUANTILE, Uncertainty
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.prediction_intervals import prediction_deviations, start_deviations
from jaxdyn.identify.recording import Part
from jaxdyn.identify.validation import force_errors, predicted_measurements, window_errors
from jaxdyn.jobs.identify.study import StudyRun, motions_of, windows_of
from jaxdyn.mechanism.components import component_names, units_along
from jaxdyn.mechanism.quantity import EFFORT, POSITION, Quantity
from jaxdyn.view import identification, plots

_SHOWN = 8  # consecutive windows in a picture


def draw(run: StudyRun, plant: Plant, known: Uncertainty | None, parts: list[Part]) -> list[str]:
    """Draw predictions of the recordings and, after a fit, correlations of the estimates; returns the names of the files.

    Predictions of a plant with estimates have 95 % bands.
    """
    config, study, directory = run
    model, bare = plant.system.model, plant.bare
    inverse = config.fit.method == "inverse_dynamics"
    drawn = Quantity(EFFORT, along="velocity") if inverse else Quantity(POSITION, along="coordinate")
    names, units = component_names(model, drawn), units_along(model, drawn)
    figures, breaks = {}, []
    if known is not None:
        figures["correlations"] = identification.correlations([name for name, _ in known.labels], known.correlation)
    if inverse:
        motions = motions_of(parts)
        errors = force_errors(bare, motions)
        measured, predicted = errors.measured, errors.predicted
        time = np.arange(len(measured)) * config.motion.interval * config.motion.decimate
        title = f"{study.name}: forces of held-out motion, relative error {100 * errors.relative:.2f} %"
        deviations = prediction_deviations(plant, motions)
    else:
        h = config.windows.interval
        regular = [Part(part.alone.resampled(h), processing=part.processing) for part in parts]
        windows = windows_of(config, regular, stride=config.windows.duration[-1])
        measurements = predicted_measurements(bare, windows)
        errors = window_errors(windows, measurements).errors
        since = np.asarray(windows.times[0])
        figures["errors"] = identification.growing_errors(
            names, since, errors, units=units, title=f"{study.name}: errors of {windows.count} held-out predictions"
        )
        shown = slice(0, min(_SHOWN, windows.count))
        starts = config.windows.duration[-1] * np.arange(windows.count)[shown]
        measured, predicted = (
            np.asarray(x)[shown].reshape(-1, len(names))
            for x in (np.where(np.asarray(windows.weights) > 0, windows.measurements, np.nan), measurements)
        )
        deviations = prediction_deviations(plant, windows.select(shown), start_deviations(plant, parts))
        time, breaks = (starts[:, None] + since[None]).ravel(), starts.tolist()
        title = f"{study.name}: held-out windows, each from its measured start"
    half_widths = None if deviations is None else QUANTILE * deviations.reshape(-1, deviations.shape[-1])
    figures["predictions"] = identification.predictions(
        names, time, measured, predicted, units=units, half_widths=half_widths, breaks=breaks, title=title
    )
    for name, figure in figures.items():
        plots.save(figure, directory.path(f"{study.name}_{name}.png"))
    return [f"{study.name}_{name}.png" for name in figures]
