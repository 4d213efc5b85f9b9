"""First-order fits for many parameters or many windows: reverse mode (the adjoint of the rollouts) and random batches of windows.

Levenberg-Marquardt computes one tangent per parameter. Gradient descent computes the derivatives with respect to all parameters by
one backward pass, and simulates only a few windows per step, but needs many more steps.
"""

import inspect
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jaxdyn.identify.least_squares import Problem, Unknowns
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.solver import FitResult, Search, Solver
from jaxdyn.mechanism.messages import described
from jaxdyn.mechanism.quantity import POSITIVE, plain


def batch_loss(problem: OutputError, unknowns: Unknowns, chosen: Any) -> Float[Array, ""]:
    """Loss of a random batch of windows, scaled to the number of all windows, plus the loss of the priors."""
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
        unknowns: Current values of the unknowns.
        memory: State of the optax optimizer.
        loss: Loss of the batch of windows of the last step, at the point before this step; zero before the first step.
        iterations: Number of steps taken.
    """

    unknowns: Unknowns
    memory: PyTree
    loss: Float[Array, ""]
    iterations: Int[Array, ""]

    @property
    def result(self) -> Int[Array, ""]:
        """Code of `FitResult`: all steps were taken, or the loss is not finite."""
        return jnp.where(jnp.isfinite(self.loss), FitResult.SUCCESSFUL.value, FitResult.NOT_FINITE.value)


class GradientDescent(Solver):
    """Steps of an optax optimizer along gradients of random batches of windows; for an `OutputError`.

        fit(problem, GradientDescent(optax.adam(0.01), batch=64, key=jax.random.key(0)), max_steps=500)

    Convergence is not tested, so `fit` takes the maximum number of steps.

    Attributes:
        optimizer: Gradient transformation of optax.
        batch: Number of windows per step; by default all windows.
        key: Random key of the batches; step k draws from fold_in(key, k). The key is not needed if all windows are used.

    Raises:
        ValueError: A batch is given without a key.
        TypeError: The optimizer is not one of optax.
    """

    tests_convergence: ClassVar[bool] = False

    optimizer: optax.GradientTransformation = eqx.field(static=True)
    batch: int | None = eqx.field(static=True, converter=plain, default=None, kw_only=True, metadata=POSITIVE)
    key: PRNGKeyArray | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        optimizer: Any = self.optimizer
        # Optimizers of other libraries need only have these two functions.
        if isinstance(optimizer, type) or not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
            shown = "a function" if inspect.isfunction(optimizer) else described(optimizer)
            raise TypeError(f"the optimizer is {shown}; give one of optax, such as optax.adam(0.01)")
        if self.batch is not None and self.key is None:
            raise ValueError("a batch of windows is drawn at random; give a key, such as key=jax.random.key(0)")

    def check(self, problem: Problem, batched: bool, mesh: Mesh | None) -> None:
        if not isinstance(problem, OutputError):
            raise ValueError(
                f"gradient descent fits an OutputError, not an {type(problem).__name__}; use LevenbergMarquardt()"
            )
        if batched or mesh is not None:
            raise ValueError(
                "gradient descent supports one initial guess and one device only; use LevenbergMarquardt() for more"
            )
        count = problem.windows.count
        if self.batch is not None and self.batch > count:
            raise ValueError(f"a batch of {self.batch} windows cannot be drawn from {count}; draw fewer")

    def init(self, problem: Any, initial: Unknowns) -> Descent:
        memory = self.optimizer.init(_no_change(problem, initial))
        return Descent(initial, memory, jnp.zeros((), initial.x.dtype), jnp.zeros((), int))

    def step(self, problem: Any, search: Descent) -> Descent:
        rows, point = jnp.arange(problem.windows.count), search.unknowns
        if self.key is not None:
            key = jax.random.fold_in(self.key, search.iterations)
            rows = jax.random.choice(key, len(rows), (self.batch or len(rows),), replace=False)
        here = _no_change(problem, point)
        change: Any
        loss, gradient = jax.value_and_grad(lambda change: batch_loss(problem, problem.moved(point, *change), rows))(
            here
        )
        with jax.numpy_dtype_promotion("standard"):  # optax counts in integers and multiplies with them
            change, memory = self.optimizer.update(gradient, search.memory, here)
        return Descent(problem.moved(point, *change), memory, loss, search.iterations + 1)


def _no_change(problem: OutputError, point: Unknowns) -> tuple[Array, Array]:
    """Changes of zero; those of coordinates are tangent coordinates, so that quaternions keep norm 1."""
    size = 2 * problem.parameters.subject.system.model.nv if problem.free_starts else 0
    return jnp.zeros_like(point.x), jnp.zeros((problem.windows.count, size), point.x.dtype)
