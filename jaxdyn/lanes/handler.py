"""How XLA calls a kernel: a handler with the calling convention of the typed XLA FFI, itself written in LLVM code.

So no C compiler is needed, and no Python runs during a call. The handler cuts the batch into pieces that the threads of XLA's pool
take one after the other; the calling thread works too, and waits only for pieces that another thread has begun.
"""

from collections.abc import Sequence

from jaxdyn.lanes.llvm_code import KernelCode

# Scalar operations that are worth waking another thread for: some ten microseconds of work.
_OPERATIONS_PER_TASK = 200_000

# Offsets within the structures of xla/ffi/api/c_api.h, which ships with jaxlib (jax.ffi.include_dir()).
_HANDLER = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @sched_yield()
@jaxdyn_lanes_threads = external global i64

; ctx: 0 blocks done, 64 next block, 128 references, 136 blocks, 144 blocks per grab, 152 batch, 160 buffers
define internal void @work(ptr %ctx) nounwind {{
entry:
 %p.next = getelementptr i8, ptr %ctx, i64 64
 %p.blocks = getelementptr i8, ptr %ctx, i64 136
 %blocks = load i64, ptr %p.blocks
 %p.grab = getelementptr i8, ptr %ctx, i64 144
 %grab = load i64, ptr %p.grab
 %p.batch = getelementptr i8, ptr %ctx, i64 152
 %batch = load i64, ptr %p.batch
 %buffers = getelementptr i8, ptr %ctx, i64 160
 %b0 = atomicrmw add ptr %p.next, i64 %grab monotonic
 %any = icmp ult i64 %b0, %blocks
 br i1 %any, label %begin, label %end
begin:
 %raw = call ptr @malloc(i64 {scratch})
 %r0 = ptrtoint ptr %raw to i64
 %r1 = add i64 %r0, 63
 %r2 = and i64 %r1, -64
 %scratch = inttoptr i64 %r2 to ptr
 br label %loop
loop:
 %b = phi i64 [%b0, %begin], [%b1, %loop]
 %e0 = add i64 %b, %grab
 %small = icmp ult i64 %e0, %blocks
 %e = select i1 %small, i64 %e0, i64 %blocks
 call void @kernel(ptr %buffers, i64 %b, i64 %e, i64 %batch, ptr %scratch)
 %n = sub i64 %e, %b
 %d = atomicrmw add ptr %ctx, i64 %n release
 %b1 = atomicrmw add ptr %p.next, i64 %grab monotonic
 %more = icmp ult i64 %b1, %blocks
 br i1 %more, label %loop, label %finish
finish:
 call void @free(ptr %raw)
 br label %end
end:
 ret void
}}

define internal void @release(ptr %ctx) nounwind {{
entry:
 %p.refs = getelementptr i8, ptr %ctx, i64 128
 %r = atomicrmw sub ptr %p.refs, i64 1 acq_rel
 %last = icmp eq i64 %r, 1
 br i1 %last, label %drop, label %end
drop:
 call void @free(ptr %ctx)
 br label %end
end:
 ret void
}}

define internal void @task(ptr %ctx) nounwind {{
 call void @work(ptr %ctx)
 call void @release(ptr %ctx)
 ret void
}}

define ptr @handler(ptr %f) nounwind {{
entry:
 %pe = getelementptr i8, ptr %f, i64 8
 %ext = load ptr, ptr %pe
 %none = icmp eq ptr %ext, null
 br i1 %none, label %run, label %check
check:
 %pt = getelementptr i8, ptr %ext, i64 8
 %kind = load i32, ptr %pt
 %is_meta = icmp eq i32 %kind, 1
 br i1 %is_meta, label %meta, label %run
meta:
 %pm = getelementptr i8, ptr %ext, i64 24
 %md = load ptr, ptr %pm
 %pa = getelementptr i8, ptr %f, i64 16
 %mapi = load ptr, ptr %pa
 %pma = getelementptr i8, ptr %mapi, i64 32
 %major = load i32, ptr %pma
 %pmi = getelementptr i8, ptr %mapi, i64 36
 %minor = load i32, ptr %pmi
 %d1 = getelementptr i8, ptr %md, i64 24
 store i32 %major, ptr %d1
 %d2 = getelementptr i8, ptr %md, i64 28
 store i32 %minor, ptr %d2
 ret ptr null
run:
 %papi = getelementptr i8, ptr %f, i64 16
 %api = load ptr, ptr %papi
 %pctx = getelementptr i8, ptr %f, i64 24
 %xctx = load ptr, ptr %pctx
 %ctx = call ptr @malloc(i64 {context})
 store i64 0, ptr %ctx
 %c.next = getelementptr i8, ptr %ctx, i64 64
 store i64 0, ptr %c.next
 %c.refs = getelementptr i8, ptr %ctx, i64 128
 %c.blocks = getelementptr i8, ptr %ctx, i64 136
 %pargs = getelementptr i8, ptr %f, i64 72
 %args = load ptr, ptr %pargs
 %prets = getelementptr i8, ptr %f, i64 112
 %rets = load ptr, ptr %prets
{batch}
 %up = add i64 %batch, {width_less_one}
 %blocks = udiv i64 %up, {width}
 store i64 %blocks, ptr %c.blocks
 %c.batch = getelementptr i8, ptr %ctx, i64 152
 store i64 %batch, ptr %c.batch
 %tasks0 = udiv i64 %blocks, {blocks_per_task}
 %tasks = call i64 @llvm.umin.i64(i64 %tasks0, i64 %blocks)
 %few = icmp ult i64 %tasks, 2
{buffers}
 ; threads: those of the pool, at most as many as the setting says, and no more than there are pieces worth it
 %asked = load i64, ptr @jaxdyn_lanes_threads
 %c.grab = getelementptr i8, ptr %ctx, i64 144
 %one = icmp eq i64 %asked, 1
 %alone = or i1 %few, %one
 br i1 %alone, label %single, label %many
single:
 store i64 %blocks, ptr %c.grab
 store i64 1, ptr %c.refs
 call void @work(ptr %ctx)
 call void @release(ptr %ctx)
 ret ptr null
many:
 %nargs = alloca [4 x i64]
 %nout = alloca i64
 store i64 1, ptr %nout
 store i64 32, ptr %nargs
 %na1 = getelementptr i64, ptr %nargs, i64 1
 store i64 0, ptr %na1
 %na2 = getelementptr i64, ptr %nargs, i64 2
 store ptr %xctx, ptr %na2
 %na3 = getelementptr i64, ptr %nargs, i64 3
 store ptr %nout, ptr %na3
 %pnum = getelementptr i8, ptr %api, i64 144
 %num = load ptr, ptr %pnum
 %nerr = call ptr %num(ptr %nargs)
 call void @drop_error(ptr %api, ptr %nerr)
 %pool = load i64, ptr %nout
 %unset = icmp eq i64 %asked, 0
 %wish = select i1 %unset, i64 %pool, i64 %asked
 %t0 = call i64 @llvm.umin.i64(i64 %wish, i64 %tasks)
 %threads = call i64 @llvm.umax.i64(i64 %t0, i64 1)
 ; about four pieces per thread, so that a slow thread does not hold up the rest
 %quarters = mul i64 %threads, 4
 %g0 = udiv i64 %blocks, %quarters
 %grab = call i64 @llvm.umax.i64(i64 %g0, i64 1)
 store i64 %grab, ptr %c.grab
 store i64 %threads, ptr %c.refs
 %sargs = alloca [5 x i64]
 store i64 40, ptr %sargs
 %sa1 = getelementptr i64, ptr %sargs, i64 1
 store i64 0, ptr %sa1
 %sa2 = getelementptr i64, ptr %sargs, i64 2
 store ptr %xctx, ptr %sa2
 %sa3 = getelementptr i64, ptr %sargs, i64 3
 store ptr @task, ptr %sa3
 %sa4 = getelementptr i64, ptr %sargs, i64 4
 store ptr %ctx, ptr %sa4
 %psch = getelementptr i8, ptr %api, i64 136
 %schedule = load ptr, ptr %psch
 br label %scheduling
scheduling:
 %i = phi i64 [1, %many], [%i1, %scheduled]
 %go = icmp ult i64 %i, %threads
 br i1 %go, label %send, label %own
send:
 %serr = call ptr %schedule(ptr %sargs)
 %ok = icmp eq ptr %serr, null
 br i1 %ok, label %scheduled, label %refused
refused:
 call void @drop_error(ptr %api, ptr %serr)
 call void @release(ptr %ctx)
 br label %scheduled
scheduled:
 %i1 = add i64 %i, 1
 br label %scheduling
own:
 call void @work(ptr %ctx)
 br label %waiting
waiting:
 %done = load atomic i64, ptr %ctx acquire, align 8
 %all = icmp eq i64 %done, %blocks
 br i1 %all, label %finish, label %wait
wait:
 call void @sched_yield()
 br label %waiting
finish:
 call void @release(ptr %ctx)
 ret ptr null
}}

define internal void @drop_error(ptr %api, ptr %error) nounwind {{
entry:
 %none = icmp eq ptr %error, null
 br i1 %none, label %end, label %drop
drop:
 %args = alloca [3 x i64]
 store i64 24, ptr %args
 %a1 = getelementptr i64, ptr %args, i64 1
 store i64 0, ptr %a1
 %a2 = getelementptr i64, ptr %args, i64 2
 store ptr %error, ptr %a2
 %pd = getelementptr i8, ptr %api, i64 64
 %destroy = load ptr, ptr %pd
 call void %destroy(ptr %args)
 br label %end
end:
 ret void
}}
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
"""


def handler_code(kernel: KernelCode, inputs: int, outputs: Sequence[str], has_lanes: bool) -> str:
    """LLVM text of the FFI handler. The batch size is read from the first result."""
    lines = []
    for k in range(inputs + len(outputs)):
        source, position = ("args", k) if k < inputs else ("rets", k - inputs)
        lines += [
            f" %ba{k} = getelementptr ptr, ptr %{source}, i64 {position}",
            f" %bb{k} = load ptr, ptr %ba{k}",
            f" %bc{k} = getelementptr i8, ptr %bb{k}, i64 24",
            f" %bd{k} = load ptr, ptr %bc{k}",
            f" %be{k} = getelementptr i8, ptr %ctx, i64 {160 + 8 * k}",
            f" store ptr %bd{k}, ptr %be{k}",
        ]
    batch = [
        " %out0 = load ptr, ptr %rets",
        " %pdims = getelementptr i8, ptr %out0, i64 40",
        " %dims = load ptr, ptr %pdims",
        " %prank = getelementptr i8, ptr %out0, i64 32",
        " %rank = load i64, ptr %prank",
        " %last = sub i64 %rank, 1",
        f" %pbatch = getelementptr i64, ptr %dims, i64 {'%last' if outputs[0] == 'columns' else '0'}",
        " %batch = load i64, ptr %pbatch",
    ]
    return _HANDLER.format(
        scratch=kernel.scratch_bytes + 64,
        context=160 + 8 * (inputs + len(outputs)),
        batch="\n".join(batch) if has_lanes else " %batch = add i64 1, 0",
        width=kernel.width,
        width_less_one=kernel.width - 1,
        blocks_per_task=max(1, _OPERATIONS_PER_TASK // max(1, kernel.operations * kernel.width)),
        buffers="\n".join(lines),
    )
