"""Damped least squares: the steps of Levenberg and Marquardt that fits, inverse kinematics and assemblies share.

A step from x, where the residuals are r and their Jacobian is J,

    (J'J + mu D) dx = -J' r,

is taken if it decreases the loss |r|^2. The damping mu decreases after a step that is taken and increases after another one. The
caller computes the step, with its matrix D, its bounds and its manifold.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

FIRST_DAMPING = 1e-3
FIRST_GROWTH = 2.0
# Least decrease of the loss in an accepted step, as a fraction of the predicted decrease. A step that decreases the loss much less
# than predicted may end near another local minimum.
_LEAST_GAIN = 0.01


class Damped(NamedTuple):
    """State of a search between two steps.

    Attributes:
        point: Best point so far, which may contain all that is known there.
        loss: Loss at this point; infinite if it is not known yet.
        damping: The damping mu.
        growth: Factor by which the damping increases if the next step fails; None for steps without predictions.
    """

    point: PyTree
    loss: Float[Array, ""]
    damping: Float[Array, ""]
    growth: Float[Array, ""] | None = None


def judged(search: Damped, candidate: PyTree, loss: Float[Array, ""], gain: Float[Array, ""] | None = None) -> Damped:
    """The search after a step, which is taken if it decreases the loss.

    Residuals that vanish at the solution need no prediction: the damping changes by a factor of ten. Otherwise it changes by the
    quality of the prediction, as in Nielsen 1999, and a step must decrease the loss by at least 1 % of the prediction.

    Args:
        search: State before the step, with a known loss.
        candidate: Point after the step.
        loss: Loss at this point.
        gain: Decrease of the loss divided by the predicted decrease; zero if no decrease is predicted.
    """
    damping, growth = search.damping, search.growth
    if gain is None or growth is None:
        better = loss < search.loss
        lower, higher = jnp.maximum(0.1 * damping, jnp.finfo(loss.dtype).eps ** (2 / 3)), 10.0 * damping
    else:
        better = (gain > _LEAST_GAIN) & jnp.isfinite(loss)
        lower = damping * jnp.maximum(1.0 / 3.0, 1.0 - (2.0 * jnp.where(better, gain, 1.0) - 1.0) ** 3)
        higher, growth = damping * growth, jnp.where(better, FIRST_GROWTH, 2.0 * growth)
    point, loss = jax.tree.map(
        lambda new, old: jnp.where(better, new, old), (candidate, loss), (search.point, search.loss)
    )
    return Damped(point, loss, jnp.where(better, lower, higher), growth)


def minimized(
    propose: Callable[[PyTree, Float[Array, ""]], tuple[PyTree, Float[Array, ""]]],
    loss: Callable[[PyTree], Float[Array, ""]],
    point: PyTree,
    *,
    max_steps: int,
) -> PyTree:
    """The best point after a fixed number of steps, so that the samples of a batch take the same time.

    Args:
        propose: Function of a point and the damping, which returns the point after a step, and the loss before it.
        loss: Loss |r|^2 at a point.
        point: Initial guess.
        max_steps: Number of steps.
    """

    def improve(search: Damped, _) -> tuple[Damped, None]:
        candidate, here = propose(search.point, search.damping)
        # Other rounding errors are not an improvement.
        before = search._replace(loss=jnp.minimum(search.loss, here))
        return judged(before, candidate, loss(candidate)), None

    dtype = jax.tree.leaves(point)[0].dtype
    first = Damped(point, jnp.asarray(jnp.inf, dtype), jnp.asarray(FIRST_DAMPING, dtype))
    return jax.lax.scan(improve, first, None, length=max_steps)[0].point
