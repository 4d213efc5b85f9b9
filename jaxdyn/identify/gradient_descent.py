"""First-order fits for many parameters or many windows: reverse mode (the adjoint of the rollouts) and random batches of windows.

Levenberg-Marquardt carries as many tangents as there are parameters; here one backward pass serves all of them, whatever their
number, and a step looks at a few windows only. It takes many more steps.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from tqdm import trange

from jaxdyn.identify.least_squares import Unknowns
from jaxdyn.identify.output_error import OutputError
from jaxdyn.lanes import stored_jit


def batch_loss(problem: OutputError, unknowns: Unknowns, chosen: Any) -> Float[Array, ""]:
    """Loss of some windows, scaled to all of them, with the priors; jumps between windows are left out."""
    windows = jax.tree.map(lambda leaf: leaf[chosen], problem.windows)
    local = jax.tree.map(lambda leaf: leaf[chosen], unknowns.local)

    def of_window(start, window):
        residuals, _ = problem.residuals(unknowns.x, start, window)
        guess = problem.start_errors(start, window)
        return 0.5 * jnp.sum(problem.loss.rho(residuals**2)) + 0.5 * jnp.sum(guess**2)

    prior = problem.parameters.prior_residuals(unknowns.x)
    scale = problem.windows.count / windows.count
    return scale * jnp.sum(jax.vmap(of_window)(local, windows)) + 0.5 * jnp.sum(prior**2)


def descend(
    problem: OutputError,
    optimizer: optax.GradientTransformation,
    *,
    steps: int,
    batch: int,
    key: PRNGKeyArray,
    unknowns: Unknowns | None = None,
    progress: bool = True,
) -> tuple[Unknowns, Float[Array, "steps"]]:
    """Unknowns after some steps of an optimizer on random batches of windows, and the loss of each batch.

        unknowns, losses = descend(problem, optax.adam(0.01), steps=500, batch=64, key=jax.random.key(0))

    Args:
        batch: windows per step; all of them for plain gradient descent.
        key: of the batches: step k draws from fold_in(key, k).
        unknowns: where to begin; the start of the problem if not given.

    Raises:
        ValueError: more windows per step than there are.
    """
    if not 1 <= batch <= problem.windows.count:
        raise ValueError(f"a batch of {batch} windows cannot be drawn from {problem.windows.count}; draw fewer")

    def moving(point: Unknowns):
        # Steps of coordinates are steps in tangent coordinates, so that quaternions stay quaternions.
        nothing = jnp.zeros((problem.windows.count, 2 * problem.parameters.subject.system.model.nv), point.x.dtype)
        return (jnp.zeros_like(point.x), nothing if problem.free_starts else nothing[:, :0])

    @stored_jit
    def step(point: Unknowns, memory, index):
        chosen = jax.random.choice(jax.random.fold_in(key, index), problem.windows.count, (batch,), replace=False)

        def loss(change):
            there = problem.moved(point, *change)
            return batch_loss(problem, there, chosen)

        here = moving(point)
        value, gradient = jax.value_and_grad(loss)(here)
        change: Any
        with jax.numpy_dtype_promotion("standard"):  # optax counts in integers and multiplies with them
            change, memory = optimizer.update(gradient, memory, here)
        return problem.moved(point, *change), memory, value

    point = problem.start if unknowns is None else unknowns
    memory, losses = optimizer.init(moving(point)), []
    bar = trange(steps, unit="step", disable=not progress)
    for index in bar:
        point, memory, value = step(point, memory, jnp.asarray(index))
        losses.append(value)
        if progress and index % 20 == 0:
            bar.set_postfix(loss=f"{float(value):.6g}")
    return point, jnp.stack(losses)
