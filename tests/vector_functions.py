"""The vector functions of the lane compiler, compiled for this processor, and arguments at which they may go wrong."""

import ctypes
import functools
import math

import llvmlite.binding as llvm
import mpmath
import numpy as np

from jaxdyn.lanes import transcendental
from jaxdyn.lanes.transcendental import FUNCTIONS, WIDTHS, definitions, symbol

DTYPES = {"f32": np.float32, "f64": np.float64}
NUMPY_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "pow": "power"}
INFINITY, NAN = math.inf, math.nan
WIDEST = {"f32": 16, "f64": 8}

# Operands, then the result (C99, annex F.10).
SPECIAL = {
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INFINITY, NAN), (-INFINITY, NAN), (NAN, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INFINITY, NAN), (-INFINITY, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INFINITY, NAN), (-INFINITY, NAN), (NAN, NAN)],
    "asin": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (1.0, math.pi / 2),
        (-1.0, -math.pi / 2),
        (1.5, NAN),
        (-INFINITY, NAN),
        (NAN, NAN),
    ],
    "acos": [
        (1.0, 0.0),
        (-1.0, math.pi),
        (0.0, math.pi / 2),
        (-0.0, math.pi / 2),
        (1.5, NAN),
        (INFINITY, NAN),
        (NAN, NAN),
    ],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INFINITY, math.pi / 2), (-INFINITY, -math.pi / 2), (NAN, NAN)],
    "exp": [
        (0.0, 1.0),
        (-0.0, 1.0),
        (INFINITY, INFINITY),
        (-INFINITY, 0.0),
        (1e30, INFINITY),
        (-1e30, 0.0),
        (NAN, NAN),
    ],
    "expm1": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (INFINITY, INFINITY),
        (-INFINITY, -1.0),
        (1e30, INFINITY),
        (-1e30, -1.0),
        (NAN, NAN),
    ],
    "log": [
        (0.0, -INFINITY),
        (-0.0, -INFINITY),
        (1.0, 0.0),
        (INFINITY, INFINITY),
        (-1.0, NAN),
        (-INFINITY, NAN),
        (NAN, NAN),
    ],
    "log1p": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (-1.0, -INFINITY),
        (INFINITY, INFINITY),
        (-2.0, NAN),
        (-INFINITY, NAN),
        (NAN, NAN),
    ],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INFINITY, 1.0), (-INFINITY, -1.0), (NAN, NAN)],
    "atan2": [
        *((math.copysign(0.0, s), x, math.copysign(0.0, s)) for s in (1, -1) for x in (0.0, 1.0, INFINITY)),
        *((math.copysign(0.0, s), x, math.copysign(math.pi, s)) for s in (1, -1) for x in (-0.0, -1.0, -INFINITY)),
        *((s, x, s * math.pi / 2) for s in (1.0, -1.0) for x in (0.0, -0.0)),
        *((s, INFINITY, math.copysign(0.0, s)) for s in (1.0, -1.0)),
        *((s, -INFINITY, s * math.pi) for s in (1.0, -1.0)),
        *((s * INFINITY, x, s * math.pi / 2) for s in (1, -1) for x in (0.0, 1.0, -1.0)),
        *((s * INFINITY, INFINITY, s * math.pi / 4) for s in (1, -1)),
        *((s * INFINITY, -INFINITY, s * math.pi * 3 / 4) for s in (1, -1)),
        *((NAN, x, NAN) for x in (0.0, 1.0, INFINITY, NAN)),
        *((x, NAN, NAN) for x in (0.0, 1.0, -INFINITY)),
    ],
    "pow": [
        *((s * 0.0, -3.0, s * INFINITY) for s in (1, -1)),
        *((x, y, INFINITY) for x in (0.0, -0.0) for y in (-2.0, -2.5, -INFINITY)),
        *((s * 0.0, 3.0, s * 0.0) for s in (1, -1)),
        *((x, y, 0.0) for x in (0.0, -0.0) for y in (2.0, 2.5, INFINITY)),
        *((-1.0, y, 1.0) for y in (INFINITY, -INFINITY, 2.0, 1e30)),
        *((1.0, y, 1.0) for y in (0.0, 2.5, INFINITY, -INFINITY, NAN)),
        *((x, y, 1.0) for x in (0.0, -2.5, INFINITY, -INFINITY, NAN) for y in (0.0, -0.0)),
        *((x, y, NAN) for x in (-1.0, -2.5) for y in (0.5, -2.5)),
        *((x, -INFINITY, INFINITY) for x in (0.5, -0.5)),
        *((x, -INFINITY, 0.0) for x in (2.5, -2.5, INFINITY, -INFINITY)),
        *((x, INFINITY, 0.0) for x in (0.5, -0.5)),
        *((x, INFINITY, INFINITY) for x in (2.5, -2.5, INFINITY, -INFINITY)),
        (-INFINITY, -3.0, -0.0),
        (-INFINITY, 3.0, -INFINITY),
        *((-INFINITY, y, 0.0) for y in (-2.0, -2.5)),
        *((-INFINITY, y, INFINITY) for y in (2.0, 2.5)),
        *((INFINITY, y, 0.0) for y in (-2.0, -2.5)),
        *((INFINITY, y, INFINITY) for y in (2.0, 2.5)),
        *((NAN, y, NAN) for y in (1.0, -2.0, INFINITY)),
        *((x, NAN, NAN) for x in (0.0, 2.5, -1.0, -INFINITY)),
        (-2.0, 3.0, -8.0),
        (-2.0, 2.0, 4.0),
        (2.0, -1.0, 0.5),
    ],
}
SPECIAL["sincos"] = SPECIAL["sin"]


def loop(name, kind, width):
    """A function that applies `name` to arrays: pointers to the operands, to the results, and the number of vectors."""
    scalar = {"f32": "float", "f64": "double"}[kind]
    t = scalar if width == 1 else f"<{width} x {scalar}>"
    operands, results = FUNCTIONS[name], 1 + (name == "sincos")
    kinds = t if results == 1 else f"{{{t}, {t}}}"
    pointers = [f"%p{i}" for i in range(operands + results)]
    called = ", ".join(f"{t} %v{i}" for i in range(operands))
    lines = [
        f"define void @loop.{name}.{width}({', '.join(f'ptr {p}' for p in pointers)}, i64 %n) {{",
        "entry:\n br label %next",
        "next:\n %i = phi i64 [0, %entry], [%j, %next]",
        *(f" %a{i} = getelementptr [{width} x {scalar}], ptr {p}, i64 %i" for i, p in enumerate(pointers)),
        *(f" %v{i} = load {t}, ptr %a{i}, align 4" for i in range(operands)),
        f" %y = call {kinds} @{symbol(name, kind, width)}({called})",
        *(f" %r{k} = extractvalue {kinds} %y, {k}" for k in range(results) if results > 1),
        *(f" store {t} %{f'r{k}' if results > 1 else 'y'}, ptr %a{operands + k}, align 4" for k in range(results)),
        " %j = add i64 %i, 1",
        " %more = icmp ult i64 %j, %n",
        " br i1 %more, label %next, label %done",
        "done:\n ret void\n}",
    ]
    return "\n".join(lines)


@functools.cache
def compiled(name, kind):
    """Engine, which keeps the code, and the functions of all widths."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = definitions([(name, kind, w) for w in WIDTHS]) + "\n".join(loop(name, kind, w) for w in WIDTHS)
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kinds = [ctypes.c_void_p] * (FUNCTIONS[name] + 1 + (name == "sincos")) + [ctypes.c_int64]
    calls = {w: ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(f"loop.{name}.{w}")) for w in WIDTHS}
    return engine, calls


def evaluated(name, kind, arrays, width=None):
    """Results of a function, one or two, on arrays."""
    width, dtype, size = width or WIDEST[kind], DTYPES[kind], len(arrays[0])
    vectors = -(-size // width)
    padded = [np.concatenate([x.astype(dtype), np.ones(vectors * width - size, dtype)]) for x in arrays]
    results = [np.empty(vectors * width, dtype) for _ in range(1 + (name == "sincos"))]
    compiled(name, kind)[1][width](*(x.ctypes.data for x in (*padded, *results)), vectors)
    return [y[:size] for y in results]


def any_bits(kind, count, rng):
    unsigned = {"f32": np.uint32, "f64": np.uint64}[kind]
    return rng.integers(np.iinfo(unsigned).max, size=count, dtype=unsigned, endpoint=True).view(DTYPES[kind])


def around(points, kind):
    """Points, and the floating-point numbers beside them."""
    points = np.asarray(points, DTYPES[kind])
    return np.concatenate(
        [points, np.nextafter(points, DTYPES[kind](-INFINITY)), np.nextafter(points, DTYPES[kind](INFINITY))]
    )


def hard_points(name, kind, count, rng):
    """Arguments where reduction cancels, branches of the method meet, results overflow, or logarithms vanish."""
    limits = np.finfo(DTYPES[kind])
    tiny = np.exp2(-np.arange(0.0, -limits.minexp + limits.nmant))
    if name in ("sin", "cos", "sincos", "tan"):
        limit = transcendental._LARGEST_ANGLE[kind]
        turns = np.rint(np.exp(rng.uniform(0, math.log(limit * 0.6), count)))
        with mpmath.workdps(40):
            exact = [float(int(k) * mpmath.pi / 2) for k in turns]
        return around([*exact, limit], kind)
    if name in ("exp", "expm1", "tanh"):
        halves = (np.arange(limits.minexp - limits.nmant - 2, limits.maxexp + 2) + 0.5) * math.log(2)
        ends = math.log(2) * np.array([limits.maxexp, limits.minexp, limits.minexp - limits.nmant - 1])
        return np.concatenate([around(np.concatenate([halves, ends, [0.55, -0.55, 10, 20]]), kind), tiny, -tiny])
    if name in ("log", "log1p"):
        near = rng.choice([-1, 1], count) * np.exp(rng.uniform(limits.nmant * -0.7, -0.7, count))
        roots = np.exp2(np.arange(-5, 5) + 0.5)
        return np.concatenate([near + (name == "log"), around(roots - (name == "log1p"), kind), tiny, -tiny])
    return np.concatenate([around([0.5, 1.0, -0.5, -1.0], kind), tiny, -tiny])


def arguments(name, kind, count, seed=0):
    """Random bits, random numbers of ordinary size, and hard points."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        if name == "atan2":
            parts = [
                (any_bits(kind, count, rng), any_bits(kind, count, rng)),
                (rng.normal(size=count), rng.normal(size=count)),
            ]
        elif name == "pow":
            biggest = 0.69 * np.finfo(DTYPES[kind]).maxexp
            near = 1 + rng.uniform(-1, 1, count) * np.exp(rng.uniform(-12, 0, count))
            parts = [
                (any_bits(kind, count, rng), any_bits(kind, count, rng)),
                (near, rng.uniform(-biggest, biggest, count) / np.log(near)),
                (np.exp(rng.uniform(-biggest, biggest, count)), rng.uniform(-2, 2, count)),
                (rng.uniform(-9, 9, count), np.rint(rng.uniform(-30, 30, count))),
            ]
        else:
            large = {"asin": 1, "acos": 1, "exp": 80, "expm1": 80, "log": 100, "log1p": 10, "tanh": 10}.get(name, 100)
            numbers = (any_bits(kind, count, rng), rng.uniform(-large, large, count), rng.uniform(-2, 2, count))
            parts = [(x,) for x in (*numbers, hard_points(name, kind, count // 4, rng))]
        return [np.concatenate([x.astype(DTYPES[kind]) for x in xs]) for xs in zip(*parts, strict=True)]


def names_of_results(name):
    return ("sin", "cos") if name == "sincos" else (name,)


def exactly(name, xs):
    """Value of a function by mpmath; None where it is none or no number."""
    if not all(map(math.isfinite, xs)):
        return None
    x = mpmath.mpf(xs[0])
    if name == "pow":
        base, power = xs
        if base == 0 or (base < 0 and not power.is_integer()):
            return None
        exponent = power * mpmath.log(abs(x))
        size = mpmath.exp(mpmath.mpf(min(max(exponent, -800), 800)))
        return -size if base < 0 and power % 2 else size
    if name == "atan2":
        return mpmath.atan2(x, mpmath.mpf(xs[1])) if any(xs) else None
    if (name in ("asin", "acos") and abs(x) > 1) or (name == "log" and x <= 0) or (name == "log1p" and x <= -1):
        return None
    if name in ("exp", "expm1"):
        x = min(max(x, -800), 800)
    return getattr(mpmath, name)(x)
