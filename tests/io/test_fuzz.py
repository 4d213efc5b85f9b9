"""Every reader of files against strangers: a damaged file is read or refused in one line, soon and in little memory."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

MOST_SECONDS = 10.0  # of processor time for one file; nearly all take milliseconds
LONGEST_SILENCE = 300.0  # seconds, until a file counts as one that is never answered
FUZZING = Path(__file__).parents[1] / "fuzzing.py"


def outcomes(folder: Path, seed: int, count: int) -> tuple[int, int, list[str]]:
    """How many damaged files were answered, how many of them read, and what was wrong; such files are kept in the folder."""
    (folder / "wrong").mkdir()
    # A process of its own, without the type checks of the tests: what it meets is what a user meets.
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(FUZZING), str(folder), str(seed), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_ARENA_MAX": "2"},
        )
    answered, read, problems = 0, 0, []
    current: dict = {}

    def keep(file: dict, what: str) -> None:
        kept = folder / "wrong" / f"{file['file']}-{Path(file['path']).name}"
        shutil.copy(file["path"], kept)
        problems.append(f"{kept} ({file['format']}): {what}")

    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        while True:
            timer = threading.Timer(LONGEST_SILENCE, process.kill)
            timer.start()
            line = process.stdout.readline()
            timer.cancel()
            if not line:
                break
            said = json.loads(line)
            if "file" in said:
                current = said
                continue
            answered += 1
            read += said["read"]
            if said["wrong"] is not None:
                keep(current, said["wrong"])
            elif said["seconds"] > MOST_SECONDS:
                keep(current, f"took {said['seconds']:.1f} s")
            current = {}
            process.stdin.write("\n")
            process.stdin.flush()
    if current:
        keep(current, f"ended the process ({process.returncode}): {(folder / 'stderr').read_text()[-500:]}")
    elif process.returncode:
        problems.append((folder / "stderr").read_text()[-2000:])
    return answered, read, problems


def test_damaged_files_of_every_format_are_read_or_refused_in_one_line(tmp_path, exhaustive):
    count = 14_400 if exhaustive else 270
    answered, read, problems = outcomes(tmp_path, seed=0, count=count)
    assert not problems, "\n".join(problems)
    assert answered == count
    assert 0.05 * count < read < 0.95 * count  # neither all too broken to come far nor all sound
