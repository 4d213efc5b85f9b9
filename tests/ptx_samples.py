"""Small PTX kernels for the tests of the interpreter, and floats that show where arithmetic differs."""

import numpy as np
from ptx_text import TYPES


def module(parameters: int, body: str, before: str = "", name: str = "kernel") -> str:
    """A kernel with registers %p, %h (16 bits), %r (32) and %d (64), buffer k at %d9k and the thread's number in %r90 and %d80."""
    listed = ", ".join(f".param .u64 a{k}" for k in range(parameters))
    loads = "\n".join(f"ld.param.u64 %d9{k}, [a{k}];" for k in range(parameters))
    return f"""
.version 8.0
.target sm_90
.address_size 64
{before}
.visible .entry {name}({listed})
{{
.reg .pred %p<100>; .reg .b16 %h<100>;
.reg .b32 %r<100>; .reg .b64 %d<100>;
{loads}
mov.u32 %r90, %tid.x; mov.u32 %r91, %ctaid.x; mov.u32 %r92, %ntid.x;
mad.lo.u32 %r90, %r91, %r92, %r90;
cvt.u64.u32 %d80, %r90;
{body}
ret;
}}"""


def element(pointer: int, kind: str, scratch: int) -> str:
    """Instructions that leave the address of the thread's element in %d{scratch}."""
    return f"mul.lo.u64 %d{scratch}, %d80, {TYPES[kind].itemsize}; add.u64 %d{scratch}, %d{scratch}, %d9{pointer};\n"


def bit_patterns(x) -> np.ndarray:
    """Bits, the same ones for every NaN."""
    x = np.asarray(x)
    return np.where(np.isnan(x), np.nan, x).view(f"u{x.itemsize}")


def assert_same_floats(found, expected):
    np.testing.assert_array_equal(bit_patterns(found), bit_patterns(expected))


SMALLEST = 2.0**-149
FLOATS = [0.0, -0.0, 1.0, -1.5, 3.0, 1e-3, 2.0**-126, -(2.0**-126), 2.0**-127, -SMALLEST, SMALLEST, 2.0**127, -3.4e38]
FLOATS += [np.inf, -np.inf, np.nan, 2.0**-120, 0.1, 7e9, 2.5, 0.5, -0.5, 2.0**31, -(2.0**31), 2.0**63, 255.5, -129.0]
