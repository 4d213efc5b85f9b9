"""Instructions of the PTX interpreter against exact arithmetic in Python."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from ptx_interpreter import PtxKernel
from ptx_samples import FLOATS, SMALLEST, assert_same_floats, element, module
from ptx_text import TYPES


@pytest.fixture(autouse=True)
def _overflow_is_expected():
    with np.errstate(all="ignore"):
        yield


def register(kind: str, number: int) -> str:
    return {8: "%h", 16: "%h", 32: "%r", 64: "%d"}[int(kind[1:])] + str(number)


def executed(text: str, result: str, *operands: tuple[str, np.ndarray]) -> np.ndarray:
    """What the instructions leave in {d}, from the operands {a}, {b}, {c}, for every thread."""
    names = dict(zip("abc", (register(kind, 10 + k) for k, (kind, _) in enumerate(operands)), strict=False))
    names["d"] = register(result, 20)
    body = ""
    for k, (kind, _) in enumerate(operands):
        body += element(k, kind, 30) + f"ld.global.{'b' + kind[1:]} {names['abc'[k]]}, [%d30];\n"
    body += text.format(**names) + "\n" + element(len(operands), result, 30)
    body += f"st.global.b{result[1:]} [%d30], {names['d']};"
    count = operands[0][1].size
    buffers = [np.ascontiguousarray(x, TYPES[kind]) for kind, x in operands]
    out = np.zeros(count, TYPES[result])
    PtxKernel(module(len(buffers) + 1, body)).run([*buffers, out], count, 1, outputs=[len(buffers)])
    return out


def integers(kind: str) -> list[int]:
    info = np.iinfo(TYPES[kind])
    bits = info.bits
    edges = [
        0,
        1,
        2,
        3,
        7,
        bits - 1,
        bits,
        bits + 1,
        info.max,
        info.max - 1,
        info.min,
        info.min + 1,
        1 << (bits // 2),
        85,
    ]
    edges += [-1, -2, -7] if info.min < 0 else [1 << (bits - 1), (1 << (bits - 1)) + 1]
    return [x for x in edges if info.min <= x <= info.max]


def wrapped(x: int, kind: str) -> int:
    bits = int(kind[1:])
    x &= (1 << bits) - 1
    return x - (1 << bits) if kind[0] == "s" and x >> (bits - 1) else x


def saturated(x: int, kind: str) -> int:
    info = np.iinfo(TYPES[kind])
    return max(int(info.min), min(int(info.max), x))


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def bits_of(x: int, kind: str) -> str:
    return format(x & ((1 << int(kind[1:])) - 1), f"0{kind[1:]}b")


def extracted(a: int, position: int, length: int, kind: str) -> int:
    """As PTX describes bfe: bit by bit, from the sign beyond the end of the field or of the number."""
    bits = int(kind[1:])
    position, length = position & 255, length & 255
    a_bits = [a >> k & 1 for k in range(bits)]
    sign = 0 if kind[0] == "u" or length == 0 else a_bits[min(position + length - 1, bits - 1)]
    return sum((a_bits[position + k] if k < length and position + k < bits else sign) << k for k in range(bits))


def inserted(a: int, b: int, position: int, length: int, bits: int) -> int:
    for k in range(min(length & 255, bits)):
        at = (position & 255) + k
        if at < bits:
            b = b & ~(1 << at) | (a >> k & 1) << at
    return b


def permuted(a: int, b: int, selector: int) -> int:
    octets = [(b << 32 | a) >> 8 * k & 255 for k in range(8)]
    result = 0
    for k in range(4):
        digit = selector >> 4 * k & 15
        octet = octets[digit & 7]
        result |= ((255 if octet > 127 else 0) if digit & 8 else octet) << 8 * k
    return result


ALL = ["u16", "s16", "u32", "s32", "u64", "s64"]
INTEGER = [
    *((f"add.{k} {{d}}, {{a}}, {{b}};", k, (k, k), lambda a, b: a + b) for k in ALL),
    *((f"sub.{k} {{d}}, {{a}}, {{b}};", k, (k, k), lambda a, b: a - b) for k in ALL),
    *((f"mul.lo.{k} {{d}}, {{a}}, {{b}};", k, (k, k), lambda a, b: a * b) for k in ALL),
    *((f"mul.hi.{k} {{d}}, {{a}}, {{b}};", k, (k, k), lambda a, b, n=int(k[1:]): a * b >> n) for k in ALL),
    *((f"mul.wide.{k} {{d}}, {{a}}, {{b}};", k[0] + str(2 * int(k[1:])), (k, k), lambda a, b: a * b) for k in ALL[:4]),
    *((f"mad.lo.{k} {{d}}, {{a}}, {{b}}, {{c}};", k, (k, k, k), lambda a, b, c: a * b + c) for k in ALL),
    *(
        (f"mad.hi.{k} {{d}}, {{a}}, {{b}}, {{c}};", k, (k, k, k), lambda a, b, c, n=int(k[1:]): (a * b >> n) + c)
        for k in ALL
    ),
    *(
        (f"mad.wide.{k} {{d}}, {{a}}, {{b}}, {{c}};", w, (k, k, w), lambda a, b, c: a * b + c)
        for k, w in (("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64"))
    ),
    *((f"min.{k} {{d}}, {{a}}, {{b}};", k, (k, k), min) for k in ALL),
    *((f"max.{k} {{d}}, {{a}}, {{b}};", k, (k, k), max) for k in ALL),
    *((f"abs.{k} {{d}}, {{a}};", k, (k,), abs) for k in ALL[1::2]),
    *((f"neg.{k} {{d}}, {{a}};", k, (k,), lambda a: -a) for k in ALL[1::2]),
    *(
        (f"{op}.b{k[1:]} {{d}}, {{a}}, {{b}};", k, (k, k), f)
        for k in ALL[::2]
        for op, f in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__))
    ),
    *((f"not.b{k[1:]} {{d}}, {{a}};", k, (k,), int.__invert__) for k in ALL[::2]),
    *((f"shl.b{k[1:]} {{d}}, {{a}}, {{b}};", k, (k, "u32"), lambda a, b: a << min(b, 64)) for k in ALL[::2]),
    *((f"shr.{k} {{d}}, {{a}}, {{b}};", k, (k, "u32"), lambda a, b: a >> min(b, 64)) for k in ALL),
    *(
        (f"shf.{way}.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};", "u32", ("u32",) * 3, f)
        for mode, n in (("wrap", lambda c: c & 31), ("clamp", lambda c: min(c, 32)))
        for way, f in (
            ("l", lambda a, b, c, n=n: ((b << 32 | a) << n(c)) >> 32),
            ("r", lambda a, b, c, n=n: (b << 32 | a) >> n(c)),
        )
    ),
    *(
        (f"bfe.{k} {{d}}, {{a}}, {{b}}, {{c}};", k, (k, "u32", "u32"), lambda a, b, c, k=k: extracted(a, b, c, k))
        for k in ALL[2:]
    ),
    *(
        (
            f"bfi.b{k[1:]} {{d}}, {{a}}, 1000003, {{b}}, {{c}};",
            k,
            (k, "u32", "u32"),
            lambda a, b, c, n=int(k[1:]): inserted(a, 1000003, b, c, n),
        )
        for k in ALL[2::2]
    ),
    ("lop3.b32 {d}, {a}, {b}, {c}, 0x6A;", "u32", ("u32",) * 3, lambda a, b, c: (a & b) ^ c),
    ("prmt.b32 {d}, {a}, {b}, 0xC052;", "u32", ("u32",) * 2, lambda a, b: permuted(a, b, 0xC052)),
    ("prmt.b32 {d}, {a}, {b}, {c};", "u32", ("u32",) * 3, permuted),
    *((f"popc.b{k[1:]} {{d}}, {{a}};", "u32", (k,), lambda a, k=k: bits_of(a, k).count("1")) for k in ("u32", "u64")),
    *(
        (f"clz.b{k[1:]} {{d}}, {{a}};", "u32", (k,), lambda a, k=k: (bits_of(a, k) + "1").index("1"))
        for k in ("u32", "u64")
    ),
    *((f"brev.b{k[1:]} {{d}}, {{a}};", k, (k,), lambda a, k=k: int(bits_of(a, k)[::-1], 2)) for k in ("u32", "u64")),
    *((f"cvt.{to}.{of} {{d}}, {{a}};", to, (of,), lambda a: a) for to in ALL for of in ALL),
    *(
        (
            f"cvt.sat.{to}.{of} {{d}}, {{a}};",
            to,
            (of,),
            lambda a, to=to: saturated(a, to),
        )
        for to in ALL
        for of in ALL
    ),
    ("mov.b64 {d}, {{{a}, {b}}};", "u64", ("u32", "u32"), lambda a, b: b << 32 | a),
    ("mov.b64 {{%r40, {d}}}, {a};", "u32", ("u64",), lambda a: a >> 32),
    ("mov.b64 {{{d}, _}}, {a};", "u32", ("u64",), lambda a: a),
    ("mov.b32 {{%h40, %h41}}, {a}; mov.b32 {d}, {{%h41, %h40}};", "u32", ("u32",), lambda a: a >> 16 | a << 16),
    ("setp.lt.s32 %p1, {a}, {b}; selp.b32 {d}, {a}, {b}, %p1;", "s32", ("s32", "s32"), min),
    ("setp.hi.u32 %p1, {a}, {b}; selp.b32 {d}, {a}, {b}, %p1;", "u32", ("u32", "u32"), max),
    # An operand may be longer than its type, and a result too.
    ("cvt.u32.u64 %r40, {a}; cvt.s32.s8 {d}, %r40;", "s32", ("u64",), lambda a: wrapped(a, "s8")),
    ("cvt.s8.s32 %r40, {a}; mov.b32 {d}, %r40;", "s32", ("s32",), lambda a: wrapped(a, "s8")),
    ("cvt.u8.u32 %r40, {a}; mov.b32 {d}, %r40;", "u32", ("u32",), lambda a: a & 255),
]


@pytest.mark.parametrize(("text", "result", "kinds", "expected"), INTEGER, ids=[case[0] for case in INTEGER])
def test_integer_instructions(text, result, kinds, expected):
    choices = [integers(kind) for kind in kinds]
    rows = list(itertools.product(*choices))
    if len(rows) > 1000:
        rows = [rows[k] for k in np.random.default_rng(0).choice(len(rows), 1000, replace=False)]
    columns = list(zip(*rows, strict=True))
    found = executed(text, result, *((kind, np.array(x, TYPES[kind])) for kind, x in zip(kinds, columns, strict=True)))
    assert found.tolist() == [wrapped(expected(*row), result) for row in rows]


@pytest.mark.parametrize("kind", ALL)
def test_division_of_integers_rounds_towards_zero(kind):
    rows = [(a, b) for a in integers(kind) for b in integers(kind) if b]
    a, b = (np.array(x, TYPES[kind]) for x in zip(*rows, strict=True))
    quotients = executed(f"div.{kind} {{d}}, {{a}}, {{b}};", kind, (kind, a), (kind, b))
    remainders = executed(f"rem.{kind} {{d}}, {{a}}, {{b}};", kind, (kind, a), (kind, b))
    assert quotients.tolist() == [wrapped(truncated(x, y), kind) for x, y in rows]
    assert remainders.tolist() == [x - y * truncated(x, y) for x, y in rows]


def nearest(x: Fraction, kind: str) -> float:
    """A rational number rounded once, to the nearest float, of two equally near ones to the even one."""
    double = x.numerator / x.denominator if abs(x) < Fraction(2) ** 1100 else float("inf") * (1 if x > 0 else -1)
    if kind == "f64":
        return double
    middle = np.float32(double)
    if np.isinf(middle):  # the exact number decides whether it is above the last one that rounds down
        limit = Fraction(2) ** 128 - Fraction(2) ** 103
        return float(middle) if abs(x) >= limit else float(np.copysign(np.finfo(np.float32).max, middle))
    candidates = [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    finite = [c for c in candidates if np.isfinite(c)]
    error = lambda c: (abs(Fraction(float(c)) - x), int(np.float32(c).view(np.uint32)) & 1)  # noqa: E731
    return float(min(finite, key=error))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fused_multiply_add_rounds_once(kind):
    """Sums that lie a little beside the middle between two floats, which rounding twice gets wrong, and numbers of all sizes."""
    dtype = TYPES[kind].type
    digits = np.finfo(dtype).nmant
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(300):
        c = dtype(1) + dtype(rng.integers(1 << digits)) * dtype(2.0**-digits)
        small = dtype(int(rng.integers(1, 8))) * dtype(2.0**-digits)
        a, b = dtype(2.0 ** -(digits + 1)) * (1 + small), (1 - small) * dtype(rng.choice([-1.0, 1.0]))
        rows.append((a, b, c))
    sizes = (np.finfo(dtype).minexp, np.finfo(dtype).maxexp)
    for _ in range(300):
        exponents = rng.integers(sizes[0] // 2 - digits, sizes[1] // 2, 2)
        a, b = (dtype(m) * dtype(2.0) ** int(e) for m, e in zip(rng.uniform(1, 2, 2), exponents, strict=True))
        near = int(exponents.sum()) + int(rng.integers(-2 * digits, 2 * digits))
        c = np.ldexp(dtype(-rng.uniform(1, 2)), near).astype(dtype) if rng.integers(2) else dtype(-a * b)
        if np.isfinite(c):
            rows.append((a, b, c))
    a, b, c = (np.array(x, dtype) for x in zip(*rows, strict=True))
    found = executed(f"fma.rn.{kind} {{d}}, {{a}}, {{b}}, {{c}};", kind, (kind, a), (kind, b), (kind, c))
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in rows]
    expected = np.array([nearest(x, kind) for x in exact], dtype)
    assert np.array_equal(found, expected)
    longer = np.float64 if kind == "f32" else np.longdouble
    twice = (a.astype(longer) * b + c).astype(dtype)
    assert (twice != expected).sum() > 50  # the sums are hard


def pairs(kind: str):
    dtype = TYPES[kind]
    return [np.array(x, dtype) for x in zip(*itertools.product(FLOATS, FLOATS), strict=True)]


def flushed(x):
    return np.where(np.abs(x) < 2.0**-126, np.copysign(0, x), x).astype(x.dtype)


FLOATING = {
    "add.rn": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div.rn": lambda a, b: a / b,
    "div.full": lambda a, b: a / b,
    "min": lambda a, b: a if b != b or (a, np.copysign(1, a)) < (b, np.copysign(1, b)) else b,
    "max": lambda a, b: a if b != b or (a, np.copysign(1, a)) > (b, np.copysign(1, b)) else b,
    "min.NaN": lambda a, b: a if a != a or (a, np.copysign(1, a)) < (b, np.copysign(1, b)) else b,
    "max.NaN": lambda a, b: a if a != a or (a, np.copysign(1, a)) > (b, np.copysign(1, b)) else b,
    "fma.rn": lambda a, b: a * b,
    "abs": lambda a, b: abs(a),
    "neg": lambda a, b: -a,
    "sqrt.rn": lambda a, b: np.sqrt(a),
    "sqrt.approx": lambda a, b: np.sqrt(a),
    "rcp.rn": lambda a, b: 1 / a,
    "rcp.approx": lambda a, b: 1 / a,
    "rsqrt.approx": lambda a, b: 1 / np.sqrt(a),
}


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", FLOATING)
def test_single_precision(name, ftz):
    """These are exact, or rounded once, if they are computed in double precision first. `.ftz` flushes operands and results."""
    a, b = pairs("f32")
    operands = {"fma": "{a}, {b}, 0f80000000"}.get(name[:3], "{a}, {b}")
    operands = "{a}" if name.split(".")[0] in ("abs", "neg", "sqrt", "rcp", "rsqrt") else operands
    found = executed(f"{name}{ftz}.f32 {{d}}, {operands};", "f32", ("f32", a), ("f32", b))
    x, y = (flushed(a), flushed(b)) if ftz else (a, b)
    exact = [FLOATING[name](np.float64(s), np.float64(t)) for s, t in zip(x, y, strict=True)]
    expected = np.array(exact, np.float32)
    if name == "fma.rn":  # -0 is added
        expected = np.where((expected == 0) & (np.copysign(1, expected) > 0), np.float32(0), expected)
    assert_same_floats(found, flushed(expected) if ftz else expected)
    if ftz:
        assert not np.any((np.abs(found) < 2.0**-126) & (found != 0))


def test_what_ends_flushed_needs_no_flushing_but_what_does_not_does():
    """The same register gets a flushed result in one place and a subnormal number in another."""
    text = "setp.eq.f32 %p1, {a}, {a}; add.ftz.f32 %r40, {a}, 0f00000000; @%p1 mov.b32 %r40, {a};"
    product = "mul.ftz.f32 {d}, %r40, 0f4B000000;"
    for last in ("", "add.ftz.f32 %r40, {a}, 0f00000000;"):
        found = executed(text + product + last, "f32", ("f32", np.array([SMALLEST, 2.0**-127, 2.0**-126], np.float32)))
        np.testing.assert_array_equal(found, [0, 0, 2.0**-103])


def test_approximate_division_has_a_shorter_range_than_the_full_one():
    a = np.array([2.0**127, np.inf, -1, 1, 2.0**127], np.float32)
    b = np.array([1.5 * 2.0**126, 2.0**127, 2.0**127, np.inf, 2.0**126], np.float32)
    found = executed("div.approx.f32 {d}, {a}, {b};", "f32", ("f32", a), ("f32", b))
    assert_same_floats(found, np.array([0, np.nan, -0.0, 0, 2], np.float32))


def test_double_precision():
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 200)) * 10.0 ** rng.integers(-8, 8, (2, 200))
    for name, f in (
        ("add.rn", Fraction.__add__),
        ("sub", Fraction.__sub__),
        ("mul", Fraction.__mul__),
        ("div.rn", Fraction.__truediv__),
    ):
        found = executed(f"{name}.f64 {{d}}, {{a}}, {{b}};", "f64", ("f64", a), ("f64", b))
        assert found.tolist() == [nearest(f(Fraction(x), Fraction(y)), "f64") for x, y in zip(a, b, strict=True)]
    root = executed("sqrt.rn.f64 {d}, {a};", "f64", ("f64", np.abs(a)))
    for r, x in zip(root, np.abs(a), strict=True):  # no neighbor's square is nearer: the root is between the middles
        low, high = ((Fraction(r) + Fraction(np.nextafter(r, end))) / 2 for end in (0, np.inf))
        assert low**2 <= Fraction(x) <= high**2
    signs = executed("copysign.f64 {d}, {b}, {a};", "f64", ("f64", a), ("f64", b))
    assert_same_floats(signs, np.copysign(a, b))


COMPARED = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a < b or a > b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "num": lambda a, b: a == a and b == b,
}
COMPARED |= {
    opposite: lambda a, b, f=COMPARED[name]: not f(a, b)
    for opposite, name in (
        ("neu", "eq"),
        ("equ", "ne"),
        ("geu", "lt"),
        ("gtu", "le"),
        ("leu", "gt"),
        ("ltu", "ge"),
        ("nan", "num"),
    )
}


@pytest.mark.parametrize("word", COMPARED)
def test_comparisons_and_what_they_are_combined_with(word):
    a, b = pairs("f32")
    holds = np.array([COMPARED[word](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    c = np.arange(a.size) % 2 == 1
    number = "selp.b32 {d}, 1, 0, %p1; selp.b32 %r41, 2, 0, %p2; add.u32 {d}, {d}, %r41;"
    for combine, f in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        text = f"setp.ne.u32 %p3, {{c}}, 0; setp.{word}.{combine}.f32 %p1|%p2, {{a}}, {{b}}, !%p3; {number}"
        found = executed(text, "u32", ("f32", a), ("f32", b), ("u32", c.astype(np.uint32)))
        np.testing.assert_array_equal(found, f(holds, ~c) + 2 * f(~holds, ~c))
    found = executed(
        f"setp.{word}.ftz.f32 %p1, {{a}}, {{b}}; selp.b32 {{d}}, 1, 0, %p1;", "u32", ("f32", a), ("f32", b)
    )
    rows = zip(flushed(a).tolist(), flushed(b).tolist(), strict=True)
    np.testing.assert_array_equal(found, [COMPARED[word](x, y) for x, y in rows])


def test_predicates_are_combined():
    a, b = (np.array(x, np.uint32) for x in ((0, 0, 1, 1), (0, 1, 0, 1)))
    text = "setp.ne.u32 %p1, {a}, 0; setp.ne.u32 %p2, {b}, 0; not.pred %p4, %p2; "
    for name, f in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        found = executed(f"{text} {name}.pred %p3, %p1, %p4; selp.u32 {{d}}, 1, 0, %p3;", "u32", ("u32", a), ("u32", b))
        np.testing.assert_array_equal(found, f(a == 1, b == 0))


@pytest.mark.parametrize(("source", "target"), [(s, t) for s in ("f32", "f64") for t in ("s8", "u8", *ALL)])
def test_conversions_to_integers_saturate(source, target):
    x = np.array([*FLOATS, 1e300, -1e300, 65535.5, 2.0**64, 2147483647.0, 1.5, -2.5, 127.5], TYPES[source])
    limits = np.iinfo(TYPES[target])
    to_integer = {
        "rni": lambda t: round(t),
        "rzi": int,
        "rmi": lambda t: int(np.floor(t)),
        "rpi": lambda t: int(np.ceil(t)),
    }
    missing = 1 << (limits.bits - 1) if "64" in source + target else 0
    for rounding, f in to_integer.items():
        expected = []
        for t in x.tolist():
            if t != t:
                expected.append(wrapped(missing, target))
            else:
                whole = f(t) if np.isfinite(t) else t
                expected.append(limits.max if whole > limits.max else limits.min if whole < limits.min else whole)
        found = executed(f"cvt.{rounding}.{target}.{source} {{d}}, {{a}};", target, (source, x))
        assert found.tolist() == expected, rounding


@pytest.mark.parametrize(
    ("source", "target"), [(s, t) for s in ("s32", "u32", "s64", "u64", "f64") for t in ("f32", "f64") if s != t]
)
def test_conversions_to_floats_round_as_they_are_told(source, target):
    rng = np.random.default_rng(3)
    if source == "f64":
        x = rng.normal(size=300) * 2.0 ** rng.integers(-150, 128, 300)
        x = np.append(x, [np.finfo(np.float32).max * (1 + 1e-9), -0.0, 1e300, -1e300])
    else:
        info = np.iinfo(TYPES[source])
        drawn = [
            int(n) >> int(k)
            for n, k in zip(rng.integers(info.min, info.max, 300, TYPES[source]), rng.integers(0, 30, 300), strict=True)
        ]
        middles = [
            n
            for k in (25, 26, 54, 63)
            for d in (-1, 0, 1)
            if (n := (1 << k) + (1 << (k - 24 - 29 * (k > 53))) + d) <= info.max
        ]
        x = np.array([*drawn, *middles, *integers(source)], TYPES[source])
    for rounding in ("rn", "rz", "rm", "rp"):
        found = executed(f"cvt.{rounding}.{target}.{source} {{d}}, {{a}};", target, (source, x))
        for y, n in zip(found, x.tolist(), strict=True):
            exact = Fraction(n)
            near = TYPES[target].type(nearest(exact, target))
            down = rounding == "rm" or (rounding == "rz" and n > 0)
            if rounding != "rn" and (near == np.inf or (np.isfinite(near) and Fraction(float(near)) > exact)) and down:
                near = np.nextafter(near, TYPES[target].type(-np.inf))
            elif (
                rounding != "rn"
                and (near == -np.inf or (np.isfinite(near) and Fraction(float(near)) < exact))
                and not down
            ):
                near = np.nextafter(near, TYPES[target].type(np.inf))
            assert y == near, (rounding, n)


def test_conversions_between_floats():
    x = np.array([*FLOATS, 0.3, 1.7, -0.2, 3.5, 4.5], np.float32)
    for rounding, f in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        assert_same_floats(executed(f"cvt.{rounding}.f32.f32 {{d}}, {{a}};", "f32", ("f32", x)), f(x))
    assert_same_floats(executed("cvt.f64.f32 {d}, {a};", "f64", ("f32", x)), x.astype(np.float64))
    assert_same_floats(executed("cvt.ftz.f64.f32 {d}, {a};", "f64", ("f32", x)), flushed(x).astype(np.float64))
    unit = np.where(np.isnan(x), 0, np.clip(x, 0, 1)) + np.float32(0)
    assert_same_floats(executed("cvt.sat.f32.f32 {d}, {a};", "f32", ("f32", x)), unit)
    doubles = np.array([2.0**-130, -(2.0**-130), 2.0**-126, 1.0], np.float64)
    found = executed("cvt.rn.ftz.f32.f64 {d}, {a};", "f32", ("f64", doubles))
    assert_same_floats(found, np.array([0, -0.0, 2.0**-126, 1], np.float32))


def test_classes_of_floats():
    x = np.array(FLOATS, np.float32)
    small = (np.abs(x) < 2.0**-126) & (x != 0)
    classes = {"finite": np.isfinite(x), "infinite": np.isinf(x), "number": ~np.isnan(x), "notanumber": np.isnan(x)}
    classes |= {"subnormal": small, "normal": np.isfinite(x) & ~small & (x != 0)}
    for name, expected in classes.items():
        found = executed(f"testp.{name}.f32 %p1, {{a}}; selp.b32 {{d}}, 1, 0, %p1;", "u32", ("f32", x))
        np.testing.assert_array_equal(found, expected)
