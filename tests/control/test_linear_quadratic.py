"""Linear-quadratic problems: both recursions against the dense problem, and small quadratic programs against their conditions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.compute import per_sample
from jaxdyn.control.linear_quadratic import (
    LinearQuadratic,
    box_minimum,
    change,
    costates,
    damped,
    parallel_riccati,
    parallel_steps_of,
    riccati,
    steps_of,
)

N, n, m = 9, 3, 2


def positive(rng, size: int, least: float = 1.0) -> np.ndarray:
    root = rng.normal(size=(size, size))
    return root @ root.T + least * np.eye(size)


@pytest.fixture(scope="module")
def problem() -> LinearQuadratic:
    """Unstable, with gaps and mixed terms."""
    rng = np.random.default_rng(0)
    H = np.stack([positive(rng, n + m) for _ in range(N)])
    numbers = (
        rng.normal(size=(N, n, n)),
        rng.normal(size=(N, n, m)),
        rng.normal(size=(N, n)),
        H[:, :n, :n],
        H[:, n:, :n],
        H[:, n:, n:],
        rng.normal(size=(N, n)),
        rng.normal(size=(N, m)),
        positive(rng, n),
        rng.normal(size=n),
    )
    return LinearQuadratic(*map(jnp.asarray, numbers))


def cost(problem: LinearQuadratic, start, u):
    """Written out, step by step."""
    z, total = start, 0.0
    for k in range(N):
        Q, S, R = problem.Q[k], problem.S[k], problem.R[k]
        total = total + 0.5 * z @ Q @ z + u[k] @ S @ z + 0.5 * u[k] @ R @ u[k] + problem.q[k] @ z + problem.r[k] @ u[k]
        z = problem.A[k] @ z + problem.B[k] @ u[k] + problem.d[k]
    return total + 0.5 * z @ problem.Q_end @ z + problem.q_end @ z


START = jnp.array([0.3, -1.2, 0.7])


def test_policy_minimizes_and_its_value_is_the_cost(problem):
    policy = riccati(problem)
    z, u = steps_of(problem, policy, START)
    value, slope = jax.jit(jax.value_and_grad(lambda u: cost(problem, START, u)))(u)
    np.testing.assert_allclose(slope, 0.0, atol=1e-10)
    # The cost to go is quadratic in the start.
    origin = cost(problem, jnp.zeros(n), steps_of(problem, policy, jnp.zeros(n))[1])
    expected = origin + policy.gradients[0] @ START + 0.5 * START @ policy.hessians[0] @ START
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    # From zero and without gaps, the full step is the minimum: there half of what the slope promises is lost again.
    none = jax.tree.map(jnp.zeros_like, problem.d)
    flat = LinearQuadratic(*(none if name == "d" else getattr(problem, name) for name in problem.__dataclass_fields__))
    policy = riccati(flat)
    z, u = steps_of(flat, policy, jnp.zeros(n))
    along, bend = change(flat, z, u)
    np.testing.assert_allclose(along, -bend, rtol=1e-12)
    np.testing.assert_allclose([policy.slope, policy.curvature], [along, bend], rtol=1e-12)
    np.testing.assert_allclose(along + 0.5 * bend, cost(flat, jnp.zeros(n), u), rtol=1e-12)


def test_costates_are_the_derivatives_of_the_cost_with_respect_to_gaps(problem):
    policy = riccati(problem)
    z, u = steps_of(problem, policy, START)

    def moved(d):
        shifted = LinearQuadratic(
            *(d if name == "d" else getattr(problem, name) for name in problem.__dataclass_fields__)
        )
        return cost(shifted, START, u)

    # At the optimum it does not matter whether controls react.
    np.testing.assert_allclose(costates(policy, z), jax.jit(jax.grad(moved))(problem.d), rtol=1e-9, atol=1e-9)


def test_costates_away_from_the_optimum_are_those_of_feedback(problem):
    policy = riccati(problem, damping=0.7)
    z, u = steps_of(problem, policy, START)

    def followed(d):
        """Cost if deviations from these states are fed back."""
        controls, x = [], START
        for k in range(N):
            controls.append(u[k] + policy.feedback[k] @ (x - z[k]))
            x = problem.A[k] @ x + problem.B[k] @ controls[k] + d[k]
        shifted = LinearQuadratic(
            *(d if name == "d" else getattr(problem, name) for name in problem.__dataclass_fields__)
        )
        return cost(shifted, START, jnp.stack(controls))

    slope = jax.jit(jax.grad(followed))(problem.d)
    np.testing.assert_allclose(costates(policy, z), slope, rtol=1e-9, atol=1e-9)


def test_parallel_recursion_is_the_sequential_one(problem):
    ours, theirs = jax.jit(parallel_riccati)(problem), riccati(problem)
    for name in theirs.__dataclass_fields__:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-10)
    in_parallel = jax.jit(parallel_steps_of)(problem, theirs, START)
    for a, b in zip(in_parallel, steps_of(problem, theirs, START), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def one_by_one(function):
    """A map over samples that the lane compiler computes one after the other."""
    alone = jax.jit(per_sample(function, backend="lanes"))

    def mapped(*args):
        samples = [jax.tree.map(lambda x, k=k: x[k], args) for k in range(len(jax.tree.leaves(args)[0]))]
        results = [alone(*sample) for sample in samples]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)

    return mapped


ROUTES = {
    "xla": jax.vmap,
    "lanes": lambda function: jax.vmap(per_sample(function, backend="lanes")),
    "single samples": one_by_one,
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("size", [1, 3, 6])
def test_box_minimum_meets_its_conditions(size, route):
    rng = np.random.default_rng(size)
    H = jnp.asarray(np.stack([positive(rng, size, 0.05) for _ in range(200)]))
    g = jnp.asarray(3.0 * rng.normal(size=(200, size)))
    lower, upper = -jnp.asarray(rng.uniform(0, 1, (200, size))), jnp.asarray(rng.uniform(0, 1, (200, size)))
    Hz = jnp.asarray(rng.normal(size=(200, size, 2)))
    k, K = ROUTES[route](box_minimum)(H, g, Hz, lower, upper)
    slope = np.einsum("sij,sj->si", H, k) + g
    np.testing.assert_allclose(np.clip(k - slope, lower, upper), k, atol=1e-9)
    fixed = (np.asarray(k) <= lower) | (np.asarray(k) >= upper)
    assert 50 < fixed.sum() < 190 * size
    np.testing.assert_array_equal(np.asarray(K)[fixed], 0.0)
    for H0, K0, Hz0, fixed0 in zip(np.asarray(H), np.asarray(K), np.asarray(Hz), fixed, strict=True):
        free = ~fixed0
        np.testing.assert_allclose(H0[np.ix_(free, free)] @ K0[free], -Hz0[free], atol=1e-9)


def test_policy_within_bounds(problem):
    low, high = jnp.full((N, m), -0.4), jnp.full((N, m), 0.3)
    policy = riccati(problem, low, high)
    assert jnp.all((policy.feedforward >= low) & (policy.feedforward <= high))
    wide = riccati(problem, jnp.full((N, m), -1e6), jnp.full((N, m), 1e6))
    np.testing.assert_allclose(wide.feedback, riccati(problem).feedback, rtol=1e-10)


def _blocks(nz: int):
    z, u = slice(nz), slice(nz, None)
    return (z, z), (u, z), (u, u)


def test_the_cost_to_go_is_that_of_the_policy(problem):
    """With damping and with bounds, where the policy is not the minimizer of the model."""
    low, high = jnp.full((N, m), -0.3), jnp.full((N, m), 0.2)
    policy = riccati(problem, low, high, 0.7)
    at_bounds = (policy.feedforward <= low) | (policy.feedforward >= high)
    assert 3 < at_bounds.sum() < N * m - 3
    hessian = np.asarray(problem.Q_end)
    for k in reversed(range(N)):
        A, B, Q, S, R, K = (np.asarray(x[k]) for x in (*(getattr(problem, s) for s in "ABQSR"), policy.feedback))
        closed = A + B @ K
        hessian = Q + K.T @ S + S.T @ K + K.T @ R @ K + closed.T @ hessian @ closed
        np.testing.assert_allclose(policy.hessians[k], hessian, rtol=1e-9, atol=1e-9)


def test_damping_shortens_and_a_step_without_minimum_is_no_number(problem):
    steps = [steps_of(problem, riccati(problem, damping=d), jnp.zeros(n))[1] for d in (0.0, 1.0, 1e6)]
    sizes = [float(jnp.linalg.norm(u)) for u in steps]
    assert sizes[0] > sizes[1] > 1e3 * sizes[2]
    hessian = jnp.array([[2.0, 0.5], [0.5, -3.0]])
    np.testing.assert_allclose(damped(hessian, 0.1), [[2.2, 0.5], [0.5, -2.7]])  # a negative curvature is lessened
    bent = LinearQuadratic(
        *(-100.0 * problem.R if name == "R" else getattr(problem, name) for name in problem.__dataclass_fields__)
    )
    assert not np.isfinite(riccati(bent).feedforward).all()
