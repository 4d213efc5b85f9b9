"""Reduction of large float64 angles to the nearest quadrant, after Payne and Hanek (SIGNUM Newsletter 18, 1983).

An angle is m 2^e with an integer m below 2^53. Bits of 2/pi that contribute whole turns to m 2^e are omitted, and so are those that
are negligible: the 192 bits in between give the quadrant (2 bits) and the position within it (190 bits). At most the
first 61 of the 190 bits are zeros for a float64 angle, however near it is to a multiple of pi/2 (Muller, Elementary Functions,
2016, section 11.3).
"""

from jaxdyn.lanes import polynomials as p
from jaxdyn.lanes.vectors import Function, Value

_WORDS = 20


def _two_over_pi() -> list[int]:
    """One word of zeros, for angles below 2^64, and the first bits of 2/pi, highest first."""
    import mpmath  # slow to import, and not needed for stored code

    bits = 64 * (_WORDS - 1)
    with mpmath.workprec(bits + 64):
        whole = int(mpmath.floor(mpmath.ldexp(2 / mpmath.pi, bits)))  # pyright: ignore[reportArgumentType]
    return [0, *((whole >> bits - 64 * k) & (1 << 64) - 1 for k in range(1, _WORDS))]


def replaced(f: Function, size: Value, limit: float, near: tuple[Value, Value, Value]) -> list[Value]:
    """Remainder of an angle as two floats, and its quadrant: `near`, or computed by `definitions` beyond a limit; for one lane.

    Args:
        f: Function under construction.
        size: Absolute value of the angle.
        limit: Limit beyond which `definitions` is used.
        near: Remainder in two parts, and quadrant, which are valid up to the limit.
    """
    pair = f"{{{f.scalar}, {f.scalar}, i{f.bits}}}"

    def far() -> list[Value]:
        found = f.let(f"call {pair} @{_symbol(f.kind)}({f.scalar} {size.text})")
        return [f.emit(x.sort, f"extractvalue {pair} {found}, {k}") for k, x in enumerate(near)]

    return f.replaced((size > limit).text, near, far)


def definitions() -> str:
    """Functions of the absolute value of an angle for `replaced`; the function for float32 computes in float64."""
    f = Function(_symbol("f64"), "f64", 1, 1)
    table = f"@two.over.pi = internal constant [{_WORDS} x i64] [{', '.join(f'i64 {word}' for word in _two_over_pi())}]"
    narrow = f"""define internal {{float, float, i32}} @{_symbol("f32")}(float %size) noinline nounwind {{
 %wide = fpext float %size to double
 %found = call {{double, double, i64}} @{_symbol("f64")}(double %wide)
 %rest = extractvalue {{double, double, i64}} %found, 0
 %quarters = extractvalue {{double, double, i64}} %found, 2
 %r = fptrunc double %rest to float
 %back = fpext float %r to double
 %lost = fsub double %rest, %back
 %low = fptrunc double %lost to float
 %q = trunc i64 %quarters to i32
 %a = insertvalue {{float, float, i32}} poison, float %r, 0
 %b = insertvalue {{float, float, i32}} %a, float %low, 1
 %c = insertvalue {{float, float, i32}} %b, i32 %q, 2
 ret {{float, float, i32}} %c
}}"""
    return "\n".join([table, f.returning(_reduced(f, f.x[0])), narrow])


def _symbol(kind: str) -> str:
    return f"lanes.large_angle.{kind}"


def _reduced(f: Function, size: Value) -> list[Value]:
    """Remainder of an angle of at least 2^17 after `q` quarter turns, as a sum of two floats, and `q`."""
    exponent = size.bits >> f.mantissa
    m = (size.bits & (1 << f.mantissa) - 1) | (1 << f.mantissa)
    # m 2^e times bit i of 2/pi is a multiple of four quarter turns if i <= e - 2.
    position = exponent - (f.bias + f.mantissa + 2 - 64)
    word = f.emit("int", f"call i64 @llvm.umin.i64(i64 {(position >> 6).text}, i64 {_WORDS - 4})")
    words = []
    for k in range(4):
        pointer = f.let(f"getelementptr i64, ptr @two.over.pi, i64 {(word + k).text}")
        words.append(f.let(f"load i64, ptr {pointer}"))
    window, by = "0", (position & 63).text
    for k in range(3):
        aligned = f.let(f"call i64 @llvm.fshl.i64(i64 {words[k]}, i64 {words[k + 1]}, i64 {by})")
        wide = f.let(f"zext i64 {aligned} to i192")
        shifted = f.let(f"shl i192 {wide}, {128 - 64 * k}")
        window = f.let(f"or i192 {window}, {shifted}")
    whole = f.let(f"zext i64 {m.text} to i192")
    product = f.let(f"mul i192 {window}, {whole}")
    quarters = f.let(f"trunc i192 {f.let(f'lshr i192 {product}, 190')} to i64")
    rest = f.let(f"trunc i192 {f.let(f'lshr i192 {product}, 62')} to i128")
    # A remainder of more than half a quadrant counts as negative, which it is as a signed integer.
    top = f.let(f"lshr i128 {rest}, 127")
    q = f.emit("int", f"add i64 {quarters}, {f.let(f'trunc i128 {top} to i64')}")
    negative = f.let(f"icmp slt i128 {rest}, 0")
    minus = f.let(f"sub i128 0, {rest}")
    positive = f.let(f"select i1 {negative}, i128 {minus}, i128 {rest}")
    zeros = f.let(f"call i128 @llvm.ctlz.i128(i128 {positive}, i1 false)")
    digits = f.let(f"shl i128 {positive}, {zeros}")
    high, low = (_number(f, digits, right) for right in (75, 22))
    high, low = high * 2.0**-53, low * 2.0**-106
    right, right_low = p.HALF_PI["f64"][:2]
    product = high * right
    lost = f.fma(high, right_low, f.fma(low, right, f.fma(high, right, -product)))
    r = product + lost
    small = lost - (r - product)
    leading = f.emit("int", f"trunc i128 {zeros} to i64")
    sign = f.emit("int", f"select i1 {negative}, i64 {-(1 << 63)}, i64 0")
    factor = (((f.value(f.bias, "int") - leading) << f.mantissa) | sign).number
    return [r * factor + (size - size), small * factor, q]  # NaN for an infinite angle


def _number(f: Function, digits: str, right: int) -> Value:
    """53 bits of 128 as a float."""
    shifted = f.let(f"trunc i128 {f.let(f'lshr i128 {digits}, {right}')} to i64")
    bits = f.let(f"and i64 {shifted}, {(1 << 53) - 1}")
    return f.emit("float", f"uitofp i64 {bits} to double")
