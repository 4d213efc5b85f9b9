"""Cross-validation: candidates of a fit are compared by their errors on recordings that they have not seen."""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from jaxdyn.display import Display, Displayed, aligned
from jaxdyn.errors import check_name
from jaxdyn.identify.checks import Check
from jaxdyn.identify.evaluation import checked_data, evaluate
from jaxdyn.identify.fitting import FitError
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.identify.solver import FitResult
from jaxdyn.mechanism.messages import check_instance, described
from jaxdyn.results import UnsuccessfulError


@dataclasses.dataclass(frozen=True, repr=False)
class CrossValidation(Displayed):
    """Errors of candidates on held-out recordings, from `cross_validate`.

    A fold is one recording, or one group of recordings, that is left out. The error of a candidate in a fold is its figure of merit
    if there is a single one; otherwise it is the mean of 1 + d over all figures, where d is the relative difference of a figure to
    the mean over all folds of the best candidate. So 1.07 means 7 % worse than the best candidate in the mean.

    Attributes:
        candidates: Names of the candidates, from simple to complex.
        folds: Names of the folds.
        figures: Figures of merit of each candidate and each fold; empty after a failure.
        failures: Reasons of failures by candidate and fold.
        larger_is_better: Names of the figures of merit that are better if they are larger.
    """

    candidates: tuple[str, ...]
    folds: tuple[str, ...]
    figures: dict[tuple[str, str], dict[str, float]]
    failures: dict[tuple[str, str], str]
    larger_is_better: frozenset[str] = frozenset()

    @property
    def errors(self) -> Float[np.ndarray, "candidates folds"]:
        """Held-out error of each candidate in each fold; infinite after a failure."""
        names = list(dict.fromkeys(name for row in self.figures.values() for name in row))
        table = np.array(
            [
                [[self.figures[who, fold].get(name, np.nan) for name in names] for fold in self.folds]
                for who in self.candidates
            ]
        ).reshape(len(self.candidates), len(self.folds), len(names))
        larger = np.array([name in self.larger_is_better for name in names], bool)
        if len(names) != 1 or larger.any():
            means = table.mean(axis=1)[np.isfinite(table).all(axis=(1, 2))]
            best = np.where(larger, means.max(axis=0), means.min(axis=0)) if len(means) else np.ones(len(names))
            scale = np.where(best == 0.0, 1.0, np.abs(best))
            table = 1.0 + np.where(larger, best - table, table - best) / scale
        errors = table.mean(axis=2)
        return np.where(np.isfinite(errors), errors, np.inf)

    @property
    def mean(self) -> Float[np.ndarray, "candidates"]:
        """Mean of the errors of each candidate over the folds; infinite if one of its fits failed."""
        return self.errors.mean(axis=1)

    @property
    def standard_error(self) -> Float[np.ndarray, "candidates"]:
        """Standard error of the mean of each candidate: the standard deviation over the K folds, divided by sqrt(K)."""
        return _standard_error(self.errors)

    @property
    def differences(self) -> Float[np.ndarray, "candidates 2"]:
        """Mean difference of the errors of each candidate to those of the best one in the same folds, and its standard error."""
        errors = self.errors
        with np.errstate(invalid="ignore"):
            off = errors - errors[self.candidates.index(self.best)]
        return np.stack([off.mean(axis=1), _standard_error(off)], axis=1)

    @property
    def best(self) -> str:
        """The candidate with the smallest mean error; of equal ones the first."""
        return self.candidates[int(np.argmin(self.mean))]

    @property
    def chosen(self) -> str:
        """The first candidate whose mean error exceeds that of the best one by at most one standard error of the differences."""
        differences = self.differences
        with np.errstate(invalid="ignore"):
            return self.candidates[int(np.argmax(differences[:, 0] <= differences[:, 1]))]

    def __str__(self) -> str:
        """Table of all errors, with failures below it."""
        rows: list[tuple[str, ...]] = [("candidate", *self.folds, "mean", "standard error", "above the best", "")]
        columns = zip(self.candidates, self.errors, self.mean, self.standard_error, self.differences, strict=True)
        for name, errors, mean, own, (above, of_difference) in columns:
            complete = np.isfinite(mean)
            off = "" if name == self.best else f"{above:.3g} +- {of_difference:.2g}" if complete else "failed"
            marks = ", ".join(word for word in ("best", "chosen") if getattr(self, word) == name)
            numbers = (f"{x:.4g}" for x in (*errors, mean))
            rows.append((name, *numbers, f"{own:.2g}" if complete else "", off, marks))
        lines = [f"{who}, {fold} left out: {reason}" for (who, fold), reason in self.failures.items()]
        return "\n".join([aligned(rows, left=(0, len(rows[0]) - 1)), *lines])

    def _display(self) -> Display:
        rows = {}
        for name, mean, own in zip(self.candidates, self.mean, self.standard_error, strict=True):
            failed = sum(who == name for who, _ in self.failures)
            rows[name] = f"{failed} of {len(self.folds)} fits failed" if failed else f"{mean:.4g} ± {own:.2g}"
        return Display(f"CrossValidation(chosen {self.chosen!r}, {len(self.folds)} folds)", rows)


def cross_validate(
    candidates: Mapping[str, Callable[[list[Recording | Part]], Plant]],
    recordings: Sequence[Recording | Part],
    checks: Sequence[Check],
    *,
    groups: Sequence[Hashable] | None = None,
    figure: str | None = None,
    progress: bool = True,
) -> CrossValidation:
    """Compare candidates of a fit by cross-validation: each recording is left out once, and predicted by fits of all others.

        def fitted(train, free, duration=0.5):
            windows = identify.cut(train, duration=duration, interval=0.01)
            return identify.fit(identify.OutputError(identify.Parameters(plant, free), windows), progress=False).value

        candidates = {
            "rigid": lambda train: fitted(train, [mass]),
            "viscous": lambda train: fitted(train, [mass, viscous]),
            "viscous, long windows": lambda train: fitted(train, [mass, viscous], 2.0),
        }
        found = identify.cross_validate(candidates, recordings, [identify.WindowsCheck(durations=(1.0,), interval=0.01)])
        print(found)
        plant = candidates[found.chosen](recordings)

    The chosen candidate is the first one whose mean error exceeds the smallest mean error by at most one standard error. This is
    the rule of one standard error, with the standard error of the differences between the errors of two candidates in the same
    folds instead of that of the best mean error: some motions are hard to predict for all candidates, and this variation over the
    recordings, which dominates the standard error of a mean, does not affect the comparison. The fits of different folds share
    recordings, so standard errors are approximate.

    Args:
        candidates: Functions from training recordings to a fitted plant, by name, listed from simple to complex. A `FitError` or
            another `UnsuccessfulError` of such a function is recorded as a failure in this fold, with an infinite error.
        recordings: Recordings, or parts of them. Recordings of equal length share compiled code.
        checks: Checks that compute the figures of merit of the fitted plants on the recordings that were left out.
        groups: Label of the group of each recording; the recordings of a group are left out together. By default, each recording is
            a group.
        figure: Name of the figure of merit that is compared; by default all figures are, see `CrossValidation`.
        progress: If true, a progress bar counts the fits.

    Raises:
        TypeError: An argument has the wrong type, or a candidate does not return a plant.
        ValueError: There are no candidates or checks, fewer than two groups, or no figure with this name.
        FitError: Each candidate failed in some fold.

    Source: Hastie, Tibshirani and Friedman 2009, section 7.10.
    """
    if not isinstance(candidates, Mapping) or not all(map(callable, candidates.values())):
        raise TypeError(
            f"the candidates are {described(candidates)}; give a dictionary of functions from training recordings to a plant"
        )
    if not candidates:
        raise ValueError("there is no candidate; give at least one")
    recordings, checks = checked_data(recordings, checks)
    if not checks:
        raise ValueError("there is no check, so there are no figures of merit; give [WindowsCheck(durations=(0.5,))]")
    folds = _folds(recordings, groups)
    figures: dict[tuple[str, str], dict[str, float]] = {}
    failures: dict[tuple[str, str], str] = {}
    larger: set[str] = set()
    with tqdm(total=len(candidates) * len(folds), unit="fit", desc="cross-validation", disable=not progress) as bar:
        for who, fitted in candidates.items():
            for fold, inside in folds.items():
                bar.set_postfix_str(f"{who}, {fold} left out")
                train = [recording for recording, out in zip(recordings, inside, strict=True) if not out]
                unseen = [recording for recording, out in zip(recordings, inside, strict=True) if out]
                found: dict[str, float] = {}
                try:
                    plant = fitted(train)
                except UnsuccessfulError as error:
                    failures[who, fold] = str(error)
                else:
                    check_instance(
                        f"the result of candidate {who!r}", plant, Plant, "a Plant, such as fit(problem).value"
                    )
                    for check in checks:
                        own = evaluate(plant, unseen, [check], intervals=False).figures["plant"]
                        larger |= set(own) if check.larger_is_better else set()
                        found |= own
                    found = found if figure is None else _only(found, figure)
                    if not np.all(np.isfinite(list(found.values()))):
                        failures[who, fold] = "its predictions are not finite"
                figures[who, fold] = found
                bar.update()
    result = CrossValidation(tuple(candidates), tuple(folds), figures, failures, frozenset(larger))
    if not np.any(np.isfinite(result.mean)):
        (who, fold), reason = next(iter(failures.items()))
        raise FitError(f"every candidate failed; {who}, {fold} left out: {reason}", FitResult.NOT_FINITE)
    return result


def _standard_error(values: Float[np.ndarray, "candidates folds"]) -> Float[np.ndarray, "candidates"]:
    with np.errstate(invalid="ignore"):
        return np.std(values, axis=1, ddof=1) / np.sqrt(values.shape[1])


def _only(figures: dict[str, float], name: str) -> dict[str, float]:
    """One of the figures of merit."""
    check_name("figure", name, figures)
    return {name: figures[name]}


def _folds(recordings: Sequence[Recording | Part], groups: Sequence[Hashable] | None) -> dict[str, list[bool]]:
    """Recordings that are left out in each fold, by the name of the fold."""
    if groups is not None and len(groups) != len(recordings):
        raise ValueError(
            f"there are {len(groups)} labels of groups for {len(recordings)} recordings; give one for each"
        )
    names = [_name(recording) for recording in recordings]
    if groups is None and len(set(names)) < len(names):
        names = [f"{name} ({k})" for k, name in enumerate(names, start=1)]
    labels = names if groups is None else [str(group) for group in groups]
    folds = {label: [other == label for other in labels] for label in labels}
    if len(folds) < 2:
        raise ValueError(
            "cross-validation leaves out recordings in turn, but there is only one; record more, or cut it into parts, "
            "Part(recording, start, end)"
            if groups is None
            else "all recordings are in the same group; give at least two different labels"
        )
    return folds


def _name(recording: Recording | Part) -> str:
    if isinstance(recording, Recording):
        return recording.name
    start, end, whole = recording.start, recording.end, recording.recording
    partial = start > 0.0 or end < whole.duration
    return f"{whole.name} {start:g}-{min(end, whole.duration):g} s" if partial else whole.name
