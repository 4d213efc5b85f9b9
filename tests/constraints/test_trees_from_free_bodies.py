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

pytestmark = pytest.mark.usefixtures("fast_compilation")

# (parent, kind of joint) of each body; parent -1 is the ground.
TREES = {
    "branched": [(-1, "revolute"), (0, "universal"), (0, "prismatic"), (1, "spherical"), (2, "cylindrical")],
    "two roots": [(-1, "planar"), (0, "fixed"), (1, "cylindrical"), (-1, "free"), (3, "prismatic")],
    "on a free body": [(-1, "free"), (0, "planar"), (0, "revolute"), (2, "universal"), (3, "fixed")],
    "on the ground": [(-1, "fixed"), (0, "spherical"), (1, "planar"), (-1, "universal")],
}


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


def tree_and_free_bodies(name: str, seed: int) -> tuple[System, System]:
    """The same bodies with joints, and free with loop joints. Springs, dampers and forces act on both."""
    rng = np.random.default_rng(seed)
    gravity = rng.normal(size=3) * 10.0
    tree, free, loops = MechanismBuilder("tree", gravity), MechanismBuilder("free bodies", gravity), []
    for i, (parent, kind) in enumerate(TREES[name]):
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
        last = str(len(TREES[name]) - 1)
        one, other = model.locate("1", (0.1, 0.2, -0.3)), model.locate(last, (-0.2, 0.1, 0.1))
        return (
            Spring(*one, *other, 30.0, 0.2),
            Spring(*model.locate("ground", (1.0, 0.0, 0.5)), *other, 20.0, 0.0),
            Damper(*model.locate("0", (0.0, 0.0, 0.2)), *other, 3.0),
            AppliedForce(*other, (5.0, -3.0, 2.0), (1.0, 0.5, -1.0), False),
            AppliedForce(*model.locate("2", (0.3, 0.1, 0.0)), (2.0, 4.0, -6.0), (0.5, 1.0, 1.5), True),
        )

    built = tree.build(), free.build()
    return System(built[0], forces(built[0])), System(
        built[1], forces(built[1]), constraints=tuple(loops), stabilization=0.0
    )


def pose_of_bodies(model, bodies: int, q):
    """Placements of all bodies, of those also that a fixed joint has merged with others."""
    moving = jaxdyn.forward_kinematics(model, q)
    names = model.topology.body_names
    return jax.tree.map(
        lambda *rows: jnp.stack(rows),
        *(
            jax.tree.map(lambda x, i=i: x[names.index(str(i))], moving)
            if str(i) in names
            else jaxdyn.frame_placement(model, q, str(i))
            for i in range(bodies)
        ),
    )


def as_free_bodies(model, bodies: int, q, v):
    """Coordinates and velocities of the free bodies at a motion of the tree."""
    rate = jaxdyn.configuration.coordinate_rate(model, q, v)

    def placed(q):
        X = pose_of_bodies(model, bodies, q)
        return X, X.rotation

    (X, R), (moved, R_rate) = jax.jvp(placed, (q,), (rate,))
    spin = jnp.einsum("bji,bjk->bik", R, R_rate)
    twists = [spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0], *jnp.einsum("bji,bj->ib", R, moved.translation)]
    return jnp.concatenate([X.translation, X.quaternion], 1).ravel(), jnp.stack(twists, 1).ravel()


@pytest.mark.parametrize("name", TREES)
def test_trees_move_as_free_bodies_tied_by_loop_joints(name):
    bodies = len(TREES[name])

    @jax.jit
    def compared(tree, tied, q, v):
        rate = jaxdyn.configuration.coordinate_rate(tree.model, q, v)
        a = jaxdyn.acceleration(tree, State(q, v))
        (their_q, their_v), (_, expected) = jax.jvp(
            lambda q, v: as_free_bodies(tree.model, bodies, q, v), (q, v), (rate, a)
        )
        return jaxdyn.acceleration(tied, State(their_q, their_v)), expected

    for seed in range(4):
        tree, tied = tree_and_free_bodies(name, seed)
        rng = np.random.default_rng(seed)
        q, v = (jnp.asarray(rng.normal(size=n)) for n in (tree.model.nq, tree.model.nv))
        actual, expected = compared(tree, tied, q, v)
        print(name, np.abs(actual-expected).max(), np.abs(expected).max())
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
