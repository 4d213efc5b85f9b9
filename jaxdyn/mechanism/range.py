"""Whether a precision has room for the inertias of a mechanism.

Masses and lengths may be ordinary numbers of float32 while the moments of inertia, their products, are none: at 1e-9 m and 1e-24 kg
they are 1e-42 kg m^2, which becomes zero, and accelerations are not numbers. The inertia that a joint moves is bounded from above,
whatever the configuration is. So nothing is refused that a precision has room for.
"""

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxdyn.mechanism.joints import Cylindrical, Free, Planar, Prismatic, Revolute, Spherical, Universal
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.mechanism.topology import GROUND, Topology

_TURNING = (Revolute, Universal, Spherical, Cylindrical, Planar, Free)
_SHIFTING = (Prismatic, Cylindrical, Planar, Free)


def problem_with_range(
    topology: Topology,
    offsets: np.ndarray,
    mass: np.ndarray,
    com: np.ndarray,
    inertia: np.ndarray,
    armature: np.ndarray,
    rotors: Rotors,
    dtype: DTypeLike,
) -> str | None:
    """Which body moves with an inertia that a precision has no room for and how to mend it, or None.

    A joint of a user's own class is not judged.

    Args:
        offsets: (nb, 3) from the parent's origin to that of each joint, m.
        mass, com, inertia, armature, rotors: As in `Model`, in double precision.
    """
    limits = jnp.finfo(dtype)
    if limits.bits >= 64:
        return None
    # With less than a full mantissa above the smallest normal number, parts of a sum are lost.
    least, most = float(limits.tiny) / float(limits.eps), float(limits.max)
    added = np.zeros(topology.nb)
    np.add.at(added, topology.body_of_column, armature)
    np.add.at(added, topology.body_of_column[list(rotors.columns)], np.asarray(rotors.inertia * rotors.ratio**2))
    masses, moments = _moved(topology, offsets, mass, com, inertia)
    for i, kind in enumerate(topology.joint_classes):
        quantities = [(moments[i], "kg m^2")] * (kind in _TURNING) + [(masses[i], "kg")] * (kind in _SHIFTING)
        for moved, unit in quantities:
            number = moved + added[i]
            if 0.0 < number < least or most < number < np.inf:
                how, units = ("underflows", "smaller ones") if number < least else ("overflows", "larger ones")
                return (
                    f"body {topology.body_names[i]!r}: its joint moves an inertia of {number:.2g} {unit}, which {how} in "
                    f"{jnp.dtype(dtype).name}; use float64, or other units of mass and length, {units}"
                )
    return None


def _moved(
    topology: Topology, offsets: np.ndarray, mass: np.ndarray, com: np.ndarray, inertia: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mass that each joint carries, and no less than its moment of inertia about any axis through the joint."""
    reach, distance = np.linalg.norm(com, axis=1), np.linalg.norm(offsets, axis=1)
    # Sums over what a joint carries of m, m d and m d^2, d being the longest way to a mass center.
    masses, firsts, seconds = mass.copy(), mass * reach, mass * reach**2 + inertia[:, :3].sum(axis=1)
    for i in reversed(range(topology.nb)):
        parent = topology.parents[i]
        if parent == GROUND or masses[i] == 0.0:
            continue
        # A joint that shifts, or may, takes its load as far as it likes.
        way = distance[i] if topology.joint_classes[i] in (Revolute, Universal, Spherical) else np.inf
        masses[parent] += masses[i]
        firsts[parent] += firsts[i] + way * masses[i]
        seconds[parent] += seconds[i] + 2.0 * way * firsts[i] + way**2 * masses[i] if way < np.inf else np.inf
    return masses, seconds
