"""Random functions of one sample over the primitives that the lane compiler knows, which give the same numbers wherever they run.

Compilers round differently where they may fuse products and sums, and functions of libraries differ in the last places. So a number
that has been rounded is used only where such a difference stays small: not in a sum, in a comparison, or in a conversion. For
the same reason a product or sum with a number that is known, and might be zero, has no place here.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from edge_values import edges, flushed
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax import lax

SIZE = 4  # numbers of every array
LANES = 9  # a vector and a tail
LONG = 700  # turns of a loop that is not written out


@dataclasses.dataclass
class Value:
    """What is known of an array of a program.

    Attributes:
        sort: "f", "i" or "b": floating-point numbers, integers, truth values.
        rough: compilers may round it differently.
        known: it does not depend on the inputs.
        mixed: some of its numbers may be known, since a known choice took them from a known array.
    """

    sort: str
    rough: bool = False
    known: bool = False
    mixed: bool = False


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


def gathered(mode: str) -> Callable:
    return lambda x, i: x.at[i].get(mode=mode)


def scattered(name: str, mode: str) -> Callable:
    return lambda x, i: getattr(x.at[i], name)(x[::-1], mode=mode)


# name -> (function, sorts of the operands, sort of the result); roughness passes through.
MOVES = {
    **{f"{way} {s}": (moved(way), s, s) for way in ("reversed", "rolled", "padded", "table") for s in "fib"},
    **{f"select {s}": (lambda b, x, y: jnp.where(b, x, y), f"b{s}{s}", s) for s in "fib"},
    **{f"get {m} {s}": (gathered(m), f"{s}i", s) for m in ("clip", "fill", "promise_in_bounds") for s in "fib"},
    **{f"set {m} {s}": (scattered("set", m), f"{s}i", s) for m in ("clip", "drop", "promise_in_bounds") for s in "fib"},
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
}
# These need operands that are exact. The sign of a known -0 is 0 to XLA, and that of an unknown one -0, so it is left out.
EXACT = {
    **{name: (getattr(lax, name), "f", "f") for name in ("floor", "ceil", "sqrt")},
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
    "sort": (jnp.sort, "f", "f"),
    "i sort": (jnp.sort, "i", "i"),
    "argmax": (lambda x, i: jnp.stack([jnp.argmax(x), jnp.argmin(x)] * 2).astype(i.dtype), "fi", "i"),
    "i add at": (lambda x, i: x.at[i].add(x[0]), "ii", "i"),
    "i max at": (lambda x, i: x.at[i].max(x[1], mode="clip"), "ii", "i"),
    "to integers": (lambda x, i: x.astype(i.dtype), "fi", "i"),
    "to short integers": (lambda x, i: x.astype(jnp.int8).astype(i.dtype), "fi", "i"),
    "from integers": (lambda i, x: i.astype(x.dtype), "if", "f"),
    "from truths": (lambda b, x: b.astype(x.dtype), "bf", "f"),
    "to truths": (lambda x: x.astype(bool), "f", "b"),
    "there and back": (lambda x: x.astype(jnp.float32).astype(jnp.float64).astype(x.dtype), "f", "f"),
    "cases": (lambda i, x, y: lax.select_n(i.astype(jnp.int32), x, y, x[::-1]), "iff", "f"),
}
_SMOOTH = "sin cos tan asin acos atan exp exp2 expm1 log log1p tanh sinh cosh asinh acosh atanh logistic rsqrt square"
# These need exact operands, all known or none, and their results are rough. So is a quotient: XLA multiplies by the inverse of a
# known divisor, which may be too small for its type, and instead of dividing twice divides by a product, which may overflow.
ROUGH = {
    **{name: (getattr(lax, name), "ff", "f") for name in ("add", "sub", "mul", "div", "atan2", "pow")},
    **{name: (getattr(lax, name), "f", "f") for name in _SMOOTH.split()},
    **{f"power {k}": (lambda x, k=k: lax.integer_pow(x, k), "f", "f") for k in (-2, 3)},
    "add at": (lambda x, i: x.at[i].add(x[0]), "fi", "f"),
}
ALL = {
    **{name: (*entry, "move") for name, entry in MOVES.items()},
    **{name: (*entry, "exact") for name, entry in EXACT.items()},
    **{name: (*entry, "rough") for name, entry in ROUGH.items()},
}
NAMES = sorted(ALL)
# Their first operand chooses among the others.
CHOICES = ("select ", "cond", "switch", "cases")


@dataclasses.dataclass
class Program:
    """A function of floating-point numbers, integers and truth values: steps of (function, positions of the operands)."""

    constants: list[np.ndarray]
    steps: list[tuple[str, tuple[int, ...]]]

    def __call__(self, x, i, b):
        values = [x, i, b, *map(jnp.asarray, self.constants)]
        for name, operands in self.steps:
            values.append(ALL[name][0](*(values[k] for k in operands)))
        return values[3 + len(self.constants) :]

    def __repr__(self) -> str:
        return f"constants {self.constants}, steps {self.steps}"


def misread(name: str, known: list[bool], int_dtype: str) -> bool:
    """Whether XLA answers otherwise because operands of a function are known.

    Of -0 and 0 that are known, the largest so far is the first one, and of unknown ones 0. The inverse hyperbolic sine of a known
    -0 is 0, and that of an unknown one -0. A slice at a known unsigned position whose highest bit is set begins at 0, and at an
    unknown one it ends with the array. A known integer divided by a known 0 ends the process that compiles it.
    """
    if name.startswith(("index ", "slice ")):
        return known[-1] and int_dtype.startswith("u")
    return name in ("asinh", "cummax", "i div", "i rem") and all(known)


@st.composite
def programs(draw, float_dtype: str, int_dtype: str, length: int = 8, names=NAMES) -> Program:
    dtypes = {"f": float_dtype, "i": int_dtype, "b": "bool"}
    constants = [draw(arrays(dtypes[s])) for s in "fib"]
    values = [Value(s) for s in "fib"] + [Value(s, known=True) for s in "fib"]
    steps: list = []
    for _ in range(length):
        name = draw(st.sampled_from(names))
        _, sorts, result, group = ALL[name]
        fitting = [[k for k, v in enumerate(values) if v.sort == s and (group == "move" or not v.rough)] for s in sorts]
        operands = tuple(draw(st.sampled_from(ks)) for ks in fitting)
        known = [values[k].known for k in operands]
        in_part = [values[k].known or values[k].mixed for k in operands]
        if group == "rough" and any(in_part) and not all(known):
            operands = tuple("fib".index(s) if p else k for k, s, p in zip(operands, sorts, in_part, strict=True))
            known, in_part = [False], [False]
        if misread(name, known, int_dtype):
            operands, known = (*operands[:-1], "fib".index(sorts[-1])), [False]
        mixed = any(values[k].mixed for k in operands) or (name.startswith(CHOICES) and known[0] and any(in_part[1:]))
        rough = group == "rough" or any(values[k].rough for k in operands)
        values.append(Value(result, rough, all(known), mixed and not all(known)))
        steps.append((name, operands))
    return Program(constants, steps)


def arrays(dtype: str):
    return st.lists(st.sampled_from(edges(dtype).tolist()), min_size=SIZE, max_size=SIZE).map(
        lambda numbers: flushed(np.array(numbers, dtype))
    )


def random(test, count: int):
    """Runs a test on programs of a fixed sequence, the same in every run."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    phases = [Phase.generate]  # a smaller program would take a hundred compilations to find
    options = settings(
        max_examples=count, deadline=None, derandomize=True, database=None, phases=phases, suppress_health_check=quiet
    )
    return options(given(st.data())(test))()


def types(data) -> tuple[str, str]:
    """Of the numbers; as positions, unsigned integers beyond 2^31 are negative to one operation of XLA, and large to another."""
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    return dtype, data.draw(st.sampled_from(["int32", "int64", "int8", "uint8", "int16", "uint16"]))


def inputs(seed: int, dtypes) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [flushed(rng.choice(edges(t), (LANES, SIZE))) for t in dtypes]
