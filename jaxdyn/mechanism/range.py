"""Check that the inertias of a mechanism are within the range of a floating-point type.

Masses and lengths may be within the range of float32 while their products, the moments of inertia, are not. For example, a length
of 1e-9 m and a mass of 1e-24 kg give a moment of inertia of 1e-42 kg m^2, which is rounded to zero, so accelerations are NaN. The
check uses an upper bound of the inertia that a joint moves, for all configurations, so it does not reject models that the type can
represent.
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
    """Error message with a remedy if the inertia that a joint moves is out of the range of `dtype`, else None.

    Joints of user-defined classes are not checked.

    Args:
        topology: Topology of the mechanism.
        offsets: Vector from the origin of the parent to that of each joint, (nb, 3), m.
        mass, com, inertia, armature, rotors: Parameters as in `Model`, in double precision.
        dtype: Floating-point type.
    """
    limits = jnp.finfo(dtype)
    if limits.bits >= 64:
        return None
    # Terms of a sum are lost if a value has less than a full mantissa above the smallest normal value.
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
    """Mass that each joint moves, and an upper bound of its moment of inertia about any axis through the joint."""
    reach, distance = np.linalg.norm(com, axis=1), np.linalg.norm(offsets, axis=1)
    # Sums of m, m d and m d^2 over the bodies that a joint moves, with the longest distance d to a center of mass.
    masses, firsts, seconds = mass.copy(), mass * reach, mass * reach**2 + inertia[:, :3].sum(axis=1)
    for i in reversed(range(topology.nb)):
        parent = topology.parents[i]
        if parent == GROUND or masses[i] == 0.0:
            continue
        # A joint with translation can move its load to any distance.
        way = distance[i] if topology.joint_classes[i] in (Revolute, Universal, Spherical) else np.inf
        masses[parent] += masses[i]
        firsts[parent] += firsts[i] + way * masses[i]
        if way == np.inf:
            seconds[parent] = np.inf
        else:  # where the way is zero, an infinite first moment adds nothing
            seconds[parent] += seconds[i] + (way * (2.0 * firsts[i] + way * masses[i]) if way else 0.0)
    return masses, seconds
