"""Files without masses are used for kinematics and pictures, by an argument that names this; the dynamics refuse such a model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.io import load_mjcf, load_system, load_urdf
from jaxdyn.io.errors import ConfigError

URDF = """<robot name="arm"><link name="base"/><link name="upper"/><link name="lower"/>
<joint name="a" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
<joint name="b" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 1"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""
MJCF = """<mujoco model="arm"><worldbody><body name="upper"><joint name="a" axis="0 1 0"/>
<body name="lower" pos="0 0 1"><joint name="b" axis="0 1 0"/></body></body></worldbody></mujoco>"""
Q = jnp.array([0.1, 0.2])


@pytest.fixture(params=["arm.urdf", "arm.xml"])
def file(tmp_path, request):
    path = tmp_path / request.param
    path.write_text(URDF if path.suffix == ".urdf" else MJCF)
    return path


def test_the_refusal_of_a_file_without_masses_names_the_remedy(file, refusal):
    assert "kinematic=True (--kinematic" in refusal((ConfigError, jaxdyn.MechanismError), load_system, file)


def test_kinematics_of_a_file_without_masses(file):
    model = load_system(file, kinematic=True).model
    assert not np.any(model.mass)
    np.testing.assert_allclose(
        jaxdyn.frame_placement(model, Q, "lower").translation, [np.sin(0.1), 0.0, np.cos(0.1)], rtol=1e-14
    )
    np.testing.assert_allclose(jaxdyn.body_jacobian(model, Q)[1, 1], [1.0, 1.0], rtol=1e-14)


def test_given_masses_are_left_out_too(tmp_path):
    path = tmp_path / "arm.urdf"
    inertial = '<inertial><mass value="2"/><inertia ixx="9" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    path.write_text(URDF.replace('<link name="lower"/>', f'<link name="lower">{inertial}</link>'))
    with pytest.raises(jaxdyn.MechanismError, match="repair"):  # no body has this inertia
        load_urdf(path)
    assert not np.any(load_urdf(path, kinematic=True).model.mass)


@pytest.mark.parametrize(
    "function",
    [
        lambda s: jaxdyn.mass_matrix(s.model, Q),
        lambda s: jaxdyn.forward_dynamics(s.model, Q, Q, Q),
        lambda s: jax.jit(lambda q: jaxdyn.forward_dynamics(s.model, q, q, q))(Q),
        lambda s: jaxdyn.acceleration(s, s.at_rest(Q)),
        lambda s: jaxdyn.joint_reactions(s, s.at_rest(Q)),
        lambda s: jaxdyn.rollout(s, s.at_rest(Q), dt=1e-3, steps=2),
    ],
    ids=["mass matrix", "forward dynamics", "under jit", "acceleration", "reactions", "rollout"],
)
def test_the_dynamics_refuse_a_model_without_masses(file, function, refusal):
    system = load_mjcf(file, kinematic=True) if file.suffix == ".xml" else load_urdf(file, kinematic=True)
    assert "needs masses" in refusal(jaxdyn.MechanismError, function, system)


def test_armatures_alone_are_masses_enough():
    builder = jaxdyn.MechanismBuilder("wheels")
    builder.add_body("wheel", joint=jaxdyn.Revolute((0, 0, 1)), armature=0.5)
    model = builder.build()
    np.testing.assert_allclose(jaxdyn.mass_matrix(model, jnp.zeros(1)), [[0.5]])
    with pytest.raises(jaxdyn.MechanismError, match="needs masses"):
        jaxdyn.mass_matrix(builder.build(kinematic=True), jnp.zeros(1))


def test_show_takes_such_a_file_and_other_formats_refuse_the_option(file, tmp_path, capsys, refusal):
    assert main(["show", str(file), "--kinematic", "--out", str(tmp_path / "arm.png")]) == 0
    assert (tmp_path / "arm.png").exists()
    assert "lower" in capsys.readouterr().out
    assert main(["animate", str(file), "--kinematic"]) == 2
    assert "needs masses" in capsys.readouterr().err
    jaxdyn.io.save_system(jaxdyn.library.system("pendulum"), tmp_path / "pendulum.toml")
    assert "URDF and MJCF" in refusal(ConfigError, load_system, tmp_path / "pendulum.toml", kinematic=True)
