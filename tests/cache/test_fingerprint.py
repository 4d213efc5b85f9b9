"""Two calls have one name only if the same program serves both; what could change between processes has none."""

import dataclasses
import functools
import os
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.cache import fingerprint as module
from jaxdyn.cache.fingerprint import HasNoName, fingerprint, sources_digest
from jaxdyn.compute.constant import Constant
from jaxdyn.lanes.flatten import rule
from jaxdyn.simulate.diagnostics import work_of_step

MODEL = jaxdyn.library.double_pendulum()
SYSTEM = jaxdyn.System(MODEL)


def heavier(model: jaxdyn.Model, factor: float = 2.0) -> jaxdyn.Model:
    return eqx.tree_at(lambda m: m.mass, model, factor * model.mass)


def test_arguments_count_by_shape_and_type():
    name = fingerprint(jaxdyn.mass_matrix, (MODEL, jnp.zeros(2)))
    assert fingerprint(jaxdyn.mass_matrix, (heavier(MODEL), jnp.ones(2))) == name
    assert fingerprint(jaxdyn.mass_matrix, (MODEL, jnp.zeros(3))) != name
    assert fingerprint(jaxdyn.mass_matrix, (MODEL, jnp.zeros(2, jnp.float32))) != name
    assert fingerprint(jaxdyn.mass_matrix, (MODEL, np.zeros(2))) == name
    assert fingerprint(jaxdyn.mass_matrix, (MODEL, np.zeros(2, np.float32))) != name
    assert fingerprint(jaxdyn.mass_matrix, (Constant(np.zeros(2)),)) != fingerprint(
        jaxdyn.mass_matrix, (Constant(jnp.zeros(2)),)
    )
    assert fingerprint(jaxdyn.kinetic_energy, (MODEL, jnp.zeros(2))) != name
    assert fingerprint(jaxdyn.mass_matrix, (jaxdyn.library.cart_pole(), jnp.zeros(2))) != name


def test_plain_values_count_except_floating_point_numbers():
    def name(*values):
        return fingerprint(jaxdyn.mass_matrix, values)

    assert name(0.5) == name(0.25)
    assert len({name(x) for x in (1, 2, True, "1", None, 1.0, (1,), [1], b"1")}) == 9
    assert name({"a": 1}) != name({"b": 1})


def test_constants_and_what_functions_close_over_count_by_value():
    def of_constant(model):
        return fingerprint(jaxdyn.mass_matrix, Constant(model))

    assert of_constant(MODEL) == of_constant(heavier(MODEL, 1.0))
    assert of_constant(MODEL) != of_constant(heavier(MODEL))

    def of_closure(system):
        return fingerprint(work_of_step(system), ())

    assert of_closure(SYSTEM) == of_closure(jaxdyn.System(heavier(MODEL, 1.0)))
    assert of_closure(SYSTEM) != of_closure(jaxdyn.System(heavier(MODEL)))


def test_functions_that_jax_makes_of_others_count_by_what_they_are_made_of():
    made = [
        jax.vmap(functools.partial(jaxdyn.mass_matrix, MODEL)),
        jax.vmap(functools.partial(jaxdyn.mass_matrix, heavier(MODEL))),
        jax.vmap(functools.partial(jaxdyn.mass_matrix, MODEL), in_axes=1),
        jax.jacfwd(functools.partial(jaxdyn.mass_matrix, MODEL)),
        jax.jit(work_of_step(SYSTEM)),
        functools.partial(jaxdyn.mass_matrix, MODEL, method="closed_form"),
    ]
    assert len({fingerprint(function, (jnp.zeros(2),)) for function in made}) == len(made)
    again = jax.vmap(functools.partial(jaxdyn.mass_matrix, heavier(MODEL, 1.0)))
    assert fingerprint(again, (jnp.zeros(2),)) == fingerprint(made[0], (jnp.zeros(2),))


@dataclasses.dataclass(frozen=True)
class OfAUser:
    size: int = 1


class ModuleOfAUser(eqx.Module):
    size: int = eqx.field(static=True, default=1)


THINGS = {
    "lambda": lambda x: x,
    "function": heavier,
    "object of a class": OfAUser(),
    "module": ModuleOfAUser(),
    "class": OfAUser,
    "partial": functools.partial(heavier, MODEL),
    "plain object": object(),
    "open file": sys.stdout,
}


@pytest.mark.parametrize("thing", THINGS.values(), ids=THINGS)
def test_functions_and_classes_of_a_user_have_no_name(thing):
    with pytest.raises(HasNoName):
        fingerprint(jaxdyn.mass_matrix, (thing,))
    with pytest.raises(HasNoName):
        fingerprint(functools.partial(jaxdyn.mass_matrix, thing), ())


def test_sources_that_change_while_the_process_runs_end_all_names(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_HOME", tmp_path)
    (tmp_path / "a.py").write_text("")
    module.versions.cache_clear()
    try:
        with pytest.raises(HasNoName, match=r"a\.py was changed"):
            fingerprint(jaxdyn.mass_matrix, ())
        os.utime(tmp_path / "a.py", (0, 0))
        assert fingerprint(jaxdyn.mass_matrix, ())
    finally:
        module.versions.cache_clear()


def test_settings_and_sources_count(monkeypatch):
    def name():
        return fingerprint(jaxdyn.mass_matrix, ())

    names = [name()]
    with jax.enable_x64(False):
        names.append(name())
    with jax.default_matmul_precision("float32"):
        names.append(name())
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    names.append(name())
    monkeypatch.setattr(module, "versions", lambda: "other sources, versions or processor")
    names.append(name())
    assert len(set(names)) == len(names)
    monkeypatch.undo()
    assert name() == names[0]


def test_the_digest_of_sources_follows_each_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_HOME", tmp_path)
    (tmp_path / "a.py").write_text("x = 1")
    digests = [sources_digest()]
    (tmp_path / "b.py").write_text("")
    digests.append(sources_digest())
    (tmp_path / "a.py").write_text("x = 2")
    digests.append(sources_digest())
    (tmp_path / "a.py").rename(tmp_path / "c.py")
    digests.append(sources_digest())
    assert len(set(digests)) == 4


SCALE = 0.5


def halved(x):
    return SCALE * x


def test_rules_of_a_user_count_by_their_code_and_by_all_that_it_reaches(extensions, monkeypatch):
    def name() -> str:
        return fingerprint(jaxdyn.mass_matrix, (MODEL, jnp.zeros(2)))

    def rough(flat, equation, args):
        return flat.closed(jax.make_jaxpr(lambda x: 1 - halved(x * x))(equation.invars[0].aval), args)

    def rougher(flat, equation, args):
        return flat.closed(jax.make_jaxpr(lambda x: 2 - halved(x * x))(equation.invars[0].aval), args)

    names = [name()]
    for function, options in ((rough, {}), (rough, {"reads": "accuracy"}), (rougher, {})):
        rule("cos", **options)(function)
        names.append(name())
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 0.25)
    names.append(name())
    rule("sin")(rougher)
    names.append(name())
    assert len(set(names)) == len(names) == 6
    assert name() == names[-1]


@pytest.mark.parametrize("reached", [sys.modules[__name__], object()], ids=["a module", "an object"])
def test_a_rule_that_reaches_what_has_no_name_ends_all_names(extensions, reached):
    @rule("cos")
    def hidden(flat, equation, args):
        return [reached, *args]

    with pytest.raises(HasNoName):
        fingerprint(jaxdyn.mass_matrix, (MODEL, jnp.zeros(2)))
