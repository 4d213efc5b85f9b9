"""Routes as processes that alternate: their answers, their limits, and the resulting rows."""

import dataclasses
import json
import math
import queue
import statistics
import subprocess
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers.task import CHECKED, DYNAMICS, Task, difference

OWN = ("lanes", "xla")
REFERENCE = "reference"
TOLERANCE = {"float32": 1e-2, "float64": 1e-6}
"""Largest difference of a peer's accelerations, relative to the largest one of each sample, with which it is still timed."""

ACCELERATIONS = "forward dynamics"
NOT_REACHED = "not reached"
ROWS = "rows.jsonl"  # as they come
ROUNDS = 5
_EXPERIMENTS = Path(__file__).parents[1]
_START = 120.0  # s that a process may take to import its packages


@dataclasses.dataclass(frozen=True)
class Row:
    """Measurements of one function by one route; nan where there is none.

    Attributes:
        function, mechanism, n, dtype, batch, steps: The task.
        compile_s: Time of tracing, code generation and compilation, s; 0 for libraries in C and C++.
        first_s: Time to the first result, s.
        run_s: Median time of a call, s.
        memory: Planned memory of arguments, results and temporaries for JAX, else growth of the resident peak; bytes.
        difference: Difference from jaxdyn in float64, relative to the largest value of each sample.
        operations: Scalar operations of the lane program per evaluation or step.
        bytes: Size of arguments and results per evaluation or step.
        versions: Versions of the route's packages.
        note: Reason why there is no measurement.
    """

    function: str
    mechanism: str
    n: int
    dtype: str
    batch: int
    steps: int
    route: str
    compile_s: float = math.nan
    first_s: float = math.nan
    run_s: float = math.nan
    memory: float = math.nan
    difference: float = math.nan
    operations: float = math.nan
    bytes: float = math.nan
    versions: str = ""
    note: str = ""

    @property
    def rate(self) -> float:
        """Evaluations or steps of one sample per second."""
        return self.batch * self.steps / self.run_s

    @property
    def key(self) -> tuple:
        return (self.function, self.mechanism, self.dtype, self.batch, self.route)


class Worker:
    """A route in a separate process."""

    def __init__(self, command: Sequence[str], log: Path):
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=_EXPERIMENTS
            )
        self.answers: queue.Queue[str] = queue.Queue()
        self.started = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """The answer; {"problem": text} if there is none within `limit` seconds, and then the process has ended."""
        assert self.process.stdin is not None
        try:
            if not self.started:  # imports are not part of the first task
                self.started = self.answers.get(timeout=_START) != ""
                if not self.started:
                    raise BrokenPipeError
            print(json.dumps(request), file=self.process.stdin, flush=True)
            line = self.answers.get(timeout=limit)
        except queue.Empty:
            self.end()
            return {"problem": f"> {limit:.0f} s"}
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self.end()
        said = self.log.read_text(errors="replace").strip().splitlines() or ["nothing"]
        return {"problem": f"its process ended and said: {said[-1]}"[:200]}

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Bench:
    """Measures tasks by all routes and remembers the tasks that need not be tried again.

    Args:
        commands: Command of the Python of each route.
        descriptions: Mechanisms by name.
        folder: Folder for the rows, logs and results to be compared.
        threads: Number of threads of every route.
        seconds: Minimum time for the calls of each route.
        most_time: Maximum time to compile and call once, s.
        most_memory: Maximum memory of a call, bytes.
        platform: Platform of the device.
        options: Options of the workers of some routes.
    """

    def __init__(
        self,
        commands: dict[str, list[str]],
        descriptions: dict[str, dict[str, Any]],
        folder: Path,
        *,
        threads: int,
        seconds: float,
        most_time: float,
        most_memory: float,
        platform: str,
        options: dict[str, list[str]],
    ):
        self.commands, self.descriptions, self.folder = commands, descriptions, folder
        self.threads, self.seconds, self.platform = threads, seconds, platform
        self.most_time, self.most_memory, self.options = most_time, most_memory, options
        self.rows: dict[tuple, Row] = {}
        self.workers: dict[tuple[str, str], Worker] = {}
        self.expected: dict[tuple, list[np.ndarray] | None] = {}

    def measure(self, task: Task, routes: Iterable[str]) -> None:
        """Rows of a task: every route is prepared, then they take turns."""
        fresh = [route for route in routes if not self.complete(self.row(task, route))]
        for (route, dtype), worker in self.workers.items():
            if dtype != task.dtype and route != REFERENCE:
                worker.end()
        for route in fresh:
            self.worker(route, task.dtype)  # all start at the same time
        prepared = [row for row in (self.prepare(route, task) for route in fresh) if not row.note]
        times: dict[str, list[float]] = {row.route: [] for row in prepared}
        for _ in range(ROUNDS):
            for row in prepared:
                if sum(times[row.route]) < self.seconds:
                    request = {"seconds": self.seconds / ROUNDS}
                    answer = self.worker(row.route, task.dtype).ask(request, 3 * self.most_time)
                    times[row.route] += answer.get("times", [])
        for row in prepared:
            taken = times[row.route]
            note = "" if taken else "its process ended while it was timed"
            self.keep(dataclasses.replace(row, run_s=statistics.median(taken) if taken else math.nan, note=note))

    def prepare(self, route: str, task: Task) -> Row:
        """The row of a route without its time; one with a note is complete."""
        row = blank(task, route)
        hindrance = self.hindrance(route, task)
        if hindrance:
            return self.keep(dataclasses.replace(row, note=hindrance))
        answer, first = self.ask(route, task)
        if "problem" in answer:
            return self.keep(dataclasses.replace(row, note=answer["problem"]))
        expected = self.reference(task)
        found = math.nan if expected is None else difference(first, expected)
        numbers = {key: float(answer[key]) for key in ("compile_s", "first_s", "memory", "operations") if key in answer}
        row = dataclasses.replace(row, **numbers, difference=found, versions=answer["versions"])
        row = dataclasses.replace(row, bytes=answer["arrays"] / (task.batch * task.steps))
        if answer["platform"] != self.platform:
            return self.keep(dataclasses.replace(row, note=f"runs on {answer['platform']} alone"))
        if route not in OWN and task.function == ACCELERATIONS and expected is None:
            return self.keep(dataclasses.replace(row, note="not checked: jaxdyn in float64 takes too long"))
        if route not in OWN and task.function in DYNAMICS and found > TOLERANCE[task.dtype]:
            return self.keep(dataclasses.replace(row, note=refusal(found)))
        return row

    def hindrance(self, route: str, task: Task) -> str:
        """Why a task need not be tried; empty if it may be."""
        if task.bytes > self.most_memory:
            return f"needs {task.bytes / 1e9:.3g} GB"
        for row in self.rows.values():
            if row.route != route:
                continue
            same = row.function == task.function and row.dtype == task.dtype
            if same and row.note.startswith("> ") and row.n <= task.n and row.batch <= task.batch:
                return f"> {self.most_time:.0f} s"
            if same and row.mechanism == task.mechanism and row.batch < task.batch:
                call = row.run_s * task.batch * task.steps / (row.batch * row.steps)
                if row.compile_s + call > self.most_time:
                    return f"> {self.most_time:.0f} s"
        if route in OWN or task.function == ACCELERATIONS:
            return ""
        return self.disagreement(route, task)

    def disagreement(self, route: str, task: Task) -> str:
        """Why a peer is not timed on a mechanism; empty if it gives the same accelerations."""
        known = [
            row
            for row in self.rows.values()
            if (row.function, row.mechanism, row.dtype, row.route) == (ACCELERATIONS, task.mechanism, task.dtype, route)
        ]
        if not any(math.isfinite(row.difference) or row.batch <= CHECKED for row in known):
            check = Task(ACCELERATIONS, task.mechanism, task.n, task.dtype, CHECKED)
            row = self.prepare(route, check)
            known.append(row if row.note else self.keep(row))
        found = [row for row in known if not math.isnan(row.difference)]
        if not found:
            return f"accelerations not checked: {known[-1].note}"
        return refusal(found[0].difference) if found[0].difference > TOLERANCE[task.dtype] else ""

    def reference(self, task: Task) -> list[np.ndarray] | None:
        """The first results by jaxdyn in float64; None if it takes too long."""
        key = (task.function, task.mechanism, task.steps)
        if key not in self.expected:
            answer, first = self.ask(REFERENCE, dataclasses.replace(task, dtype="float64", batch=CHECKED))
            self.expected[key] = None if "problem" in answer else first
        expected = self.expected[key]
        return None if expected is None else [x[: task.batch] for x in expected]

    def ask(self, route: str, task: Task) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Prepare a task; the report, and the first results."""
        file = self.folder / f"first_{route}.npz"
        file.unlink(missing_ok=True)
        request = {"prepare": dataclasses.asdict(task), "robot": self.descriptions[task.mechanism]}
        request |= {"most_memory": self.most_memory, "first": str(file)}
        limit = self.most_time if route != REFERENCE else 4 * self.most_time  # all others need it
        answer = self.worker(route, task.dtype).ask(request, limit)
        if "problem" in answer:
            return answer, []
        with np.load(file, allow_pickle=False) as first:
            results = [first[name] for name in first.files]
        file.unlink()
        return answer, results

    def worker(self, route: str, dtype: str) -> Worker:
        """The process of a route, started again if it has ended."""
        worker = self.workers.get((route, dtype))
        if worker is None or not worker.alive:
            command = [*self.commands[route], "-m", "peers.worker", route, "--dtype", dtype]
            command += ["--threads", str(self.threads)]
            worker = Worker([*command, *self.options.get(route, ())], self.folder / f"log_{route}.txt")
            self.workers[route, dtype] = worker
        return worker

    def keep(self, row: Row) -> Row:
        """Remember a row, and write it down."""
        self.rows[row.key] = row
        with (self.folder / ROWS).open("a") as file:
            file.write(line_of(row))
        return row

    def take(self, rows: Sequence[Row]) -> None:
        """Remember rows of the same run before it was interrupted, and write them down in place of its files."""
        self.rows |= {row.key: row for row in rows}
        unfinished = self.folder / f"{ROWS}.part"
        unfinished.write_text("".join(map(line_of, rows)))
        unfinished.replace(self.folder / ROWS)

    @staticmethod
    def complete(row: Row) -> bool:
        """Whether a row has its time or the reason why not; those of checked peers have neither."""
        return not math.isnan(row.run_s) or row.note not in ("", NOT_REACHED)

    def row(self, task: Task, route: str) -> Row:
        """The measurements of a task; a row that says so if it was not reached."""
        row = dataclasses.replace(blank(task, route), note=NOT_REACHED)
        return self.rows.get(row.key, row)

    def checks(self) -> list[Row]:
        """How far the accelerations of each peer are away, one row for each mechanism and precision."""
        rows = [row for row in self.rows.values() if row.function == ACCELERATIONS and row.route not in OWN]
        found = {(row.route, row.mechanism, row.dtype): row for row in reversed(rows) if not math.isnan(row.difference)}
        return list(found.values())

    def end(self) -> None:
        for worker in self.workers.values():
            worker.end()


def blank(task: Task, route: str) -> Row:
    return Row(task.function, task.mechanism, task.n, task.dtype, task.batch, task.steps, route)


def refusal(found: float) -> str:
    return f"refused: differs by {found:.2g}"


def line_of(row: Row) -> str:
    plain = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in dataclasses.asdict(row).items()}
    return json.dumps(plain) + "\n"


def read_rows(path: Path) -> list[Row]:
    """Rows of an earlier run; its last line may be cut off."""
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    plain: list[dict[str, Any]] = [json.loads(line) for line in lines]
    read: list[dict[str, Any]] = [{k: math.nan if v is None else v for k, v in row.items()} for row in plain]
    return [Row(**row) for row in read]
