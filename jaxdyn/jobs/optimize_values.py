"""Values of a config as arrays of a mechanism: coordinates, velocities, weights, bounds."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics.system import State, System
from jaxdyn.io.errors import ConfigError
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model


def each(values: Sequence[float], axis: str, system: System, place: str) -> np.ndarray:
    """Values along an axis, one for each component; a single value stands for all of them.

    Args:
        axis: "nq", "nv", "nx" or "nu".
        place: The key, for messages.

    Raises:
        ConfigError: There are neither one value nor as many as components.
    """
    model = system.model
    sizes = {
        "nq": (model.nq, "coordinate"),
        "nv": (model.nv, "velocity component"),
        "nx": (2 * model.nv, "coordinate and velocity component"),
        "nu": (system.nu, "control"),
    }
    if axis not in sizes:
        return np.asarray(values, float)
    count, what = sizes[axis]
    if len(values) not in (1, count):
        raise ConfigError(f"{place} has {len(values)} values; give 1, or {count}: one per {what}")
    return np.broadcast_to(np.asarray(values, float), (count,))


def coordinates(values: Sequence[float] | None, model: Model, place: str) -> Float[Array, "nq"]:
    """Coordinates with quaternions of norm 1; the neutral ones for None.

    Raises:
        ConfigError: There are not as many values as coordinates.
    """
    if values is None:
        return configuration.neutral(model)
    if len(values) != model.nq:
        raise ConfigError(f"{place} has {len(values)} values; give {model.nq}: one per coordinate")
    return configuration.normalize(model, jnp.asarray(values, model.dtype))


def state(q: Sequence[float] | None, v: Sequence[float], system: System, place: str) -> State:
    """A state of coordinates, the neutral ones for None, and velocities.

    Raises:
        ConfigError: There are not as many values as components.
    """
    model = system.model
    return State(coordinates(q, model, f"{place}q"), jnp.asarray(each(v, "nv", system, f"{place}v"), model.dtype))
