"""The table of a benchmark: one for each function and precision, mechanisms and routes down, batches across."""

import datetime
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from peers.measuring import OWN, TOLERANCE, Row


class Limits(Protocol):
    """The settings that the report states; the settings of both benchmarks have them."""

    @property
    def batches(self) -> tuple[int, ...]: ...
    @property
    def threads(self) -> int: ...
    @property
    def most_time(self) -> float: ...
    @property
    def most_memory(self) -> float: ...
    @property
    def arithmetic_limit(self) -> float | None: ...
    @property
    def memory_limit(self) -> float | None: ...


NAMES = {
    "lanes": "jaxdyn, lanes",
    "xla": "jaxdyn by XLA",
    "pinocchio": "Pinocchio",
    "mujoco": "MuJoCo",
    "frax": "frax",
    "mjx": "MJX",
    "jaxsim": "JaxSim",
    "brax": "Brax",
    "adam": "adam",
}


def report(
    limits: Limits, about: dict[str, Any], rows: Sequence[Row], checks: Sequence[Row], absent: dict[str, str]
) -> str:
    """The run as a Markdown text."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = [f"{key} {about[key]}" for key in ("jaxdyn", "commit", "jax", "jaxlib", "numpy", "python", "platform")]
    versions = {row.route: row.versions for row in (*rows, *checks) if row.versions}
    listed = "; ".join(f"{NAMES[route]}: {text}" for route, text in versions.items())
    lines = [
        f"{device(about)}, {cores} cores; every route has {limits.threads}. {datetime.date.today()}. {', '.join(facts)}.",
        f"Routes: {listed}.",
        "",
        "Samples per second; in rollouts, and values with their gradient, steps of one sample per second.",
        "",
        "* compile: the longest one, s.",
        "* memory: of the largest batch measured. For JAX the planned memory of arguments, results and temporaries; for "
        "Pinocchio and MuJoCo the growth of the resident peak.",
        "* difference: the largest one from jaxdyn in float64, relative to the largest number of each sample. That is the lane "
        "compiler's result where it has one, so that it differs from itself by 0.",
        f"* left out: tasks that take longer than {limits.most_time:g} s to compile and call once, or more than "
        f"{amount(limits.most_memory)}B. MuJoCo computes in float64 always.",
        "",
    ]
    for function in dict.fromkeys(row.function for row in rows):
        for dtype in dict.fromkeys(row.dtype for row in rows):
            own = [row for row in rows if (row.function, row.dtype) == (function, dtype)]
            if own:
                lines += [f"## {function}, {dtype}", "", *markdown(*table(limits, own)), ""]
    if checks:
        bounds = " and ".join(f"{bound:g} in {dtype}" for dtype, bound in TOLERANCE.items())
        lines += ["## Accelerations of the peers", "", f"Differences; above {bounds} a peer is not timed.", ""]
        lines += [*markdown(*agreement(checks)), ""]
    if absent:
        lines += [
            "Peers that are absent:",
            "",
            *(f"* {NAMES[name]}: `{command}`" for name, command in absent.items()),
            "",
        ]
    return "\n".join(lines)


def table(limits: Limits, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of one function in one precision."""
    hardware = {"arithmetic": (limits.arithmetic_limit, "operations"), "memory traffic": (limits.memory_limit, "bytes")}
    hardware = {f"of {name} limit": limit for name, limit in hardware.items() if limit[0]}
    batches = [batch for batch in sorted(limits.batches) if any(row.batch == batch for row in rows)]
    lines = []
    for mechanism, route in dict.fromkeys((row.mechanism, row.route) for row in rows):
        own = {row.batch: row for row in rows if (row.mechanism, row.route) == (mechanism, route)}
        measured = [own[batch] for batch in batches if batch in own and not math.isnan(own[batch].run_s)]
        line = [mechanism, NAMES[route], *(cell(own.get(batch)) for batch in batches)]
        line.append(f"{max(row.compile_s for row in measured):.1f}" if measured else "")
        line.append(f"{amount(measured[-1].memory)}B" if measured else "")
        known = [row.difference for row in own.values() if not math.isnan(row.difference)]
        line.append(f"{max(known):.0e}" if known else "")
        for bound, size in hardware.values():
            last = measured[-1] if measured and route in OWN else None  # the operations of others are not counted
            line.append("" if last is None else percent(last.rate * size_of(rows, last, size) / (bound or math.nan)))
        lines.append(line)
    head = [
        "mechanism",
        "route",
        *(f"batch {batch}" for batch in batches),
        "compile",
        "memory",
        "difference",
        *hardware,
    ]
    return head, lines


def size_of(rows: Sequence[Row], row: Row, size: str) -> float:
    """Operations or bytes per evaluation; XLA is credited with the operations of the lane program, for it does the same."""
    if size == "bytes":
        return row.bytes
    lanes = [r.operations for r in rows if (r.mechanism, r.batch, r.route) == (row.mechanism, row.batch, "lanes")]
    return lanes[0] if lanes else math.nan


def agreement(checks: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the check of the peers."""
    columns = list(dict.fromkeys((row.mechanism, row.dtype) for row in checks))
    lines = []
    for route in dict.fromkeys(row.route for row in checks):
        found = {(row.mechanism, row.dtype): row.difference for row in checks if row.route == route}
        lines.append([NAMES[route], *(f"{found[c]:.0e}" if c in found else "" for c in columns)])
    return ["peer", *(f"{mechanism}, {dtype}" for mechanism, dtype in columns)], lines


def cell(row: Row | None) -> str:
    """A rate, or why there is none."""
    if row is None:
        return ""
    return row.note if math.isnan(row.run_s) else amount(row.rate)


def amount(x: float) -> str:
    """A positive value with three digits and a prefix."""
    if math.isnan(x):
        return ""
    for bound, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= 0.9995 * bound:
            return f"{x / bound:.3g} {prefix}"
    return f"{x:.3g} "


def percent(x: float) -> str:
    return "" if math.isnan(x) else f"{100 * x:.2g} %"


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table."""
    cells = [[cell.strip().replace("|", "/").replace("\n", " ") for cell in line] for line in lines]
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *cells)]


def device(about: dict[str, Any]) -> str:
    """The accelerator, or the name of the processor where the system reports it."""
    file = Path("/proc/cpuinfo")
    if about["device_platform"] != "cpu":
        return about["device"]
    names = (
        [line.split(":")[1].strip() for line in file.read_text().splitlines() if line.startswith("model name")]
        if file.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()
