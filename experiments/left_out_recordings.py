"""Do identified machines predict recordings that the fit has not seen, and better than plainer fits and published parameters?

Method. For each study of a config of `jaxdyn identify`, all its recordings are left out in turn. The fit of the config, and a
plain fit without priors, zeros and additional friction at rest, are made to the others and predict the one left out.
The initial parameters of the config, which were published for these machines, predict it without a fit. Each figure of merit is
averaged over the recordings. Further recordings, such as a swing-up under feedback, are in no fit; fits to all other
recordings predict them.

Expected. For the double pendulums of the DFKI, predictions from the measured state are limited by the zeros of the encoders, which
are set by hand before each recording. If the zeros of a recording are estimated from its first two seconds, the fit predicts the
rest better than the published parameters in all figures, and better than the plain fit in all figures of two builds and in six of
nine of the third. A swing-up under feedback stands still near its upright position for seconds, where the additional friction at
rest decides whether a predicted arm stays there, too. With this friction, all errors are smaller than those of the published
parameters, from which the fit starts; with the plain fit, medians are up to 2.5 times as large.

Run time. About seven minutes on two cores.

    python experiments/left_out_recordings.py [CONFIG] [data=FOLDER] [--out DIR] [--smoke] [key=value ...]

FOLDER holds the recordings that the config of `jaxdyn identify` names.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxdyn.display import aligned
from jaxdyn.identify import LevenbergMarquardt, Part, Plant, evaluate, fit
from jaxdyn.io import RunDirectory, read_config, setting
from jaxdyn.jobs import Job, main
from jaxdyn.jobs.identify.config import IdentifyConfig, StudyConfig
from jaxdyn.jobs.identify.study import parameters_of, plant_of, problems_of, recordings_of, with_sensors

ROOT = Path(__file__).parents[1]
UNFITTED, PLAIN, WHOLE = "initial parameters", "plain output error", "fit of the config"


@dataclasses.dataclass(frozen=True)
class ApartConfig:
    """Recordings of a study that are in no fit.

    Attributes:
        study: Name of the study.
        recordings: Names of the recordings.
    """

    study: str
    recordings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        identify: Config of `jaxdyn identify`.
        apart: Recordings that are in no fit.
        data: Folder of the recordings; if not given, that of the config.
        studies: Names of the studies; if not given, all of the config.
        recordings: Number of recordings of each study that are used.
    """

    identify: Path
    apart: tuple[ApartConfig, ...] = ()
    data: Path | None = None
    studies: tuple[str, ...] = ()
    recordings: int = setting(1000, positive=True)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    given = [] if config.data is None else [f"data={config.data}"]
    whole = read_config(config.identify, IdentifyConfig, given)
    if not whole.folder.is_dir():
        print(f"there is no folder {whole.folder}; get the recordings from {whole.source}, and give data=FOLDER")
        return {"absent": str(whole.folder)}
    results, tables = {}, []
    with jax.enable_x64(True):
        for study in whole.study:
            if config.studies and study.name not in config.studies:
                continue
            figures, table = compared(config, whole, study)
            results[study.name] = figures
            tables.append(table)
            print(f"\n{table}")
    directory.write_text("figures.txt", "\n\n".join(tables) + "\n")
    drawn(directory, results)
    return results


def compared(config: Config, whole: IdentifyConfig, study: StudyConfig) -> tuple[dict[str, Any], str]:
    """Mean figures of all candidates on the recordings of a study, and a table of them."""
    apart = tuple(name for entry in config.apart if entry.study == study.name for name in entry.recordings)
    names = (*study.train, *study.validation)[: config.recordings]
    whole = dataclasses.replace(whole, reference=())
    plant = plant_of(whole, study)
    parts, unseen = recordings_of(whole, dataclasses.replace(study, train=names, validation=apart))
    smooth = eqx.tree_at(lambda plant: plant.system.forces[1].stribeck, plant, replace_fn=jnp.zeros_like)
    candidates = {
        UNFITTED: lambda train: plant.without_zeros,
        PLAIN: fitting(plain(whole), smooth),
        WHOLE: fitting(whole, plant),
    }
    figures = {"left out": {name: means(fitted, parts, whole) for name, fitted in candidates.items()}}
    if unseen:
        plants = {name: fitted(parts) for name, fitted in candidates.items()}
        figures["apart"] = evaluate(plants, unseen, whole.check, intervals=False).figures
    lines = [f"{study.name}: means over {len(parts)} recordings, each of which is left out once"]
    for what, tabled in figures.items():
        title = f"{what}: {', '.join(apart)}" if what == "apart" else what
        lines += [table_of(title, tabled)]
    return figures, "\n".join(lines)


def plain(whole: IdentifyConfig) -> IdentifyConfig:
    """The config without zeros, additional friction at rest and robust loss, and with priors that are a thousand times as wide."""
    free = [entry for entry in whole.free if not entry.path.endswith(("zeros", "stribeck"))]
    wide = [entry.prior_std and tuple(1e3 * std for std in entry.prior_std) for entry in free]
    free = [
        dataclasses.replace(entry, prior_std=std, divergence=1e-6 * entry.divergence)
        for entry, std in zip(free, wide, strict=True)
    ]
    fit = dataclasses.replace(whole.fit, loss="squares", threshold=None, max_steps=60)
    return dataclasses.replace(whole, free=tuple(free), fit=fit)


def fitting(own: IdentifyConfig, plant: Plant) -> Callable[[list[Any]], Plant]:
    """A candidate: a function from training recordings to the plant that is fitted to them."""

    def fitted(train: list[Part]) -> Plant:
        (problem,) = problems_of(own, parameters_of(own, with_sensors(own, plant, len(train))), train)
        solver = LevenbergMarquardt(own.fit.tolerance)
        found = fit(problem, solver, max_steps=own.fit.max_steps, throw=False, progress=False)
        return found.value.without_zeros

    return fitted


def means(fitted: Callable[[list[Part]], Plant], parts: list[Part], whole: IdentifyConfig) -> dict[str, float]:
    """Mean of each figure of a candidate over the recordings, each of which its fit has not seen."""
    rows = []
    for k in tqdm(range(len(parts)), unit="fit"):
        plant = fitted([*parts[:k], *parts[k + 1 :]])
        rows.append(evaluate(plant, [parts[k]], whole.check, intervals=False).figures["plant"])
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def table_of(title: str, figures: Mapping[str, Mapping[str, float]]) -> str:
    """Table of figures, and the number of those in which the fit of the config is the best."""
    names = list(figures[WHOLE])
    rows = [(title, *figures)]
    rows += [(name, *(f"{own[name]:.4g}" for own in figures.values())) for name in names]
    best = [min(figures, key=lambda who, name=name: figures[who][name]) for name in names]
    return f"{aligned(rows, left=(0,))}\n{WHOLE}: best in {best.count(WHOLE)} of {len(names)} figures"


def drawn(directory: RunDirectory, results: Mapping[str, Any]) -> None:
    """Picture of the mean figures of all studies."""
    from matplotlib.figure import Figure

    count = max(len(own) for figures in results.values() for own in figures["left out"].values())
    figure = Figure(figsize=(4.5 + 2.2 * len(results), 1.0 + 0.25 * count), layout="constrained")
    axes = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for ax, (study, figures) in zip(axes, results.items(), strict=True):
        for marker, (who, own) in zip("x+os^v", figures["left out"].items(), strict=False):
            ax.plot(list(own.values()), list(own), marker, label=who, fillstyle="none")
        ax.set_xscale("log")
        ax.set_title(study)
        ax.set_xlabel("error")
        ax.tick_params(which="minor", labelbottom=False)
        ax.grid(alpha=0.3)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(directory.path("errors.png"), dpi=100)


JOB = Job("left-out-recordings", __doc__ or "", Config, work)

if __name__ == "__main__":
    sys.exit(main(JOB, default_config=str(ROOT / "configs" / f"{Path(__file__).stem}.toml")))
