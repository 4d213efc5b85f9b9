"""Robots by name, by a package that stands in for robot_descriptions, and the packages of ROS that their files name."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from jaxdyn.cli import main
from jaxdyn.io import ConfigError, load_keyframes, load_system, load_visuals, read_config

INERTIAL = '<inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
JOINT = '<joint name="elbow" type="continuous"><parent link="base"/><child link="arm"/></joint>'
MJCF = """<mujoco><compiler meshdir="../meshes"/><asset><mesh name="m" file="m.obj"/></asset><worldbody><body><joint/>
<inertial pos="0 0 -1" mass="3" diaginertia="1 1 1"/><geom type="mesh" mesh="m" contype="0" conaffinity="0"/></body></worldbody>
<keyframe><key name="home" qpos="0.3"/></keyframe></mujoco>"""
MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 3 1 4\n"
GIT = """Cmd('git') failed due to: exit code(128)
  cmdline: git fetch -v --depth=1 --progress -- origin d0d9098d
  stderr: 'fatal: unable to access 'https://github.com/x/y.git/': Could not resolve host: github.com'"""


def urdf(*meshes: str) -> str:
    shapes = "".join(f'<visual><geometry><mesh filename="{mesh}"/></geometry></visual>' for mesh in meshes)
    return f'<robot name="arm"><link name="base"/><link name="arm">{INERTIAL}{shapes}</link>{JOINT}</robot>'


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of the robots that have been fetched, which the package that stands in for robot_descriptions describes."""
    site, cache = tmp_path / "site" / "robot_descriptions", tmp_path / "cache"
    for name in [name for name in sys.modules if name.startswith("robot_descriptions")]:
        monkeypatch.delitem(sys.modules, name)
    names = (
        "package://arm_parts/m.obj",
        "package://neighbor/m.obj",
        "package://repository/b/m.obj",
        "package://far/m.obj",
    )
    files = {"arm_description": ("URDF_PATH", write(cache / "repository" / "a" / "urdf" / "arm.urdf", urdf(*names)))}
    files["arm_mj_description"] = ("MJCF_PATH", write(cache / "repository" / "mjcf" / "arm.xml", MJCF))
    write(cache / "repository" / "a" / "package.xml", "<package><name>arm_parts</name></package>")
    for place in ("repository/a", "repository/b", "neighbor", "repository/meshes", "other/far"):
        write(cache / place / "m.obj", MESH)
    write(site / "__init__.py", "")
    for name, (kind, file) in files.items():
        write(site / f"{name}.py", f"print('Cloning {name}')\n{kind} = {str(file)!r}\n")
    write(site / "absent_description.py", f"print('Cloning')\nraise RuntimeError({GIT!r})\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    yield cache
    for name in [name for name in sys.modules if name.startswith("robot_descriptions")]:
        del sys.modules[name]


def test_a_name_stands_for_the_file_of_the_robot_with_the_meshes_of_its_package_and_its_neighbors(cache, capsys):
    system = load_system("arm_description")
    assert system.model.mass[0] == 2.0
    assert len(load_visuals("arm_description", system)) == 4
    moved = load_system("arm_mj_description")
    state, _ = load_keyframes(moved, "arm_mj_description")["home"]
    assert (moved.model.mass[0], state.q[0]) == pytest.approx((3.0, 0.3))
    assert len(load_visuals("arm_mj_description", moved)) == 1
    assert capsys.readouterr() == ("", "")


def test_a_verb_and_a_config_take_the_name_of_a_robot_and_a_file_of_that_name_comes_first(cache, tmp_path, capsys):
    @dataclasses.dataclass(frozen=True)
    class Motion:
        mechanism: Path

    file = cache / "repository" / "a" / "urdf" / "arm.urdf"
    write(tmp_path / "configs" / "motion.toml", 'mechanism = "arm_description"')
    assert read_config("configs/motion.toml", Motion).mechanism == file
    assert main(["convert", "arm_description", "arm.toml"]) == 0
    assert load_system("arm.toml").model.mass[0] == 2.0
    assert main(["new", "rollout", "configs/new.toml", "--mechanism", "arm_description"]) == 0
    assert 'mechanism = "arm_description"' in Path("configs/new.toml").read_text()
    assert main(["rollout", "arm_description", "batch=0"]) == 2  # before anything is compiled
    assert f"{file}: batch: 0 is out of range" in capsys.readouterr().err
    (tmp_path / "configs" / "arm_description").mkdir()
    assert read_config("configs/motion.toml", Motion).mechanism == tmp_path / "configs" / "arm_description"


def test_a_robot_of_xacro_is_expanded_with_its_arguments_beside_its_source(cache, tmp_path):
    pytest.importorskip("xacro")
    head = '<robot name="arm" xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:arg name="mass" default="9"/>'
    text = urdf("package://far/m.obj", "m.obj").replace('<robot name="arm">', head).replace('"2"', '"$(arg mass)"')
    source = write(cache / "repository" / "b" / "arm.urdf.xacro", text)
    module = f"XACRO_PATH = {str(source)!r}\nXACRO_ARGS = {{'mass': '4'}}\n"
    write(tmp_path / "site" / "robot_descriptions" / "arm_x_description.py", module)
    system = load_system("arm_x_description")
    assert system.model.mass[0] == 4.0
    assert len(load_visuals("arm_x_description", system)) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("arm", "there is no such file, run directory or robot of robot_descriptions; did you mean 'arm_description'?"),
        ("amr_description", "there is no such file, run .* did you mean 'arm_description'?"),
        (
            "absent_description",
            r"not in .*cache, .*\(fatal: unable to .*host: github.com\); .*ROBOT_DESCRIPTIONS_CACHE",
        ),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_in_one_line_with_the_remedy(cache, refusal, capsys, name, message):
    said = refusal(ConfigError, load_system, name)
    assert said.startswith(f"{name}: ")
    assert re.search(message, said)
    assert capsys.readouterr() == ("", "")


def test_without_the_package_the_message_names_the_extra(monkeypatch, refusal, tmp_path):
    monkeypatch.setitem(sys.modules, "robot_descriptions", None)
    config = write(tmp_path / "motion.toml", 'mechanism = "arm_description"')
    assert 'pip install "jaxdyn[robots]"' in refusal(ConfigError, load_system, "arm_description")
    said = refusal(ConfigError, read_config, config, dataclasses.make_dataclass("Motion", [("mechanism", Path)]))
    assert said.startswith(f"{config}: mechanism: 'arm_description' cannot be resolved (arm_description: there is no")


@pytest.mark.parametrize(
    ("variable", "place"), [("ROS_PACKAGE_PATH", "ws/repository/parts"), ("AMENT_PREFIX_PATH", "ws/share/parts")]
)
def test_meshes_are_found_in_the_packages_of_ros_which_names_must_not_leave(tmp_path, monkeypatch, variable, place):
    source = write(tmp_path / "source" / "m.obj", MESH)
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "m.obj").symlink_to(source)  # as colcon installs it
    file = write(tmp_path / "robot" / "arm.urdf", urdf("package://parts/m.obj"))
    system = load_system(file)
    with pytest.warns(match="there is no such file in"):
        assert not load_visuals(file, system)
    monkeypatch.setenv(variable, f"/nowhere:{tmp_path / 'ws'}")
    assert len(load_visuals(file, system)) == 1
    long = f"package://{'a' * 300}/m.obj"  # longer than file systems permit
    for name in ("package://parts/../../../source/m.obj", str(source), "package://../../source/m.obj", long):
        file.write_text(urdf(name))
        with pytest.warns(match=r"the path leads elsewhere|there is no such file"):
            assert not load_visuals(file, system)
