"""Problems that differ in values share one compiled search."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import no_compilation

import jaxdyn
from jaxdyn import control

SYSTEM = jaxdyn.library.system("pendulum")


def problem(k: int) -> control.ControlProblem:
    """A pendulum whose mass, start, duration, weight and bound depend on k; every tenth one starts at rest at q = 0."""
    system = eqx.tree_at(lambda s: s.model.mass, SYSTEM, SYSTEM.model.mass * (1.1 + 0.001 * k))
    start = jaxdyn.State(jnp.array([0.01 * (k % 10)]), jnp.array([0.02 * (k % 10)]))
    return control.ControlProblem(
        control.MultibodyDynamics(system),
        start,
        duration=0.5 + 0.001 * k,
        steps=10,
        running=control.Effort(0.5 + 0.01 * k),
        final=control.Deviation(system.at_rest(jnp.array([0.3])), 2.0),
        upper=20.0 + k,
    )


@pytest.mark.parametrize(
    ("solver", "values"), [(control.ILQR(), 100), (control.MultipleShooting(), 10)], ids=["ilqr", "shooting"]
)
def test_values_are_arguments_of_the_search(solver, values):
    first = control.solve(problem(1), solver)
    with no_compilation():
        found = [control.solve(problem(k), solver) for k in range(values)]
    costs = np.array([float(one.cost) for one in found])
    assert costs[1] == float(first.cost)
    assert len(np.unique(costs)) == values
    again = control.solve(problem(values - 1), solver, found[0].value)
    np.testing.assert_allclose(float(again.cost), costs[-1], rtol=1e-6)  # of another guess


def test_values_are_arguments_of_a_batch_of_searches():
    keys = jax.random.split(jax.random.key(0), 2)
    guesses = jax.jit(jax.vmap(lambda key: control.guess.random(problem(1), key)))(keys)

    def found(k):
        return control.solve_batch(problem(k), control.ILQR(), guesses, progress=False).cost

    found(1)
    with no_compilation():
        costs = np.array([found(k) for k in (2, 3)])
    single = control.solve(problem(3), control.ILQR())
    np.testing.assert_allclose(costs[1], float(single.cost), rtol=1e-6)
