"""Figures of merit of identified machines: which parts of a recording they look at."""

import dataclasses

import numpy as np
from recorded import STEP, pendulum_plant, simulated
from small_jobs import write_configs

from jaxdyn.identify import checks
from jaxdyn.identify.checks import ValidTimeCheck
from jaxdyn.identify.recording import Part
from jaxdyn.io.config import read_config
from jaxdyn.jobs.identify.config import IdentifyConfig
from jaxdyn.jobs.identify.study import figures


def test_predictions_start_at_the_first_time_and_go_on_by_the_stride(tmp_path, monkeypatch):
    """Where the recording is not spoiled, predictions hold to their ends."""
    monkeypatch.setattr(checks, "smoothed_states", lambda plant, known, sample: checks.polynomial_states(known, sample))
    plant, recording = pendulum_plant(), simulated(pendulum_plant(), 1.2, 0, irregular=False)
    write_configs(tmp_path)
    config = read_config(tmp_path / "identify.toml", IdentifyConfig)
    check = ValidTimeCheck("valid_time", (0.2,), STEP, first=0.3, stride=0.3, count=2, thresholds=(0.05,), samples=9)

    def found(spoiled: slice) -> float:
        q = recording.q.copy()
        q[spoiled] += np.random.default_rng(0).normal(size=q[spoiled].shape)
        part = Part(dataclasses.replace(recording, q=q), 0.0, 1.2)
        own = dataclasses.replace(config, check=(check,))
        return figures(own, plant, [part])["valid time >0.05, polynomial start (9 samples), 25 %"]

    # The predictions use the samples from 0.30 to 0.54 s and from 0.60 to 0.84 s.
    np.testing.assert_allclose(found(slice(0, 30)), 0.2)
    np.testing.assert_allclose(found(slice(85, 121)), 0.2)
    assert found(slice(60, 85)) < 0.15
