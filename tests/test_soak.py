"""A process that works for hours needs no more memory than one that works for minutes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# An hour: JAXDYN_SOAK_SECONDS=3600 pytest --exhaustive tests/test_soak.py
SECONDS = float(os.environ.get("JAXDYN_SOAK_SECONDS", "600"))


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc, which only Linux has")
def test_memory_levels_off_under_mixed_work():
    script = Path(__file__).parent / "soaking.py"
    run = subprocess.run([sys.executable, str(script), str(SECONDS)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    _, rounds, kilobytes, maps = np.array([line.split() for line in run.stdout.splitlines()], float).T
    assert len(rounds) >= 160, "this machine is too slow: set JAXDYN_SOAK_SECONDS"
    half = len(rounds) // 2
    # Caches of bounded length may still fill a little; what is never freed would add tens of MB here, and maps.
    assert np.max(kilobytes[half:]) < 1.06 * np.max(kilobytes[:half]), run.stdout
    assert np.max(kilobytes) < 800_000, run.stdout
    assert np.max(maps[half:]) < 1.1 * np.max(maps[:half]), run.stdout
