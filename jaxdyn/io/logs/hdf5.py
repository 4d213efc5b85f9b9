"""HDF5 files, among them MATLAB files since version 7.3, read with h5py: the path of an array in the file is its name."""

from collections.abc import Container, Sequence
from typing import BinaryIO

import h5py
import numpy as np

from jaxdyn.io.files import check_unpacked
from jaxdyn.io.logs.matlab import columns_of_matlab


def columns(files: Sequence[BinaryIO], wanted: Container[str]) -> dict[str, np.ndarray | None]:
    """The arrays of one file; those that are not wanted are None.

    Links are not followed, and neither are references to other files.

    Raises:
        ValueError, OSError, RuntimeError, KeyError: The file is damaged, or an array has another type.
    """
    (file,) = files
    arrays: dict[str, h5py.Dataset] = {}
    with h5py.File(file, "r") as root:
        groups: list[tuple[str, h5py.Group]] = [("", root)]
        seen = set()
        while groups:  # not a recursion, because groups may be nested without a bound, and contain themselves
            place, group = groups.pop()
            for key in group:
                if isinstance(group.get(key, getlink=True), h5py.HardLink):
                    name, item = f"{place}{key}", group[key]
                    if isinstance(item, h5py.Dataset):
                        arrays[name] = item
                    elif isinstance(item, h5py.Group) and item not in seen:
                        seen.add(item)
                        groups.append((f"{name}/", item))
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
