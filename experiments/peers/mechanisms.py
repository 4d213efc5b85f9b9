"""The mechanisms of the benchmarks: chains and one tree of random cuboids on hinges, always the same."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import jaxdyn

_LIMBS = (6, 6, 7, 7)  # two legs and two arms on a waist: 27 hinges


def mechanism(name: str, dtype: str) -> jaxdyn.Model:
    """The mechanism "chain N" or "tree 27"."""
    kind, bodies = name.split()
    if kind == "chain":
        return hinged(name, [i - 1 for i in range(int(bodies))], dtype)
    parents = [-1]
    for limb in _LIMBS:
        first = len(parents)
        parents += [0, *range(first, first + limb - 1)]
    return hinged(name, parents, dtype)


def hinged(name: str, parents: Sequence[int], dtype: str) -> jaxdyn.Model:
    """Random cuboids that turn about the z axes of their joint frames.

    Args:
        parents: Parent of each body, before it; -1 is the ground.
    """
    rng = np.random.default_rng(len(parents))
    builder = jaxdyn.MechanismBuilder(name)
    for i, parent in enumerate(parents):
        mass, sides = rng.uniform(0.5, 2.0), rng.uniform(0.1, 0.3, 3)
        axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        orientation = rng.normal(size=4)
        builder.add_body(
            f"body{i}",
            parent="ground" if parent < 0 else f"body{parent}",
            joint=jaxdyn.Revolute((0, 0, 1)),
            position=rng.uniform(-0.2, 0.2, 3),
            orientation=orientation / np.linalg.norm(orientation),
            mass=mass,
            com=rng.uniform(-0.1, 0.1, 3),
            inertia=axes @ np.diag(mass / 12 * (np.sum(sides**2) - sides**2)) @ axes.T,
        )
    return builder.build(dtype=dtype)


def described(model: jaxdyn.Model) -> dict[str, Any]:
    """A tree of revolute joints in plain arrays, as the peers' model files need it (`model_files.Description`)."""
    numbers = jax.tree.map(lambda x: np.asarray(x, np.float64), model)
    topology = model.topology
    bodies = []
    for i in range(model.nb):
        xx, yy, zz, xy, xz, yz = numbers.inertia[i].tolist()
        bodies.append(
            {
                "name": topology.body_names[i],
                "joint": topology.joint_names[i],
                "parent": topology.parents[i],
                "axis": numbers.joints[0].axis[i].tolist(),
                "quaternion_wxyz": numbers.placement.quaternion[i].tolist(),
                "translation": numbers.placement.translation[i].tolist(),
                "mass": float(numbers.mass[i]),
                "com": numbers.com[i].tolist(),
                "inertia": [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]],
            }
        )
    return {"name": topology.name, "gravity": numbers.gravity.tolist(), "bodies": bodies}
