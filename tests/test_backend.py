"""One switch chooses the compiler of all functions."""

import os
import re
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import compute, control

SYSTEM = jaxdyn.library.system("double_pendulum")
STATE = jaxdyn.State(jnp.array([0.3, -0.2]), jnp.array([0.1, 0.4]))


def served(function, *args) -> set[str]:
    """The backends of the programs that a call makes."""
    before = len(jaxdyn.lanes.records())
    function(*args)
    return {record.backend for record in jaxdyn.lanes.records()[before:]}


def end(x):
    return jaxdyn.rollout(SYSTEM, jaxdyn.State(x, STATE.v), dt=1e-3, steps=3)


def test_the_context_concerns_functions_rollouts_batches_and_gradients_and_ends():
    function = jax.jit(jax.vmap(compute.per_sample(lambda q: jaxdyn.mass_matrix(SYSTEM.model, q) * 1.25)))
    for name in ("lanes", "xla", "auto"):
        with jaxdyn.backend(name):
            assert compute.chosen_backend() == name
            assert end(STATE.q).backend == ("xla" if name == "xla" else "lanes")
            gradient = jax.vmap(jax.grad(lambda q: jnp.sum(end(q).final.q)))
            assert ("lane_call" in str(jax.make_jaxpr(gradient)(STATE.q[None]))) == (name != "xla")
            # `jax.jit` traces one function once for each backend.
            assert served(function, jnp.ones((3, 2))) == (set() if name == "xla" else {"lanes"})
            assert served(function, jnp.ones((3, 2))) == set()
    assert compute.chosen_backend() == "auto"


def test_an_argument_replaces_the_context_and_an_inner_context_the_outer_one():
    with jaxdyn.backend("xla"):
        assert jaxdyn.rollout(SYSTEM, STATE, dt=1e-3, steps=2, backend="lanes").backend == "lanes"
        assert "lane_call" in str(jax.make_jaxpr(jaxdyn.batched(jnp.sin, backend="lanes"))(jnp.ones(3)))
        with jaxdyn.backend("lanes"):
            assert end(STATE.q).backend == "lanes"
        with jaxdyn.backend(None):
            assert end(STATE.q).backend == "xla"
        assert end(STATE.q).backend == "xla"


def test_all_that_a_function_calls_is_compiled_as_the_function():
    def outer(x):
        return compute.per_sample(lambda y: jnp.sin(y))(x)

    def calls(backend):
        return "lane_call" in str(jax.make_jaxpr(jax.vmap(compute.per_sample(outer, backend=backend)))(jnp.ones(3)))

    assert calls("lanes")
    assert not calls("xla")


def test_both_backends_solve_a_problem_alike():
    dynamics = control.MultibodyDynamics(jaxdyn.library.system("cart_pole"))
    start = dynamics.system.at_rest(jnp.array([0.0, 3.0]))
    problem = control.ControlProblem(dynamics, start, duration=0.5, steps=10, running=control.Effort(1.0))
    costs = []
    for name in ("lanes", "xla"):
        with jaxdyn.backend(name):
            costs.append(
                control.solve(problem, control.ILQR(), control.guess.rest(problem), max_steps=2, throw=False).cost
            )
    np.testing.assert_allclose(costs[0], costs[1], rtol=1e-9)


def test_a_context_ends_with_an_error_and_concerns_its_thread_alone():
    with pytest.raises(KeyError), jaxdyn.backend("xla"):
        raise KeyError("mine")
    seen = []
    with jaxdyn.backend("xla"):
        thread = threading.Thread(target=lambda: seen.append(compute.chosen_backend()))
        thread.start()
        thread.join()
    assert [*seen, compute.chosen_backend()] == ["auto", "auto"]


def test_traces_for_xla_have_no_operations_of_this_library_or_of_single_platforms():
    """Exporters to other formats do not know them."""
    panda = jaxdyn.library.panda()
    with jaxdyn.backend("xla"):
        traced = jax.make_jaxpr(lambda q: jaxdyn.forward_dynamics(panda, q, q, q))(jnp.ones(7))
        rolled = jax.make_jaxpr(lambda q: end(q).final.q)(STATE.q)
    names = {name for x in (traced, rolled) for name in re.findall(r" = (\w+)", str(x))}
    assert "scan" in names
    assert not {name for name in names if name.startswith(("lane", "machine", "platform"))}


def test_unknown_backends_are_refused(as_a_user):
    with (
        pytest.raises(ValueError, match="no backend 'gpu'; use one of auto, lanes, xla"),
        jaxdyn.backend("gpu"),
    ):
        pass


@pytest.mark.parametrize(("name", "expected"), [("xla", "xla"), ("gpu", "no JAXDYN_BACKEND 'gpu'; use one of auto")])
def test_the_environment_states_the_backend_of_a_process(name, expected):
    code = "import jaxdyn; print(jaxdyn.compute.chosen_backend())"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "JAXDYN_BACKEND": name}
    )
    assert expected in (run.stdout or run.stderr.splitlines()[-1])
