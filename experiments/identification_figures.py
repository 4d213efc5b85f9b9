"""How good are the identifications, figure by figure, beside those of others and beside what was wanted?

Method. Runs `jaxdyn identify`, or the experiment of the same name, with each of the configs below, each into a separate
folder, and puts all figures on held-out recordings into one table: ours, the best one of others in the config, and the goal.
Configs whose recordings are not there are reported and left out; the synthetic arm needs none.

Expected. Most figures are better than those of others. Of the double pendulums C1 and C0, figures from the measured state depend on
the zeros of single recordings; left_out_recordings.py leaves out all recordings in turn. All bodies are physical.

Run time. About fifteen minutes on two cores with all recordings; half a minute without.

    python experiments/identification_figures.py [CONFIG] [data=FOLDER] [--out DIR] [--smoke] [key=value ...]

FOLDER holds the folders that the configs name: dfki_double_pendulum, ibm_double_pendulum, kuka_lwr4, franka_panda.
"""

import dataclasses
import json
import math
import runpy
import sys
from pathlib import Path
from typing import Any

from jaxdyn.display import aligned
from jaxdyn.io import ConfigError, RunDirectory, read_config
from jaxdyn.jobs import Job, main, run
from jaxdyn.jobs.verbs import IDENTIFY

ROOT = Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True)
class GoalConfig:
    """A figure that is wanted.

    Attributes:
        study: Name of the fit.
        figure: Name of the figure in the tables, on held-out recordings, or in the metrics.
        at_most, at_least: Bounds of the figure.
    """

    study: str
    figure: str
    at_most: float = math.inf
    at_least: float = -math.inf


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        identify: Configs of `jaxdyn identify` or of an experiment, each with one fit or several fits.
        data: Folder of the data folders, named as in these configs; if not given, the paths of the configs are used.
        reduced: Run all fits with their [smoke] tables.
        goal: Required figures.
    """

    identify: tuple[Path, ...]
    data: Path | None = None
    reduced: bool = False
    goal: tuple[GoalConfig, ...] = ()


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    rows, found, absent = [], {}, []
    for path in config.identify:
        folder = recordings(path, config.data)
        if folder is not None and not folder.is_dir():
            absent.append(f"{path.name}: there is no folder {folder}")
            print(f"left out, {absent[-1]}")
            continue
        overrides = [] if folder is None else [f"data={folder}"]
        done = run(job_of(path), path, out=directory.path(path.stem), overrides=overrides, smoke=config.reduced)
        metrics = json.loads((done.root / "metrics.json").read_text(encoding="utf-8"))
        studies = {name: study for name, study in metrics.items() if isinstance(study, dict) and "figures" in study}
        for name, study in studies.items():
            rows += lines(name, study, [goal for goal in config.goal if goal.study == name])
            found[name] = study
    table = aligned(
        [("study", "figure, held-out recordings", "ours", "best other", "", "wanted", "verdict"), *rows],
        left=(0, 1, 4, 5, 6),
    )
    directory.write_text("figures.txt", table + "\n")
    print("", table, *(f"left out, {line}" for line in absent), sep="\n")
    return {"studies": found, "absent": absent}


def job_of(path: Path) -> Job:
    """The job of a config: the experiment of the same name, or `jaxdyn identify`."""
    script = Path(__file__).with_name(f"{path.stem}.py")
    return runpy.run_path(str(script))["JOB"] if script.is_file() else IDENTIFY


def recordings(path: Path, data: Path | None) -> Path | None:
    """The data folder of a config; None if it makes its own recordings."""
    own = read_config(path, job_of(path).config_class).data
    return own if own is None or data is None else data / own.name


def lines(name: str, study: dict[str, Any], goals: list[GoalConfig]) -> list[tuple[str, ...]]:
    """Rows of one fit: each figure that others have, too, or that is wanted."""
    tables = {who: row for who, row in study["figures"].items() if who.endswith(", validation")}
    ours = tables.pop("identified, validation") | {"unphysical bodies": float(len(study["unphysical_bodies"]))}
    del tables["start, validation"]
    unknown = [goal.figure for goal in goals if goal.figure not in ours]
    if unknown:
        raise ConfigError(f"goal: {name} has no figure {unknown[0]!r}; use one of {', '.join(ours)}")
    rows = []
    for figure, value in ours.items():
        others = {who.removesuffix(", validation"): row[figure] for who, row in tables.items() if figure in row}
        bounds = [goal for goal in goals if goal.figure == figure]
        if not others and not bounds:
            continue
        longer = max if "time" in figure else min
        best = longer(others, key=others.__getitem__) if others else ""
        verdict = [] if not others else ["better" if longer(value, others[best]) == value else "WORSE"]
        if bounds:
            verdict.append("met" if all(b.at_least <= value <= b.at_most for b in bounds) else "NOT met")
        wanted = ", ".join(wish for b in bounds for wish in wishes(b))
        other = f"{others[best]:.4g}" if others else ""
        rows.append((name, figure, f"{value:.4g}", other, best, wanted, ", ".join(verdict)))
    return rows


def wishes(goal: GoalConfig) -> list[str]:
    """The bounds in words."""
    least = [] if math.isinf(goal.at_least) else [f">= {goal.at_least:g}"]
    return least + ([] if math.isinf(goal.at_most) else [f"<= {goal.at_most:g}"])


JOB = Job("identification-figures", __doc__ or "", Config, work)

if __name__ == "__main__":
    sys.exit(main(JOB, default_config=str(ROOT / "configs" / f"{Path(__file__).stem}.toml")))
