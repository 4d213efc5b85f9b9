"""What XLA makes of a batch of forward dynamics: few kernels, and no calls of libraries that cost more than their work."""

import re

import jax
import jax.numpy as jnp
import pytest

import jaxdyn
from jaxdyn import library
from jaxdyn.spatial import factorizations

BATCH = 64


def accelerations(model: jaxdyn.Model, batch: int = BATCH):
    """Traced forward dynamics of a batch of float32 samples."""
    model = jaxdyn.as_dtype(model, jnp.float32)
    samples = [jax.ShapeDtypeStruct((batch, n), jnp.float32) for n in (model.nq, model.nv, model.nv)]
    with jaxdyn.backend("xla"):
        return jax.jit(jax.vmap(lambda q, v, tau: jaxdyn.forward_dynamics(model, q, v, tau))).trace(*samples)


def on(platform: str, traced) -> str:
    return traced.lower(lowering_platforms=(platform,)).as_text()


def solution_of(rows: int):
    matrices, right = jnp.ones((BATCH, rows, rows)), jnp.ones((BATCH, rows))
    solved = jax.vmap(lambda a, b: factorizations.cholesky_solve(factorizations.cholesky(a), b))
    return jax.jit(solved).trace(matrices, right)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 32])
def test_small_matrices_call_no_solver_on_accelerators(platform, rows):
    text = on(platform, solution_of(rows))
    assert "custom_call" not in text
    assert "stablehlo.cholesky" not in text
    assert "triangular_solve" not in text


def test_large_matrices_call_the_solver_of_the_device():
    """Which also shows that the search above sees one."""
    assert "custom_call" in on("cuda", solution_of(33))


def test_accelerations_on_a_cpu_are_few_operations_without_a_loop():
    """One loop over samples with calls of LAPACK took most of the time; operations of the compiled program are counted as a
    proxy of the rest, 104 with JAX 0.10.1."""
    program = accelerations(library.panda()).lower().compile().as_text()
    entry = program[program.index("ENTRY") :]
    operations = re.findall(r"^ +(?:ROOT )?\S+ = .*?[\]})] ([a-z-]+)\(", entry, re.MULTILINE)
    free = {"parameter", "constant", "bitcast", "get-tuple-element", "tuple"}
    assert "while" not in operations
    assert len([name for name in operations if name not in free]) <= 125
