"""Calls of kernels by XLA: handlers with the calling convention of the typed XLA FFI, written in LLVM code.

Handlers need no C compiler, and no Python runs during a call. XLA keeps a handler until the process ends, so one set of
handlers serves all kernels, and each call names its kernel by a key. The handlers share a list of kernels; each entry (`Code`)
counts the calls of its kernel in existing executables. When XLA creates an executable, it runs `instantiate`, which finds the entry
by its key and increments the count, or rejects a key that is not in the list. When XLA destroys an executable, it runs `forget`,
which decrements the count. `leave` removes a kernel from the list only if its count is zero, so executables do not call freed
memory.

The machine code of a kernel can be made after its entry, while XLA compiles the function that calls it: `execute` waits until the
kernel is published. It divides the batch into parts that the threads of XLA's pool take one after the other. The calling thread
works too, and waits only for parts that another thread has begun.

JAX allocates new memory for every result, and the system maps it page by page at the first write, which for a large result takes
longer than most kernels. `execute` therefore asks Linux for huge pages, as NumPy does for its arrays.
"""

import ctypes
import os
import re
import sys

import jax
import llvmlite.binding as llvm

from jaxdyn.lanes.llvm_engine import USUAL_EFFORT, key_of_code, loaded, source_of_code

# Target of the custom calls, and type of the object that an executable keeps for each of them.
TARGET = "jaxdyn_lanes"

# Results of at least this number of bytes contain huge pages, which are 2 MB.
_LARGE = 2**22


def _written_out(text: str) -> str:
    """LLVM code for two shorthands: a field of a structure at an offset in bytes, and a structure of 8-byte fields on the stack."""

    def frame(match: re.Match) -> str:
        name, fields = match[1], match[2].split(", ")
        places = [f" {name}.{k} = getelementptr i64, ptr {name}, i64 {k}" for k in range(len(fields))]
        stores = [f" store {field}, ptr {name}.{k}" for k, field in enumerate(fields)]
        return "\n".join([f" {name} = alloca [{len(fields)} x i64]", *places, *stores])

    field = r" \1.place = getelementptr i8, ptr \3, i64 \4\n \1 = load \2, ptr \1.place"
    text = re.sub(r"^ (%\S+) = field (\w+), ptr (%\S+), (\d+)$", field, text, flags=re.MULTILINE)
    return re.sub(r"^ (%\S+) = frame (.*)$", frame, text, flags=re.MULTILINE)


# Offsets within the structures of xla/ffi/api/c_api.h, which is part of jaxlib (jax.ffi.include_dir()). Frames begin with their
# size and the extensions; 0 is the stage whose object, kept when an executable is made, `set` and `get` are asked for.
_HANDLERS = _written_out(r"""
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @sched_yield()
declare i32 @usleep(i32)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @madvise(ptr, i64, i32)
@jaxdyn_lanes_threads = external global i64
@jaxdyn_lanes_type = external global i64
@jaxdyn_lanes_large = external global i64
; bytes of a scalar by its type in XLA: bool, i8 to i64, u8 to u64, and f16 to f64
@scalar.bytes = private constant [13 x i8] c"\00\01\01\02\04\08\01\02\04\08\02\04\08"
@no_code = private constant [86 x i8] c"the machine code of this executable is not in this process; compile the function here\00"
@no_kernel = private constant [63 x i8] c"the machine code could not be made; the log of jaxdyn says why\00"
@locked = internal global i64 0
@codes = internal global ptr null

; ctx: 0 blocks done, 64 next block, 128 references, 136 blocks, 144 blocks per grab, 152 batch, 160 code, 168 buffers
define internal void @work(ptr %ctx) nounwind {
entry:
 %p.next = getelementptr i8, ptr %ctx, i64 64
 %blocks = field i64, ptr %ctx, 136
 %grab = field i64, ptr %ctx, 144
 %batch = field i64, ptr %ctx, 152
 %buffers = getelementptr i8, ptr %ctx, i64 168
 %b0 = atomicrmw add ptr %p.next, i64 %grab monotonic
 %any = icmp ult i64 %b0, %blocks
 br i1 %any, label %begin, label %end
begin:
 ; only after it has got a block: a task that starts late may find its executable and the code gone
 %code = field ptr, ptr %ctx, 160
 %kernel = field ptr, ptr %code, 48
 %bytes = field i64, ptr %code, 56
 %more.bytes = add i64 %bytes, 64
 %raw = call ptr @malloc(i64 %more.bytes)
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
 call void %kernel(ptr %buffers, i64 %b, i64 %e, i64 %batch, ptr %scratch)
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
}

define internal void @release(ptr %ctx) nounwind {
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
}

define internal void @task(ptr %ctx) nounwind {
 call void @work(ptr %ctx)
 call void @release(ptr %ctx)
 ret void
}

; Whether XLA asks for the version of its interface and the type of the object that a handler keeps; answers if so.
define internal i1 @asks(ptr %f) nounwind {
entry:
 %ext = field ptr, ptr %f, 8
 %none = icmp eq ptr %ext, null
 br i1 %none, label %no, label %check
check:
 %kind = field i32, ptr %ext, 8
 %is_meta = icmp eq i32 %kind, 1
 br i1 %is_meta, label %meta, label %no
meta:
 %md = field ptr, ptr %ext, 24
 %api = field ptr, ptr %f, 16
 %major = field i32, ptr %api, 32
 %minor = field i32, ptr %api, 36
 %d1 = getelementptr i8, ptr %md, i64 24
 store i32 %major, ptr %d1
 %d2 = getelementptr i8, ptr %md, i64 28
 store i32 %minor, ptr %d2
 %d3 = getelementptr i8, ptr %md, i64 40
 %type = load i64, ptr @jaxdyn_lanes_type
 store i64 %type, ptr %d3
 ret i1 true
no:
 ret i1 false
}

define internal void @lock() nounwind {
entry:
 br label %try
try:
 %was = cmpxchg ptr @locked, i64 0, i64 1 acquire monotonic
 %got = extractvalue { i64, i1 } %was, 1
 br i1 %got, label %end, label %wait
wait:
 call void @sched_yield()
 br label %try
end:
 ret void
}

define internal void @unlock() nounwind {
 store atomic i64 0, ptr @locked release, align 8
 ret void
}

define void @enter(ptr %code) nounwind {
 call void @lock()
 %first = load ptr, ptr @codes
 store ptr %first, ptr %code
 store ptr %code, ptr @codes
 call void @unlock()
 ret void
}

; The kernel of an entry is ready: its address; or 1 if it could not be made.
define void @publish(ptr %code, i64 %kernel) nounwind {
 %p = getelementptr i8, ptr %code, i64 48
 store atomic i64 %kernel, ptr %p release, align 8
 ret void
}

; Waits until the kernel is ready; says whether it could be made.
define internal i1 @await(ptr %code) nounwind {
entry:
 %p = getelementptr i8, ptr %code, i64 48
 br label %look
look:
 %kernel = load atomic i64, ptr %p acquire, align 8
 %none = icmp eq i64 %kernel, 0
 br i1 %none, label %wait, label %end
wait:
 %ignored = call i32 @usleep(i32 100)
 br label %look
end:
 %made = icmp ne i64 %kernel, 1
 ret i1 %made
}

; Takes a code off the list unless an executable holds it; says whether it did.
define i64 @leave(ptr %code) nounwind {
entry:
 call void @lock()
 %pr = getelementptr i8, ptr %code, i64 8
 %references = load atomic i64, ptr %pr acquire, align 8
 %held = icmp ne i64 %references, 0
 br i1 %held, label %stays, label %search
search:
 %link = phi ptr [@codes, %entry], [%here, %search]
 %here = load ptr, ptr %link
 %found = icmp eq ptr %here, %code
 br i1 %found, label %goes, label %search
goes:
 %after = load ptr, ptr %code
 store ptr %after, ptr %link
 call void @unlock()
 ret i64 1
stays:
 call void @unlock()
 ret i64 0
}

; An executable is made: it holds its code from now on.
define ptr @instantiate(ptr %f) nounwind {
entry:
 %asks = call i1 @asks(ptr %f)
 br i1 %asks, label %answered, label %begin
answered:
 ret ptr null
begin:
 %api = field ptr, ptr %f, 16
 %xctx = field ptr, ptr %f, 24
 %count = field i64, ptr %f, 136
 %single = icmp eq i64 %count, 1
 br i1 %single, label %named, label %unknown
named:
 %attrs = field ptr, ptr %f, 160
 %span = load ptr, ptr %attrs
 %name = load ptr, ptr %span
 %length = field i64, ptr %span, 8
 %right = icmp eq i64 %length, 32
 br i1 %right, label %search, label %unknown
search:
 call void @lock()
 %first = load ptr, ptr @codes
 br label %look
look:
 %code = phi ptr [%first, %search], [%following, %next]
 %none = icmp eq ptr %code, null
 br i1 %none, label %missing, label %compare
compare:
 %key = getelementptr i8, ptr %code, i64 16
 %difference = call i32 @memcmp(ptr %key, ptr %name, i64 32)
 %same = icmp eq i32 %difference, 0
 br i1 %same, label %hold, label %next
next:
 %following = load ptr, ptr %code
 br label %look
missing:
 call void @unlock()
 br label %unknown
hold:
 %pr = getelementptr i8, ptr %code, i64 8
 %before = atomicrmw add ptr %pr, i64 1 monotonic
 call void @unlock()
 %s.args = frame i64 48, i64 0, ptr %xctx, i64 0, ptr @jaxdyn_lanes_type, ptr %code
 %set = field ptr, ptr %api, 104
 %serr = call ptr %set(ptr %s.args)
 %ok = icmp eq ptr %serr, null
 br i1 %ok, label %end, label %refused
refused:
 call void @forget(ptr %code)
 br label %end
end:
 ret ptr %serr
unknown:
 %made = call ptr @failure(ptr %api, ptr @no_code, i64 5)
 ret ptr %made
}

; An error of XLA with a message and a status, of which 5 says that something is not found and 13 that it is internal.
define internal ptr @failure(ptr %api, ptr %message, i64 %status) nounwind {
 %error = frame i64 28, i64 0, ptr %message, i64 %status
 %create = field ptr, ptr %api, 48
 %made = call ptr %create(ptr %error)
 ret ptr %made
}

; Asks Linux for huge pages (2 MB, advice 14) in a large result.
define internal void @advise(ptr %buffer) nounwind {
entry:
 %type = field i32, ptr %buffer, 16
 %data = field i64, ptr %buffer, 24
 %rank = field i64, ptr %buffer, 32
 %dims = field ptr, ptr %buffer, 40
 %p.scalar = getelementptr i8, ptr @scalar.bytes, i32 %type
 %scalar = load i8, ptr %p.scalar
 %scalar.bytes = zext i8 %scalar to i64
 br label %axis
axis:
 %k = phi i64 [0, %entry], [%k1, %multiply]
 %bytes = phi i64 [%scalar.bytes, %entry], [%more.bytes, %multiply]
 %counted = icmp eq i64 %k, %rank
 br i1 %counted, label %compare, label %multiply
multiply:
 %p.length = getelementptr i64, ptr %dims, i64 %k
 %length = load i64, ptr %p.length
 %more.bytes = mul i64 %bytes, %length
 %k1 = add i64 %k, 1
 br label %axis
compare:
 %least = load i64, ptr @jaxdyn_lanes_large
 %small = icmp ult i64 %bytes, %least
 br i1 %small, label %end, label %large
large:
 ; from the first place of a huge page in the result
 %up = add i64 %data, 2097151
 %first = and i64 %up, -2097152
 %stop = add i64 %data, %bytes
 %span = sub i64 %stop, %first
 %place = inttoptr i64 %first to ptr
 %ignored = call i32 @madvise(ptr %place, i64 %span, i32 14)
 br label %end
end:
 ret void
}

; An executable is gone.
define void @forget(ptr %code) nounwind {
 %pr = getelementptr i8, ptr %code, i64 8
 %before = atomicrmw sub ptr %pr, i64 1 release
 ret void
}

define ptr @execute(ptr %f) nounwind {
entry:
 %asks = call i1 @asks(ptr %f)
 br i1 %asks, label %answered, label %begin
answered:
 ret ptr null
begin:
 %api = field ptr, ptr %f, 16
 %xctx = field ptr, ptr %f, 24
 %s.args = frame i64 48, i64 0, ptr %xctx, i64 0, ptr @jaxdyn_lanes_type, i64 0
 %get = field ptr, ptr %api, 112
 %gerr = call ptr %get(ptr %s.args)
 %kept = icmp eq ptr %gerr, null
 br i1 %kept, label %found, label %lost
lost:
 ret ptr %gerr
found:
 %code = field ptr, ptr %s.args, 40
 %ready = call i1 @await(ptr %code)
 br i1 %ready, label %call, label %impossible
impossible:
 %failure = call ptr @failure(ptr %api, ptr @no_kernel, i64 13)
 ret ptr %failure
call:
 %n.args = field i64, ptr %f, 56
 %args = field ptr, ptr %f, 72
 %n.rets = field i64, ptr %f, 96
 %rets = field ptr, ptr %f, 112
 %n.buffers = add i64 %n.args, %n.rets
 %n.bytes = mul i64 %n.buffers, 8
 %c.bytes = add i64 %n.bytes, 168
 %ctx = call ptr @malloc(i64 %c.bytes)
 store i64 0, ptr %ctx
 %c.next = getelementptr i8, ptr %ctx, i64 64
 store i64 0, ptr %c.next
 %c.refs = getelementptr i8, ptr %ctx, i64 128
 %c.blocks = getelementptr i8, ptr %ctx, i64 136
 %c.code = getelementptr i8, ptr %ctx, i64 160
 store ptr %code, ptr %c.code
 %c.buffers = getelementptr i8, ptr %ctx, i64 168
 br label %buffer
buffer:
 %k = phi i64 [0, %call], [%k1, %following]
 %is_arg = icmp ult i64 %k, %n.args
 %k.ret = sub i64 %k, %n.args
 %k.own = select i1 %is_arg, i64 %k, i64 %k.ret
 %list = select i1 %is_arg, ptr %args, ptr %rets
 %pb = getelementptr ptr, ptr %list, i64 %k.own
 %b = load ptr, ptr %pb
 %data = field ptr, ptr %b, 24
 %pplace = getelementptr ptr, ptr %c.buffers, i64 %k
 store ptr %data, ptr %pplace
 br i1 %is_arg, label %following, label %result
result:
 call void @advise(ptr %b)
 br label %following
following:
 %k1 = add i64 %k, 1
 %all.buffers = icmp eq i64 %k1, %n.buffers
 br i1 %all.buffers, label %lanes, label %buffer
lanes:
 ; the batch size is that of the first result
 %axis = field i64, ptr %code, 80
 %one.sample = icmp slt i64 %axis, 0
 br i1 %one.sample, label %counted, label %many.samples
many.samples:
 %out0 = load ptr, ptr %rets
 %dims = field ptr, ptr %out0, 40
 %rank = field i64, ptr %out0, 32
 %last = sub i64 %rank, 1
 %position = mul i64 %last, %axis
 %pbatch = getelementptr i64, ptr %dims, i64 %position
 %found.batch = load i64, ptr %pbatch
 br label %counted
counted:
 %batch = phi i64 [1, %lanes], [%found.batch, %many.samples]
 %width = field i64, ptr %code, 64
 %up0 = add i64 %batch, %width
 %up = sub i64 %up0, 1
 %blocks = udiv i64 %up, %width
 store i64 %blocks, ptr %c.blocks
 %c.batch = getelementptr i8, ptr %ctx, i64 152
 store i64 %batch, ptr %c.batch
 %per = field i64, ptr %code, 72
 %tasks = udiv i64 %blocks, %per
 %few = icmp ult i64 %tasks, 2
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
 %nout = alloca i64
 store i64 1, ptr %nout
 %nargs = frame i64 32, i64 0, ptr %xctx, ptr %nout
 %num = field ptr, ptr %api, 144
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
 %sargs = frame i64 40, i64 0, ptr %xctx, ptr @task, ptr %ctx
 %schedule = field ptr, ptr %api, 136
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
}

define internal void @drop_error(ptr %api, ptr %error) nounwind {
entry:
 %none = icmp eq ptr %error, null
 br i1 %none, label %end, label %drop
drop:
 %args = frame i64 24, i64 0, ptr %error
 %destroy = field ptr, ptr %api, 64
 call void %destroy(ptr %args)
 br label %end
end:
 ret void
}
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
""")


class Code(ctypes.Structure):
    """Description of a kernel for the handlers; the LLVM code of the handlers contains the offsets of these fields.

    Attributes:
        following: Next entry of the list of kernels.
        references: Number of calls of the kernel in existing executables.
        key: Name of 32 characters.
        kernel: Address of the function; 0 while its code is being made, and 1 if it could not be made.
        scratch: Bytes of scratch memory that a thread needs for the kernel.
        width: Samples per vector.
        blocks_per_task: Number of vectors that justify waking another thread.
        lane_axis: Axis of lanes of the first result: 0 for its first axis, 1 for its last axis, and -1 for one sample without an
            axis of lanes.
    """

    _fields_ = (
        ("following", ctypes.c_void_p),
        ("references", ctypes.c_int64),
        ("key", ctypes.c_char * 32),
        ("kernel", ctypes.c_void_p),
        ("scratch", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("blocks_per_task", ctypes.c_int64),
        ("lane_axis", ctypes.c_int64),
    )


class _TypeInfo(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Handlers:
    """The handlers of this process, compiled and registered with XLA, which may call them until the process ends.

    Args:
        threads: Maximum number of threads of a call, 0 for no limit.
    """

    def __init__(self, threads: ctypes.c_int64):
        self._type, self._threads = ctypes.c_int64(0), threads
        huge = sys.platform == "linux" and os.environ.get("JAXDYN_HUGE_PAGES") != "0"
        self._large = ctypes.c_int64(_LARGE if huge else -1)  # unsigned, -1 is larger than any size
        for name, value in {"threads": self._threads, "type": self._type, "large": self._large}.items():
            llvm.add_symbol(f"jaxdyn_lanes_{name}", ctypes.addressof(value))
        engine = loaded(source_of_code(key_of_code(_HANDLERS, USUAL_EFFORT), _HANDLERS, USUAL_EFFORT)())
        address = engine.get_function_address
        self._info = _TypeInfo(ctypes.sizeof(_TypeInfo), None, address("forget"))
        self._enter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("enter"))
        self._publish = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address("publish"))
        self._leave = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address("leave"))
        capsule = jax.ffi.pycapsule
        jax.ffi.register_ffi_type(TARGET, {"type_id": _pointer(self._type), "type_info": _pointer(self._info)})
        stages = {stage: capsule(ctypes.c_void_p(address(stage))) for stage in ("instantiate", "execute")}
        jax.ffi.register_ffi_target(TARGET, stages, platform="cpu")
        engine.detach()  # never freed

    def enter(self, code: Code) -> None:
        """Add the kernel to the list, so that executables may use it; `code` must keep its address until it is removed."""
        self._enter(ctypes.addressof(code))

    def publish(self, code: Code, kernel: int | None) -> None:
        """Let executables call the kernel at this address; None if it could not be made, so that its calls fail."""
        self._publish(ctypes.addressof(code), 1 if kernel is None else kernel)

    def leave(self, code: Code) -> bool:
        """Remove the kernel from the list unless an executable uses it; returns True if it was removed."""
        return code.references == 0 and bool(self._leave(ctypes.addressof(code)))


def _pointer(value):
    return jax.ffi.pycapsule(ctypes.c_void_p(ctypes.addressof(value)))
