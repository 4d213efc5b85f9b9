"""Nonlinear least squares with shared and local unknowns: the structure of problems, and one Gauss-Newton step.

The shared unknowns x are the unconstrained parameters of `Parameters`. The local unknowns, which are the initial states of windows,
are coupled to the local unknowns of another window only if the two windows are consecutive. So the matrix of the normal equations
is an arrow matrix with a block tridiagonal part,

    [ A   B_1' B_2' ... ] [dx  ]     [g   ]
    [ B_1 D_1  E_1      ] [ds_1] = - [g_1 ]
    [ B_2 E_1' D_2  E_2 ] [ds_2]     [g_2 ]
    [ ...               ] [... ]     [... ]

and the number of operations for its solution is proportional to the number of windows.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.compute.arrays import einsum
from jaxdyn.compute.constant import Constant, separated
from jaxdyn.compute.devices import divided, each_on_its_own, rounded_up, whole
from jaxdyn.identify.parameters import Parameters
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.spatial import factorizations


class Normal(eqx.Module):
    """Loss and normal equations at one point, for P shared unknowns, W windows, and L local unknowns per window.

    Attributes:
        loss: Half the sum of squares, including priors.
        shared, shared_gradient: Blocks A (P, P) and g (P,).
        mixed: Blocks B_k (W, L, P), one per window.
        local, local_gradient: Blocks D_k (W, L, L) and g_k (W, L).
        next: Blocks E_k (W, L, L) between window k and the next one; None if no windows are consecutive.
    """

    loss: Float[Array, ""]
    shared: Float[Array, "P P"]
    shared_gradient: Float[Array, "P"]
    mixed: Float[Array, "W L P"]
    local: Float[Array, "W L L"]
    local_gradient: Float[Array, "W L"]
    next: Float[Array, "W L L"] | None


class Unknowns(eqx.Module):
    """The unknowns of a problem at one point.

    Attributes:
        x: Shared unknowns, the unconstrained parameters.
        local: Local unknowns of the windows, with leading axis W; None if there are none.
    """

    x: Float[Array, "*starts P"]
    local: PyTree


def check_unknowns(name: str, unknowns: Any) -> None:
    """Check that an argument is an instance of `Unknowns`.

    Args:
        name: Name of the argument, for the message.
        unknowns: The argument to check.

    Raises:
        TypeError: The argument has another type, for example that of a fit.
    """
    has_own = isinstance(getattr(unknowns, "unknowns", None), Unknowns)
    made = "Unknowns(x, problem.initial.local), where x are the unconstrained parameters"
    check_instance(name, unknowns, Unknowns, "its unknowns, fit.unknowns" if has_own else made)


def check_problem(problem: Any) -> None:
    """Check that an argument is a `Problem`.

    Raises:
        TypeError: The argument has another type.
    """
    example = "OutputError(parameters, windows) or InverseDynamicsError(parameters, motions, noise)"
    check_instance("problem", problem, Problem, f"a problem, such as {example}")


class Problem(eqx.Module):
    """A nonlinear least-squares problem: its loss is a sum over pieces of data, which share unknowns and have local unknowns.

    Attributes:
        parameters: Shared unknowns.
        channels: Quantities whose errors are the residuals, "measurements" or "forces"; empty for others.
    """

    channels: ClassVar[str] = ""
    parameters: eqx.AbstractVar[Parameters]

    @property
    def longest_steps(self) -> Float[np.ndarray, "P"]:
        """Largest change of each shared unknown in one step of a fit."""
        return self.parameters.longest_steps

    @property
    @abc.abstractmethod
    def pieces(self) -> PyTree:
        """The pieces of data (windows or samples), stacked along a leading axis."""

    @property
    def without_data(self) -> "Problem":
        """The problem without its data, which `linearized` and `assembled` do not use, so that fits of other data share code.

        By default it is the problem itself.
        """
        return self

    @property
    @abc.abstractmethod
    def initial(self) -> Unknowns:
        """The initial guess."""

    @property
    def channel_noise(self) -> Float[Array, "channels"] | None:
        """Assumed standard deviation of each measurement or force; None if the residuals are not errors divided by it."""
        return None

    @abc.abstractmethod
    def own(self, unknowns: Unknowns) -> PyTree:
        """The local unknowns that each piece needs, with a leading axis; None if there are no local unknowns."""

    @abc.abstractmethod
    def linearized(self, x: Float[Array, "P"], own: PyTree, piece: PyTree) -> PyTree:
        """The contribution of one piece of data to the normal equations.

        Args:
            x: Shared unknowns.
            own: Local unknowns of this piece.
            piece: Data of this piece.
        """

    @abc.abstractmethod
    def assembled(self, unknowns: Unknowns, parts: PyTree) -> Normal:
        """Loss and normal equations from the contributions of all pieces and of the priors.

        Args:
            unknowns: Current point.
            parts: Contributions of all pieces, with a leading axis.
        """

    def parts(self, unknowns: Unknowns) -> PyTree:
        """The contributions of all pieces of data to the normal equations, with a leading axis."""
        return jax.vmap(self.linearized, in_axes=(None, 0, 0))(unknowns.x, self.own(unknowns), self.pieces)

    def normal(self, unknowns: Unknowns) -> Normal:
        """Loss and normal equations."""
        return self.assembled(unknowns, self.parts(unknowns))

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of residuals without the priors of the parameters."""

    @abc.abstractmethod
    def scores(self, unknowns: Unknowns, parts: PyTree) -> Float[Array, "groups P"]:
        """Gradients of the loss with respect to x without the priors, one per group of measurements with correlated errors.

        For each x, the local unknowns are those that minimize the loss.

        Args:
            unknowns: Current point.
            parts: Contributions of all pieces, with a leading axis.
        """

    @abc.abstractmethod
    def moved(self, unknowns: Unknowns, dx: Float[Array, "P"], ds: Float[Array, "W L"]) -> Unknowns:
        """The unknowns after a step.

        Args:
            unknowns: Point before the step.
            dx: Step of the shared unknowns.
            ds: Steps of the local unknowns; the steps of states are tangent coordinates.
        """


def separated_values(problem: Problem) -> tuple[Constant, list]:
    """The structure of a problem and the values that compiled code takes as arguments, see `separated`.

    Code does not depend on data, initial values, priors and charts, so that fits from other ones share it. Zeros among the fixed
    parameters of the machine are optimized away.
    """
    bare = eqx.tree_at(lambda problem: problem.parameters, problem, problem.parameters.without_values)
    return separated(bare, lambda bare: (problem.pieces, bare.parameters.declared))


def compiled_parts(problem: Problem, batched: bool = False, mesh: Mesh | None = None) -> Callable[[Unknowns], PyTree]:
    """`problem.parts`, compiled and divided over devices; the axis of a batch of initial guesses follows the axis of the pieces."""
    count = jax.tree.leaves(problem.pieces)[0].shape[0]
    # The last piece is repeated to fill up the last device.
    rows = np.minimum(np.arange(rounded_up(mesh, count)), count - 1)

    def filled(tree: PyTree) -> PyTree:
        return tree if len(rows) == count else jax.tree.map(lambda leaf: leaf[rows], tree)

    pieces = divided(mesh, filled(problem.pieces))
    structure, values = separated_values(problem.without_data)
    compiled = _on_devices(mesh, batched)

    def parts(unknowns: Unknowns) -> PyTree:
        own = divided(mesh, filled(_own(structure, values, unknowns, batched)))
        found = whole(mesh, compiled(structure, (own, pieces), (np.asarray(unknowns.x), values)))
        return found if len(rows) == count else jax.tree.map(lambda leaf: leaf[:count], found)

    return parts


@stored_jit
def _own(structure: Constant, values: list, unknowns: Unknowns, batched: bool) -> PyTree:
    problem = structure.joined(values)
    if not batched:
        return problem.own(unknowns)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), jax.vmap(problem.own)(unknowns))


@functools.cache
def _on_devices(mesh: Mesh | None, batched: bool) -> Callable:
    """The contributions of the pieces that each device of the mesh holds, compiled."""

    def of_pieces(structure: Constant, batch: tuple[PyTree, PyTree], shared: tuple[Array, list]) -> PyTree:
        x, values = shared
        problem = structure.joined(values)

        def of_piece(own, piece):
            linearized = functools.partial(problem.linearized, piece=piece)
            return jax.vmap(linearized)(x, own) if batched else linearized(x, own)

        return jax.vmap(of_piece)(*batch)

    def over_mesh(structure: Constant, batch: tuple[PyTree, PyTree], shared: tuple[Array, list]) -> PyTree:
        return each_on_its_own(mesh, functools.partial(of_pieces, structure))(batch, shared)

    return stored_jit(over_mesh)


def prior_terms(parameters: Parameters, x: Float[Array, "P"]) -> tuple[Float[Array, "r"], Float[Array, "r P"]]:
    """Residuals of the priors of the parameters, and their Jacobian."""
    residuals = per_sample(parameters.prior_residuals, name="priors")
    return residuals(x), jax.jacfwd(residuals)(x)


def jacobian_by_fewer_sweeps(rows: int, columns: int) -> Callable:
    """Cheaper one of `jax.jacfwd`, with one forward sweep per column, and `jax.jacrev`, with one reverse sweep per row.

    A reverse sweep is assumed to cost three times as much as a forward sweep.

    Args:
        rows: Number of rows of the Jacobian.
        columns: Number of columns of the Jacobian.
    """
    return jax.jacrev if 3 * rows < columns else jax.jacfwd


def gauss_newton_step(
    normal: Normal, damping: Float[Array, ""], longest: Float[np.ndarray, "P"] | None = None
) -> tuple[Float[Array, "P"], Float[Array, "W L"]]:
    """Levenberg-Marquardt step (dx, ds): the diagonals of A and D_k are multiplied by 1 + damping. Source: Marquardt 1963.

    Args:
        normal: Normal equations.
        damping: Relative increase of the diagonals.
        longest: Largest magnitude of each component of dx. Components that would be larger have this magnitude, and the others
            minimize the quadratic model for these components.
    """

    def damped(matrix):
        diagonal = jnp.diagonal(matrix)
        # An unknown that does not affect the residuals does not change.
        return matrix + jnp.diag(jnp.where(diagonal > 0, (damping + jnp.finfo(matrix.dtype).eps) * diagonal, 1.0))

    local = jax.vmap(damped)(normal.local)
    right = jnp.concatenate([normal.mixed, normal.local_gradient[:, :, None]], axis=2)
    solved = _solve_shaft(local, normal.next, right)
    from_shared, own = solved[:, :, :-1], solved[:, :, -1]
    reduced = damped(normal.shared) - einsum("wlp,wlr->pr", normal.mixed, from_shared)
    gradient = normal.shared_gradient - einsum("wlp,wl->p", normal.mixed, own)
    dx = -_solve(reduced, gradient[:, None])[:, 0]
    if longest is not None and np.any(np.isfinite(longest)):
        limit = jnp.asarray(longest, dx.dtype)
        held = jnp.abs(dx) > limit
        there = jnp.where(held, jnp.clip(dx, -limit, limit), 0.0)
        free = ~(held[:, None] | held[None, :])
        rest = jnp.where(free, reduced, jnp.identity(len(dx), dtype=dx.dtype))
        right = jnp.where(held, there, -gradient - einsum("pq,q->p", reduced, there))
        dx = jnp.clip(_solve(rest, right[:, None])[:, 0], -limit, limit)
    return dx, -own - einsum("wlp,p->wl", from_shared, dx)


def predicted_decrease(normal: Normal, dx: Float[Array, "P"], ds: Float[Array, "W L"]) -> Float[Array, ""]:
    """The decrease of the quadratic model of the loss in a step (dx, ds)."""
    gradient = einsum("p,p->", normal.shared_gradient, dx) + einsum("wl,wl->", normal.local_gradient, ds)
    curvature = einsum("p,pq,q->", dx, normal.shared, dx) + einsum("wl,wlm,wm->", ds, normal.local, ds)
    curvature = curvature + 2.0 * einsum("wl,wlp,p->", ds, normal.mixed, dx)
    if normal.next is not None:
        curvature = curvature + 2.0 * einsum("wl,wlm,wm->", ds[:-1], normal.next[:-1], ds[1:])
    return -gradient - 0.5 * curvature


def information(normal: Normal) -> Float[Array, "P P"]:
    """Fisher information of the shared unknowns if the local ones are unknown, too: the Schur complement A - sum B' D^-1 B."""
    return normal.shared - einsum("wlp,wlr->pr", normal.mixed, local_response(normal))


def local_response(normal: Normal) -> Float[Array, "W L P"]:
    """D^-1 B, the negative derivative of the optimal local unknowns with respect to the shared unknowns."""
    return _solve_shaft(normal.local, normal.next, normal.mixed)


def _solve(matrix: Float[Array, "n n"], right: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Solution with a positive definite matrix, which is scaled to a unit diagonal because parameters differ in magnitude."""
    scale = 1.0 / jnp.sqrt(jnp.maximum(jnp.diagonal(matrix), jnp.finfo(matrix.dtype).tiny))
    scaled = scale[:, None] * matrix * scale[None]
    factor = factorizations.cholesky(scaled)
    return scale[:, None] * factorizations.cholesky_solve(factor, scale[:, None] * right)


def _solve_shaft(
    local: Float[Array, "W L L"], following: Float[Array, "W L L"] | None, right: Float[Array, "W L R"]
) -> Float[Array, "W L R"]:
    """Solution of the block tridiagonal system by block elimination from the first window to the last, and back substitution."""
    if following is None:
        return jax.vmap(_solve)(local, right)

    def forward(before, blocks):
        coupling, earlier = before
        diagonal, upper, own = blocks
        diagonal = diagonal - coupling.T @ earlier[:, : diagonal.shape[0]]
        own = own - coupling.T @ earlier[:, diagonal.shape[0] :]
        solved = _solve(diagonal, jnp.concatenate([upper, own], axis=1))
        return (upper, solved), solved

    size = local.shape[1]
    nothing = (jnp.zeros_like(local[0]), jnp.zeros((size, size + right.shape[2]), local.dtype))
    _, eliminated = jax.lax.scan(forward, nothing, (local, following, right))

    def backward(after, solved):
        here = solved[:, size:] - solved[:, :size] @ after
        return here, here

    _, out = jax.lax.scan(backward, jnp.zeros_like(right[0]), eliminated, reverse=True)
    return out
