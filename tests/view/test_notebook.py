"""Objects in notebooks: tables and pictures, and nothing that could run."""

import base64
import io
import re
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread
from results_of_searches import ended_fit, unfinished_solution

import jaxdyn
from jaxdyn import MechanismBuilder, Revolute, State, System, Trajectory
from jaxdyn.view import thumbnails

MODEL = jaxdyn.library.double_pendulum()


def table(shown: Any) -> dict[str | None, str | None]:
    """The rows of the view of an object, which must be well-formed."""
    root = ElementTree.fromstring(shown._repr_html_())
    return {row[0].text: row[1].text for row in root.iter("tr")}


def picture(shown: Any) -> np.ndarray | None:
    """The pixels of the picture in the view of an object, if there is one."""
    found = re.search(r'src="data:image/png;base64,([^"]*)"', shown._repr_html_())
    return None if found is None else imread(io.BytesIO(base64.b64decode(found[1])))


STATES = State(jnp.ones((3, 2)), jnp.ones((3, 2)))
ZERO = jnp.asarray(0)
MOTION = Trajectory(jnp.arange(3.0), STATES, State(jnp.zeros(2), jnp.zeros(2)), None, ZERO, ZERO + 2, MODEL.topology)


@pytest.mark.parametrize(
    "shown", [MODEL, System(MODEL), MOTION, unfinished_solution()], ids=lambda shown: type(shown).__name__
)
def test_the_view_has_the_rows_of_the_text_and_a_picture(shown):
    rows = table(shown)
    for line in repr(shown).splitlines()[1:]:
        label, text = re.fullmatch(r"  (.+?)  +(.*)", line).groups()
        assert rows[label].startswith(text.removesuffix("..."))
    pixels = picture(shown)
    assert 100 < min(pixels.shape[:2]) <= max(pixels.shape[:2]) < 700
    assert len(np.unique(pixels)) > 20, "the picture is not empty"


def test_the_loops_of_a_system_are_closed_in_its_picture(monkeypatch):
    closed, drawn = np.array([0.7, -0.1, 1.3]), []
    monkeypatch.setattr(thumbnails, "assemble", lambda system, state, **_: SimpleNamespace(q=closed))
    monkeypatch.setattr(thumbnails, "draw_mechanism", lambda axes, mechanism, q, **_: drawn.append(q))
    assert picture(jaxdyn.library.four_bar()) is not None
    np.testing.assert_array_equal(drawn, [closed])


@pytest.mark.parametrize("shown", [MODEL, MOTION, ended_fit(), unfinished_solution()])
def test_values_that_are_not_known_have_a_table_and_no_picture(shown):
    shapes = jax.eval_shape(lambda: shown)
    assert table(shapes)
    assert picture(shapes) is None
    assert "no picture" not in shapes._repr_html_()


def test_a_batch_of_mechanisms_has_no_picture():
    heavier = eqx.tree_at(lambda m: m.mass, MODEL, jnp.ones((3, 2)))
    assert table(heavier)["batch"] == "shape (3,)"
    assert picture(heavier) is None


def test_a_picture_that_fails_says_so_and_leaves_the_table():
    odd = eqx.tree_at(lambda trajectory: trajectory.saved.v, MOTION, jnp.ones((2, 1)))
    assert table(odd)["result"] == "successful"
    assert "no picture: " in odd._repr_html_()


def test_names_of_strangers_stay_text():
    hostile = "<script>alert(1)</script> $\\frac$ <img src=x onerror=alert(1)>"
    builder = MechanismBuilder(hostile)
    builder.add_body(hostile, joint=Revolute((0, 1, 0)), joint_name=hostile, mass=1.0, inertia=(1.0, 1.0, 1.0))
    model = builder.build()
    for shown in (model, System(model)):
        text = shown._repr_html_()
        assert "<script" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;" in text


def test_objects_with_other_leaves_are_shown_as_text():
    assert ElementTree.fromstring(jax.tree.map(lambda x: "<b>", MOTION)._repr_html_()) is not None
    unusual = eqx.tree_at(lambda s: s.model, System(MODEL), "<b>")
    assert unusual._repr_html_().startswith("<pre>System(")
    assert "<b>" not in unusual._repr_html_()
