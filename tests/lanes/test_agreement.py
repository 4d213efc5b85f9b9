"""Every public function of the mechanics by lanes and by XLA: values, derivatives in both modes, second-order products, rollouts.

XLA in double precision is the reference for both precisions: lanes in single precision get the same numbers, rounded before.
"""

import functools

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from random_trees import random_model, random_motion
from test_transforms import OF_DERIVATIVES, TABLE

import jaxdyn
from jaxdyn import ImplicitMidpoint, JointFriction, Knots, RungeKutta4, State, System, rollout
from jaxdyn.compute import per_sample
from jaxdyn.simulate import RolloutResult

# Shapes are checked by the tests of the functions themselves; here the checks would take most of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

TREES = {
    "chain": {"parents": [-1, 0, 1], "kinds": "RPR"},
    "branched": {"parents": [-1, 0, 0], "kinds": "RRP", "armature": True},
    "two roots": {"parents": [-1, 0, -1], "kinds": "PRR", "armature": True},
}
ROWS = {f"{name} {k}" if k else name: f for name, rows in TABLE.items() for k, f in enumerate(rows)}
DTYPES = (jnp.float32, jnp.float64)


def drawn(tree: str, lanes: int):
    """A tree without limits of motion, which are infinite and enter no equation, and motions of all lanes; single precision."""
    rng = np.random.default_rng(list(TREES).index(tree))
    model = random_model(rng, 3, **TREES[tree])
    motions = [random_motion(rng, model) for _ in range(lanes)]
    q, v, a = (jnp.stack(x) for x in zip(*motions, strict=True))
    return jaxdyn.as_dtype((eqx.tree_at(lambda m: m.limits, model, None), q, v, a), jnp.float32)


def flat(tree) -> jax.Array:
    return jax.flatten_util.ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0]


def agree(actual, expected, what: str, roundings: float = 1e4) -> None:
    """Equal but for roundings, relative to the largest number of each array.

    A quantity is a sum of some hundred products of its size, and solving with a mass matrix multiplies errors by its
    condition, up to some hundreds for these trees: 1e4 roundings (1e-3 in single precision) in all.
    """
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        if np.issubdtype(a.dtype, np.floating):
            assert np.all(np.isfinite(b))
            tolerance = roundings * np.finfo(a.dtype).eps
            np.testing.assert_allclose(
                a, b, rtol=0, atol=tolerance * max(1.0, np.max(np.abs(b), initial=0)), err_msg=what
            )
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)


def by_lanes(function):
    return per_sample(function, backend="lanes")


# ---------------------------------------------------------------- functions of one instant


def values(names, model, *motion) -> dict:
    return {name: flat(ROWS[name](model, *motion)) for name in names}


# Tracing all functions takes most of the time of this file, so every tree has only some of the variants.
VARIANTS = {
    "chain": [(jnp.float64, "as an argument"), (jnp.float32, "built in")],
    "two roots": [(jnp.float32, "as an argument")],
}
# The time that XLA takes for a program grows faster than its length: in so many, the reference is compiled in half of the time.
PIECES = 18


@pytest.mark.parametrize("tree", ["chain", pytest.param("two roots", marks=pytest.mark.exhaustive)])
def test_values(tree, exhaustive):
    """The model shared by all lanes as an argument, or built into the code.

    In double precision without --exhaustive, neither what `test_first_derivatives` compares nor what is made of derivatives.
    """
    inputs = drawn(tree, 17)
    in_axes = (None, 0, 0, 0)
    double = jaxdyn.as_dtype(inputs, jnp.float64)
    expected = {}
    for k in range(PIECES):
        part = functools.partial(values, list(ROWS)[k::PIECES])
        expected |= jax.jit(jax.vmap(part, in_axes))(*double)
    for dtype, place in VARIANTS[tree]:
        model, *motion = jaxdyn.as_dtype(inputs, dtype)
        left_out = set() if exhaustive or dtype == jnp.float32 else (set(TABLE) - PARTS) | OF_DERIVATIVES
        names = [name for name in ROWS if name not in left_out]
        of_all = functools.partial(values, names)
        if place == "as an argument":
            found = jax.jit(jax.vmap(by_lanes(of_all), in_axes))(model, *motion)
        else:
            found = jax.jit(jax.vmap(by_lanes(functools.partial(of_all, model))))(*motion)
        for name in names:
            assert found[name].dtype == dtype
            agree(found[name], expected[name], f"{name}, model {place}")


@pytest.mark.thorough
def test_every_kind_of_joint():
    """A chain of all of them; one value with derivatives serves for all functions, which share their kinematics."""
    rng = np.random.default_rng(5)
    model = random_model(rng, 8, parents=[-1, 0, 1, 0, 3, 2, -1, 6], kinds="FSULHCsP")
    model = eqx.tree_at(lambda m: m.limits, model, None)
    motion = [jnp.stack(x) for x in zip(*(random_motion(rng, model) for _ in range(5)), strict=True)]

    def work_and_slopes(model, q, v, a):
        def work(q, v, a):
            return jnp.dot(jaxdyn.forward_dynamics(model, q, v, a), jaxdyn.inverse_dynamics(model, q, v, a))

        value, slopes = jax.value_and_grad(work, argnums=(0, 1, 2))(q, v, a)
        moved = jaxdyn.configuration.integrate(model, q, v)
        return value, slopes, jaxdyn.configuration.difference(model, q, moved), jaxdyn.coriolis_matrix(model, q, v)

    expected = jax.jit(jax.vmap(functools.partial(work_and_slopes, model)))(*motion)
    for dtype in DTYPES:
        known = functools.partial(work_and_slopes, jaxdyn.as_dtype(model, dtype))
        found = jax.jit(jax.vmap(by_lanes(known)))(*jaxdyn.as_dtype(motion, dtype))
        agree(found, expected, f"every joint, {dtype.__name__}", 1e5)


def directions_like(tree, seed: int):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), tree)


# Functions that are parts of others, whose derivatives contain theirs.
PARTS = {
    "applied_forces",
    "bias_force",
    "mass_center_velocities",
    "christoffel_second_kind",
    "coriolis_matrix",
    "gravity_force",
}
PARTS |= {
    "neutral_state",
    "potential_energy",
    "kinetic_energy",
    "partial_velocities",
    "momentum",
    "connection_second_kind",
    "covariant_derivative",
    "acceleration_energy_of_velocity",
    "acceleration_energy_terms",
    "driving_forces",
    "driving_power",
    "screw_displacements",
    "screw_exponential",
    "screw_velocities",
    "screws",
}
PARTS |= OF_DERIVATIVES


@pytest.mark.thorough
def test_first_derivatives():
    """Values, and products with tangents, of model and motion, row by row; the gradient makes the same number of them."""
    in_axes = (None, 0, 0, 0)
    names = [name for name in TABLE if name not in PARTS]
    of_all = functools.partial(values, names)
    inputs = drawn("branched", 3)
    numbers, static = eqx.partition(inputs, eqx.is_inexact_array)
    dx = directions_like(numbers, 2)

    def batch(wrap):
        return lambda *x: jax.vmap(wrap(lambda *y: of_all(*eqx.combine(y, static))), in_axes)(*x)

    double = jaxdyn.as_dtype((numbers, dx), jnp.float64)
    right, expected = jax.jit(lambda x, dx: jax.jvp(batch(lambda f: f), x, dx))(*double)
    in_lanes = jax.jit(batch(by_lanes))  # traced once for both modes

    @jax.jit
    def derivatives(x, dx, w):
        value, tangent = jax.jvp(in_lanes, x, dx)
        _, pull = jax.vjp(in_lanes, *x)
        return value, tangent, flat(pull(w))

    w = directions_like(expected, 3)
    value, tangent, gradient = derivatives(*double, w)
    for name in names:
        agree(value[name], right[name], f"value of {name}")
        agree(tangent[name], expected[name], name, 1e5)  # derivatives of solutions have the inverse matrix once more
    forward = sum(np.vdot(w[name], expected[name]) for name in names)
    products = np.asarray(gradient) * np.asarray(flat(double[1]))
    tolerance = 1e5 * np.finfo(np.float64).eps * np.abs(products).sum()
    np.testing.assert_allclose(products.sum(), forward, rtol=0, atol=tolerance)


# All forces with the derivative of the equation of motion, and a closed form; in one precision each without --exhaustive.
TWICE = {"acceleration": jnp.float64, "christoffel_first_kind": jnp.float32}


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name, exhaustive):
    """Forward over reverse by lanes, forward over forward by XLA, along a direction of its own in each lane."""
    model, *motion = drawn("branched", 3)
    dx, w = directions_like(motion, 2), np.random.default_rng(3).normal(size=99)

    def weighted(model):
        def function(*motion):
            y = flat(ROWS[name](model, *motion))
            return jnp.sum(jnp.asarray(w[: y.size], y.dtype) * y)

        return function

    def twice(model, x, dx):
        def once(*x):
            return jax.jvp(weighted(model), x, tuple(dx))[1]

        return jax.jvp(once, tuple(x), tuple(dx))

    double = jaxdyn.as_dtype((model, motion, dx), jnp.float64)
    expected = jax.jit(jax.vmap(functools.partial(twice, double[0])))(*double[1:])
    for dtype in DTYPES if exhaustive else [TWICE[name]]:
        m, x, d = jaxdyn.as_dtype((model, motion, dx), dtype)
        function = by_lanes(weighted(m))

        def products(x, d, function=function):
            gradient, second = jax.jvp(jax.grad(function, (0, 1, 2)), tuple(x), tuple(d))
            return flat(gradient), flat(second), flat(d)

        first, second, along = (np.asarray(y, np.float64) for y in jax.jit(jax.vmap(products))(x, d))
        for product, right in zip((first * along, second * along), expected, strict=True):
            tolerance = 1e5 * np.finfo(dtype).eps * np.abs(product).sum()
            np.testing.assert_allclose(product.sum(1), right, rtol=0, atol=tolerance)


# ---------------------------------------------------------------- rollouts

STEPS, DT = 6, 0.02


def two_bodies() -> jaxdyn.Model:
    return random_model(np.random.default_rng(5), 2, parents=[-1, 0], kinds="RP", armature=True)


def with_friction(model) -> System:
    ones = jnp.ones_like(model.mass)
    return System(model, (JointFriction(0.2 * ones, 0.5 * ones, ones),))


def policy(t, state, key):
    return -2.0 * state.q - 0.5 * state.v * jnp.cos(t)


def knots(interpolation):
    return lambda u: Knots(u, 0.05, interpolation=interpolation)


def quadratic(t, state, u, after):
    return {"effort": jnp.sum(u * u), "late": state.q[0] ** 2 * t, "fast": jnp.any(jnp.abs(after.v) > 1.0)}


# name -> (controls from an array, options); those whose derivatives are compared come last
ROLLOUTS = {
    "free": (lambda u: None, {}),
    "zero-order knots": (knots("zero_order"), {"substeps": 3, "t0": 0.03}),
    "linear knots": (knots("linear"), {"integrator": RungeKutta4()}),
    "cubic knots": (knots("cubic"), {"save_every": 3, "save": lambda t, s, u: (t, s.q[0] * u, jnp.sum(s.v))}),
    "policy": (lambda u: policy, {"integrator": RungeKutta4(), "substeps": 2, "cost": quadratic, "save_every": 6}),
    "implicit": (lambda u: u, {"integrator": ImplicitMidpoint(iterations=3), "save_every": 3}),
    "stop": (lambda u: u, {"stop": lambda t, s: s.v[0] > 0.2, "cost": quadratic}),
    "more steps": (lambda u: None, {"steps": 400, "save_every": 400, "dt": 0.001}),
    "many steps": (lambda u: policy, {"steps": 300, "save_every": 150}),
    "array": (lambda u: u, {"save_every": 2, "cost": quadratic}),
}


def simulated(system, q, v, u, name: str, backend: str):
    controls, options = ROLLOUTS[name]
    return rollout(system, State(q, v), controls(u), **{"dt": DT, "steps": STEPS, "backend": backend, **options})


def starts(lanes: int):
    rng = np.random.default_rng(7)
    return [jnp.asarray(rng.normal(0, 0.4, (lanes, *s)), jnp.float32) for s in ((2,), (2,), (STEPS, 2))]


def numbers_of(trajectory) -> tuple:
    return trajectory.time, trajectory.saved, trajectory.final, trajectory.cost, trajectory.result, trajectory.steps


# Order of the derivatives that are compared; compiling them by XLA takes most of the time of this file.
DERIVATIVES = {"array": 2, "many steps": 1}


@pytest.mark.parametrize("name", first(len(ROLLOUTS) - len(DERIVATIVES), ROLLOUTS))
def test_rollouts(name, exhaustive):
    """All results, and for some the gradient with respect to start and controls, and its derivative along a direction.

    Without the option --exhaustive, they alternate between the two precisions: second derivatives in double, first in single.
    """
    system = jaxdyn.as_dtype(with_friction(two_bodies()), jnp.float32)
    order = DERIVATIVES.get(name, 0)

    def results(backend, system, *x):
        def batch(*x):
            return jax.vmap(lambda *y: simulated(system, *y, name, backend))(*x)

        def loss(x):
            end = batch(*x)
            return jnp.sum(end.final.q**2) + jnp.sum(end.saved.v * end.saved.q)

        y = batch(*x)
        assert y.backend == backend
        gradient = jax.grad(loss)
        dx = [0.5 * x[1], -x[0], jnp.cos(x[2])]
        derivatives = (None, gradient, lambda x: jax.jvp(gradient, (x,), (dx,)))[order]
        return numbers_of(y), None if derivatives is None else derivatives(list(x))

    x = starts(5)
    double = jaxdyn.as_dtype((system, *x), jnp.float64)
    expected = jax.jit(lambda *x: results("xla", double[0], *x))(*double[1:])
    for dtype in DTYPES if exhaustive else [DTYPES[list(ROLLOUTS).index(name) % 2]]:
        given = jaxdyn.as_dtype((system, *x), dtype)
        found = jax.jit(lambda *x, s=given[0]: results("lanes", s, *x))(*given[1:])
        # Errors grow along a path: by less than tenfold over the at most six seconds here.
        agree(found, expected, f"{name} in {dtype.__name__}", 1e5)
    if name == "stop":
        assert set(expected[0][4].tolist()) == {RolloutResult.STOPPED, RolloutResult.SUCCESSFUL}


@pytest.mark.thorough
def test_lanes_that_end_early_are_told_apart():
    """Divergence and failed steps, lane by lane, within one vector; the finite part of the derivative is masked as by XLA."""
    system = System(two_bodies())
    q, _, u = jaxdyn.as_dtype(starts(9), jnp.float64)
    speeds = jnp.asarray([0.1, 200.0, 0.2, 40.0, np.inf, 0.3, 1.0, np.nan, 0.1])
    v = jnp.stack([speeds, 0 * q[:, 0] + 0.1], axis=1)

    def run(backend, integrator, limit):
        def lane(q, v, u):
            return rollout(
                system,
                State(q, v),
                u,
                dt=DT,
                steps=STEPS,
                integrator=integrator,
                divergence_limit=limit,
                backend=backend,
            )

        def masked(q):
            y = jax.vmap(lane)(q, v, u)
            return jnp.sum(jnp.where(y.result == RolloutResult.SUCCESSFUL, y.final.q[:, 0], 0.0)), y

        (_, y), gradient = jax.value_and_grad(masked, has_aux=True)(q)
        return y.result, y.steps, y.final, gradient[np.abs(np.asarray(speeds)) < 10]

    for integrator, limit in ((jaxdyn.SemiImplicitEuler(), 30.0), (ImplicitMidpoint(iterations=1), 1e6)):
        found, expected = (jax.jit(functools.partial(run, b, integrator, limit))() for b in ("lanes", "xla"))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        assert len(set(np.asarray(expected[0]).tolist())) > 1
        for a, b in zip(jax.tree.leaves(found[2:]), jax.tree.leaves(expected[2:]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_rollouts_that_lanes_cannot_serve_fall_back():
    system, (q, v, _) = System(two_bodies()), jaxdyn.as_dtype(starts(4), jnp.float64)

    def noisy(t, state, key):
        return jax.random.normal(key, (2,), state.q.dtype)

    def run(backend):
        def lane(q, v, key):
            return rollout(system, State(q, v), noisy, dt=DT, steps=STEPS, key=key, backend=backend)

        return jax.jit(jax.vmap(lane))(q, v, jax.random.split(jax.random.key(0, impl="rbg"), 4))

    automatic, given = run("auto"), run("xla")
    assert automatic.backend == "xla"
    agree(numbers_of(automatic), numbers_of(given), "noisy policy", 1.0)
    assert any(r.name == "rollout" and r.backend == "xla" and r.reason for r in jaxdyn.lanes.records())
    with pytest.raises(jaxdyn.lanes.CannotFlatten, match=r"key<rbg>.*impl='threefry2x32'"):
        run("lanes")


def test_rollouts_take_lanes_where_they_can():
    system, (q, v, _) = System(two_bodies()), jaxdyn.as_dtype(starts(4), jnp.float64)
    run = jax.vmap(lambda q, v: rollout(system, State(q, v), dt=DT, steps=STEPS))
    assert run(q, v).backend == "lanes"
