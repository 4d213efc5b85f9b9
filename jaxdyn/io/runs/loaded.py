"""Runs that are loaded from their directories, with all recorded data."""

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.display import Display, Displayed, array_text, plural
from jaxdyn.dynamics.system import State, System
from jaxdyn.errors import check_name
from jaxdyn.io.archive.file import load_archive
from jaxdyn.io.errors import RunError
from jaxdyn.io.reading import content
from jaxdyn.io.runs.directory import CONFIG, MECHANISM, METRICS, PROVENANCE, Chunks, RunDirectory, unsealed_json
from jaxdyn.io.runs.provenance import digest_of_file
from jaxdyn.mechanism.messages import checked_count, checked_list
from jaxdyn.results import outcome_text
from jaxdyn.simulate.outcome import RolloutResult
from jaxdyn.simulate.trajectory import Trajectory

_LARGEST_TEXT = 2**26  # bytes
_DAMAGED = "it is damaged; restore the file or give another run"


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Run(Displayed):
    """A run as `load_run` reads it from its directory.

    Attributes:
        path: Run directory.
        system: The mechanism with its forces, drives and constraints.
        arrays: Recorded arrays by name; the first axis of every array except `time` is the index of the sample. A run of `jaxdyn
            rollout` has `time` (T,) in s, `q` (samples, T, nq), `v` (samples, T, nv), `z` (samples, T, nz) if drives have states,
            `energy` and `work` (samples, T) in J, and `result` and `steps` (samples,).
        config: Content of config.toml, or None if there is no such file.
        metrics: Content of metrics.json; None if the run is not complete.
        provenance: Content of provenance.json, which pins the inputs of the run, or None if there is no such file.
    """

    path: Path
    system: System
    arrays: dict[str, np.ndarray]
    config: dict[str, Any] | None
    metrics: dict[str, Any] | None
    provenance: dict[str, Any] | None

    @functools.cached_property
    def trajectory(self) -> Trajectory:
        """The recorded states as a batch of trajectories. Without recorded result codes, all samples count as completed.

            run.trajectory.plot()
            run.trajectory.animate(run.system)

        Raises:
            RunError: Times, coordinates and velocities were not recorded or not read, or do not match the system.
        """
        arrays, model = self.arrays, self.system.model
        missing = [name for name in ("time", "q", "v") if name not in arrays]
        if missing:
            raise RunError(f"{self.path}: the run did not record {missing[0]!r}, or it was not read; use its arrays")
        time, q, v = (arrays[name] for name in ("time", "q", "v"))
        samples, records = len(q), time.size
        if (time.ndim, q.shape, v.shape) != (1, (samples, records, model.nq), (samples, records, model.nv)):
            raise RunError(f"{self.path}: the states do not fit the system {model.name!r}; give a complete run")
        completed = np.full(samples, RolloutResult.SUCCESSFUL.value, np.int32)
        result, steps = arrays.get("result", completed), arrays.get("steps", np.full_like(completed, records - 1))
        z = jnp.asarray(arrays["z"]) if "z" in arrays else None
        states = State(jnp.asarray(q), jnp.asarray(v), z)
        return Trajectory(
            jnp.broadcast_to(jnp.asarray(time), (samples, records)),
            states,
            jax.tree.map(lambda x: x[:, -1], states),
            None,
            jnp.asarray(result),
            jnp.asarray(steps),
            model.topology,
            str((self.metrics or {}).get("backend", "xla")),
        )

    def _display(self) -> Display:
        arrays, environment = self.arrays, (self.provenance or {}).get("environment", {})
        rows = {"path": str(self.path), "system": self.system._display().title}
        if "result" in arrays:
            rows["result"] = outcome_text(RolloutResult, arrays["result"])
        rows["arrays"] = ", ".join(f"{name} {array_text(values)}" for name, values in arrays.items())
        rows["config"] = "none" if self.config is None else ", ".join(self.config)
        rows["metrics"] = "none, the run is not complete" if self.metrics is None else ", ".join(self.metrics)
        rows["made with"] = ", ".join(
            f"{name} {environment[name]}" for name in ("jaxdyn", "jax") if name in environment
        )
        counts = {len(values) for name, values in arrays.items() if name != "time"}
        count = "".join(f", {plural(number, 'sample', 'samples')}" for number in counts)
        return Display(f"Run({self.system.model.name!r}{count})", rows)


def load_run(path: Path | str, *, samples: int | slice | None = None, arrays: Sequence[str] | None = None) -> Run:
    """Read a run of `jaxdyn rollout` or `jaxdyn optimize` from its directory.

    A run in float64 needs double precision in JAX (`jax.enable_x64`).

    Args:
        path: Run directory.
        samples: Number of samples to read, beginning with the first one, or a slice of the samples. If the run is stored in chunks,
            only the chunks with these samples are read.
        arrays: Names of the arrays to read; all of them by default.

    Raises:
        TypeError: `samples` is neither an integer nor a slice, or `arrays` is not a list of names.
        ConfigError: The mechanism.json or mechanism.npz of the run is missing or damaged, or a file is too large.
        RunError: The states.npz of the run, or a chunk of it, is missing, is damaged, or belongs to another run; or its
            config.toml, metrics.json or provenance.json is damaged.
        UnknownName: The run has no array of one of the names.

    Example:
        ```py
        last = jaxdyn.io.load_run("runs/arms", samples=slice(900_000, None), arrays=["energy"]).arrays["energy"]
        ```
    """
    count = samples if isinstance(samples, slice | None) else checked_count("samples", samples, 0)
    chosen = count if isinstance(count, slice) else slice(count)
    names = None if arrays is None else checked_list("arrays", arrays, str, '"energy"')
    directory = RunDirectory(Path(path))
    system = load_archive(directory.path(MECHANISM))
    config, metrics, provenance = (
        _parsed(directory.path(name), parse)
        for name, parse in ((CONFIG, tomllib.loads), (METRICS, unsealed_json), (PROVENANCE, unsealed_json))
    )
    if provenance is not None and provenance.get("config") != digest_of_file(directory.path(CONFIG)):
        raise RunError(f"{directory.path(CONFIG)}: {_DAMAGED}")
    return Run(directory.root, system, _arrays(directory, chosen, names), config, metrics, provenance)


def _arrays(directory: RunDirectory, samples: slice, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """The recorded arrays of some samples, all of them or those with the given names."""
    chunks = Chunks.found(directory, "states")
    shapes = [_shapes(chunks, k) for k in range(chunks.count)]
    for name in names or ():
        check_name("array", name, shapes[0], where=str(directory.root))
    keys = [key for key in shapes[0] if names is None or key in names]
    try:
        starts = np.cumsum([0, *(each["q"][0] for each in shapes)])
        chosen = np.arange(starts[-1])[samples]
        of_chunk = np.searchsorted(starts, chosen, side="right") - 1
        parts = []
        for k in dict.fromkeys(of_chunk.tolist()) or [0]:
            chunks.check(k)
            rows = chosen[of_chunk == k] - starts[k]
            parts.append({key: x if key == "time" else x[rows] for key, x in chunks.read(k, keys).items()})
        shared = {"time": parts[0]["time"]} if "time" in keys else {}
        return shared | {key: np.concatenate([part[key] for part in parts]) for key in keys if key not in shared}
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{directory.root}: the states do not fit together ({error}); give a complete run") from None


def _shapes(chunks: Chunks, k: int) -> dict[str, tuple[int, ...]]:
    try:
        return chunks.shapes(k)
    except RunError:
        chunks.check(k)  # it names the remedy for a damaged chunk
        raise


def _parsed(path: Path, parse: Callable[[str], Any]) -> dict[str, Any] | None:
    """The content of a text file of a run, or None if there is no such file."""
    if not path.exists():
        return None
    try:
        found = parse(content(path, _LARGEST_TEXT, "give a complete run").decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RunError(f"{path}: {_DAMAGED}")
    return found
