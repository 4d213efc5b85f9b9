"""What LLVM makes of its own code for a GPU, interpreted, against what it makes of it for this processor."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest
from ptx_interpreter import PtxKernel
from ptx_samples import FLOATS, assert_same_floats

INTRINSICS = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
"""
for _name, _kinds in {
    "fptosi.sat": "i8.f32 i16.f64 i32.f32 i32.f64 i64.f32 i64.f64",
    "fptoui.sat": "i8.f64 i16.f32 i32.f32 i32.f64 i64.f32 i64.f64",
}.items():
    for _kind in _kinds.split():
        _to, _of = _kind.split(".")
        INTRINSICS += f"declare {_to} @llvm.{_name}.{_kind}({'float' if _of == 'f32' else 'double'})\n"
for _name, _count in (
    ("minimum", 2),
    ("maximum", 2),
    ("copysign", 2),
    ("fma", 3),
    ("sqrt", 1),
    ("floor", 1),
    ("roundeven", 1),
    ("trunc", 1),
):
    for _kind, _full in (("f32", "float"), ("f64", "double")):
        INTRINSICS += f"declare {_full} @llvm.{_name}.{_kind}({', '.join([_full] * _count)})\n"
for _name, _count in (("smax", 2), ("umin", 2), ("fshl", 3), ("fshr", 3), ("ctpop", 1), ("bitreverse", 1)):
    for _kind in ("i8", "i16", "i32", "i64"):
        INTRINSICS += f"declare {_kind} @llvm.{_name}.{_kind}({', '.join([_kind] * _count)})\n"
INTRINSICS += (
    "declare i32 @llvm.ctlz.i32(i32, i1)\ndeclare i64 @llvm.cttz.i64(i64, i1)\ndeclare i32 @llvm.bswap.i32(i32)\n"
)

COLLATZ = """ br label %turn
turn:
 %n = phi i32 [%start, %entry], [%next, %on]
 %steps = phi i32 [0, %entry], [%more, %on]
 %done = icmp ule i32 %n, 1
 br i1 %done, label %end, label %go
go:
 %bit = and i32 %n, 1
 %is.odd = icmp eq i32 %bit, 1
 br i1 %is.odd, label %odd, label %even
odd:
 %t = mul i32 %n, 3
 %u = add i32 %t, 1
 br label %on
even:
 %h = lshr i32 %n, 1
 br label %on
on:
 %next = phi i32 [%u, %odd], [%h, %even]
 %more = add i32 %steps, 1
 br label %turn
end:
 ret i32 %steps"""
SWITCH = """ %k = urem i32 %a, 9
 switch i32 %k, label %other [i32 0, label %l0  i32 1, label %l1  i32 2, label %l2  i32 3, label %l3  i32 4, label %l4
   i32 5, label %l5]
l0:
 %r0 = fadd double %x, 1.5
 br label %end
l1:
 %r1 = fmul double %x, %x
 br label %end
l2:
 %r2 = fdiv double 1.0, %x
 br label %end
l3:
 %r3 = call double @llvm.sqrt.f64(double %x)
 br label %end
l4:
 %r4 = call double @llvm.floor.f64(double %x)
 br label %end
l5:
 %r5 = fsub double 2.0, %x
 br label %end
other:
 %r6 = fneg double %x
 br label %end
end:
 %r = phi double [%r0, %l0], [%r1, %l1], [%r2, %l2], [%r3, %l3], [%r4, %l4], [%r5, %l5], [%r6, %other]
 ret double %r"""
TABLE = "@table = internal addrspace(SPACE) constant [4 x double] [double 1.0, double -2.0, double 3.5, double 0.0]\n"
LOOKUP = """ %k = and i32 %a, 3
 %p = getelementptr double, ptr addrspace(SPACE) @table, i32 %k
 %x = load double, ptr addrspace(SPACE) %p
 ret double %x"""
DEPOT = """ %m = alloca [16 x i32], align 16
 store <4 x i32> <i32 5, i32 6, i32 7, i32 8>, ptr %m, align 16
 %k = and i32 %a, 3
 %p = getelementptr i32, ptr %m, i32 %k
 store i32 %a, ptr %p
 %l = xor i32 %k, 1
 %q = getelementptr i32, ptr %m, i32 %l
 %x = load i32, ptr %q
 %y = load i32, ptr %p
 %r = mul i32 %x, %y
 ret i32 %r"""
CALLED = """define internal double @inner(double %x, i8 %k, float %z) noinline {
 %a = sitofp i8 %k to double
 %b = fpext float %z to double
 %c = fmul double %a, %b
 %d = fadd double %c, %x
 ret double %d
}
define internal i64 @outer(double %x, i32 %k) noinline {
 %z = sitofp i32 %k to float
 %s = trunc i32 %k to i8
 %r = call double @inner(double %x, i8 %s, float %z)
 %i = call i64 @llvm.fptosi.sat.i64.f64(double %r)
 ret i64 %i
}
"""
CALLS = """ %y = sitofp i32 %a to double
 %odd = trunc i32 %a to i1
 br i1 %odd, label %one, label %two
one:
 %i = call i64 @outer(double %y, i32 %a)
 ret i64 %i
two:
 %j = call i64 @outer(double %y, i32 77)
 %k = sub i64 0, %j
 ret i64 %k"""

# Carries that come only from carries.
LONG = """ %x = zext i64 %a to i192
 %y = zext i64 %b to i192
 %less = sub i192 %x, %y
 %more = add i192 %x, 340282366920938463463374607431768211455
 %product = mul i192 %less, %more
 %shifted = lshr i192 %WHICH, 128
 %r = trunc i192 %shifted to i64
 ret i64 %r"""


def unary(name: str, result: str, operand: str) -> str:
    suffix = f".{result}.{'f32' if operand == 'float' else 'f64'}"
    return f" %r = call {result} @llvm.{name}{suffix}({operand} %x)\n ret {result} %r"


def division(op: str, kind: str) -> str:
    """The guards that the lane compiler writes."""
    return f""" %z = icmp eq {kind} %b, 0
 %m = icmp eq {kind} %b, -1
 %zm = or i1 %z, %m
 %d = select i1 %zm, {kind} 1, {kind} %b
 %q = {op} {kind} %a, %d
 %r = select i1 %z, {kind} -1, {kind} %q
 ret {kind} %r"""


def call_of(name: str, kind: str, operands: str) -> str:
    full = {"f32": "float", "f64": "double"}.get(kind, kind)
    return f" %r = call {full} @llvm.{name}.{kind}({', '.join(f'{full} %{x}' for x in operands)})\n ret {full} %r"


COMPILED = {
    **{
        f"{k} of 192 bits": ("i64", "i64 %a, i64 %b", LONG.replace("WHICH", k), "") for k in ("less", "more", "product")
    },
    **{
        f"{n} {r} {o}": (f"{r}", f"{o} %x", unary(n, r, o), "")
        for n, r, o in [
            ("fptosi.sat", "i8", "float"),
            ("fptosi.sat", "i16", "double"),
            ("fptosi.sat", "i32", "float"),
            ("fptosi.sat", "i32", "double"),
            ("fptosi.sat", "i64", "float"),
            ("fptosi.sat", "i64", "double"),
            ("fptoui.sat", "i8", "double"),
            ("fptoui.sat", "i16", "float"),
            ("fptoui.sat", "i32", "float"),
            ("fptoui.sat", "i32", "double"),
            ("fptoui.sat", "i64", "float"),
            ("fptoui.sat", "i64", "double"),
        ]
    },
    **{
        f"{n} {k}": (t, f"{t} %x, {t} %y", call_of(n, k, "xy"), "")
        for n in ("minimum", "maximum", "copysign")
        for k, t in (("f32", "float"), ("f64", "double"))
    },
    **{
        f"{n} {k}": (t, f"{t} %x", call_of(n, k, "x"), "")
        for n in ("floor", "roundeven", "trunc", "sqrt")
        for k, t in (("f32", "float"), ("f64", "double"))
    },
    **{
        f"fma {k}": (t, f"{t} %x, {t} %y, {t} %z", call_of("fma", k, "xyz"), "")
        for k, t in (("f32", "float"), ("f64", "double"))
    },
    **{
        f"{n} {k}": (k, f"{k} %a, {k} %b", call_of(n, k, "ab"), "")
        for n in ("smax", "umin")
        for k in ("i8", "i16", "i32", "i64")
    },
    **{
        f"{n} {k}": (k, f"{k} %a, {k} %b, {k} %c", call_of(n, k, "abc"), "")
        for n in ("fshl", "fshr")
        for k in ("i8", "i16", "i32", "i64")
    },
    **{
        f"{n} {k}": (k, f"{k} %a", call_of(n, k, "a"), "")
        for n in ("ctpop", "bitreverse")
        for k in ("i8", "i16", "i32", "i64")
    },
    **{
        f"{op} {k}": (k, f"{k} %a, {k} %b", division(op, k), "")
        for op in ("sdiv", "udiv", "srem", "urem")
        for k in ("i8", "i16", "i32", "i64")
    },
    **{
        f"{op} by 7 {k}": (k, f"{k} %a", f" %r = {op} {k} %a, 7\n ret {k} %r", "")
        for op in ("sdiv", "urem")
        for k in ("i8", "i32", "i64")
    },
    **{
        f"{op} {k} {t}": (t, f"{k} %a", f" %r = {op} {k} %a to {t}\n ret {t} %r", "")
        for op in ("sitofp", "uitofp")
        for k in ("i1", "i8", "i32", "i64")
        for t in ("float", "double")
    },
    "ctlz": ("i32", "i32 %a", " %r = call i32 @llvm.ctlz.i32(i32 %a, i1 false)\n ret i32 %r", ""),
    "cttz": ("i64", "i64 %a", " %r = call i64 @llvm.cttz.i64(i64 %a, i1 false)\n ret i64 %r", ""),
    "bswap": ("i32", "i32 %a", " %r = call i32 @llvm.bswap.i32(i32 %a)\n ret i32 %r", ""),
    "comparisons": (
        "i8",
        "float %x, float %y, i16 %a",
        """ %p = fcmp olt float %x, %y
 %q = fcmp une float %y, 1.0
 %s = icmp sgt i16 %a, -3
 %t = xor i1 %p, %q
 %u = and i1 %t, %s
 %v = fcmp uno float %x, %y
 %w = or i1 %u, %v
 %r = select i1 %w, i8 -7, i8 3
 ret i8 %r""",
        "",
    ),
    "narrow integers": (
        "i8",
        "i8 %a, i8 %b, i16 %c",
        """ %s = add i8 %a, %b
 %m = mul i8 %s, %a
 %h = lshr i8 %m, 2
 %g = ashr i8 %b, 3
 %x = xor i8 %h, %g
 %d = trunc i16 %c to i8
 %r = sub i8 %x, %d
 ret i8 %r""",
        "",
    ),
    "loop": ("i32", "i32 %a", " %m = and i32 %a, 255\n %start = add i32 %m, 1\n" + COLLATZ, ""),
    "switch": ("double", "i32 %a, double %x", SWITCH, ""),
    "constant table": ("double", "i32 %a", LOOKUP, TABLE),
    "local memory": ("i32", "i32 %a", DEPOT, ""),
    "calls": ("i64", "i32 %a", CALLS, CALLED),
}


def kinds_of(parameters: str) -> list[tuple[str, str]]:
    return [(kind, name) for kind, name in (p.split() for p in parameters.split(", "))]


DTYPE = {
    "float": np.float32,
    "double": np.float64,
    "i1": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}


def kernel_text(result: str, parameters: str, body: str, before: str, gpu: bool) -> str:
    """The function, and what calls it once for the thread or with the number of the element."""
    space = " addrspace(1)" if gpu else ""
    count = len(kinds_of(parameters))
    pointers = ", ".join(f"ptr{space} noalias %p{k}" for k in range(count + 1))
    head = f"define ptx_kernel void @kernel({pointers}) {{" if gpu else f"define void @kernel({pointers}, i32 %t) {{"
    lines = [" %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()"] if gpu else []
    for k, (kind, _) in enumerate([*kinds_of(parameters), (result, "")]):
        memory = "i8" if kind == "i1" else kind
        lines.append(f" %q{k} = getelementptr {memory}, ptr{space} %p{k}, i32 %t")
        if k < count:
            lines.append(f" %v{k} = load {memory}, ptr{space} %q{k}")
            lines.append(
                f" %w{k} = trunc i8 %v{k} to i1" if kind == "i1" else f" %w{k} = bitcast {kind} %v{k} to {kind}"
            )
    arguments = ", ".join(f"{kind} %w{k}" for k, (kind, _) in enumerate(kinds_of(parameters)))
    lines += [
        f" %r = call {result} @function({arguments})",
        f" store {result} %r, ptr{space} %q{count}",
        " ret void",
        "}",
    ]
    function = f"define internal {result} @function({parameters}) alwaysinline {{\nentry:\n{body}\n}}"
    intrinsics = INTRINSICS if gpu else INTRINSICS.replace("declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()", "")
    text = "\n".join([intrinsics, before, function, head, *lines])
    text = text.replace("SPACE", "4" if gpu else "0")
    return f'target triple = "nvptx64-nvidia-cuda"\n{text}' if gpu else text


def optimized(text: str, machine) -> llvm.ModuleRef:
    parsed = llvm.parse_assembly(text, llvm.create_context())
    parsed.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    return parsed


def ptx_of(text: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu="sm_90", features="+ptx80", opt=3
    )
    return machine.emit_assembly(optimized(text, machine))


def computed_here(text: str, buffers, count: int) -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(optimized(text, machine), machine)
    engine.finalize_object()
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(buffers), ctypes.c_int32)(
        engine.get_function_address("kernel")
    )
    for k in range(count):
        call(*(x.ctypes.data for x in buffers), k)
    engine.close()


def drawn(kind: str, count: int, rng) -> np.ndarray:
    """Edges and random numbers, in random order."""
    dtype = np.dtype(DTYPE[kind])
    if kind == "i1":
        return rng.integers(0, 2, count).astype(dtype)
    if dtype.kind == "f":
        edges = np.array(
            [*FLOATS, *(np.nextafter(dtype.type(2.0**k), dtype.type(0)) for k in (7, 8, 31, 32, 63, 64))], dtype
        )
        return rng.permutation(np.append(edges, rng.normal(size=count - edges.size) * 50)).astype(dtype)
    info = np.iinfo(dtype)
    edges = np.array([0, 1, 2, -1, -2, 7, info.max, info.min, info.min + 1], dtype)
    return rng.permutation(np.append(edges, rng.integers(info.min, info.max, count - edges.size, dtype, endpoint=True)))


@pytest.mark.parametrize("name", COMPILED)
def test_code_of_llvm(name):
    result, parameters, body, before = COMPILED[name]
    rng = np.random.default_rng(len(name))
    inputs = [drawn(kind, 96, rng) for kind, _ in kinds_of(parameters)]
    found, expected = np.zeros(96, DTYPE[result]), np.zeros(96, DTYPE[result])
    computed_here(kernel_text(result, parameters, body, before, gpu=False), [*inputs, expected], 96)
    text = ptx_of(kernel_text(result, parameters, body, before, gpu=True))
    PtxKernel(text).run([*inputs, found], 96, 1, outputs=[len(inputs)])
    if found.dtype.kind == "f":
        assert_same_floats(found, expected)
    else:
        np.testing.assert_array_equal(found, expected)
    assert np.unique(found).size > 1
    if name in WRITTEN_WITH:
        assert WRITTEN_WITH[name] in text


WRITTEN_WITH = {
    "switch": "brx.idx",
    "calls": "call.uni",
    "local memory": "st.local.v4",
    "constant table": ".const",
    "loop": "bra",
}
