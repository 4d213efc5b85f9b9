"""Spatial loops whose equations are redundant in closed configurations only: Bricard's, Bennett's and Sarrus' linkages, planar and
spherical four-bars in any place, and random loops that are symmetric about a line. Each moves as the same loop with as many
combinations of its equations as are independent."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import (
    ImplicitMidpoint,
    LinkageBuilder,
    Projected,
    Revolute,
    RungeKutta4,
    SemiImplicitEuler,
    State,
    System,
    Variational,
)
from jaxdyn.constraints import constraint_jacobian
from jaxdyn.dynamics.constraint import Constraint

# Loops of 100 m have links of 1 kg.
pytestmark = [
    pytest.mark.usefixtures("as_a_user"),
    pytest.mark.filterwarnings("ignore::jaxdyn.mechanism.messages.ImplausibleInertia"),
]

BRICARD = (
    [(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)],
    [(0, -1, 0), (0, 0, 1), (1, 0, 0), (0, -1, 0), (0, 0, 1), (1, 0, 0)],
)
SARRUS = (
    [(0, 0, 0), (1, 0, 0.5), (0, 0, 1.2), (0.3, 0.2, 1.2), (0.3, 1.1, 0.6), (0.3, 0.2, 0)],
    [(0, 1, 0)] * 3 + [(1, 0, 0)] * 3,
)


class Combined(Constraint):
    """Combinations of the equations of another constraint."""

    name: str = eqx.field(static=True)
    weights: jax.Array
    whole: Constraint

    def residual(self, model, q, poses):
        return self.weights @ self.whole.residual(model, q, poses)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def about_line(points, axes, at, along):
    """Half a turn about a line."""
    turn = 2.0 * np.outer(along, along) - np.eye(3)
    return np.concatenate([points, at + (points - at) @ turn]), np.concatenate([axes, axes @ turn])


def bennett(rng):
    """Opposite links are equal, and sin(twist) / length is the same in all."""
    lengths, twists = [1.0, 0.0], [rng.uniform(0.5, 1.2), rng.uniform(1.4, 2.2)]
    lengths[1] = np.sin(twists[1]) / np.sin(twists[0])
    first = rng.uniform(0.5, 2.0)
    ratio = np.sin(np.mean(twists)) / np.sin(0.5 * (twists[1] - twists[0]))
    second = 2.0 * np.arctan(ratio / np.tan(0.5 * first))
    place, points, axes = np.eye(4), [], []
    for k, angle in enumerate((first, second, -first, -second)):
        points, axes = [*points, place[:3, 3]], [*axes, place[:3, 2]]
        c, s, ct, st = np.cos(angle), np.sin(angle), np.cos(twists[k % 2]), np.sin(twists[k % 2])
        length = lengths[k % 2]
        place = place @ np.array(
            [[c, -s * ct, s * st, length * c], [s, c * ct, -c * st, length * s], [0, st, ct, 0], [0, 0, 0, 1]]
        )
    np.testing.assert_allclose(place, np.eye(4), atol=1e-12)
    return np.array(points), np.array(axes)


def linkage(points, axes, rng, size: float) -> System:
    """Bodies between revolute joints at these points, somewhere in space; the last joint closes the loop at q = 0."""
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    turn *= np.linalg.det(turn)
    points, axes = size * (np.array(points) @ turn.T + rng.normal(size=3)), np.array(axes) @ turn.T
    builder = LinkageBuilder("loop", gravity=tuple(5.0 * rng.normal(size=3)))
    names = ["ground", *(f"link {k}" for k in range(len(points) - 1)), "ground"]
    for k, name in enumerate(names[1:-1]):
        spread = 0.3 * size * rng.normal(size=(3, 3))
        second = spread @ spread.T + 0.02 * size**2 * np.eye(3)
        inertia = np.trace(second) * np.eye(3) - second
        com = 0.5 * (points[k + 1] - points[k]) + 0.1 * size * rng.normal(size=3)
        places = np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])
        builder.add_body(name, mass=1.0, com=tuple(com), inertia=tuple(inertia[places]))
    for k, axis in enumerate(axes):
        own = points[k] if k == len(points) - 1 else np.zeros(3)
        before = points[k] - (points[k - 1] if k else 0.0)
        builder.add_joint(
            f"joint {k}", Revolute(tuple(unit(axis))), names[k], names[k + 1], position_a=before, position_b=own
        )
    return builder.build(cut=[f"joint {len(points) - 1}"])


def stacked(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@functools.cache
def family(joints: int) -> tuple[System, System, State, np.ndarray]:
    """Loops of this number of joints, the same with independent equations, closed states, and the sizes of the loops."""
    rng = np.random.default_rng(joints)
    if joints == 6:
        symmetric = [
            about_line(rng.normal(size=(3, 3)), rng.normal(size=(3, 3)), rng.normal(size=3), unit(rng.normal(size=3)))
            for _ in range(2)
        ]
        lines, rank, sizes = [BRICARD, SARRUS, *symmetric], 4, [1.0, 1.0, 1.0, 10.0]
    else:
        around = unit(rng.normal(size=(4, 3)))
        corners = np.array([(0, 0, 0), (0.2, 1.5, 0), (2, 2.5, 0), (2.5, 0, 0)])
        lines = [bennett(rng), (corners, [(0, 0, 1)] * 4), (around, around), bennett(rng)]
        rank, sizes = 2, [1.0, 1.0, 1.0, 100.0]
    systems, references, states = [], [], []
    for (points, axes), size in zip(lines, sizes, strict=True):
        system = linkage(points, axes, rng, size)
        rows = np.asarray(constraint_jacobian(system, system.at_rest(jnp.zeros(joints - 1))))
        combinations, singular, free = np.linalg.svd(rows)
        assert singular[rank - 1] > 1e-3 * singular[0]
        assert np.all(singular[rank:] < 1e-9)  # one degree of freedom remains
        closing = Combined("combined", jnp.asarray(combinations[:, :rank].T), system.constraints[0])
        systems, references = [*systems, system], [*references, System(system.model, constraints=(closing,))]
        states.append(State(jnp.zeros(joints - 1), jnp.asarray(2.0 / np.sqrt(size) * free[-1])))
    return stacked(systems), stacked(references), stacked(states), np.array(sizes)


def opened(state: State, by: float, seed: int = 0) -> State:
    return State(state.q + by * unit(np.random.default_rng(seed).normal(size=state.q.shape)), state.v)


accelerations = jaxdyn.batched(jaxdyn.acceleration, backend="lanes")


@pytest.mark.parametrize("joints", [4, 6])
def test_an_open_loop_accelerates_as_if_its_redundant_equations_were_left_out(joints):
    system, reference, state, _ = family(joints)
    size = np.abs(accelerations(reference, state)).max(axis=1, keepdims=True)
    for by in (0.0, 1e-6, 1e-5, 1e-4, 1e-3):
        for seed in range(3):
            start = opened(state, by, seed)
            error = np.abs(accelerations(system, start) - accelerations(reference, start)) / size
            # Equations that are left out of an open loop differ by its opening.
            assert error.max() < 1e-10 + 20.0 * by, (by, seed)


def simulated(integrator, steps: int, save_every: int):
    def run(system, state, size):
        dt = 0.5 / steps * jnp.sqrt(size)  # so that loops of all sizes move alike

        def energy(t, state, u):
            return jaxdyn.total_energy(system, state) / size

        found = jaxdyn.rollout(
            system, state, dt=dt, steps=steps, save_every=save_every, integrator=integrator, save=energy
        )
        return found.final.q, found.saved, found.result

    return jaxdyn.batched(run, backend="lanes")


@pytest.mark.parametrize("joints", [pytest.param(4, marks=pytest.mark.thorough), 6])
def test_redundant_equations_change_neither_energy_nor_motion_of_projected_steps_of_10_ms(joints):
    system, reference, state, size = family(joints)
    run = simulated(Projected(), 50, 10)
    for by, error in ((0.0, 1e-8), (1e-3, 1e-4)):
        start = opened(state, by)
        (q, energy, result), (expected, ideal, _) = run(system, start, size), run(reference, start, size)
        assert np.all(result == 0)
        np.testing.assert_allclose(q, expected, atol=error)
        if not by:
            np.testing.assert_allclose(energy, ideal, atol=1e-7)  # J for a loop of 1 m
            assert np.ptp(energy[:2], axis=1).max() < 1e-7  # the other loops move too fast for this order and step
    assert np.abs(q).max() > 0.3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("integrator", "closed"),
    [(SemiImplicitEuler(), 1e-5), (RungeKutta4(), 1e-8), (ImplicitMidpoint(), 1e-6), (Variational(), 1e-8)],
    ids=lambda x: type(x).__name__,
)
def test_redundant_equations_do_not_change_the_motion_of_any_integrator(integrator, closed):
    system, reference, state, size = family(6)
    run = simulated(integrator, 50, 50)
    for by, error in ((0.0, closed), (1e-3, 1e-3)):
        start = opened(state, by)
        (q, _, result), (expected, _, possible) = run(system, start, size), run(reference, start, size)
        assert np.all(result == 0)
        np.testing.assert_allclose(q[possible == 0], expected[possible == 0], atol=error)


@pytest.mark.thorough
def test_derivatives_of_rollouts_of_redundant_loops_are_difference_quotients():
    """By the initial state and a length; the states are off the closed set on either side."""
    system, _, state, _ = family(6)

    def final(change, system, state, direction):
        moved = eqx.tree_at(lambda s: s.model.com, system, system.model.com + change * direction[5:20].reshape(5, 3))
        start = State(state.q + change * direction[:5], state.v)
        end = jaxdyn.rollout(moved, start, dt=1e-2, steps=20, save_every=20, integrator=Projected()).final
        return jnp.sum(end.q**2) + jnp.sum(end.v**2)

    run = jaxdyn.batched(jax.value_and_grad(final), backend="lanes")
    direction = jnp.asarray(np.random.default_rng(1).normal(size=(4, 20)))
    step = 1e-5
    _, slope = run(jnp.zeros(4), system, state, direction)
    ahead, behind = (run(jnp.full(4, x), system, state, direction)[0] for x in (step, -step))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-4)
