"""The reader of the theory's mechanism notation: every mistake in it is named. The vectors themselves are tested in dynamics/."""

import copy

import numpy as np
import pytest

from jaxdyn import AppliedForce, Damper, MechanismError, Prismatic, Revolute, Spring
from jaxdyn.io.theory_vectors import system_from_dict

BODY = {
    "parent": 0,
    "type": "R",
    "axis": [0, 3, 4],
    "joint_offset": [0.0, 0.0, 0.5],
    "com": [0.1, 0.0, 0.0],
    "mass": 2.0,
    "inertia": [0.2, 0.3, 0.4, 0.01, 0.02, 0.03],
}
PAIR = {"body_a": 0, "point_a": [0.0, 0.0, 1.0], "body_b": 2, "point_b": [0.1, 0.0, 0.0]}
INPUTS = {
    "gravity": [0.0, 0.0, -9.81],
    "q": [0.1, 0.2],
    "qd": [0.3, 0.4],
    "tau": [0.5, 0.6],
    "bodies": [BODY, BODY | {"parent": 1, "type": "P"}],
    "springs": [PAIR | {"stiffness": 10.0, "free_length": 0.2}],
    "dampers": [PAIR | {"coefficient": 3.0}],
    "wrenches": [{"body": 2, "frame": "body", "point": [0.0] * 3, "force": [1.0] * 3, "torque": [0.0] * 3}],
}


def changed(*path, value=None):
    """The inputs with the entry at `path` replaced, or removed if no value is given."""
    inputs = copy.deepcopy(INPUTS)
    target = inputs
    for key in path[:-1]:
        target = target[key]
    if value is None:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return inputs


def test_bodies_count_from_one_and_axes_are_normalized():
    system, q, v, tau = system_from_dict(INPUTS)
    topology = system.model.topology
    assert topology.parents == (-1, 0)
    assert topology.joint_classes == (Revolute, Prismatic)
    for joint in system.model.joints:
        np.testing.assert_allclose(joint.axis, [[0.0, 0.6, 0.8]], rtol=1e-15)
    spring, damper, wrench = system.forces
    assert (type(spring), type(damper), type(wrench)) == (Spring, Damper, AppliedForce)
    assert (spring.body_a, spring.body_b, damper.body_b, wrench.body, wrench.body_fixed) == (-1, 1, 1, 1, True)
    for given, read in (("q", q), ("qd", v), ("tau", tau)):
        np.testing.assert_array_equal(read, INPUTS[given])


def test_forces_are_optional():
    inputs = {key: INPUTS[key] for key in ("gravity", "q", "qd", "tau", "bodies")}
    assert system_from_dict(inputs)[0].forces == ()


@pytest.mark.parametrize(
    ("inputs", "fragments"),
    [
        (changed("qd"), ["inputs: qd missing"]),
        (changed("speed", value=1), ["inputs: unknown entry speed; the entries are bodies, dampers, gravity, q"]),
        (changed("bodies", 1, "mass"), ["body 2: mass missing"]),
        (changed("bodies", 0, "color", value=1), ["body 1: unknown entry color; the entries are axis, com"]),
        (changed("bodies", 0, "type", value="S"), ["body 1: unknown type 'S'", '"R" (revolute) or "P" (prismatic)']),
        (changed("bodies", 1, "parent", value=5), ["body 2: its parent is 5", "reorder"]),
        (changed("bodies", 1, "axis", value=[0, 0, 0]), ["prismatic joint of body '2'", "axis is zero; give a unit"]),
        (changed("bodies", 1, "mass", value=-1.0), ["body '2': mass is -1 kg; a mass must be"]),
        (changed("gravity", value=[0.0]), ["gravity has shape (1,); give 3 values"]),
        (changed("springs", 0, "stiffness"), ["spring 1: stiffness missing"]),
        (changed("springs", 0, "body_a", value=3), ["spring 1: there is no body 3; use 0 (the ground) to 2"]),
        (changed("dampers", 0, "rate", value=1), ["damper 1: unknown entry rate; the entries are body_a"]),
        (changed("dampers", 0, "body_b", value=-1), ["damper 1: there is no body -1; use 0 (the ground) to 2"]),
        (changed("wrenches", 0, "frame", value="tool"), ['wrench 1: unknown frame \'tool\'; use "body" or "world"']),
        (changed("wrenches", 0, "point"), ["wrench 1: point missing"]),
        (changed("wrenches", 0, "body", value=9), ["wrench 1: there is no body 9; use 0 (the ground) to 2"]),
    ],
)
def test_refusal_names_the_entry_and_the_remedy(refusal, inputs, fragments):
    message = refusal(MechanismError, system_from_dict, inputs)
    assert all(fragment in message for fragment in fragments), message
