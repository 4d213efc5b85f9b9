"""Plants in files: everything that predictions depend on comes back, and the mechanism alone is not mistaken for it."""

import dataclasses
import json
import re
import tomllib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import double_pendulum_plant
from small_jobs import without_digests

import jaxdyn
from jaxdyn import io
from jaxdyn.dynamics import Accelerometer, JointEncoders, Markers
from jaxdyn.dynamics.forces import JointSpring
from jaxdyn.identify import Plant, Processing, Sensors, Smoothing, WindowsCheck
from jaxdyn.identify.estimates import Address, Follower, HeldOut, Uncertainty
from jaxdyn.io.archive.plant import outside_bounds
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.xml import IgnoredContent


def identified() -> Plant:
    """A plant with a negative spring in its second joint, and everything else that a plant can have."""
    plain = double_pendulum_plant()
    spring = eqx.tree_at(lambda force: force.stiffness, JointSpring([0.0, 0.0], [0.0, 0.0]), jnp.array([0.2, -0.03]))
    system = plain.system.changed(forces=(*plain.system.forces, spring))
    covariance = jnp.array([[0.01, 0.002], [0.002, 0.04]])
    estimates = Uncertainty(
        (("spring [1_joint]", "N m/rad"), ("spring [2_joint]", "N m/rad")),
        jnp.array([0.2, -0.03]),
        covariance.at[1, 1].set(jnp.inf),
        jnp.asarray(1.1),
        ("not identifiable: spring [2_joint]",),
        covariance,
        jnp.array([0.001, 0.002]),
        "measurements",
        (Address(("system.forces.1.stiffness",), None, 2),),
        (Follower(Address(("inputs.offset",), (0, 1), 2), 0, jnp.array([0.5, 0.5])),),
        held_out=HeldOut(jnp.array([0.0, 0.5]), jnp.array([[0.001, 0.002], [0.01, 0.03]])),
    )
    processing = Processing(Smoothing(cutoff=8.0), 0.05, 30.0, (WindowsCheck(durations=(0.2, 0.4)),))
    sensors = eqx.tree_at(lambda s: s.zeros, plain.sensors, jnp.ones((3, 2)))
    return Plant(system, sensors, plain.inputs, processing, estimates)


def test_a_plant_comes_back_bit_by_bit_from_its_directory_and_each_of_its_files(tmp_path):
    plant = identified()
    io.save_plant(plant, tmp_path)
    leaves, structure = jax.tree.flatten(plant)
    for path in (tmp_path, *(tmp_path / f"plant.{ending}" for ending in ("json", "npz", "toml"))):
        back, same = jax.tree.flatten(io.load_plant(path))
        assert same == structure
        for old, new in zip(leaves, back, strict=True):
            np.testing.assert_array_equal(new, old)
            assert new.dtype == old.dtype


@pytest.mark.parametrize("name", ["undetermined", "held_out"])
def test_a_plant_of_an_earlier_version_lacks_later_fields_of_the_estimates(tmp_path, name):
    plant = identified()
    io.save_plant(dataclasses.replace(plant, estimates=dataclasses.replace(plant.estimates, held_out=None)), tmp_path)
    file = tmp_path / "plant.json"
    text = file.read_text()
    earlier = re.sub(rf',\s*"{name}": null', "", text)
    assert earlier != text
    file.write_text(earlier)
    without_digests(tmp_path / "plant.npz")
    estimates = io.load_plant(file).estimates
    assert estimates is not None
    assert getattr(estimates, name) is None


def test_a_plant_of_an_earlier_version_may_have_an_empty_field_that_was_removed(tmp_path):
    io.save_plant(identified(), tmp_path)
    file = tmp_path / "plant.json"
    earlier = re.sub(r'("velocity_cutoff": [\d.]+,)', r'\1 "markers": null,', file.read_text())
    assert '"markers": null' in earlier
    file.write_text(earlier)
    without_digests(tmp_path / "plant.npz")
    assert io.load_plant(file).processing == identified().processing


def test_errors_of_left_out_data_that_do_not_match_the_noise_are_refused(tmp_path):
    plant = identified()
    other = HeldOut(jnp.array([0.0, 0.5]), jnp.ones((2, 3)))
    io.save_plant(dataclasses.replace(plant, estimates=dataclasses.replace(plant.estimates, held_out=other)), tmp_path)
    with pytest.raises(ConfigError, match=r"estimates\.held_out"):
        io.load_plant(tmp_path)


def test_a_plant_for_other_recordings_has_neither_zeros_nor_their_estimates(tmp_path):
    plant = identified()
    known, zeros = plant.estimates, Address(("sensors.zeros",), (0,), 2)
    more = dataclasses.replace(
        known,
        labels=(("zero a", "rad"), ("zero b", "rad"), *known.labels),
        values=jnp.concatenate([jnp.ones(2), known.values]),
        covariance=jnp.eye(4).at[2:, 2:].set(known.covariance),
        determined=jnp.eye(4).at[2:, 2:].set(known.determined),
        addresses=(zeros, *known.addresses),
        followers=(dataclasses.replace(known.followers[0], leader=1),),
    )
    other = Plant(plant.system, plant.sensors, plant.inputs, plant.processing, more).without_zeros
    assert len(other.sensors.zeros) == 0
    assert jax.tree.structure(other.estimates) == jax.tree.structure(known)
    for found, expected in zip(jax.tree.leaves(other.estimates), jax.tree.leaves(known), strict=True):
        np.testing.assert_array_equal(found, expected)
    io.save_plant(other, tmp_path)
    assert io.load_plant(tmp_path).estimates.labels == known.labels


def test_an_estimate_outside_of_the_bounds_is_stored_and_named(tmp_path):
    plant = identified()
    assert outside_bounds(plant) == [("spring [2_joint] (N m/rad)", -0.03, "not negative")]
    io.save_plant(plant, tmp_path)
    text = tomllib.loads((tmp_path / "plant.toml").read_text())
    assert text["outside_bounds"] == [
        {"name": "spring [2_joint] (N m/rad)", "estimate": -0.03, "bounds": "not negative"}
    ]
    assert text["joint_spring"]["stiffness"]["2_joint"] == -0.03
    assert text["parameter"][1]["standard_deviation"] == float("inf")
    assert text["inputs"]["delay"] == [0.013, 0.027]
    assert text["processing"]["smoothing"]["cutoff"] == 8.0


def test_loading_the_mechanism_of_a_plant_names_everything_that_is_left_out(tmp_path):
    io.save_plant(identified(), tmp_path)
    for path in (tmp_path, tmp_path / "plant.json", tmp_path / "plant.toml"):
        with pytest.warns(IgnoredContent) as caught:
            system = io.load_system(path)
        assert float(system.forces[1].stiffness[1]) == -0.03
        for word in ("inputs.gain [1.15, 0.85]", "inputs.delay", "sensors.offset", "covariance", "load_plant"):
            assert word in str(caught[0].message)


def test_a_plant_whose_text_was_edited_is_refused(tmp_path):
    io.save_plant(identified(), tmp_path)
    path = tmp_path / "plant.toml"
    path.write_text(path.read_text().replace("0.013", "0.014"))
    with pytest.raises(ConfigError, match=r"plant\.toml.*edited.*save_plant"):
        io.load_plant(tmp_path)
    path.unlink()
    assert float(io.load_plant(tmp_path).inputs.delay[0]) == 0.013


def test_archives_of_mechanisms_and_of_plants_are_told_apart(tmp_path):
    plant = double_pendulum_plant()
    io.save_archive(plant.system, tmp_path / "system")
    io.save_plant(plant, tmp_path / "machine")
    assert json.loads((tmp_path / "system.json").read_text())["version"] == 1
    with pytest.raises(ConfigError, match="mechanism without sensors"):
        io.load_plant(tmp_path / "system.json")
    with pytest.raises(ConfigError, match="load_plant"):
        io.load_archive(tmp_path / "machine.json")
    with pytest.raises(ConfigError, match="no plant"):
        io.load_plant(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        io.save_plant(plant, tmp_path / name)
    with pytest.raises(ConfigError, match=r"several plants.*one.*two"):
        io.load_plant(tmp_path)


def height(system, state):
    """A sensor of a user."""
    return jaxdyn.frame_placement(system.model, state.q, "2").translation[2:]


def test_the_function_of_a_sensor_must_be_given_by_its_user(tmp_path):
    plant = double_pendulum_plant()
    own = Plant(plant.system, Sensors(jnp.array([0.1]), observe=height))
    with pytest.raises(ConfigError, match=r"function height.*classes=\(height,\)"):
        io.save_plant(own, tmp_path)
    io.save_plant(own, tmp_path, classes=(height,))
    with pytest.raises(ConfigError, match="observe"):
        io.load_plant(tmp_path)
    assert io.load_plant(tmp_path, classes=(height,)).sensors.observe[0].function is height


def test_sensors_with_parameters_are_stored_with_the_plant(tmp_path):
    plant = double_pendulum_plant()
    sensors = (Accelerometer("2", bias=[0.1, 0.2, 0.3]), JointEncoders(["1_joint"]), Markers(["2"], [[0.0, 0.1, 0.2]]))
    io.save_plant(Plant(plant.system, Sensors(jnp.ones(7), observe=sensors)), tmp_path)
    assert eqx.tree_equal(io.load_plant(tmp_path).sensors.observe, sensors)
    with pytest.warns(IgnoredContent, match="sensors.observe Accelerometer, JointEncoders, Markers"):
        io.load_system(tmp_path)
    assert tomllib.loads((tmp_path / "plant.toml").read_text())["sensors"]["observe"][0]["bias"] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("found", "written", "word"),
    [
        ('"paths": [\n      "system.forces.1.stiffness"', '"paths": [\n      "system.__class__"', "__class__"),
        ('"class": "Sensors"', '"class": "Inputs"', "field"),
        ('"class": "JointEncoders"', '"class": "Sensors"', "observe"),
        ('"leader": 0', '"leader": 7', "followers"),
    ],
)
def test_damaged_plants_are_refused_in_one_line(tmp_path, found, written, word):
    io.save_plant(identified(), tmp_path)
    path = tmp_path / "plant.json"
    text = path.read_text()
    text = "\n".join(line.strip() for line in text.splitlines())
    found, written = ("\n".join(line.strip() for line in part.splitlines()) for part in (found, written))
    assert found in text
    path.write_text(text.replace(found, written))
    with pytest.raises(ConfigError) as caught:
        io.load_plant(tmp_path)
    assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
