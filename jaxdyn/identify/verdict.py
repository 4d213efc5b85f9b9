"""Verdict of a fit: whether its estimates can be used, and the next thing to try if not.

A fit that ends without an error may still be wrong: another minimum, a model that does not explain the data, values at bounds, or
values that the data do not determine. Each doubt has a name, see `DOUBTS`, and its message states the size and the next step.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxdyn.display import Display, Displayed, plural
from jaxdyn.identify.diagnosis import Finding
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError
from jaxdyn.identify.least_squares import Problem, Unknowns
from jaxdyn.identify.solver import FitResult
from jaxdyn.identify.validation import force_errors, unphysical_bodies
from jaxdyn.mechanism.components import component_names
from jaxdyn.mechanism.quantity import Quantity

DOUBTS = {
    "not converged": "the search ended without a minimum",
    "unexplained": "the residuals are much larger than the noise",
    "at its bound": "an estimate is at a bound of its range",
    "far from prior": "an estimate contradicts its prior",
    "not determined": "the data do not determine an estimate",
    "not physical": "a body has no physically valid inertia",
    "held out": "errors on other recordings are much larger than on those of the fit",
}

# Findings that concern all estimates.
UNRELIABLE = ("not converged", "unexplained", "clock", "sign", "degrees")

_MOST_NOISE = 5.0  # residuals, in standard deviations of the noise, beyond which the model does not explain the data
_MOST_ERROR, _MOST_OF_JOINT = 0.1, 0.5  # relative error of all forces, and part of the variance of one of them
_FAR = 3.0  # standard deviations of a prior
_GROWTH = 2.0  # error on held-out recordings relative to that on the recordings of the fit


@dataclasses.dataclass(frozen=True, repr=False)
class Verdict(Displayed):
    """Judgment of a fit, from `judge`.

    Attributes:
        result: How the search ended.
        noise_scale: Ratio of the residuals to the assumed noise.
        findings: Faults of the recordings (`diagnose`), and doubts about the fit of the kinds in `DOUBTS`; empty if there are none.
    """

    result: FitResult
    noise_scale: float
    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        """True if there is no doubt."""
        return not self.findings

    @property
    def lines(self) -> list[str]:
        """The verdict in sentences, for a report."""
        title = f"verdict: {self._title()}; residuals {self.noise_scale:.3g} times the assumed noise"
        return [title, *(f"  {finding.name}: {finding.message}" for finding in self.findings)]

    def _title(self) -> str:
        return plural(len(self.findings), "doubt", "doubts") if self.findings else "no doubts"

    def _display(self) -> Display:
        rows = {"result": self.result.message, "noise scale": f"{self.noise_scale:.3g}"}
        rows |= {f"{k}, {found.name}": found.message for k, found in enumerate(self.findings, start=1)}
        return Display(f"Verdict({self._title()})", rows)


def judge(
    problem: Problem,
    unknowns: Unknowns,
    result: Any,
    known: Uncertainty,
    *,
    faults: Sequence[Finding] = (),
    errors: Sequence[tuple[str, float, float]] = (),
) -> Verdict:
    """Judge a fit.

        known = identify.uncertainty(problem, found.unknowns)
        faults = identify.diagnose(plant, [recording])
        print(identify.judge(problem, found.unknowns, found.result, known, faults=faults))

    Args:
        problem: Problem that was fitted.
        unknowns: Unknowns at the end of the fit.
        result: How the search ended, a `FitResult` or its code.
        known: Uncertainty of the estimates.
        faults: Faults of the recordings, from `diagnose`.
        errors: Figures of merit, each with its name, its error on the recordings of the fit, and its error on others.

    Raises:
        ValueError: The unknowns are those of a batch of fits.
    """
    if unknowns.x.ndim != 1:
        raise ValueError("judge: this is a batch of fits; give one of them, such as the one with the smallest loss")
    result, scale = FitResult(int(result)), float(known.noise_scale)
    delayed = problem.parameters.frees("inputs.delay")  # a fit that estimates delays explains other clocks
    faults = tuple(fault for fault in faults if not (delayed and fault.name == "clock"))
    doubts = [] if result.successful else [Finding("not converged", result.message)]
    if isinstance(problem, InverseDynamicsError):
        doubts += _unexplained_forces(problem, unknowns)
    elif scale > _MOST_NOISE:
        doubts.append(
            Finding(
                "unexplained",
                f"the residuals are {scale:.3g} standard deviations of the assumed noise, so the model does not explain the data; "
                "look at the pictures of the residuals, add friction or other forces, free more parameters, or use shorter windows",
            )
        )
    doubts += [*_at_bounds(problem, known), *_far_from_priors(problem, unknowns, known)]
    doubts += [
        Finding("not determined", f"{warning}; `design_excitation` finds motions that determine them")
        for warning in known.warnings
    ]
    plant = problem.parameters.place(unknowns.x)
    doubts += [
        Finding(
            "not physical", f"the inertia of {body} cannot be that of a body; estimate it by body_inertia({body!r})"
        )
        for body in unphysical_bodies(plant.system.model)
    ]
    doubts += [
        Finding(
            "held out",
            f"{name}: {other:.3g} on held-out recordings, {own:.3g} on those of the fit; free fewer parameters, give priors, or "
            "record motions that resemble the held-out ones",
        )
        for name, own, other in errors
        if other > _GROWTH * own
    ]
    return Verdict(result, scale, (*faults, *doubts))


def _unexplained_forces(problem: InverseDynamicsError, unknowns: Unknowns) -> Iterator[Finding]:
    plant = problem.parameters.place(unknowns.x)
    errors = force_errors(plant, problem.motions)
    joints = component_names(plant.system.model, Quantity())
    poor = [name for name, part in zip(joints, errors.normalized, strict=True) if part > _MOST_OF_JOINT]
    if errors.relative > _MOST_ERROR or poor:
        where = f", and most of those of {', '.join(poor)}" if poor else ""
        yield Finding(
            "unexplained",
            f"{100 * errors.relative:.2g} % of the forces{where} remain, so the model does not explain the data; add friction or "
            "other forces, set a filter (motion.cutoff, motion.drop), or use output error, which needs no accelerations",
        )


def _at_bounds(problem: Problem, known: Uncertainty) -> Iterator[Finding]:
    columns = (known.values, problem.parameters.values(problem.parameters.initial), known.std)
    for (name, unit), value, start, spread in zip(known.labels, *(np.asarray(x) for x in columns), strict=True):
        if spread == 0.0:
            yield Finding(
                "at its bound",
                f"{name} is {float(value):.3g} {unit}, from {float(start):.3g}, and has no interval: the data ask for a value "
                "beyond its range; another parameter may be missing, or has a wrong fixed value",
            )


def _far_from_priors(problem: Problem, unknowns: Unknowns, known: Uncertainty) -> Iterator[Finding]:
    deviations = np.asarray(problem.parameters.prior_deviations(unknowns.x))
    for (name, unit), value, away in zip(known.labels, np.asarray(known.values), deviations, strict=True):
        if abs(away) > _FAR:
            yield Finding(
                "far from prior",
                f"{name} is {float(value):.4g} {unit}, {abs(away):.3g} standard deviations {'above' if away > 0 else 'below'} the "
                "mean of its prior; check the time stamps, signs and units of the recordings, or widen the prior",
            )
