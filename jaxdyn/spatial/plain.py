"""Rotations in NumPy for the construction of mechanisms: JAX would compile each operation, and SciPy is slow to import.

Quaternions are (w, x, y, z), theory.md section (a).
"""

import numpy as np
from jaxtyping import Float


def rotation_matrix(quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    """Rotation matrix of a quaternion of any nonzero norm. Source: theory.md (A5)."""
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [w * w + x * x - y * y - z * z, 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
            [2.0 * (x * y + w * z), w * w - x * x + y * y - z * z, 2.0 * (y * z - w * x)],
            [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), w * w - x * x - y * y + z * z],
        ]
    )


def rotation_quaternion(matrix: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "4"]:
    """Unit quaternion of a rotation matrix, with a positive largest component.

    All entries of 4 q q^T are linear in the rotation matrix (A5); q is its row with the largest diagonal entry, normalized.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = matrix
    rows = np.array(
        [
            [1.0 + xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, 1.0 + xx - yy - zz, xy + yx, xz + zx],
            [xz - zx, xy + yx, 1.0 - xx + yy - zz, yz + zy],
            [yx - xy, xz + zx, yz + zy, 1.0 - xx - yy + zz],
        ]
    )
    row = rows[np.argmax(np.diag(rows))]
    return row / np.linalg.norm(row)
