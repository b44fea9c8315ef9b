"""The memory of the emulated device: a range of this process's own addresses.

A device address is a host pointer, so the arguments of a launch need no translation. Every access is checked: it must
be inside a live allocation.
"""

from __future__ import annotations

import ctypes
import mmap
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import DeviceError, DeviceMemoryError, InvalidValueError
from tilewright.base.lazy_module import LazyModule
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import MemoryFault
from tilewright.emulator.lds import MemoryViews

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Index = NDArray[np.int64]
    Mask = NDArray[np.bool_]
else:
    np = LazyModule("numpy")
    Index = Mask = Any

CAPACITY = 8 << 30
# Allocations begin at pages, so that all pages of a freed one can be returned to the system.
ALIGNMENT = mmap.PAGESIZE
GUARD = 4096  # unallocated bytes between allocations
# So many freed allocations stay invalid, which finds their late uses; the room of older ones is used again. A call of a
# function frees 3 to 10, and each costs 0.3 KiB.
KEPT_FREED = 1024
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux; in the mmap module only since Python 3.13
# Sums of a 64-bit address and the offsets of an instruction (below 2**33) may wrap around 2**64 to small values.
# The arena lies above all such sums, so they are faults like any other invalid address.
_LOWEST_ARENA = 1 << 34


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """Allocated bytes, by their offset in the arena. `span` is the occupied size, including the guard gap."""

    start: int
    size: int
    span: int
    label: str
    site: object = field(default="", compare=False)  # where it was allocated; its text is made when it is needed
    internal: bool = False  # of the emulated device itself

    @property
    def end(self) -> int:
        return self.start + self.size


def _map_anonymous(size: int) -> mmap.mmap:
    """Map memory that costs nothing until it is touched."""
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    except OSError as error:
        advice = "Use a smaller capacity, or raise the limit of address space (ulimit -v)."
        raise DeviceError(f"cannot reserve {size} bytes of address space: {error}. {advice}") from error


class Memory:
    """Allocations in an arena, with checks of every access."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        if capacity < mmap.PAGESIZE or capacity % mmap.PAGESIZE:
            raise InvalidValueError(f"capacity: {capacity} is not a multiple of the page size, {mmap.PAGESIZE}")
        self.capacity = capacity
        self._arena = _map_anonymous(capacity)
        self.base = ctypes.addressof(ctypes.c_uint8.from_buffer(self._arena))
        if self.base < _LOWEST_ARENA:
            raise DeviceError(f"the system gave memory at {self.base:#x}, too low to detect wrapped addresses")
        self._live: list[Allocation] = []  # sorted
        self._freed: deque[Allocation] = deque()  # oldest first; not reused yet
        first = 16 * ALIGNMENT  # addresses just below an allocation are in the arena, too
        self._holes = [(first, capacity - first)]  # ranges that may be used: start, size; sorted
        self._recent = (0, 0)  # start and end of the last accessed allocation
        self._bounds: NDArray[np.int64] | None = None  # starts and ends of all allocations, in order; see _find_bounds
        self._lock = Lock()
        self._find_site: Callable[[], object] | None = None
        self._defined: dict[int, NDArray[np.uint8]] | None = None  # by start: 1 for each byte that was written

    @cached_property
    def views(self) -> MemoryViews:
        """The memory as arrays."""
        return MemoryViews(np.frombuffer(self._arena, np.uint8))

    def allocate(self, size: int, label: str = "", *, internal: bool = False) -> int:
        """Allocate `size` bytes and return their address. `label` names them in faults. They are 0.

        `internal` memory belongs to the emulated device: no check follows its bytes.
        """
        if size < 1:
            raise InvalidValueError(f"cannot allocate {size} bytes: at least 1 is needed")
        with self._lock:
            span = -(-(size + GUARD) // ALIGNMENT) * ALIGNMENT
            site = self._find_site() if self._find_site is not None and not internal else ""
            new = Allocation(self._find_room(span, size), size, span, label, site, internal)
            insort(self._live, new)
            if self._defined is not None and not internal:
                self._defined[new.start] = np.zeros(size, np.uint8)
            self._forget_bounds()
            return self.base + new.start

    def free(self, address: int) -> None:
        """Free an allocation. Its bytes stay invalid while few others are freed and the arena has other room."""
        with self._lock:
            at = bisect_right(self._live, address - self.base, key=_get_start) - 1
            if at < 0 or self._live[at].start != address - self.base:
                twice = any(freed.start == address - self.base for freed in self._freed)
                what = "is freed a second time" if twice else f"is not an allocation: {self.describe_address(address)}"
                raise MemoryFault(f"{address:#x} {what}")
            gone = self._live.pop(at)
            if self._defined is not None:
                self._defined.pop(gone.start, None)
            self._forget_bounds()
            self._freed.append(gone)
            self._arena.madvise(mmap.MADV_DONTNEED, gone.start, gone.span)  # pages read as zero when used again
            if len(self._freed) > KEPT_FREED:
                self._reuse_oldest()

    def _find_room(self, span: int, size: int) -> int:
        """Find room for `span` bytes: the first hole, or else what was freed the longest time ago."""
        while (start := self._take_hole(span)) is None:
            if not self._freed:
                taken = sum(item.span for item in self._live)
                what = f"no room for {size} bytes: {taken} of {self.capacity} are taken"
                advice = "Free some, or use a larger capacity."
                raise DeviceMemoryError(f"{what} by {len(self._live)} allocations. {advice}")
            self._reuse_oldest()
        return start

    def _take_hole(self, span: int) -> int | None:
        """Take `span` bytes from the first hole that is large enough."""
        for at, (start, room) in enumerate(self._holes):
            if room >= span:
                self._holes[at : at + 1] = [(start + span, room - span)] if room > span else []
                return start
        return None

    def _reuse_oldest(self) -> None:
        """Turn what was freed the longest time ago into a hole, joined with its neighbours."""
        oldest = self._freed.popleft()
        start, size = oldest.start, oldest.span
        at = bisect_right(self._holes, (start, size))
        if at < len(self._holes) and self._holes[at][0] == start + size:
            size += self._holes.pop(at)[1]
        if at and sum(self._holes[at - 1]) == start:
            at -= 1
            start, before = self._holes.pop(at)
            size += before
        self._holes.insert(at, (start, size))

    def _forget_bounds(self) -> None:
        """Forget the bounds for checking accesses, because allocations changed."""
        self._recent = (0, 0)
        self._bounds = None

    def _find_bounds(self) -> NDArray[np.int64]:
        if self._bounds is None:
            pairs = [[item.start, item.end] for item in self._live]
            self._bounds = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
        return self._bounds

    def read(self, address: int, size: int) -> bytes:
        """Return a copy of bytes of one allocation."""
        return bytes(self.view(address, size))

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write bytes to one allocation."""
        octets = memoryview(data).cast("B")
        self.view(address, len(octets))[:] = octets
        self.mark_written(address, len(octets))

    def fill(self, address: int, value: int, size: int) -> None:
        """Set `size` bytes of one allocation to `value`."""
        start = self._find_offset(address, size)
        ctypes.memset(self.base + start, value, size)
        self.mark_written(address, size)

    def record_sites(self, find_site: Callable[[], object]) -> None:
        """From now on record where memory is allocated: `find_site` returns it, and `str` gives its text."""
        self._find_site = find_site

    def track_writes(self) -> None:
        """From now on record which bytes were written. Those of allocations that exist already count as written."""
        if self._defined is None:
            self._defined = {}

    @property
    def tracks_writes(self) -> bool:
        """Whether it is recorded which bytes were written."""
        return self._defined is not None

    def forget_writes(self) -> None:
        """Let all bytes that exist now count as written, because something wrote that was not recorded."""
        if self._defined is not None:
            self._defined.clear()

    def mark_written(self, address: int, size: int) -> None:
        """Record that bytes of one allocation were written."""
        if (found := self._find_defined(address)) is not None:
            octets, at = found
            octets[at : at + size] = 1

    def mark_unwritten(self, address: int, unwritten: Mask) -> None:
        """Record that bytes from `address` on were not written, if writes are recorded: those that are true."""
        if (found := self._find_defined(address)) is not None:
            octets, at = found
            octets[at : at + len(unwritten)][unwritten] = 0

    def mark_copied(self, target: int, source: int, size: int) -> None:
        """Record that bytes were copied; `source` may be outside this memory. Copies of unwritten bytes are such."""
        into, of = self._find_defined(target), self._find_defined(source)
        if into is None:
            return
        if of is None:
            into[0][into[1] : into[1] + size] = 1
        else:
            into[0][into[1] : into[1] + size] = of[0][of[1] : of[1] + size]

    def _find_defined(self, address: int) -> tuple[NDArray[np.uint8], int] | None:
        """Return the record of the allocation around an address, and the index of the address in it."""
        if not self._defined:
            return None
        with self._lock:
            found = self._find_allocation(address - self.base)
        octets = None if found is None else self._defined.get(found.start)
        return None if octets is None or found is None else (octets, address - self.base - found.start)

    def list_shadows(self) -> list[tuple[int, NDArray[np.uint8] | None] | None]:
        """Return size and written bytes of every allocation, ascending; None for internal ones.

        Without written bytes, all count as written.
        """
        with self._lock:
            written = self._defined or {}
            return [None if item.internal else (item.size, written.get(item.start)) for item in self._live]

    def list_sites(self) -> list[tuple[int, int, str, str]]:
        """Return address, size, label and site of every allocation that is not internal, ascending."""
        with self._lock:
            found = [item for item in self._live if not item.internal]
        return [(self.base + item.start, item.size, item.label, str(item.site)) for item in found]

    def view(self, address: int, size: int) -> memoryview:
        """Return a view of bytes, which must lie in one allocation."""
        start = self._find_offset(address, size)
        return memoryview(self._arena)[start : start + size]

    def _find_offset(self, address: int, size: int) -> int:
        start = address - self.base
        holder = self._find_allocation(start)
        if size < 0:
            raise InvalidValueError(f"cannot access {size} bytes")
        if holder is None or start + size > holder.end:
            raise MemoryFault(f"{size} bytes at {address:#x}: {self.describe_address(address)}")
        return start

    def _find_allocation(self, offset: int) -> Allocation | None:
        at = bisect_right(self._live, offset, key=_get_start) - 1
        found = self._live[at] if at >= 0 else None
        return found if found is not None and offset < found.end else None

    def check_access(self, address: NDArray[np.uint64], size: int, mask: Mask | None) -> Index:
        """Return the index of `size` bytes at each address in the views, after checking those in `mask` (None: all).

        The others get the index of a valid one, so that a gather may read all. At least one must be in the mask.
        """
        index = np.subtract(address, np.uint64(self.base)).view(np.int64)
        if mask is not None:
            index = np.where(mask, index, index.flat[int(mask.argmax())])
        low, high = int(index.min()), int(index.max())
        start, end = self._recent
        if low >= start and high <= end - size:
            return index
        holder = self._find_allocation(low)
        if holder is not None and high <= holder.end - size:
            self._recent = (holder.start, holder.end)
        else:
            self._check_each(index, size, mask)
        return index

    def _check_each(self, index: Index, size: int, mask: Mask | None) -> None:
        """Raise if an access is not inside one allocation: the last one that begins before it."""
        starts, ends = self._find_bounds()
        if len(starts):
            before = np.searchsorted(starts, index, side="right") - 1
            good = (before >= 0) & (index + size <= ends[np.maximum(before, 0)]) & (index <= self.capacity - size)
        else:
            good = np.zeros(index.shape, np.bool_)
        bad = ~good if mask is None else ~good & mask
        if bad.any():
            where = np.unravel_index(int(bad.argmax()), bad.shape)
            culprit = self.base + int(index[where])
            place = CodePlace(wave=int(where[0]), lane=int(where[1]) if len(where) > 1 else None)
            what = f"{size} bytes at {culprit % 2**64:#x}: {self.describe_address(culprit, size)}"
            raise MemoryFault(what, place)

    def find_range(self, address: int) -> tuple[int, int] | None:
        """Return address and size of the allocation around an address, or None."""
        with self._lock:
            found = self._find_allocation(address - self.base)
        return None if found is None else (self.base + found.start, found.size)

    def count_free_bytes(self) -> int:
        """Return the number of bytes that no allocation occupies."""
        with self._lock:
            return self.capacity - sum(item.span for item in self._live)

    def list_allocations(self) -> list[tuple[int, int, str]]:
        """Return address, size and label of every allocation, ascending."""
        with self._lock:
            return [(self.base + item.start, item.size, item.label) for item in self._live]

    def list_ranges(self) -> list[tuple[int, int]]:
        """Return start and end address of every allocation, ascending."""
        with self._lock:
            return [(self.base + item.start, self.base + item.end) for item in self._live]

    def describe_address(self, address: int, size: int = 1) -> str:
        """Describe an address in words: inside or next to which allocation it is."""
        offset = address - self.base
        for gone in self._freed:
            if gone.start <= offset < gone.end:
                return f"{offset - gone.start} bytes into {self._describe_allocation(gone)}, which was freed"
        if not self._live:
            return "nothing is allocated"
        nearest = min(self._live, key=lambda item: max(item.start - offset, offset - item.end + 1, 0))
        name = self._describe_allocation(nearest)
        if offset < nearest.start:
            return f"{nearest.start - offset} bytes before {name}"
        if offset >= nearest.end:
            return f"{offset - nearest.end} bytes past the end of {name}"
        if offset + size > nearest.end:
            return f"across the end of {name}, {nearest.end - offset} bytes before it"
        return f"{offset - nearest.start} bytes into {name}"

    def _describe_allocation(self, item: Allocation) -> str:
        label = f"'{item.label}'" if item.label else "an allocation"
        place = str(item.site)
        site = f", allocated at {place}" if place else ""
        return f"{label} ({self.base + item.start:#x}, {item.size} bytes{site})"


def _get_start(item: Allocation) -> int:
    return item.start
