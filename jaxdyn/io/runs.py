"""Run directories: everything one run read and produced, in one place and readable without jaxdyn.

Files appear complete or not at all: each is written under another name and then renamed. provenance.json pins what the run was
started with, and a run is resumed with the same or not at all. Each file of arrays is sealed: its checksum depends on its content,
its name and the provenance, so that a damaged file, or one of another run, is never taken for a result.
"""

import contextlib
import dataclasses
import datetime
import difflib
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np
from jaxtyping import Array

from jaxdyn.dynamics.system import System
from jaxdyn.io.archive import load_archive, save_archive
from jaxdyn.io.errors import ConfigError, RunError
from jaxdyn.io.files import LARGEST_ARRAYS, NpzArrays, fill_sealed_npz, has_seal, is_sealed, write_files
from jaxdyn.io.lock import LOCK, LockedError, locked
from jaxdyn.io.provenance import changes, identity
from jaxdyn.io.reading import opened

# The archive of the system that ran.
MECHANISM = "mechanism"
_CONFIG = "config.toml"
_PROVENANCE = "provenance.json"
_METRICS = "metrics.json"
# What a run that was killed while it began can leave.
_BEGINNING = {_PROVENANCE, f"{_PROVENANCE}.part", f"{_CONFIG}.part"}


@contextlib.contextmanager
def _writable(root: Path) -> Iterator[None]:
    """The directory is made and can be written.

    Raises:
        RunError: It cannot.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
        with tempfile.TemporaryFile(dir=root):  # better to fail now than after the computation
            pass
    except OSError as error:
        raise RunError(f"{root}: cannot be written ({error.strerror}); choose another run directory") from None


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A directory that holds one run; make one with `create`.

    Attributes:
        root: The directory.
    """

    root: Path

    @staticmethod
    def create(out: Path | None, name: str) -> "RunDirectory":
        """A new, empty run directory.

        Args:
            out: The directory; runs/<name>-<YYYYmmdd-HHMMSS> in the working directory if None.

        Raises:
            RunError: It exists and is not empty, or cannot be written.
        """
        default = Path("runs", f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}")
        directory = RunDirectory(default if out is None else out)
        if directory._left():
            raise directory._not_empty()
        return directory

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from working in this directory. At the end it is removed if it is empty.

        Raises:
            RunError: Another process works in it, or it cannot be written.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove_if_empty)
            try:
                with _writable(self.root):
                    stack.enter_context(locked(self.root))
            except LockedError as error:
                raise RunError(
                    f"{self.root}: {error} is working on this run; wait until it ends, or choose another directory"
                ) from None
            yield

    def begin(self, config: str, provenance: Mapping[str, Any] | None) -> None:
        """Write config.toml, the resolved config, and provenance.json, what the run is started with; None if it is never resumed.

        Raises:
            RunError: Another process began a run here in the meantime, or the directory cannot be written.
        """
        if self._left() - _BEGINNING:
            raise self._not_empty()
        # The config comes last: where it is, the provenance is.
        if provenance is not None:
            self.write_text(_PROVENANCE, json.dumps(_json(provenance), indent=2) + "\n")
        self.write_text(_CONFIG, config)

    def resume(self, config: str, provenance: Mapping[str, Any]) -> None:
        """Go on with an interrupted run, which was started with the same config and provenance, or begin one.

        Raises:
            RunError: The directory holds something else, for instance a run that was started with another mechanism or another
                version of jaxdyn, or it cannot be written.
        """
        left = self._left()
        if not left - _BEGINNING:
            self.begin(config, provenance)
            return
        if _CONFIG not in left:
            raise RunError(f"{self.root}: there is no {_CONFIG}, so this is no run to resume; choose another directory")
        before = self.path(_CONFIG).read_text(encoding="utf-8").splitlines()
        changed = [line for line in difflib.ndiff(before, config.splitlines()) if line[0] in "+-"]
        if changed:
            was = "; ".join(changed[:4])
            raise RunError(
                f"{self.root}: the run had another config ({was}); give the same one, or choose another directory"
            )
        differing = changes(self._provenance(), _json(provenance))
        if differing:
            raise RunError(f"{self.root}: {'; '.join(differing)}; or choose another directory")
        for part in (*self.root.rglob("*.part"), *self.root.rglob("*.part.*")):  # of files that were being written
            part.unlink()

    def is_complete(self) -> bool:
        """Whether the run has ended, and all arrays that its metrics list are there and intact."""
        try:
            listed = self.read_metrics()["arrays"]
        except (OSError, ValueError, KeyError):
            return False
        damaged = [name for name in listed if not self.reusable(name)]  # each one is named
        return not damaged

    def _not_empty(self) -> RunError:
        return RunError(f"{self.root}: the run directory is not empty; choose another one or delete it")

    def _remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def _left(self) -> set[str]:
        """Names of the files that are in the directory, which is made if there is none."""
        with _writable(self.root):
            return {file.name for file in self.root.iterdir()} - {LOCK}

    def _provenance(self) -> dict[str, Any]:
        path = self.path(_PROVENANCE)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            identity(found)
            return found
        except FileNotFoundError:
            raise RunError(
                f"{self.root}: there is no {_PROVENANCE}, so the run was started by an older jaxdyn and what it read cannot be "
                "compared; choose another directory"
            ) from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise RunError(
                f"{path}: it is damaged, so what the run read is not known; choose another directory"
            ) from None

    def path(self, name: str) -> Path:
        """Path of a file of this run.

        Raises:
            RunError: The name leads out of the directory.
        """
        path = (self.root / name).resolve()
        if self.root.resolve() not in path.parents:
            raise RunError(f"{self.root}: {name!r} is no file in the run directory; give a plain name")
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file, a table for instance."""
        return self._write(name, lambda file: file.write(text.encode()))

    def discard(self) -> None:
        """Undo `begin`, for a run that was refused before it computed anything; results stay."""
        if self._left() == {_CONFIG, _PROVENANCE}:
            self.path(_CONFIG).unlink()
            self.path(_PROVENANCE).unlink()

    def write_metrics(self, metrics: Mapping[str, Any]) -> Path:
        """Write metrics.json, with which a run is complete.

        JSON knows no NaN and no infinity: they become the strings "nan", "inf", "-inf", which `float` reads.
        """
        text = json.dumps(_json(metrics), indent=2) + "\n"
        return self._write(_METRICS, lambda file: file.write(text.encode()))

    def write_arrays(self, name: str, /, **arrays: Array | np.ndarray | float | int) -> Path:
        """Write <name>.npz, sealed, uncompressed and without pickled objects.

        Raises:
            ValueError: An array of Python objects.
        """
        return self._write(f"{name}.npz", lambda file: fill_sealed_npz(file, arrays, self._key(name)))

    def is_intact(self, name: str) -> bool:
        """Whether <name>.npz is as this run wrote it."""
        return is_sealed(self.path(f"{name}.npz"), self._key(name))

    def reusable(self, name: str) -> bool:
        """Whether a resumed run can go on with <name>.npz. If it is there but damaged or of another run, one line says so."""
        path = self.path(f"{name}.npz")
        if not path.exists():
            return False
        intact = self.is_intact(name)
        if not intact:
            print(f"note: {path} is damaged or of another run; it is computed again")
        return intact

    def array_names(self) -> list[str]:
        """Names of all sealed files of arrays in this directory, without their ending."""
        files = [file for file in self.root.rglob("*.npz") if has_seal(file)]
        return sorted(file.relative_to(self.root).with_suffix("").as_posix() for file in files)

    def read_metrics(self) -> dict[str, Any]:
        """Content of metrics.json."""
        return json.loads(self.path(_METRICS).read_text(encoding="utf-8"))

    def read_arrays(self, name: str, keys: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Arrays of <name>.npz, all of them or those of some keys.

        Raises:
            RunError: There is no such file, or it is damaged.
        """
        path = self.path(f"{name}.npz")
        try:
            with opened(path, LARGEST_ARRAYS, "give a complete run") as file:
                arrays = NpzArrays(file)
                return {key: arrays[key] for key in (arrays if keys is None else keys)}
        except ConfigError as error:
            raise RunError(str(error)) from None
        except KeyError as error:
            raise RunError(f"{path}: there is no {error}; give a complete run") from None
        except ValueError as error:
            raise RunError(f"{path}: no npz file of plain arrays, {error}; give a complete run") from None

    def write_mechanism(self, system: System) -> None:
        """Write mechanism.json and mechanism.npz, the system that ran; `load_run` reads them.

        Raises:
            ConfigError: It has a force or a joint that is none of jaxdyn, or the files cannot be written.
        """
        save_archive(system, self.path(MECHANISM))

    def _key(self, name: str) -> str:
        """What the seal of an array file depends on besides its content; nothing but the name if the provenance is not known."""
        pinned = identity(self._provenance()) if self.path(_PROVENANCE).exists() else ""
        return f"{pinned} {name}"

    def _write(self, name: str, fill: Callable[[BinaryIO], object]) -> Path:
        path = self.path(name)
        try:
            write_files({path: fill})
        except OSError as error:
            remedy = "make room or choose another run directory"
            raise RunError(f"{path}: cannot be written ({error.strerror}); {remedy}") from None
        return path


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Arrays of a run whose lanes come in chunks: <name>.npz if there is one, else <name>-00001-of-00008.npz and so on.

    Attributes:
        directory: of the run.
        name: of the arrays.
        count: Number of chunks.
    """

    directory: RunDirectory
    name: str
    count: int

    @staticmethod
    def found(directory: RunDirectory, name: str) -> "Chunks":
        """Those that a run left.

        Raises:
            RunError: Some are missing.
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

    def exists(self, k: int) -> bool:
        """Whether there is a file of chunk k."""
        return self.directory.path(f"{self._stem(k)}.npz").exists()

    def reusable(self, k: int) -> bool:
        """Whether a resumed run can go on with chunk k, see `RunDirectory.reusable`."""
        return self.directory.reusable(self._stem(k))

    def write(self, k: int, /, **arrays: np.ndarray) -> None:
        """Write chunk k."""
        self.directory.write_arrays(self._stem(k), **arrays)

    def read(self, k: int, keys: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Arrays of chunk k, all of them or those of some keys."""
        return self.directory.read_arrays(self._stem(k), keys)

    def check(self, k: int) -> None:
        """Compare chunk k with its checksum, if it is of a jaxdyn that seals its files.

        Raises:
            RunError: It is damaged or of another run.
        """
        pinned, name = self.directory.path(_PROVENANCE).exists(), self._stem(k)
        if pinned and self.exists(k) and not self.directory.is_intact(name):
            raise RunError(
                f"{self.directory.path(name)}.npz: it is damaged or of another run; compute it again with --resume"
            )

    def _stem(self, k: int) -> str:
        return self.name if self.count == 1 else f"{self.name}-{k + 1:05d}-of-{self.count:05d}"


def load_run(path: Path | str, *, lanes: int | None = None) -> tuple[System, dict[str, np.ndarray]]:
    """The system and the recorded arrays of a run of `jaxdyn rollout`, from its directory alone.

    All arrays but `time` have the lanes first. A run in float64 needs double precision in JAX (`jax.enable_x64`).

    Args:
        lanes: Read only as many lanes, the first ones; of a run in chunks the rest is not touched.

    Raises:
        ConfigError: Its mechanism.json and mechanism.npz are missing or damaged.
        RunError: Its states.npz, or a chunk of it, is missing, damaged or of another run.
    """
    directory = RunDirectory(Path(path))
    system = load_archive(directory.path(MECHANISM))
    chunks = Chunks.found(directory, "states")
    parts, count = [], 0
    try:
        while len(parts) < chunks.count and (lanes is None or count < lanes):
            chunks.check(len(parts))
            parts.append(chunks.read(len(parts)))
            count += len(parts[-1]["q"])
        shared = {"time": parts[0]["time"]} if "time" in parts[0] else {}
        by_lane = [key for key in parts[0] if key not in shared]
        return system, shared | {key: np.concatenate([part[key] for part in parts])[:lanes] for key in by_lane}
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: the states do not fit together ({error}); give a complete run") from None


def _json(value: Any) -> Any:
    """Plain JSON values of nested metrics, arrays included."""
    if isinstance(value, Mapping):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _json(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, Path) else value
