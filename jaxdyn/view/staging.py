"""Floor and point of view of a scene, and its round lengths."""

import numpy as np
from jaxtyping import Float

from jaxdyn.mechanism.model import Model


def upward(model: Model) -> Float[np.ndarray, "3"]:
    """Unit vector against gravity, or along z if there is no gravity."""
    up = -np.asarray(model.gravity, float)
    return up / np.linalg.norm(up) if np.any(up) else np.array([0.0, 0.0, 1.0])


def horizontal_axes(up: Float[np.ndarray, "3"]) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Two unit vectors of the floor, at right angles to each other."""
    side = np.cross(up, [0.0, 1.0, 0.0] if abs(up[1]) < 0.9 else [0.0, 0.0, 1.0])
    side /= np.linalg.norm(side)
    return side, np.cross(side, up)


def direction_of_view(up: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """Unit vector from the middle of the scene to the camera, which is in front, at the side, and slightly above; `up` may be any
    direction.
    """
    side, front = horizontal_axes(up)
    view = 0.45 * side + 0.8 * front + 0.35 * up
    return view / np.linalg.norm(view)


def floor_under(
    up: Float[np.ndarray, "3"], low: Float[np.ndarray, "3"], high: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "3"]:
    """The point (m) of the floor below the middle of a box."""
    return 0.5 * (low + high) - up * 0.5 * float(np.abs(up) @ (high - low))


def round_length(length: float) -> float:
    """The largest length of 1, 2 or 5 times a power of ten that does not exceed the given one."""
    decade = 10.0 ** np.floor(np.log10(length))
    return float(max(step * decade for step in (1, 2, 5) if step * decade <= length))
