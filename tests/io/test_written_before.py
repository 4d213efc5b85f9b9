"""Files that earlier versions wrote load to the same values.

`written_before` holds one system with every kind of joint, motion, force and constraint, written by the version that had a schema
beside each class, and what that version computed for it. It also holds two plants of the version whose sensors were
functions, and whose drives had no states.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.dynamics import GroundContact, JointEncoders, SphereContact
from jaxdyn.dynamics.forces import BoxDrag, EllipsoidDrag, Force, GravityCompensation
from jaxdyn.dynamics.forces.tendons import Tendon
from jaxdyn.io import load_archive, load_plant
from jaxdyn.io.mechanism.file import load_mechanism
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.named_classes import named_subclasses

FOLDER = Path(__file__).parent / "written_before"


@pytest.fixture(scope="module", params=["everything.toml", "everything.json"])
def system(request):
    return (
        load_mechanism(FOLDER / request.param)
        if request.param.endswith("toml")
        else load_archive(FOLDER / request.param)
    )


def test_every_value_is_the_one_that_was_written(system):
    with np.load(FOLDER / "everything.npz") as written:
        leaves = {
            jax.tree_util.keystr(path, simple=True, separator="."): leaf
            for path, leaf in jax.tree.leaves_with_path(system)
        }
        assert leaves.keys() == set(written)
        for name, leaf in leaves.items():  # a TOML file gives quaternions back with norm 1
            np.testing.assert_allclose(leaf, written[name], rtol=1e-15, atol=1e-15, err_msg=name)


def test_what_follows_from_the_values_is_what_it_was(system):
    with np.load(FOLDER / "expected.npz") as written:
        expected = {name: jnp.asarray(written[name]) for name in written}
    state = jaxdyn.State(expected["q"], expected["v"])
    free = jaxdyn.System(system.model, system.forces, system.drives)
    found = {
        "mass_matrix": jaxdyn.mass_matrix(system.model, state.q),
        "residual": jaxdyn.constraints.constraint_errors(system, state, 0.7).residual,
        "acceleration": jaxdyn.acceleration(free, state, expected["u"], 0.7),
    }
    for (
        name,
        values,
    ) in found.items():  # other orders of summation change the last digits, the more the stiffer the equations
        np.testing.assert_allclose(values, expected[name], rtol=1e-9, atol=1e-9 * np.max(np.abs(expected[name])))


def test_the_files_hold_every_kind_of_joint_and_force(system):
    kinds = {type(model_joint.released()) for model_joint in map(system.model.joint, range(system.model.nb))}
    known = named_subclasses(Joint).values(), named_subclasses(Force, "table_name").values()
    joints, forces = ({cls for cls in classes if cls.__module__.startswith("jaxdyn.")} for classes in known)
    assert kinds == {kind for kind in joints if kind.nq}
    newer = {GroundContact, SphereContact, BoxDrag, EllipsoidDrag, GravityCompensation, Tendon}  # of their own tests
    assert {type(force) for force in system.forces} == forces - newer


def height(system, state):
    """Of the bodies, m: the measurements of one of the plants."""
    return jaxdyn.forward_kinematics(system.model, state.q).translation[:, 2]


def test_functions_that_observed_are_sensors():
    plant = load_plant(FOLDER / "servo_plant.json")
    assert plant.sensors.observe == (JointEncoders(), JointEncoders(velocities=True))
    assert plant.system.nz == 0
    np.testing.assert_array_equal(plant.sensors.noise, np.full(4, 0.01))
    (own,) = load_plant(FOLDER / "plant_with_function.json", classes=[height]).sensors.observe
    assert own.function is height
