"""Run directories: everything one run read and produced, in one place and readable without jaxdyn.

Files appear complete or not at all: each is written under another name and then renamed.
"""

import contextlib
import dataclasses
import datetime
import difflib
import importlib.metadata
import json
import math
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jaxtyping import Array

from jaxdyn.dynamics.system import System
from jaxdyn.io.archive import load_archive, save_archive
from jaxdyn.io.files import LARGEST_ARRAYS, NpzArrays, fill_npz, write_files
from jaxdyn.io.reading import ConfigError, opened
from jaxdyn.mechanism.checks import one_line

# The archive of the system that ran.
MECHANISM = "mechanism"
_CONFIG = "config.toml"


class RunError(RuntimeError):
    """A run directory that cannot be used; the message is one line with the path and the remedy."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


@contextlib.contextmanager
def _writable(root: Path) -> Iterator[None]:
    """The directory is made and can be written.

    Raises:
        RunError: it cannot.
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
        root: the directory.
    """

    root: Path

    @staticmethod
    def create(out: Path | None, name: str) -> "RunDirectory":
        """A new, empty run directory.

        Args:
            out: the directory; runs/<name>-<YYYYmmdd-HHMMSS> in the working directory if None.

        Raises:
            RunError: it exists and is not empty, or cannot be written.
        """
        root = Path("runs", f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}") if out is None else out
        with _writable(root):
            if any(root.iterdir()):
                raise RunError(f"{root}: the run directory is not empty; choose another one or delete it")
        return RunDirectory(root)

    @staticmethod
    def resumed(out: Path, name: str, config: str) -> "RunDirectory":
        """The directory of a run of the same config that was interrupted, or a new one with that config.

        Raises:
            RunError: it holds something else, a run of another config for instance, or cannot be written.
        """
        directory = RunDirectory(out)
        with _writable(out):
            left = list(out.iterdir())
        if not left or all(file.name == f"{_CONFIG}.part" for file in left):
            directory.write_config(config)
            return directory
        if not directory.path(_CONFIG).is_file():
            raise RunError(f"{out}: there is no {_CONFIG}, so this is no run to resume; choose another directory")
        before = directory.path(_CONFIG).read_text(encoding="utf-8").splitlines()
        changed = [line for line in difflib.ndiff(before, config.splitlines()) if line[0] in "+-"]
        if changed:
            was = "; ".join(changed[:4])
            raise RunError(f"{out}: the run had another config ({was}); give the same one, or choose another directory")
        for part in (*out.rglob("*.part"), *out.rglob("*.part.*")):  # of files that were being written
            part.unlink()
        return directory

    def path(self, name: str) -> Path:
        """Path of a file of this run.

        Raises:
            RunError: the name leads out of the directory.
        """
        path = (self.root / name).resolve()
        if self.root.resolve() not in path.parents:
            raise RunError(f"{self.root}: {name!r} is no file in the run directory; give a plain name")
        return path

    def write_config(self, text: str) -> Path:
        """Write config.toml, the resolved config."""
        return self._write(_CONFIG, lambda file: file.write(text.encode()))

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file, a table for instance."""
        return self._write(name, lambda file: file.write(text.encode()))

    def discard_config(self) -> None:
        """Undo `create` and `write_config`, for a run that was refused before it computed anything; results stay."""
        if [file.name for file in self.root.iterdir()] == [_CONFIG]:
            self.path(_CONFIG).unlink()
            self.root.rmdir()

    def write_metrics(self, metrics: Mapping[str, Any]) -> Path:
        """Write metrics.json.

        JSON knows no NaN and no infinity: they become the strings "nan", "inf", "-inf", which `float` reads.
        """
        text = json.dumps(_json(metrics), indent=2) + "\n"
        return self._write("metrics.json", lambda file: file.write(text.encode()))

    def write_arrays(self, name: str, /, **arrays: Array | np.ndarray | float | int) -> Path:
        """Write <name>.npz, uncompressed and without pickled objects.

        Raises:
            ValueError: an array of Python objects.
        """

        return self._write(f"{name}.npz", lambda file: fill_npz(file, arrays))

    def read_metrics(self) -> dict[str, Any]:
        """Content of metrics.json."""
        return json.loads(self.path("metrics.json").read_text(encoding="utf-8"))

    def read_arrays(self, name: str, keys: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Arrays of <name>.npz, all of them or those of some keys.

        Raises:
            RunError: there is no such file, or it is damaged.
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
            ConfigError: it has a force or a joint that is none of jaxdyn, or the files cannot be written.
        """
        save_archive(system, self.path(MECHANISM))

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
        count: number of chunks.
    """

    directory: RunDirectory
    name: str
    count: int

    @staticmethod
    def found(directory: RunDirectory, name: str) -> "Chunks":
        """Those that a run left.

        Raises:
            RunError: some are missing.
        """
        there = sorted(directory.root.glob(f"{name}-*-of-*.npz"))
        if not there or directory.path(f"{name}.npz").exists():
            return Chunks(directory, name, 1)
        chunks = Chunks(directory, name, int(there[0].stem.rsplit("-", 1)[1]))
        missing = [k for k in range(chunks.count) if not chunks.written(k)]
        if missing:
            raise RunError(
                f"{directory.root}: {len(missing)} of {chunks.count} chunks of {name} are missing, the run was interrupted; "
                "finish it with --resume"
            )
        return chunks

    def written(self, k: int) -> bool:
        """Whether chunk k is there. A file is complete if it exists."""
        return self.directory.path(f"{self._stem(k)}.npz").exists()

    def write(self, k: int, /, **arrays: np.ndarray) -> None:
        """Write chunk k."""
        self.directory.write_arrays(self._stem(k), **arrays)

    def read(self, k: int, keys: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Arrays of chunk k, all of them or those of some keys."""
        return self.directory.read_arrays(self._stem(k), keys)

    def _stem(self, k: int) -> str:
        return self.name if self.count == 1 else f"{self.name}-{k + 1:05d}-of-{self.count:05d}"


def load_run(path: Path | str, *, lanes: int | None = None) -> tuple[System, dict[str, np.ndarray]]:
    """The system and the recorded arrays of a run of `jaxdyn rollout`, from its directory alone.

    All arrays but `time` have the lanes first. A run in float64 needs double precision in JAX (`jax.enable_x64`).

    Args:
        lanes: read only as many lanes, the first ones; of a run in chunks the rest is not touched.

    Raises:
        ConfigError: its mechanism.json and mechanism.npz are missing or damaged.
        RunError: its states.npz is missing or damaged.
    """
    directory = RunDirectory(Path(path))
    system = load_archive(directory.path(MECHANISM))
    chunks = Chunks.found(directory, "states")
    parts, count = [], 0
    try:
        while len(parts) < chunks.count and (lanes is None or count < lanes):
            parts.append(chunks.read(len(parts)))
            count += len(parts[-1]["q"])
        shared = {"time": parts[0]["time"]} if "time" in parts[0] else {}
        by_lane = [key for key in parts[0] if key not in shared]
        return system, shared | {key: np.concatenate([part[key] for part in parts])[:lanes] for key in by_lane}
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: the states do not fit together ({error}); give a complete run") from None


def environment() -> dict[str, Any]:
    """What a run ran on: versions, device, precision, and the commit of the checkout if jaxdyn runs from one."""
    device = jax.devices()[0]
    return {
        "jaxdyn": _version(),
        "commit": _commit(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "equinox": eqx.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.device_kind,
        "device_platform": device.platform,
        "device_count": jax.device_count(),
        "x64": bool(jax.config.read("jax_enable_x64")),
        "dtype": str(jnp.zeros(()).dtype),
    }


def _version() -> str | None:
    try:
        return importlib.metadata.version("jaxdyn")
    except importlib.metadata.PackageNotFoundError:  # imported from a checkout that is not installed
        return None


def _commit() -> str | None:
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():  # else an installed package would report the repository it happens to lie in
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


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
