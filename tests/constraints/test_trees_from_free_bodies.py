"""Every open tree moves as the same bodies set free and tied together again by loop joints, whatever forces act on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import random_inertia, random_unit
from scipy.spatial.transform import Rotation

import jaxdyn
from jaxdyn import (
    AppliedForce,
    Cylindrical,
    Damper,
    Fixed,
    Free,
    LoopJoint,
    MechanismBuilder,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    Spring,
    State,
    System,
    Universal,
)
from jaxdyn.spatial.transform import RigidTransform

# Shapes are checked by the tests of the functions themselves; here the checks would take a third of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

# (parent, kind of joint) of each body, parent -1 the ground: three trees beside one another, which JAX compiles at once.
FOREST = [
    *[(-1, "revolute"), (0, "universal"), (0, "prismatic"), (1, "spherical"), (2, "cylindrical")],
    *[(-1, "planar"), (5, "fixed"), (6, "revolute"), (5, "cylindrical")],
    *[(-1, "free"), (9, "planar"), (9, "universal"), (11, "fixed")],
]
BODIES = len(FOREST)


def joint_with_turn(rng, kind: str):
    """A joint on random axes, and the axes x, y, z of `LoopJoint` on its own, as columns."""
    x, y, z = axes = Rotation.from_quat(random_unit(rng, 4)).as_matrix().T
    joint = {
        "revolute": lambda: Revolute(z),
        "prismatic": lambda: Prismatic(z),
        "cylindrical": lambda: Cylindrical(z),
        "universal": lambda: Universal(x, y),
        "planar": lambda: Planar(z, x),
        "spherical": Spherical,
        "free": Free,
        "fixed": Fixed,
    }[kind]()
    return joint, Rotation.from_matrix(axes.T)


def frame(turn: Rotation, position) -> RigidTransform:
    return RigidTransform(jnp.asarray(turn.as_quat(scalar_first=True)), jnp.asarray(position))


def trees_and_free_bodies(seed: int) -> tuple[System, System]:
    """The same bodies with joints, and free with loop joints. Springs, dampers and forces act on both."""
    rng = np.random.default_rng(seed)
    gravity = rng.normal(size=3) * 10.0
    tree, free, loops = MechanismBuilder("tree", gravity), MechanismBuilder("free bodies", gravity), []
    for i, (parent, kind) in enumerate(FOREST):
        joint, turn = joint_with_turn(rng, kind)
        position, orientation = rng.normal(0.0, 0.5, 3), Rotation.from_quat(random_unit(rng, 4))
        mass = rng.uniform(0.5, 2.0)
        com, inertia = random_inertia(rng, mass, 0.3)
        numbers = {"mass": mass, "com": com, "inertia": inertia}
        place = {"position": position, "orientation": orientation.as_quat(scalar_first=True)}
        tree.add_body(str(i), parent="ground" if parent < 0 else str(parent), joint=joint, **place, **numbers)
        free.add_body(str(i), joint=Free(), **numbers)
        if kind != "free":
            ends = frame(orientation * turn, position), frame(turn, np.zeros(3))
            loops.append(LoopJoint(f"joint {i}", kind, parent, ends[0], i, ends[1]))

    def forces(model):
        one, other = model.locate("4", (0.1, 0.2, -0.3)), model.locate("12", (-0.2, 0.1, 0.1))
        return (
            Spring(*one, *other, 30.0, 0.2),
            Spring(*model.locate("ground", (1.0, 0.0, 0.5)), *other, 20.0, 0.0),
            Damper(*model.locate("6", (0.0, 0.0, 0.2)), *other, 3.0),
            AppliedForce(*other, (5.0, -3.0, 2.0), (1.0, 0.5, -1.0), False),
            AppliedForce(*model.locate("8", (0.3, 0.1, 0.0)), (2.0, 4.0, -6.0), (0.5, 1.0, 1.5), True),
        )

    built = tree.build(), free.build()
    return System(built[0], forces(built[0])), System(
        built[1], forces(built[1]), constraints=tuple(loops), stabilization=0.0
    )


def pose_of_bodies(model, q):
    """Placements of all bodies, of those also that a fixed joint has merged with others."""
    located = [model.locate_frame(str(i), RigidTransform.identity()) for i in range(BODIES)]
    carriers = np.array([carrier for carrier, _ in located])
    at = jax.tree.map(lambda *rows: jnp.stack(rows), *(placed for _, placed in located))
    moving = jax.tree.map(lambda x: x[carriers], jaxdyn.forward_kinematics(model, q))
    return jax.vmap(RigidTransform.compose)(moving, at)


def as_free_bodies(model, q, v):
    """Coordinates and velocities of the free bodies at a motion of the tree."""
    rate = jaxdyn.configuration.coordinate_rate(model, q, v)

    def placed(q):
        X = pose_of_bodies(model, q)
        return X, X.rotation

    (X, R), (moved, R_rate) = jax.jvp(placed, (q,), (rate,))
    spin = jnp.einsum("bji,bjk->bik", R, R_rate)
    twists = [spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0], *jnp.einsum("bji,bj->ib", R, moved.translation)]
    return jnp.concatenate([X.translation, X.quaternion], 1).ravel(), jnp.stack(twists, 1).ravel()


@pytest.mark.thorough
def test_trees_move_as_free_bodies_tied_by_loop_joints():
    @jax.jit
    def compared(trees, tied, q, v):
        rate = jaxdyn.configuration.coordinate_rate(trees.model, q, v)
        a = jaxdyn.acceleration(trees, State(q, v))
        (their_q, their_v), (_, expected) = jax.jvp(lambda q, v: as_free_bodies(trees.model, q, v), (q, v), (rate, a))
        return jaxdyn.acceleration(tied, State(their_q, their_v)), expected

    for seed in range(4):
        trees, tied = trees_and_free_bodies(seed)
        rng = np.random.default_rng(seed)
        q, v = (jnp.asarray(rng.normal(size=n)) for n in (trees.model.nq, trees.model.nv))
        actual, expected = compared(trees, tied, q, v)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
