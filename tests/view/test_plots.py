"""Pictures: drawn from the numbers given, without touching global state."""

import jax
import numpy as np
import pytest
from first_cases import first
from legible import assert_legible

import jaxdyn
from jaxdyn.view import optimization, plots


@pytest.fixture(scope="module")
def motion():
    time = np.linspace(0.0, 1.0, 7)
    q = 0.3 * np.asarray(jax.random.normal(jax.random.key(0), (5, 7, 7)))
    return jaxdyn.library.panda(), time, q


def test_joint_fans_show_the_median_of_every_coordinate_and_its_limits(motion):
    model, time, q = motion
    figure = plots.joint_fans(model, time, q)
    assert len(figure.axes) >= model.nq
    for index, axis in enumerate(figure.axes[: model.nq]):
        assert axis.get_title() == f"{model.topology.joint_names[index]} (rad)"
        lines = [line.get_ydata() for line in axis.lines]
        assert any(np.array_equal(y, np.median(q[:, :, index], axis=0)) for y in lines)
        assert any(np.allclose(y, float(model.limits.upper[index])) for y in lines)


@pytest.mark.parametrize(("contacts", "rest"), [(12, ""), (15, "; 3 with smaller forces are not shown")])
def test_the_contacts_with_the_largest_forces_are_shown_and_the_others_are_counted(contacts, rest):
    time, forces = np.linspace(0.0, 1.0, 4), np.random.default_rng(0).uniform(size=(4, contacts))
    figure = plots.normal_forces([f"foot {k}" for k in range(contacts)], time, forces)
    assert figure.get_suptitle() == f"Normal forces of the contacts of one sample{rest}"
    largest = np.sort(np.argsort(forces.max(axis=0))[-12:])
    assert [line.get_label() for line in figure.axes[0].lines] == [f"foot {k}" for k in largest]


def test_energy_balance_shows_gain_work_and_their_difference():
    time, rng = np.linspace(0.0, 1.0, 4), np.random.default_rng(0)
    energy, work = rng.normal(size=(2, 6, 4))
    above, below = plots.energy_balance(time, energy, work).axes
    gained = energy - energy[:, :1]
    np.testing.assert_allclose(above.lines[0].get_ydata(), gained.mean(axis=0))
    np.testing.assert_allclose(above.lines[1].get_ydata(), work.mean(axis=0))
    np.testing.assert_allclose(below.lines[0].get_ydata(), np.median(gained - work, axis=0))


@pytest.mark.parametrize("count", first(1, [1, 40]))
def test_joint_fans_are_readable_whatever_the_number_of_coordinates(count):
    builder = jaxdyn.MechanismBuilder("chain")
    for i in range(count):
        parent = f"link {i - 1}" if i else "ground"
        builder.add_body(f"link {i}", parent=parent, joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1))
    figure = plots.joint_fans(builder.build(), np.linspace(0.0, 1.0, 3), np.zeros((2, 3, count)))
    assert sum(bool(axis.get_title()) for axis in figure.axes) == count
    assert_legible(figure)


def test_stick_figure_strip_has_the_frames_asked_for_and_is_saved_as_png(motion, tmp_path):
    model, time, q = motion
    figure = plots.stick_figure_strip(model, time, q, frames=3)
    assert len(figure.axes) == 3
    assert_legible(figure)
    plots.save(figure, tmp_path / "strip.png")
    assert (tmp_path / "strip.png").read_bytes().startswith(b"\x89PNG")


def test_every_control_has_the_name_and_the_unit_of_the_component_that_it_drives():
    model = jaxdyn.library.cart_pole()
    time, two = np.linspace(0.0, 1.0, 4), np.zeros((3, 2))
    bounds = np.array([-np.inf, -1.0]), np.array([5.0, 1.0])
    axes = optimization.controls(jaxdyn.System(model), time, two, *bounds).axes
    assert [(axis.get_title(), axis.get_ylabel()) for axis in axes] == [("track", "N"), ("hinge", "N m")]
    assert [len(axis.lines) for axis in axes] == [2, 3]  # the curve and its finite bounds
    driven = jaxdyn.System(model, drives=jaxdyn.JointDrives((0,), [1.0]))
    (axis,) = optimization.controls(driven, time, two[:, :1], -np.ones(1), np.ones(1)).axes
    assert (axis.get_title(), axis.get_ylabel()) == ("track", "N")
