"""Without the lane compiler, everything is computed by XLA, with one warning that names the remedy."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

RESULTS = """
def results():
    import jax, jax.numpy as jnp, jaxdyn
    system, linkage = jaxdyn.library.system("double_pendulum"), jaxdyn.library.system("four_bar")
    model, q = system.model, jnp.array([0.3, 0.7])

    def end(q, system=system):
        return jaxdyn.rollout(system, system.at_rest(q), dt=1e-3, steps=20, backend="BACKEND").final.q

    start = linkage.at_rest(jaxdyn.configuration.neutral(linkage.model))
    closed = jaxdyn.assemble(linkage, start).value
    found = {
        "mass matrix": jaxdyn.mass_matrix(model, q),
        "rollout": end(q),
        "gradient": jax.jit(jax.jacrev(end))(q),
        "batch": jaxdyn.batched(lambda q: jaxdyn.forward_dynamics(model, q, q, q), backend="BACKEND")(jnp.ones((3, 2))),
        "linkage": end(closed, linkage),
        "acceleration": jaxdyn.acceleration(linkage, linkage.at_rest(closed)),
    }
    return {name: x.tolist() for name, x in found.items()}
"""

WITHOUT = """
import sys, warnings
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "llvmlite":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refused())
import jax, json
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = results()
    import jaxdyn
    try:
        jaxdyn.batched(lambda x: x, backend="lanes")(jax.numpy.ones(2))
    except jaxdyn.compute.CannotCompile as error:
        refused = str(error)
import importlib, pkgutil
names = [m.name for m in pkgutil.walk_packages(jaxdyn.__path__, "jaxdyn.") if not m.name.startswith("jaxdyn.lanes.")]
modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
print(json.dumps([found, [str(w.message) for w in said if "jaxdyn" in str(w.message)], refused, len(modules)]))
"""


@pytest.fixture(scope="module")
def without():
    code = RESULTS.replace("BACKEND", "auto") + WITHOUT
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.thorough
def test_results_without_llvmlite_are_those_of_xla(without):
    space: dict = {}
    exec(RESULTS.replace("BACKEND", "xla"), space)
    with jax.enable_x64(True):
        expected = space["results"]()
    assert without[0].keys() == expected.keys()
    for name, x in without[0].items():
        np.testing.assert_allclose(x, expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_one_warning_names_the_remedy_and_required_lanes_are_refused(without):
    _, said, refused, _ = without
    assert len(said) == 1
    assert "pip install llvmlite" in said[0]
    assert "the lane compiler cannot be used here" in refused


def test_no_module_but_those_of_the_compiler_needs_llvmlite(without):
    assert without[3] > 200


def test_a_jax_without_a_private_part_is_left_to_xla(monkeypatch):
    code = """
import warnings, jax
from jax._src import lib
del lib.lapack
import jaxdyn
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(jaxdyn.mass_matrix(jaxdyn.library.double_pendulum(), jax.numpy.zeros(2)).shape)
assert any("jax._src.lib.lapack" in str(w.message) for w in said)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "(2, 2)", run.stderr[-2000:]
