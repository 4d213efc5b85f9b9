"""Scripts in processes forked from one that has imported jaxdyn, JAX and the other packages.

The import of these packages takes about two seconds, and a forked process does not repeat it. Nothing is computed before the fork,
so a script begins as in a new process, with its own settings of JAX; `test_imports` shows that importing jaxdyn sets nothing.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from deep_calls import with_room

_PACKAGES = (
    "jax.numpy",
    "equinox",
    "optax",
    "jaxtyping",
    "llvmlite.binding",
    "scipy.optimize",
    "matplotlib.pyplot",
    "jaxdyn",
)
_LONGEST = 900  # seconds, until a script that does not end is killed


class Forks:
    """The process that is forked, with an environment that all scripts get."""

    def __init__(self, environment: Mapping[str, str]):
        self._environment = dict(environment)
        self._process = None
        if hasattr(os, "fork"):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = subprocess.Popen([sys.executable, __file__], env=environment, text=True, **pipes)

    def run(self, script: Path, *arguments: str | Path, folder: Path) -> subprocess.CompletedProcess:
        """Run a script with arguments in a folder; its exit status and what it wrote to its two outputs."""
        command = [str(script), *map(str, arguments)]
        if self._process is None:
            return subprocess.run(
                [sys.executable, *command], cwd=folder, env=self._environment, capture_output=True, text=True
            )
        with tempfile.TemporaryDirectory() as outputs:
            names = [str(Path(outputs, name)) for name in ("out", "err")]
            print(json.dumps([str(folder), command, names]), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
            assert answer, "the process that is forked has ended"
            out, err = (Path(name).read_text() for name in names)
        return subprocess.CompletedProcess(command, int(answer), out, err)

    def close(self) -> None:
        if self._process is not None:
            with self._process:
                self._process.stdin.close()


@contextlib.contextmanager
def forks(**more: str) -> Iterator[Forks]:
    """Forks with the environment of this process and more variables."""
    found = Forks(os.environ | more)
    try:
        yield found
    finally:
        found.close()


def _serve() -> None:
    *_, jaxdyn = map(importlib.import_module, _PACKAGES)
    for name in dir(jaxdyn):
        package = getattr(jaxdyn, name)
        for inner in dir(package) if isinstance(package, ModuleType) and name != "view" else ():
            getattr(package, inner)  # imports its module
    # A script neither copies nor searches what it has been given, least of all at its end, where that took 0.4 s. And it looks for
    # cycles as seldom as `conftest`.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    for line in sys.stdin:
        folder, command, outputs = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(folder, command, outputs)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


@with_room
def _become(folder: str, command: list[str], outputs: list[str]) -> None:
    """Run a script as the interpreter would, up to the end of this process."""
    os.chdir(folder)
    for place, name in enumerate((os.devnull, *outputs)):
        opened = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, place)
        os.close(opened)
    sys.stdin = io.StringIO()  # without the requests that the parent has read ahead
    signal.alarm(_LONGEST)
    sys.argv, sys.path[0] = command, os.path.dirname(command[0])
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    _serve()
