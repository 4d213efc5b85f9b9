"""A new force is one class in one file: everything else follows from what its fields declare.

`magnetic_spring` is that file; here it meets files, archives, help, fits, refusals and the reference, through public doors.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import magnetic_spring
import numpy as np
import pytest
from magnetic_spring import MagneticSpring
from site_generator import rows_of_reference

import jaxdyn
from jaxdyn import cli, identify
from jaxdyn.io import ConfigError, load_archive, save_archive
from jaxdyn.io.mechanism.file import load_mechanism, save_mechanism

LEVITATION = """
name = "levitation"
source = "invented for this test"
[[body]]
name = "float"
joint = {kind = "prismatic", axis = [0, 0, 1]}
mass = "20 g"
[[frame]]
name = "magnet"
body = "float"
position = [0, 0, 0.01]
[[magnetic_spring]]
body = "magnet"
point = [0, 0, "-5 mm"]
force = "2 N"
reach = 0.05
"""


@pytest.fixture
def levitation(tmp_path):
    path = tmp_path / "levitation.toml"
    path.write_text(LEVITATION)
    return load_mechanism(path)


def test_the_file_of_the_force_is_short():
    assert len(Path(magnetic_spring.__file__).read_text().splitlines()) <= 40


def test_it_is_read_from_a_mechanism_file_with_units_frames_and_defaults(levitation, tmp_path):
    (force,) = levitation.forces
    assert isinstance(force, MagneticSpring)
    np.testing.assert_allclose(force.point, [0.0, 0.0, 0.005], atol=1e-16)
    assert (force.body, float(force.force), float(force.reach)) == (0, 2.0, 0.05)
    path = tmp_path / "default.toml"
    path.write_text(LEVITATION.replace("reach = 0.05", ""))
    (force,) = load_mechanism(path).forces
    assert isinstance(force, MagneticSpring)
    assert float(force.reach) == 0.1


def test_it_comes_back_from_a_mechanism_file_and_from_an_archive(levitation, tmp_path):
    save_mechanism(levitation, tmp_path / "copy.toml")
    save_archive(levitation, tmp_path / "copy")
    for copy in (load_mechanism(tmp_path / "copy.toml"), load_archive(tmp_path / "copy")):
        assert jax.tree.structure(copy) == jax.tree.structure(levitation)
        jax.tree.map(np.testing.assert_array_equal, copy.forces, levitation.forces)


def test_it_floats_where_weight_and_repulsion_are_equal_and_keeps_the_energy(levitation):
    height = float(np.log(2.0 / (0.02 * 9.81)) * 0.05 - 0.005)
    at_rest = jaxdyn.State(jnp.array([height]), jnp.zeros(1))
    gravity = float(-levitation.model.gravity[2])
    np.testing.assert_allclose(jaxdyn.acceleration(levitation, at_rest), 9.81 - gravity, atol=1e-9)
    start = jaxdyn.State(jnp.array([0.1]), jnp.zeros(1))
    run = jaxdyn.rollout(levitation, start, dt=1e-3, steps=200, integrator=jaxdyn.RungeKutta4())
    energies = [jaxdyn.total_energy(levitation, state) for state in (start, run.final)]
    assert abs(float(run.final.q[0]) - 0.1) > 0.01
    np.testing.assert_allclose(*energies, rtol=1e-8)


@pytest.mark.parametrize(
    ("old", "new", "fragments"),
    [
        ('"2 N"', "-2", ["magnetic_spring 1: force", "-2", "not negative"]),
        ('"2 N"', '"2 kg"', ["magnetic_spring 1: force", "'kg'"]),
        ('force = "2 N"', "", ["magnetic_spring 1: force: missing", "(in N)"]),
        ("reach = 0.05", "reach = 0", ["magnetic_spring 1: reach", "positive"]),
        ("reach =", "rech =", ["magnetic_spring 1: rech", "did you mean 'reach'?"]),
        ('"magnet"\npoint', '"magnt"\npoint', ["magnetic_spring 1: body", "'magnt'"]),
        (
            "[[magnetic_spring]]",
            "[[magnetic_sprin]]",
            ["magnetic_sprin: unknown key", "did you mean 'magnetic_spring'?"],
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_remedy(tmp_path, refusal, old, new, fragments):
    assert old in LEVITATION
    path = tmp_path / "wrong.toml"
    path.write_text(LEVITATION.replace(old, new, 1))
    message = refusal(ConfigError, load_mechanism, path)
    assert all(fragment in message for fragment in fragments), message


@pytest.mark.parametrize(
    ("values", "fragments"),
    [
        ((0, (0.0, 0.0, 0.0), -1.0), ["force is -1.0", "not negative"]),
        ((0, (0.0, 0.0), 1.0), ["point has shape (2,)", "give 3 values"]),
        ((3, (0.0, 0.0, 0.0), 1.0), ["there is no body 3"]),
    ],
)
def test_what_is_wrong_in_code_is_named_with_the_remedy(levitation, refusal, values, fragments):
    message = refusal(jaxdyn.MechanismError, jaxdyn.System, levitation.model, (MagneticSpring(*values),))
    assert all(fragment in message for fragment in ["MagneticSpring", *fragments]), message


def test_its_parameters_are_free_in_a_fit_with_their_units_and_bounds(levitation):
    free = [identify.Parameter(f"forces.0.{name}") for name in ("force", "reach")]
    parameters = identify.Parameters(levitation, free)
    assert parameters.labels == (("force", "N"), ("reach", "m"))
    x = parameters.initial
    for step in (-50.0, 50.0):  # however far a search goes, the values are those of a magnet
        placed = parameters.place(x + step)
        assert float(placed.forces[0].force) >= 0.0
        assert float(placed.forces[0].reach) > 0.0


def test_the_help_has_a_row_for_each_key(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["convert", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out.replace("\n        ", " ")  # of lines that are continued
    rows = text[text.index("[[magnetic_spring]]") :].splitlines()[1:5]
    assert rows == [
        "    body: Name of a body or frame: body that carries the magnet, and the magnet on its axes from O'. [required]",
        "    point (m): body that carries the magnet, and the magnet on its axes from O'. [required]",
        "    force (N): repulsion of magnets that touch. [not negative, required]",
        "    reach (m): distance over which the repulsion falls to 37 %. [positive, default 0.1]",
    ]


def test_the_reference_has_a_row_for_each_attribute():
    assert rows_of_reference(MagneticSpring) == [
        "| `body` | body that carries the magnet, and the magnet on its axes from O'. |  |  | index of a body, -1 for the ground |",
        "| `point` | body that carries the magnet, and the magnet on its axes from O'. | m | shape (3) |  |",
        "| `force` | repulsion of magnets that touch. | N |  | not negative |",
        "| `reach` | distance over which the repulsion falls to 37 %. | m |  | positive |",
    ]


def test_its_table_may_not_have_the_name_of_another_one(tmp_path, monkeypatch):
    monkeypatch.setattr(MagneticSpring, "table_name", "spring")
    (tmp_path / "levitation.toml").write_text(LEVITATION)
    with pytest.raises(
        ConfigError, match="class MagneticSpring has the table_name 'spring' of Spring; rename its table"
    ):
        load_mechanism(tmp_path / "levitation.toml")
