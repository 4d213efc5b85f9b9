"""Uncertainty of parameters: information, covariance, confidence intervals, and parameters that the data do not determine."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.compute.arrays import on_device
from jaxdyn.errors import check_name
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.held_out import held_out_errors
from jaxdyn.identify.least_squares import (
    Problem,
    Unknowns,
    check_problem,
    check_unknowns,
    compiled_parts,
    information,
    prior_terms,
)
from jaxdyn.identify.pseudoinverse import pseudoinverse

# A warning is issued for a direction whose standard deviation exceeds this multiple of that of the best one.
_POOR = 1e3
# A value is at a bound of its chart, for example at zero friction, if it changes with the unconstrained parameters less than this
# multiple of the change at the initial guess.
_AT_BOUND = 1e-6
# A value depends on an unidentified direction if its change along it exceeds this fraction of its change along all directions.
_BLIND = 1e-6
_NAMED = 4  # values in the message about a direction


@announced_as("the uncertainty")
def uncertainty(problem: Problem, unknowns: Unknowns, *, kind: str = "groups", scale: bool = True) -> Uncertainty:
    """Covariance of the estimates at the minimum of a loss.

        "noise":  C = s^2 F^-1,               F the Fisher information, s the noise scale
        "groups": C = F^-1 (G/(G - 1) sum g_k g_k' + F_0) F^-1

    g_k is the gradient of the loss of group k among G groups (windows, or blocks of samples), and F_0 is the information of the
    priors. The kind "noise" is correct if all residuals are independent and the model is perfect. The kind "groups" only requires
    that groups are independent, so it is appropriate for real recordings; it also estimates the errors of predictions of data that
    are left out (`held_out_errors`).

    Args:
        problem: Problem that was fitted.
        unknowns: Unknowns of the problem at the end of the fit.
        kind: Kind of the covariance, "groups" or "noise".
        scale: For the kind "noise": if true, the noise scale s is estimated from the residuals; otherwise s = 1.

    Raises:
        TypeError: An argument has the wrong type.
        UnknownName: There is no such kind.
        ValueError: The information is not finite, because the fit failed or the measurements of a window do
            not determine its initial state.

    Source: White 1982 for "groups".
    """
    check_problem(problem)
    check_unknowns("unknowns", unknowns)
    check_name("kind of uncertainty", kind, ("groups", "noise"))
    parameters = problem.parameters
    parts = compiled_parts(problem)(unknowns)
    loss, F, scores, values, G, first, P, local = _evaluated(problem.without_data, unknowns, parts)
    eps = float(jnp.finfo(F.dtype).eps)
    F = np.asarray(F, np.float64)
    if not np.all(np.isfinite(F)):
        raise ValueError(
            "the information is not finite; let the fit converge first, and give start_noise if the measurements of a window "
            "do not determine its initial state"
        )
    freedom = problem.count - parameters.size - local.size
    noise_scale = np.sqrt(2.0 * max(float(loss), 0.0) / max(freedom, 1))
    inverse, scale_of, seen, unseen = pseudoinverse(F, eps)
    if kind == "noise":
        C = inverse * (noise_scale**2 if scale else 1.0)
    else:
        scores = np.asarray(scores, np.float64)
        scores = scores - scores.mean(axis=0)
        spread = scores.T @ scores * (len(scores) / max(len(scores) - 1, 1))
        prior = np.asarray(P, np.float64)
        C = inverse @ (spread + prior.T @ prior) @ inverse
    G = np.asarray(G, np.float64)
    inside = np.linalg.norm(G, axis=1) > _AT_BOUND * np.linalg.norm(first, axis=1)
    G = np.where(inside[:, None], G, 0.0)
    determined = G @ C @ G.T
    # Change of the values per standard deviation of each unconstrained parameter; it does not depend on units and noise.
    relative = G * scale_of
    relative = relative / np.maximum(np.linalg.norm(relative, axis=1, keepdims=True), np.finfo(float).tiny)
    blind = inside & np.any(np.abs(relative @ unseen) > _BLIND, axis=1)
    covariance = determined.copy()
    covariance[blind, blind] = np.inf
    warnings = _warnings(seen, unseen, relative, parameters.labels)
    assumed = problem.channel_noise
    return Uncertainty(
        parameters.labels,
        values,
        on_device(covariance),
        on_device(noise_scale),
        warnings,
        on_device(determined),
        None if assumed is None else on_device(noise_scale * np.asarray(assumed)),
        problem.channels,
        parameters.addresses,
        parameters.followers,
        on_device((G * scale_of) @ unseen),
        held_out_errors(problem, unknowns, parts, F) if kind == "groups" else None,
        parameters.charts,
    )


@stored_jit
def _evaluated(problem: Problem, unknowns: Unknowns, parts: PyTree) -> tuple[Array, ...]:
    """Loss without priors, information, scores, values, Jacobians of values, now and at first, and of priors, local gradients."""
    normal = problem.assembled(unknowns, parts)
    values = per_sample(problem.parameters.values, name="values of parameters")
    prior, P = prior_terms(problem.parameters, unknowns.x)
    return (
        normal.loss - 0.5 * jnp.sum(prior**2),
        information(normal),
        problem.scores(unknowns, parts),
        values(unknowns.x),
        jax.jacfwd(values)(unknowns.x),
        jax.jacfwd(values)(problem.parameters.initial),
        P,
        normal.local_gradient,
    )


def _warnings(
    seen: tuple[np.ndarray, np.ndarray], unseen: np.ndarray, relative: np.ndarray, labels: tuple[tuple[str, str], ...]
) -> tuple[str, ...]:
    """Warnings about directions that the data do not determine, one line each with the values that change along it."""
    moving = (_moving(relative @ direction, labels) for direction in unseen.T)
    # A direction along which no value changes belongs to a value at its bound.
    found = [f"not identifiable: {names}; fix one of them, or give a prior" for names in moving if names]
    eigenvalues, vectors = seen
    poor = eigenvalues < eigenvalues.max(initial=0.0) / _POOR**2
    return (*found, *(f"hardly identifiable: {_moving(relative @ vector, labels)}" for vector in vectors[:, poor].T))


def _moving(change: np.ndarray, labels: tuple[tuple[str, str], ...]) -> str:
    order = np.argsort(-np.abs(change))
    chosen = [k for k in order if abs(change[k]) > 0.1 * abs(change[order[0]])]
    more = f" and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else ""
    return ", ".join(labels[k][0] for k in chosen[:_NAMED]) + more
