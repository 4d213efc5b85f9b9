"""Actuators of MJCF files give the accelerations of MuJoCo at random states and controls, or are refused by name and line."""

import copy
import warnings

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxdyn
from jaxdyn import JointDrives, State, cli
from jaxdyn.dynamics import Actuators
from jaxdyn.io import ConfigError, IgnoredContent, MujocoOrder, load_mjcf, system_from_mujoco

WORLD = """
<mujoco>{option}<compiler angle="radian"/>
<worldbody>
  <body name="base" {base}><inertial pos="0 0 -0.3" mass="1.5" diaginertia="0.02 0.02 0.01"/>
    <joint name="h" axis="0 1 0" ref="0.2" range="-1 2" {h}/><site name="s" pos="0.1 0 0.2" euler="0.3 0.4 0.5"/>
    <body name="slide" pos="0 0 -0.6" {body}><inertial pos="0.1 0 -0.2" mass="0.5" diaginertia="0.01 0.02 0.01"/>
      <joint name="k" type="slide" axis="1 0 0" ref="-0.1" {k}/>
      <body name="bob"><joint name="b" type="ball"/>
        <inertial pos="0 0.05 -0.2" mass="0.4" diaginertia="0.01 0.02 0.015"/></body></body></body>
</worldbody>
<tendon><fixed name="t" {tendon}><joint joint="h" coef="1"/><joint joint="k" coef="-2"/></fixed>
  <spatial name="line"><site site="s"/><site site="far"/></spatial></tendon>
<actuator>{actuators}</actuator></mujoco>""".replace("<worldbody>", '<worldbody><site name="far" pos="1 0 0"/>')


def xml(actuators="", option="", **places):
    names = ("base", "h", "body", "k", "tendon")
    return WORLD.format(actuators=actuators, option=option, **(dict.fromkeys(names, "") | places))


CASES = {
    "motor": xml('<motor joint="h" gear="3"/><motor joint="k" gear="-2"/>'),
    "control range": xml('<motor joint="h" gear="3" ctrlrange="-0.3 0.5"/>'),
    "control range that is off": xml('<motor joint="h" gear="3" ctrllimited="false" ctrlrange="-0.3 0.5"/>'),
    "clamping that is off": xml(
        '<motor joint="h" ctrlrange="-0.3 0.5"/>', '<option><flag clampctrl="disable"/></option>'
    ),
    "force range": xml('<motor joint="h" gear="3" forcerange="-0.2 0.4"/>'),
    "range of the joint": xml('<motor joint="h" gear="30"/><position joint="h" kp="9"/>', h='actuatorfrcrange="-4 2"'),
    "range of the tendon": xml('<motor tendon="t" gear="30" forcerange="-2 2"/>', tendon='actuatorfrcrange="-1 0.5"'),
    "position": xml('<position joint="h" kp="50"/>'),
    "position kv": xml('<position joint="h" kp="50" kv="3" gear="2" forcerange="-20 15"/>'),
    "position dampratio": xml('<position joint="k" kp="50" dampratio="1"/>'),
    "position inheritrange": xml('<position joint="h" kp="50" inheritrange="0.5"/>'),
    "velocity": xml('<velocity joint="k" kv="4"/><velocity joint="h" kv="2" forcerange="-1 1"/>'),
    "damper": xml('<damper joint="h" kv="4" ctrlrange="0 1"/>'),
    "general": xml(
        '<general joint="h" gear="1.5" gaintype="affine" gainprm="3 0.5 -0.2" biastype="affine" biasprm="0.3 -7 -0.6"/>'
    ),
    "general on a tendon": xml(
        '<general tendon="t" gear="-1.5" gaintype="affine" gainprm="3 0.5 -0.2" biastype="affine" biasprm="0.3 7 -0.6"/>'
    ),
    "servo of a tendon": xml('<position tendon="t" kp="20" kv="1" gear="2" ctrlrange="-0.5 0.5"/>'),
    "ball": xml('<motor joint="b" gear="1 2 3"/><velocity joint="b" kv="0.4" gear="0 2 0"/>'),
    "joint in parent": xml('<motor jointinparent="k" gear="3"/>'),
    "site": xml(
        '<motor site="s" gear="1 2 3 0.1 0.2 0.3" ctrlrange="0 1"/><motor joint="h"/>'
        '<general site="s" gear="0 1 0 0 0 0.5" biastype="affine" biasprm="0.1 3 -2"/>'
    ),
    "armature and damping": xml('<motor joint="h" gear="3" armature="0.2" damping="0.3"/>', h='armature="0.1"'),
    "gravity compensation": xml("", body='gravcomp="0.7"', base='gravcomp="1.2"'),
    "gravity compensation by motors": xml('<motor joint="h"/>', body='gravcomp="1"', h='actuatorgravcomp="true"'),
    "springs that are off": xml(
        '<motor joint="h"/>', '<option><flag spring="disable"/></option>', h='stiffness="5" damping="1"'
    ),
    "dampers that are off": xml(
        '<motor joint="h"/>', '<option><flag damper="disable"/></option>', h='stiffness="5" damping="1"'
    ),
    "activations": xml(
        '<position joint="h" kp="50" kv="2" timeconst="0.1"/><motor joint="k"/><intvelocity joint="k" kp="9" actrange="-2 1"/>'
        '<cylinder joint="h" timeconst="0.3" area="2" bias="1 -2 -0.3" ctrlrange="0 0.5"/>'
        '<damper joint="k" kv="4" ctrlrange="0 1"/>'
        '<general tendon="t" dyntype="filter" dynprm="0.2" gaintype="affine" gainprm="3 0.5 -0.2" ctrlrange="-0.3 0.5"/>'
    ),
    "constraints that are off": xml(option='<option><flag constraint="disable"/></option>', h='frictionloss="3"'),
    "many": xml(
        '<position joint="k" kp="5"/><motor tendon="t" name="pull"/><motor name="m" joint="h" ctrlrange="0 1"/>'
        '<velocity name="w" joint="h" kv="2"/>'
    ),
}


# Each case takes a second to compile; the others have the same laws in other combinations.
ALWAYS = ("motor", "range of the joint", "position kv", "general on a tendon", "ball", "site", "armature and damping")
ALWAYS += ("gravity compensation", "dampers that are off", "many", "activations")


@pytest.mark.parametrize(
    "case", [case if case in ALWAYS else pytest.param(case, marks=pytest.mark.thorough) for case in CASES]
)
def test_accelerations_are_those_of_mujoco_at_random_states_and_controls(case):
    theirs = mujoco.MjModel.from_xml_string(CASES[case])
    theirs.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        system = system_from_mujoco(theirs)
    order, data, rng = MujocoOrder(system.model, theirs), mujoco.MjData(theirs), np.random.default_rng(4)
    assert (system.nu, system.nz) == (theirs.nu or theirs.nv, theirs.na)

    def accelerations_and_rates(q, v, u, z):
        state = State(q, v, z if system.nz else None)
        rates = system.drives.rates(system.model, q, v, z, u) if system.nz else z
        return order.a_to(q, v, jaxdyn.acceleration(system, state, u)), rates

    ours = jax.jit(accelerations_and_rates)
    for _ in range(4):
        data.qpos[:] = theirs.qpos0 + rng.normal(size=theirs.nq)
        data.qpos[2:] /= np.linalg.norm(data.qpos[2:])
        data.qvel[:] = rng.normal(size=theirs.nv)
        data.ctrl[:] = rng.normal(size=theirs.nu)
        low, high = theirs.actuator_actrange[theirs.actuator_actadr >= 0].T if theirs.na else np.zeros((2, 0))
        data.act[:] = np.clip(rng.normal(size=theirs.na), *np.where(low < high, (low, high), ((-9.0,), (9.0,))))
        mujoco.mj_forward(theirs, data)
        q = order.q_from(jnp.array(data.qpos))
        v = order.v_from(jnp.array(data.qpos), jnp.array(data.qvel))
        u = jnp.array(data.ctrl) if theirs.nu else jnp.zeros(system.nu)
        a, rates = ours(q, v, u, jnp.array(data.act))
        np.testing.assert_allclose(a, data.qacc, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(rates, data.act_dot, rtol=1e-10, atol=1e-10)


MACHINE = xml(
    '<motor joint="h" gear="3"/><position joint="k" kp="3" kv="1"/><motor tendon="t"/><motor tendon="line"/><motor joint="b"/>'
    '<motor site="s" gear="1 2 3 0.1 0.2 0.3"/><intvelocity joint="h" kp="5"/><position joint="h" timeconst="0.2" kp="2"/>',
    option='<option density="3" viscosity="0.2" wind="1 2 3"><flag constraint="disable"/></option>',
    base='gravcomp="0.2"',
    h='stiffness="2" damping="0.3"',
    body='gravcomp="0.7"',
    tendon='stiffness="2" damping="0.1"',
).replace(
    "</worldbody>", '<body><freejoint/><inertial pos="0 0.1 0" mass="1" diaginertia="1 2 2.5"/></body></worldbody>'
)


@pytest.mark.thorough
def test_every_number_that_changes_the_accelerations_of_mujoco_is_read_or_refused():
    before, rng = mujoco.MjModel.from_xml_string(MACHINE), np.random.default_rng(3)
    data, read = mujoco.MjData(before), 0
    mujoco.mj_integratePos(before, data.qpos, rng.normal(size=before.nv), 0.6)
    for values in (data.qvel, data.ctrl, data.act):
        values[:] = rng.normal(size=len(values))
    mujoco.mj_forward(before, data)
    unchanged = data.qacc.copy()
    ours = jax.jit(
        lambda system, q, v: jaxdyn.acceleration(system, State(q, v, jnp.array(data.act)), jnp.array(data.ctrl))
    )
    sections = ("body_", "jnt_", "dof_", "tendon_", "actuator_", "qpos")
    names = [name for name in dir(before) if name.startswith(sections) and getattr(before, name).dtype == float]
    for name in names:
        for rows in (slice(None), slice(-1, None)):
            model = copy.copy(before)
            value = getattr(model, name)
            value[rows] += rng.uniform(0.2, 0.5, size=value[rows].shape)
            if name.endswith(("quat", "axis")):
                value /= np.linalg.norm(value, axis=-1, keepdims=True)
            mujoco.mj_forward(model, data)
            if np.array_equal(data.qacc, unchanged):
                continue
            try:
                system = system_from_mujoco(model)
            except (ConfigError, jaxdyn.MechanismError):
                continue
            order = MujocoOrder(system.model, model)
            q, read = order.q_from(jnp.array(data.qpos)), read + 1
            v = order.v_from(q, jnp.array(data.qvel))
            a = order.a_to(q, v, ours(system, q, v))
            np.testing.assert_allclose(a, data.qacc, rtol=1e-8, err_msg=f"{name}[{rows}]")
    assert read > 20


def test_activations_after_steps_are_those_of_mujoco():
    """MuJoCo is exact for `filterexact` and integrators alone, and stops these at `actrange`."""
    servos = (
        '<position joint="h" kp="5" timeconst="0.1"/><intvelocity joint="k" kp="9" actrange="-2 1" ctrlrange="-9 9"/>'
    )
    theirs = mujoco.MjModel.from_xml_string(xml(servos, '<option timestep="0.05"/>'))
    system, data, u = (
        system_from_mujoco(theirs),
        mujoco.MjData(theirs),
        np.array([[1.0, 9.5], [2.0, 15.0], [-3.0, 15.0], [0.0, -4.0]]),
    )
    start = system.at_rest(jaxdyn.neutral_state(system).q)
    found = jaxdyn.rollout(system, start, jnp.array(u), dt=0.05, steps=4).saved.z
    for control, ours in zip(u, found[1:], strict=True):
        data.ctrl[:] = control
        mujoco.mj_step(theirs, data)
        np.testing.assert_allclose(ours, data.act, rtol=1e-12)


def test_controls_keep_their_names_and_order_and_plain_motors_are_joint_drives():
    many = system_from_mujoco(mujoco.MjModel.from_xml_string(CASES["many"]))
    assert isinstance(many.drives, Actuators)
    assert many.drives.names == ("actuator 0", "pull", "m", "w")
    assert "drives       4: actuator 0, pull, m, w" in many.summary()
    np.testing.assert_array_equal(many.drives.control_bounds[0], [-np.inf, -np.inf, 0.0, -np.inf])
    plain = system_from_mujoco(mujoco.MjModel.from_xml_string(CASES["motor"]))
    assert isinstance(plain.drives, JointDrives)
    np.testing.assert_array_equal(plain.drives.gear, [3.0, -2.0])


REFUSED = {
    "early": (xml('<general name="a" joint="h" dyntype="integrator" actearly="true"/>'), "a", "actearly"),
    "no time constant": (xml('<cylinder name="a" joint="h" timeconst="0"/>'), "a", "without a time constant"),
    "user": (xml('<general name="a" joint="h" dyntype="user" actdim="1"/>'), "a", "dynamics of activation 'user'"),
    "muscle": (xml('<muscle name="a" joint="h" lengthrange="0 1"/>'), "a", "'muscle'"),
    "body": (xml('<adhesion name="a" body="slide" ctrlrange="0 1" gain="2"/>'), "a", "acts on a body"),
    "reference site": (xml('<motor name="a" site="s" refsite="far"/>'), "a", "relative to a reference site"),
    "ground": (xml('<motor name="a" site="far"/>'), "a", "acts on the ground"),
    "ball": (xml('<position name="a" joint="b" kp="2"/>'), "a", "depends on the position of a ball joint"),
    "ball in parent": (xml('<motor name="a" jointinparent="b"/>'), "a", "axes of the parent"),
    "group": (
        xml('<motor name="a" joint="h" group="2"/>', '<option actuatorgroupdisable="2"/>'),
        "a",
        "is in group 2",
    ),
    "tendon shared": (
        xml('<motor name="a" tendon="t"/><motor tendon="t"/>', tendon='actuatorfrcrange="-1 1"'),
        "a",
        "shares a tendon",
    ),
    "nonlinear damping": (xml('<motor name="a" joint="h" damping="1 2 0"/>'), "a", "nonlinear damping"),
    "armature on a tendon": (xml('<motor name="a" tendon="t" damping="1"/>'), "a", "has armature or damping"),
    "tendon armature": (xml(tendon='stiffness="2" armature="0.1"'), "t", "has armature or a nonlinear spring"),
    "compensation": (
        xml('<motor joint="h"/>', body='gravcomp="1"', h='actuatorgravcomp="true" actuatorfrcrange="-1 1"'),
        "h",
        "is provided by actuators",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_counterpart_is_refused_with_its_line_or_left_out_by_request(tmp_path, refusal, case):
    text, name, problem = REFUSED[case]
    (tmp_path / "m.xml").write_text(text)
    message = refusal(ConfigError, load_mjcf, tmp_path / "m.xml")
    assert all(part in message for part in (f" {name!r} ", problem, "ignore=(")), message
    line = next(i for i, row in enumerate(text.splitlines(), 1) if f'name="{name}"' in row or f"<{name} " in row)
    assert f"line {line}: " in message
    kind = message.split("ignore=('")[1].split("'")[0]
    for ignored in (kind, *([] if case == "tendon shared" else [name])):
        with pytest.warns(IgnoredContent, match=f"ignored {kind} '{name}'"):
            system = load_mjcf(tmp_path / "m.xml", ignore=(ignored,))
        assert "a" not in getattr(system.drives, "names", ())


def test_an_element_to_ignore_that_does_not_exist_is_refused(tmp_path, refusal):
    (tmp_path / "m.xml").write_text(CASES["many"])
    message = refusal(jaxdyn.UnknownName, jaxdyn.io.load_system, tmp_path / "m.xml", ignore=("actuators",))
    assert "did you mean 'actuator'" in message


def test_the_command_line_leaves_out_by_request(tmp_path, capsys):
    (tmp_path / "m.xml").write_text(REFUSED["tendon armature"][0])
    files = [str(tmp_path / "m.xml"), str(tmp_path / "m.toml")]
    assert cli.main(["convert", *files]) != 0
    assert "--ignore tendon" in capsys.readouterr().err
    assert cli.main(["convert", *files, "--ignore", "tendon,medium"]) == 0
    assert "ignored tendon 't'" in "".join(capsys.readouterr())
