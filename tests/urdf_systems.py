"""Random systems that hold everything that URDF with its <jaxdyn> element can say."""

import jax
import jax.numpy as jnp
import numpy as np
from random_trees import random_inertia, random_joint, random_parents, random_unit

from jaxdyn import (
    Coupling,
    Distance,
    JointDrives,
    JointFriction,
    JointSpring,
    LoopJoint,
    MechanismBuilder,
    Planar,
    System,
    configuration,
)
from jaxdyn.constraints.kinds import LOOP_KINDS
from jaxdyn.io.urdf.elements import across
from jaxdyn.spatial.transform import RigidTransform

OF_ONE_COORDINATE = "RP"


def same(actual: System, expected: System) -> None:
    """Equal leaf by leaf to 1e-12, and equal names and structure."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12, err_msg=jax.tree_util.keystr(path))


def random_system(seed: int, kinds: str) -> System:
    """A tree with joints of the given kinds (the first two of one coordinate), and everything that URDF and <jaxdyn> can say."""
    rng = np.random.default_rng(seed)
    builder = MechanismBuilder("a <b> & \"c\" 'd' é", rng.normal(size=3))
    names = [f"body {i} <&\"'>" for i in range(len(kinds))]
    for i, (parent, kind) in enumerate(zip(random_parents(rng, len(kinds)), kinds, strict=True)):
        normal = random_unit(rng)
        mass, scalar = rng.uniform(0.5, 2.0), kind in OF_ONE_COORDINATE
        com, inertia = random_inertia(rng, mass, 0.3)
        lower = rng.uniform(-2, 0)
        limits = [None, (lower, lower + 1.3), (lower, np.inf), (-np.inf, lower)][i % 4] if scalar else None
        builder.add_body(
            names[i],
            parent="ground" if parent < 0 else names[parent],
            joint=Planar(normal, across(normal)) if kind == "L" else random_joint(rng, kind),
            joint_name=f"joint {i} &",
            position=rng.normal(0.0, 0.3, 3),
            orientation=random_unit(rng, 4),
            mass=mass,
            com=com,
            inertia=inertia,
            armature=rng.uniform(0.05, 0.3) if scalar else 0.0,
            position_limits=limits,
            velocity_limit=rng.uniform(1, 2) if scalar and i % 2 else np.inf,
            effort_limit=rng.uniform(1, 2) if scalar and i % 3 else np.inf,
        )
    builder.add_frame("flange", body=names[1], position=rng.normal(size=3), orientation=random_unit(rng, 4))
    builder.add_frame("mark", body="ground", position=rng.normal(size=3), orientation=random_unit(rng, 4))
    model = builder.build()
    topology = model.topology

    viscous, coulomb, scale, stiffness = (np.zeros(model.nv) for _ in range(4))
    rest = np.asarray(configuration.neutral(model)).copy()
    for body, joint in enumerate(topology.joint_classes):
        v, q = int(topology.v_starts[body]), int(topology.q_starts[body])
        viscous[v : v + joint.nv], coulomb[v : v + joint.nv] = rng.uniform(0, 1, 2) if body % 3 else (0, 0)
        scale[v : v + joint.nv] = rng.uniform(0.01, 0.1)
        if joint.nv == 1:
            stiffness[v], rest[q] = rng.uniform(1, 5) if body % 2 else 0.0, rng.normal()
    drives = JointDrives(tuple(int(topology.v_starts[body]) for body in (1, 0)), rng.uniform(1, 100, 2))

    def marker():
        turn = random_unit(rng, 4)
        return RigidTransform(jnp.asarray(np.sign(turn[0]) * turn), jnp.asarray(rng.normal(size=3)))

    first, second = (int(topology.q_starts[body]) for body in (0, 1))
    constraints = [
        Coupling("joint 0 &", first, second, rng.normal(size=2)),  # a mimic joint
        Distance("rod <1>", -1, rng.normal(size=3), 1, rng.normal(size=3), jnp.asarray(0.7)),
        *(LoopJoint(f"{kind} &", kind, 0, marker(), 2, marker()) for kind in LOOP_KINDS),
        LoopJoint("in the ground", "fixed", 1, marker(), -1, marker()),
        Coupling("joint 1 &", second, first, rng.normal(size=2)),  # behind loops, so no mimic
        Coupling("gear", second, first, rng.normal(size=4)),
    ]
    forces = (JointFriction(viscous, coulomb, scale), JointSpring(stiffness, rest))
    return System(model, forces, drives, constraints=tuple(constraints))
