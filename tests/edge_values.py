"""The numbers at which arithmetic goes wrong, for each scalar type, and the primitives that are compared at them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

FLOATS = ("float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = (*FLOATS, *INTEGERS, "bool")

COMPARISONS = "eq ne lt le gt ge"
CONVERSIONS = {f"to {dtype}": lambda x, t=dtype: lax.convert_element_type(x, t) for dtype in DTYPES}
# Names of functions of `jax.lax`, which are primitives.
FUNCTIONS = {
    "floats": "neg abs sign sqrt rsqrt floor ceil square is_finite sin cos tan asin acos atan exp exp2 expm1 log log1p tanh sinh "
    "cosh asinh acosh atanh logistic",
    "floats, two": f"add sub mul div rem pow atan2 max min {COMPARISONS}",
    "integers": "neg sign bitwise_not square",
    "integers, two": "add sub mul div rem max min bitwise_and bitwise_or bitwise_xor shift_left shift_right_logical "
    f"shift_right_arithmetic {COMPARISONS}",
    "truths": "bitwise_not",
    "truths, two": f"max min bitwise_and bitwise_or bitwise_xor {COMPARISONS}",
}


def named(sort: str) -> dict:
    return {name: getattr(lax, name) for name in FUNCTIONS[sort].split()}


def powers(exponents) -> dict:
    return {f"power {k}": lambda x, k=k: lax.integer_pow(x, k) for k in exponents}


def sorts(dtype: str) -> str:
    return "floats" if dtype in FLOATS else "integers" if dtype in INTEGERS else "truths"


def of_one(dtype: str) -> dict:
    """Functions of one number of a type."""
    rounding = {f"round {way.name}": lambda x, way=way: lax.round(x, way) for way in lax.RoundingMethod}
    more = {"floats": rounding | powers((-3, -2, -1, 0, 1, 2, 3, 4)), "integers": powers((0, 1, 2, 3, 5)), "truths": {}}
    return named(sorts(dtype)) | more[sorts(dtype)] | CONVERSIONS


def of_two(dtype: str) -> dict:
    """Functions of two numbers of a type."""
    more = {
        "clamp": lambda x, y: lax.clamp(x, jnp.ones_like(x), y),
        "clamped": lambda x, y: lax.clamp(jnp.zeros_like(x), x, y),
        "largest and its place": lambda x, y: jnp.stack(
            [jnp.max(a := jnp.stack([y, x, y])), jnp.argmax(a).astype(x.dtype)]
        ),
        "smallest and its place": lambda x, y: jnp.stack(
            [jnp.min(a := jnp.stack([x, y, x])), jnp.argmin(a).astype(x.dtype)]
        ),
        "sorted": lambda x, y: jnp.sort(jnp.stack([x, y, jnp.ones_like(x)])),
        "largest so far": lambda x, y: lax.cummax(jnp.stack([x, y])),
    }
    return named(f"{sorts(dtype)}, two") | ({} if dtype == "bool" else more)


def edges(dtype: str) -> np.ndarray:
    """Zeros, ones, extremes, subnormal and non-finite numbers, and those next to a limit."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        near = [-info.bits - 1, -info.bits, -7, -2, -1, 0, 1, 2, 3, 7, 9, info.bits - 1, info.bits, info.bits + 1, 100]
        wide = [2**24 + 1, 2**31 - 1, 2**31, 2**53 + 1, -(2**53) - 1, 2**62 + 3]
        extremes = [info.min, info.min + 1, info.max - 1, info.max, info.max // 2 + 1]
        within = {n for n in near + wide + extremes if info.min <= n <= info.max}
        return np.array(sorted(within), dtype)
    info = np.finfo(dtype)
    sizes = [0, info.smallest_subnormal, info.tiny / 2, info.tiny, 1e-3, 0.5, 0.7, 1, 1.5, 2, 3, 2.5, 88.9, 127.5, 256]
    sizes += [2.0**24 + 1, 2.0**31, 2.0**53, 2.0**63, 2.0**64, 2.0 ** (info.maxexp - 1), info.max, np.inf]
    return np.array([*(s * x for x in sizes for s in (1, -1)), np.nan], dtype)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of edge values."""
    x, y = np.meshgrid(edges(dtype), edges(dtype))
    return x.ravel(), y.ravel()


def flushed(x: np.ndarray) -> np.ndarray:
    """With zeros, of the same sign, for subnormal numbers."""
    if x.dtype.kind != "f":
        return x
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


def differences(found, expected, roundings: int = 32) -> np.ndarray:
    """Where two arrays differ: by more than roundings, in the sign of a zero, or in what is not finite; subnormals are zeros."""
    found, expected = (flushed(np.asarray(x)) for x in (found, expected))
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind != "f":
        return found != expected
    info = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        # A result near the smallest number may be flushed by one and not by the other.
        close = np.abs(found - expected) <= roundings * info.eps * np.abs(expected) + 2 * info.tiny
        return np.where(
            np.isnan(expected),
            ~np.isnan(found),
            ~(close | (found == expected)) | (np.signbit(found) != np.signbit(expected)),
        )


def assert_same(found: dict, expected: dict, args, roundings: int = 32) -> None:
    """Equal results of all functions, by name; the message names the first operands where they differ."""
    wrong = []
    for name in expected:
        different = differences(found[name], expected[name], roundings)
        where = np.argwhere(different.reshape(len(different), -1).any(1)).ravel()
        for k in where[:3].tolist():
            operands = ", ".join(repr(np.asarray(x)[k].tolist()) for x in args)
            wrong.append(
                f"{name}({operands}): {np.asarray(found[name])[k]} by lanes, {np.asarray(expected[name])[k]} by XLA"
            )
    assert not wrong, "\n".join(wrong)


def by_xla(functions: dict, *args) -> dict:
    """Each function of numbers for each of many operands."""
    every = jax.vmap(lambda *x: {name: f(*x) for name, f in functions.items()})
    return jax.device_get(jax.jit(every)(*(flushed(x) for x in args)))
