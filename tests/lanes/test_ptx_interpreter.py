"""Threads of the PTX interpreter that go apart and meet, and kernels that do what they must not."""

import re

import numpy as np
import pytest
from ptx_interpreter import PtxKernel
from ptx_memory import MemoryFault
from ptx_samples import element, module
from ptx_text import PtxError


def run(body: str, *buffers: np.ndarray, per_block: int = 64, blocks: int = 1, outputs=None, before: str = ""):
    return PtxKernel(module(len(buffers), body, before)).run(buffers, per_block, blocks, outputs)


def store_u32(value: str, pointer: int = 0) -> str:
    return element(pointer, "u32", 30) + f"st.global.b32 [%d30], {value};\n"


def test_threads_that_go_apart_meet_again():
    """Each thread counts its own steps of a loop with a branch inside, and all end in the same instructions."""

    def steps(n: int) -> int:
        return 0 if n <= 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    body = """
    add.u32 %r1, %r90, 1;
    mov.u32 %r2, 0;
$again:
    setp.le.u32 %p1, %r1, 1;
    @%p1 bra $end;
    add.u32 %r2, %r2, 1;
    and.b32 %r3, %r1, 1;
    setp.ne.u32 %p2, %r3, 0;
    @%p2 bra $odd;
    shr.u32 %r1, %r1, 1;
    bra.uni $again;
$odd:
    mad.lo.u32 %r1, %r1, 3, 1;
    bra.uni $again;
$end:
"""
    out = np.zeros(64, np.uint32)
    counts = run(body + store_u32("%r2"), out).counts
    assert out.tolist() == [steps(n + 1) for n in range(64)]
    assert counts["st.global"] == 2  # once for each warp of 32 threads
    longest = [max(steps(n + 1) for n in range(k, k + 32)) for k in (0, 32)]
    assert sum(longest) < counts["shr.u32"] + counts["mad.u32"] - 2 < 4 * sum(longest)


def test_guarded_instructions_change_registers_of_threads_that_execute_them():
    body = """
    setp.lt.u32 %p1, %r90, 10;
    mov.u32 %r1, 5;
    @%p1 add.u32 %r1, %r1, %r90;
    @!%p1 shl.b32 %r1, %r1, 1;
    setp.gt.u32 %p2, %r90, 60;
    @%p2 exit;
"""
    out = np.full(64, 99, np.uint32)
    run(body + store_u32("%r1"), out)
    assert out.tolist() == [5 + k if k < 10 else 10 if k <= 60 else 99 for k in range(64)]


def test_all_blocks_and_threads_know_who_they_are():
    out = np.zeros((3, 20, 4), np.uint32)
    body = """
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %nctaid.x;
    mad.lo.u64 %d1, %d80, 16, %d90;
    st.global.v4.b32 [%d1], {%r1, %r2, %r3, %r4};
"""
    run(body, out, per_block=20, blocks=3)
    for (block, thread), row in zip(np.ndindex(3, 20), out.reshape(-1, 4), strict=True):
        assert row.tolist() == [thread, block, 20, 3]


def test_the_limit_on_threads_is_kept():
    text = module(0, "").replace(")\n{", ")\n.maxntid 32\n{")
    PtxKernel(text).run([], 32, 1)
    with pytest.raises(PtxError, match="maxntid 32"):
        PtxKernel(text).run([], 33, 1)


REVERSE = """
    .shared .align 4 .b8 row[128];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d1, %r1, 4;
    mov.b64 %d2, row;
    add.u64 %d3, %d2, %d1;
    st.shared.b32 [%d3], %r90;
    BETWEEN
    sub.u64 %d4, %d2, %d1;
    ld.shared.b32 %r2, [%d4+124];
"""


def test_threads_of_a_block_exchange_numbers_after_a_barrier():
    out = np.zeros(96, np.uint32)
    again = """
    bar.sync 0;
    st.shared.b32 [%d3], %r2;
    bar.sync 0;
    ld.shared.b32 %r3, [%d3];
"""
    run(REVERSE.replace("BETWEEN", "bar.sync 0;") + again + store_u32("%r3"), out, per_block=32, blocks=3)
    np.testing.assert_array_equal(out.reshape(3, 32), np.arange(96).reshape(3, 32)[:, ::-1])


def test_an_exchange_without_a_barrier_is_a_race():
    with pytest.raises(MemoryFault, match=r"ld.shared.b32 %r2.*\n.*thread 31 accesses too in row, a race"):
        run(REVERSE.replace("BETWEEN", ""), per_block=32)
    again = REVERSE.replace("BETWEEN", "bar.sync 0;") + "st.shared.b32 [%d3], 1;"
    with pytest.raises(
        MemoryFault, match=r"writes what thread .* accesses too"
    ):  # which that one may not have read yet
        run(again, per_block=32)
    by_one = (
        REVERSE.replace("BETWEEN", "bar.sync 0;")
        + """
    ld.shared.b32 %r4, [%d2];
    setp.eq.u32 %p1, %r90, 31;
    @%p1 st.shared.b32 [%d2], 1;
"""
    )
    with pytest.raises(MemoryFault, match="writes what other threads access too"):
        run(by_one, per_block=32)


def test_all_threads_of_a_block_come_to_a_barrier():
    apart = "setp.lt.u32 %p1, %r90, WHERE; @%p1 bra $on; bar.sync 0; $on:"
    with pytest.raises(PtxError, match=r"bar.sync 0\nthread 0 of the launch is elsewhere"):
        run(apart.replace("WHERE", "7"), blocks=2)
    # Blocks do not wait for each other.
    counts = run(apart.replace("WHERE", "64"), blocks=2).counts
    assert counts["bar"] == 2  # of the four warps only two come here
    run("setp.lt.u32 %p1, %r90, 7; @%p1 exit; bar.sync 0;")  # nor for threads that are through


def test_local_memory_belongs_to_a_thread():
    body = """
    .local .align 8 .b8 depot[32];
    mov.b64 %d1, depot;
    cvta.local.u64 %d2, %d1;
    st.local.v2.b32 [%d1+8], {%r90, %r90};
    cvt.u16.u32 %h1, %r90;
    st.b16 [%d2+10], %h1;
    ld.local.b64 %d3, [%d1+8];
    shr.u64 %d3, %d3, 16;
    cvt.u32.u64 %r1, %d3;
"""
    out = np.zeros(64, np.uint32)
    run(body + store_u32("%r1"), out)
    assert out.tolist() == [k | k << 16 for k in range(64)]


def test_tables_of_the_module():
    before = """
.const .align 8 .f64 halves[3] = {0d3FE0000000000000, 0d3FF8000000000000}; // the rest is zero
.global .align 4 .b8 octets[8] = {1, 0, 0, 0, 0xFF, 255, 255, 255};
.global .align 4 .u32 one = 77;
"""
    body = """
    ld.const.v2.f64 {_, %d1}, [halves];
    mov.b64 %d2, octets;
    ld.global.nc.s32 %r1, [%d2+4];
    ld.global.u32 %r2, [one];
    ld.const.f64 %d3, [halves+16];
    ld.global.s8 %r3, [%d2+4];
    st.global.v2.b64 [%d90], {%d1, %d3};
    st.global.v4.b32 [%d91], {%r1, %r2, %r3, %r3};
"""
    doubles, numbers = np.ones(2), np.zeros(4, np.int32)
    run(body, doubles, numbers, per_block=1, before=before)
    assert doubles.tolist() == [1.5, 0.0]
    assert numbers.tolist() == [-1, 77, -1, -1]


FAULTS = {
    "beyond the end": (
        "ld.global.b32 %r1, [%d30+4];",
        "accesses 4 bytes outside the 256 bytes of buffer 0, at byte 256 .*thread 63",
    ),
    "before the start": ("st.global.b32 [%d30+-4], %r1;", "at byte -4 .*thread 0"),
    "half of a vector": ("ld.global.v2.b32 {%r1, %r2}, [%d90+252];", "accesses 8 bytes outside"),
    "nowhere": ("ld.global.b32 %r1, [%d80];", "accesses no buffer at all"),
    "misaligned": ("ld.global.b64 %d1, [%d90+4];", "8 bytes of buffer 0 at a misaligned address, at byte 4"),
    "misaligned vector": ("ld.global.v2.b32 {%r1, %r2}, [%d90+4];", "misaligned"),
    "two threads": ("st.global.b32 [%d90], 1;", "writes what thread 63 accesses too in buffer 0, a race"),
    "one after the other": ("st.global.b32 [%d30], 1; ld.global.b32 %r1, [%d90];", "reads what thread 0 accesses too"),
    "two instructions": (
        "st.global.b32 [%d30], 1; setp.eq.u32 %p1, %r90, 5; @%p1 st.global.b32 [%d90], 1;",
        "writes what thread 0 accesses too in buffer 0, a race, .*thread 5",
    ),
    "unwritten": ("ld.global.b32 %r1, [%d91];", "reads what nobody has written in buffer 1"),
    "unwritten local": (".local .b8 x[4]; ld.local.b32 %r1, [x];", "reads what nobody has written in x"),
    "unwritten shared": (".shared .b8 x[4]; ld.shared.b32 %r1, [x];", "reads what nobody has written in x"),
    "outside local": (".local .b8 x[4]; st.local.b32 [x+4], %r1;", "outside the 4 bytes of x"),
    "outside shared": (".shared .b8 x[4]; st.shared.b32 [x+4], %r1;", "outside the 4 bytes of x"),
    "input": ("st.global.b32 [%d30], 1;", "writes buffer 0, which is read-only"),
    "table": (" st.global.b32 [table], 1;", "writes table, which is read-only"),
    "constant": ("st.const.b32 [constants], 1;", "writes constants, which is read-only"),
    "space": ("ld.shared.b32 %r1, [%d30];", "accesses buffer 0 as shared memory"),
    "read-only cache": ("st.global.b32 [%d91], 1; ld.global.nc.b32 %r1, [%d91];", "read-only cache"),
    "divides by zero": ("div.u32 %r1, %r90, %r90;", "divides by zero"),
    "unknown": ("frobnicate.b32 %r1, %r2;", "not known"),
    "unknown modifier": ("add.rz.f32 %r1, %r2, %r3;", ".rz is not known here for add"),
    "unknown register": ("add.u32 %r1, %r2, %q3;", "there is no register %q3"),
    "another kind of register": ("add.u64 %d1, %d2, %r3;", "too short"),
    "unknown label": ("bra $nowhere;", "nowhere"),
    "unknown function": ("call.uni f, ();", "there is no function f"),
    "trap": ("trap;", "is executed"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_kernels_must_not_do(fault):
    """The error names the line with the instruction."""
    body, message = FAULTS[fault]
    before = ".global .align 4 .u32 table = 1; .const .align 4 .u32 constants[2] = {1, 2};"
    outputs = [1] if fault in ("unwritten", "input", "read-only cache") else None
    per_block = 1 if fault == "read-only cache" else 64
    full = element(0, "u32", 30) + body
    with pytest.raises(PtxError) as caught:
        run(full, *np.zeros((2, 64), np.uint32), per_block=per_block, before=before, outputs=outputs)
    line, found = str(caught.value).split("\n", 1)
    number, text = re.findall(r"^line (\d+): (.*)$", line)[0]
    assert re.search(message, found)
    assert text.split()[0] in module(2, full, before).split("\n")[int(number) - 1]
    assert text.rstrip(";") in re.sub(r"\s+", " ", body)


def test_threads_that_do_not_execute_an_instruction_may_hold_any_address():
    """The last ten threads change ten numbers."""
    body = """
    sub.u64 %d30, %d30, 216;
    setp.ge.u32 %p1, %r90, 54;
    @%p1 ld.global.b32 %r1, [%d30];
    add.u32 %r1, %r1, 7;
    @%p1 st.global.b32 [%d30], %r1;
"""
    x = np.arange(10, dtype=np.uint32)
    run(element(0, "u32", 30) + body, x)
    assert x.tolist() == [k + 7 for k in range(10)]


def test_a_table_of_labels():
    body = """
    rem.u32 %r1, %r90, 3;
    mov.u32 %r2, 100;
$table: .branchtargets $a, $b, $c;
    brx.idx %r1, $table;
$a: add.u32 %r2, %r2, 1;
$b: add.u32 %r2, %r2, 2;
$c: add.u32 %r2, %r2, 4;
"""
    out = np.zeros(64, np.uint32)
    run(body + store_u32("%r2"), out)
    assert out.tolist() == [(107, 106, 104)[k % 3] for k in range(64)]
    with pytest.raises(PtxError, match="jumps by 3, but there are 3 labels"):
        run(body.replace("rem.u32 %r1, %r90, 3", "rem.u32 %r1, %r90, 4"))


def test_functions_do_not_call_themselves():
    function = """
.func f()
{
    { call.uni f, (); }
    ret;
}
"""
    with pytest.raises(PtxError, match="f calls itself"):
        run("{ call.uni f, (); }", before=function)


def test_a_module_that_cannot_be_read():
    with pytest.raises(PtxError, match="0 kernels"):
        PtxKernel("")
    with pytest.raises(PtxError, match="2 kernels"):
        PtxKernel(module(0, "") + module(0, "", name="other"))
    with pytest.raises(PtxError, match="not a number"):
        PtxKernel(module(0, "", ".global .u64 pointer = other;"))
    with pytest.raises(PtxError, match="not closed"):
        PtxKernel(module(0, "{"))
    with pytest.raises(PtxError, match="2 buffers for 1 parameters"):
        PtxKernel(module(1, "")).run([np.zeros(1)] * 2, 1, 1)
    with pytest.raises(PtxError, match="buffer 0 is not contiguous"):
        PtxKernel(module(1, "")).run([np.zeros((4, 4))[:, 1]], 1, 1)
    with pytest.raises(PtxError, match="the parameter a0 is not a pointer"):
        PtxKernel(module(1, "").replace(".param .u64 a0", ".param .u32 a0")).run([np.zeros(1)], 1, 1)
    with pytest.raises(PtxError, match="does not end"):
        PtxKernel(module(0, "").replace("ret;", "")).run([], 1, 1)
