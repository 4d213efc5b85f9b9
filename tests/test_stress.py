"""Ten thousand random mechanisms are built, simulated and differentiated, and some hundreds that cannot be are refused.

Every mechanism goes through the builder. Those of one structure are stacked and run as one batch, so that one compilation serves
some hundreds of them; half of the structures run in single precision. Without the option --exhaustive four of the sixteen
structures run, two of them in single precision, with 125 mechanisms each.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_structures import random_description, random_structure, random_system

from jaxdyn import (
    Fixed,
    MechanismError,
    Revolute,
    State,
    System,
    Universal,
    UnknownName,
    as_dtype,
    batched,
    rollout,
)
from jaxdyn.simulate.outcome import RolloutResult

SIZES = (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6, 7, 8)
COPIES = 625
FEW_COPIES = 125
ORDINARY = (3, 6, 9, 14)  # have every kind of joint, prescribed and fixed ones, rotors, forces and branches
STEPS = 20
DT = 1e-3
FLAGGED = 0.01  # share of a batch that may diverge; none did in the two largest structures


def test_they_are_ten_thousand():
    assert len(SIZES) * COPIES == 10_000


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


NAN = float("nan")
# What is told wrongly of one body: name -> what replaces entries of it.
WRONG_BODIES = {
    "negative mass": lambda body: {"mass": -body["mass"]},
    "mass that is no number": lambda body: {"mass": "1 kg"},
    "infinite mass": lambda body: {"mass": float("inf")},
    "inertia that breaks the triangle inequality": lambda body: {"inertia": body["mass"] * np.array([1.0, 1.0, 3.0])},
    "inertia with a negative moment": lambda body: {"inertia": -body["inertia"]},
    "inertia without symmetry": lambda body: {"inertia": body["inertia"] + body["mass"] * np.eye(3, k=1)},
    "inertia of five numbers": lambda body: {"inertia": np.ones(5)},
    "inertia without mass": lambda body: {"mass": 0.0},
    "inertia that is not finite": lambda body: {"inertia": np.full(6, NAN)},
    "mass center in a plane": lambda body: {"com": (0.0, 0.0)},
    "position that is not finite": lambda body: {"position": (0.0, NAN, 0.0)},
    "ragged position": lambda body: {"position": ((0.0, 1.0), 2.0)},
    "quaternion of norm two": lambda body: {"orientation": (2.0, 0.0, 0.0, 0.0)},
    "reflection": lambda body: {"orientation": -np.eye(3)},
    "unknown parent": lambda body: {"parent": "nobody"},
    "parent that is the body itself": lambda body: {"parent": body["name"]},
    "parent that is no name": lambda body: {"parent": 3},
    "name of the ground": lambda body: {"name": "ground"},
    "name of the frame": lambda body: {"name": "tip"},
    "joint that is none": lambda body: {"joint": "revolute"},
    "axis of length two": lambda body: {"joint": Revolute((0.0, 0.0, 2.0))},
    "axis of no length": lambda body: {"joint": Revolute((0.0, 0.0, 0.0))},
    "axis of two numbers": lambda body: {"joint": Revolute((0.0, 1.0))},
    "parallel axes": lambda body: {"joint": Universal((0.0, 0.0, 1.0), (0.0, 0.0, -1.0))},
    "negative armature": lambda body: {"joint": Revolute((0.0, 0.0, 1.0)), "armature": -1.0},
    "limits that leave no room": lambda body: {"joint": Revolute((0.0, 0.0, 1.0)), "position_limits": (1.0, -1.0)},
    "limit that is no number": lambda body: {"joint": Revolute((0.0, 0.0, 1.0)), "velocity_limit": NAN},
}
# What is told wrongly of the whole: name -> change of a description.
WRONG_WHOLES = {
    "two bodies of one name": lambda told: told.bodies.append(told.bodies[0]),
    "two frames of one name": lambda told: told.frames.append(told.frames[0]),
    "frame on an unknown body": lambda told: told.frames.append({"name": "other", "body": "nobody"}),
    "two joints of one name": lambda told: [
        told.bodies.append({"name": name, "joint": Fixed(), "joint_name": "same"}) for name in ("one", "other")
    ],
    "cycle": lambda told: [
        told.bodies.append({"name": a, "parent": b, "joint": Fixed()}) for a, b in (("one", "other"), ("other", "one"))
    ],
    "leaf without mass": lambda told: told.bodies.append({"name": "leaf", "joint": Revolute((0.0, 0.0, 1.0))}),
    "rotor of an unknown joint": lambda told: told.rotors.append(
        {"name": "other", "carrier": "ground", "joint": "nobody", "inertia": 1.0, "ratio": 1.0}
    ),
    "rotor without inertia": lambda told: told.rotors.append(
        {"name": "other", "carrier": "ground", "joint": told.bodies[0]["name"], "inertia": 0.0, "ratio": 1.0}
    ),
    "nothing that moves": lambda told: [body.update(joint=Fixed()) for body in told.bodies],
}


@pytest.mark.parametrize("wrong", [*WRONG_BODIES, *WRONG_WHOLES])
def test_mechanisms_that_cannot_be_are_refused(wrong, as_a_user, exhaustive):
    for seed in range(10 if exhaustive else 3):
        rng = np.random.default_rng([seed, 21])
        told, _, _ = random_description(rng, random_structure(rng, int(rng.integers(1, 9))))
        told.builder().build()
        if wrong in WRONG_BODIES:
            body = told.bodies[rng.integers(len(told.bodies))]
            for limit in ("position_limits", "velocity_limit", "effort_limit"):
                body.pop(limit, None)
            body.update(WRONG_BODIES[wrong](body))
        else:
            WRONG_WHOLES[wrong](told)
        with pytest.raises((MechanismError, UnknownName)):
            told.builder().build()
