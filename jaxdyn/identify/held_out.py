"""Errors of predictions of training data that are left out, from which prediction intervals take the errors of the model.

The residuals of a fit are smaller than the errors of its predictions: the parameters were fitted to these residuals, and absorb
errors of the model in the motions of the training data. So the data are divided into groups. Without group b, whose gradient is
g_b and whose information is F_b, the optimum moves by dx_b, and the residuals r_b of the group become the errors e_b:

    dx_b = (F - F_b)^-1 g_b,    e_b = r_b + J_b dx_b

These are the errors of fits without each group, exact for linear problems; nothing is fitted again. A new motion differs from all
training motions, whereas the next period of a periodic motion does not. So a group is a recording (with its own zeros of the
sensors), or else it contains a quarter of the states instead of a quarter of the time.

Source: Allen 1974 (errors of left-out data); Roberts et al. 2017 (groups of similar data); Barber et al. 2021 (their quantiles).
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jaxdyn.compute import stored_jit
from jaxdyn.compute.arrays import on_device
from jaxdyn.identify.estimates import QUANTILE, HeldOut
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions
from jaxdyn.identify.least_squares import Problem, Unknowns, information, local_response, prior_terms
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.pseudoinverse import pseudoinverse
from jaxdyn.identify.recording import Windows
from jaxdyn.identify.validation import moved_starts, prediction_errors, step_of_differences

_BISECTIONS = 2  # of the states, which makes four groups
_TIMES = 11  # instants between the start and the end of a window, at which errors are stored
_INSIDE = 0.95

Fitted: TypeAlias = InverseDynamicsError | OutputError


def held_out_errors(problem: Problem, unknowns: Unknowns, parts: PyTree, F: np.ndarray) -> HeldOut | None:
    """Deviations of the errors of left-out training data, such that 95 % of these errors are within 1.96 deviations.

    Args:
        problem: Problem that was fitted.
        unknowns: Unknowns of the problem at the end of the fit.
        parts: Contributions of all pieces of data, see `Problem.parts`.
        F: Information of all data and priors.

    Returns:
        The deviations; None for classes of problems other than those of this package, for fewer than four pieces of data, and
        for windows with `continuity`, because no group of them can be left out alone.
    """
    pieces = problem.pieces
    if not isinstance(problem, Fitted) or getattr(problem, "continuity", None) is not None:
        return None
    if len(jax.tree.leaves(pieces)[0]) < 2**_BISECTIONS:
        return None
    bare, dtype = problem.without_data, unknowns.x.dtype
    eps, errors = float(jnp.finfo(dtype).eps), []
    longest = problem.parameters.longest_steps  # a value at its bound has no information, and would move without bound
    for group in groups_of(pieces):
        gradient, information_of_group, response = _contribution(bare, unknowns, _rows(parts, group))
        dx = pseudoinverse(F - np.asarray(information_of_group, F.dtype), eps)[0] @ np.asarray(gradient, F.dtype)
        dx = np.clip(dx, -longest, longest)
        ds = np.zeros((len(jax.tree.leaves(pieces)[0]), response.shape[1]))
        if ds.size:  # with free initial states
            ds[group] = -np.asarray(response) @ dx
        errors.append((group, _errors(problem, unknowns, dx.astype(dtype), ds.astype(dtype))[group]))
    order = np.concatenate([group for group, _ in errors])
    errors = np.concatenate([found for _, found in errors])
    if not isinstance(pieces, Windows):
        return _deviations(errors, np.zeros(errors.shape[:2]), np.ones(errors.shape), np.zeros(1))
    times = np.linspace(0.0, pieces.interval * pieces.steps, _TIMES)
    return _deviations(errors, np.asarray(pieces.times)[order], np.asarray(pieces.weights)[order], times)


def _rows(tree: PyTree, rows: Int[np.ndarray, "rows"]) -> PyTree:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tree)  # JAX would compile a program for each shape


def groups_of(pieces: Windows | Motions) -> list[Int[np.ndarray, "_"]]:
    """Indices of the data of each group: each recording if there are at least four recordings, otherwise four groups of states.

    Groups of similar states are found by bisections along the direction in which the states vary most. The states of windows are
    their initial states and mean inputs, and those of motions are coordinates, velocities and accelerations, all in units of their
    standard deviations.

    Args:
        pieces: Windows or samples of motions.
    """
    if isinstance(pieces, Windows):
        recordings = np.asarray(pieces.sources)
        found = [np.flatnonzero(recordings == source) for source in np.unique(recordings)]
        if len(found) >= 2**_BISECTIONS:
            return found
        tables = [pieces.starts.q, pieces.starts.v, jnp.mean(pieces.controls.values, axis=1)]
    else:
        tables = [pieces.q, pieces.v, pieces.a]
    states = np.concatenate([np.asarray(table, np.float64) for table in tables], axis=1)
    states = states / np.maximum(states.std(axis=0), np.finfo(float).tiny) * (np.ptp(states, axis=0) > 0)
    groups = [np.arange(len(states))]
    for _ in range(_BISECTIONS):
        groups = [half for group in groups for half in _halves(states, group)]
    return groups


def _halves(states: Float[np.ndarray, "pieces _"], group: Int[np.ndarray, "_"]) -> list[Int[np.ndarray, "_"]]:
    centered = states[group] - states[group].mean(axis=0)
    along = centered @ np.linalg.eigh(centered.T @ centered)[1][:, -1]
    return [np.sort(half) for half in np.array_split(group[np.argsort(along, kind="stable")], 2)]


@stored_jit
def _contribution(problem: Fitted, unknowns: Unknowns, parts: PyTree) -> tuple[Array, Array, Array]:
    """Gradient and information of a group of data without priors, and the negative derivative of its local unknowns."""
    normal, P = problem.assembled(unknowns, parts), prior_terms(problem.parameters, unknowns.x)[1]
    return jnp.sum(problem.scores(unknowns, parts), axis=0), information(normal) - P.T @ P, local_response(normal)


def _errors(problem: Fitted, unknowns: Unknowns, dx: np.ndarray, ds: np.ndarray) -> Float[np.ndarray, "n M c"]:
    """Predicted minus measured values of all data after steps of the parameters and of the initial states, linearized.

    Central differences along the step use the programs that simulate; exact derivatives would require the compilation of others.
    """
    data, h = problem.pieces, step_of_differences(dx.dtype)

    def after(fraction: float) -> np.ndarray:
        plant = problem.parameters.place(on_device(np.asarray(unknowns.x) + fraction * dx))
        if isinstance(problem, InverseDynamicsError):
            return prediction_errors(plant, data)[:, None]
        starts = (
            moved_starts(plant.system.model, unknowns.local, on_device(fraction * ds)) if problem.free_starts else None
        )
        return prediction_errors(plant, data, starts, integrator=problem.integrator)

    ahead, behind = after(h), after(-h)
    return 0.5 * (ahead + behind) + (ahead - behind) / (2.0 * h)


def _deviations(errors: np.ndarray, stamps: np.ndarray, weights: np.ndarray, times: np.ndarray) -> HeldOut | None:
    """Quantiles of absolute errors near each of some instants, divided by that of the normal distribution."""
    spacing = times[-1] / (len(times) - 1) if len(times) > 1 else 1.0
    nearest = np.rint(stamps / spacing).astype(int)
    found = np.full((len(times), errors.shape[2]), np.nan)
    for k, channel in np.ndindex(found.shape):
        size = np.abs(errors[:, :, channel][(nearest == k) & (weights[:, :, channel] > 0)])
        if size.size:
            found[k, channel] = np.quantile(size, _INSIDE) / QUANTILE
    known = np.isfinite(found)
    if not known.any(axis=0).all():  # a channel was never measured, or a simulation diverged
        return None
    filled = [np.interp(times, times[good], column[good]) for column, good in zip(found.T, known.T, strict=True)]
    return HeldOut(on_device(times), on_device(np.stack(filled, axis=1)))
