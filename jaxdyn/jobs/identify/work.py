"""The job `jaxdyn identify`: physical parameters from recordings, their uncertainty, and validation on held-out recordings."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.compute.announcements import announced_as
from jaxdyn.display import aligned
from jaxdyn.identify.covariance import uncertainty
from jaxdyn.identify.diagnosis import diagnose
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.extrapolation import undetermined_predictions
from jaxdyn.identify.fitting import Fit, continued, fit, pattern
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError
from jaxdyn.identify.least_squares import Problem, Unknowns
from jaxdyn.identify.levenberg_marquardt import DampedSearch, LevenbergMarquardt
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.recording import Part
from jaxdyn.identify.solver import FitResult
from jaxdyn.identify.validation import force_errors, unphysical_bodies
from jaxdyn.identify.verdict import UNRELIABLE, judge
from jaxdyn.io.archive.plant import PLANT, outside_bounds, save_plant
from jaxdyn.io.archive.structure import arrays_of, with_arrays
from jaxdyn.io.errors import ConfigError, RunError
from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.jobs.hosts import agreed, agreed_arrays, mesh_of
from jaxdyn.jobs.identify.config import FitConfig, IdentifyConfig
from jaxdyn.jobs.identify.study import (
    StudyRun,
    figures,
    inputs_in_words,
    motions_of,
    note_on_units,
    parameters_of,
    plant_of,
    prepared,
    problems_of,
    recordings_of,
    windows_of,
)
from jaxdyn.jobs.identify.synthetic import experiment_of
from jaxdyn.jobs.pictures import draw_pictures
from jaxdyn.mechanism.model import Model

# The machine to which prediction intervals belong.
BAND = (
    "95 % bands are those of the same specimen, with its sensors and their zeros as in the recordings of the fit; they do not "
    "contain the differences to other specimens, and those of a fit of one recording not the differences to later ones"
)
_ERRORS = ("rms", "relative", "median end")  # beginnings of the names of figures of merit that are errors


def work(config: IdentifyConfig, directory: RunDirectory) -> dict[str, Any]:
    """Run the fits of a config; returns their metrics."""
    # All files are read first, because they may change during the hours until the last fit begins.
    plants = [plant_of(config, study) for study in config.study]
    recorded = [recordings_of(config, study) for study in config.study]
    studies = zip(config.study, plants, recorded, strict=True)
    return {study.name: _study(StudyRun(config, study, directory), plant, parts) for study, plant, parts in studies}


def _study(run: StudyRun, plant: Plant, recorded: tuple[list[Part], list[Part]]) -> dict[str, Any]:
    """Run one fit, write its tables and files, and return its metrics. Synthetic recordings are generated here."""
    config, study, _ = run
    start_plant, (train, validation) = plant, recorded
    if config.synthetic is not None:
        start_plant, train, validation = experiment_of(run, config.synthetic, plant)
    parameters = parameters_of(config, prepared(config, start_plant, train))
    problems = problems_of(config, parameters, train)
    problem = problems[-1]
    print(f"\n{study.name}: {parameters.size} free parameters, {problem.count} measurements in {len(train)} recordings")
    if (note := note_on_units(plant, [*train, *validation])) is not None:
        print(note)
    faults = diagnose(parameters.subject, train)
    # The checks judge the initial plant before the fit, so that their mistakes do not cost a fit.
    merit = _merit(run, "start", parameters.subject.without_zeros, train, validation)
    begun = time.perf_counter()
    problem, best, result, found = _fit_in_stages(run, problems, study.name)
    seconds = time.perf_counter() - begun
    steps = int(np.max(np.asarray(found.stats.iterations)))
    print(f"{steps} steps, {seconds:.1f} s: {result.message}")
    plant = parameters.place(best.x)
    try:
        known = uncertainty(problem, best)
    except ValueError as error:  # the information is not finite; the message states the remedy
        raise ConfigError(f"study {study.name!r}: {error}") from None
    start = parameters.values(parameters.initial)
    unphysical = unphysical_bodies(plant.system.model)
    lines = [parameter_table(known, np.asarray(start)), physical_check(plant.system.model, unphysical)]
    if inputs := inputs_in_words(train):
        lines.append(f"recorded inputs between time stamps: {inputs}")
    table = "\n".join(lines)
    plant = plant.without_zeros
    merit |= _merit(run, "identified", plant, train, validation)
    merit = dict(sorted(merit.items(), key=lambda row: row[0][1]))  # by split
    judgment = judge(problem, best, result, known, faults=faults, errors=_errors(merit))
    for text in (*judgment.lines, table, merit_table(merit)):
        print(text)
    run.write_text("parameters.txt", "\n".join([*judgment.lines, table]) + "\n")
    # The figures of merit are those of this plant, without the zeros of the training recordings.
    stored = Plant(plant.system, plant.sensors, plant.inputs, train[0].processed, known.without("sensors.zeros"))
    _save(run, stored, known)
    doubtful = _doubtful(config, stored, problem, validation)
    for warning in doubtful:
        print(f"warning: {warning}")
    run.write_text("figures.txt", "\n".join([merit_table(merit), *doubtful]) + "\n")
    metrics: dict[str, Any] = {
        "fit_s": seconds,
        "result": result.words,
        "verdict": [dataclasses.asdict(finding) for finding in judgment.findings],
        "iterations": steps,
        "loss": float(np.nanmin(np.asarray(found.loss))),
        "inputs": inputs,
        "bodies": plant.system.model.nb,
        "unphysical_bodies": unphysical,
        "figures": {f"{name}, {split}": row for (name, split), row in merit.items()},
        "undetermined_predictions": doubtful,
    }
    if config.pictures:
        metrics["pictures"] = draw_pictures(
            "jaxdyn.jobs.identify.pictures:draw", run, stored, known, validation or train
        )
    return metrics


class _Round(NamedTuple):
    """A fit with all its rounds: the problem of the last round, its best unknowns, how it ended, and the fit itself."""

    problem: Problem
    best: Unknowns
    result: FitResult
    found: Fit


def _fit_in_stages(run: StudyRun, problems: Sequence[Problem], name: str) -> _Round:
    """Fit problems in turn, each in all its rounds; each round has a checkpoint whose name begins with `name`."""
    settings, checkpoints = run.config.fit, itertools.count()
    initial, search = _initial_guesses(settings, problems[0]), None
    for k, problem in enumerate(problems, start=1):
        if search is not None:
            initial = continued(problem, search.best)
        search = _round(run, f"{name}_checkpoint_{next(checkpoints)}", problem, initial)
        for _ in range(settings.rounds):
            problem = reweighted(problem, search.best, settings.block_length)
            search = _round(run, f"{name}_checkpoint_{next(checkpoints)}", problem, search.best)
        if len(problems) > 1:
            steps = int(np.max(np.asarray(search.found.stats.iterations)))
            print(f"stage {k} of {len(problems)}, {_in_words(problem)}: {steps} steps, {search.result.message}")
    assert search is not None  # there is at least one problem
    return search


def _in_words(problem: Problem) -> str:
    if not isinstance(problem, OutputError):
        return "inverse dynamics"
    return f"output error in windows of {problem.windows.interval * problem.windows.steps:g} s"


def _round(run: StudyRun, checkpoint: str, problem: Problem, initial: Unknowns) -> _Round:
    """Fit the problem once; the search is saved after each step, and an interrupted search is continued."""
    config, _, directory = run

    def save(search: DampedSearch) -> None:
        directory.write_arrays(checkpoint, **arrays_of(search))

    solver = LevenbergMarquardt(config.fit.tolerance)
    found = fit(
        problem,
        solver,
        initial,
        max_steps=config.fit.max_steps,
        throw=False,  # the report states how it ended
        resume=_saved_search(checkpoint, lambda: pattern(problem, solver, initial), directory),
        after_step=save,
        mesh=mesh_of(config.devices),
    )
    return _Round(problem, *_best(found), found)


def _saved_search(checkpoint: str, pattern: Callable[[], DampedSearch], directory: RunDirectory) -> DampedSearch | None:
    """The search that an interrupted run saved, or None; only if there is one, its pattern is needed, which takes seconds."""
    if not agreed(directory.reusable(checkpoint)):
        return None
    arrays, known = agreed_arrays(lambda: directory.read_arrays(checkpoint)), pattern()
    if {name: leaf.shape for name, leaf in arrays.items()} != {k: leaf.shape for k, leaf in arrays_of(known).items()}:
        raise RunError(
            f"{directory.root}: {checkpoint}.npz belongs to another fit; delete it, or use another directory"
        )
    return with_arrays(known, arrays)


def reweighted(problem: Problem, unknowns: Unknowns, block_length: int) -> Problem:
    """The problem with the noise of each force set to the RMS of its current errors."""
    assert isinstance(problem, InverseDynamicsError)  # configs with rounds for others are refused
    errors = force_errors(problem.parameters.place(unknowns.x), problem.motions)
    return dataclasses.replace(problem, noise=jnp.asarray(errors.rms * np.sqrt(block_length), problem.noise.dtype))


def _initial_guesses(settings: FitConfig, problem: Problem) -> Unknowns:
    """The initial guess of the problem, or a batch of initial guesses of which it is the first."""
    start, count = problem.initial, settings.starts
    if count == 1:
        return start
    away = jax.random.normal(jax.random.key(settings.seed), (count, start.x.size), start.x.dtype)
    x = start.x[None] + (settings.standard_deviation * away).at[0].set(0.0)
    return Unknowns(x, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (count, *leaf.shape)), start.local))


def _best(found: Fit) -> tuple[Unknowns, FitResult]:
    """The best of a batch of fits."""
    if found.loss.ndim == 0:
        return found.unknowns, found.result
    loss = np.where(np.asarray(found.result) == FitResult.NOT_FINITE, np.inf, np.asarray(found.loss))
    order = np.sort(loss)
    print(f"losses of {len(loss)} starts: best {order[0]:.6g}, median {np.median(order):.6g}, worst {order[-1]:.6g}")
    best = int(np.argmin(loss))
    return jax.tree.map(lambda leaf: leaf[best], found.unknowns), FitResult(int(found.result[best]))


@announced_as("the judgment")
def _doubtful(config: IdentifyConfig, plant: Plant, problem: Problem, validation: list[Part]) -> list[str]:
    """Warnings about held-out motions whose prediction depends on parameters that the training recordings do not determine."""
    motions = {}
    for part in validation:
        with contextlib.suppress(ConfigError):  # too short for a window of the fit
            inverse = isinstance(problem, InverseDynamicsError)
            motions[part.recording.name] = motions_of([part]) if inverse else windows_of(config, [part])
    return [found.message for found in undetermined_predictions(plant, problem.pieces, motions)] if motions else []


def verdict(metrics: dict[str, Any]) -> str | None:
    """Reason why the results are unreliable: doubts that concern all estimates of a study; None if there is no reason."""
    studies = {
        name: study["verdict"] for name, study in metrics.items() if isinstance(study, dict) and "verdict" in study
    }
    doubts = {
        name: [found["name"] for found in findings if found["name"] in UNRELIABLE] for name, findings in studies.items()
    }
    lines = [f"{name}: {', '.join(dict.fromkeys(found))}" for name, found in doubts.items() if found]
    return f"{'; '.join(lines)}; see the verdict above" if lines else None


def parameter_table(known: Uncertainty, start: np.ndarray) -> str:
    """Table of parameters: name, unit, initial value, estimate, 95 % interval."""
    rows = [("parameter", "unit", "start", "estimate", "95 % interval", "")]
    values, std = np.asarray(known.values), np.asarray(known.std)
    for (name, unit), before, value, spread in zip(known.labels, start, values, std, strict=True):
        remark = "not identified" if not np.isfinite(spread) else "at its bound" if spread == 0 else ""
        interval = "any" if not np.isfinite(spread) else "none" if spread == 0 else f"+- {1.96 * spread:.2g}"
        rows.append((name, unit, f"{before:.5g}", f"{value:.5g}", interval, remark))
    return aligned(rows, left=(0, 1, 5))


def physical_check(model: Model, unphysical: list[str]) -> str:
    """One line that states whether all bodies are physically valid."""
    if unphysical:
        return f"physical check: {', '.join(unphysical)} not physically valid, all other bodies are valid"
    return f"physical check: all {model.nb} bodies are physically valid"


def merit_table(merit: dict[tuple[str, str], dict[str, float]]) -> str:
    """Table of figures of merit, one line per plant and set of recordings ("train" or "validation")."""
    names = list(dict.fromkeys(name for row in merit.values() for name in row))
    rows = [("", "split", *names)]
    for (who, split), row in merit.items():
        rows.append((who, split, *(f"{row[name]:.4g}" if name in row else "" for name in names)))
    transposed = list(zip(*rows, strict=True)) if len(names) > 6 else rows
    table = aligned(transposed, left=(0,))
    return f"{table}\n{BAND}" if any("95 % band" in name for name in names) else table


@announced_as("the judgment")
def _merit(
    run: StudyRun, name: str, plant: Plant, train: list[Part], validation: list[Part]
) -> dict[tuple[str, str], dict[str, float]]:
    """Figures of merit of the references, and of a plant with a name, by name and split."""
    merit = {}
    for split, recordings in (("train", train), ("validation", validation)):
        if not recordings:
            continue
        known = [other for other in run.config.reference if (other.study, other.split) == (run.study.name, split)]
        merit |= {(other.name, split): other.figures for other in known}
        merit[name, split] = figures(run.config, plant, recordings)
    return merit


def _errors(merit: dict[tuple[str, str], dict[str, float]]) -> list[tuple[str, float, float]]:
    """The errors of the fit with their names, on training and on held-out recordings."""
    train, held_out = (merit.get(("identified", split), {}) for split in ("train", "validation"))
    return [(name, train[name], held_out[name]) for name in train if name.startswith(_ERRORS) and name in held_out]


def _save(run: StudyRun, plant: Plant, known: Uncertainty) -> None:
    """Write the estimates, and the plant that the figures judge: plant.json, plant.npz and plant.toml.

    If there are several studies, each one has its own folder.
    """
    save_plant(plant, run.directory.path(PLANT if len(run.config.study) == 1 else f"{run.study.name}/{PLANT}"))
    for name, value, allowed in outside_bounds(plant):
        print(f"note: {name} is {value:.4g}, outside of the bounds of mechanism files ({allowed}); the plant keeps it")
    saved = ("values", "std", "covariance", "correlation")
    run.directory.write_arrays(f"{run.study.name}_estimates", **{name: getattr(known, name) for name in saved})
