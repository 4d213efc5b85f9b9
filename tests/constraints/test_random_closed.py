"""Random configurations of closed mechanisms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import Distance, System, library
from jaxdyn.constraints import AssemblyResult, constraint_errors, random_closed
from jaxdyn.results import UnsuccessfulError

KEYS = jax.random.split(jax.random.key(5), 4)


def test_random_closed_configurations_are_closed_and_differ():
    system = library.four_bar()
    found = jax.vmap(lambda key: random_closed(system, key))(KEYS)
    assert np.all(found.closed)
    assert len(np.unique(np.asarray(found.q)[:, 0])) == len(KEYS)
    for q in found.q:
        np.testing.assert_allclose(constraint_errors(system, system.at_rest(q)).residual, 0.0, atol=1e-7)


def test_a_single_one_is_compiled_by_the_lane_compiler():  # XLA needs ten times as long
    assert random_closed(library.four_bar(), KEYS[0]).closed
    assert any((x.name, x.backend) == ("random_closed", "lanes") for x in jaxdyn.lanes.records())


def test_what_cannot_close_says_so_and_comes_as_close_as_it_can():
    system = library.four_bar()
    apart = Distance("apart", 0, jnp.zeros(3), -1, jnp.array([0.0, 0.0, 50.0]), 1.0)
    torn = dataclasses.replace(system, constraints=(*system.constraints, apart))
    found = random_closed(torn, KEYS[0], tries=3, throw=False)
    assert not found.closed
    assert found.residual > 1.0
    assert found.result == AssemblyResult.NOT_CLOSED
    assert found.stats.residual == found.residual
    with pytest.raises(UnsuccessfulError, match=r"NOT_CLOSED: .* start from another configuration"):
        random_closed(torn, KEYS[0], tries=3)


def test_an_assembly_that_closes_has_the_names_of_other_results_and_raises_nothing():
    system = library.four_bar()
    found = jaxdyn.assemble(system, system.at_rest(jnp.array([0.4, 0.0, 0.0])), held=(0,))
    assert found.result == AssemblyResult.SUCCESSFUL
    np.testing.assert_array_equal(found.value, found.q)
    assert int(found.stats.mobility) == 1


def test_without_constraints_it_is_a_random_configuration():
    system = System(library.panda())
    expected = jaxdyn.configuration.random(system.model, KEYS[0], spread=0.3)
    np.testing.assert_array_equal(random_closed(system, KEYS[0], spread=0.3).q, expected)
