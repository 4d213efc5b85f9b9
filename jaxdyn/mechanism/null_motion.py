"""Motions that no inertia resists, whatever the configuration: the mass matrix is singular, and accelerations are undefined.

The kinetic energy is |J u|^2 / 2. The rows of J are the velocities of the mass centers, the angular velocities about the principal
axes, and the velocities that have an armature, each times the root of its inertia. The rank of J at a random configuration is that
at almost all of them. It shows more than the rank of the mass matrix J' J, whose rounding errors hide small inertias.

A joint is replaced by its primitives, which NumPy can displace. A joint of another kind counts as one with random axes.
"""

import numpy as np
from jaxtyping import Bool, Float

from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Prismatic, Revolute, Screw
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.inertia import symmetric_matrix
from jaxdyn.spatial.plain import rotation_matrix

# Singular values of J that count as zero, if its columns are divided by the largest norms that the levers allow. Those of a chain
# of n point masses decrease as 1 / n^2.
_ZERO = 1e-11
# Relative size of velocities that are not stated.
_NEGLIGIBLE = 1e-6


def null_motion(
    topology: Topology,
    joints: list[Joint],
    placements: list[Float[np.ndarray, "4 4"]],
    mass: Float[np.ndarray, "nb"],
    com: Float[np.ndarray, "nb 3"],
    inertia: Float[np.ndarray, "nb 6"],
    resisted: Bool[np.ndarray, "nb"],
) -> dict[int, Float[np.ndarray, "6"]] | None:
    """A motion of as few joints as possible that no inertia resists; None if there is none.

    Args:
        topology: Tree of the moving bodies.
        joints: Their joints.
        placements: Placements of the joint frames in the parent bodies.
        mass: Masses (kg).
        com: Centers of mass on body axes (m).
        inertia: Inertias about the centers of mass on body axes (kg m^2).
        resisted: Whether the joint of each body has an armature or a rotor.

    Returns:
        Twists (angular; linear) of the joints that move, on child axes at the child origin, by body. Their common scale is such
        that the largest component is 1.
    """
    principal, axes = np.linalg.eigh(np.stack([symmetric_matrix(entries) for entries in inertia]))
    principal = np.maximum(principal, 0.0)
    if np.all(mass > 0) and np.all(principal > 0):
        return None  # every motion is resisted
    rotations, origins, columns = _moved(topology, joints, placements)
    carriers = np.concatenate([np.full(joint.nv, body) for body, joint in enumerate(joints)]).astype(int)
    angular, linear = columns[:, :3].T, columns[:, 3:].T
    rows, bounds = [np.eye(len(carriers))[resisted[carriers]]], resisted[carriers].astype(float)
    speeds = np.linalg.norm(linear - np.cross(np.array(origins)[carriers].T, angular, axis=0), axis=0)
    for body in range(topology.nb):
        moves = topology.precedes[carriers, body]
        center = origins[body] + rotations[body] @ com[body]
        levers = np.linalg.norm(center - np.array(origins)[carriers], axis=1)
        turning = (rotations[body] @ axes[body]).T @ angular
        rows.append(np.sqrt(mass[body]) * moves * (linear - np.cross(center, angular, axisb=0, axisc=0)))
        rows.append(np.sqrt(principal[body])[:, None] * moves * turning)
        turns = np.sum(angular**2, axis=0)
        bounds = bounds + moves * (mass[body] * (speeds + levers * turns**0.5) ** 2 + np.max(principal[body]) * turns)
    matrix = np.concatenate([*rows, np.zeros((len(carriers), len(carriers)))])
    sizes = np.sqrt(np.where(bounds > 0, bounds, 1.0))
    _, singular, directions = np.linalg.svd(np.linalg.qr(matrix / sizes, mode="r"))
    rates = (directions[singular < _ZERO] / sizes).T
    if not rates.size:
        return None
    twists = np.zeros((topology.nb, 6, rates.shape[1]))
    for column, body in enumerate(carriers):
        w, v = columns[column, :3], columns[column, 3:] + np.cross(columns[column, :3], origins[body])
        own = np.concatenate([rotations[body].T @ w, rotations[body].T @ v])
        twists[body] += own[:, None] * rates[column]
    return _simplest(twists)


def _moved(topology: Topology, joints: list[Joint], placements: list[np.ndarray]) -> tuple:
    """Rotations and origins of the bodies at a random configuration, and twists of the primitives at the origin of the ground."""
    random = np.random.default_rng(0)
    rotations, origins, columns = [], [], []
    for body, joint in enumerate(joints):
        parent = topology.parents[body]
        rotation, origin = (np.eye(3), np.zeros(3)) if parent == GROUND else (rotations[parent], origins[parent])
        origin = origin + rotation @ placements[body][:3, 3]
        rotation = rotation @ placements[body][:3, :3]
        for primitive in joint.primitives() if joint.nv else (joint,):
            angle = random.uniform(0.5, 1.5)
            if isinstance(primitive, Revolute | Prismatic | Screw):
                axis = np.asarray(primitive.axis, float) / np.linalg.norm(primitive.axis)
                pitch = float(primitive.pitch) if isinstance(primitive, Screw) else 0.0
                turns, slides = (0.0, 1.0) if isinstance(primitive, Prismatic) else (1.0, pitch)
                twists = [np.concatenate([turns * axis, slides * axis])]
                shift = angle * slides * axis
                quaternion = np.array([np.cos(0.5 * turns * angle), *(np.sin(0.5 * turns * angle) * axis)])
            else:
                twists, shift = random.normal(size=(primitive.nv, 6)), random.normal(size=3)
                quaternion = random.normal(size=4)
            origin, rotation = origin + rotation @ shift, rotation @ rotation_matrix(quaternion)
            for twist in twists:
                w, v = rotation @ twist[:3], rotation @ twist[3:]
                columns.append(np.concatenate([w, v + np.cross(origin, w)]))
        rotations.append(rotation)
        origins.append(origin)
    return rotations, origins, np.reshape(columns, (-1, 6))


def _simplest(twists: Float[np.ndarray, "nb 6 motions"]) -> dict[int, Float[np.ndarray, "6"]]:
    """The combination of the motions that moves the fewest joints among those of an elimination with complete pivoting."""
    matrix = twists.reshape(-1, twists.shape[2])
    for column in range(matrix.shape[1]):
        rest = np.abs(matrix[:, column:])
        row, pivot = np.unravel_index(np.argmax(rest), rest.shape)
        matrix[:, [column, column + pivot]] = matrix[:, [column + pivot, column]]
        matrix[:, column] /= matrix[row, column]
        others = np.arange(matrix.shape[1]) != column
        matrix[:, others] -= np.outer(matrix[:, column], matrix[row, others])
    motions = matrix.reshape(twists.shape)
    motions = motions / np.max(np.abs(motions), axis=(0, 1))
    moving = np.max(np.abs(motions), axis=1) > _NEGLIGIBLE
    best = int(np.argmin(np.sum(moving, axis=0)))
    return {int(body): np.round(motions[body, :, best], 6) + 0.0 for body in np.flatnonzero(moving[:, best])}
