"""What each PTX instruction does, as steps on NumPy vectors with one element per thread.

`Decoder` turns instructions into steps once; a step is a call without arguments. Steps compute for all threads, also for those that
do not execute the instruction (whose registers the caller restores), but only threads that execute it access memory.

Exact: everything that PTX defines to the last bit, f32 and f64 `fma` included, which run on the fused multiply-add of this
processor (or of its C library). Products and sums without a rounding mode, which ptxas may fuse, are rounded one by one. The
approximate functions are computed in double precision and rounded once, so they are closer to the exact values than those of a GPU.
NaNs keep the bits that this processor gives them. Instructions that the lane compiler does not generate are not known.
"""

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator

import llvmlite.binding as llvm
import numpy as np
from ptx_memory import Memory
from ptx_text import TYPES, Function, Instruction, PtxError, literal

_F32, _F64, _U32, _U64, _PRED = (TYPES[name] for name in ("f32", "f64", "u32", "u64", "pred"))
_GARBAGE = 0x7FF4DEAD7FF4DEAD  # NaN in both precisions: what registers hold before they are written
_SPACES = ("global", "local", "const")
_RULES: dict[str, tuple[Callable, frozenset[str]]] = {}


def _rule(names: str, modifiers: str = ""):
    """The function below decodes these instructions, with these words in their opcodes besides types."""

    def register(function):
        for name in names.split():
            _RULES[name] = function, frozenset(modifiers.split())
        return function

    return register


class Threads:
    """The threads of a launch, and which of them execute the present instruction (`active`, their numbers)."""

    def __init__(self, per_block: int, blocks: int):
        self.count = per_block * blocks
        number = np.arange(self.count)
        self.active = number
        fixed = {
            "%tid.x": number % per_block,
            "%ctaid.x": number // per_block,
            "%ntid.x": per_block,
            "%nctaid.x": blocks,
        }
        self.special = {name: np.broadcast_to(x, self.count).astype(np.uint32) for name, x in fixed.items()}


class Decoder:
    """Steps of the instructions of one function.

    Args: the function, the threads, the memory, addresses of variables and of the kernel's parameters by name, and the numbers
    passed between functions, which all functions share.
    """

    def __init__(
        self,
        function: Function,
        threads: Threads,
        memory: Memory,
        addresses: dict[str, int],
        passed: dict[str, np.ndarray],
    ):
        self.threads, self.memory, self.addresses, self.passed = threads, memory, addresses, passed
        self.kinds = function.registers
        self.registers: dict[str, np.ndarray] = {}
        self.constants: dict[tuple[int, np.dtype], np.ndarray] = {}
        self.flushed = _always_flushed(function)
        self.steps: list[Callable[[], object]] = []
        self.written: list[np.ndarray] = []

    def decode(self, instruction: Instruction) -> None:
        """Appends to `steps`, and to `written` the registers that they change."""
        name, *words = instruction.opcode
        if name not in _RULES:
            raise instruction.error("this instruction is not known here")
        rule, modifiers = _RULES[name]
        unknown = [w for w in words if w not in TYPES and w not in modifiers]
        if unknown:
            raise instruction.error(f".{unknown[0]} is not known here for {name}")
        rule(self, instruction)

    def do(self, function: Callable, *args) -> None:
        self.steps.append(functools.partial(function, *args))

    def set(self, out: np.ndarray, function: Callable, *args) -> None:
        """For functions that allocate their result."""
        self.steps.append(lambda: np.copyto(out, function(*args), casting="unsafe"))

    def register(self, name: str) -> np.ndarray:
        if name not in self.registers:
            kind = TYPES[self.kinds[name]]
            garbage = np.full(self.threads.count, _GARBAGE, np.uint64)
            self.registers[name] = garbage.astype(bool if kind == _PRED else f"u{kind.itemsize}")
        return self.registers[name]

    def carry(self) -> np.ndarray:
        """Of the last sum or difference that gave one."""
        return self.registers.setdefault("carry", np.zeros(self.threads.count, bool))

    def constant(self, bits: int, kind: np.dtype) -> np.ndarray:
        key = bits, kind
        if key not in self.constants:
            if kind == _PRED:
                self.constants[key] = np.full(self.threads.count, bool(bits))
            else:
                unsigned = np.uint64(bits & ((1 << 8 * kind.itemsize) - 1))
                self.constants[key] = np.full(self.threads.count, unsigned).astype(f"u{kind.itemsize}").view(kind)
        return self.constants[key]

    def read(self, operand: str, kind: np.dtype, flush: bool = False) -> np.ndarray:
        """Where the operand is when the steps run. `flush`: subnormal numbers as zeros of their sign."""
        if operand.startswith("!"):
            inverse = np.empty(self.threads.count, bool)
            self.do(np.logical_not, self.register(operand[1:]), inverse)
            return inverse
        if operand in self.threads.special:
            return self.threads.special[operand].astype(kind)
        bits = literal(operand)
        if bits is not None:
            found = self.constant(bits, kind)
        elif operand.startswith("%") or operand in self.kinds:
            register = self.register(operand)
            # Where the register is longer, its lower bits are meant.
            found = register.view(kind)[:: register.itemsize // kind.itemsize]
        else:
            name, _, offset = operand.partition("+")
            found = self.constant(self.addresses[name] + int(offset or 0), kind)
        if not flush or kind != _F32 or operand in self.flushed:
            return found
        copy = np.empty(self.threads.count, kind)
        self.do(np.copyto, copy, found)
        self._flush(copy)
        return copy

    @contextlib.contextmanager
    def result(self, operand: str, kind: np.dtype, flush: bool = False) -> Iterator[np.ndarray]:
        """Where the steps added within leave their result."""
        if operand == "_":
            yield np.empty(self.threads.count, kind)
            return
        register = self.register(operand)
        longer = register.itemsize > kind.itemsize
        out = np.empty(self.threads.count, kind) if longer else register.view(kind)
        yield out
        self.written.append(register)
        if flush and kind == _F32:
            self._flush(out)
        if longer:  # filled with zeros, or with the sign
            self.do(np.copyto, register.view(f"{'i' if kind.kind == 'i' else 'u'}{register.itemsize}"), out)

    def _flush(self, x: np.ndarray) -> None:
        size, normal = np.empty_like(x), np.empty(x.size, bool)
        self.do(np.abs, x, size)
        self.do(np.greater_equal, size, np.full_like(x, np.finfo(np.float32).tiny), normal)
        self.do(np.multiply, x, normal, x)


def _always_flushed(function: Function) -> set[str]:
    """Registers that only ever hold results in which subnormal numbers are flushed, so that they need not be flushed again."""
    results: dict[str, bool] = {}
    for instruction in function.instructions:
        if instruction.operands:
            flushes = (
                "ftz" in instruction.opcode and instruction.opcode[-1] == "f32" and instruction.opcode[0] != "setp"
            )
            for name in instruction.operands[0].strip("{}").split(","):
                results[name.strip()] = results.get(name.strip(), True) and flushes
    return {name for name, flushes in results.items() if flushes}


@_rule("mov")
def _move(code: Decoder, i: Instruction) -> None:
    """Between registers, or between a register and several short ones, the lowest bits first."""
    kind = TYPES[i.opcode[-1]]
    target, source = i.operands
    targets, sources = ([name.strip() for name in x.strip("{}").split(",")] for x in i.operands)
    pieces = max(len(targets), len(sources))
    short = kind if pieces == 1 else np.dtype(f"u{kind.itemsize // pieces}")
    if source.startswith("{"):
        whole = np.empty(code.threads.count, kind)
        for k, name in enumerate(sources):
            code.do(np.copyto, whole.view(short)[k::pieces], code.read(name, short))
    else:
        whole = code.read(source, kind)
    if not target.startswith("{"):
        targets, short, pieces = [target], kind, 1
    for k, name in enumerate(targets):
        with code.result(name, short) as out:
            code.do(np.copyto, out, whole.view(short)[k::pieces])


def _address(code: Decoder, operand: str) -> tuple[np.ndarray, np.ndarray]:
    """Base and offset of [base+offset]."""
    base, _, offset = operand.strip("[]").partition("+")
    return code.read(base.strip(), _U64), code.constant(int(offset or 0), _U64)


def _space(i: Instruction) -> str:
    return next((w for w in i.opcode if w in _SPACES), "")


_CACHING = "nc v2 v4"


@_rule("ld", "param " + " ".join(_SPACES) + " " + _CACHING)
def _load(code: Decoder, i: Instruction) -> None:
    kind = TYPES[i.opcode[-1]]
    names = [x.strip() for x in i.operands[0].strip("{}").split(",")]
    if "param" in i.opcode:
        for k, name in enumerate(names):
            with code.result(name, kind) as out:
                code.do(np.copyto, out, _passed(code, i.operands[1], k, kind))
        return
    base, offset = _address(code, i.operands[1])
    space, memory, threads, read_only = _space(i), code.memory, code.threads, "nc" in i.opcode
    with contextlib.ExitStack() as results:
        outs = [results.enter_context(code.result(name, kind)) for name in names]

        def step():
            active = threads.active
            try:
                numbers = memory.load((base + offset)[active], active, kind, len(outs), space, read_only)
            except PtxError as fault:
                raise i.error(str(fault)) from None
            for k, out in enumerate(outs):
                out[active] = numbers[:, k]

        code.do(step)


@_rule("st", "param " + " ".join(_SPACES) + " " + _CACHING)
def _store(code: Decoder, i: Instruction) -> None:
    kind = TYPES[i.opcode[-1]]
    sources = [code.read(x.strip(), kind) for x in i.operands[1].strip("{}").split(",")]
    if "param" in i.opcode:
        for k, source in enumerate(sources):
            passed = _passed(code, i.operands[0], k, kind)
            code.do(np.copyto, passed, source)
            code.written.append(passed)
        return
    base, offset = _address(code, i.operands[0])
    space, memory, threads = _space(i), code.memory, code.threads

    def step():
        active = threads.active
        try:
            memory.store((base + offset)[active], active, np.stack([x[active] for x in sources], axis=1), space)
        except PtxError as fault:
            raise i.error(str(fault)) from None

    code.do(step)


def _passed(code: Decoder, operand: str, number: int, kind: np.dtype) -> np.ndarray:
    """A parameter of the kernel, or what is passed to or from a function: at most 256 bytes under each name."""
    name, _, offset = operand.strip("[]").partition("+")
    if "#" not in name:
        return code.constant(code.addresses[name], kind)
    if name not in code.passed:
        code.passed[name] = np.full((code.threads.count, 32), _GARBAGE, np.uint64).view(np.uint8)
    first = int(offset or 0) + number * kind.itemsize
    return code.passed[name][:, first : first + kind.itemsize].view(kind)[:, 0]


def _pointwise(code: Decoder, i: Instruction, function: Callable) -> None:
    """`function(*operands, out)`, all of the type of the instruction."""
    kind, flush = TYPES[i.opcode[-1]], "ftz" in i.opcode
    operands = [code.read(x, kind, flush) for x in i.operands[1:]]
    with code.result(i.operands[0], kind, flush) as out:
        code.do(function, *operands, out)


def _computed(code: Decoder, i: Instruction, function: Callable) -> None:
    """The same for functions that allocate their result."""
    kind, flush = TYPES[i.opcode[-1]], "ftz" in i.opcode
    operands = [code.read(x, kind, flush) for x in i.operands[1:]]
    with code.result(i.operands[0], kind, flush) as out:
        code.set(out, function, *operands)


_SIMPLE = {"add": np.add, "sub": np.subtract, "abs": np.abs, "neg": np.negative}
_BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}


@_rule("add sub abs neg", "rn ftz cc")
def _simple(code: Decoder, i: Instruction) -> None:
    if "cc" in i.opcode:
        _with_carry(code, i)
    else:
        _pointwise(code, i, _SIMPLE[i.opcode[0]])


@_rule("addc subc", "cc")
def _with_carry(code: Decoder, i: Instruction) -> None:
    """Sums and differences of integers as parts of longer ones; the carry, or what was borrowed, is a register of its own."""
    kind = TYPES[i.opcode[-1]]
    unsigned = np.dtype(f"u{kind.itemsize}")
    a, b = (code.read(x, unsigned) for x in i.operands[1:])
    carry, adds, takes, gives = code.carry(), "add" in i.opcode[0], i.opcode[0][-1] == "c", "cc" in i.opcode

    def step(out):
        more = carry.astype(unsigned) if takes else unsigned.type(0)
        part = a + b if adds else a - b
        whole = part + more if adds else part - more
        over = (part < a) | (whole < part) if adds else (a < b) | (part < whole)
        np.copyto(out, whole)
        if gives:
            np.copyto(carry, over)

    with code.result(i.operands[0], unsigned) as out:
        code.do(step, out)
    if gives:
        code.written.append(carry)


@_rule("and or xor not")
def _bitwise(code: Decoder, i: Instruction) -> None:
    _pointwise(code, i, _BITWISE[i.opcode[0]])


@_rule("mul", "rn ftz lo hi wide")
def _product(code: Decoder, i: Instruction) -> None:
    kind = TYPES[i.opcode[-1]]
    if "hi" in i.opcode:
        _computed(code, i, _high_product)
    elif "wide" in i.opcode:
        a, b = (code.read(x, kind) for x in i.operands[1:])
        longer = np.dtype(f"{kind.kind}{2 * kind.itemsize}")
        with code.result(i.operands[0], longer) as out:
            code.set(out, lambda a, b: a.astype(longer) * b.astype(longer), a, b)
    else:
        _pointwise(code, i, np.multiply)


@_rule("mad", "lo wide")
def _product_and_sum(code: Decoder, i: Instruction) -> None:
    kind = TYPES[i.opcode[-1]]
    longer = np.dtype(f"{kind.kind}{2 * kind.itemsize}") if "wide" in i.opcode else kind
    a, b = (code.read(x, kind) for x in i.operands[1:3])
    c = code.read(i.operands[3], longer)
    with code.result(i.operands[0], longer) as out:
        code.set(out, lambda a, b, c: a.astype(longer) * b.astype(longer) + c, a, b, c)


def _high_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper half of the product of integers."""
    bits = 8 * a.itemsize
    if bits < 64:
        longer = f"{a.dtype.kind}{2 * a.itemsize}"
        return a.astype(longer) * b.astype(longer) >> bits
    x, y, half, low = a.view(_U64), b.view(_U64), np.uint64(32), np.uint64(0xFFFFFFFF)
    middle = (x >> half) * (y & low) + ((x & low) * (y & low) >> half)
    other = (x & low) * (y >> half) + (middle & low)
    high = (x >> half) * (y >> half) + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":  # a negative number is its bits less 2^64
        high = high - np.where(a < 0, y, 0) - np.where(b < 0, x, 0)
    return high.view(a.dtype)


@_rule("fma", "rn ftz")
def _fused(code: Decoder, i: Instruction) -> None:
    kind = TYPES[i.opcode[-1]]
    (_, function), flush = _fused_multiply_add(kind.itemsize), "ftz" in i.opcode
    operands = [code.read(x, kind, flush) for x in i.operands[1:]]
    with code.result(i.operands[0], kind, flush) as out:
        vectors = [*operands, out]
        places = [x.ctypes.data for x in vectors]

        def step(vectors=vectors):  # which live as long as the step
            function(*places, out.size)

        code.do(step)


@_rule("div", "rn ftz full")
def _quotient(code: Decoder, i: Instruction) -> None:
    kind = TYPES[i.opcode[-1]]
    if kind.kind != "f":
        _integer_division(code, i, lambda a, b: (a - np.fmod(a, b)) // b)
    elif "full" in i.opcode:
        _computed(code, i, lambda a, b: a.astype(_F64) / b)
    else:
        _pointwise(code, i, np.divide)


@_rule("rem")
def _remainder(code: Decoder, i: Instruction) -> None:
    _integer_division(code, i, np.fmod)


def _integer_division(code: Decoder, i: Instruction, function: Callable) -> None:
    """PTX says nothing on division by zero, so it is an error here."""
    divisor, threads = code.read(i.operands[2], TYPES[i.opcode[-1]]), code.threads

    def check():
        if not divisor[threads.active].all():
            raise i.error("divides by zero")

    code.do(check)
    _computed(code, i, function)


@_rule("sqrt rcp rsqrt", "rn ftz approx")
def _root_or_inverse(code: Decoder, i: Instruction) -> None:
    kind = TYPES[i.opcode[-1]]
    if "approx" in i.opcode and (kind == _F32 or i.opcode == ("rsqrt", "approx", "f64")):
        functions = {"sqrt": np.sqrt, "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x)}
        _computed(code, i, lambda x: functions[i.opcode[0]](x.astype(_F64)))
    else:
        _pointwise(code, i, np.sqrt if i.opcode[0] == "sqrt" else lambda x, out: np.divide(kind.type(1), x, out))


@_rule("min max", "ftz NaN")
def _extreme(code: Decoder, i: Instruction) -> None:
    """Of a number and a NaN the number, or the NaN with .NaN; -0 is less than +0."""
    least = i.opcode[0] == "min"
    if TYPES[i.opcode[-1]].kind != "f":
        _computed(code, i, np.minimum if least else np.maximum)
        return
    propagates = "NaN" in i.opcode
    if least:
        choose, join = np.minimum if propagates else np.fmin, np.bitwise_or
    else:
        choose, join = np.maximum if propagates else np.fmax, np.bitwise_and

    def extreme(a, b):
        bits = f"u{a.itemsize}"
        return np.where(a == b, join(a.view(bits), b.view(bits)).view(a.dtype), choose(a, b))

    _computed(code, i, extreme)


@_rule("copysign")
def _copy_sign(code: Decoder, i: Instruction) -> None:
    """The sign comes from the first operand."""
    _pointwise(code, i, lambda a, b, out: np.copysign(b, a, out))


_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}


def _is_nan(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.isnan(a) | np.isnan(b)


def _comparison(word: str, kind: np.dtype) -> Callable:
    if kind.kind != "f" or word in ("eq", "lt", "le", "gt", "ge"):
        return _COMPARISONS[word]
    if word == "ne":  # false where a number is missing
        return lambda a, b: (a < b) | (a > b)
    if word in ("num", "nan"):
        return _is_nan if word == "nan" else lambda a, b: ~_is_nan(a, b)
    compare = _COMPARISONS[_UNORDERED[word]]
    return lambda a, b: compare(a, b) | _is_nan(a, b)


@_rule("setp", " ".join(["ftz num nan", *_COMPARISONS, *_UNORDERED]))
def _set_predicate(code: Decoder, i: Instruction) -> None:
    kind, flush = TYPES[i.opcode[-1]], "ftz" in i.opcode
    a, b = (code.read(x, kind, flush) for x in i.operands[1:])
    with code.result(i.operands[0], _PRED) as out:
        code.set(out, _comparison(i.opcode[1], kind), a, b)


@_rule("selp")
def _select(code: Decoder, i: Instruction) -> None:
    kind = TYPES[i.opcode[-1]]
    a, b = (code.read(x, kind) for x in i.operands[1:3])
    condition = code.read(i.operands[3], _PRED)
    with code.result(i.operands[0], kind) as out:
        code.set(out, np.where, condition, a, b)


@_rule("shl shr")
def _shift(code: Decoder, i: Instruction) -> None:
    """All bits leave where the amount is the width or more, as in NumPy, but there amounts have the type of the number."""
    kind = TYPES[i.opcode[-1]]
    source, amount = code.read(i.operands[1], kind), code.read(i.operands[2], _U32)
    shift = np.left_shift if i.opcode[0] == "shl" else np.right_shift
    most = np.uint32(8 * kind.itemsize)
    with code.result(i.operands[0], kind) as out:
        code.set(out, lambda x, n: shift(x, np.minimum(n, most).astype(kind)), source, amount)


@_rule("shf", "l r wrap")
def _funnel(code: Decoder, i: Instruction) -> None:
    low, high, amount = (code.read(x, _U32) for x in i.operands[1:])

    def shifted(low, high, n):
        both, n = high.astype(_U64) << np.uint64(32) | low, (n & np.uint32(31)).astype(_U64)
        return (both << n) >> np.uint64(32) if i.opcode[1] == "l" else (both >> n) & np.uint64(0xFFFFFFFF)

    with code.result(i.operands[0], _U32) as out:
        code.set(out, shifted, low, high, amount)


@_rule("clz")
def _leading_zeros(code: Decoder, i: Instruction) -> None:
    """Halves are exact in double precision, whose exponent counts the bits."""
    kind = TYPES[i.opcode[-1]]

    def length(half):
        return np.frexp(half.astype(_F64))[1]

    def zeros(x):
        if kind == _U32:
            return 32 - length(x)
        high = x >> np.uint64(32)
        return np.where(high > 0, 32 - length(high), 64 - length(x & np.uint64(0xFFFFFFFF)))

    source = code.read(i.operands[1], kind)
    with code.result(i.operands[0], _U32) as out:
        code.set(out, zeros, source)


_TO_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@_rule("cvt", "rn ftz " + " ".join(_TO_INTEGRAL))
def _convert(code: Decoder, i: Instruction) -> None:
    target, source = (TYPES[w] for w in i.opcode[-2:])
    flush, integral = "ftz" in i.opcode, _TO_INTEGRAL.get(i.opcode[1], lambda x: x)
    x = code.read(i.operands[1], source, flush)
    with code.result(i.operands[0], target, flush) as out:
        if source.kind == "f" and target.kind != "f":
            code.set(out, lambda x: _clamped(integral(x), target), x)
        else:
            code.set(out, lambda x: integral(x).astype(target), x)


def _clamped(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """Integral floats as integers: the nearest one there is; for NaN 2^(bits - 1) if one of the types has 64 bits, else 0."""
    limits, bits = np.iinfo(target), 8 * target.itemsize
    missing = 1 << (bits - 1) if 8 in (x.itemsize, target.itemsize) else 0
    above, below = x >= 2.0 ** (bits if target.kind == "u" else bits - 1), x <= float(limits.min)
    result = np.where(above, limits.max, np.where(below, limits.min, x.astype(target))).astype(target)
    return np.where(np.isnan(x), np.array(missing, f"u{target.itemsize}").view(target), result)


@functools.cache
def _fused_multiply_add(size: int):
    """`f(a, b, c, out, count)` on vectors at these addresses: a b + c, rounded once. With the engine, which holds its code."""
    kind, name = {4: ("float", "f32"), 8: ("double", "f64")}[size]
    loads = "\n".join(
        f" %p{x} = getelementptr {kind}, ptr %{x}, i64 %k\n %v{x} = load {kind}, ptr %p{x}" for x in "abc"
    )
    text = f"""declare {kind} @llvm.fma.{name}({kind}, {kind}, {kind})
define void @fused(ptr %a, ptr %b, ptr %c, ptr %out, i64 %count) {{
entry:
 br label %turn
turn:
 %k = phi i64 [0, %entry], [%next, %turn]
{loads}
 %result = call {kind} @llvm.fma.{name}({kind} %va, {kind} %vb, {kind} %vc)
 %place = getelementptr {kind}, ptr %out, i64 %k
 store {kind} %result, ptr %place
 %next = add i64 %k, 1
 %more = icmp ult i64 %next, %count
 br i1 %more, label %turn, label %end
end:
 ret void
}}"""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(engine.get_function_address("fused"))
    return engine, call
