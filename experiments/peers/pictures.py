"""Pictures of a benchmark: rates over batches, and times over lengths of chains."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers.measuring import Row
from peers.report import NAMES

COLORS = {
    "lanes": "#1f5fa8",
    "xla": "#6b7280",
    "pinocchio": "#d9822b",
    "mujoco": "#b23a48",
    "frax": "#2a9d8f",
    "mjx": "#8a5a9e",
    "jaxsim": "#c9a227",
    "brax": "#5b8c3a",
    "adam": "#d46ba3",
}
STYLES: tuple[str, ...] = ("o-", "s--")  # of the precisions


def draw_batches(
    path: Path, rows: Sequence[Row], functions: Sequence[str], mechanism: str, dtypes: Sequence[str]
) -> None:
    """Rates of one mechanism over the batch, one panel for each function."""
    curves = {
        (function, route, dtype): sorted(
            (row.batch, row.rate)
            for row in rows
            if (row.function, row.route, row.dtype, row.mechanism) == (function, route, dtype, mechanism)
            and not math.isnan(row.run_s)
        )
        for function in functions
        for route in NAMES
        for dtype in dtypes
    }
    styles = dict(zip(dtypes, STYLES, strict=False))
    notes = [f"{'solid' if dtype == dtypes[0] else 'dashed'}: {dtype}" for dtype in dtypes]
    title = f"{mechanism}: samples (steps in rollouts) per second; {', '.join(notes)}"
    _panels(path, curves, functions, styles, title, "batch")


def draw_lengths(path: Path, rows: Sequence[Row], functions: Sequence[str], batches: Sequence[int], dtype: str) -> None:
    """Time of one sample over the length of the chain, one panel for each function, with the first batch."""
    curves = {
        (function, route, dtype): sorted(
            (row.n, 1e6 / row.rate)
            for row in rows
            if (row.function, row.route, row.dtype, row.batch) == (function, route, dtype, batches[0])
            and row.mechanism.startswith("chain")
            and not math.isnan(row.run_s)
        )
        for function in functions
        for route in NAMES
    }
    title = f"chains, batch {batches[0]}, {dtype}: microseconds for a sample (a step in rollouts)"
    _panels(path, curves, functions, {dtype: STYLES[0]}, title, "bodies")


def draw_history(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Rates over the dates of the runs, relative to the first run of each row on the same device."""
    from matplotlib.figure import Figure

    curves: dict[str, dict[str, float]] = {}
    for line in lines:
        curves.setdefault(f"{line['row']}, {line['device']}", {})[line["date"]] = line["rate"]
    figure = Figure(figsize=(9.0, 0.18 * len(curves) + 3.0), layout="constrained")
    axis = figure.subplots()
    for label, rates in sorted(curves.items()):
        first = next(iter(rates.values()))
        axis.plot(
            np.array(list(rates), "datetime64[D]"),
            [x / first for x in rates.values()],
            "o-",
            ms=3,
            label=label,
        )
    axis.set(ylabel="rate / first rate", ylim=(0.0, None))
    axis.grid(alpha=0.25)
    figure.legend(loc="outside right upper", frameon=False, fontsize=6)
    figure.savefig(path, dpi=120)


def _panels(path: Path, curves, functions: Sequence[str], styles: dict[str, str], title: str, across: str) -> None:
    from matplotlib.figure import Figure

    columns = min(4, len(functions))
    lines = -(-len(functions) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.6, 3.1 * lines + 1.2), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    shown = {}
    for function, axis in zip(functions, axes, strict=False):
        for (own, route, dtype), points in curves.items():
            if own == function and points:
                (line,) = axis.loglog(*zip(*points, strict=True), styles[dtype], color=COLORS[route], ms=4, lw=1.4)
                shown.setdefault(NAMES[route], line)
        axis.set_title(function, fontsize=10)
        axis.set_xlabel(across)
        marks = sorted({x for (own, *_), points in curves.items() if own == function for x, _ in points})
        axis.set_xticks(marks, [str(x) for x in marks])
        axis.set_xticks([], minor=True)
        axis.grid(alpha=0.25)
    for axis in axes[len(functions) :]:
        axis.set_visible(False)
    figure.suptitle(title, fontsize=10)
    if shown:
        figure.legend(shown.values(), shown.keys(), frameon=False, loc="outside lower center", ncols=5, fontsize=9)
    figure.savefig(path, dpi=120)
