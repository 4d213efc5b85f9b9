"""`jax.export` writes programs into files that run without jaxdyn, for several platforms and batches of any size."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn

ROOT = Path(__file__).parents[1]
SYSTEM = jaxdyn.library.system("double_pendulum")
WEIGHTS = np.random.default_rng(0).normal(size=(2, 4))


def end(q, controls=None):
    start = jaxdyn.State(q, 0.1 * jnp.ones_like(q))
    return jaxdyn.rollout(SYSTEM, start, controls, dt=1e-3, steps=20, save_every=20).final


def policy(t, state, key):
    return jnp.tanh(WEIGHTS @ jnp.concatenate([state.q, state.v]))[: SYSTEM.nu]


FUNCTIONS = {
    "rollout": jax.vmap(lambda q: end(q).q),
    "policy": jax.vmap(lambda q: end(q, policy).v),
    "gradient": jax.vmap(jax.grad(lambda q: jnp.sum(end(q).q))),
    "batched": jaxdyn.batched(lambda q: jaxdyn.forward_dynamics(SYSTEM.model, q, q, q)),
    "required lanes": jaxdyn.batched(lambda q: jaxdyn.mass_matrix(SYSTEM.model, q), backend="lanes"),
}
CALLED = """
    for size in (1, 3):
        np.save(f"{path}.{size}{kind}.npy", program.call(np.linspace(-1.0, 1.0, 2 * size).reshape(size, 2)))
"""
WRITTEN = f"""
import sys, numpy as np, jax
from jax import export
from test_export import FUNCTIONS
(rows,), kind = export.symbolic_shape("rows"), "here"
for path, (name, function) in zip(sys.argv[1:], FUNCTIONS.items(), strict=True):
    program = export.export(jax.jit(function), platforms=("cpu", "cuda"))(jax.ShapeDtypeStruct((rows, 2), float))
    open(path, "wb").write(program.serialize())
{CALLED}
"""
LOADED = f"""
import sys, numpy as np, jax
from jax import export
kind = "there"
for path in sys.argv[1:]:
    program = export.deserialize(bytearray(open(path, "rb").read()))
    assert program.platforms == ("cpu", "cuda")
{CALLED}
assert not any(name.split(".")[0] == "jaxdyn" for name in sys.modules)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of all programs in the process that exports them, and in another one that reads their files."""
    folder = tmp_path_factory.mktemp("exported")
    files = [str(folder / f"{k}") for k in range(len(FUNCTIONS))]
    as_user = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    as_user |= {
        "JAX_ENABLE_X64": "1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }
    for code, where in ((WRITTEN, ROOT), (LOADED, folder)):
        run = subprocess.run(
            [sys.executable, "-c", code, *files], capture_output=True, text=True, cwd=where, env=as_user
        )
        assert run.returncode == 0, run.stderr[-2000:]
    return folder


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_process_without_jaxdyn_computes_what_was_exported_bit_for_bit(name, folder):
    number = list(FUNCTIONS).index(name)
    for size in (1, 3):
        here, there = (np.load(folder / f"{number}.{size}{kind}.npy") for kind in ("here", "there"))
        np.testing.assert_array_equal(here, there)
        q = jnp.linspace(-1.0, 1.0, 2 * size).reshape(size, 2)
        np.testing.assert_allclose(there, FUNCTIONS[name](q), rtol=1e-9, atol=1e-12)


def test_the_same_function_is_machine_code_where_it_is_called():
    before = len(jaxdyn.lanes.records())
    jax.jit(FUNCTIONS["rollout"])(jnp.ones((5, 2)))
    assert {record.backend for record in jaxdyn.lanes.records()[before:]} == {"lanes"}
