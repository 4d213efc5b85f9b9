"""A process that works for hours needs no more memory than one that works for minutes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# An hour: JAXDYN_SOAK_SECONDS=3600 pytest --exhaustive tests/test_soak.py
SECONDS = float(os.environ.get("JAXDYN_SOAK_SECONDS", "240"))


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory of a process on Linux only")
def test_memory_levels_off_under_mixed_work():
    script = Path(__file__).parent / "soaking.py"
    run = subprocess.run([sys.executable, str(script), str(SECONDS)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    _, rounds, kilobytes, maps = np.array([line.split() for line in run.stdout.splitlines()], float).T
    assert len(rounds) >= 20, "too slow a machine: set JAXDYN_SOAK_SECONDS"
    # Caches of bounded length fill at first. Then a round may add what XLA itself keeps of each executable, which is little.
    half = len(rounds) // 2
    growth = np.polyfit(rounds[half:], kilobytes[half:], 1)[0]
    assert growth < 2000, f"{growth:.0f} kB per round\n{run.stdout}"
    assert maps[-1] < 1.3 * maps[half]
