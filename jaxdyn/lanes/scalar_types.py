"""Types of the scalars of a program."""

import functools

import numpy as np

FLOATS = ("f32", "f64")
INTEGERS = ("i32", "i64", "u32", "u64", "i8", "u8", "i16", "u16")
TYPES = (*FLOATS, *INTEGERS, "bool")

_TYPE_OF_DTYPE = {
    "float32": "f32",
    "float64": "f64",
    "bool": "bool",
    **{f"{'u' if t[0] == 'u' else ''}int{t[1:]}": t for t in INTEGERS},
}
_DTYPE_OF_TYPE = {t: np.dtype(d) for d, t in _TYPE_OF_DTYPE.items()}


@functools.cache
def type_of_dtype(dtype) -> str | None:
    """Scalar type of an array type, or None if programs do not support it."""
    return _TYPE_OF_DTYPE.get(np.dtype(dtype).name) if isinstance(dtype, np.dtype | type) else None


def dtype_of_type(kind: str) -> np.dtype:
    return _DTYPE_OF_TYPE[kind]
