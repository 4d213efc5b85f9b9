"""Predictions that depend on parameters that the training recordings determine poorly or not at all."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from jaxdyn.compute.arrays import on_device
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.inverse_dynamics_error import Motions
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.prediction_intervals import root_of_covariance, sensitivity
from jaxdyn.identify.recording import Windows

# Sensitivities are averaged over this number of windows or samples, evenly spaced and repeated if there are fewer, so that data of
# any length share compiled code.
_WINDOWS, _SAMPLES = 24, 500
# An undetermined direction affects a motion if its effect exceeds this fraction of the effects of its single values.
_CANCELED = 1e-3
# Effect of a change by the value itself, in standard deviations of the noise, that counts.
_NOTICEABLE = 1e-3
_MOST_NAMES = 4  # in one message
_MINOR = 0.3  # part of the largest effect, below which a value is not named


class UndeterminedPrediction(NamedTuple):
    """A motion whose prediction depends on poorly determined parameters, from `undetermined_predictions`.

    Attributes:
        motion: Name of the motion.
        parameters: Names of the parameters, the most influential first.
        fraction: Standard deviation of the prediction because of these parameters, divided by its total standard deviation; 1 if
            neither data nor priors determine them.
        training_fraction: The same ratio for the training data.
    """

    motion: str
    parameters: tuple[str, ...]
    fraction: float
    training_fraction: float

    @property
    def message(self) -> str:
        """Sentence for a report."""
        more = len(self.parameters) - _MOST_NAMES
        names = ", ".join(self.parameters[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        remedy = "record a motion that excites them, or give a prior"
        if self.fraction == 1.0:
            return (
                f"{self.motion}: the prediction depends on {names}, which neither training recordings nor priors determine; "
                f"{remedy}"
            )
        return (
            f"{self.motion}: {100 * self.fraction:.0f} % of the predicted standard deviation come from {names}, which the training "
            f"recordings hardly determine ({100 * self.training_fraction:.0f} % there); {remedy}"
        )


def undetermined_predictions(
    plant: Plant,
    training: Windows | Motions,
    motions: Mapping[str, Windows | Motions],
    *,
    least_fraction: float = 0.7,
    factor: float = 3.0,
) -> list[UndeterminedPrediction]:
    """Find motions whose prediction depends on parameters that the training data do not determine.

    Let C = L L' be the covariance of the estimates, S the mean of J' J over all predicted values of a motion, where J is the
    derivative of a prediction with respect to the estimated values divided by the noise, and w_k the orthonormal eigenvectors of
    L' S L with the eigenvalues e_k. The parameter errors along L w_k are independent, and the fraction of the standard deviation of
    the prediction that comes from direction k is

        sqrt(e_k / (1 + sum_j e_j)).

    A direction is reported if this fraction is at least `least_fraction` and the standard deviation that it causes is at least
    `factor` times that in the training data. The second condition leaves out chaotic motions, which increase all errors. Directions
    without any information in the training data (`Uncertainty.undetermined`) are reported if a prediction depends on them.

    Args:
        plant: Fitted plant with its estimates, `Plant(..., estimates=uncertainty(problem, unknowns))`.
        training: Training data of the fit: `Windows` of measurements or `Motions` with forces.
        motions: Data of other motions by name, of the kind of the training data. Only their inputs, initial states and times are
            used for `Windows`, and only the motions for `Motions`.
        least_fraction: Smallest reported fraction; the default is about half of the variance of a prediction.
        factor: Smallest reported ratio of the standard deviations in a motion and in the training data.

    Returns:
        The findings of each motion, in the order of `motions` and with decreasing fraction.

    Raises:
        ValueError: The plant has no estimates from a fit.
    """
    known = plant.without_zeros.estimates
    if known is None or known.noise is None or known.determined is None:
        raise ValueError(
            "the plant has no estimates of a fit; give Plant(..., estimates=uncertainty(problem, unknowns))"
        )
    plant = plant.without_zeros.bare
    root = np.asarray(root_of_covariance(known))
    before = _information(plant, known, training)
    found = []
    for name, data in motions.items():
        S = _information(plant, known, data)
        each = [*_unknown(known, S, before, factor), *_uncertain(known, root, S, before, least_fraction, factor)]
        found += [finding._replace(motion=name) for finding in each]
    return found


def _uncertain(
    known: Uncertainty, root: np.ndarray, S: np.ndarray, before: np.ndarray, least_fraction: float, factor: float
) -> list[UndeterminedPrediction]:
    """Directions of finite variance that dominate a prediction."""
    effects, directions = np.linalg.eigh(root.T @ S @ root)
    effects, directions = np.maximum(effects[::-1], 0.0), root @ directions[:, ::-1]
    total = 1.0 + effects.sum()
    trained = root.T @ before @ root
    total_before = 1.0 + np.trace(trained)
    found = []
    for effect, direction in zip(effects, directions.T, strict=True):
        fraction, earlier = np.sqrt(effect / total), max(float(direction @ before @ direction), 0.0)
        if fraction >= least_fraction and effect >= factor**2 * earlier:
            names = _names(known, S, direction)
            found.append(UndeterminedPrediction("", names, float(fraction), float(np.sqrt(earlier / total_before))))
    return found


def _unknown(known: Uncertainty, S: np.ndarray, before: np.ndarray, factor: float) -> list[UndeterminedPrediction]:
    """Directions without information that change a prediction."""
    undetermined = np.zeros((len(known.labels), 0)) if known.undetermined is None else np.asarray(known.undetermined)
    effects, vectors = np.linalg.eigh(undetermined.T @ S @ undetermined)
    values = np.abs(np.asarray(known.values))
    found = []
    for effect, direction in zip(effects[::-1], (undetermined @ vectors[:, ::-1]).T, strict=True):
        single = np.sum(direction**2 * np.diag(S))
        if effect <= _CANCELED**2 * single or effect <= factor**2 * float(direction @ before @ direction):
            continue
        # Change along the direction that is as large as a value, or one unit if the value is zero.
        length = 1.0 / np.max(np.abs(direction) / np.where(values > 0.0, values, 1.0))
        if length * np.sqrt(effect) >= _NOTICEABLE:
            found.append(UndeterminedPrediction("", _names(known, S, direction), 1.0, 0.0))
    return found


def _names(known: Uncertainty, S: np.ndarray, direction: np.ndarray) -> tuple[str, ...]:
    """Names of the values whose changes along a direction affect the prediction most."""
    effects = np.abs(direction) * np.sqrt(np.diag(S))
    order = np.argsort(-effects)
    return tuple(known.labels[k][0] for k in order if effects[k] >= _MINOR * effects[order[0]])


def _information(plant: Plant, known: Uncertainty, data: Windows | Motions) -> Float[np.ndarray, "values values"]:
    """Mean of J'J over the predicted values of some data, where J is their derivative divided by the noise."""
    windows = isinstance(data, Windows)
    count, number = (data.count, _WINDOWS) if windows else (data.q.shape[0], _SAMPLES)
    evenly = np.arange(number) * count // number
    data = jax.tree.map(lambda leaf: on_device(np.asarray(leaf)[evenly]), data)
    J = sensitivity(plant, known, data) / np.asarray(known.noise, np.float64)[:, None]
    weights = np.asarray(data.weights) if isinstance(data, Windows) else np.ones(J.shape[:-1])
    rows = J[(weights > 0) & np.isfinite(J).all(axis=-1)]
    return rows.T @ rows / max(len(rows), 1)
