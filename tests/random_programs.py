"""Random functions of one sample over the primitives that the lane compiler knows, and how their results are compared with XLA.

Compilers round differently where they may fuse products and sums, and a comparison of rounded numbers can then have another result.
So each step of a program is computed by XLA from the very operands that the step had by lanes, which become inputs there: what is
known, and what comes before or after, changes nothing. Only where a rounded operand enters a sum may its last places differ. How
much this may change is computed: XLA repeats the step with such operands changed by a few units in the last place.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from edge_values import differences, edges, flushed
from jax import lax

SIZE = 4  # numbers of every array
LANES = 9  # a vector and a tail
LONG = 700  # turns of a loop that is not written out


def pick(rng: np.random.Generator, among: Sequence) -> Any:
    return among[int(rng.integers(len(among)))]


# ---------------------------------------------------------------- what a step computes


def moved(way: str) -> Callable:
    return {
        "reversed": lambda x: x[::-1],
        "rolled": lambda x: jnp.concatenate([x[1:], x[:1]]),
        "padded": lambda x: lax.pad(x, x[0], [(-1, 0, 0)])[jnp.asarray([0, 1, 2, 2])],
        "table": lambda x: jnp.stack([x, x[::-1]]).T.reshape(-1)[2:6],
    }[way]


def looped(turns: int) -> Callable:
    """Carries an integer that moves along an array, which it reads and changes."""

    def function(x, i):
        def turn(carry, k):
            a, at = carry
            here = a[at[0]]
            a = lax.dynamic_update_slice(a, a[k % SIZE][None], (at[1],))
            return (a, jnp.roll(at, 1) * jnp.asarray(5, at.dtype) + jnp.asarray(3, at.dtype)), here

        # Over a mesh JAX wants an array that a loop carries to vary from the start along the axes that its changes vary along.
        (a, at), path = lax.scan(turn, (jnp.where(i == i, x, x), i), jnp.arange(turns))
        return jnp.stack([a[0], path[at[2]], path[turns // 2], a[at[3]]])

    return function


def squared(function: Callable) -> Callable:
    """As a function of arrays of the numbers of square matrices."""
    return lambda *xs: function(*(x.reshape(2 * (math.isqrt(x.size),)) for x in xs)).ravel()


# name -> (array that is indexed, its index); the positions may be out of bounds, but not where something is promised of them.
PLACES = {
    "each": lambda x, i: (x, i),
    "one": lambda x, i: (x, i[1]),
    "row": lambda x, i: (x.reshape(2, 2), i[2]),
    "columns": lambda x, i: (x.reshape(2, 2), (slice(None), i[:3])),
    "pairs": lambda x, i: (x.reshape(2, 2), (i[:2], i[2:])),
    "sorted": lambda x, i: (x, jnp.sort(jnp.clip(i, 0, 3))),
    "unique": lambda x, i: (x, (jnp.clip(i[0], 0, 2) + jnp.arange(2, dtype=i.dtype))[::-1]),
    "sorted unique": lambda x, i: (x, jnp.clip(i[0], 0, 2) + jnp.arange(2, dtype=i.dtype)),
}
APPLIED = {"f": lambda x: 0.5 - x, "i": lax.bitwise_not, "b": jnp.logical_not}
METHODS = {
    "f": "get set add subtract multiply divide power min max apply",
    "i": "get set add subtract multiply min max apply",
    "b": "get set min max apply",
}


def indexed(method: str, place: str, mode: str, sort: str) -> Callable:
    promises = {"unique_indices": "unique" in place, "indices_are_sorted": "sorted" in place}

    def function(x, i, y):
        array, index = PLACES[place](x, i)
        at = array.at[index]
        if method == "get":
            return jnp.resize(at.get(mode=mode, **promises), (SIZE,))
        other = APPLIED[sort] if method == "apply" else jnp.resize(y, jax.eval_shape(at.get).shape)
        return getattr(at, method)(other, mode=mode, **promises).ravel()

    return function


INDEXED = {
    f"{sort} at {place} {method} {mode}": (indexed(method, place, mode, sort), f"{sort}i{sort}", sort)
    for sort, methods in METHODS.items()
    for place in PLACES
    for method in methods.split()
    for mode in ("clip", "drop", "fill", "promise_in_bounds")
}
# name -> (function, sorts of the operands, sort of the result): "f", "i" or "b" for floating-point numbers, integers, truth values.
EXACT = {
    **{f"{way} {s}": (moved(way), s, s) for way in ("reversed", "rolled", "padded", "table") for s in "fib"},
    **{f"select {s}": (lambda b, x, y: jnp.where(b, x, y), f"b{s}{s}", s) for s in "fib"},
    **{
        f"take {m} {s}": (functools.partial(jnp.take, mode=m), f"{s}i", s)
        for m in ("clip", "fill", "wrap")
        for s in "fib"
    },
    **{f"index {s}": (lambda x, i: jnp.stack([x[i[0]], x[i[1]], x[-1], x[i[3]]]), f"{s}i", s) for s in "fib"},
    **{f"slice {s}": (lambda x, i: jnp.tile(lax.dynamic_slice(x, (i[1],), (2,)), 2), f"{s}i", s) for s in "fib"},
    **{f"update {s}": (lambda x, i: lax.dynamic_update_slice(x, x[1:], (i[2],)), f"{s}i", s) for s in "fib"},
    **{f"loop of {n} {s}": (looped(n), f"{s}i", s) for n in (3, LONG) for s in "fi"},
    "switch": (
        lambda i, x: lax.switch(i[0].astype(jnp.int32), [jnp.negative, lambda x: x[::-1], jnp.abs], x),
        "if",
        "f",
    ),
    "cond": (lambda b, x, y: lax.cond(b[0], lambda x, y: (x, y), lambda x, y: (y, -x), x, y)[0], "bff", "f"),
    **{name: (getattr(lax, name), "f" * n, "f") for name, n in (("neg", 1), ("abs", 1), ("max", 2), ("min", 2))},
    "cummax": (lax.cummax, "f", "f"),
    **{name: (getattr(lax, name), "f", "f") for name in ("floor", "ceil", "sign")},
    **{f"round {w.name}": (lambda x, w=w: lax.round(x, w), "f", "f") for w in lax.RoundingMethod},
    "rem": (lax.rem, "ff", "f"),
    **{f"{name} {s}": (getattr(lax, name), s + s, "b") for name in ("eq", "ne", "lt", "le", "gt", "ge") for s in "fib"},
    **{f"{name} bits": (getattr(lax, f"bitwise_{name}"), s + s, s) for name in ("and", "or", "xor") for s in "ib"},
    **{f"not {s}": (lax.bitwise_not, s, s) for s in "ib"},
    "is_finite": (lax.is_finite, "f", "b"),
    **{f"i {n}": (getattr(lax, n), "ii", "i") for n in ("add", "sub", "mul", "div", "rem", "max", "min")},
    **{n: (getattr(lax, n), "ii", "i") for n in ("shift_left", "shift_right_logical", "shift_right_arithmetic")},
    **{f"i {n}": (getattr(lax, n), "i", "i") for n in ("neg", "sign", "cumsum", "cumprod", "cummin")},
    "i power": (lambda x: lax.integer_pow(x, 3), "i", "i"),
    "i dot": (lambda x, y: jnp.stack([x @ y, x @ x, jnp.sum(y, dtype=y.dtype), jnp.prod(x, dtype=x.dtype)]), "ii", "i"),
    "b dot": (lambda x, y: jnp.stack([x @ y, y @ y, jnp.any(x), jnp.all(y)]), "bb", "b"),
    "clamp": (lax.clamp, "fff", "f"),
    "i clamp": (lax.clamp, "iii", "i"),
    **{f"sort {s}": (jnp.sort, s, s) for s in "fi"},
    **{f"argsort {s}": (lambda x, i: jnp.argsort(x).astype(i.dtype), f"{s}i", "i") for s in "fi"},
    "argmax": (lambda x, i: jnp.stack([jnp.argmax(x), jnp.argmin(x)] * 2).astype(i.dtype), "fi", "i"),
    "to integers": (lambda x, i: x.astype(i.dtype), "fi", "i"),
    "to short integers": (lambda x, i: x.astype(jnp.int8).astype(i.dtype), "fi", "i"),
    "from integers": (lambda i, x: i.astype(x.dtype), "if", "f"),
    "from truths": (lambda b, x: b.astype(x.dtype), "bf", "f"),
    "to truths": (lambda x: x.astype(bool), "f", "b"),
    "there and back": (lambda x: x.astype(jnp.float32).astype(jnp.result_type(float)).astype(x.dtype), "f", "f"),
    "cases": (lambda i, x, y: lax.select_n(i.astype(jnp.int32), x, y, x[::-1]), "iff", "f"),
}
_SMOOTH = (
    "sqrt sin cos tan asin acos atan exp exp2 expm1 log log1p tanh sinh cosh asinh acosh atanh logistic rsqrt square"
)
# They round once, so only a rounded operand may have other last places.
ROUNDED = {
    **{name: (getattr(lax, name), "ff", "f") for name in ("add", "sub", "mul", "div", "atan2", "pow")},
    **{name: (getattr(lax, name), "f", "f") for name in _SMOOTH.split()},
    **{f"power {k}": (lambda x, k=k: lax.integer_pow(x, k), "f", "f") for k in (-2, 3)},
}
# They round in between, which is like other last places of all operands.
COMPOSED = {
    "cumsum": (jnp.cumsum, "f", "f"),
    "chaotic": (lambda x: lax.fori_loop(0, 100, lambda _, y: 3.9 * y * (1 - y), x), "f", "f"),
    "dot": (squared(jnp.matmul), "ff", "f"),
    "solve": (squared(jnp.linalg.solve), "ff", "f"),
    "cholesky": (squared(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(len(x), dtype=x.dtype))), "f", "f"),
}
ALL = {**EXACT, **ROUNDED, **COMPOSED, **INDEXED}
NAMES = sorted({**EXACT, **ROUNDED, **COMPOSED})
# Their rounding errors are bounded relative to the largest number of a result.
_FACTORIZED = ("solve", "cholesky")
_SUMS = ("add", "subtract", "multiply", "divide", "power", "apply")


# ---------------------------------------------------------------- forms of a function: "name" or "form: name"


def own_jvp(function: Callable) -> Callable:
    own = jax.custom_jvp(function)
    own.defjvp(lambda xs, dxs: jax.jvp(function, xs, dxs))
    return own


def own_vjp(function: Callable) -> Callable:
    own = jax.custom_vjp(function)
    own.defvjp(lambda *xs: (function(*xs), xs), lambda xs, dy: jax.vjp(function, *xs)[1](dy))
    return own


def of_nothing(function: Callable, *args):
    """What is made of arrays without elements, and ones."""
    y = function(*(x[:0] for x in args))
    return jnp.concatenate([y.ravel(), jnp.ones(SIZE, y.dtype)])[:SIZE]


def scanned(function: Callable, *args):
    return lax.scan(lambda _, xs: (None, function(*xs)), None, [jnp.stack([x, x[::-1], x]) for x in args])[1][2]


def counted(function: Callable, *args):
    """The last operand is the number of a turn."""

    def turn(k, _):
        return function(*args[:-1], jnp.broadcast_to(k.astype(args[-1].dtype), SIZE))

    return lax.fori_loop(0, 3, turn, function(*args))


def derived(way: Callable, function: Callable, *args):
    """With respect to all operands that are floating-point numbers."""
    floats = {k: x for k, x in enumerate(args) if x.dtype.kind == "f"}
    f = lambda xs: function(*({**dict(enumerate(args)), **xs}).values())  # noqa: E731
    return way(f, floats, jax.tree.map(jnp.ones_like, floats))


DERIVATIVES = {
    "jvp": lambda f, xs, dxs: jax.jvp(f, (xs,), (dxs,))[1],
    "linearize": lambda f, xs, dxs: jax.linearize(f, xs)[1](dxs),
    "vjp": lambda f, xs, dxs: next(iter(jax.grad(lambda xs: jnp.sum(f(xs)))(xs).values())),
}
FORMS: dict[str, Callable] = {
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "custom_jvp": own_jvp,
    "custom_vjp": own_vjp,
    "scan": lambda f: functools.partial(scanned, f),
    "one by one": lambda f: lambda *args: lax.scan(lambda _, xs: (None, f(*xs)), None, args)[1],
    "counted": lambda f: functools.partial(counted, f),
    "empty": lambda f: functools.partial(of_nothing, f),
    **{name: lambda f, way=way: functools.partial(derived, way, f) for name, way in DERIVATIVES.items()},
}


def function_of(name: str) -> Callable:
    form, _, rest = name.partition(": ")
    # JAX would pass optional arguments on as operands of a derivative.
    return FORMS[form](function_of(rest)) if rest else lambda *xs: ALL[name][0](*xs)


@functools.cache
def has_form(name: str, form: str) -> bool:
    """Whether JAX admits it: the function has a derivative, or takes arrays without elements, or numbers."""
    _, sorts, result = ALL[name.rpartition(": ")[-1]]
    dtypes: dict[str, Any] = {"f": jnp.float32, "i": jnp.int32, "b": bool}
    try:
        y = jax.eval_shape(function_of(f"{form}: {name}"), *(jax.ShapeDtypeStruct((SIZE,), dtypes[s]) for s in sorts))
    except (TypeError, ValueError, IndexError, ZeroDivisionError, NotImplementedError):
        return False
    return y.shape == (SIZE,) and y.dtype == dtypes[result]


# ---------------------------------------------------------------- programs


@dataclasses.dataclass
class Program:
    """A function of floating-point numbers, integers and truth values: steps of (function, positions of the operands)."""

    constants: list[np.ndarray]
    steps: list[tuple[str, tuple[int, ...]]]

    def __call__(self, x, i, b):
        return self.results([x, i, b, *map(jnp.asarray, self.constants)])

    def results(self, start: list, factors: Any = None) -> list:
        """Of all steps, from inputs and constants; results that are rounded are multiplied by `factors`."""
        values = [*start]
        for k, (name, operands) in enumerate(self.steps):
            y = function_of(name)(*(values[j] for j in operands))
            if factors is not None and y.dtype == start[0].dtype and roundings(name):
                y = y * factors[k]
            values.append(y)
        return values[len(start) :]

    def __repr__(self) -> str:
        return f"constants {self.constants}, steps {self.steps}"


def roundings(name: str) -> int:
    """How often results of exact operands are rounded: never, once or several times."""
    form, _, name = name.rpartition(": ")
    sums = name in INDEXED and name.startswith("f") and name.split()[-2] in _SUMS
    return 2 if form in DERIVATIVES or name in COMPOSED or sums else int(name in ROUNDED)


def operands_of(name: str) -> tuple[int, ...]:
    """The input of each sort."""
    return tuple("fib".index(s) for s in ALL[name][1])


def differentiable(name: str) -> bool:
    """In both modes, and alike: if bounds are promised, reverse mode reads back what an update beyond them dropped."""
    if name.startswith("vjp: ") or name.endswith("promise_in_bounds"):
        return False
    return ALL[name.rpartition(": ")[-1]][2] != "f" or has_form(name, "vjp")


def programs(
    rng: np.random.Generator, float_dtype: str, int_dtype: str, length: int = 8, admitted: Callable[[str], bool] = bool
) -> Program:
    dtypes = {"f": float_dtype, "i": int_dtype, "b": "bool"}
    constants = [flushed(rng.choice(edges(dtypes[s]), SIZE)) for s in "fib"]
    sorts, steps = "fibfib", []
    while len(steps) < length:
        name = pick(rng, pick(rng, [NAMES, NAMES, [*INDEXED]]))
        form = pick(rng, [None] * 6 + [*FORMS])
        full = f"{form}: {name}" if form and has_form(name, form) else name
        if admitted(full):
            _, needed, result = ALL[name]
            steps.append((full, tuple(pick(rng, [k for k, s in enumerate(sorts) if s == n]) for n in needed)))
            sorts += result
    return Program(constants, steps)


def types(rng: np.random.Generator, wide: bool = True) -> tuple[str, str]:
    """Of the numbers; as positions, unsigned integers beyond 2^31 are negative to one operation of XLA, and large to another."""
    short = ["int32", "int8", "uint8", "int16", "uint16"]
    if not wide:
        return "float32", pick(rng, ["int32", *short])
    return pick(rng, ["float32", "float64"]), pick(rng, ["int64", *short])


def inputs(rng: np.random.Generator, dtypes: Sequence[str], batch: int = LANES) -> list[np.ndarray]:
    return [flushed(rng.choice(edges(t), (batch, SIZE))) for t in dtypes]


# ---------------------------------------------------------------- comparison


def nudged(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """With other last places; what overflowed may then be finite."""
    within = np.clip(x, np.finfo(x.dtype).min, np.finfo(x.dtype).max)
    with np.errstate(over="ignore"):
        return within * (1 + np.finfo(x.dtype).eps * rng.uniform(-8, 8, x.shape)).astype(x.dtype)


def _solves(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Whether each number belongs to a column that solves a x = b but for rounding of the factors, as a stable elimination does."""
    eps, square = np.finfo(x.dtype).eps, (-1, 2, 2)
    with np.errstate(all="ignore"):
        a, b, x = (np.asarray(y, np.longdouble).reshape(square) for y in (a, b, x))
        largest = (np.abs(a).max((1, 2))[:, None] * np.abs(x).max(1) + np.abs(b).max(1))[:, None]
        residual = np.abs(b - np.einsum("nij,njk->nik", a, x))
        solved = np.isfinite(largest) & (residual.max(1, keepdims=True) <= 32 * eps * largest)
        return np.broadcast_to(solved, x.shape).reshape(len(x), -1)


_NEWER_EMITTERS = {"xla_cpu_use_fusion_emitters": True} if jax.__version_info__ < (0, 11) else {}


def wrong_steps(program: Program, args: Sequence[np.ndarray], found: Sequence) -> list[str]:
    """The steps whose results by lanes are not those of XLA, with the operands of one sample.

    Faults are neither a zero whose sign differs, nor a number in place of NaN, if a known zero was an operand, and for NaN another
    one that is not finite. Of composed functions a sample counts if XLA's result is finite. XLA's older emitters of loops, which
    compile faster, lose parts of derivatives of loops; so a fault is one beside the newer emitters, too.
    """
    return _wrong_steps(program, args, found, {}) and _wrong_steps(program, args, found, _NEWER_EMITTERS)


def _wrong_steps(program: Program, args: Sequence[np.ndarray], found: Sequence, options: dict) -> list[str]:
    rng = np.random.default_rng(0)
    constants = [np.broadcast_to(c, (len(args[0]), SIZE)) for c in program.constants]
    values = [flushed(np.asarray(x)) for x in (*args, *constants, *found)]
    rough, known = [False] * 6, [False] * 3 + [True] * 3
    operands = [[values[k] for k in ks] for _, ks in program.steps]
    nudges = []
    for name, ks in program.steps:
        floats, times = [values[k].dtype.kind == "f" for k in ks], roundings(name)
        nudges.append([f and (times > 1 or (times and rough[k])) for k, f in zip(ks, floats, strict=True)])
        rough.append(times > 0 or any(f and rough[k] for k, f in zip(ks, floats, strict=True)))
        known.append(any(known[k] for k in ks))

    @functools.partial(jax.jit, compiler_options=options)
    @jax.vmap
    def every(operands):
        return [function_of(name)(*xs) for (name, _), xs in zip(program.steps, operands, strict=True)]

    expected = jax.device_get(every(operands))
    others = []
    for _ in range(4 if any(map(any, nudges)) else 0):
        pairs = [zip(xs, ns, strict=True) for xs, ns in zip(operands, nudges, strict=True)]
        others.append(jax.device_get(every([[nudged(rng, x) if n else x for x, n in pair] for pair in pairs])))
    wrong = []
    for k, (name, ks) in enumerate(program.steps):
        y, e, xs = np.asarray(found[k]), expected[k], operands[k]
        different = differences(y, e)
        if roundings(name):
            composed = roundings(name) > 1
            with np.errstate(all="ignore"):
                spread = np.max([np.abs(o[k] - e) for o in others] or [np.zeros_like(e)], 0)
                size = np.abs(e).max(1, keepdims=True) if name.endswith(_FACTORIZED) else np.abs(e)
                # Derivatives such as 1 - tanh(x)^2 subtract from one.
                far = np.abs(y - e) > 30 * spread + 32 * np.finfo(e.dtype).eps * np.maximum(size, composed)
            in_part = composed or any(known[j] for j in ks)
            with_zero = np.any([(x == 0).any(1) for x in xs], 0)[:, None]
            infinite = np.any([~np.isfinite(x).all(1) for x in xs], 0)[:, None]
            different &= far | (y == e) | np.isnan(e)
            different &= (y != 0) | (e != 0) | ((spread == 0) & (not in_part))
            different &= ~(np.isnan(e) & with_zero & infinite & in_part)
            different &= np.isfinite(e).all(1)[:, None] | (not composed)
            if name.rpartition(": ")[-1] == "solve" and not any(form in name for form in DERIVATIVES):
                different &= ~_solves(*xs, y)
        for at in np.argwhere(different.any(1)).ravel()[:1]:
            given = ", ".join(repr(x[at].tolist()) for x in xs)
            wrong.append(f"{name} of {ks} ({given}): {y[at]} by lanes, {e[at]} by XLA")
    return wrong
