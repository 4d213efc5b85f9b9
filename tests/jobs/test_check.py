"""The command `jaxdyn check`: its table against what conditioning allows, what it says of bad mechanisms, and bad input."""

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.jobs.commands import check
from jaxdyn.lanes import guest
from jaxdyn.lanes.reference import Reference
from jaxdyn.simulate import precision

MECHANISMS = Path(__file__).parents[2] / "configs" / "mechanisms"
DOUBLE_PENDULUM = str(MECHANISMS / "double_pendulum.toml")
PENDULUM = jaxdyn.library.system("pendulum")
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53}


def chain_with_load(load: float) -> jaxdyn.System:
    """Five rods of 0.1 kg in a vertical plane that carry a point mass at the end."""
    builder = jaxdyn.MechanismBuilder("loaded chain", gravity=(0, 0, -9.81))
    for k in range(5):
        last = k == 4
        mass = load if last else 0.1
        rod = {"com": (0, 0, -0.3 if last else -0.15), "inertia": (1e-9, 1e-9, 1e-9) if last else (8e-4, 8e-4, 1e-5)}
        place = {"parent": f"link {k - 1}", "position": (0, 0, -0.3)} if k else {}
        builder.add_body(f"link {k}", joint=jaxdyn.Revolute((0, 1, 0)), mass=mass, **rod, **place)
    return jaxdyn.System(builder.build())


def printed(words: list[str], capsys) -> tuple[dict[str, np.ndarray], str]:
    """The numbers of the table by row (median and worst of float32, the model alone, median and worst of float64), and the text."""
    assert main(["check", *words]) == 0
    text = capsys.readouterr().out
    rows = re.findall(r"^(energy[a-z ]*|accelerations[a-z ]*?) +((?:\d\.\de[-+]\d\d *){5})$", text, re.MULTILINE)
    return {name.strip(): np.array(numbers.split(), float) for name, numbers in rows}, text


def test_table_and_verdict_of_a_double_pendulum(capsys):
    table, text = printed([DOUBLE_PENDULUM, "--states", "4", "--seed", "3"], capsys)
    gradients = {f"energy by {x}" for x in ("q", "v", "masses")}
    gradients |= {f"accelerations by {x}" for x in ("q", "v", "forces", "masses")}
    assert table.keys() == {"energy", "accelerations"} | gradients
    assert "double_pendulum: 5 states, the first at rest, against 50 digits" in text
    # The mass matrix of two rods has condition number 8 at most, so a hundred roundings are the most that is lost as a rule;
    # a gradient may be nearly zero at some state.
    for name, (median32, worst32, model, median64, worst64) in table.items():
        assert ROUNDING["float32"] / 100 < median32 < 100 * ROUNDING["float32"], name
        assert ROUNDING["float64"] / 100 < median64 < 100 * ROUNDING["float64"], name
        assert 0.0 < model < 100 * ROUNDING["float32"], name
        assert median32 <= worst32 < 1e-3, name
        assert median64 <= worst64 < 1e-12, name
    kept = -np.log10(table["accelerations"][1])
    assert abs(float(re.search(r"accelerations: float32 keeps (\d\.\d) digits", text)[1]) - kept) < 0.1
    assert "Use float32 where" in text


def test_a_heavy_load_on_a_light_chain_costs_digits_and_the_verdict_says_why():
    """Errors of either precision are, state by state, within what conditioning allows, which differs by 1e4."""
    found, growths = {}, {}
    for load in (0.1, 1000.0):
        system = chain_with_load(load)
        q = jax.random.normal(jax.random.key(1), (4, 5))
        inputs = precision.random_inputs(system, jnp.zeros(5), q, jax.random.key(2))
        found[load] = precision.errors(system, precision.ACCELERATIONS, inputs)
        of_accelerations = found[load]["accelerations"]
        growths[load] = precision.conditioning(system, inputs, of_accelerations.exact).growth[1:]
        for kind, rounding in ROUNDING.items():
            errors = getattr(of_accelerations, kind)[1:]
            assert np.all(errors < 10 * rounding * growths[load])
            assert errors.max() > 1e-3 * rounding * growths[load].max()
    for kind in ROUNDING:
        light, heavy = (getattr(found[load]["accelerations"], kind).max() for load in (0.1, 1000.0))
        assert heavy > 100 * light
    assert growths[1000.0].max() > 100 * growths[0.1].max()
    kept, cause, advice = check.verdict(system, inputs, found[1000.0])
    assert kept.startswith("accelerations: float32 keeps ")
    assert float(re.search(r"condition number (\S+) ", cause)[1]) > 1e4
    assert cause.endswith("this explains the error.")
    assert advice.startswith("Use float64")


def test_a_fault_in_one_operation_is_seen(monkeypatch):
    """A sine that is wrong in its eleventh digit, in one of the two that are compared."""

    class Faulty(Reference):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            sine = self._operations["sin"]
            self._operations["sin"] = lambda x: sine(x) * (1 + self.context.mpf("1e-10"))

    monkeypatch.setattr(guest, "Reference", Faulty)
    state = precision.Samples(*(jnp.full((1, 1), 0.5),) * 4)
    found = precision.errors(PENDULUM, precision.ENERGIES, state)
    assert 1e-12 < found["energy"].float64.max() < 1e-9
    assert found["energy by v"].float64.max() < 1e-15  # the momentum of a pendulum is the same in all positions


def test_a_gradient_that_is_zero_has_no_row():
    """A single pendulum's acceleration does not depend on its speed; relative to zero there is no error."""
    state = precision.Samples(*(jnp.full((1, 1), 0.5),) * 4)
    found = precision.errors(PENDULUM, precision.ACCELERATIONS, state)
    assert list(found) == ["accelerations", *(f"accelerations by {x}" for x in ("q", "forces", "masses"))]


class Spectral(jaxdyn.JointForce):
    """A force that is an eigenvalue."""

    conservative = False

    def generalized_forces(self, model, q, v, t):
        return jnp.linalg.eigvalsh(q[:, None] * jnp.ones((1, len(v))))


def test_what_has_no_reference_is_named_and_the_rest_checked(monkeypatch, capsys):
    system = jaxdyn.System(PENDULUM.model, (Spectral(),))
    monkeypatch.setattr(check, "load_source", lambda arguments, path: system)
    table, text = printed(["pendulum.toml", "--states", "1", "--method", "articulated_body"], capsys)
    assert table.keys() == {"energy", "energy by q", "energy by v", "energy by masses"}
    assert "accelerations and gradient: not checked, 'eigh'" in text


def test_accelerations_that_do_not_exist_are_named():
    """A body without mass and inertia has none."""
    weightless = eqx.tree_at(lambda s: (s.model.mass, s.model.inertia), PENDULUM, replace_fn=jnp.zeros_like)
    state = precision.Samples(*(jnp.full((2, 1), 0.5),) * 4)
    with pytest.raises(
        ValueError, match="accelerations of state 0: not finite even with 50 digits, the mass matrix is"
    ):
        precision.errors(weightless, precision.ACCELERATIONS, state)


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["nowhere.toml"], "nowhere.toml: there is no such file"),
        ([DOUBLE_PENDULUM, "--base", "free"], "base is an option of URDF files"),
    ],
)
def test_bad_input_is_one_line(words, fragment, capsys):
    assert main(["check", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("jaxdyn: ")
    assert fragment in line


def test_arguments_that_make_no_sense_are_refused(capsys):
    for words in (["--states", "-1"], ["--method", "magic"], ["--backend", "abacus"]):
        with pytest.raises(SystemExit) as done:
            main(["check", DOUBLE_PENDULUM, *words])
        assert done.value.code == 2
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert "  jaxdyn check robot.urdf" in capsys.readouterr().out


def test_a_mechanism_whose_inertias_underflow_in_float32_is_named_with_the_remedy(tmp_path, capsys):
    path = tmp_path / "nano.toml"
    path.write_text(
        'name = "nano"\nsource = "s"\n[[body]]\nname = "hair"\njoint = {kind = "revolute", axis = [0, 1, 0]}\n'
        "mass = 1e-24\ncom = [0, 0, -1e-9]\n"
    )
    assert main(["check", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for fragment in (str(path), "'hair'", "underflows in float32", "units", "float64"):
        assert fragment in line
