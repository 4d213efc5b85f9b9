"""Broken URDF files, one mistake each: every one is refused by one line that says where it is and what to do.

`broken_urdf/messages.toml` holds the messages. Files that would be large are made here.
"""

import tomllib
from pathlib import Path

import pytest

from jaxdyn import MechanismError
from jaxdyn.io import ConfigError, load_urdf, xml

BROKEN = Path(__file__).parent / "broken_urdf"
MESSAGES = tomllib.loads((BROKEN / "messages.toml").read_text(encoding="utf-8"))
KINDS = {"ConfigError": ConfigError, "MechanismError": MechanismError}
EXPECTED = {name: (KINDS[kind], text) for kind, texts in MESSAGES.items() for name, text in texts.items()}


def test_every_file_has_its_message():
    assert {path.stem for path in BROKEN.glob("*.urdf")} == set(EXPECTED)
    assert len(EXPECTED) >= 40


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_broken_file_is_refused(refusal, name):
    path = BROKEN / f"{name}.urdf"
    error, message = EXPECTED[name]
    assert refusal(error, load_urdf, path).replace(str(path), "FILE") == message


LINKS = "".join(f'<link name="l{i}"/>' for i in range(2001))
FEW = LINKS[: LINKS.index('<link name="l33"')]
TOO_MUCH = {
    "nested": ("<a>" * 101, ", line 1, <a>: elements are nested more than 100 levels deep; check the file"),
    "links": (
        f'<robot name="r">{LINKS}</robot>',
        ", line 1, <robot name='r'>: it has 2001 links, but at most 2000 are read; split the mechanism",
    ),
    "name": (
        f'<robot><link name="{"x" * 201}"/></robot>',
        f", line 1, <link name='{'x' * 57}...'>: attribute \"name\" is '{'x' * 57}...', which has 201 characters; "
        "give a name of at most 200",
    ),
    "tag": (
        f"<{'x' * 300}/>",
        f", line 1, <{'x' * 57}...>: the outermost element of a URDF file is <robot>; check the path",
    ),
    "names to choose from": (
        f'<robot>{FEW}<joint name="?" type="fixed"><parent link="?"/></joint></robot>',
        ", line 1, <parent>: there is no link '?'; use one of l0, l1, l2, l3, l4, l5, l6, l7, l8, l9, l10, l11, l12, l13, "
        "l14, l15, l16, l17, l18, l19 and 13 more",
    ),
    "extension": (
        f'<robot><link name="a"/><link name="b"/><joint name="j" type="revolute"><parent link="a"/><child link="b"/></joint>'
        f"<jaxdyn>{'<drive/>' * 2001}</jaxdyn></robot>",
        ", line 1, <jaxdyn>: it has more than 2000 elements; split the mechanism",
    ),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_is_too_much_is_refused(tmp_path, refusal, what):
    text, message = TOO_MUCH[what]
    path = tmp_path / "large.urdf"
    path.write_text(text)
    assert refusal(ConfigError, load_urdf, path) == f"{path}{message}"


def test_a_file_that_is_too_large_is_not_read(tmp_path, refusal):
    path = tmp_path / "large.urdf"
    with path.open("wb") as file:
        file.truncate(2**40)  # takes no space on the disk
    assert refusal(ConfigError, load_urdf, path) == (f"{path}: it is larger than 16 MiB; give a robot description")


def test_too_many_elements_are_refused_before_they_are_kept(tmp_path, refusal, monkeypatch):
    monkeypatch.setattr(xml, "_MOST_ELEMENTS", 1000)
    path = tmp_path / "large.urdf"
    path.write_text(f"<robot>{'<link/>' * 1000}</robot>")
    message = refusal(ConfigError, load_urdf, path)
    assert message == f"{path}, line 1, <link>: there are more than 1000 elements; give a robot description"


def test_a_file_that_is_not_there(tmp_path, refusal):
    path = tmp_path / "robot.urdf"
    assert refusal(ConfigError, load_urdf, path) == f"{path}: there is no such file; check the path"
    assert (
        refusal(ConfigError, load_urdf, tmp_path)
        == f"{tmp_path}: cannot be read (Is a directory); give a robot description"
    )
