"""Sensors of MJCF files read the values of MuJoCo, in the order of the file, or are refused by name."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxdyn
from jaxdyn.dynamics import observe
from jaxdyn.io import ConfigError, MujocoOrder, load_sensors, load_system

# The site "arm" has the name of a body, so that the frame has another one; the joint is beside the origin of the body.
FILE = """
<mujoco><worldbody>
  <body name="arm"><joint name="hip" axis="0 1 0" pos="0 0 0.3"/>
    <inertial pos="0 0.1 -0.2" mass="1.5" diaginertia="0.02 0.03 0.01"/>
    <site name="arm" pos="0.1 0.2 0.3" euler="10 20 30"/>
    <body name="hand" pos="0 0 -0.5"><joint type="slide" axis="1 0 0" ref="{ref}"/>
      <inertial pos="0.1 0 -0.1" mass="0.5" diaginertia="0.01 0.02 0.01"/>
      <site name="palm" pos="0 0.1 0" euler="50 0 9"/>
      <body><inertial pos="0 0 0" mass="0.1" diaginertia="1e-4 1e-4 1e-4"/><site name="tip"/></body></body></body>
</worldbody>
<sensor>
  <gyro site="arm"/><torque site="palm"/><force site="palm"/><jointvel joint="hip"/><framepos objtype="xbody" objname="arm"/>
  <framepos objtype="site" objname="arm"/><jointpos joint="hip"/><accelerometer name="imu" site="arm"/>{more}
</sensor></mujoco>"""


def test_sensors_read_the_values_of_mujoco_in_their_order(tmp_path):
    text = FILE.format(ref=0, more="")
    (tmp_path / "m.xml").write_text(text)
    theirs = mujoco.MjModel.from_xml_string(text)
    system, sensors, data = load_system(tmp_path / "m.xml"), load_sensors(tmp_path / "m.xml"), mujoco.MjData(theirs)
    data.qpos[:], data.qvel[:] = [0.7, -0.2], [1.3, 0.9]
    mujoco.mj_forward(theirs, data)
    order = MujocoOrder(system.model, theirs)
    q, v = order.q_from(jnp.array(data.qpos)), order.v_from(jnp.array(data.qpos), jnp.array(data.qvel))
    np.testing.assert_allclose(observe(system, sensors, jaxdyn.State(q, v)), data.sensordata, atol=1e-12)


@pytest.mark.parametrize(
    ("more", "name", "kind"),
    [
        ('<touch name="toe" site="palm"/>', "toe", "touch"),
        ('<force name="in a weld" site="tip"/>', "in a weld", "force"),
        ('<accelerometer name="clipped" site="palm" cutoff="2"/>', "clipped", "accelerometer"),
        ('<framepos name="seen" objtype="site" objname="arm" reftype="site" refname="palm"/>', "seen", "framepos"),
        ('<framepos name="center" objtype="body" objname="arm"/>', "center", "framepos"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name_or_left_out_by_request(tmp_path, refusal, more, name, kind):
    path = tmp_path / "m.xml"
    path.write_text(FILE.format(ref=0, more=more))
    message = refusal(ConfigError, load_sensors, path)
    assert f"m.xml: sensor {name!r} of kind {kind!r} has no counterpart" in message
    assert f"ignore=({kind!r},)" in message
    assert len(load_sensors(path, ignore=(name,))) == 8
    assert "did you mean 'imu'" in refusal(jaxdyn.UnknownName, load_sensors, path, ignore=("imus",))


def test_a_coordinate_of_another_zero_is_refused(tmp_path, refusal):
    more = '<jointpos name="rail" joint="rail"/>'
    (tmp_path / "m.xml").write_text(FILE.format(ref=0.1, more=more).replace('type="slide"', 'name="rail" type="slide"'))
    assert "sensor 'rail' of kind 'jointpos'" in refusal(ConfigError, load_sensors, tmp_path / "m.xml")
