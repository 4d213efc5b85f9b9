"""Linear-quadratic problems, which approximate a control problem near a plan, and their exact solution by Riccati recursions.

    minimize    sum over k < N of 1/2 [z; u]' [[Q, S'], [S, R]] [z; u] + q'z + r'u  +  1/2 z_N' Q_N z_N + q_N' z_N
    such that   z_{k+1} = A z + B u + d,   z_0 given except for its last entries, the design, which may be free

The recursion runs backward in time, either sequentially (`riccati`) or as an associative scan in O(log N) steps on hardware with
many threads (`parallel_riccati`). In each step a small quadratic program enforces the bounds of the controls.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample
from jaxdyn.compute.arrays import einsum
from jaxdyn.spatial import factorizations


class LinearQuadratic(eqx.Module):
    """The matrices of a linear-quadratic problem; row k belongs to time step k.

    Attributes:
        A, B, d: Matrices of the dynamics z_{k+1} = A z_k + B u_k + d.
        Q, S, R, q, r: Second and first derivatives of the cost of each time step.
        Q_end, q_end: Hessian and gradient of the final cost.
    """

    A: Float[Array, "N n n"]
    B: Float[Array, "N n m"]
    d: Float[Array, "N n"]
    Q: Float[Array, "N n n"]
    S: Float[Array, "N m n"]
    R: Float[Array, "N m m"]
    q: Float[Array, "N n"]
    r: Float[Array, "N m"]
    Q_end: Float[Array, "n n"]
    q_end: Float[Array, "n"]


class Policy(eqx.Module):
    """Solution of a linear-quadratic problem: u_k = k_k + K_k z_k, and the cost to go V_k(z_k) of this policy.

    Attributes:
        feedforward, feedback: Terms k_k and K_k of each time step.
        gradients, hessians: Gradients and Hessians of the costs to go V_0 to V_N at z = 0.
        slope, curvature: Coefficients of the change alpha slope + alpha^2 curvature / 2 of the cost by a fraction alpha of the
            feedforward, for z_0 = 0.
    """

    feedforward: Float[Array, "N m"]
    feedback: Float[Array, "N m n"]
    gradients: Float[Array, "N_1 n"]
    hessians: Float[Array, "N_1 n n"]
    slope: Float[Array, ""]
    curvature: Float[Array, ""]


def riccati(
    problem: LinearQuadratic,
    lower: Float[Array, "N m"] | None = None,
    upper: Float[Array, "N m"] | None = None,
    damping: Float[Array, ""] | float = 0.0,
) -> Policy:
    """The optimal policy, computed backward in time. The policy is NaN if the control Hessian of a step is not positive definite.

    Args:
        problem: Linear-quadratic problem.
        lower, upper: Bounds of the feedforward; feedback does not change controls at a bound. None for no bounds.
        damping: Regularization: the diagonal of each control Hessian is increased by this fraction of its absolute values.

    Source: Tassa, Mansard and Todorov 2014 (bounds).
    """
    bounded = lower is not None and upper is not None

    def backward(after, step):
        gradient, hessian, slope, curvature = after
        reached = gradient, hessian
        A, B, d, Q, S, R, q, r, low, high = step
        ahead = gradient + hessian @ d  # (S3)
        gu, gz = r + B.T @ ahead, q + A.T @ ahead
        along_z, along_u = hessian @ A, hessian @ B
        Huu, Huz, Hzz = R + B.T @ along_u, S + B.T @ along_z, Q + A.T @ along_z
        H = damped(Huu, damping)
        k, K = box_minimum(H, gu, Huz, low, high) if bounded else _minimum(H, gu, Huz)
        Huu_k = Huu @ k
        gradient = gz + K.T @ (Huu_k + gu) + Huz.T @ k
        # The cost of the policy is Hzz + K' (Huu K + Huz) + Huz' K, and K satisfies K' (H K + Huz) = 0.
        added = jnp.diagonal(H) - jnp.diagonal(Huu)
        hessian = Hzz + (Huz - added[:, None] * K).T @ K
        # The lane compiler computes the lower triangle only.
        hessian = jnp.tril(hessian) + jnp.tril(hessian, -1).T
        return (gradient, hessian, slope + k @ gu, curvature + k @ Huu_k), (k, K, *reached)

    p = problem
    zero = jnp.zeros((), p.q.dtype)
    unused = jnp.zeros_like(p.r)
    steps = (p.A, p.B, p.d, p.Q, p.S, p.R, p.q, p.r, *((lower, upper) if bounded else (unused, unused)))
    end = (p.q_end, p.Q_end, zero, zero)
    first, (k, K, gradients, hessians) = jax.lax.scan(backward, end, steps, reverse=True)
    gradient, hessian, slope, curvature = first
    gradients, hessians = jnp.concatenate([gradient[None], gradients]), jnp.concatenate([hessian[None], hessians])
    return Policy(k, K, gradients, hessians, slope, curvature)


def parallel_riccati(problem: LinearQuadratic) -> Policy:
    """The policy that `riccati` returns, computed by an associative scan; R must be positive definite in every step.

    Source: Sarkka and Garcia-Fernandez 2023.
    """
    p = problem
    solved = jax.vmap(_solve)(p.R, jnp.concatenate([p.S, p.r[:, :, None], jnp.swapaxes(p.B, 1, 2)], axis=2))
    n = p.q.shape[1]
    by_S, by_r, by_B = solved[:, :, :n], solved[:, :, n], solved[:, :, n + 1 :]
    last = lambda x, end: jnp.concatenate([x, end[None]])  # noqa: E731
    elements = (
        last(p.A - p.B @ by_S, jnp.zeros_like(p.A[0])),
        last(p.d - einsum("kij,kj->ki", p.B, by_r), jnp.zeros_like(p.d[0])),
        last(p.B @ by_B, jnp.zeros_like(p.A[0])),
        last(einsum("kmi,km->ki", p.S, by_r) - p.q, -p.q_end),
        last(p.Q - jnp.swapaxes(p.S, 1, 2) @ by_S, p.Q_end),
    )
    _, _, _, eta, hessians = jax.lax.associative_scan(jax.vmap(_follow), elements, reverse=True)
    gradients = -eta

    def gains(A, B, d, S, R, r, gradient, hessian):
        ahead = gradient + hessian @ d
        k, K = _minimum(R + B.T @ hessian @ B, r + B.T @ ahead, S + B.T @ hessian @ A)
        return k, K, k @ (r + B.T @ ahead)

    k, K, slope = jax.vmap(gains)(p.A, p.B, p.d, p.S, p.R, p.r, gradients[1:], hessians[1:])
    return Policy(k, K, gradients, hessians, jnp.sum(slope), -jnp.sum(slope))


def _follow(later, earlier):
    """Combine the elements of two consecutive time spans; `associative_scan` in reverse passes the later one first."""
    A2, b2, C2, eta2, J2 = later
    A1, b1, C1, eta1, J1 = earlier
    one = jnp.asarray(np.eye(len(b1)), b1.dtype)
    right = jnp.concatenate([A1, (b1 + C1 @ eta2)[:, None], C1 @ A2.T], axis=1)
    solved = factorizations.solve(one + C1 @ J2, right)
    n = len(b1)
    A, b, C = A2 @ solved[:, :n], A2 @ solved[:, n] + b2, A2 @ solved[:, n + 1 :] + C2
    left = factorizations.solve(one + J2 @ C1, jnp.concatenate([(eta2 - J2 @ b1)[:, None], J2 @ A1], axis=1))
    eta, J = A1.T @ left[:, 0] + eta1, A1.T @ left[:, 1:] + J1
    return A, b, 0.5 * (C + C.T), eta, 0.5 * (J + J.T)


def steps_of(
    problem: LinearQuadratic, policy: Policy, start: Float[Array, "n"]
) -> tuple[Float[Array, "N_1 n"], Float[Array, "N m"]]:
    """States z_0 to z_N and controls under a policy, from the state z_0 = start; the bounds of controls are not enforced."""

    def forward(z, step):
        A, B, d, k, K = step
        u = k + K @ z
        return A @ z + B @ u + d, (z, u)  # (S2)

    steps = (problem.A, problem.B, problem.d, policy.feedforward, policy.feedback)
    end, (z, u) = jax.lax.scan(forward, start, steps)
    return jnp.concatenate([z, end[None]]), u


def parallel_steps_of(
    problem: LinearQuadratic, policy: Policy, start: Float[Array, "n"]
) -> tuple[Float[Array, "N_1 n"], Float[Array, "N m"]]:
    """The result of `steps_of`, computed by an associative scan of affine maps."""
    A = problem.A + problem.B @ policy.feedback
    b = problem.d + einsum("kij,kj->ki", problem.B, policy.feedforward)

    def after(first, second):
        (A1, b1), (A2, b2) = first, second
        return A2 @ A1, einsum("kij,kj->ki", A2, b1) + b2

    A, b = jax.lax.associative_scan(after, (A, b))
    z = jnp.concatenate([start[None], einsum("kij,j->ki", A, start) + b])
    return z, policy.feedforward + einsum("kij,kj->ki", policy.feedback, z[:-1])


def change(
    problem: LinearQuadratic, z: Float[Array, "N_1 n"], u: Float[Array, "N m"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Slope a and curvature b of the cost along (z, u): the step alpha (z, u) changes the cost by alpha a + alpha^2 b / 2."""
    p = problem

    def of_step(q, r, Q, R, S, z, u):
        return q @ z + r @ u, z @ (Q @ z) + u @ (R @ u) + 2.0 * (u @ (S @ z))

    def added(total, step):
        return jax.tree.map(jnp.add, total, of_step(*step)), None

    steps, end = (p.q, p.r, p.Q, p.R, p.S, z[:-1], u), z[-1]
    at_end = p.q_end @ end, end @ p.Q_end @ end
    return jax.lax.scan(added, at_end, steps)[0]


def costates(policy: Policy, z: Float[Array, "N_1 n"]) -> Float[Array, "N n"]:
    """Derivatives of the costs to go with respect to the states z_1 to z_N, if the policy is followed from these states."""
    return policy.gradients[1:] + einsum("kij,kj->ki", policy.hessians[1:], z[1:])


def adjoint(problem: LinearQuadratic, feedback: Float[Array, "N m i"] | None = None) -> Float[Array, "N n"]:
    """Derivatives of the cost with respect to the gaps d at z = 0 and u = 0, optionally with feedback of the first entries of z."""
    n = problem.q.shape[1]

    def back(after, row):
        A, B, q, r, K = row
        slope = q + A.T @ after
        if K is not None:
            fed = K.T @ (r + B.T @ after)
            slope = slope + jnp.concatenate([fed, jnp.zeros(n - len(fed), fed.dtype)])
        return slope, after

    p = problem
    return jax.lax.scan(back, p.q_end, (p.A, p.B, p.q, p.r, feedback), reverse=True)[1]


def optimum(
    problem: LinearQuadratic,
    along: Float[Array, "n P"],
    hessian: Float[Array, "P P"],
    gradient: Float[Array, "P"],
    *,
    damping: Float[Array, ""] | float = 0.0,
    parallel: bool = False,
) -> tuple[Policy, Float[Array, "P"], Float[Array, "N_1 n"], Float[Array, "N m"], Float[Array, "N n"]]:
    """The optimal policy, p, z, u and costates, if z_0 = along p with a free vector p of cost 1/2 p' hessian p + gradient' p.

    Args:
        problem: Linear-quadratic problem.
        along: Derivative of the initial state z_0 with respect to the free vector p.
        hessian, gradient: Hessian and gradient of the cost of p.
        damping: Regularization: the diagonal of the total Hessian of p is increased by this fraction of its absolute values.
        parallel: If true, associative scans replace the sequential recursions.
    """
    recursion = parallel_riccati if parallel else per_sample(riccati, name="Riccati recursion")
    policy, p = recursion(problem), gradient
    if p.size:
        whole = damped(along.T @ policy.hessians[0] @ along + hessian, damping)
        p = -factorizations.solve(whole, along.T @ policy.gradients[0] + gradient)
    if parallel:
        z, u = parallel_steps_of(problem, policy, along @ p)
    else:
        z, u = per_sample(steps_of, name="steps of a policy")(problem, policy, along @ p)
    return policy, p, z, u, costates(policy, z)


def damped(
    H: Float[Array, "*batch n n"], damping: Float[Array, ""] | float, added: Array | float = 0.0
) -> Float[Array, "*batch n n"]:
    """The Hessian H with the diagonal entries H_ii + damping |H_ii| + added."""
    diagonal = np.broadcast_to(np.eye(H.shape[-1], dtype=bool), H.shape)
    return jnp.where(diagonal, H + damping * jnp.abs(H) + jnp.broadcast_to(added, H.shape), H)


def residual(
    problem: LinearQuadratic, z: Float[Array, "N_1 n"], u: Float[Array, "N m"], costates: Float[Array, "N n"]
) -> LinearQuadratic:
    """The linear-quadratic problem whose solution is the correction of an approximate solution (z, u, costates)."""
    p, before = problem, z[:-1]
    q = p.q + einsum("kij,kj->ki", p.Q, before) + einsum("kmi,km->ki", p.S, u) + einsum("kij,ki->kj", p.A, costates)
    r = p.r + einsum("kmo,ko->km", p.R, u) + einsum("kmi,ki->km", p.S, before) + einsum("kim,ki->km", p.B, costates)
    d = p.d + einsum("kij,kj->ki", p.A, before) + einsum("kim,km->ki", p.B, u) - z[1:]
    q = q - jnp.concatenate([jnp.zeros_like(q[:1]), costates[:-1]])
    return eqx.tree_at(lambda p: (p.q, p.r, p.d, p.q_end), p, (q, r, d, p.q_end + p.Q_end @ z[-1] - costates[-1]))


def _solve(matrix: Float[Array, "m m"], right: Float[Array, "m c"]) -> Float[Array, "m c"]:
    """Solution with a positive definite matrix; NaN for any other matrix."""
    return factorizations.cholesky_solve(factorizations.cholesky(matrix), right)


def _minimum(H: Float[Array, "m m"], g: Float[Array, "m"], Hz: Float[Array, "m n"]):
    """Feedforward and feedback of one step."""
    solved = -_solve(H, jnp.concatenate([g[:, None], Hz], axis=1))
    return solved[:, 0], solved[:, 1:]


def box_minimum(
    H: Float[Array, "m m"],
    g: Float[Array, "m"],
    Hz: Float[Array, "m n"],
    lower: Float[Array, "m"],
    upper: Float[Array, "m"],
) -> tuple[Float[Array, "m"], Float[Array, "m n"]]:
    """Minimizer k of 1/2 k'H k + g'k within bounds, and the feedback K for the components of k that are not at a bound.

    The method is projected Newton, with the best of several step lengths in each iteration. H must be positive definite.

    Args:
        H: Hessian with respect to k.
        g: Gradient at k = 0.
        Hz: Derivative of the gradient g with respect to the state z.
        lower, upper: Bounds of k.

    Source: Bertsekas 1982; Tassa, Mansard and Todorov 2014.
    """
    m = len(g)
    one = jnp.asarray(np.eye(m), g.dtype)
    lengths = jnp.asarray(0.5 ** np.arange(_LENGTHS), g.dtype)

    def fixed(k):
        slope = H @ k + g
        return ((k <= lower) & (slope > 0)) | ((k >= upper) & (slope < 0))

    def among_free(k, right):
        """Solution for the free entries; the other entries are those of the right side."""
        free = jnp.where(fixed(k), 0.0, 1.0).astype(g.dtype)
        return _solve(free[:, None] * H * free[None] + (1.0 - free)[:, None] * one, free[:, None] * right)

    def improve(k):
        step = -among_free(k, (H @ k + g)[:, None])[:, 0]
        tried = jnp.clip(k[None] + lengths[:, None] * step[None], lower[None], upper[None])
        value = 0.5 * einsum("ai,ij,aj->a", tried, H, tried) + tried @ g
        best = jnp.argmin(value)
        # After a whole step within the bounds, k is the minimizer if the same components stay at their bounds.
        is_whole = jnp.all(tried[best] == k + step) & jnp.all(fixed(tried[best]) == fixed(k))
        return tried[best], is_whole

    free = -_solve(H, g[:, None])[:, 0]
    k = jnp.clip(free, lower, upper)
    if m > 1:
        k = _until(improve, k, jnp.all(k == free), m + _EXTRA)
    return k, -among_free(k, Hz)


def _until(improve, x, done, most: int):
    """Improve x until `improve` says that it is done, at most a number of times."""

    def again(state):
        count, x, _ = state
        return count + 1, *improve(x)

    return jax.lax.while_loop(lambda state: ~state[2] & (state[0] < most), again, (0, x, done))[1]


_LENGTHS, _EXTRA = 8, 3  # step lengths that are tried, and iterations in addition to the number of controls
