"""Problems that differ in values share one compiled search."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import no_compilation

import jaxdyn
from jaxdyn import control
from jaxdyn.compute.constant import separated

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
    first = control.solve(problem(0), solver)  # at rest at q = 0
    with no_compilation():
        found = [control.solve(problem(k), solver) for k in range(values)]
    costs = np.array([float(one.cost) for one in found])
    assert costs[0] == float(first.cost)
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


def test_an_array_that_has_changed_is_an_argument_from_then_on():
    """Zeros and infinities are structure; an array with zeros only until another tree of its structure differs there."""

    def tree(axis, bound=jnp.inf, dtype=float):
        values = {"mass": 2.0, "axis": axis, "bound": bound, "goal": [0.0]}
        return {"tree of this test": {name: jnp.asarray(x, dtype) for name, x in values.items()}}

    def arguments(given):
        structure, found = separated(given, lambda tree: tree["tree of this test"]["goal"])
        for joined, leaf in zip(jax.tree.leaves(structure.joined(found)), jax.tree.leaves(given), strict=True):
            np.testing.assert_array_equal(joined, leaf)
        return structure, len(found)

    first, count = arguments(tree([1.0, 0.0]))
    assert count == 2  # mass and goal
    assert arguments(tree([1.0, 0.0])) == (first, 2)
    second, count = arguments(tree([0.0, 1.0]))
    assert count == 3
    assert arguments(tree([1.0, 0.0])) == (second, 3)
    assert arguments(tree([1.0, 0.0], -jnp.inf))[1] == 3
    assert arguments(tree([1.0, 0.0], dtype=jnp.float32))[1] == 2  # another type: only the values of this tree decide


def test_arrays_of_numpy_may_change_in_place():
    held = np.array([1.0, 0.0])
    before, _ = separated({"held": held})
    held[1] = 3.0
    after, found = separated({"held": held})
    assert before.value["held"][1] == 0.0
    assert before != after
    np.testing.assert_array_equal(after.joined(found)["held"], [1.0, 3.0])
