"""How long does it take from the start of a process to its first result, and to the next one?

Method. Each task is a script that a user could have written. It runs in a separate process, once with an empty folder of compiled
programs and once with the programs that the first process has left there, and reports the time since the process was started when
its first and its second result are there. Commands are timed from start to end. Wall time and processor time are both given,
since processes that share the cores with others take longer by the clock. Peers run the same task where they can state it; those
that are not installed are left out.

Expected. A second process starts computing within two seconds, import included; the second result in one process takes
milliseconds.

Run time. About 3 min on two cores. Another checkout of jaxdyn, named in `checkout`, is timed by the same tasks.

    python experiments/first_result.py [configs/first_result.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from peers.first_tasks import COMMANDS, PANDA, PEERS, TASKS
from tqdm import tqdm

from jaxdyn.io import RunDirectory, RunError, setting
from jaxdyn.jobs import Job, main

_ROOT = Path(__file__).parents[1]
_TIMEOUT = 900.0
# The parts of a task: lines before the result, and the function whose call gives it.
_SCRIPT = """
import json, os, resource, time

def spent():
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return [time.time() - float(os.environ["STARTED"]), sum(t.ru_utime + t.ru_stime for t in times)]

{setup}
def done(found):
    for leaf in found if isinstance(found, (list, tuple)) else [found]:
        getattr(leaf, "block_until_ready", lambda: None)()

done(result())
first = spent()
done(result())
print("TIMES", json.dumps([first, spent()]))
"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        tasks: Names of the tasks; empty for all tasks.
        panda: Folder of the recording for `configs/identify_panda.toml`, which says where to get it; without it, this task is left
            out.
        rounds: Number of runs of each task, of which the fastest counts.
        checkout: Folder of another checkout of jaxdyn, which is timed instead of this one.
    """

    tasks: tuple[str, ...] = ()
    panda: Path | None = None
    rounds: int = setting(1, positive=True)
    checkout: Path | None = None


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    names = config.tasks or tuple(
        name for name in (*TASKS, *COMMANDS, *PEERS) if name != PANDA or config.panda is not None
    )
    if PANDA in names and config.panda is None:
        raise RunError(f"the task {PANDA!r} needs a recording: give its folder as panda=FOLDER")
    unknown = sorted(set(names) - {*TASKS, *COMMANDS, *PEERS})
    if unknown:
        raise RunError(f"there is no task {unknown[0]!r}; there are {', '.join((*TASKS, *COMMANDS, *PEERS))}")
    rows = []
    for name in tqdm(names, unit="task"):
        row = fastest([measured(name, config) for _ in range(config.rounds)])
        if row is not None:
            rows.append({"task": name} | row)
        directory.write_text("table.md", table(rows) + "\n")
    print(table(rows))
    return {"rows": rows, "checkout": None if config.checkout is None else str(config.checkout)}


def measured(name: str, config: Config) -> dict[str, Any] | None:
    """Times of a cold and of a warm process, (wall, processor) in s; None if a peer is not installed.

    Raises:
        RunError: The task failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        cold = in_process(name, config, Path(folder), "cold")
        if cold is None:
            return None
        return {"cold": cold, "warm": None if name in PEERS else in_process(name, config, Path(folder), "warm")}


def in_process(name: str, config: Config, folder: Path, run: str) -> list[tuple[float, float]] | None:
    """Times of the first and of the second result; of a command, of its end alone.

    Raises:
        RunError: The task failed.
    """
    home = _ROOT if config.checkout is None else config.checkout
    environment = os.environ | {
        "PYTHONPATH": str(home),
        "JAXDYN_CACHE_DIR": str(folder / "cache"),
        "JAX_TRACEBACK_FILTERING": "off",  # else the last line of an error is a note on the filter
        "STARTED": repr(time.time()),
    }
    python = (sys.executable, "-P")  # the working directory, which contains this checkout, is not searched for modules
    if name in COMMANDS:
        command = [*python, "-m", "jaxdyn", *COMMANDS[name].split(), "--out", str(folder / run)]
        if name == PANDA and config.panda is not None:
            command.append(f"data={config.panda.resolve()}")
    else:
        setup = textwrap.dedent((TASKS | PEERS)[name])
        command = [*python, "-c", _SCRIPT.format(setup=setup)]
    before, start = os.times(), time.perf_counter()
    found = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=_ROOT, timeout=_TIMEOUT)
    wall, after = time.perf_counter() - start, os.times()
    if name in PEERS and ("ModuleNotFoundError" in found.stderr or "ImportError" in found.stderr):
        return None
    if found.returncode:
        raise RunError(f"the task {name!r} failed: {found.stderr.strip().splitlines()[-1]}")
    if name in COMMANDS:
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        return [(wall, spent)]
    line = next(line for line in found.stdout.splitlines() if line.startswith("TIMES"))
    return [tuple(times) for times in json.loads(line.removeprefix("TIMES"))]


def fastest(rows: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    found = [row for row in rows if row is not None]
    return min(found, key=lambda row: row["cold"][0][0]) if found else None


def table(rows: list[dict[str, Any]]) -> str:
    """Wall time and processor time in s."""
    lines = [
        "| task | first process: first result | second result | second process: first result | second result |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        cells = []
        for process in (row["cold"], row["warm"]):
            first = process[0] if process else None
            again = (process[1][0] - process[0][0], process[1][1] - process[0][1]) if process and process[1:] else None
            cells += ["" if x is None else f"{x[0]:.3g} ({x[1]:.3g})" for x in (first, again)]
        lines.append(f"| {row['task']} | {' | '.join(cells)} |")
    return "\n".join(lines)


JOB = Job("first-result", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
