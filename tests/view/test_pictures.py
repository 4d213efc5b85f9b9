"""Pictures of a mechanism, labeled and legible, and its tree as text."""

import jax
import numpy as np
import pytest
from legible import assert_legible
from mixed_mechanisms import every_joint

import jaxdyn
from jaxdyn.view.pictures import mechanism_picture
from jaxdyn.view.tree import tree_text


def test_tree_text_is_a_neat_tree():
    assert tree_text(every_joint()).splitlines()[:5] == [
        "ground           joint         kind         mass",
        "├─ body 0        body 0_joint  free         1.708 kg",
        "│  ├─ body 1     body 1_joint  spherical    1.808 kg",
        "│  │  └─ body 2  body 2_joint  universal    1.334 kg",
        "│  └─ body 3     body 3_joint  cylindrical  1.219 kg",
    ]


@pytest.mark.parametrize("make", [every_joint, jaxdyn.library.double_pendulum])
def test_mechanism_picture_has_equal_scales_labels_and_everything_inside(make):
    model = make()
    q = np.asarray(jaxdyn.configuration.random(model, jax.random.key(1), spread=0.5))
    figure = mechanism_picture(model, q)
    (axes,) = figure.axes
    assert [axes.get_xlabel(), axes.get_ylabel(), axes.get_zlabel()] == ["x (m)", "y (m)", "z (m)"]
    limits = np.array([axes.get_xlim(), axes.get_ylim(), axes.get_zlim()])
    aspect = np.asarray(axes.get_box_aspect() if axes.get_box_aspect() is not None else axes._box_aspect)
    np.testing.assert_allclose(aspect / aspect[0], np.ptp(limits, axis=1) / np.ptp(limits[0]), rtol=1e-9)
    drawn = np.concatenate([np.stack(line.get_data_3d(), axis=1) for line in axes.lines])
    drawn = drawn[np.isfinite(drawn).all(axis=1)]
    reach = 0.1 * np.ptp(limits, axis=1).max()  # joint axes may stick out a little
    assert np.all(drawn > limits[:, 0] - reach)
    assert np.all(drawn < limits[:, 1] + reach)
    assert len(axes.collections) == np.sum(np.asarray(model.mass) > 0), "one ellipsoid per body with mass"
    assert_legible(figure)
