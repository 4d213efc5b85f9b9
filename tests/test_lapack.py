"""Batches of factorizations on CPUs: no program hands one to LAPACK in a single call, which can block all threads of XLA."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import regulator, start_of
from recorded import STEP, double_pendulum_plant, simulated

import jaxdyn
from jaxdyn import ImplicitMidpoint, SemiImplicitEuler, State, Variational, control, identify, library
from jaxdyn.spatial import elementary, factorizations

PACKAGE = Path(jaxdyn.__file__).parent
BATCH = 3


# ---------------------------------------------------------------- one module factorizes


def calls_of_linalg(source: str) -> set[str]:
    """Functions of the `linalg` modules of JAX that a source file names; norms factorize nothing."""
    attributes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    names = {ast.unparse(node) for node in attributes}
    of_jax = re.compile(r"(jnp|jax\.numpy|jax\.scipy|jax\.lax|lax)\.linalg\.(?!norm$)\w+$")
    return {name for name in names if of_jax.match(name)}


def test_the_search_for_linalg_sees_it():
    assert calls_of_linalg("x = jnp.linalg.solve(a, b)\ny = jax.scipy.linalg.cho_solve(a, b)") == {
        "jnp.linalg.solve",
        "jax.scipy.linalg.cho_solve",
    }
    assert calls_of_linalg("np.linalg.solve(a, jnp.linalg.norm(b))") == set()


def test_all_of_jaxdyn_factorizes_through_one_module():
    sources = {path: path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "factorizations.py"}
    found = {str(path): calls for path, text in sources.items() if (calls := calls_of_linalg(text))}
    assert not found, f"{found}: use jaxdyn.spatial.factorizations, whose batches are safe on CPUs"


# ---------------------------------------------------------------- what is lowered


def lapack_calls(function, *args) -> list[str]:
    """LAPACK calls of the program that a function becomes on CPUs, each as its name and the type of its first operand."""
    dynamic, static = eqx.partition(args, eqx.is_array)
    lowered = jax.jit(lambda dynamic: eqx.filter(function(*eqx.combine(dynamic, static)), eqx.is_array))
    text = lowered.trace(dynamic).lower(lowering_platforms=("cpu",)).as_text()
    return [
        " ".join(call) for call in re.findall(r"custom_call @(lapack_\w+)\(.*?\) .*?: \(tensor<([\dx]+)xf\d+>", text)
    ]


def with_a_batch(calls: list[str]) -> list[str]:
    return [call for call in calls if call.count("x") > 1]


def batch_of(tree):
    """Equal samples."""
    return jax.tree.map(lambda x: jnp.stack([x] * BATCH) if eqx.is_array(x) else x, tree)


def test_the_search_for_batched_calls_sees_those_of_jax():
    matrices, right = batch_of(jnp.identity(4)), jnp.ones((BATCH, 4))
    for function, args in (
        (jnp.linalg.cholesky, (matrices,)),
        (jax.vmap(jnp.linalg.solve), (matrices, right)),
        (jnp.linalg.qr, (matrices,)),
        (jnp.linalg.eigh, (matrices,)),
    ):
        assert with_a_batch(lapack_calls(function, *args))
    assert lapack_calls(jnp.linalg.cholesky, matrices[0]) == ["lapack_dpotrf_ffi 4x4"]


def end(system, state, **options):
    return jaxdyn.rollout(system, state, dt=1e-3, steps=2, backend="xla", **options).final


def moving(name: str):
    system = library.system(name)
    system = eqx.tree_at(lambda s: s.drives, system, None, is_leaf=lambda x: x is None)
    return system, State(jnp.linspace(0.1, 0.7, system.model.nq), jnp.zeros(system.model.nv))


def rolled(name: str, integrator=None):
    system, state = moving(name)
    return jax.vmap(lambda state: end(system, state, integrator=integrator or SemiImplicitEuler())), [batch_of(state)]


def gradient(name: str):
    system, state = moving(name)
    return jax.vmap(jax.grad(lambda state: jnp.sum(end(system, state).v))), [batch_of(state)]


def accelerations(method: str):
    system, state = moving("panda")

    def of(state):
        return jaxdyn.forward_dynamics(system.model, state.q, state.v, state.v, method=method)

    return jax.vmap(of), [batch_of(state)]


def run_iterations(solver, problem):
    def run(plan):
        return solver.solution(problem, solver.step(problem, solver.init(problem, plan))).value

    return jax.vmap(run), [batch_of(start_of(problem))]


def fitted():
    """The masses of a double pendulum from several starts."""
    plant = double_pendulum_plant()
    windows = identify.cut([simulated(plant, 0.5, 1)], duration=0.2, interval=STEP, first=0.05, lead=0.05)
    free = [identify.Parameter("system.model.mass", chart=identify.Positive())]
    problem = identify.OutputError(identify.Parameters(plant, free), windows)
    solver = identify.LevenbergMarquardt(1e-8)
    return jax.vmap(lambda initial: solver.step(problem, solver.init(problem, initial))), [batch_of(problem.initial)]


def several_experiments():
    Y, tau = jnp.asarray(np.random.default_rng(0).normal(size=(BATCH, 9, 2, 3))), jnp.ones((BATCH, 9, 2))
    return jax.vmap(identify.reweighted_least_squares), [Y, tau]


PROGRAMS = {
    "accelerations": lambda: accelerations("cholesky"),
    "rollout within a loop": lambda: rolled("four_bar"),
    "implicit midpoint": lambda: rolled("cart_pole", ImplicitMidpoint()),
    "multiple shooting": lambda: run_iterations(control.MultipleShooting(), regulator(lower=-4.0, upper=4.0)),
    "fits of several experiments": several_experiments,
}
MORE_PROGRAMS = {
    "accelerations, contravariant": lambda: accelerations("contravariant"),
    "gradient of a rollout within a loop": lambda: gradient("four_bar"),
    "variational": lambda: rolled("cart_pole", Variational()),
    "ILQR": lambda: run_iterations(control.ILQR(), regulator(lower=-4.0, upper=4.0)),
    "parallel multiple shooting": lambda: run_iterations(control.MultipleShooting(parallel=True), regulator()),
    "fit from several starts": fitted,
}


@pytest.mark.parametrize(
    "program",
    [
        *(pytest.param(program, id=name) for name, program in PROGRAMS.items()),
        *(pytest.param(program, id=name, marks=pytest.mark.exhaustive) for name, program in MORE_PROGRAMS.items()),
    ],
)
@pytest.mark.usefixtures("by_xla")
def test_no_program_calls_lapack_with_a_batch(program):
    function, args = program()
    assert with_a_batch(lapack_calls(function, *args)) == []


def test_batches_of_many_rows_call_lapack_and_those_of_few_do_not():
    def solved(a, b):
        return factorizations.cholesky_solve(factorizations.cholesky(a), b)

    def calls(rows):
        return lapack_calls(jax.vmap(solved), batch_of(jnp.identity(rows)), jnp.ones((BATCH, rows)))

    most = elementary.MOST_WRITTEN_OUT
    assert calls(most) == []
    rows = most + 1
    assert calls(rows) == [f"lapack_dpotrf_ffi {rows}x{rows}", *[f"lapack_dtrsm_ffi {rows}x{rows}"] * 2]


# ---------------------------------------------------------------- threads


SIDE_BY_SIDE = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])  # XLA starts a thread for each of these
import jax, jax.numpy as jnp, numpy as np
from jaxdyn.spatial.factorizations import solve_triangular

@jax.jit
@jax.vmap
def solved(matrix, right):
    return sum(solve_triangular(k * matrix, right, lower=True) for k in range(1, 5))

matrices, right = jnp.asarray(np.tile(np.tri(16, dtype=np.float32), (256, 1, 1))), jnp.ones((256, 16))
results = [solved(matrices, right) for _ in range(50)]  # none is waited for, so several run at once
np.testing.assert_allclose(results[-1][:, 0], 1 + 1 / 2 + 1 / 3 + 1 / 4, rtol=1e-6)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot bind a process to cores")
@pytest.mark.parametrize("cores", [1, 2])
def test_batches_side_by_side_end_on_few_cores(cores):
    subprocess.run([sys.executable, "-c", SIDE_BY_SIDE, str(cores)], check=True, timeout=300)
