"""URDF files as users bring them: the remedies of refusals, the base, and floating joints as other tools write them."""

import sys
import warnings

import jax.numpy as jnp
import numpy as np
import pinocchio
import pytest

import jaxdyn
from jaxdyn import Free, MechanismError
from jaxdyn.cli import main
from jaxdyn.io import ConfigError, IgnoredContent, PinocchioOrder, load_urdf
from jaxdyn.io.urdf.reader import AssumedBase
from jaxdyn.mechanism.messages import ImplausibleInertia

INERTIAL = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'


def link(name: str, parent: str | None = None, kind: str = "revolute", inertial: str = INERTIAL, x: float = 0) -> str:
    text = f'<link name="{name}">{inertial}</link>'
    if parent is not None:
        limit = '<limit lower="-1" upper="1" effort="9" velocity="9"/>' if kind == "revolute" else ""
        text += (
            f'<joint name="{name}_j" type="{kind}"><origin xyz="{x} 0 0.2"/><parent link="{parent}"/><child link="{name}"/>'
            f'<axis xyz="0 1 0"/>{limit}</joint>'
        )
    return text


def robot(*parts: str) -> str:
    return f'<robot name="r">{"".join(parts)}</robot>'


LEGS = [
    link(f"{leg}_{part}", f"{leg}_hip" if part == "shin" else "trunk", x=x)
    for leg, x in (("l", 0), ("r", 0.1))
    for part in ("hip", "shin")
]


@pytest.fixture
def file(tmp_path):
    """file(text): a URDF file."""

    def write(text: str):
        path = tmp_path / "robot.urdf"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    "inertial",
    [
        INERTIAL.replace('ixx="0.1"', 'ixx="9"'),
        INERTIAL.replace('mass value="1"', 'mass value="0"'),
        INERTIAL.replace("<mass", '<mass value="2"/><mass'),
    ],
)
def test_a_refusal_that_repair_would_mend_names_it_and_repair_mends_it(file, inertial, capsys):
    path = file(robot(link("base"), link("arm", "base"), link("hand", "arm", inertial=inertial)))
    with pytest.raises((MechanismError, ConfigError), match=r'unphysical="repair".*--repair'):
        load_urdf(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (
            'mass value="0"' in inertial
        ):  # a hand without mass has no inertia either, which only a free joint cannot have
            path = file(robot(link("base"), link("arm", "base"), link("hand", "arm", "fixed", inertial)))
        assert load_urdf(path, unphysical="repair").model.nb >= 1
    assert main(["show", str(path), "--repair"]) == 0
    assert "note:" in capsys.readouterr().out


def test_a_value_that_repair_does_not_mend_does_not_name_it(file):
    with pytest.raises(MechanismError, match="mass is -1") as caught:
        load_urdf(
            file(
                robot(link("base"), link("arm", "base", inertial=INERTIAL.replace('mass value="1"', 'mass value="-1"')))
            )
        )
    assert "--repair" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [
        (robot(link("trunk"), *LEGS), True),
        (robot(link("footprint", inertial=""), link("trunk", "footprint", "fixed"), *LEGS), True),
        (robot(link("hull"), *(link(f"rotor{k}", "hull", "continuous") for k in range(4))), True),
        (robot(link("world"), link("trunk", "world", "fixed"), *LEGS), False),
        (robot(link("trunk", inertial=""), *LEGS), False),
        (
            robot(link("base"), link("arm", "base"), link("hand", "arm"), link("left", "hand"), link("right", "hand")),
            False,
        ),
        (robot(link("palm"), link("left", "palm"), link("right", "palm")), False),
    ],
)
def test_a_root_link_with_mass_and_several_limbs_is_noted_unless_the_base_is_given(file, text, is_noted):
    path = file(text)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", AssumedBase)
        load_urdf(path)
    assert [warning.category for warning in said] == [AssumedBase] * is_noted
    assert all("--base free" in str(warning.message) for warning in said)
    for base in ("fixed", "free"):
        load_urdf(path, base=base)  # warnings are errors


def test_the_note_about_the_base_is_printed_once(file, capsys):
    assert main(["show", str(file(robot(link("trunk"), *LEGS)))]) == 0
    (note,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert 'base="free"' in note


@pytest.mark.parametrize("verb", ["show", "rollout"])
def test_without_xacro_a_file_is_refused_with_the_command_that_expands_it(tmp_path, verb, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "xacro", None)
    path = tmp_path / "robot.urdf.xacro"
    path.write_text("<robot/>")
    assert main([verb, str(path)]) == 2
    assert "xacro robot.urdf.xacro name:=value > robot.urdf" in capsys.readouterr().err


# --- a base that floats, as in other tools ---


@pytest.mark.parametrize("base", [None, "free"])
def test_a_floating_joint_of_a_world_link_makes_the_base_free_once(file, base):
    joint = link("trunk", "world", "floating").replace("trunk_j", "root_joint")
    path = file(robot(link("world", inertial=""), joint, *LEGS))
    model = load_urdf(path, base=base).model
    assert model.topology.joint_names[0] == "root_joint"
    assert model.topology.joint_classes[0] is Free
    assert (model.nb, model.nv) == (5, 10)
    assert PinocchioOrder(model, pinocchio.buildModelFromUrdf(str(path))).sizes == (11, 10)


def test_the_free_flyer_of_pinocchio_is_the_free_base(file):
    path = file(robot(link("trunk"), *LEGS))
    model = load_urdf(path, base="free").model
    theirs = pinocchio.buildModelFromUrdf(str(path), pinocchio.JointModelFreeFlyer())
    order = PinocchioOrder(model, theirs)
    rng = np.random.default_rng(0)
    q = np.array(jaxdyn.configuration.neutral(model)) + 0.3 * rng.normal(size=model.nq)
    q[3:7] /= np.linalg.norm(q[3:7])
    q, v, tau = (jnp.asarray(x) for x in (q, *rng.normal(size=(2, model.nv))))
    ours = order.a_to(q, v, jaxdyn.forward_dynamics(model, q, v, tau))
    data = theirs.createData()
    expected = pinocchio.aba(
        theirs, data, np.array(order.q_to(q)), np.array(order.v_to(q, v)), np.array(order.tau_to(q, tau))
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


def test_an_inertia_that_is_unphysical_by_rounding_is_repaired_whatever_its_size(file):
    rounded = (
        '<inertial><mass value="1"/><inertia ixx="1.0" iyy="0.6" izz="0.3999" ixy="0" ixz="0" iyz="0"/></inertial>'
    )
    path = file(robot(link("base"), link("arm", "base", "revolute", rounded)))
    with pytest.warns(IgnoredContent, match="unphysical part of the inertia of link 'arm'"):
        inertia = np.asarray(load_urdf(path).model.inertia[-1])
    np.testing.assert_allclose(inertia, [1.0, 0.6, 0.3999, 0.0, 0.0, 0.0], atol=1e-3)


@pytest.mark.parametrize(
    ("mass", "entries", "fragments"),
    [
        (51.0, (1.66, -0.224, 0, -0.224, 1.66, 0), ["were 1.66, -0.224, 0, -0.224, 0, 1.66 ", "nine entries in row-major order"]),
        (0.527, (-0.0012, 0, 0, -0.0012, 0, 0.00033), ["became 0.000165, 0.000165, 0.00033,", "if all moments were positive"]),
        (1.0, (0.02, 0.009, 0.009, 0.02, 0.009, 0.02), ["if the sign of ixy were opposite"]),
        (0.1, (1.486e-6, 0, 0, 2e-7, 0, 8.31e-7), ["became 1.486e-06, 4.275e-07, 1.05"]),
    ],
)  # fmt: skip
def test_repair_states_both_tensors_on_the_axes_of_the_file_and_suggests_a_simple_mistake(
    file, mass, entries, fragments
):
    named = zip(("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), entries, strict=True)
    tensor = "".join(f' {name}="{value}"' for name, value in named)
    inertial = f'<inertial><origin rpy="0.3 0.2 0.1"/><mass value="{mass}"/><inertia{tensor}/></inertial>'
    with pytest.warns(IgnoredContent) as said:
        load_urdf(file(robot(link("base"), link("arm", "base", "revolute", inertial))), unphysical="repair")
    message = str(said[0].message)
    for fragment in fragments:
        assert fragment in message
    assert ("it would be physical" in message) == (mass != 0.1)


@pytest.mark.parametrize(("mass", "moments", "radius"), [
    (1.0, (2000.0, 3000.0, 4000.0), "67.1"), (1e-6, (1e-6,) * 3, None), (5e5, (9e7, 2e8, 2.5e8), None),
    (1e-200, (1e12,) * 3, "1.22e+106"), (5e-324, (1e300,) * 3, "inf"), (1e-300, (-1e-320,) * 3, None),
])  # fmt: skip
def test_an_inertia_of_a_wrong_unit_is_noted_but_not_that_of_an_airliner_or_of_a_body_that_only_carries_a_frame(
    mass, moments, radius
):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        jaxdyn.MechanismBuilder("box").add_body("box", joint=jaxdyn.Free(), mass=mass, inertia=moments)
    assert [warning.category for warning in said] == [ImplausibleInertia] * (radius is not None)
    assert all(f"radius of gyration of {radius} m; check the units" in str(warning.message) for warning in said)


def test_an_unphysical_inertia_of_a_small_sensor_on_a_body_is_repaired_and_named(file):
    sensor = '<inertial><mass value="1e-6"/><inertia ixx="1e-6" iyy="1e-6" izz="1e-6" ixy="1e-6" ixz="1e-6" iyz="1e-6"/></inertial>'
    path = file(robot(link("base"), link("arm", "base"), link("sensor", "arm", "fixed", sensor)))
    with pytest.warns(IgnoredContent, match="unphysical part of the inertia of link 'sensor'"):
        system = load_urdf(path)
    plain = load_urdf(file(robot(link("base"), link("arm", "base"))))
    np.testing.assert_allclose(system.model.inertia, plain.model.inertia, atol=1e-4)
    heavier = sensor.replace('"1e-6"', '"1e-3"')
    with pytest.raises(MechanismError, match=r"'sensor'.*triangle inequality"):
        load_urdf(file(robot(link("base"), link("arm", "base"), link("sensor", "arm", "fixed", heavier))))
