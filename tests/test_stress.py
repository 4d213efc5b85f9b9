"""Ten thousand random mechanisms are built, simulated and differentiated.

Every mechanism goes through the builder. Those of one structure are stacked and run as one batch, so that one compilation serves
some hundreds of them; half of the structures run in single precision. Without the option --exhaustive four of the sixteen
structures run, two of them in single precision, with 125 mechanisms each.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_structures import random_structure, random_system

from jaxdyn import (
    State,
    System,
    as_dtype,
    batched,
    rollout,
)
from jaxdyn.simulate.outcome import RolloutResult

# Bodies of each structure, and mechanisms of it: ten thousand in all.
SIZES = (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6, 7, 8)
COPIES = 625
FEW_COPIES = 125
ORDINARY = (3, 6, 9, 14)  # have every kind of joint, prescribed and fixed ones, rotors, forces and branches
STEPS = 20
DT = 1e-3
FLAGGED = 0.01  # share of a batch that may diverge; none did in the two largest structures


def stacked(systems: list[System]) -> System:
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *systems)


def random_states(rng: np.random.Generator, systems: System, copies: int) -> State:
    """Speeds of mm/s to m/s and more; every tenth mechanism is at rest, quaternions have any norm."""
    model = systems.model
    speed = 10.0 ** rng.uniform(-3.0, 0.5, (copies, 1)) * (rng.random((copies, 1)) < 0.9)
    return State(
        jnp.asarray(rng.normal(size=(copies, model.nq))), jnp.asarray(speed * rng.normal(size=(copies, model.nv)))
    )


def number_of_the_end(system: System, state: State) -> tuple[jax.Array, jax.Array]:
    """A function of the end state, and the code of the rollout."""
    end = rollout(system, state, dt=DT, steps=STEPS, save_every=STEPS)
    return jnp.sum(jnp.sin(end.final.q)) + jnp.sum(end.final.v), end.result


@pytest.mark.thorough
@pytest.mark.parametrize(
    "number", [k if k in ORDINARY else pytest.param(k, marks=pytest.mark.exhaustive) for k in range(len(SIZES))]
)
def test_random_mechanisms_are_built_simulated_and_differentiated(number, exhaustive):
    copies = COPIES if exhaustive else FEW_COPIES
    rng = np.random.default_rng([number, 20])
    structure = random_structure(rng, SIZES[number])
    systems = stacked([random_system(rng, structure) for _ in range(copies)])
    states = random_states(rng, systems, copies)
    systems, states = as_dtype((systems, states), (jnp.float64, jnp.float32)[number % 2])

    # By every number of the mechanism and by the initial state.
    derivatives = batched(jax.value_and_grad(number_of_the_end, argnums=(0, 1), has_aux=True))
    (values, results), gradients = derivatives(systems, states)

    healthy = np.asarray(results) == RolloutResult.SUCCESSFUL

    assert np.mean(~healthy) <= FLAGGED
    for path, numbers in jax.tree_util.tree_leaves_with_path((values, gradients)):
        assert np.all(np.isfinite(np.asarray(numbers)[healthy])), jax.tree_util.keystr(path)
