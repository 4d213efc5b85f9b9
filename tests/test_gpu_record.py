"""The record of the last run on a GPU is of the lane compiler as it is now."""

import json
from pathlib import Path

import pytest

from jaxdyn.cache.fingerprint import sources_digest

RECORD = Path(__file__).parents[1] / "experiments" / "tables" / "gpu.json"


def test_the_record_of_a_gpu_is_of_this_lane_compiler():
    if not RECORD.exists():
        pytest.skip("there is no record of a run on a GPU")
    recorded = json.loads(RECORD.read_text())
    if recorded["environment"]["lane_compiler"] != sources_digest("lanes"):
        pytest.skip(
            "the lane compiler has changed since it was last run on a GPU; on a machine with one, "
            "run `python experiments/gpu.py --out runs/gpu` and copy runs/gpu/gpu.json to experiments/tables/"
        )
    assert recorded["canary"] == "passed"
    assert all(row["difference"] <= row["allowed"] for row in recorded["differences"])
