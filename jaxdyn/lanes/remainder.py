"""Exact remainder of two floats, as fmod of C99, in LLVM IR for processors without libm.

x - q y with the integral part q of x / y is exact as long as q has no more bits than the mantissa: a fused multiply-add computes
the difference, and the rounding of x / y can make q too large by at most one. A longer quotient is reduced from its leading bits,
some 23 or 52 bits at a time, by remainders with respect to y 2^k.
"""


def symbol(kind: str) -> str:
    return f"lanes.rem.{kind}"


def definition(kind: str) -> str:
    """Definition of the function of (x, y) that computes the remainder."""
    t, bits, mantissa, bias = {"f32": ("float", 32, 23, 127), "f64": ("double", 64, 52, 1023)}[kind]
    i = f"i{bits}"
    exponent_bits = bits - 1 - mantissa
    return f"""define internal {t} @{symbol(kind)}({t} %x, {t} %y) alwaysinline nounwind {{
entry:
 %size = call {t} @llvm.fabs.{kind}({t} %x)
 %by = call {t} @llvm.fabs.{kind}({t} %y)
 %by.bits = bitcast {t} %by to {i}
 %field = lshr {i} %by.bits, {mantissa}
 %zeros = call {i} @llvm.ctlz.{i}({i} %by.bits, i1 false)
 %subnormal = sub {i} {exponent_bits + 1}, %zeros
 %is.normal = icmp ne {i} %field, 0
 %exponent = select i1 %is.normal, {i} %field, {i} %subnormal
 %reached = add {i} %exponent, {mantissa - 1}
 br label %front
front:
 %rest = phi {t} [%size, %entry], [%smaller, %front]
 %rest.bits = bitcast {t} %rest to {i}
 %rest.exponent = lshr {i} %rest.bits, {mantissa}
 %beyond = sub {i} %rest.exponent, %reached
 %k = call {i} @llvm.smax.{i}({i} %beyond, {i} 0)
 %half = lshr {i} %k, 1
 %other = sub {i} %k, %half
 %half.field = add {i} %half, {bias}
 %other.field = add {i} %other, {bias}
 %half.bits = shl {i} %half.field, {mantissa}
 %other.bits = shl {i} %other.field, {mantissa}
 %half.power = bitcast {i} %half.bits to {t}
 %other.power = bitcast {i} %other.bits to {t}
 %scaled = fmul {t} %by, %half.power
 %unit = fmul {t} %scaled, %other.power
 %quotient = fdiv {t} %rest, %unit
 %whole = call {t} @llvm.trunc.{kind}({t} %quotient)
 %minus = fneg {t} %whole
 %left = call {t} @llvm.fma.{kind}({t} %minus, {t} %unit, {t} %rest)
 %is.minus = fcmp olt {t} %left, 0.0
 %back = fadd {t} %left, %unit
 %smaller = select i1 %is.minus, {t} %back, {t} %left
 %is.large = fcmp oge {t} %smaller, %by
 %was.long = icmp ne {i} %k, 0
 %more = and i1 %is.large, %was.long
 br i1 %more, label %front, label %done
done:
 %is.short = fcmp olt {t} %size, %by
 %chosen = select i1 %is.short, {t} %size, {t} %smaller
 %result = call {t} @llvm.copysign.{kind}({t} %chosen, {t} %x)
 ret {t} %result
}}"""
