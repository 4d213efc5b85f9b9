"""Memory of a PTX kernel in which every access is checked.

Each buffer, table and variable is a region with 2^40 addresses of its own, so an address that is wrong by any smaller amount does
not reach another region. A region starts where any vector may, as memory on a GPU does, so alignment counts from its start.
It holds one copy for all threads (global), for each block (shared) or for each thread (local).

Each byte that may be written remembers who wrote it. So a read of what nobody has written is found, and so is a race: two threads
that access the same byte, one of them writing, without a barrier between. (Barriers order accesses to shared memory only, and of
global memory it is not remembered who has read it.)
"""

import numpy as np
from ptx_text import PtxError

_BITS = 40  # of an address within a region
_NOBODY, _SETTLED, _SEVERAL = -1, -2, -3  # in place of a thread


class MemoryFault(PtxError):
    """An access that the kernel must not make."""


class Region:
    """Bytes with one meaning.

    Args:
        name: for messages.
        space: "global", "const", "shared" or "local".
        data: (copies, size) or (size,) bytes, which are accessed in place.
        copy: which copy each thread sees, (threads,).
        writable: whether the kernel may store here.
        initialized: whether the bytes may be read before the kernel has written them.
    """

    def __init__(self, name: str, space: str, data: np.ndarray, copy: np.ndarray, writable: bool, initialized: bool):
        self.name, self.space = name, space
        self.size = data.shape[-1]
        # Copies start at multiples of the largest vector, so that an address shows whether an access is aligned.
        self.stride = -(-self.size // 32) * 32
        if data.ndim == 2:
            data = np.pad(data, ((0, 0), (0, self.stride - self.size))).reshape(-1)
        self.bytes = data
        self.copy = copy
        self.initialized = initialized
        self.writer = np.full(data.size, _SETTLED if initialized else _NOBODY, np.int32) if writable else None
        self.reader = np.full(data.size, _NOBODY, np.int32) if space == "shared" else None

    def rows(self, of: np.ndarray, width: int) -> np.ndarray:
        """What belongs to bytes, in rows of `width`, so that an aligned access is one row."""
        return of[: of.size // width * width].reshape(-1, width)

    def settle(self, copies: np.ndarray) -> None:
        """After a barrier all threads of these blocks may read what was written before, and write what was read."""
        assert self.writer is not None
        assert self.reader is not None
        for copy in copies:
            part = slice(copy * self.stride, (copy + 1) * self.stride)
            self.writer[part][self.writer[part] >= 0] = _SETTLED
            self.reader[part] = _NOBODY


class Memory:
    """All regions that a launch can reach, by address."""

    def __init__(self):
        self.regions: list[Region] = []

    def add(self, region: Region) -> int:
        """Returns the address at which the region starts."""
        self.regions.append(region)
        return len(self.regions) << _BITS

    def load(self, address: np.ndarray, threads: np.ndarray, kind: np.dtype, count: int, space: str, read_only: bool):
        """`count` numbers at each address, (threads, count). `read_only`: loads that require that nobody ever writes there."""
        width = kind.itemsize * count
        result = np.empty((threads.size, count), kind)
        for region, part, row in self._located(address, threads, width, space):
            who = threads[part]
            if region.writer is not None:
                if read_only and not region.initialized:
                    raise MemoryFault(f"reads {region.name} by way of the read-only cache, but the kernel writes it")
                writer = region.rows(region.writer, width)[row]
                self._check(
                    (writer == who[:, None]) | (writer == _SETTLED), region, writer, address[part], who, "reads"
                )
            if region.reader is not None:
                reader = region.rows(region.reader, width)
                now = reader[row]
                reader[row] = np.where((now == _NOBODY) | (now == who[:, None]), who[:, None], _SEVERAL)
                # Of several readers in one instruction the last one remains above.
                reader[row[(reader[row] != who[:, None]).any(axis=1)]] = _SEVERAL
            result[part] = region.rows(region.bytes, width)[row].view(kind)
        return result

    def store(self, address: np.ndarray, threads: np.ndarray, values: np.ndarray, space: str) -> None:
        """`values`: (threads, count)."""
        width = values.dtype.itemsize * values.shape[1]
        for region, part, row in self._located(address, threads, width, space):
            who = threads[part]
            if region.writer is None:
                raise MemoryFault(f"writes {region.name}, which is read-only, {_where(address[part], who)}")
            writers = region.rows(region.writer, width)
            before = writers[row]
            self._check((before == who[:, None]) | (before < 0), region, before, address[part], who, "writes")
            if region.reader is not None:
                before = region.rows(region.reader, width)[row]
                fine = (before == who[:, None]) | (before == _NOBODY)
                self._check(fine, region, before, address[part], who, "writes")
            writers[row] = who[:, None]
            now = writers[row]
            self._check(now == who[:, None], region, now, address[part], who, "writes")
            region.rows(region.bytes, width)[row] = np.ascontiguousarray(values[part]).view(np.uint8)

    def barrier(self, blocks: np.ndarray) -> None:
        for region in self.regions:
            if region.space == "shared":
                region.settle(blocks)

    def _located(self, address: np.ndarray, threads: np.ndarray, width: int, space: str):
        """Region, threads (positions among those given) and rows that they access."""
        if not threads.size:
            return
        which = address >> np.uint64(_BITS)
        numbers = which[:1] if (which == which[0]).all() else np.unique(which)
        for number in numbers:
            part = slice(None) if numbers.size == 1 else np.flatnonzero(which == number)
            if not 1 <= number <= len(self.regions):
                raise MemoryFault(f"accesses no buffer at all, {_where(address[part], threads[part])}")
            region = self.regions[int(number) - 1]
            if space not in ("", region.space):
                raise MemoryFault(f"accesses {region.name} as {space} memory, {_where(address[part], threads[part])}")
            offset = (address[part] & np.uint64((1 << _BITS) - 1)).astype(np.int64)
            outside = offset + width > region.size
            if outside.any():
                where = _where(address[part][outside], threads[part][outside])
                raise MemoryFault(f"accesses {width} bytes outside the {region.size} bytes of {region.name}, {where}")
            odd = offset % width != 0
            if odd.any():
                where = _where(address[part][odd], threads[part][odd])
                raise MemoryFault(f"accesses {width} bytes of {region.name} at a misaligned address, {where}")
            yield region, part, (offset + region.copy[threads[part]] * region.stride) // width

    def _check(self, fine, region: Region, other, address, threads, verb: str) -> None:
        if fine.all():
            return
        bad = int(np.argmin(fine.all(axis=1)))
        who = int(other[bad][np.argmin(fine[bad])])
        if who == _NOBODY:
            raise MemoryFault(
                f"{verb} what nobody has written in {region.name}, {_where(address[bad:], threads[bad:])}"
            )
        another = f"thread {who} accesses" if who >= 0 else "other threads access"
        raise MemoryFault(f"{verb} what {another} too in {region.name}, a race, {_where(address[bad:], threads[bad:])}")


def _where(address: np.ndarray, threads: np.ndarray) -> str:
    offset = int(address[0]) & ((1 << _BITS) - 1)
    offset -= (offset >> (_BITS - 1)) << _BITS  # before the region, the address is one of the region before
    return f"at byte {offset} (address {int(address[0]):#x}, thread {int(threads[0])} of the launch)"
