"""One door for all formats: the ending chooses, an .xml file says itself what it is, and numbers survive every conversion."""

import jax
import numpy as np
import pytest
from urdf_systems import random_system, same

import jaxdyn
from jaxdyn import MechanismBuilder, Revolute, System
from jaxdyn.io import ConfigError, load_system, save_system
from jaxdyn.io.urdf.writer import save_urdf

URDF = """<robot name="one"><link name="base">INERTIAL</link><link name="arm">INERTIAL</link>
<joint name="j" type="revolute"><parent link="base"/><child link="arm"/></joint></robot>""".replace(
    "INERTIAL", '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
)
MJCF = """<mujoco model="one"><worldbody><body name="arm"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
<joint name="j" type="hinge" axis="1 0 0"/></body></worldbody></mujoco>"""


def one() -> System:
    builder = MechanismBuilder("one")
    builder.add_body("arm", joint=Revolute((1, 0, 0)), joint_name="j", mass=1.0, inertia=(1, 1, 1))
    return System(builder.build())


def close(actual: System, expected: System) -> None:
    """Numbers and all names, as far as every format keeps them."""
    assert (actual.model.topology.joint_names, actual.model.nv) == (
        expected.model.topology.joint_names,
        expected.model.nv,
    )
    for part in ("mass", "com", "inertia", "gravity"):
        np.testing.assert_allclose(getattr(actual.model, part), getattr(expected.model, part), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ending", [".toml", ".TOML", ".urdf", ".Urdf", ".json", ".npz"])
def test_what_is_written_by_an_ending_is_read_by_it(tmp_path, ending):
    path = tmp_path / f"one{ending}"
    save_system(one(), path)
    same(load_system(path), one())


@pytest.mark.parametrize("text", [URDF, MJCF], ids=["URDF", "MJCF"])
def test_an_xml_file_is_what_its_outermost_element_says(tmp_path, text):
    path = tmp_path / "one.xml"
    path.write_text(f"<?xml version='1.0'?><!-- <mujoco> or <robot> -->\n{text}")
    close(load_system(path), one())


def test_options_of_urdf_files(tmp_path):
    for name in ("one.urdf", "one.xml"):
        path = tmp_path / name
        path.write_text(URDF)
        assert load_system(path).model.nv == load_system(path, base="fixed").model.nv == 1
        assert load_system(path, base="free").model.nv == 7
        path.write_text(URDF.replace('ixx="1"', 'ixx="5"'))
        with pytest.warns(jaxdyn.io.IgnoredContent, match="unphysical part of the inertia of link 'arm'"):
            load_system(path, unphysical="repair")


@pytest.mark.parametrize("options", [{"base": "free"}, {"unphysical": "repair"}])
@pytest.mark.parametrize("name", ["one.toml", "one.json", "one.npz", "one.xml"])
def test_other_formats_have_no_options(tmp_path, refusal, name, options):
    path = tmp_path / name
    path.write_text(MJCF)
    message = refusal(ConfigError, load_system, path, **options)
    assert message == f"{path}: {next(iter(options))} is an option of URDF files; leave it out"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("robot.obj", "the ending '.obj' is not known"),
        ("robot", "the file name has no ending"),
        ("robot.tar.gz", "the ending '.gz' is not known"),
        (".urdf", "the file name has no ending"),
    ],
)
def test_unknown_endings(tmp_path, refusal, name, problem):
    path = tmp_path / name
    assert refusal(ConfigError, save_system, one(), path) == (
        f"{path}: {problem}; a mechanism is written to .toml, .urdf, .xml (MJCF) or .json"
    )
    assert not path.exists()
    if not path.suffix:
        absent = "there is no such file or run directory; check the path"
        assert refusal(ConfigError, load_system, path) == f"{path}: {absent}"
    path.touch()
    expected = "a mechanism file ends in .toml, .urdf, .xacro, .xml (URDF or MJCF) or .json"
    assert refusal(ConfigError, load_system, path) == f"{path}: {problem}; {expected}"


@pytest.mark.parametrize("name", ["one.toml", "one.urdf", "one.xml", "one.json"])
def test_files_that_are_not_there_or_hold_something_else(tmp_path, refusal, name):
    path = tmp_path / name
    assert str(path) in refusal(ConfigError, load_system, path)
    path.write_text("<html/>")
    assert str(path) in refusal(ConfigError, load_system, path)


def test_files_of_other_formats(tmp_path, refusal):
    assert "sdf2mjcf robot.sdf robot.xml" in refusal(ConfigError, load_system, tmp_path / "one.sdf")
    path = tmp_path / "one.xml"
    path.write_text('<sdf version="1.9"/>')
    assert refusal(ConfigError, load_system, path) == (
        f"{path}, line 1, <sdf>: a URDF file begins with <robot>, an MJCF file with <mujoco>; check the path"
    )


def test_numbers_survive_every_conversion(tmp_path):
    """URDF, TOML, URDF, JSON, TOML: every number to 1e-12 of where it started, names and structure as they were."""
    save_urdf(random_system(7, "RPLFSRP"), tmp_path / "0.urdf")
    start = system = load_system(tmp_path / "0.urdf")
    for step, ending in enumerate(("toml", "urdf", "json", "toml")):
        path = tmp_path / f"{step}.{ending}"
        save_system(system, path)
        system = load_system(path)
        same(ordered(system), ordered(start))
    assert len(jax.tree.leaves(start)) > 60


def ordered(system: System) -> System:
    """Mechanism files keep constraints by kind; the order is theirs, not the mechanism's."""
    constraints = sorted(system.constraints, key=lambda constraint: constraint.name)
    return System(system.model, system.forces, system.drives, constraints=tuple(constraints))
