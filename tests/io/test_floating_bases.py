"""Free joints of files have no motors, unless the file states them; a system keeps its controls through every format."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import JointDrives, System
from jaxdyn.io import load_system, save_system

LINK = '<link name="{0}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>'
HINGE = (
    '<joint name="hip" type="revolute"><parent link="trunk"/><child link="leg"/><axis xyz="0 1 0"/>'
    '<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
)
FLOATING = '<joint name="fly" type="floating"><parent link="trunk"/><child link="leg"/></joint>'
URDF = f'<robot name="r">{LINK.format("trunk")}{LINK.format("leg")}{HINGE}{{}}</robot>'
TOML = """
name = "r"
source = "invented"
[[body]]
name = "trunk"
joint = {kind = "free", name = "base"}
mass = 1.0
inertia = [1, 1, 1]
[[body]]
name = "leg"
parent = "trunk"
joint = {kind = "revolute", axis = [0, 1, 0], name = "hip"}
mass = 1.0
inertia = [1, 1, 1]
"""
MJCF = """<mujoco><worldbody><body name="trunk"><freejoint/><geom size="0.1" contype="0" conaffinity="0"/>
<body name="leg"><joint name="hip"/><geom size="0.1" contype="0" conaffinity="0"/></body></body></worldbody>{}</mujoco>"""


@pytest.mark.parametrize(
    ("name", "text", "options", "columns"),
    [
        ("r.urdf", URDF.format(""), {"base": "free"}, (6,)),
        ("r.urdf", URDF.format(""), {"base": "fixed"}, None),
        ("r.urdf", URDF.format('<jaxdyn><drives joints="all"/></jaxdyn>'), {"base": "free"}, None),
        ("r.urdf", URDF.format('<jaxdyn><drives joints="none"/></jaxdyn>'), {"base": "fixed"}, ()),
        ("r.urdf", URDF.replace(HINGE, FLOATING).format(""), {"base": "fixed"}, ()),
        ("r.toml", TOML, {}, (6,)),
        ("r.toml", TOML + "[drives]\nall = true", {}, None),
        ("r.toml", TOML + '[drives]\njoints = ["base"]\ncomponents = [2]', {}, (2,)),
        ("r.xml", MJCF.format(""), {}, (6,)),
    ],
)
def test_a_free_joint_of_a_file_is_undriven_unless_the_file_says_otherwise(tmp_path, name, text, options, columns):
    (tmp_path / name).write_text(text)
    drives = load_system(tmp_path / name, **options).drives
    assert columns == (None if drives is None else drives.columns)
    if drives is not None:
        np.testing.assert_array_equal(drives.gear, 1.0)


def free_body_with_a_leg() -> System:
    builder = jaxdyn.MechanismBuilder("r")
    builder.add_body("trunk", joint=jaxdyn.Free(), mass=1.0, inertia=(1.0, 1.0, 1.0))
    builder.add_body("leg", parent="trunk", joint=jaxdyn.Revolute((0, 1, 0)), mass=1.0, inertia=(1.0, 1.0, 1.0))
    return System(builder.build())


@pytest.mark.parametrize("ending", ["toml", "urdf", "json"])
@pytest.mark.parametrize("drives", [None, JointDrives((), ()), JointDrives((6,), (2.0,))], ids=["all", "none", "one"])
def test_a_system_keeps_its_controls_in_every_format(tmp_path, ending, drives):
    path = tmp_path / f"r.{ending}"
    save_system(free_body_with_a_leg().changed(drives=drives), path)
    found = load_system(path).drives
    assert jax.tree.structure(found) == jax.tree.structure(drives)
    jax.tree.map(np.testing.assert_array_equal, found, drives)


class Mixer(JointDrives):
    """Thrusts of rotors on a body; a user-defined class that no file can express."""

    matrix: jax.Array

    def validate(self, model):
        return None

    def generalized_forces(self, model, u):
        return self.matrix @ u


@pytest.mark.parametrize("ending", ["toml", "urdf", "json"])
def test_drives_of_an_own_class_are_refused_by_name(tmp_path, refusal, ending):
    system = free_body_with_a_leg().changed(drives=Mixer((0, 1), (1.0, 1.0), jnp.ones((7, 2))))
    message = refusal(jaxdyn.Error, save_system, system, tmp_path / f"r.{ending}")
    assert "Mixer" in message
    assert not list(tmp_path.iterdir())
