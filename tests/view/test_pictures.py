"""Pictures of a mechanism and of its tree: everything there, labeled, legible."""

import jax
import numpy as np
import pytest
from legible import assert_legible
from mixed_mechanisms import every_joint
from random_trees import random_model

import jaxdyn
from jaxdyn.view.diagram import tree_diagram
from jaxdyn.view.pictures import mechanism_picture
from jaxdyn.view.tree import tree_text

PANDA = jaxdyn.library.panda


def thirty() -> jaxdyn.Model:
    return random_model(np.random.default_rng(3), 30, kinds="RRRRPRRSRCRURRR")


def texts_of(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("make", [PANDA, every_joint, thirty, jaxdyn.library.double_pendulum])
def test_tree_diagram_names_every_body_and_joint_and_can_be_read(make):
    model = make()
    figure = tree_diagram(model)
    shown = "\n".join(texts_of(figure)).split("\n")
    for name in (*model.topology.body_names, *model.topology.joint_names):
        assert name in shown
    assert f"{float(model.mass[0]):.3g} kg" in shown
    assert_legible(figure)
    assert max(figure.get_size_inches()) < 25


def test_tree_diagram_draws_children_below_or_beside_their_parents():
    chain = {text.get_text().split("\n")[0]: text.get_position() for text in tree_diagram(PANDA()).axes[0].texts}
    assert chain["link1"][1] > chain["link7"][1], "a chain runs downwards"
    bushy = {text.get_text().split("\n")[0]: text.get_position() for text in tree_diagram(thirty()).axes[0].texts}
    topology = thirty().topology
    names = ["ground", *topology.body_names]
    steps = np.array([np.subtract(bushy[names[i + 1]], bushy[names[p + 1]]) for i, p in enumerate(topology.parents)])
    assert np.all(steps[:, 0] > 0) or np.all(steps[:, 1] < 0)


def test_long_names_are_cut_in_the_picture_and_whole_in_the_text():
    builder = jaxdyn.MechanismBuilder("long")
    name = "a_body_with_a_name_that_is_much_too_long_for_a_box"
    builder.add_body(name, joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1))
    figure = tree_diagram(builder.build())
    assert_legible(figure)
    assert not any(name in text for text in texts_of(figure))
    assert name in tree_text(builder.build())


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
