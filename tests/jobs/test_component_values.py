"""Values of configs along joints: a text may have the unit of its component, and no other one."""

from pathlib import Path

import numpy as np
import pytest

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.io.config import config_of, resolved_toml
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.optimize.config import BoundsConfig, ControlsStartConfig, StateConfig
from jaxdyn.jobs.rollout.config import ControlConfig
from jaxdyn.jobs.tables import coordinates, each, for_all

CART_POLE = jaxdyn.library.system("cart_pole")  # a prismatic joint, then a revolute one; the motor is on the first
DOUBLE_PENDULUM = jaxdyn.library.system("double_pendulum")


def read(cls, **values):
    return config_of(values, Path("config.toml"), cls)


def test_values_are_converted_with_the_unit_of_each_component():
    initial = read(StateConfig, q=["50 cm", "90 deg"], v=["20 mm/s", "60 rpm"])
    np.testing.assert_allclose(coordinates(initial.q, CART_POLE.model, "initial.q"), [0.5, np.pi / 2])
    np.testing.assert_allclose(each(initial.v, "nv", CART_POLE, "initial.v"), [0.02, 2 * np.pi])
    np.testing.assert_allclose(each(read(BoundsConfig, upper="2 kN").upper, "nu", CART_POLE, "bounds.upper"), [2000.0])
    stiffness = read(ControlConfig, stiffness=["3 N/m", "2 N m/rad"]).stiffness
    np.testing.assert_allclose(each(stiffness, "nv", CART_POLE, "control.stiffness"), [3.0, 2.0])
    assert for_all(read(StateConfig, v="90 deg/s").v[0], DOUBLE_PENDULUM, "v") == pytest.approx(np.pi / 2)


def test_coordinates_after_a_quaternion_have_their_own_units():
    """There are more coordinates than velocity components, so that a component has different indices in the two."""
    builder = jaxdyn.MechanismBuilder("arm")
    for name, joint in (("ball", jaxdyn.Spherical()), ("slide", jaxdyn.Prismatic((1, 0, 0)))):
        builder.add_body(name, joint=joint, mass=1.0, inertia=(1.0, 1.0, 1.0))
    system = jaxdyn.System(builder.build())
    initial = read(StateConfig, q=[1.0, 0.0, 0.0, 0.0, "5 cm"], v=[0.0, "60 rpm", 0.0, "50 mm/s"])
    for values in (coordinates(initial.q, system.model, "q"), each(initial.q, "nq", system, "q")):
        np.testing.assert_allclose(values, [1.0, 0.0, 0.0, 0.0, 0.05])
    np.testing.assert_allclose(each(initial.v, "nv", system, "v"), [0.0, 2 * np.pi, 0.0, 0.05])


def test_values_without_a_unit_are_si_values_of_each_component():
    initial = read(StateConfig, v=0.5)
    np.testing.assert_array_equal(each(initial.v, "nv", CART_POLE, "initial.v"), [0.5, 0.5])


@pytest.mark.parametrize(
    ("axis", "values", "message"),
    [
        ("nu", read(BoundsConfig, upper="5 N m").upper, "place: the value for 'track' has the unit N m; give it in N$"),
        ("nq", read(StateConfig, q=["1 m", "1 m"]).q, "for 'hinge' has the unit m; give it in rad$"),
        (
            "nv",
            read(StateConfig, v="1 rad/s").v,
            "'track' has the unit rad/s; give it in m/s, or values without a unit",
        ),
        ("nu", read(ControlsStartConfig, controls="1 N m").controls, "give it in N$"),
    ],
)
def test_the_unit_of_another_kind_of_component_is_refused(axis, values, message):
    with pytest.raises(ConfigError, match=message):
        each(values, axis, CART_POLE, "place")


def test_a_unit_of_another_quantity_is_refused_at_once_with_all_that_fit():
    with pytest.raises(ConfigError, match="'5 kg': the unit 'kg' does not fit; give a value in N m or Nm or N or kN"):
        read(BoundsConfig, upper="5 kg")


def test_a_resolved_config_has_the_values_in_si_units():
    initial = read(StateConfig, q=["50 cm", "180 deg"])
    assert "q = [0.5, 3.14159" in resolved_toml(initial)


def test_the_command_line_takes_units_of_components(tmp_path, capsys):
    (tmp_path / "cart.toml").write_text(
        'mechanism = "cart_pole.toml"\nbatch = 2\npictures = false\n[time]\nduration = "20 ms"\nrate = "100 Hz"\n'
    )
    jaxdyn.io.save_system(CART_POLE.changed(drives=None), tmp_path / "cart_pole.toml")
    command = ["rollout", str(tmp_path / "cart.toml")]
    assert main([*command, "--out", str(tmp_path / "good"), 'initial.speed=["1 mm/s", "1 rpm"]']) == 0
    assert main([*command, "--out", str(tmp_path / "bad"), 'initial.speed="1 rad/s"']) == 2
    assert "initial.speed: the value for 'track' has the unit rad/s; give it in m/s" in capsys.readouterr().err
