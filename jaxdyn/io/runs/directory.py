"""Run directories: all inputs and results of one run in one place, readable without jaxdyn.

Each file is written under a temporary name and then renamed, so that it is complete or absent. provenance.json records the
conditions under which the run was started, and a run is resumed under the same conditions only. Each file of arrays is sealed: its
checksum depends on its content, its name and the provenance, so that a damaged file, or a file of another run, is never used as a
result. The other files that are read again have checksums, too: archives, metrics.json, and provenance.json, which contains the
checksum of the config.
"""

import contextlib
import dataclasses
import datetime
import difflib
import json
import math
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np
from jaxtyping import Array

from jaxdyn.dynamics.system import System
from jaxdyn.io.archive.file import damaged_file, is_of_archive, save_archive
from jaxdyn.io.errors import ConfigError, RunError
from jaxdyn.io.files import (
    LARGEST_ARRAYS,
    NpzArrays,
    fill_sealed_npz,
    has_seal,
    is_sealed,
    is_unfinished,
    unfinished,
    write_files,
)
from jaxdyn.io.reading import opened
from jaxdyn.io.runs.claims import claimed
from jaxdyn.io.runs.provenance import changes, digest, digest_of_file, identity

# Name of the archive of the simulated or optimized system.
MECHANISM = "mechanism"
CONFIG = "config.toml"
PROVENANCE = "provenance.json"
METRICS = "metrics.json"
LOCK, _CLAIM = "run.lock", ".claim"  # claim of the directory, and suffix of those of chunks
# Keys of configs that change no result, so that a run is resumed with other values, and those that change no result but the
# judgments and pictures of a complete run, which are then made again.
_FREE = ("devices", "memory")
_REPORTS = ("pictures", "animation", "check", "reference")
_PATIENCE = 1.0  # s, after which claims of other processes are looked at again
_SEAL = "seal"  # of a JSON file


@contextlib.contextmanager
def _writable(root: Path) -> Iterator[None]:
    """Create the directory and check that it can be written.

    Raises:
        RunError: The directory cannot be created or written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
        with unfinished(root / "probe") as probe:  # fail now and not after the computation
            probe.touch()
    except OSError as error:
        raise RunError(f"{root}: cannot be written ({error.strerror}); choose another run directory") from None


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A directory that contains one run; `create` makes a new one.

    Attributes:
        root: Path of the directory.
        held: Claims of this process, which end when this stack is closed.
    """

    root: Path
    held: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack, repr=False, compare=False)

    @staticmethod
    def create(out: Path | None, name: str) -> "RunDirectory":
        """Create a new, empty run directory.

        Args:
            out: Path of the directory; runs/<name>-<YYYYmmdd-HHMMSS> in the working directory if None.
            name: Name of the run, used in the default path.

        Raises:
            RunError: The directory is not empty or cannot be written.
        """
        default = Path("runs", f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}")
        directory = RunDirectory(default if out is None else out)
        if directory._left():
            raise directory._not_empty()
        return directory

    def claim(self) -> str | None:
        """Claim the directory for this process until `held` is closed; returns None, or the name of the process that holds it.

        Raises:
            RunError: The directory cannot be written.
        """
        with _writable(self.root):
            return self.held.enter_context(claimed(self.root / LOCK))

    def alone(self, *, waits: bool = False) -> None:
        """Claim the directory for this process.

        Args:
            waits: If true, a process that holds the claim is waited for.

        Raises:
            RunError: Another process works in the directory, or it cannot be written.
        """
        while (holder := self.claim()) is not None:
            if not waits:
                raise RunError(
                    f"{self.root}: {holder} is working on this run; wait until it ends, or choose another directory"
                )
            time.sleep(0.1 * _PATIENCE)

    def begin(self, config: str, provenance: Mapping[str, Any] | None) -> None:
        """Write config.toml and provenance.json at the start of a run.

        Args:
            config: Resolved config as TOML text.
            provenance: Conditions of the run (`jaxdyn.io.runs.provenance`); None for a run that is never resumed.

        Raises:
            RunError: Another process began a run here in the meantime, or the directory cannot be written.
        """
        if self._left() - {PROVENANCE}:  # which is left by a run that is killed while it begins
            raise self._not_empty()
        self._remove_unfinished()
        # The config is written last, so that the provenance exists wherever the config does.
        if provenance is not None:
            self.write_text(PROVENANCE, _sealed_json(provenance))
        self.write_text(CONFIG, config)

    def resume(self, config: str, provenance: Mapping[str, Any]) -> None:
        """Continue an interrupted run with the same config and provenance, or begin a run if the directory is empty.

        Args:
            config: Resolved config as TOML text.
            provenance: Conditions of the run (`jaxdyn.io.runs.provenance`).

        Raises:
            RunError: The directory contains other files or a different run, for example one that was started with another mechanism
                or another version of jaxdyn; or it cannot be written.
        """
        left = self._left()
        if not left - {PROVENANCE}:
            self.begin(config, provenance)
            return
        if CONFIG not in left:
            raise RunError(f"{self.root}: there is no {CONFIG}, so there is no run to resume; choose another directory")
        if self._has_damaged_config(config):
            print(f"note: {self.path(CONFIG)} is damaged; it is written again")
            self.write_text(CONFIG, config)
        before = self.path(CONFIG).read_text(encoding="utf-8")
        if before != config and _pinned(before, *_REPORTS) != _pinned(config, *_REPORTS):
            lines = difflib.ndiff(before.splitlines(), config.splitlines())
            was = "; ".join([line for line in lines if line[0] in "+-"][:4])
            raise RunError(
                f"{self.root}: the run had another config ({was}); give the same one, or choose another directory"
            )
        differing = changes(self._provenance(), _json(provenance))
        if differing:
            raise RunError(f"{self.root}: {'; '.join(differing)}; or choose another directory")
        if _pinned(before) != _pinned(config):
            print(f"note: {self.root} is continued with other checks or pictures")
            self.path(METRICS).unlink(missing_ok=True)
            self.write_text(CONFIG, config)

    def is_complete(self) -> bool:
        """Whether the run has ended, and all files that its metrics list exist and are intact.

        A note names each damaged file. If there is one, metrics.json is removed, so that the run is not complete for others, too.
        """
        try:
            metrics = self.read_metrics()
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            print(f"note: {self.path(METRICS)} is damaged; it is written again")
            self.path(METRICS).unlink()
            return False
        damaged = [name for name in metrics["arrays"] if not self.reusable(name)]  # `reusable` names each damaged file
        archives = [damaged_file(self.path(name)) for name in metrics.get("archives", [])]
        for file in filter(None, archives):
            print(f"note: {file} is missing or damaged; it is written again")
        if damaged or any(archives):
            self.path(METRICS).unlink(missing_ok=True)
            return False
        return True

    def _has_damaged_config(self, config: str) -> bool:
        """Whether the run began with this config, although its file has changed since."""
        path = self.path(CONFIG)
        same = digest(config.encode()) == self._provenance()["config"] != digest_of_file(path)
        return same and _pinned(path.read_text("utf-8", "replace"), *_REPORTS) != _pinned(config, *_REPORTS)

    def _not_empty(self) -> RunError:
        return RunError(f"{self.root}: the run directory is not empty; choose another one or delete it")

    def remove_if_empty(self) -> None:
        """Remove the directory if it is empty."""
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def _left(self) -> set[str]:
        """Names of the complete files in the directory, which is created if it does not exist."""
        with _writable(self.root):
            return {file.name for file in self.root.iterdir() if not is_unfinished(file)} - {LOCK}

    def _remove_unfinished(self) -> None:
        for file in filter(is_unfinished, list(self.root.rglob("*.part*"))):
            file.unlink(missing_ok=True)

    def _provenance(self) -> dict[str, Any]:
        path = self.path(PROVENANCE)
        try:
            found = unsealed_json(path.read_text(encoding="utf-8"))
            identity(found)
            return found
        except FileNotFoundError:
            raise RunError(
                f"{self.root}: there is no {PROVENANCE}, so the run was started by an older jaxdyn and its inputs cannot be "
                "compared; choose another directory"
            ) from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise RunError(
                f"{path}: it is damaged, so the inputs of the run are unknown; choose another directory"
            ) from None

    def path(self, name: str) -> Path:
        """Path of a file of this run.

        Raises:
            RunError: The name refers to a place outside of the directory.
        """
        path = (self.root / name).resolve()
        if self.root.resolve() not in path.parents:
            raise RunError(f"{self.root}: {name!r} is not a file in the run directory; give a plain name")
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file, for example a table."""
        return self._write(name, lambda file: file.write(text.encode()))

    def discard(self) -> None:
        """Undo `begin` if a run is refused before it has computed anything; existing results are kept."""
        if self._left() == {CONFIG, PROVENANCE}:
            self.path(CONFIG).unlink(missing_ok=True)
            self.path(PROVENANCE).unlink(missing_ok=True)

    def write_metrics(self, metrics: Mapping[str, Any]) -> Path:
        """Write metrics.json, which completes the run. Leftovers of killed processes are removed before.

        JSON does not support NaN and infinity; they are written as the strings "nan", "inf" and "-inf", which `float` reads.
        """
        self._remove_unfinished()
        for claim in self.root.glob(f"*{_CLAIM}"):
            claim.unlink(missing_ok=True)
        return self.write_text(METRICS, _sealed_json(metrics))

    def write_arrays(self, name: str, /, **arrays: Array | np.ndarray | float | int) -> Path:
        """Write <name>.npz with a checksum, uncompressed and without pickled objects.

        Raises:
            ValueError: An array contains Python objects.
        """
        return self._write(f"{name}.npz", lambda file: fill_sealed_npz(file, arrays, self._key(name)))

    def is_intact(self, name: str) -> bool:
        """Whether <name>.npz is unchanged since this run wrote it."""
        return is_sealed(self.path(f"{name}.npz"), self._key(name))

    def reusable(self, name: str) -> bool:
        """Whether a resumed run can use <name>.npz. If the file is damaged or belongs to another run, a note is printed, and it is
        removed."""
        path = self.path(f"{name}.npz")
        if not path.exists():
            return False
        intact = self.is_intact(name)
        if not intact:
            print(f"note: {path} is damaged or belongs to another run; it is computed again")
            path.unlink(missing_ok=True)
        return intact

    def sealed_names(self, *, archives: bool) -> list[str]:
        """Names of all files with a checksum in this directory, without their suffix: archives, or other files of arrays."""
        files = [file for file in self.root.rglob("*.npz") if has_seal(file) and is_of_archive(file) == archives]
        return sorted(file.relative_to(self.root).with_suffix("").as_posix() for file in files)

    def read_metrics(self) -> dict[str, Any]:
        """Content of metrics.json.

        Raises:
            OSError, ValueError: There is no such file, or it is damaged.
        """
        return unsealed_json(self.path(METRICS).read_text(encoding="utf-8"))

    def read_arrays(self, name: str, keys: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Arrays of <name>.npz, all of them or those with the given keys.

        Raises:
            RunError: There is no such file, or it is damaged.
        """
        with self._opened_arrays(name) as arrays:
            return {key: arrays[key] for key in (arrays if keys is None else keys)}

    def array_shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of <name>.npz, of which only the headers are read.

        Raises:
            RunError: There is no such file, or it is damaged.
        """
        with self._opened_arrays(name) as arrays:
            return {key: arrays.shape(key) for key in arrays}

    @contextlib.contextmanager
    def _opened_arrays(self, name: str) -> Iterator[NpzArrays]:
        path = self.path(f"{name}.npz")
        try:
            with opened(path, LARGEST_ARRAYS, "give a complete run") as file:
                yield NpzArrays(file)
        except ConfigError as error:
            raise RunError(str(error)) from None
        except KeyError as error:
            raise RunError(f"{path}: there is no array {error}; give a complete run") from None
        except ValueError as error:
            raise RunError(f"{path}: it is not an npz file of plain arrays, {error}; give a complete run") from None

    def write_mechanism(self, system: System) -> None:
        """Write mechanism.json and mechanism.npz, the system of the run; `load_run` reads them.

        Raises:
            ConfigError: The system has a force or a joint that does not belong to jaxdyn, or the files cannot be written.
        """
        save_archive(system, self.path(MECHANISM))

    def _key(self, name: str) -> str:
        """Text that enters the seal of an array file besides its content: the name, and the provenance if it is known."""
        pinned = identity(self._provenance()) if self.path(PROVENANCE).exists() else ""
        return f"{pinned} {name}"

    def _write(self, name: str, fill: Callable[[BinaryIO], object]) -> Path:
        path = self.path(name)
        try:
            write_files({path: fill})
        except OSError as error:
            remedy = "free disk space or choose another run directory"
            raise RunError(f"{path}: cannot be written ({error.strerror}); {remedy}") from None
        return path


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Arrays of a run that is stored in chunks of samples: <name>.npz if it exists, otherwise <name>-00001-of-00008.npz and so on.

    Attributes:
        directory: Run directory.
        name: Name of the arrays.
        count: Number of chunks.
    """

    directory: RunDirectory
    name: str
    count: int

    @staticmethod
    def found(directory: RunDirectory, name: str) -> "Chunks":
        """Find the existing chunks of a run.

        Raises:
            RunError: Some chunks are missing.
        """
        there = sorted(directory.root.glob(f"{name}-*-of-*.npz"))
        if not there or directory.path(f"{name}.npz").exists():
            return Chunks(directory, name, 1)
        chunks = Chunks(directory, name, int(there[0].stem.rsplit("-", 1)[1]))
        missing = [k for k in range(chunks.count) if not chunks.exists(k)]
        if missing:
            raise RunError(
                f"{directory.root}: {len(missing)} of {chunks.count} chunks of {name} are missing, the run was interrupted; "
                "finish it with --resume"
            )
        return chunks

    def fill(self, compute: Callable[[int], Mapping[str, Array | np.ndarray]]) -> bool:
        """Write the chunks that are missing, until there are all; any number of processes may do so at the same time.

        A process claims a chunk before it computes it, and waits for the chunks that others have claimed. If one of them is killed,
        its claims end, and another process computes its chunk.

        Args:
            compute: Function compute(k) that returns the arrays of chunk k.

        Returns:
            True if this process completes the run: it has claimed the directory, and all chunks are intact. False if another one
            has completed it.
        """
        while True:
            there = {file.name for file in self.directory.root.iterdir()}
            missing = [k for k in range(self.count) if f"{self._stem(k)}.npz" not in there]
            # Chunks that are claimed come last, because a claim has rarely ended.
            missing.sort(key=lambda k: f"{self._stem(k)}{_CLAIM}" in there)
            if any(self._filled(k, compute) for k in missing):
                continue
            if METRICS in there:
                return False
            if not missing and self.directory.claim() is None:
                damaged = [k for k in range(self.count) if not self.reusable(k)]
                if not damaged and not self.directory.path(METRICS).exists():
                    return True
                self.directory.held.close()
            else:
                time.sleep(_PATIENCE)

    def _filled(self, k: int, compute: Callable[[int], Mapping[str, Array | np.ndarray]]) -> bool:
        """Compute and write chunk k, unless another process does so or has done so; returns whether it was computed."""
        with claimed(self.directory.path(f"{self._stem(k)}{_CLAIM}")) as holder:
            if holder is not None or self.exists(k):
                return False
            self.directory.write_arrays(self._stem(k), **compute(k))
            return True

    def exists(self, k: int) -> bool:
        """Whether the file of chunk k exists."""
        return self.directory.path(f"{self._stem(k)}.npz").exists()

    def reusable(self, k: int) -> bool:
        """Whether a resumed run can use chunk k, see `RunDirectory.reusable`."""
        return self.directory.reusable(self._stem(k))

    def remove(self) -> None:
        """Remove all chunks."""
        for k in range(self.count):
            self.directory.path(f"{self._stem(k)}.npz").unlink(missing_ok=True)

    def read(self, k: int, keys: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Arrays of chunk k, all of them or those with the given keys."""
        return self.directory.read_arrays(self._stem(k), keys)

    def shapes(self, k: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of chunk k."""
        return self.directory.array_shapes(self._stem(k))

    def check(self, k: int) -> None:
        """Compare chunk k with its checksum, if it was written by a version of jaxdyn that adds checksums.

        Raises:
            RunError: The chunk is damaged or belongs to another run.
        """
        pinned, name = self.directory.path(PROVENANCE).exists(), self._stem(k)
        if pinned and self.exists(k) and not self.directory.is_intact(name):
            raise RunError(
                f"{self.directory.path(name)}.npz: it is damaged or belongs to another run; compute it again with --resume"
            )

    def _stem(self, k: int) -> str:
        return self.name if self.count == 1 else f"{self.name}-{k + 1:05d}-of-{self.count:05d}"


def _pinned(config: str, *more: str) -> dict[str, Any] | str:
    """The values of a config that can change a result, without those of `more` keys; the text, if it is damaged."""
    try:
        return {key: value for key, value in tomllib.loads(config).items() if key not in (*_FREE, *more)}
    except tomllib.TOMLDecodeError:
        return config


def _sealed_json(content: Mapping[str, Any]) -> str:
    """Text of a JSON file with the digest of its content."""
    plain = _json(content)
    return json.dumps(plain | {_SEAL: _json_digest(plain)}, indent=2) + "\n"


def unsealed_json(text: str) -> dict[str, Any]:
    """The content of a JSON file of a run, without its digest; older versions of jaxdyn wrote none.

    Raises:
        ValueError: The file is damaged.
    """
    found = json.loads(text)
    if not isinstance(found, dict) or found.pop(_SEAL, None) not in (None, _json_digest(found)):
        raise ValueError("it has changed since it was written")
    return found


def _json_digest(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True).encode())


def _json(value: Any) -> Any:
    """Plain JSON values of nested metrics, including arrays."""
    if isinstance(value, Mapping):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _json(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, Path) else value
