"""Memory of a PTX kernel in which every access is checked.

Each buffer, table and variable is a region with 2^40 addresses of its own, so an address that is wrong by any smaller amount does
not reach another region. A region starts where any vector may, as memory on a GPU does, so alignment counts from its start.
It holds one copy for all threads (global) or one for each thread (local). Each byte that may be written remembers which thread has
written it, so that reading what nobody has written is found, and so are two threads that access the same byte.
"""

import numpy as np
from ptx_text import PtxError

_BITS = 40  # of an address within a region
_NOBODY, _GIVEN = -1, -2  # in place of a thread


class Region:
    """Bytes with one meaning.

    Args:
        name: for messages.
        space: "global", "const" or "local".
        data: (copies, size) or (size,) bytes, which are accessed in place.
        copy: which copy each thread sees, (threads,).
        writable: whether the kernel may store here; then it reads only what it has written.
    """

    def __init__(self, name: str, space: str, data: np.ndarray, copy: np.ndarray, writable: bool):
        self.name, self.space, self.copy = name, space, copy
        self.size = data.shape[-1]
        # Copies start at multiples of the largest vector, so that an address shows whether an access is aligned.
        self.stride = -(-self.size // 32) * 32
        if data.ndim == 2:
            data = np.pad(data, ((0, 0), (0, self.stride - self.size))).reshape(-1)
        self.bytes, self.writable = data, writable
        self.writer = np.full(data.size, _NOBODY if writable else _GIVEN, np.int32)

    def rows(self, of: np.ndarray, width: int) -> np.ndarray:
        """What belongs to bytes, in rows of `width`, so that an aligned access is one row."""
        return of[: of.size // width * width].reshape(-1, width)


class Memory:
    """All regions that a launch can reach, by address."""

    def __init__(self):
        self.regions: list[Region] = []

    def add(self, region: Region) -> int:
        """Returns the address at which the region starts."""
        self.regions.append(region)
        return len(self.regions) << _BITS

    def load(self, address: np.ndarray, threads: np.ndarray, kind: np.dtype, count: int, space: str, read_only: bool):
        """`count` numbers at each address, (threads, count). `read_only`: nobody may ever write there."""
        width = kind.itemsize * count
        result = np.empty((threads.size, count), kind)
        for region, part, row in self._located(address, threads, width, space):
            writer = region.rows(region.writer, width)[row]
            if read_only and region.writable:
                raise PtxError(f"reads {region.name} through the read-only cache, but the kernel writes it")
            if not ((writer == threads[part][:, None]) | (writer == _GIVEN)).all():
                raise PtxError(f"reads in {region.name} what nobody has written, or another thread")
            result[part] = region.rows(region.bytes, width)[row].view(kind)
        return result

    def store(self, address: np.ndarray, threads: np.ndarray, values: np.ndarray, space: str) -> None:
        """`values`: (threads, count)."""
        width = values.dtype.itemsize * values.shape[1]
        for region, part, row in self._located(address, threads, width, space):
            if not region.writable:
                raise PtxError(f"writes {region.name}, which is read-only")
            writers, who = region.rows(region.writer, width), threads[part][:, None]
            is_free = (writers[row] == who) | (writers[row] == _NOBODY)
            writers[row] = who
            if not (is_free & (writers[row] == who)).all():
                raise PtxError(f"writes in {region.name} what another thread writes too")
            region.rows(region.bytes, width)[row] = np.ascontiguousarray(values[part]).view(np.uint8)

    def _located(self, address: np.ndarray, threads: np.ndarray, width: int, space: str):
        """Region, threads (positions among those given) and rows that they access."""
        which = address >> np.uint64(_BITS)
        for number in np.unique(which):
            part = np.flatnonzero(which == number)
            if not 1 <= number <= len(self.regions):
                raise PtxError("accesses no buffer at all")
            region = self.regions[int(number) - 1]
            offset = (address[part] & np.uint64((1 << _BITS) - 1)).astype(np.int64)
            if space not in ("", region.space):
                raise PtxError(f"accesses {region.name} as {space} memory")
            if (offset + width > region.size).any():
                raise PtxError(f"accesses {width} bytes outside the {region.size} bytes of {region.name}")
            if (offset % width).any():
                raise PtxError(f"accesses {width} bytes of {region.name} at a misaligned address")
            yield region, part, (offset + region.copy[threads[part]] * region.stride) // width
