"""What the lane compiler has to serve, whatever the version of JAX: a new one may trace a derivative in a way that has no rule yet.

`backend="auto"` would hand that to XLA, which gives the same numbers a hundred times slower. So the records are compared with what
each route should compile.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from mechanisms import double_pendulum

import jaxdyn
from jaxdyn.compute import per_sample
from jaxdyn.lanes import records

X = jnp.linspace(0.1, 0.9, 6).reshape(2, 3)


@jax.custom_jvp
def with_own_tangent(x):
    return jnp.sin(x)


@with_own_tangent.defjvp
def _(primals, tangents):
    return jnp.sin(primals[0]), jnp.cos(primals[0]) * tangents[0]


@jax.custom_vjp
def with_own_cotangent(x):
    return jnp.sin(x)


with_own_cotangent.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda slope, c: (slope * c,))


def repeated(step, x, count=400, **options):
    """More turns than are written out, so that a loop is compiled."""
    wrapped = jax.checkpoint(step) if options.pop("checkpointed", False) else step
    return lax.scan(lambda c, k: (wrapped(c), jnp.sum(c) + k), x, jnp.arange(count, dtype=x.dtype), **options)


def turn(x):
    for k in range(4):
        x = jnp.sin(x) + 0.01 * k
    return x


FUNCTIONS = {
    "arithmetic": lambda x: jnp.sin(x) * x + jnp.exp(-x) / (1.0 + x),
    "elementary functions": lambda x: (
        jnp.tanh(x) + jnp.arcsin(x) * jnp.arccos(x) - jnp.arctan2(x, 2.0) + jnp.log2(x) + jnp.exp2(x)
    ),
    "jitted part": jax.jit(lambda x: jax.jit(jnp.tanh)(x) * 2.0),
    "part that is not inlined": lambda x: jax.jit(jnp.tanh, inline=False)(x) + jax.nn.softplus(x) + jax.nn.silu(x),
    "own tangent": lambda x: with_own_tangent(x) * x,
    "own tangent, jitted": lambda x: jax.jit(with_own_tangent)(x) * x,
    "own cotangent": lambda x: with_own_cotangent(x) * x,
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(jnp.cos(x))),
    "checkpoint with a policy": jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)), policy=jaxdyn.compute.KEEPS),
    "short scan": lambda x: repeated(jnp.sin, x, 4)[0],
    "scan": lambda x: repeated(turn, x)[0],
    "scan of checkpoints": lambda x: repeated(turn, x, checkpointed=True)[0],
    "reversed scan with records": lambda x: repeated(turn, x, reverse=True)[1],
    "scan of own tangents": lambda x: repeated(lambda x: with_own_tangent(turn(x)), x)[0],
    "fori_loop": lambda x: lax.fori_loop(0, 5, lambda k, x: jnp.sin(x) + k, x),
    "branches": lambda x: lax.cond(x[0] > 0.5, jnp.sin, jnp.cos, x) + jnp.where(x > 0.3, x, jnp.sqrt(jnp.abs(x))),
    "switch": lambda x: lax.switch(jnp.int32(4.0 * x[0]), (jnp.sin, jnp.cos, jnp.tanh), x),
    "linear solve": lambda x: jnp.linalg.solve(jnp.outer(x, x) + jnp.eye(3), x),
    "Cholesky factor": lambda x: jax.scipy.linalg.cho_solve(
        (jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(3)), True), x
    ),
    "norms and clips": lambda x: jnp.clip(x / jnp.linalg.norm(x), 0.1, 0.6) + jnp.maximum(x, 0.5) + jax.nn.logsumexp(x),
    "products": lambda x: jnp.einsum("i,ij,j->i", x, jnp.outer(x, x), x) + jnp.cross(x, x[::-1]) + jnp.cumsum(x),
    "nested lane function": lambda x: per_sample(jnp.sin)(x) * x,
}


def total(function):
    return lambda x: jnp.sum(function(x))


TRANSFORMATIONS = {
    "value": lambda lane: jax.vmap(lane),
    "jvp": lambda lane: lambda x: jax.jvp(jax.vmap(lane), (x,), (x,)),
    "gradient": lambda lane: jax.grad(total(jax.vmap(lane))),
    "gradients of lanes": lambda lane: jax.vmap(jax.grad(total(lane))),
    "Jacobian, forward": lambda lane: jax.vmap(jax.jacfwd(lane)),
    "Jacobian, reverse": lambda lane: jax.vmap(jax.jacrev(lane)),
    "gradient of a gradient": lambda lane: jax.grad(total(jax.grad(total(jax.vmap(lane))))),
    "checkpoint outside": lambda lane: jax.grad(total(jax.checkpoint(jax.vmap(lane)))),
    "scan outside": lambda lane: jax.grad(
        lambda x: jnp.sum(lax.scan(lambda c, _: (jax.vmap(lane)(c), None), x, None, 3)[0])
    ),
    "one sample": lambda lane: lambda x: jax.value_and_grad(total(lane))(x[0]),
}


def left_to_xla(function, *args) -> list[str]:
    """Why XLA got parts of a function; it is lowered, and not run."""
    before = records()
    jax.jit(function).lower(*args)
    known = {id(record) for record in before}
    new = [record for record in records() if id(record) not in known]
    assert new
    return [f"{record.name}: {record.reason}" for record in new if record.backend != "lanes"]


# Every function by reverse mode, which passes by all the others' rules; and every transformation of some.
ROUTES = [(name, "gradient") for name in FUNCTIONS]
ROUTES += [
    (name, way) for name in ("own tangent", "scan of checkpoints") for way in TRANSFORMATIONS if way != "gradient"
]


@pytest.mark.parametrize(("name", "way"), ROUTES)
def test_lanes_serve_functions_and_their_derivatives(name, way):
    assert left_to_xla(TRANSFORMATIONS[way](per_sample(FUNCTIONS[name])), X) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lanes_serve_every_transformation_of_every_function(name):
    for way, transformed in TRANSFORMATIONS.items():
        if name != "own cotangent" or way not in ("jvp", "Jacobian, forward", "gradient of a gradient"):
            assert left_to_xla(transformed(per_sample(FUNCTIONS[name])), X) == [], way


def end_of(model, q, torques, **options) -> jax.Array:
    moved = jaxdyn.rollout(jaxdyn.System(model), jaxdyn.State(q, 0.1 * q), torques, dt=1e-2, steps=60, **options)
    assert moved.backend == "lanes"
    return jnp.sum(moved.final.q**2) + jnp.sum(moved.saved.v**2)


INTEGRATORS = {
    "default": {},
    "records and steps between": {"save_every": 10, "substeps": 2},
    "Runge-Kutta": {"integrator": jaxdyn.RungeKutta4()},
}
ROLLOUTS = {
    "value": lambda loss: loss,
    "jvp": lambda loss: lambda *args: jax.jvp(loss, args, args),
    "gradient": lambda loss: jax.grad(loss, (0, 1)),
    "Jacobian of gradients": lambda loss: jax.jacfwd(jax.grad(loss)),
}


ROLLOUT_ROUTES = [
    *((options, "gradient") for options in INTEGRATORS),
    ("default", "value"),
    ("default", "jvp"),
    pytest.param("default", "Jacobian of gradients", marks=pytest.mark.exhaustive),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("options", "way"), ROLLOUT_ROUTES)
def test_lanes_serve_rollouts_and_their_derivatives(options, way):
    model = double_pendulum()
    loss = functools.partial(end_of, model, **INTEGRATORS[options])
    function = ROLLOUTS[way](lambda q, u: jnp.sum(jax.vmap(loss)(q, u)))
    assert left_to_xla(function, jnp.ones((3, 2)), jnp.ones((3, 60, 2))) == []


def test_lanes_serve_gradients_by_the_numbers_of_a_mechanism():
    def loss(model, q, u):
        return jnp.sum(jax.vmap(end_of, (None, 0, 0))(model, q, u))

    assert left_to_xla(jax.grad(loss, allow_int=True), double_pendulum(), jnp.ones((3, 2)), jnp.ones((3, 60, 2))) == []


def test_a_derivative_without_a_scalar_form_causes_a_warning(monkeypatch):
    """As when a new JAX writes derivatives with a primitive that has no rule."""
    from jaxdyn.lanes.flatten import RULES

    monkeypatch.delitem(RULES, "cos")
    with pytest.warns(RuntimeWarning, match="'surprise.*slower.*'cos' has no scalar form"):
        derivative = jax.jit(jax.grad(total(jax.vmap(per_sample(jnp.sin, name="surprise")))))(X)
    np.testing.assert_allclose(derivative, np.cos(X))
    assert any(r.name.startswith("surprise") and r.backend == "xla" and "'cos'" in r.reason for r in records())
