"""Independent processes share a run: each claims chunks, claims of ended processes end, and the results have the same bits."""

import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from small_jobs import contents, numbers, write_configs

from jaxdyn.cli import main
from jaxdyn.io.runs import claims
from jaxdyn.io.runs import directory as runs
from jaxdyn.io.runs.directory import Chunks, RunDirectory
from jaxdyn.io.runs.provenance import provenance

COUNT = 6


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time of the file system, which passes only while a process waits."""
    now = [time.time()]
    monkeypatch.setattr(claims, "_now", lambda folder: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(runs.time, "sleep", wait)
    return now


def left(claim: Path, at: float) -> None:
    """Leave a claim as a process of another machine that was killed at some time."""
    claim.write_text("process 7 on node8, since yesterday\n7 node8 pid:[1]\n")
    os.utime(claim, (at, at))


def started(out: Path) -> Chunks:
    """A run that has begun, as a further process sees it."""
    run = RunDirectory(out)
    run.resume("seed = 1\n", provenance("seed = 1\n", []))
    return Chunks(run, "states", COUNT)


def chunk(k: int) -> dict[str, np.ndarray]:
    return {"q": np.full(3, float(k))}


def complete(files: Chunks, compute=chunk) -> bool:
    completes = files.fill(compute)
    if completes:
        files.directory.write_metrics({"arrays": files.directory.sealed_names(archives=False)})
    files.directory.held.close()
    return completes


def test_a_claim_has_one_holder_and_ends_with_it_or_a_minute_after_its_last_renewal(tmp_path, clock, monkeypatch):
    path = tmp_path / "a.claim"
    monkeypatch.setattr(claims, "_RENEWED", 0.01)
    with claims.claimed(path) as first, claims.claimed(path) as second:
        assert first is None
        assert second is not None
        assert second.startswith(f"process {os.getpid()} on ")
        os.utime(path, (0.0, 0.0))
        end = time.monotonic() + 30
        while path.stat().st_mtime == 0.0:
            assert time.monotonic() < end, "the holder renews its claim"
    assert not path.exists()
    left(path, clock[0])
    for later, holder in ((59.0, "process 7 on node8, since yesterday"), (2.0, None)):
        clock[0] += later
        with claims.claimed(path) as found:
            assert found == holder


def test_the_chunk_of_a_killed_process_returns_and_its_leftovers_are_removed(tmp_path, clock):
    run, made = tmp_path / "run", []
    files = started(run)
    left(run / "states-00002-of-00006.claim", clock[0] - 61)
    left(run / "states-00003-of-00006.claim", clock[0])
    (run / "states-00003-of-00006.npz.0123abcd.part").write_text("half")
    begun = clock[0]
    assert complete(files, lambda k: made.append(k) or chunk(k))
    assert made == [0, 3, 4, 5, 1, 2], "claimed chunks come last"
    assert claims.LASTING < clock[0] - begun < claims.LASTING + 2
    names = {
        *("config.toml", "provenance.json", "metrics.json"),
        *(f"states-{k:05d}-of-00006.npz" for k in range(1, 7)),
    }
    assert {path.name for path in run.iterdir()} == names


def test_workers_that_end_at_once_compute_each_chunk_once_and_one_completes_the_run(tmp_path, monkeypatch):
    ends, made = threading.Barrier(COUNT), []

    def compute(k: int) -> dict[str, np.ndarray]:
        made.append(k)
        ends.wait(30)  # each worker has a chunk, and all of them end together
        return chunk(k)

    workers = [started(tmp_path / "run") for _ in range(COUNT)]
    with concurrent.futures.ThreadPoolExecutor(COUNT) as pool:
        completed = list(pool.map(complete, workers, [compute] * COUNT))
    assert sorted(made) == list(range(COUNT))
    assert sorted(completed) == [False] * (COUNT - 1) + [True]
    assert not complete(started(tmp_path / "run"), compute), "a late worker has nothing to do"


def test_a_run_is_not_completed_twice_if_another_process_has_just_done_it(tmp_path, monkeypatch):
    first, second = started(tmp_path / "run"), started(tmp_path / "run")
    real = RunDirectory.claim

    def late(directory: RunDirectory) -> str | None:
        monkeypatch.setattr(RunDirectory, "claim", real)
        assert complete(first)
        return real(directory)

    monkeypatch.setattr(RunDirectory, "claim", late)
    assert not complete(second)


def test_devices_memory_and_pictures_of_a_run_may_change_and_parts_of_a_chunk_have_the_same_bits(tmp_path):
    write_configs(tmp_path)
    run = tmp_path / "run"
    command = [
        "rollout",
        str(tmp_path / "rollout.toml"),
        "batch=7",
        "chunk=4",
        "initial.speed=1",
        "--resume",
        "--out",
        str(run),
    ]
    assert main(command) == 0
    before = {
        name: content for name, content in contents(run).items() if name != "config.toml"
    }  # states the new pictures
    (run / "states-00002-of-00002.npz").unlink()
    assert main([*command, "devices=one", "memory=9 kB", "pictures=true"]) == 0
    assert {name: content for name, content in contents(run).items() if name in before} == before
    assert main([*command, "limits=enforced"]) == 2


# Workers are forked processes, so that all modules are loaded once. Each of them is slowed down as by a network file system, whose
# listings are also a second old; some are killed while they compute, and others join.
WORKERS = """
import contextlib, json, os, pathlib, random, signal, sys, time
import jaxdyn.jobs.carry_out, jaxdyn.jobs.rollout.work
from jaxdyn.cli import main

out, (count, kills, latency, command) = sys.argv[1], json.loads(sys.argv[2])
random.seed(0)

def slowed(real):
    def call(*arguments, **options):
        time.sleep(random.uniform(0, latency))
        return real(*arguments, **options)
    return call

def worker():
    if child := os.fork():
        return child
    if latency:
        listings, iterdir = {}, pathlib.Path.iterdir
        def old(path):
            if time.monotonic() > listings.get(path, (0, 0))[0] + 1:
                listings[path] = time.monotonic(), list(iterdir(path))
            return iter(listings[path][1])
        pathlib.Path.iterdir = old
        for owner, name in ((os, "replace"), (os, "utime"), (pathlib.Path, "open"), (pathlib.Path, "unlink")):
            setattr(owner, name, slowed(getattr(owner, name)))
    with open(out + ".txt", "a") as said, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([*command, "--resume", "--out", out])
    os._exit(code)

def holder():
    for claim in random.sample(claims := list(pathlib.Path(out).glob("states-*.claim")), len(claims)):
        with contextlib.suppress(OSError, IndexError):
            return int(claim.read_text().split()[-3])

running, codes, end = [worker() for _ in range(count)], [], 0
while running:
    time.sleep(0.02)
    ended, status = os.waitpid(-1, os.WNOHANG)
    if ended:
        running.remove(ended)
        codes.append(os.waitstatus_to_exitcode(status))
        if codes[-1] < 0 and latency:
            running.append(worker())
    elif kills and time.monotonic() > end and (victim := holder()) in running:
        os.kill(victim, signal.SIGKILL)
        kills, end = kills - 1, time.monotonic() + random.uniform(0, 100 * latency)
print(json.dumps(codes))
"""


def work_together(folder: Path, count: int, kills: int, latency: float, *long: str) -> list[int]:
    """The exit statuses of the processes, of which each computes chunks of two long motions."""
    write_configs(folder)
    long = ("chunk=2", "initial.speed=1", "time.save_every=1000", "control.random_interval=1", *long)
    command = ["rollout", str(folder / "rollout.toml"), *long]
    done = subprocess.run(
        [sys.executable, "-c", WORKERS, str(folder / "shared"), json.dumps([count, kills, latency, command])],
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert main([*command, "--out", str(folder / "alone")]) == 0
    assert contents(folder / "shared") == contents(folder / "alone")
    assert numbers(folder / "shared") == numbers(folder / "alone")
    said = (folder / "shared.txt").read_text()
    assert said.count("samples: ") == 1, "one process completes the run"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals and forks")
def test_three_processes_of_which_one_is_killed_give_the_bits_of_one(tmp_path):
    codes = work_together(tmp_path, 3, 1, 0.0, "batch=16", "time.duration=20 s")
    assert sorted(codes) == [-9, 0, 0]


@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals and forks")
def test_eight_processes_under_random_kills_and_latency_give_the_bits_of_one(tmp_path):
    codes = work_together(tmp_path, 8, 10, 0.05, "batch=120", "time.duration=100 s")
    assert (codes.count(0), codes.count(-9)) == (8, 10)
