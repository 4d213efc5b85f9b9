"""Conversion of rotations between quaternions and roll, pitch and yaw as used in robot descriptions."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # configs read angles without JAX
    from jaxdyn.spatial.transform import RigidTransform


def quaternion_from_rpy(rpy: Sequence[float]) -> tuple[float, ...]:
    """Quaternion (w, x, y, z) of roll, pitch and yaw (rad) about the fixed axes x, y, z, in this order: R = R_z R_y R_x."""
    halves = [0.5 * angle for angle in rpy]
    (cr, cp, cy), (sr, sp, sy) = map(math.cos, halves), map(math.sin, halves)
    product = (
        cy * cp * cr + sy * sp * sr,
        cy * cp * sr - sy * sp * cr,
        cy * sp * cr + sy * cp * sr,
        sy * cp * cr - cy * sp * sr,
    )
    # After rounding, quarter turns have equal components and exact zeros, which keeps axis-aligned rotation matrices sparse.
    return tuple(round(x, 14) for x in product)


def rpy_from_quaternion(quaternion: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Roll, pitch and yaw (rad) of a quaternion of any norm. Roll is 0 at a pitch of +-90 deg, where the angles are not unique."""
    w, x, y, z = np.asarray(quaternion, np.float64) / np.linalg.norm(np.asarray(quaternion, np.float64))
    # Half-angle pairs: atan2 keeps all digits near +-90 deg, where an arcsine loses half of them.
    sum_pair, difference_pair = math.hypot(w - y, x + z), math.hypot(w + y, x - z)
    pitch = 0.5 * math.pi - 2.0 * math.atan2(sum_pair, difference_pair)
    if min(sum_pair, difference_pair) < 1e-12:
        return 0.0, pitch, math.remainder(2.0 * math.atan2(z, w), 2.0 * math.pi)
    half_sum, half_difference = math.atan2(x + z, w - y), math.atan2(x - z, w + y)
    roll, yaw = half_sum + half_difference, half_sum - half_difference
    return math.remainder(roll, 2.0 * math.pi), pitch, math.remainder(yaw, 2.0 * math.pi)


def placement_table(placement: "RigidTransform") -> dict[str, list[float]]:
    """Position (m) and orientation (quaternion of norm 1) as mechanism files write a placement."""
    turn = np.asarray(placement.quaternion, np.float64)
    position = np.asarray(placement.translation, np.float64)
    return {"position": position.tolist(), "orientation": (turn / np.linalg.norm(turn)).tolist()}
