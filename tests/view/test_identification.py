"""Figures of identification: units of channels, and bands of predictions."""

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


def test_predictions_and_their_errors_have_the_band_of_the_prediction():
    time, half_widths = np.linspace(0.0, 1.0, 5), np.linspace(0.1, 0.5, 10).reshape(5, 2)
    predicted = np.stack([np.sin(time), np.cos(time)], axis=1)
    names, units = ["track", "pole"], ["m", "rad"]
    figure = predictions(names, time, predicted + 0.1, predicted, units=units, half_widths=half_widths)
    above, below = figure.axes[:2], figure.axes[2:]
    for k in range(2):
        for axis, middle in ((above[k], predicted[:, k]), (below[k], 0.0)):
            (band,) = axis.collections
            corners = {tuple(corner) for corner in np.round(band.get_paths()[0].vertices, 9)}
            for sign in (-1.0, 1.0):
                assert corners >= {*zip(np.round(time, 9), np.round(middle + sign * half_widths[:, k], 9), strict=True)}
    assert [text.get_text() for text in above[0].get_legend().get_texts()] == [
        "95 % band of this machine",
        "measured",
        "predicted",
    ]
    assert not any(axis.collections for axis in predictions(names, time, predicted, predicted, units=units).axes)
