"""Transcendental functions of vectors in LLVM IR. The same Python code generates them for float32, float64 and any number of lanes.

The operations in each lane are the same for every width, so the results are identical to the last bit. No optimization passes are
expected to follow: every operation written here is executed, in this order, with fused multiplications where `fma` is written.
Infinities, NaN and the sign of zero follow C99. There is only one branch: arguments of sin, cos and tan that are too large for the
reduction in this module are passed to the double precision functions of libm or, without libm, to a reduction with sufficiently
many bits of 2/pi (`large_angles`). Coefficients are in `polynomials`.

Subnormal numbers follow C99 if the processor supports them. XLA sets the processor to treat subnormal operands and results as zeros
of the same sign. Then atan2, log and pow of a subnormal number are those of zero, and all other operations of the lane compiler
treat it as zero, too.
"""

import math
import struct
from collections.abc import Callable, Iterable, Sequence

from jaxdyn.lanes import large_angles
from jaxdyn.lanes import polynomials as p
from jaxdyn.lanes.vectors import Function, Operand, Value

# Number of operands of each function. sincos returns both results, {T, T}.
FUNCTIONS: dict[str, int] = {
    "sin": 1,
    "cos": 1,
    "sincos": 1,
    "tan": 1,
    "asin": 1,
    "acos": 1,
    "atan": 1,
    "atan2": 2,
    "exp": 1,
    "expm1": 1,
    "log": 1,
    "log1p": 1,
    "tanh": 1,
    "pow": 2,
}
# Largest error over the whole range, in units in the last place of the result; slightly above the largest error found. For sin, cos
# and tan by libm, its error applies: half a unit, but 8 in glibc 2.36 for cos of the float64 nearest to a multiple of pi/2.
ULP: dict[tuple[str, str], float] = {
    (name, kind): bound
    for bound, names in {
        0.9: ("log", "log1p"),
        1.1: ("exp", "pow"),
        1.25: ("acos", "tan"),
        1.5: ("expm1", "tanh"),
        1.6: ("sin", "cos", "sincos", "atan"),
        1.75: ("asin", "atan2"),
    }.items()
    for name in names
    for kind in ("f32", "f64")
}

KINDS = ("f32", "f64")
WIDTHS = (1, 2, 4, 8, 16)

# Larger arguments of sin, cos and tan are passed to libm, or to `large_angles`.
_LARGEST_ANGLE = {"f32": 2.0**17, "f64": 2.0**30}


def symbol(name: str, kind: str, width: int) -> str:
    """Name of a function in the module: symbol("sin", "f32", 16) takes and returns <16 x float>.

    Args:
        name: Name of the function, a key of `FUNCTIONS`.
        kind: Scalar type, "f32" or "f64".
        width: Number of lanes.
    """
    return f"lanes.{name}.{kind}.v{width}"


def definitions(needed: Iterable[tuple[str, str, int]]) -> str:
    """Definitions of the functions (name, kind, width) and of their helpers, with declarations of the functions of libm."""
    written = [_written(*key) for key in sorted(set(needed))]
    libm = sorted({name for f, _ in written for name in f.libm})
    helpers = {name: text for f, _ in written for name, text in f.helpers.items()}
    declares = [f"declare double @{name}(double)" for name in libm]
    return "\n".join([*declares, *helpers.values(), *(text for _, text in written)]) + "\n"


def definitions_without_libm(needed: Iterable[tuple[str, str, int]]) -> str:
    """Definitions of the functions; for large angles they branch to `large_angles.definitions`, which is not included."""
    return "\n".join(_written(*key, has_libm=False)[1] for key in sorted(set(needed)))


def _written(name: str, kind: str, width: int, has_libm: bool = True) -> tuple[Function, str]:
    f = Function(symbol(name, kind, width), kind, width, FUNCTIONS[name], has_libm)
    results = _BODIES[name](f, *f.x)
    return f, f.returning(results if isinstance(results, list) else [results])


def _rounded(f: Function, x: Value, factor: float) -> tuple[Value, Value]:
    """Integer nearest to a product, as a float and in the low bits; adding 1.5 2^mantissa removes the fraction."""
    magic = 1.5 * 2.0**f.mantissa
    shifted = f.fma(x, factor, magic)
    return shifted - magic, shifted.bits


# Angles


def _first_reduction(f: Function, size: Value) -> tuple[Value, Value, Value]:
    """First step of the reduction by Cody and Waite: size - q c with the first of three parts c of pi/2, which is exact.

    Also returns q as a float and in low bits.
    """
    n, q = _rounded(f, size, 2 / math.pi)
    return f.fma(n, -p.HALF_PI[f.kind][0], size), n, q


def _sine_cosine(f: Function, x: Value, names: Sequence[str]) -> list[Value]:
    """Sine and cosine from the polynomials on |r| <= pi/4, which are exchanged and negated according to the quadrant."""
    size = f.abs(x)
    _, second, third = p.HALF_PI[f.kind]
    rest, n, q = _first_reduction(f, size)
    r = f.fma(n, -third, f.fma(n, -second, rest))
    if not f.has_libm:
        r, _, q = large_angles.replaced(f, size, _LARGEST_ANGLE[f.kind], (r, f.value(0.0), q))
    z = r * r
    sine = f.fma(r * z, f.polynomial(z, p.SINE[f.kind]), r)
    cosine = f.fma(z, f.polynomial(z, p.COSINE[f.kind]), 1.0)
    is_odd = (q & 1).equals(1)
    top = 1 << f.bits - 1
    near: list[Value] = []
    for name in names:
        if name == "sin":
            magnitude, sign = f.select(is_odd, cosine, sine), (q << f.bits - 2) ^ x.bits
        else:
            magnitude, sign = f.select(is_odd, sine, cosine), q + 1 << f.bits - 2
        near.append((magnitude.bits ^ (sign & top)).number)
    return f.replaced_by_libm(size, _LARGEST_ANGLE[f.kind], names, near) if f.has_libm else near


def _tan(f: Function, x: Value) -> list[Value]:
    """Tangent from the polynomial t + rest on |r| <= pi/4.

    In odd quadrants -1 / (t + rest), with one correction of the quotient.
    """
    size = f.abs(x)
    _, second, third = p.HALF_PI[f.kind]
    rest, n, q = _first_reduction(f, size)
    product = n * second
    r = rest - product
    back = r - rest
    lost = (rest - (r - back)) - (product + back)
    low = f.fma(n, -third, lost - f.fma(n, second, -product))
    if not f.has_libm:
        r, low, q = large_angles.replaced(f, size, _LARGEST_ANGLE[f.kind], (r, low, q))
    z = r * r
    correction = f.fma(r * z, f.polynomial(z, p.TANGENT[f.kind]), low)
    t = r + correction
    correction = f.fma(low * t, t, correction)
    t = r + correction
    rest = (r - t) + correction
    inverse = -1.0 / t
    inverse = f.fma(inverse, f.fma(inverse, t, 1.0) + inverse * rest, inverse)
    near = f.select((q & 1).equals(1), inverse, t)
    near = (near.bits ^ (x.bits & 1 << f.bits - 1)).number
    return f.replaced_by_libm(size, _LARGEST_ANGLE[f.kind], ["tan"], [near]) if f.has_libm else [near]


def _asin(f: Function, x: Value) -> Value:
    """Arc sine; for |x| > 1/2 it is computed as pi/2 - 2 asin sqrt((1 - |x|) / 2)."""
    size = f.abs(x)
    right, low = p.HALF_PI[f.kind][:2]
    beyond = size > 0.5
    s, part = _asin_part(f, size, beyond, f.select(beyond, -low / 2, 0.0))
    small = s + part
    return f.copysign(f.select(beyond, f.fma(small, -2.0, right), small), x)


def _acos(f: Function, x: Value) -> Value:
    """Arc cosine as pi/2 - asin x; for |x| > 1/2 it is 2 asin sqrt((1 - |x|) / 2), or pi minus this value."""
    size = f.abs(x)
    right, low = p.HALF_PI[f.kind][:2]
    beyond = size > 0.5
    positive = x > 0.5
    s, part = _asin_part(f, size, beyond, 0.0)
    s, part = (f.select(beyond, a, f.copysign(a, x)) for a in (s, part))
    small = s + (part + f.select(positive, 0.0, -low))
    base = f.select(positive, 0.0, f.select(beyond, 2 * right, right))
    return f.fma(small, f.select(positive, 2.0, f.select(beyond, -2.0, -1.0)), base)


def _asin_part(f: Function, size: Value, beyond: Value, low: Operand) -> tuple[Value, Value]:
    z = f.select(beyond, f.fma(size, -0.5, 0.5), size * size)
    s = f.select(beyond, f.intrinsic("sqrt", z), size)
    return s, f.fma(s * z, f.polynomial(z, p.ASIN[f.kind]), low)


def _atan(f: Function, x: Value) -> Value:
    """Arc tangent; for x > 1 it is computed as pi/2 - atan 1/x."""
    size = f.abs(x)
    beyond = size > 1.0
    right, low = p.HALF_PI[f.kind][:2]
    t = f.select(beyond, 1.0 / size, size)
    z = t * t
    part = f.fma(t * z, f.polynomial(z, p.ATAN[f.kind]), f.select(beyond, -low, 0.0))
    angle = t + part
    return f.copysign(f.select(beyond, right - angle, angle), x)


def _atan2(f: Function, y: Value, x: Value) -> Value:
    """Angle of a vector: the arc tangent of its smaller over its larger component, reflected into the octant of the vector."""
    across, along = f.abs(y), f.abs(x)
    right, low = p.HALF_PI[f.kind][:2]
    steep = across > along
    short, long = f.select(steep, along, across), f.select(steep, across, along)
    t = f.select(long.equals(0.0), short, f.select(short.equals(long), 1.0, short / long))
    z = t * t
    part = t * z * f.polynomial(z, p.ATAN[f.kind])
    backward = x.bits < 0
    turns = f.select(steep, 1.0, f.select(backward, 2.0, 0.0))
    sign = f.select(steep ^ backward, -1.0, 1.0)
    angle = f.fma(sign, t, turns * right) + f.fma(sign, part, turns * low)
    return f.copysign(angle, y)


# Exponentials


def _reduced_exp(f: Function, x: Value) -> tuple[Value, Value, Value]:
    """First step of the reduction of an exponent: x - n c with the first of two parts c of log 2, which is exact.

    Also returns n as a float and in low bits.
    """
    n, bits = _rounded(f, x, 1 / math.log(2))
    return f.fma(n, -p.LOG_2[f.kind][0], x), n, bits


def _power(f: Function, bits: Value, half: bool = False) -> Value:
    """The power 2^n, or 2^(n-1), for an integer n in the low bits of a float."""
    return ((bits << f.mantissa) + (f.bias - half << f.mantissa)).number


def _exp(f: Function, x: Value, low: Value | None = None) -> Value:
    """e^(x + low) = 2^n e^r, |r| <= log 2 / 2; 2^n in two factors, so that a result overflows or loses bits at most once."""
    least, most = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}[f.kind]
    rest, n, bits = _reduced_exp(f, f.at_least(f.at_most(x, most), least))
    second = p.LOG_2[f.kind][1]
    r = f.fma(n, -second, rest) if low is None else rest + f.fma(n, -second, low)
    part = f.fma(r * r, f.polynomial(r, p.EXP[f.kind]), r)
    _, half = _rounded(f, n, 0.5)
    factor = _power(f, half)
    return f.fma(part, factor, factor) * _power(f, bits - half)


def _expm1(f: Function, x: Value) -> Value:
    """2^n (e^r - 1) + (2^n - 1), all halved, so that 2^n does not overflow before the result does."""
    least, most = {"f32": (-20.0, 89.0), "f64": (-40.0, 710.0)}[f.kind]
    rest, n, bits = _reduced_exp(f, f.at_least(f.at_most(x, most), least))
    second = p.LOG_2[f.kind][1]
    r = f.fma(n, -second, rest)
    low = f.fma(n, -second, rest - r)
    correction = f.fma(r * r, f.polynomial(r, p.EXP[f.kind]), low)
    factor = _power(f, bits, half=True)
    result = f.fma(factor, correction, f.fma(factor, r, factor - 0.5)) * 2.0
    return f.select(f.abs(x) < 2.0 ** -(f.mantissa + 2), x, result)


def _tanh(f: Function, x: Value) -> Value:
    """Hyperbolic tangent: a polynomial up to 0.55, and 1 - 2 / (e^2x + 1) above."""
    size = f.abs(x)
    z = size * size
    small = f.fma(size * z, f.polynomial(z, p.TANH[f.kind]), size)
    bounded = f.at_most(size, {"f32": 10.0, "f64": 20.0}[f.kind])
    rest, n, bits = _reduced_exp(f, bounded + bounded)
    r = f.fma(n, -p.LOG_2[f.kind][1], rest)
    part = f.fma(r * r, f.polynomial(r, p.EXP[f.kind]), r)
    factor = _power(f, bits)
    return f.copysign(f.select(size < 0.55, small, 1.0 - 2.0 / f.fma(part, factor, factor + 1.0)), x)


# Logarithms


def _exponent(f: Function, x: Value) -> tuple[Value, Value]:
    """Decompose a positive normal x = 2^k m with sqrt(1/2) <= m < sqrt(2)."""
    root = int.from_bytes(struct.pack(">f" if f.kind == "f32" else ">d", 0.5**0.5))
    shifted = x.bits + ((f.bias << f.mantissa) - root)
    m = ((shifted & (1 << f.mantissa) - 1) + root).number
    # Below the bits of 2^mantissa, an integer is added to it.
    k = ((shifted >> f.mantissa) | (f.bias + f.mantissa << f.mantissa)).number - (2.0**f.mantissa + f.bias)
    return k, m


def _normal(f: Function, x: Value) -> tuple[Value, Value]:
    """Scale subnormal numbers up to normal ones; returns them and the exponent of the scale."""
    is_subnormal = x < 2.0 ** (1 - f.bias)
    power = float(f.mantissa + 1)
    return f.select(is_subnormal, x * 2.0**power, x), f.select(is_subnormal, power, 0.0)


def _log_limits(f: Function, result: Value, x: Value) -> Value:
    """The logarithm for special arguments: zero, negative values, infinity and NaN."""
    result = f.select(x > 0.0, result, f.select(x.equals(0.0), -math.inf, math.nan))
    return f.select(x < math.inf, result, x)


def _log_sum(f: Function, k: Value, part: Value, low: Value) -> Value:
    """k log 2 + log(1 + part) + low, in the order of fdlibm's e_log.c (Sun Microsystems, 1993)."""
    first, second = p.LOG_2[f.kind]
    s = part / (part + 2.0)
    z = s * s
    half = part * part * 0.5
    r = z * f.polynomial(z, (p.TWO_THIRDS[f.kind][0], *p.LOG[f.kind]))
    return f.fma(k, first, part - (half - f.fma(s, half + r, f.fma(k, second, low))))


def _log(f: Function, x: Value) -> Value:
    scaled, power = _normal(f, x)
    k, m = _exponent(f, scaled)
    return _log_limits(f, _log_sum(f, k - power, m - 1.0, f.value(0.0)), x)


def _log1p(f: Function, x: Value) -> Value:
    """log(u) with u = 1 + x rounded, plus the rounding error divided by u."""
    u = x + 1.0
    k, m = _exponent(f, u)
    lost = f.select(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    near = k.equals(0.0)
    result = _log_sum(f, k, f.select(near, x, m - 1.0), f.select(near, 0.0, lost / u))
    return f.select(f.abs(x) < 2.0 ** -(f.mantissa + 2), x, _log_limits(f, result, u))


def _log_pair(f: Function, x: Value) -> tuple[Value, Value]:
    """Logarithm as a sum of two floats with 1.5 times the precision: quotient, leading terms and sums keep rounding errors."""
    scaled, power = _normal(f, x)
    k, m = _exponent(f, scaled)
    k = k - power
    part = m - 1.0
    whole = part + 2.0
    s = part / whole
    s_low = f.fma(-s, part - (whole - 2.0), f.fma(-s, whole, part)) / whole
    z = s * s
    z_low = f.fma(s + s, s_low, f.fma(s, s, -z))
    lead, lead_low = p.TWO_THIRDS[f.kind]
    tail = z * f.polynomial(z, p.LOG[f.kind])
    c = tail + lead
    c_low = (lead - c) + tail + lead_low
    v = z * c
    v_low = f.fma(z, c_low, f.fma(z_low, c, f.fma(z, c, -v)))
    w = s * v
    w_low = f.fma(s, v_low, f.fma(s_low, v, f.fma(s, v, -w)))
    first, second = p.LOG_2[f.kind]
    base = k * first
    sum1 = base + (s + s)
    sum2 = sum1 + w
    low = ((s + s) - (sum1 - base)) + (w - (sum2 - sum1)) + f.fma(k, second, s_low + s_low + w_low)
    high = sum2 + low
    return high, low - (high - sum2)


def _pow(f: Function, x: Value, y: Value) -> Value:
    """e^(y log |x|), with logarithm and product in two floats; then the sign and the special cases of C99, F.10.4.4."""
    size = f.abs(x)
    log, log_low = _log_pair(f, size)
    log = _log_limits(f, log, size)
    product = y * log
    low = f.fma(y, log_low, f.fma(y, log, -product))
    bound = {"f32": 150.0, "f64": 750.0}[f.kind]
    moderate = f.abs(product) < bound
    result = _exp(f, product, f.select(moderate, low, 0.0))
    half = y * 0.5
    is_whole = f.intrinsic("floor", y).equals(y)
    is_odd = is_whole & (f.intrinsic("floor", half) < half)
    negative = x.bits & 1 << f.bits - 1
    result = (result.bits | f.select(is_odd, negative, f.value(0, "int"))).number
    result = f.select((x < 0.0) & (x > -math.inf), f.select(is_whole, result, math.nan), result)
    is_one = x.equals(1.0) | y.equals(0.0) | (x.equals(-1.0) & f.abs(y).equals(math.inf))
    return f.select(is_one, 1.0, result)


_BODIES: dict[str, Callable[..., Value | list[Value]]] = {
    "sin": lambda f, x: _sine_cosine(f, x, ["sin"]),
    "cos": lambda f, x: _sine_cosine(f, x, ["cos"]),
    "sincos": lambda f, x: _sine_cosine(f, x, ["sin", "cos"]),
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "atan2": _atan2,
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "tanh": _tanh,
    "pow": _pow,
}
