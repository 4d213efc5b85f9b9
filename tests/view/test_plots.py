"""Pictures: drawn from the numbers given, without touching global state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.view import plots


@pytest.fixture(scope="module")
def motion():
    time = np.linspace(0.0, 1.0, 7)
    q = 0.3 * np.asarray(jax.random.normal(jax.random.key(0), (5, 7, 7)))
    return jaxdyn.library.panda(), time, q


def test_joint_fans_show_the_median_of_every_coordinate_and_its_limits(motion):
    model, time, q = motion
    figure = plots.joint_fans(model, time, q)
    for index, axis in enumerate(figure.axes[: model.nq]):
        assert axis.get_title() == model.topology.joint_names[index]
        lines = [line.get_ydata() for line in axis.lines]
        assert any(np.array_equal(y, np.median(q[:, :, index], axis=0)) for y in lines)
        assert any(np.allclose(y, float(model.limits.upper[index])) for y in lines)


def test_energy_balance_shows_gain_work_and_their_difference():
    time, rng = np.linspace(0.0, 1.0, 4), np.random.default_rng(0)
    energy, work = rng.normal(size=(2, 6, 4))
    above, below = plots.energy_balance(time, energy, work).axes
    gained = energy - energy[:, :1]
    np.testing.assert_allclose(above.lines[0].get_ydata(), gained.mean(axis=0))
    np.testing.assert_allclose(above.lines[1].get_ydata(), work.mean(axis=0))
    np.testing.assert_allclose(below.lines[0].get_ydata(), np.median(gained - work, axis=0))


def test_stick_figures_run_from_joint_to_joint_to_frame():
    model = jaxdyn.library.double_pendulum()
    hanging = plots._segments(model, jnp.zeros(2))
    np.testing.assert_allclose(hanging[:, :, 2], [[0.0, 0.0], [0.0, -1.0], [-1.0, -1.5]], atol=1e-12)
    stretched = plots._segments(model, jnp.array([-jnp.pi / 2, 0.0]))
    np.testing.assert_allclose(stretched[:, :, 0], [[0.0, 0.0], [0.0, 1.0], [1.0, 1.5]], atol=1e-12)


def test_stick_figure_strip_has_the_frames_asked_for_and_is_saved_as_png(motion, tmp_path):
    model, time, q = motion
    figure = plots.stick_figure_strip(model, time, q, frames=3)
    assert len(figure.axes) == 3
    plots.save(figure, tmp_path / "strip.png")
    assert (tmp_path / "strip.png").read_bytes().startswith(b"\x89PNG")
