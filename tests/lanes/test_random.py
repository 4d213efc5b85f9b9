"""Random numbers in lanes: JAX's own bits, whatever kind of key, wherever it comes from and whatever is done with it.

The draws of JAX are made one operation at a time, without jit: within one program XLA may put the constants of a range together,
and a rounding of its sums differs from JAX's own as well.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax
from jax import random as jr
from jax.extend.random import threefry_2x32

import jaxdyn
from jaxdyn.compute import batched, per_sample
from jaxdyn.lanes import CannotFlatten, records
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.liveness import Liveness, count_operations
from jaxdyn.lanes.reference import Reference

LANES = 37  # whole vectors of every width up to 16, and a tail
DTYPES = [np.float32, np.float64]
PRECISIONS = [False, True]  # of numbers that are given none: whether jax_enable_x64 is set


def plain(results):
    """Arrays of NumPy, keys as their words."""
    return [np.asarray(jr.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(results)]


def is_key(x) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def keys(count: int = LANES):
    return jr.split(jr.key(2026), count)


def assert_equal(found, expected, name: str = "") -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(plain(found), plain(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b, err_msg=name)


def in_lanes(function):
    return jax.jit(jax.vmap(per_sample(function, backend="lanes")))


# Draws whose bits are JAX's own: of a key and a type of floating-point numbers.
EXACT = {
    "uniform": lambda k, t: (jr.uniform(k, (5,), t), jr.uniform(k, (2, 2), t, -0.3, 0.7), jr.uniform(k, (), t, 1, 4)),
    "bernoulli": lambda k, t: jr.bernoulli(k, jnp.asarray(0.3, t), (5,)),
    "rademacher": lambda k, t: jr.rademacher(k, (5,), t),
    "categorical": lambda k, t: jr.categorical(k, jnp.asarray([0.1, 0.7, -0.2], t)),
}
# Draws of numbers of the setting's width, and what is done with keys.
OF_THE_SETTING = {
    "bits": lambda k: [jr.bits(k, (3, 2), kind) for kind in ("uint8", "uint16", "uint32")] + [jr.bits(k)],
    "randint": lambda k: (jr.randint(k, (5,), -3, 9), jr.randint(k, (), 0, 250, "uint8")),
    "choice": lambda k: (jr.choice(k, 5, (4,)), jr.choice(k, 4, (2,), replace=False)),
    "permutation": lambda k: jr.permutation(k, 5),
    "split": lambda k: (jr.split(k), jr.split(k, (2, 3))),
    "fold_in": lambda k: (jr.fold_in(k, 7), jr.fold_in(k, k_word(k))),
    "clone": lambda k: jr.clone(k),
}


def k_word(key):
    """A number that differs from lane to lane."""
    return (jr.key_data(key) if is_key(key) else key)[1]


@pytest.mark.parametrize("typed", [True, False], ids=["keys", "words"])
@pytest.mark.parametrize("name", EXACT)
def test_bits_are_those_of_jax(name, typed):
    given = keys() if typed else jr.key_data(keys())

    def draw(key):
        return [EXACT[name](key, dtype) for dtype in DTYPES]

    assert_equal(in_lanes(draw)(given), jax.vmap(draw)(given), name)


@pytest.mark.parametrize("x64", PRECISIONS)
@pytest.mark.parametrize("partitionable", [True, False])
def test_bits_follow_the_settings(partitionable, x64):
    def draw(key):
        return {name: f(key) for name, f in OF_THE_SETTING.items()}

    with jax.threefry_partitionable(partitionable), jax.enable_x64(x64):
        given = keys()
        expected = jax.jit(jax.vmap(draw))(given)
        assert_equal(in_lanes(draw)(given), expected)
        if not partitionable:
            assert_equal(plain(in_lanes(draw)(jr.key_data(given))), plain(expected))


def test_a_setting_that_changes_changes_the_bits():
    fast, found = in_lanes(lambda k: jr.bits(k, (3,))), []
    for partitionable in (True, False, True):
        with jax.threefry_partitionable(partitionable):
            found.append(np.asarray(fast(keys())))
    np.testing.assert_array_equal(found[0], found[2])
    assert np.any(found[0] != found[1])


# Draws that go through a function: the largest difference from JAX in units of the last place of max(1, |x|). In single precision
# logarithms differ by a unit or two. In double precision log1p of XLA on CPUs is off by up to 130 units.
ROUNDED = {
    "normal": (lambda k, t: jr.normal(k, (5,), t), 8, 64),
    "truncated normal": (lambda k, t: jr.truncated_normal(k, jnp.asarray(-1, t), jnp.asarray(2, t), (5,), t), 16, 64),
    "exponential": (lambda k, t: jr.exponential(k, (5,), t), 4, 256),
    "gumbel": (lambda k, t: jr.gumbel(k, (5,), t), 4, 8),
    "multivariate normal": (
        lambda k, t: jr.multivariate_normal(k, jnp.zeros(2, t), jnp.asarray([[2, 1], [1, 3]], t)),
        16,
        128,
    ),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_draws_through_functions_agree_to_rounding(name):
    draw, *units = ROUNDED[name]
    given = keys(512)
    found = in_lanes(lambda k: [draw(k, dtype) for dtype in DTYPES])(given)
    for x, dtype, most in zip(found, DTYPES, units, strict=True):
        expected = np.asarray(jax.vmap(lambda k, t=dtype: draw(k, t))(given))
        assert x.dtype == expected.dtype == dtype
        unit = np.finfo(dtype).eps * np.maximum(1, np.abs(expected))
        assert np.max(np.abs(x - expected) / unit) <= most


def test_inverse_error_function_is_accurate():
    # Giles: the polynomials are right to a few units; next to 1 rounding of 1 - x^2 costs more, to XLA as well.
    x = np.concatenate([np.linspace(-0.99, 0.99, 300), 10.0 ** np.linspace(-12, -1, 40)])
    for dtype in DTYPES:
        given = x.astype(dtype)
        exact = np.array([float(mpmath.erfinv(mpmath.mpf(float(a)))) for a in given])
        found = np.asarray(in_lanes(jax.scipy.special.erfinv)(given), np.float64)
        assert np.max(np.abs(found / exact - 1)) < 12 * np.finfo(dtype).eps


# ---------------------------------------------------------------- keys on their ways


def moved(key, index):
    """Arrays of keys through every operation that moves them."""
    many = jr.split(key, 6)
    grid = many.reshape(2, 3)
    chosen = jnp.where(index > 2, many[1], many[2])
    return (
        many[index],
        many[jnp.asarray([4, 0])],
        many[jnp.stack([index, index + 1])],
        lax.dynamic_slice(many, (index,), (2,)),
        grid.T[1],
        grid[:, ::2],
        jnp.concatenate([many[:2], many[5:]]),
        jnp.stack([many[0], key]),
        jnp.flip(many[:3]),
        jnp.broadcast_to(key, (2,)),
        chosen,
        lax.cond(index > 1, lambda a, b: a, lambda a, b: b, many[3], key),
        many.at[index].set(key),
        jr.wrap_key_data(jr.key_data(many)[index]),
    )


def test_keys_are_moved_as_by_jax():
    index = jnp.arange(LANES) % 5
    found = in_lanes(moved)(keys(), index)
    assert all(is_key(x) for x in found)
    assert_equal(found, jax.vmap(moved)(keys(), index))


def walked(turns: int):
    """A key that is carried, one key per turn, keys that are collected, and a counter that is folded in."""

    def walk(key, scale):
        def step(carry, x):
            key, total = carry
            key, own = jr.split(key)
            number, given = x
            noise = jr.uniform(own) + jr.uniform(given) + jr.uniform(jr.fold_in(own, number))
            return (key, total + scale * noise), own

        start = (key, jnp.zeros(()))
        return lax.scan(step, start, (jnp.arange(turns), jr.split(jr.fold_in(key, 1), turns)))

    return walk


@pytest.mark.parametrize("turns", [3, 70])  # written out, and as a loop with one key per turn in memory
def test_keys_are_carried_and_collected_by_loops(turns):
    scale = jnp.linspace(0.5, 1, LANES)
    (key, total), collected = in_lanes(walked(turns))(keys(), scale)
    (expected_key, expected), expected_collected = jax.vmap(walked(turns))(keys(), scale)
    assert_equal((key, collected), (expected_key, expected_collected))
    np.testing.assert_allclose(total, expected, rtol=1e-14)  # of sums with fused products


def test_known_keys_captured_keys_and_keys_of_a_single_sample():
    x = jnp.arange(3.0)
    known, many = jr.key(4), jr.split(jr.key(5), 2)

    def draw(key):
        fast = per_sample(lambda x: x + jr.uniform(known, (3,)) + jr.uniform(key), backend="lanes")
        return jax.vmap(fast)(jnp.stack([x, x]))

    expected = x + jr.uniform(known, (3,)) + jr.uniform(many[0])
    np.testing.assert_array_equal(jax.jit(draw)(many[0]), jnp.stack([expected, expected]))
    assert_equal(
        jax.jit(jax.vmap(jax.vmap(per_sample(jr.split, backend="lanes"))))(many[None]),
        jax.vmap(jr.split)(many)[None],
    )
    assert_equal(per_sample(jr.bits, backend="lanes")(known), jr.bits(known))


def test_keys_have_no_derivative():
    turns, sigma = 200, jnp.linspace(0.05, 0.1, LANES)

    def f(key, sigma, noise=None):
        def step(x, k):
            drawn = jr.normal(jr.fold_in(key, k)) if noise is None else noise[k]
            return x + sigma * jnp.sin(x) * drawn, x

        return jnp.sum(lax.scan(jax.checkpoint(step), 1.0, jnp.arange(turns))[0])

    noise = jax.vmap(lambda key: jax.vmap(lambda k: jr.normal(jr.fold_in(key, k)))(jnp.arange(turns)))(keys())
    expected = jax.jit(jax.vmap(jax.grad(f, argnums=1)))(keys(), sigma, noise)
    fast = per_sample(lambda key, sigma: f(key, sigma), backend="lanes")

    def push(key, sigma):
        still = np.zeros((), jax.dtypes.float0)
        return jax.jvp(fast, (key, sigma), (still, jnp.ones(())))[1]

    for differentiate in (jax.grad(fast, argnums=1), push):
        found = jax.jit(jax.vmap(differentiate))(keys(), sigma)
        # Sums of two hundred terms whose random numbers differ by some thirty units.
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_other_generators_are_refused_and_fall_back(impl):
    given = jr.split(jr.key(0, impl=impl), 3)

    def draw(key):
        return jr.normal(key, (2,))

    with pytest.raises(CannotFlatten, match=rf"<{impl[:3] if impl == 'rbg' else 'urbg'}>.*impl='threefry2x32'"):
        jax.vmap(per_sample(draw, backend="lanes"))(given)
    found = jax.jit(jax.vmap(per_sample(draw, name=f"fallback {impl}")))(given)
    np.testing.assert_array_equal(found, jax.jit(jax.vmap(draw))(given))
    assert [r.backend for r in records() if r.name == f"fallback {impl}"] == ["xla"]


def test_what_else_is_asked_of_keys_is_refused():
    with pytest.raises(CannotFlatten, match=r"'eq' of keys.*key_data"):
        jax.vmap(per_sample(lambda k: k == jr.split(k)[0], backend="lanes"))(keys())


# ---------------------------------------------------------------- other evaluations, and what it costs


def test_hash_is_the_one_of_its_authors():
    # Known answers of Random123: kat_vectors, threefry2x32 with 20 rounds.
    for key, counter, expected in (
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ):
        words = [jnp.asarray(x, jnp.uint32) for x in (key, counter)]
        found = per_sample(lambda k, c: threefry_2x32((k[0], k[1]), c), backend="lanes")(*words)
        np.testing.assert_array_equal(found, np.asarray(expected, np.uint32))


def test_operations_of_a_draw():
    def flattened(function):
        program = program_of(traced(function, [jax.ShapeDtypeStruct((2,), np.uint32)]))
        return program, Liveness(program)

    # Twenty rounds of five operations, six times two words of the key, and their sum.
    assert count_operations(*flattened(lambda w: jr.bits(w, (), "uint32"))) < 130
    assert count_operations(*flattened(lambda w: jr.normal(w, (), np.float32))) < 200
    # They count where it is decided whether a loop is written out.
    _, found = flattened(lambda w: lax.map(lambda k: jr.uniform(jr.fold_in(w, k), 20, np.float32), np.arange(70)))
    assert 70 in {node.data.length for node in found.nodes if node.op == "loop"}


def test_with_many_digits():
    known = jr.key(3)
    exact = Reference(lambda s: (s * jr.normal(known), jnp.nextafter(s, 4.0)), jnp.ones(()))
    noisy, following = exact(jnp.asarray(3.0))
    assert abs(float(noisy.item()) - 3 * float(jr.normal(known))) < 1e-13
    assert float(following.item()) == np.nextafter(3.0, 4.0)


# ---------------------------------------------------------------- rollouts


def pendulum() -> jaxdyn.System:
    builder = jaxdyn.MechanismBuilder("pendulum", gravity=(0, 0, -9.81))
    rod = {"mass": 1.0, "com": (0, 0, -0.5), "inertia": (0.1, 0.1, 0.01)}
    builder.add_body("rod", joint=jaxdyn.Revolute((0, 1, 0)), **rod)
    return jaxdyn.System(builder.build())


SYSTEM = pendulum()
START = jaxdyn.State(jnp.asarray([0.1]), jnp.zeros(1))
STEPS, DT = 40, 0.01


def feedback(state):
    return -2.0 * state.q - 0.3 * state.v


class Noisy(jaxdyn.Controller):
    """Keeps the key in its memory."""

    key: jax.Array
    sigma: jax.Array

    def begin(self, state):
        return self.key

    def decide(self, t, state, memory, key):
        memory, own = jr.split(memory)
        return feedback(state) + self.sigma * jr.normal(own, (1,)), memory


def by_time(key, sigma, **options):
    def policy(t, state, _):
        return feedback(state) + sigma * jr.normal(jr.fold_in(key, jnp.rint(t / DT).astype(int)), (1,))

    return jaxdyn.rollout(SYSTEM, START, policy, dt=DT, steps=STEPS, **options)


def by_step(key, sigma, **options):
    def policy(t, state, own):
        return feedback(state) + sigma * jr.normal(own, (1,))

    return jaxdyn.rollout(SYSTEM, START, policy, dt=DT, steps=STEPS, key=key, **options)


def by_memory(key, sigma, **options):
    return jaxdyn.rollout(SYSTEM, START, Noisy(key, sigma), dt=DT, steps=STEPS, **options)


@pytest.mark.thorough
def test_rollouts_with_noise_are_one_kernel():
    def loss(sigma, key, simulate, backend):
        return jnp.mean(simulate(key, sigma, backend=backend).saved.q ** 2)

    def values(simulate, backend, transformation=lambda f: f):
        run = transformation(lambda sigma, key: loss(sigma, key, simulate, backend))
        return jax.jit(jax.vmap(lambda key: run(jnp.asarray(0.3), key)))(keys(9))

    before = set(map(id, records()))
    of_time, of_step = values(by_time, "lanes"), values(by_step, "lanes")
    of_memory = values(by_memory, "lanes", jax.value_and_grad)
    compiled = [(r.name, r.backend) for r in records() if id(r) not in before]
    assert compiled == [*3 * [("rollout", "lanes")], ("rollout.tangent.transpose", "lanes")]
    # Noise differs by some thirty units, and so do its consequences.
    for x, y in zip(of_memory, values(by_memory, "xla", jax.value_and_grad), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11)
        assert np.unique(x).size == x.size  # each lane has noise of its own
    np.testing.assert_allclose(of_step, values(by_step, "xla"), rtol=1e-11)
    np.testing.assert_allclose(of_time, of_step, rtol=1e-14)  # the rollout folds the index in, as that policy does


def test_a_new_key_is_no_new_kernel():
    simulate = batched(lambda key: by_step(key, 0.3, backend="lanes").final, backend="lanes")
    first = simulate(keys(3))
    count = len(records())
    assert np.all(simulate(jr.split(jr.key(1), 3)).q != first.q)
    assert len(records()) == count
