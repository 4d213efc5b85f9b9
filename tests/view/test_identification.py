"""Figures of identification: each channel has its own unit."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from jaxdyn.view.identification import growing_errors, predictions


def test_every_channel_has_its_unit():
    time, curves = np.linspace(0.0, 1.0, 5), np.zeros((5, 2))
    names, units = ["track", "pole"], ["m", "rad"]
    figure = predictions(names, time, curves, curves + 0.1, units=units)
    upper = {axis.get_title(): axis.get_ylabel() for axis in figure.axes if axis.get_title()}
    assert upper == {"track": "m", "pole": "rad"}
    figure = growing_errors(names, time, np.full((3, 5, 2), 0.1), units=units)
    assert [axis.get_title() for axis in figure.axes] == ["track (m)", "pole (rad)"]
