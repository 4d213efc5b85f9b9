"""Mechanisms with long chains: scalar programs have loops over their bodies, with the results of code for each body."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import close, random_model, random_motion

import jaxdyn
from jaxdyn.compute import sweeps
from jaxdyn.compute.programs import operations_of
from jaxdyn.lanes import flatten
from jaxdyn.lanes.rules import functions

# Two chains on a free body, the second of which branches off within the first one; joints of several kinds.
PARENTS = [-1, *range(5), 3, *range(6, 9)]
KINDS = "FRSPUR" + "RSRR"


@pytest.fixture
def short_loops(monkeypatch):
    monkeypatch.setattr(sweeps, "_LONGEST_WRITTEN_OUT", 8)
    monkeypatch.setattr(sweeps, "_SHORTEST_LOOP", 3)
    monkeypatch.setattr(functions, "_UNROLLED_EQUATIONS", 0)
    jax.clear_caches()  # also of traces of equal functions without loops
    yield
    jax.clear_caches()


def rope(bodies: int) -> jaxdyn.Model:
    """Rods on ball joints, hanging from the ground."""
    builder = jaxdyn.MechanismBuilder("rope")
    for i in range(bodies):
        builder.add_body(
            f"rod {i}",
            joint=jaxdyn.Spherical(),
            parent=f"rod {i - 1}" if i else "ground",
            position=(0.0, 0.0, -0.02 if i else 0.0),
            mass=0.01,
            com=(0.0, 0.0, -0.01),
            inertia=(1e-6, 1e-6, 2e-7),
        )
    return builder.build()


def results(model, q, v, a):
    """Dynamics, a derivative along a direction, and functions of pairs of bodies."""

    def forward(q, v, tau):
        return jaxdyn.forward_dynamics(model, q, v, tau, method="articulated_body")

    rate = jaxdyn.configuration.coordinate_rate(model, q, a)
    friction = jaxdyn.JointFriction(jnp.full(model.nv, 0.1), jnp.full(model.nv, 0.2), jnp.full(model.nv, 0.01))
    system = jaxdyn.System(model, forces=(friction,), method="articulated_body")
    return {
        "derivative": jax.jvp(forward, (q, v, a), (rate, a, v)),
        "inverse dynamics": jaxdyn.inverse_dynamics(model, q, v, a),
        "mass matrix": jaxdyn.mass_matrix(model, q),
        "Jacobians": jaxdyn.body_jacobian(model, q),
        "rollout": jaxdyn.rollout(system, jaxdyn.State(q, v), dt=1e-3, steps=1).final.v,
    }


def test_loops_over_bodies_have_the_results_of_code_for_each_body(request):
    rng = np.random.default_rng(0)
    model = random_model(rng, len(PARENTS), parents=PARENTS, kinds=KINDS, armature=True)
    motion = [x[None] for x in random_motion(rng, model)]

    def of_model(*motion):
        return results(model, *motion)

    expected = jaxdyn.batched(of_model, backend="lanes")(*motion)
    request.getfixturevalue("short_loops")
    found = jaxdyn.batched(of_model, backend="lanes")(*motion)
    written_out, looped = jaxdyn.lanes.records()[-2:]
    assert written_out.operations != looped.operations
    for actual, value in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        close(actual, value, scale=1e3 * float(jnp.max(jnp.abs(value))))


def test_the_program_of_a_rope_hardly_grows_with_its_length():
    counts = []
    for bodies in (100, 200):
        model = rope(bodies)
        q, v, tau = random_motion(np.random.default_rng(1), model)
        counts.append(operations_of(lambda *x, model=model: jaxdyn.forward_dynamics(model, *x), (q, v, tau)))
    if None in counts:
        pytest.skip("the lane compiler, which counts operations, cannot be used")
    assert counts[0] < 10_000  # 127,000 with code for each body
    assert counts[1] < 1.2 * counts[0]


@pytest.mark.usefixtures("short_loops")
def test_a_gradient_through_a_rope_is_one_of_differences():
    """The reverse pass has loops over the bodies, too."""
    model = rope(5)
    system = jaxdyn.System(model)
    key = jax.random.key(2)
    q = jaxdyn.configuration.random(model, key, spread=0.1)
    v, direction = jax.random.normal(key, (2, model.nv))

    def height(v):
        end = jaxdyn.rollout(system, jaxdyn.State(q, v), dt=1e-3, steps=2).final
        return jaxdyn.forward_kinematics(model, end.q).translation[-1, 2] + 1e-3 * jnp.sum(end.v**2)

    value_and_slopes = jaxdyn.batched(jax.value_and_grad(height), backend="lanes")
    step = 1e-5
    above, below = (value_and_slopes((v + sign * step * direction)[None])[0][0] for sign in (1, -1))
    slope = value_and_slopes(v[None])[1][0] @ direction
    assert abs((above - below) / (2 * step) - slope) < 1e-6 * abs(slope)


@pytest.mark.usefixtures("short_loops")
def test_a_function_of_whole_arrays_of_loops_is_written_out(monkeypatch):
    """Arrays that loops store are not split into scalars if they are large."""
    monkeypatch.setattr(flatten, "LARGEST_ARRAY", 20)
    model = rope(5)

    def tip(q):
        return jaxdyn.forward_kinematics(model, q).translation[-1]

    q = jaxdyn.configuration.neutral(model)
    with jaxdyn.backend("lanes"):
        found = jaxdyn.batched(jax.jacfwd(tip))(q[None])[0]
    close(found, jax.jacfwd(tip)(q))
