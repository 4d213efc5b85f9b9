"""Ctrl-C and SIGTERM end a command within a second, with one line and exit status 130 or 143, wherever they meet it."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from small_jobs import contents, numbers, write_configs, write_plants

from jaxdyn.jobs import interrupts

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
LONGEST = 1.0  # s
# Lines that a command writes to standard error besides: progress bars and compilations.
BESIDES = re.compile(r".*\[\d\d:\d\d|compil")
COMMAND = """
import os, sys
from jaxdyn.cli import main
os.write({begun}, b"x")
sys.exit(main())
"""
# What a signal meets. `KeyboardInterrupt` alone would not always end the process at once, with one line.
MET = {
    "a loop of Python": "while True: sum(range(1000))",
    "a call that returns after minutes": "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)",
    "a callback of the collector": "gc.callbacks.append(lambda *_: time.sleep(0.05))\nwhile True: gc.collect()",
    "a destructor": "Slow = type('Slow', (), {'__del__': lambda _: time.sleep(0.05)})\nwhile True: Slow()",
    "code that goes on": "while True:\n with contextlib.suppress(BaseException): time.sleep(1)",
    "an error that follows": "try: time.sleep(60)\nexcept BaseException: raise ImportError('cannot import name') from None",
    "a file that is being written": (
        "def fill(file): print(file.name, flush=True); time.sleep(60)\n"
        "files.write_files({pathlib.Path(sys.argv[2], 'file'): fill})"
    ),
    "a chunk that is claimed": "with claims.claimed(pathlib.Path(sys.argv[2]) / 'x.claim'): time.sleep(60)",
    "output that nobody reads": "while True: print('x' * 10**6)",
    "a cleaning up that takes long": "try: time.sleep(60)\nfinally: time.sleep(60)",
    "a child process": "subprocess.run(['sleep', '60'])",
}
ACT = """
import contextlib, gc, hashlib, os, pathlib, subprocess, sys, time
from jaxdyn.io import files
from jaxdyn.io.runs import claims
from jaxdyn.jobs.interrupts import own_process
from jaxdyn.jobs.running import exit_status

def act():
    os.write({begun}, b"x")
    exec(sys.argv[1], globals())

own_process(lambda: exit_status(act, interrupted="interrupted; go on"))
"""


# The tests themselves may run in the background of a shell, which ignores SIGINT.
AS_AT_A_TERMINAL = "import signal\nfor _number in (2, 15): signal.signal(_number, signal.SIG_DFL)\n"


def ended(
    source: str, arguments: Sequence[str], signals: Mapping[float, signal.Signals], folder: Path
) -> tuple[int | None, float, str, str]:
    """A process that gets signals, each some seconds after it has begun.

    Returns:
        Its exit status (None if it had ended before), the time from the first signal to its end, s, and its two outputs.
    """
    reading, writing = os.pipe()
    command = [sys.executable, "-c", AS_AT_A_TERMINAL + source.replace("{begun}", str(writing)), *arguments]
    with (folder / "err.txt").open("w+") as err:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=err, pass_fds=(writing,), start_new_session=True, text=True
        )
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        begun, sent = time.monotonic(), []
        for after, number in signals.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, begun + after - time.monotonic()))
            if process.returncode is None:
                sent.append(time.monotonic())
                process.send_signal(number)
        status = process.wait(600)
        seconds = time.monotonic() - (sent or [begun])[0]
        printed, _ = process.communicate(timeout=5)  # a child that is left keeps this file open
    return status if sent else None, seconds, printed, (folder / "err.txt").read_text()


@pytest.mark.parametrize("met", MET)
@pytest.mark.parametrize("number", STATUS)
def test_a_signal_ends_a_process_within_a_second_with_one_line(met, number, tmp_path):
    signals = {0.1: number, 0.15: number, 0.2: signal.SIGINT}  # impatient people press Ctrl-C again
    (tmp_path / "run").mkdir()
    status, seconds, _, said = ended(ACT, [MET[met], str(tmp_path / "run")], signals, tmp_path)
    assert (status, said) == (STATUS[number], "jaxdyn: interrupted; go on\n")
    assert seconds < LONGEST
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("ignored", ["SIGINT", "SIGTERM"])
def test_a_signal_that_is_ignored_from_the_beginning_stays_ignored(ignored, tmp_path):
    """As `nohup` and the background of a shell have it."""
    source = f"import signal; signal.signal(signal.{ignored}, signal.SIG_IGN)\n{ACT}"
    status, *_, said = ended(source, ["time.sleep(1)"], {0.1: signal.Signals[ignored]}, tmp_path)
    assert (status, said) == (0, "")


def test_a_signal_to_a_forked_process_does_not_end_its_parent(tmp_path):
    code = "child = os.fork()\nif not child: time.sleep(60)\nos.kill(child, 15); print(os.waitpid(child, 0)[1]); time.sleep(1)"
    _, _, printed, said = ended(ACT, [code], {}, tmp_path)
    assert (printed, said) == ("15\n", "")


def test_a_signal_that_follows_at_once_on_another_is_not_lost(monkeypatch):
    signals, wakeup = os.pipe()
    os.write(wakeup, bytes([signal.SIGINT, signal.SIGTERM]))
    os.close(wakeup)
    command = interrupts._Command()
    command.handled = [signal.SIGTERM]  # the other one is ignored, as by nohup
    monkeypatch.setattr(interrupts, "_end_children", lambda: None)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ending:
        command.watch(signals)
    assert ending.value.code == STATUS[signal.SIGTERM]


# Overrides that make a job small, and its inputs.
JOBS = {
    "rollout": ["rollout.toml", "batch=20", "chunk=2", "initial.speed=1", "time.duration=20 s", "time.save_every=1000"],
    "identify": ["identify.toml", "pictures=false", "fit.max_steps=12"],
    "optimize": ["optimize.toml", "chunk=2", "max_steps=4"],
    "evaluate": ["one", "data=../new"],
}


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.parametrize(
    "verb", [verb if verb == "rollout" else pytest.param(verb, marks=pytest.mark.exhaustive) for verb in JOBS]
)
def test_a_command_interrupted_at_random_ends_within_a_second_and_goes_on_to_the_same_bits(verb, tmp_path, exhaustive):
    """The interrupts are drawn over the whole life of a command: imports, compilation, computation, pictures and its end."""
    write_configs(tmp_path)
    write_plants(tmp_path)
    (tmp_path / "said").mkdir()

    def attempt(out: str, signals: Mapping[float, signal.Signals]) -> tuple[int | None, float, str, str]:
        first, *more = JOBS[verb]
        arguments = [verb, str(tmp_path / first), *more, "--out", str(tmp_path / out), "--resume"]
        return ended(COMMAND, arguments, signals, tmp_path / "said")

    _, whole, _, said = attempt("whole", {})
    assert (tmp_path / "whole" / "metrics.json").exists(), said
    draw, run, times = random.Random(0), 0, []
    while len(times) < (30 if exhaustive else 3):
        number, after = draw.choice(list(STATUS)), draw.uniform(0.01, whole)
        status, seconds, printed, said = attempt(f"run{run}", {after: number})
        if (
            status is None or "Results are in" in printed or "already complete" in printed
        ):  # the signal met its end or none
            assert status in (None, 0, -number)
            whole, run = min(whole, seconds) if status is None else whole, run + 1
            continue
        lines = [line for line in said.replace("\r", "\n").splitlines() if line and not BESIDES.match(line)]
        remedy = "; repeat the command with --resume to continue"
        assert lines in (["jaxdyn: interrupted"], [f"jaxdyn: interrupted{remedy}"]), said
        assert status == STATUS[number]
        times.append(seconds)
    print(verb, f"{len(times)} interrupts, the longest {max(times):.2f} s, {run} runs to the end")
    assert max(times) < LONGEST
    attempt(f"run{run}", {})
    for k in range(run + 1):
        assert contents(tmp_path / f"run{k}") == contents(tmp_path / "whole")
        assert numbers(tmp_path / f"run{k}") == numbers(tmp_path / "whole")
