"""HDF5 files, among them MATLAB files since version 7.3, read with h5py: the path of an array in the file is its name."""

from collections.abc import Container, Sequence
from typing import Any, BinaryIO

import h5py
import numpy as np

from jaxdyn.io.files import check_unpacked
from jaxdyn.io.logs.matlab import columns_of_matlab

_MOST_OBJECTS = 100_000


def columns(files: Sequence[BinaryIO], wanted: Container[str]) -> dict[str, np.ndarray | None]:
    """The arrays of one file; those that are not wanted are None.

    Links are not followed, and neither are references to other files.

    Raises:
        ValueError, OSError, RuntimeError, KeyError: The file is damaged, or an array has another type.
    """
    (file,) = files
    arrays: dict[str, h5py.Dataset] = {}
    with h5py.File(file, "r") as root:
        count = 0

        def visit(name: str, item: Any) -> bool | None:
            nonlocal count
            count += 1
            if isinstance(item, h5py.Dataset) and isinstance(name, str):  # bytes, if the text is damaged
                arrays[name] = item
            return True if count > _MOST_OBJECTS else None

        if root.visititems(visit):
            raise ValueError(f"it contains more than {_MOST_OBJECTS} arrays and groups")
        chosen = {name: item for name, item in arrays.items() if name in wanted}
        check_unpacked(file, sum(item.size * item.dtype.itemsize for item in chosen.values()))
        return dict.fromkeys(arrays) | {name: _array(name, item) for name, item in chosen.items()}


def _array(name: str, item: h5py.Dataset) -> np.ndarray:
    if item.dtype.kind not in "fiu":
        raise ValueError(f"{name!r} has type {item.dtype}; give a numeric array")
    if item.is_virtual or item.external:
        raise ValueError(f"the values of {name!r} are in another file; copy them into this one, with h5repack")
    array = np.asarray(item[()])
    return columns_of_matlab(array.T) if "MATLAB_class" in item.attrs else array  # MATLAB stores the transpose
