"""The config of `jaxdyn identify` builds classes of the library: their declarations are its keys, bounds and help."""

from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from small_jobs import write_configs

from jaxdyn.cli import main
from jaxdyn.compute.arrays import floating
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.identify.charts import Bounded, Positive
from jaxdyn.identify.checks import ForcesCheck, ValidTimeCheck, WindowsCheck
from jaxdyn.identify.losses import Cauchy, Huber, Squares
from jaxdyn.identify.measurement import Plant
from jaxdyn.io.archive.plant import save_plant
from jaxdyn.io.config import read_config
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify.config import ForceTable, IdentifyConfig
from jaxdyn.jobs.identify.study import files_of_studies, loss_of, parameters_of, plant_of
from jaxdyn.jobs.settings import describe_settings
from jaxdyn.mechanism.named_classes import named_subclasses
from jaxdyn.mechanism.quantity import STIFFNESS, quantity


class CubicSpring(JointForce):
    """Springs that become stiffer: tau = -k q^3.

    Attributes:
        stiffness: The cubic stiffness of each joint.
    """

    conservative: ClassVar[bool] = True
    table_name: ClassVar[str] = "cubic_spring"

    stiffness: Float[Array, "nv"] = eqx.field(
        converter=floating, metadata=quantity(STIFFNESS, minimum=0.0, missing=0.0)
    )

    def generalized_forces(self, model, q, v, t):
        return -self.stiffness * q**3


@pytest.fixture
def path(tmp_path) -> Path:
    write_configs(tmp_path)
    return tmp_path / "identify.toml"


def read(path: Path, *overrides: str) -> IdentifyConfig:
    return read_config(path, IdentifyConfig, overrides)


def test_an_unused_threshold_is_a_note_of_the_command_line(path, capsys):
    assert main(["identify", str(path), "fit.threshold=3", "study.0.mechanism=none.toml"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        'note: fit.threshold is not used, because the loss "squares" has none; choose the loss huber or cauchy'
    ]


def test_a_force_of_a_user_is_built_from_one_value_or_one_per_component(path):
    config = read(path, 'force=[{kind="CubicSpring", stiffness=2}, {kind="CubicSpring", stiffness=[1, 3]}]')
    first, second = plant_of(config, config.study[0]).system.forces
    assert type(first) is type(second) is CubicSpring
    np.testing.assert_array_equal(first.stiffness, [2.0, 2.0])
    np.testing.assert_array_equal(second.stiffness, [1.0, 3.0])


@pytest.mark.parametrize(
    ("force", "fragments"),
    [
        ('{kind="CubicSprng", stiffness=2}', ["did you mean 'CubicSpring'"]),
        ('{kind="CubicSpring", stifness=2}', ["unknown key; did you mean 'stiffness'"]),
        ('{kind="CubicSpring"}', ["stiffness: missing", "N m/rad or N/m"]),
        ('{kind="CubicSpring", stiffness=-1}', ["out of range", "not negative"]),
        ('{kind="CubicSpring", stiffness=[1, 2, 3]}', ["3 values; give 1, or 2"]),
        ('{kind="CubicSpring", stiffness="2 N/m"}', ["does not fit"]),
        ('{kind="JointFriction", viscous=1}', ["coulomb: missing"]),
    ],
)
def test_wrong_forces_are_answered_in_one_line(path, force, fragments):
    def attempt():
        config = read(path, f"force=[{force}]")
        plant_of(config, config.study[0])

    with pytest.raises(ConfigError) as caught:
        attempt()
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fit_that_starts_from_an_earlier_run_takes_its_sensors_inputs_and_forces(path, tmp_path):
    config = read(path)
    plant = plant_of(config, config.study[0])
    forces = (eqx.tree_at(lambda force: force.viscous, plant.system.forces[0], jnp.array([0.7, 0.0])),)
    inputs = eqx.tree_at(lambda inputs: inputs.offset, plant.inputs, jnp.array([0.3, 0.4]))
    save_plant(Plant(plant.system.changed(forces=forces), plant.sensors, inputs), tmp_path)
    again = read(path, f"study.0.mechanism={tmp_path}")
    found = plant_of(again, again.study[0])
    np.testing.assert_array_equal(found.inputs.offset, [0.3, 0.4])
    # The second value is at its bound, so that it starts at a small part of the value 0.2 in the config.
    np.testing.assert_allclose(found.system.forces[0].viscous, [0.7, 0.002])
    parameters_of(again, found)
    assert tmp_path / "plant.npz" in [file for _, file in files_of_studies(again)]


def test_losses_and_charts_go_by_the_names_of_their_classes(path):
    for name, kind in (("huber", Huber), ("cauchy", Cauchy)):
        loss = loss_of(read(path, f"fit.loss={name}", "fit.threshold=3", "fit.block_length=4"))
        assert type(loss) is kind
        assert loss.threshold == 1.5  # of single samples, of which four count as one
        assert loss_of(read(path, f"fit.loss={name}")).threshold == kind().threshold
    assert type(loss_of(read(path, "fit.loss=squares"))) is Squares
    with pytest.raises(ConfigError, match="did you mean 'huber'"):
        read(path, "fit.loss=hubr")
    viscous = 'path="system.forces.0.viscous"'
    config = read(path, f'free=[{{{viscous}, chart="bounded", lower=0.1, upper=0.3}}]')
    plant = plant_of(config, config.study[0])
    parameters = parameters_of(config, plant)
    np.testing.assert_allclose(parameters.values(jnp.zeros(2)), 0.2)
    assert {"real", "positive", "bounded", "unit_vector", "rotation"} <= set(
        named_subclasses(type(Bounded(0.0, 1.0)).__base__)
    )
    assert named_subclasses(type(Positive()).__base__)["positive"] is Positive


def test_checks_are_built_by_their_kind_with_the_keys_that_they_have(path):
    kinds = '[{kind="windows", durations=[0.5, 1]}, {kind="valid_time", count=3}, {kind="forces", limits=[1, 2]}]'
    checks = read(path, f"check={kinds}").check
    assert [type(check) for check in checks] == [WindowsCheck, ValidTimeCheck, ForcesCheck]
    assert checks[0].durations == (0.5, 1.0)
    with pytest.raises(ConfigError, match="unknown key"):
        read(path, 'check=[{kind="forces", count=3}]')
    with pytest.raises(ConfigError, match="one duration"):
        read(path, 'check=[{kind="valid_time", durations=[1, 2]}]')


def test_help_explains_the_keys_of_a_force_of_a_user():
    lines = [line for line in describe_settings(IdentifyConfig).splitlines() if line]
    assert len(lines) > 100
    spring = next(k for k, line in enumerate(lines) if 'force.kind = "CubicSpring"' in line)
    assert "Springs that become stiffer" in lines[spring]
    assert lines[spring + 1].strip().startswith("force.stiffness (N m/rad or N/m): The cubic stiffness of each joint.")
    assert {f'force.kind = "{kind}"' for kind in ForceTable.kinds()} <= {line.split(":")[0].strip() for line in lines}


def test_values_without_a_chart_stay_within_the_bounds_that_their_class_declares(path):
    viscous = 'path="system.forces.0.viscous"'
    config = read(path, f"free=[{{{viscous}}}]")
    parameters = parameters_of(config, plant_of(config, config.study[0]))
    far_below = parameters.place(parameters.initial - 5.0)
    assert 0.0 < float(far_below.system.forces[0].viscous[0]) < 0.1
    for bounds in ("lower=2", 'chart="positive", upper=3'):
        with pytest.raises(ConfigError, match='lower and upper are the bounds of chart = "bounded"'):
            read(path, f"free=[{{{viscous}, {bounds}}}]")


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (['study.0.train_time=["2 s", "1 s"]'], r"train_time.*; give the start before the end"),
        (["fit.method=output_error", "fit.rounds=2"], r"fit.*; set rounds = 0"),
        (["windows.duration=[1]", "windows.free_starts=false", "windows.start_noise=[1]"], r"remove start_noise and"),
    ],
)
def test_entries_that_contradict_each_other_are_refused(path, overrides, remedy):
    with pytest.raises(ConfigError, match=remedy):
        read(path, *overrides)
