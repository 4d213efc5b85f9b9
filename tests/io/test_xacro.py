"""Xacro files: their expansion, the files that they include, and that they can neither run programs nor read other files."""

import html
from pathlib import Path

import pytest

from jaxdyn.io import ConfigError, load_system
from jaxdyn.io.system_file import files_of
from jaxdyn.io.xacro import expanded

pytest.importorskip("xacro")

NAMESPACE = 'xmlns:xacro="http://www.ros.org/wiki/xacro"'
COMMON = f"""<robot {NAMESPACE}><xacro:macro name="link" params="name mass"><link name="${{name}}"><inertial>
<mass value="${{mass}}"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link></xacro:macro></robot>"""
ARM = f"""<robot name="arm" {NAMESPACE}><xacro:arg name="factor" default="3"/><xacro:include filename="$(find parts)/common.xacro"/>
<xacro:property name="masses" value="${{xacro.load_yaml('masses.yaml')}}"/><link name="base"/>
<xacro:link name="arm" mass="${{masses['arm'] * $(arg factor)}}"/>
<joint name="elbow" type="continuous"><parent link="base"/><child link="arm"/></joint></robot>"""
RUNS = "().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0].__init__.__globals__['system']('touch FILE')"


@pytest.fixture
def package(tmp_path):
    """package(text): the path of a xacro file in the package "parts", whose folder has another name."""
    folder = tmp_path / "parts-2.1"
    (folder / "urdf").mkdir(parents=True)
    (folder / "package.xml").write_text("<package><name> parts </name></package>")
    (folder / "common.xacro").write_text(COMMON)
    (folder / "urdf" / "masses.yaml").write_text("arm: 0.5")
    (tmp_path / "secret.yaml").write_text("key: 1")

    def write(text: str) -> Path:
        path = folder / "urdf" / "arm.urdf.xacro"
        path.write_text(text)
        return path

    return write


def test_a_xacro_file_is_expanded_with_its_includes_and_all_of_them_are_known(package):
    path = package(ARM)
    assert load_system(path).model.mass[0] == 1.5
    assert files_of(path) == [path, path.parents[1] / "common.xacro", path.parent / "masses.yaml"]
    text, _ = expanded(path, {"factor": "4"})
    assert b'<mass value="2.0"/>' in text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (f"${{[c for c in {RUNS}}}", "is not evaluated"),
        (f"${{(lambda: [c for c in {RUNS})()}}", "is not evaluated"),
        ("${python.vars(python.type('').mro()[1])}", "mro is not evaluated"),
        ("${python['type']('')}", "'type'"),
        ("${python['vars'](xacro)}", "'vars'"),
        ("${(x for x in [1]).gi_frame}", "GeneratorExp is not evaluated"),
        ("${parts['**block'].ownerDocument.implementation}", "implementation is not evaluated"),
        ("${parts.createDOMBuilder(1, None).parseURI('file:FILE')}", "createDOMBuilder is not evaluated"),
        ("$(eval 1 + 1)", r"$(eval 1 + 1) has no value here"),
        ("${xacro.load_yaml('../../secret.yaml')}", "is neither in"),
        ("$(arg weight)", "$(arg weight) has no value here"),
        ("$(find nowhere)/x", "$(find nowhere) has no value here"),
    ],
)
def test_a_xacro_file_cannot_run_programs_or_read_other_files(package, refusal, tmp_path, value, problem):
    touched = tmp_path / "touched"
    path = package(f'<robot name="{html.escape(value.replace("FILE", str(touched)))}" {NAMESPACE}/>')
    said = refusal(ConfigError, load_system, path)
    assert said.startswith(f"{path}: xacro cannot expand it (")
    assert problem in said
    assert not touched.exists()


@pytest.mark.parametrize("optional", ["true", "false"])
def test_an_included_file_must_be_in_the_folder_of_the_robot(package, refusal, optional):
    include = f'<xacro:include filename="../../secret.yaml" optional="{optional}"/>'
    assert "is neither in" in refusal(ConfigError, load_system, package(f"<robot {NAMESPACE}>{include}</robot>"))
    path = package(f'<!DOCTYPE robot [<!ENTITY a "b">]><robot {NAMESPACE}/>')
    assert "it declares a document type or entities" in refusal(ConfigError, load_system, path)
