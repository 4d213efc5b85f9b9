"""Pseudoinverse of a Fisher information, and the directions that the data determine."""

import numpy as np

# A direction of the scaled information below this fraction of the largest one is not identified, because it is a rounding error.
_UNSEEN = 1e-10


def pseudoinverse(
    F: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Pseudoinverse of the information F, and its directions that the data determine and do not determine.

    F is scaled to a unit diagonal; the scale, and the eigenvalues and eigenvectors of the scaled F, are returned too.

    Args:
        F: Fisher information.
        eps: Relative rounding error of the precision in which it was computed.
    """
    # The influence of a parameter counts as zero if it is below the rounding errors of the influence of others.
    influence = np.diag(F) > (4.0 * eps) ** 2 * np.max(np.diag(F))
    F = np.where(influence[:, None] & influence, F, 0.0)
    diagonal = np.diag(F)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 1.0)
    eigenvalues, vectors = np.linalg.eigh(scale[:, None] * F * scale)
    seen = eigenvalues > _UNSEEN * eigenvalues[-1]
    good = scale[:, None] * vectors[:, seen]
    return (good / eigenvalues[seen]) @ good.T, scale, (eigenvalues[seen], vectors[:, seen]), vectors[:, ~seen]
