"""Long runs: killed at any moment, on a full disk, larger than memory; --resume ends where no interruption does."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from small_jobs import ROLLOUT, contents, numbers, write_configs

from jaxdyn.cli import main
from jaxdyn.errors import UnknownName
from jaxdyn.io.runs.directory import Chunks, RunDirectory, RunError
from jaxdyn.io.runs.loaded import load_run
from jaxdyn.io.runs.provenance import provenance

pytestmark = pytest.mark.long

# What each job is killed at: overrides that make it small, and the files that it writes once and never again.
JOBS = {
    "rollout": (
        [
            "batch=20",
            "chunk=2",
            "initial.speed=1",
            "time.duration=600 s",
            "time.save_every=3000",
            "control.random_interval=10",
        ],
        "states-*.npz",
    ),
    "identify": (
        [
            "pictures=false",
            "motion.interval=0.4",
            "fit.rounds=1",
            "fit.max_steps=12",
            'free=[{inertia=["lower"], divergence=0.1}, {path="system.forces.0.viscous", chart="positive"}]',
        ],
        "no file",  # each iteration of a fit replaces the checkpoint
    ),
    "optimize": (["chunk=2", "max_steps=4", "solver={kind='predictive', samples=8, knots=4}"], "solutions-*.npz"),
}
# Processes that compile as `conftest` lets this one compile, so that what they write is the same to the last bit.
ALIKE = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
# Each attempt is a forked process, so that Python and all modules are loaded once, which starts no device. It is killed by a real
# signal at a random moment of the time that a whole run takes, or soon after it has written one of its files.
KILLER = """
import contextlib, importlib, json, os, pkgutil, random, signal, sys, time
from pathlib import Path
import jaxdyn.identify, jaxdyn.io, jaxdyn.jobs, jaxdyn.simulate, jaxdyn.control
from jaxdyn.cli import main
from jaxdyn.io.files import has_seal

for package in (jaxdyn.identify, jaxdyn.io, jaxdyn.jobs, jaxdyn.simulate, jaxdyn.control):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
folder, verb, lasting, kills, overrides = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:]

def attempt(out, seconds, files=0):
    command = [verb, str(folder / f"{verb}.toml"), "--out", str(folder / out), "--resume", *overrides]
    before = stamps(out)
    child = os.fork()
    if child == 0:
        with open(folder / "said.txt", "a") as said, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(command)
        os._exit(code)
    written, end = set(), None
    while end is None or time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            # A fit of few steps ends with 3.
            assert os.waitstatus_to_exitcode(status) in (0, 3), (folder / "said.txt").read_text()[-3000:]
            return False
        written |= stamps(out) - before
        if end is None and len(written) >= files:
            end = time.monotonic() + seconds
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

def stamps(out):
    with contextlib.suppress(FileNotFoundError):  # replaced while it was looked at
        return {(path.name, path.stat().st_mtime_ns) for path in (folder / out).glob("*.npz") if path.name != "mechanism.npz"}
    return set()

def left(out):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (folder / out).glob(lasting)}

start = time.monotonic()
assert not attempt("whole", 600)
seconds = time.monotonic() - start
whole, record, runs = left("whole"), [], 0
draw = random.Random(0)
while len(record) < kills:
    out = f"run{runs}"
    files = draw.randrange(1, 5) if len(record) % 2 else 0
    before, when = left(out), draw.uniform(0, 0.1 * seconds if files else seconds)
    start = time.monotonic()
    killed = attempt(out, when, files)
    if not killed:  # it found the programs of the first one, so it took less time; more like it would only take time
        seconds = min(seconds, time.monotonic() - start)
    after = left(out)
    assert all(after[name] == file for name, file in before.items()), "a chunk that is there is never made again"
    assert all(file[1] == whole[name][1] for name, file in after.items()), "a chunk that is there is whole"
    if killed:
        record.append({"run": runs, "files": files, "seconds": when, "before": len(before), "after": len(after)})
    runs += not killed
# What the last kill left is damaged besides.
spoiled = [path for path in (folder / f"run{runs}").glob("*.npz") if has_seal(path)]
assert spoiled
for path in spoiled:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
assert not attempt(f"run{runs}", 600)
said = (folder / "said.txt").read_text()
read_back = [path for path in spoiled if "-of-" in path.name or "checkpoint" in path.name]  # others are written again
assert all(f"note: {path} is damaged or belongs to another run" in said for path in read_back), said
print(json.dumps({"seconds": seconds, "record": record, "runs": runs + 1}))
"""


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="signals and forks")
@pytest.mark.parametrize(
    "verb", [verb if verb == "rollout" else pytest.param(verb, marks=pytest.mark.exhaustive) for verb in JOBS]
)
def test_a_run_killed_at_random_ends_as_if_nothing_had_been(verb, tmp_path, exhaustive):
    write_configs(tmp_path)
    overrides, lasting = JOBS[verb]
    kills = 30 if exhaustive else 2  # one at a random moment, one soon after a file is written
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path), verb, lasting, str(kills), *overrides],
        env=ALIKE,
        capture_output=True,
        text=True,
        timeout=3600 if exhaustive else 1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    print(done.stdout)
    assert len(report["record"]) == kills
    if exhaustive and verb != "identify":
        assert any(kill["before"] for kill in report["record"]), "some attempts find chunks of the one before"
        assert any(0 < kill["after"] < 10 for kill in report["record"]), "some are killed amid the chunks"
    for k in range(report["runs"]):
        assert contents(tmp_path / f"run{k}") == contents(tmp_path / "whole")
        assert numbers(tmp_path / f"run{k}") == numbers(tmp_path / "whole")


@pytest.fixture
def config(tmp_path) -> str:
    (tmp_path / "rollout.toml").write_text(ROLLOUT)
    return str(tmp_path / "rollout.toml")


def test_a_full_disk_is_one_line_leaves_nothing_half_written_and_the_run_goes_on(config, tmp_path):
    command = ["rollout", config, "chunk=40", "batch=120", "time.save_every=1", "--out"]
    little_room = (  # larger files cannot be written, as on a full disk
        "import resource, sys; from jaxdyn.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)); sys.exit(main(sys.argv[1:]))"
    )
    # Without -B, Python would leave the first part of its own files of bytecode, which no later process could import.
    full = [sys.executable, "-B", "-c", little_room, *command, str(tmp_path / "run")]
    done = subprocess.run(full, env=ALIKE, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("jaxdyn: ")
    assert "states-00001-of-00003.npz: cannot be written (File too large); free disk space" in line
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.toml",
        "provenance.json",
        "mechanism.json",
        "mechanism.npz",
    }
    assert main([*command, str(tmp_path / "run"), "--resume"]) == 0
    assert main([*command, str(tmp_path / "whole")]) == 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_resume_begins_a_run_leaves_a_complete_one_and_refuses_another(config, tmp_path, capsys):
    command = ["rollout", config, "--out", str(tmp_path / "run"), "--resume"]
    assert main(command) == 0
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    assert main(command) == 0
    assert "the run is already complete" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before
    assert main([*command, "batch=4"]) == 2
    said = capsys.readouterr().err
    assert "the run had another config (- batch = 3; + batch = 4); give the same one, or choose another" in said
    assert main(["rollout", config, "--resume"]) == 2
    assert "--resume requires --out DIR" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "note.txt").write_text("mine")
    assert main(["rollout", config, "--out", str(tmp_path / "other"), "--resume"]) == 2
    assert "there is no config.toml, so there is no run to resume" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["note.txt"]


def test_chunks_do_not_change_a_bit_and_are_read_as_one(config, tmp_path, monkeypatch):
    overrides = ["batch=7", "initial.speed=1", "control.random_torque=0.3"]
    for name, chunk in (("whole", 7), ("parts", 3)):
        assert main(["rollout", config, *overrides, f"chunk={chunk}", "--out", str(tmp_path / name)]) == 0
    whole, parts = (load_run(tmp_path / name).arrays for name in ("whole", "parts"))
    first = load_run(tmp_path / "parts", samples=4).arrays
    assert (tmp_path / "whole" / "states.npz").exists()
    assert len(list((tmp_path / "parts").glob("states-*-of-00003.npz"))) == 3
    assert whole.keys() == parts.keys()
    for key, array in whole.items():
        np.testing.assert_array_equal(parts[key], array)
        np.testing.assert_array_equal(first[key], array if key == "time" else array[:4])
    for chosen in (slice(5, None), slice(2, 7, 2), slice(-2, 0, -1), slice(3, 3)):
        found = load_run(tmp_path / "parts", samples=chosen, arrays=["time", "energy"]).arrays
        assert list(found) == ["time", "energy"]
        np.testing.assert_array_equal(found["energy"], whole["energy"][chosen])
    with pytest.raises(UnknownName, match="did you mean 'energy'"):
        load_run(tmp_path / "parts", arrays=["enrgy"])
    with monkeypatch.context() as only:
        only.setattr(Chunks, "check", lambda self, k: k == 2 or pytest.fail("it reads other chunks"))
        assert len(load_run(tmp_path / "parts", samples=slice(6, None)).arrays["q"]) == 1
    (tmp_path / "parts" / "states-00002-of-00003.npz").unlink()
    with pytest.raises(
        RunError, match="1 of 3 chunks of states are missing, the run was interrupted; finish it with --resume"
    ):
        load_run(tmp_path / "parts")


@pytest.mark.thorough
def test_a_batch_larger_than_the_memory_goes_through_it(config, tmp_path):
    """100 MB of results with a budget of 10 MB, measured as the peak of the process beyond that of one small chunk."""
    peaks = {}
    for name, batch in (("small", 200), ("large", 4000)):
        program = (
            "import resource, sys; from jaxdyn.cli import main\n"
            f"code = main(['rollout', {config!r}, 'batch={batch}', 'time.save_every=1', 'time.duration=500 ms', 'memory=10 MB',\n"
            f"             'chunk=200', '--out', {str(tmp_path / name)!r}])\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(code)"
        )
        done = subprocess.run([sys.executable, "-c", program], env=ALIKE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        peaks[name] = int(done.stdout.splitlines()[-1]) * 1024
    written = sum(path.stat().st_size for path in (tmp_path / "large").glob("states-*.npz"))
    assert written > 90e6
    assert peaks["large"] - peaks["small"] < 20e6


def test_too_little_memory_for_one_sample_is_one_line(config, tmp_path, capsys):
    assert main(["rollout", config, "memory=1 kB", "--out", str(tmp_path / "run")]) == 2
    assert "memory = 1e+03 B is not enough" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_complete_run_has_no_leftovers_of_files_that_were_being_written(tmp_path):
    started_with = provenance("a = 1\n", [])
    run = RunDirectory.create(tmp_path / "run", "test")
    run.begin("a = 1\n", started_with)
    for name in ("states.npz.0123abcd.part", "motion.gif.89abcdef.part.gif", "provenance.json.00000000.part"):
        (run.root / name).write_text("half")
    (run.root / "mine.part").write_text("not of a run")
    run.resume("a = 1\n", started_with)
    assert (run.root / "states.npz.0123abcd.part").exists(), "another process may be writing it"
    run.write_metrics({})
    left = {path.name for path in run.root.iterdir()}
    assert left == {"config.toml", "provenance.json", "metrics.json", "mine.part"}
