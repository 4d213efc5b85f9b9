"""Random programs over all primitives, at edge values, by lanes and by XLA; and their transformations.

A long run: JAXDYN_FUZZ_PROGRAMS=20000 pytest -n auto --exhaustive tests/lanes/test_random_programs.py. Every hundred programs are a
test, whose name states the first of them; it reports all differences at its end, each with the number of its program.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from random_programs import (
    DERIVATIVES,
    NAMES,
    SIZE,
    Program,
    differentiable,
    inputs,
    nudged,
    operands_of,
    pick,
    programs,
    types,
    wrong_steps,
)

import jaxdyn
from jaxdyn.compute import per_sample

COUNT = int(os.environ.get("JAXDYN_FUZZ_PROGRAMS", "3000"))
BATCHES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 1000)


@pytest.fixture(params=[0, *(pytest.param(first, marks=pytest.mark.exhaustive) for first in range(100, COUNT, 100))])
def first(request):
    """Number of the first of a hundred programs."""
    yield request.param
    if request.param:
        jax.clear_caches()


def all_right(wrong_of, numbers: range) -> None:
    """No program has differences, and none raises an error."""
    wrong = []
    for number in numbers:
        try:
            wrong += [f"program {number}: {fault}" for fault in wrong_of(number)]
        except Exception as error:
            wrong.append(f"program {number}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join([f"{len(wrong)} differences in {len(numbers)} programs", *wrong])


def wrong_values(number: int) -> list[str]:
    """Of a program in a batch of any size, whose arguments have any axes, may be shared and may be donated."""
    rng = np.random.default_rng(number)
    wide = pick(rng, [True, True, False])
    dtypes = types(rng, wide)
    program, batch = programs(rng, *dtypes), pick(rng, BATCHES)
    args = inputs(rng, (*dtypes, "bool"), max(batch, 1))
    axes = tuple(pick(rng, [0, 0, None, -1]) for _ in args)
    axes = axes if any(axis is not None for axis in axes) else (0, 0, 0)
    given = [x[0] if axis is None else np.moveaxis(x[:batch], 0, axis) for x, axis in zip(args, axes, strict=True)]
    all_samples = [
        np.broadcast_to(x[0] if axis is None else x[:batch], (batch, SIZE)) for x, axis in zip(args, axes, strict=True)
    ]
    with jax.enable_x64(wide):
        every = jaxdyn.batched(program, axes, backend="lanes")
        every = pick(rng, [every, jax.jit(every, donate_argnums=(0, 1, 2))])
        return wrong_steps(program, all_samples, every(*map(jnp.array, given)))


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_values_agree(first, exhaustive):
    all_right(wrong_values, range(first, first + (100 if exhaustive else 10)))


@pytest.mark.thorough
def test_a_wrong_number_is_found_in_every_function():
    """What the comparison admits hides no fault: of any function of inputs."""
    rng = np.random.default_rng(0)
    dtypes = ("float64", "int32")
    names = [name for name in NAMES if name != "chaotic"]  # no number of which is known
    program = Program(programs(rng, *dtypes).constants, [(name, operands_of(name)) for name in names])
    args = inputs(rng, (*dtypes, "bool"))
    found = jax.device_get(jax.jit(jax.vmap(program))(*args))
    assert not wrong_steps(program, args, found)
    with np.errstate(all="ignore"):
        spoiled = [~y if y.dtype == bool else np.where(np.isnan(y), 0, 1.001 * y + 1).astype(y.dtype) for y in found]
    assert [fault.split(" of (")[0] for fault in wrong_steps(program, args, spoiled)] == names


def moderate(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers with few infinite derivatives."""
    special = rng.choice([0.0, -0.0, 1.0, -1.0, 2.5], shape)
    return np.where(rng.random(shape) < 0.1, special, rng.uniform(0.3, 0.9, shape))


def wrong_derivatives(program: Program, rng: np.random.Generator) -> list[str]:
    """Of a program with one more axis of lanes, over a mesh.

    A derivative is compared if it and all values of its sample are finite by XLA; a known zero times any factor is zero by lanes.
    It may differ as much as it does by XLA if all rounded results change by some units in the last place.
    """
    mesh = Mesh(np.array(jax.devices()[:1]), ("lanes",))
    batch = pick(rng, BATCHES[:-1])
    x, dx = moderate(rng, 2, 3, batch, SIZE)
    i, b = rng.integers(-6, 6, (3, batch, SIZE), np.int32), rng.random((3, batch, SIZE)) < 0.5
    # JAX has no forward mode of a function with an own reverse mode.
    forward = (lambda *_: ()) if "custom_vjp" in repr(program) else DERIVATIVES[pick(rng, ["jvp", "linearize"])]

    def every(function, *shared, **options):
        def derivatives(x, dx, i, b, *shared):
            def floats(x):
                return [y for y in function(x, i, b, *shared) if y.dtype == x.dtype]

            y, pull = jax.vjp(floats, x)
            return y, forward(floats, x, dx), pull(jax.tree.map(jnp.ones_like, y))

        axes = (0,) * 4 + (None,) * len(shared)
        spec = PartitionSpec(None, "lanes")
        specs = (spec,) * 4 + (PartitionSpec(),) * len(shared)
        mapped = jax.vmap(jax.vmap(derivatives, axes), axes)
        return jax.jit(jax.shard_map(mapped, mesh=mesh, in_specs=specs, out_specs=spec, **options))

    found = every(per_sample(program, backend="lanes"))(x, dx, i, b)
    ones = np.ones((len(program.steps), SIZE))
    # Known numbers are inputs, which do not vary along the mesh; JAX refuses some of what is made of both.
    reference = every(
        lambda x, i, b, factors, *known: program.results([x, i, b, *known], factors),
        ones,
        *program.constants,
        check_vma=False,
    )
    expected, *others = (
        jax.device_get(reference(x, dx, i, b, factors, *program.constants))
        for factors in (ones, *(nudged(rng, ones) for _ in range(4)))
    )
    finite = np.all([np.isfinite(y).all(-1) for y in expected[0]] or [np.ones((3, batch), bool)], 0)[..., None]
    wrong = []
    for a, e, *near in zip(*map(jax.tree.leaves, (found, expected, *others)), strict=True):
        with np.errstate(all="ignore"):
            spread = np.max(np.abs(np.array(near) - e), 0)
            different = (
                ~(np.abs(a - e) <= 1e-9 * np.abs(e) + 1e-9 + 30 * spread)
                & finite
                & np.isfinite(e)
                & np.isfinite(spread)
            )
        for at in np.argwhere(different)[:1]:
            at = tuple(at.tolist())
            wrong.append(f"derivatives at {x[at[:2]]}: {a[at]} by lanes, {e[at]} by XLA, {program}")
    return wrong


def test_transformations_agree(first, exhaustive):
    def wrong_of(number):
        rng = np.random.default_rng((number, 1))
        program = programs(rng, "float64", "int32", length=5, admitted=differentiable)
        program.constants[0] = moderate(rng, SIZE)
        return wrong_derivatives(program, rng)

    first //= 5
    all_right(wrong_of, range(first, first + (20 if exhaustive else 4)))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([("loop of 3 f", (3, 1))], id="loop along a known array"),
        pytest.param([("ceil", (0,)), ("add", (0, 6))], id="derivative that is known in part"),
    ],
)
def test_transformations_agree_where_operands_are_placed_differently(steps):
    constants = [np.array([0.5, 2.5, 1e-3, -88.9]), np.array([7, -3, 31, 9], np.int32), np.array([True, False] * 2)]
    assert not wrong_derivatives(Program(constants, steps), np.random.default_rng(0))
