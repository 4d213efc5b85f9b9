"""First-order fits for many parameters or many windows: reverse mode (the adjoint of the rollouts) and random batches of windows.

Levenberg-Marquardt carries as many tangents as there are parameters; here one backward pass serves all of them, whatever their
number, and a step simulates a few windows only. It takes many more steps.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jaxdyn.identify.least_squares import Problem, Unknowns
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.solver import FitResult, Search, Solver
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


class Descent(Search):
    """State of `GradientDescent` between two steps.

    Attributes:
        unknowns: The current point.
        memory: State of the optimizer.
        loss: Loss of the last batch of windows, before the step that it led to; zero before the first step.
        iterations: Number of steps taken.
    """

    unknowns: Unknowns
    memory: PyTree
    loss: Float[Array, ""]
    iterations: Int[Array, ""]

    @property
    def result(self) -> Int[Array, ""]:
        """Code of `FitResult`: all steps were taken, or the loss is not finite."""
        return jnp.where(jnp.isfinite(self.loss), FitResult.COMPLETED.value, FitResult.NOT_FINITE.value)


class GradientDescent(Solver):
    """Steps of an optimizer of optax along gradients of random batches of windows; for an `OutputError`.

        fit(problem, GradientDescent(optax.adam(0.01), batch=64, key=jax.random.key(0)), max_steps=500)

    It has no test of convergence, so it takes all steps that it may.

    Attributes:
        optimizer: A gradient transformation of optax.
        batch: The number of windows per step; all of them if not given.
        key: The random key of the batches, of which step k draws from fold_in(key, k); not needed without `batch`.

    Raises:
        ValueError: There is a batch without a key.
    """

    optimizer: optax.GradientTransformation = eqx.field(static=True)
    batch: int | None = eqx.field(static=True, default=None)
    key: PRNGKeyArray | None = None

    def __check_init__(self):
        if self.batch is not None and self.key is None:
            raise ValueError("a batch of windows is drawn at random; give a key, such as key=jax.random.key(0)")

    def running(self, search: Descent) -> bool:
        return True

    def compiled(
        self, problem: Problem, batched: bool, mesh: Mesh | None
    ) -> tuple[Callable[[Unknowns], Any], Callable[[Any], Any]]:
        if not isinstance(problem, OutputError):
            raise ValueError(
                f"gradient descent fits an OutputError, not an {type(problem).__name__}; use LevenbergMarquardt()"
            )
        if batched or mesh is not None:
            raise ValueError(
                "gradient descent takes one initial guess and one device; use LevenbergMarquardt() for more"
            )
        count = problem.windows.count
        batch = count if self.batch is None else self.batch
        if not 1 <= batch <= count:
            raise ValueError(f"a batch of {batch} windows cannot be drawn from {count}; draw fewer")

        def still(point: Unknowns):
            # Steps of coordinates are steps in tangent coordinates, so that quaternions stay quaternions.
            nothing = jnp.zeros((count, 2 * problem.parameters.subject.system.model.nv), point.x.dtype)
            return (jnp.zeros_like(point.x), nothing if problem.free_starts else nothing[:, :0])

        def chosen(index: Int[Array, ""]) -> Any:
            if self.key is None:
                return jnp.arange(count)
            return jax.random.choice(jax.random.fold_in(self.key, index), count, (batch,), replace=False)

        def begin(initial: Unknowns) -> Descent:
            memory = self.optimizer.init(still(initial))
            return Descent(initial, memory, jnp.zeros((), initial.x.dtype), jnp.zeros((), int))

        @stored_jit
        def step(search: Descent) -> Descent:
            rows = chosen(search.iterations)
            point = search.unknowns
            here = still(point)
            loss, gradient = jax.value_and_grad(
                lambda change: batch_loss(problem, problem.moved(point, *change), rows)
            )(here)
            change: Any
            with jax.numpy_dtype_promotion("standard"):  # optax counts in integers and multiplies with them
                change, memory = self.optimizer.update(gradient, search.memory, here)
            return Descent(problem.moved(point, *change), memory, loss, search.iterations + 1)

        return begin, step
