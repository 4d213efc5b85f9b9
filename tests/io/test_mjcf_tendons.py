"""Tendons and keyframes of MJCF files: accelerations of MuJoCo in random models, at random states and controls."""

import warnings

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxdyn
from jaxdyn import State
from jaxdyn.dynamics.equations_of_motion import total_potential_energy
from jaxdyn.io import (
    ConfigError,
    IgnoredContent,
    MujocoOrder,
    load_keyframes,
    load_mjcf,
    load_system,
    system_from_mujoco,
)
from jaxdyn.io.config import read_config
from jaxdyn.jobs.optimize.config import OptimizeConfig
from jaxdyn.jobs.optimize.problem import problem_of

PLACES = ("world", "a", "b", "c")


def random_model(seed: int) -> str:
    """A chain of three bodies with sites, spheres and cylinders, and tendons over them with pulleys, springs and actuators."""
    rng = np.random.default_rng(seed)

    def point(scale=0.2):
        return " ".join(f"{x:.4f}" for x in rng.uniform(-scale, scale, size=3))

    def of(*values):
        return values[rng.integers(len(values))]

    def fittings(place):
        sites = "".join(f'<site name="{place}{k}" pos="{point()}"/>' for k in range(3))
        size = f"{rng.uniform(0.04, 0.1):.4f}"
        round_ones = f'<geom name="{place}s" type="sphere" size="{size}" pos="{point()}" mass="0.1"/>'
        round_ones += (
            f'<geom name="{place}c" type="cylinder" size="{size} 0.1" pos="{point()}" euler="{point(2.0)}" mass="0.1"/>'
        )
        # Beyond the largest sphere or cylinder, on the same body.
        return sites + round_ones + f'<site name="{place}side" pos="{of(-0.5, 0.5)} {of(-0.4, 0.4)} 0.1"/>'

    def spatial(k):
        elements, last = f'<site site="{of(*PLACES)}0"/>', ""
        for _ in range(rng.integers(2, 5)):
            place = of(*PLACES)
            side = of("", f' sidesite="{place}side"')
            last = f'<site site="{of(*PLACES)}{rng.integers(1, 3)}"/>'
            elements += of("", f'<geom geom="{place}{of("s", "c")}"{side}/>') + last
            elements += of("", "", f'<pulley divisor="{of(2, 3)}"/>{last}<site site="{of(*PLACES)}0"/>')
        rest = of("", 'springlength="0.1 0.3"')
        law = f'stiffness="{rng.uniform(0, 50):.3f}" damping="{rng.uniform(0, 2):.3f}" {rest}'
        return f'<spatial name="t{k}" {law}>{elements}</spatial>'

    fixed = '<fixed name="f" stiffness="9" springlength="-0.1 0.2" damping="0.3"><joint joint="h" coef="1.5"/>'
    fixed += '<joint joint="k" coef="-2"/></fixed>'
    actuators = '<motor tendon="f"/><motor tendon="t0" gear="-1.5" ctrlrange="-0.5 1"/><velocity tendon="t1" kv="2"/>'
    actuators += '<position tendon="t1" kp="20" kv="1" gear="2" forcerange="-3 4"/>'
    actuators += '<general tendon="t2" gear="0.7" gaintype="affine" gainprm="3 0.5 -0.2" biastype="affine" biasprm="0.3 -7 -0.6"/>'
    first = of('<joint name="j" type="ball"/>', '<freejoint name="j"/>')
    return f"""<mujoco><compiler angle="radian"/><option><flag contact="disable"/></option><worldbody>{fittings("world")}
    <body name="a" pos="0 0 0.5">{first}{fittings("a")}<inertial pos="0 0.01 -0.1" mass="1" diaginertia="0.02 0.03 0.02"/>
    <body name="b" pos="0 0 -0.3"><joint name="h" axis="0 1 0" ref="0.2"/><joint name="k" type="slide" axis="1 0 0" ref="-0.1"/>
    {fittings("b")}<body name="c" pos="0 0 -0.3"><joint name="m" axis="1 0 0"/>{fittings("c")}</body></body></body></worldbody>
    <tendon>{"".join(map(spatial, range(3)))}{fixed}</tendon><actuator>{actuators}</actuator></mujoco>"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in range(1, 9))])
def test_accelerations_are_those_of_mujoco_with_random_tendons(seed):
    theirs = mujoco.MjModel.from_xml_string(random_model(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredContent)  # colliders
        system = system_from_mujoco(theirs)
    order, data, rng = MujocoOrder(system.model, theirs), mujoco.MjData(theirs), np.random.default_rng(seed)

    @jax.jit
    def ours(q, v, u):
        state = State(order.q_from(q), order.v_from(order.q_from(q), v))
        a = jaxdyn.acceleration(system, state, u)
        return order.a_to(state.q, state.v, a), total_potential_energy(system, state)

    wrapped = 0
    mujoco.mj_forward(theirs, data)
    for _ in range(20):
        data.qpos[:] = theirs.qpos0
        mujoco.mj_integratePos(theirs, data.qpos, rng.normal(size=theirs.nv), 0.7)
        data.qvel[:], data.ctrl[:] = rng.normal(size=theirs.nv), rng.normal(size=theirs.nu)
        theirs.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
        mujoco.mj_forward(theirs, data)
        wrapped += np.sum(np.asarray(data.wrap_obj) >= 0)
        a, energy = ours(*(jnp.array(x) for x in (data.qpos, data.qvel, data.ctrl)))
        np.testing.assert_allclose(a, data.qacc, rtol=1e-10, atol=1e-10 * np.abs(data.qacc).max())
        np.testing.assert_allclose(energy, data.energy[0], rtol=1e-10, atol=1e-10)
    assert wrapped > 10


SLIDING = """<mujoco><worldbody><site name="w" pos="1 0 0"/><body><joint name="h" axis="0 1 0"/><site name="s" pos="0 0 -1"/>
<geom size="0.1" pos="0 0 -1"/></body></worldbody><tendon><spatial name="t" frictionloss="3"><site site="w"/><site site="s"/>
</spatial></tendon><actuator><motor joint="h"/>{more}</actuator>
<keyframe><key name="home" qpos="0.3" qvel="2" ctrl="0.5{more_ctrl}"/><key qpos="-0.4"/></keyframe></mujoco>"""


def test_dry_friction_of_a_sliding_tendon_and_keyframes(tmp_path):
    servo = '<intvelocity joint="h" kp="9" actrange="-1 1"/>'
    (tmp_path / "m.xml").write_text(SLIDING.format(more=servo, more_ctrl=' 0.2" act="0.7'))
    with pytest.warns(IgnoredContent, match="1 geoms with contact"):
        system = load_system(tmp_path / "m.xml")
    frames = load_keyframes(system, tmp_path / "m.xml")
    assert tuple(frames) == ("home", "keyframe 1")
    state, u = frames["home"]
    np.testing.assert_array_equal([*state.q, *state.v, *state.z, *u], [0.3, 2.0, 0.7, 0.5, 0.2])
    np.testing.assert_array_equal([*frames["keyframe 1"][0].q, *frames["keyframe 1"][0].z], [-0.4, 0.0])
    theirs = mujoco.MjModel.from_xml_path(str(tmp_path / "m.xml"))
    data = mujoco.MjData(theirs)
    mujoco.mj_resetDataKeyframe(theirs, data, 0)
    mujoco.mj_forward(theirs, data)
    np.testing.assert_allclose(jaxdyn.acceleration(system, state, u), data.qacc, rtol=1e-10)


PLAN = """
mechanism = "m.xml"
ignore = ["muscle"]
[time]
duration = 1.0
steps = 4
[[running]]
kind = "effort"
weights = 1.0
"""


@pytest.mark.thorough  # because of the control problem
def test_elements_are_left_out_by_a_config_too(tmp_path, capsys):
    muscle = '<muscle name="muscle" tendon="t" lengthrange="0 1"/>'
    (tmp_path / "m.xml").write_text(SLIDING.format(more=muscle, more_ctrl=" 0"))
    (tmp_path / "plan.toml").write_text(PLAN)
    problem = problem_of(read_config(tmp_path / "plan.toml", OptimizeConfig))
    assert problem.dynamics.nu == 1
    assert "actuator 'muscle'" in "".join(capsys.readouterr())
    with pytest.raises(ConfigError, match="it has 2 controls, but the system has 1"):
        load_keyframes(problem.dynamics.system, tmp_path / "m.xml")


INSIDE = SLIDING.replace('<site site="w"/>', '<site site="w"/><geom geom="g"{side}/>').replace(
    "<geom", '<geom name="g"', 1
)


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("<body>", "the sidesite of geom 'g' is on another body"),
        ('<geom name="g"', "side is inside; lines inside of obstacles"),
    ],
)
def test_lines_inside_of_geoms_are_refused_with_their_line(tmp_path, refusal, place, problem):
    site = '<site name="beside" pos="0 0.05 -1"/>'
    text = INSIDE.replace(place, site + place, 1).replace("{side}", ' sidesite="beside"')
    (tmp_path / "m.xml").write_text(text.format(more="", more_ctrl=""))
    message = refusal(ConfigError, load_mjcf, tmp_path / "m.xml")
    assert f"line 2: tendon 't' has a path without a counterpart ({'waypoint' * ('inside' in problem)}" in message
    assert problem in message
