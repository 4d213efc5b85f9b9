"""Parquet files, read with pyarrow: columns of numeric values, of times, or of lists that have the same length in all rows."""

from collections.abc import Container, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow.compute
import pyarrow.parquet
from pyarrow import types

from jaxdyn.io.files import check_unpacked

_NUMERIC = types.is_integer, types.is_floating, types.is_timestamp, types.is_duration


def columns(files: Sequence[BinaryIO], wanted: Container[str]) -> dict[str, np.ndarray | None]:
    """The columns of one file; those that are not wanted are None.

    Raises:
        ValueError, OSError: The file is damaged, or a column has another type.
    """
    (file,) = files
    table = pyarrow.parquet.ParquetFile(file)
    found: dict[str, np.ndarray | None] = dict.fromkeys(table.schema_arrow.names)
    chosen = [name for name in found if name in wanted]
    for name in chosen:
        given = table.schema_arrow.field(name).type
        inner = given.value_type if _is_list(given) else given
        if not any(fits(inner) for fits in _NUMERIC):
            raise ValueError(f"{name!r} has type {given}; give a numeric column")
    groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
    leaves = (group.column(k) for group in groups for k in range(group.num_columns))
    # A long run of equal values takes some bytes only. A list is a leaf below the name of its column.
    starts = tuple(f"{name}." for name in chosen)
    check_unpacked(file, sum(8 * leaf.num_values for leaf in leaves if f"{leaf.path_in_schema}.".startswith(starts)))
    read = table.read(columns=chosen, use_threads=False)
    return found | {name: _array(name, read.column(name).combine_chunks()) for name in chosen}


def _is_list(given: pyarrow.DataType) -> bool:
    return types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given)


def _array(name: str, column: pyarrow.Array) -> np.ndarray:
    """The column as an array, with one row for each list; missing values are NaN."""
    if not _is_list(column.type):
        return column.to_numpy(zero_copy_only=False)
    lengths = pyarrow.compute.call_function("list_value_length", [column])
    if lengths.null_count or len(lengths.unique()) > 1:
        raise ValueError(f"the lists of {name!r} have different lengths; give one value per quantity in each row")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1 if len(column) else 1)
