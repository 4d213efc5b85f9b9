"""MJCF files whose mesh files are missing load if no mass depends on them."""

import numpy as np
import pytest

from jaxdyn.cli import main
from jaxdyn.io import ConfigError, IgnoredContent, load_mjcf

INERTIAL = '<inertial pos="0 0 -0.3" mass="2" diaginertia="0.1 0.1 0.02"/>'


@pytest.fixture
def arm(tmp_path):
    """arm(inertial, geom): the path of an MJCF file with an arm, whose shape is a mesh that does not exist."""

    def write(inertial: str, geom: str = "", compiler: str = ""):
        path = tmp_path / "arm.xml"
        path.write_text(
            f'<mujoco><compiler meshdir="assets" {compiler}/><asset><mesh name="shape" file="arm.stl" scale="0.001 0.001 0.001"/>'
            '<mesh file="base.obj"/></asset><worldbody><geom type="mesh" mesh="base"/>'
            f'<body name="upper"><joint axis="0 1 0"/>{inertial}<geom type="mesh" mesh="shape" {geom}/></body>'
            "</worldbody></mujoco>"
        )
        return path

    return write


def test_missing_meshes_are_left_out_if_masses_are_given(arm):
    with (
        pytest.warns(IgnoredContent, match=r"2 meshes .*arm\.stl, base\.obj"),
        pytest.warns(IgnoredContent, match="contact"),
    ):
        model = load_mjcf(arm(INERTIAL)).model
    np.testing.assert_allclose(model.mass, [2.0])
    np.testing.assert_allclose(model.com, [[0.0, 0.0, -0.3]])
    np.testing.assert_allclose(model.inertia, [[0.1, 0.1, 0.02, 0.0, 0.0, 0.0]])


def test_missing_meshes_are_named_in_a_note(arm, capsys):
    assert main(["show", str(arm(INERTIAL))]) == 0
    assert any("arm.stl" in line for line in capsys.readouterr().out.splitlines() if line.startswith("note: "))


@pytest.mark.parametrize(
    ("inertial", "geom", "compiler"),
    [("", "", ""), ("", 'mass="2"', ""), (INERTIAL, "", 'inertiafromgeom="true"')],
)
def test_a_mass_that_depends_on_a_missing_mesh_is_refused_with_the_name_of_body_and_file(arm, inertial, geom, compiler):
    with pytest.raises(ConfigError, match=r"body 'upper' depends on the mesh file arm\.stl.*<inertial>"):
        load_mjcf(arm(inertial, geom, compiler))
