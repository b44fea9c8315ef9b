"""The memory of the emulated device: allocations, and what may not be touched."""

from __future__ import annotations

import gc
import mmap
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.emulator.faults import MemoryFault
from tilewright.emulator.lds import Lds
from tilewright.emulator.memory import ALIGNMENT, GUARD, KEPT_FREED, Memory


def small() -> Memory:
    return Memory(1 << 20)


def test_allocations_are_aligned_and_apart() -> None:
    memory = small()
    spans = sorted((memory.allocate(size), size) for size in (1, 4, 255, 256, 257, 5000))
    assert all(address % ALIGNMENT == 0 for address, _ in spans)
    assert all(after - (before + size) >= GUARD for (before, size), (after, _) in pairwise(spans))


def test_bytes_come_back() -> None:
    memory = small()
    address = memory.allocate(100)
    memory.write(address + 3, b"tiles")
    memory.fill(address + 8, 0xAB, 2)
    assert memory.read(address, 12) == b"\0\0\0tiles\xab\xab\0\0"
    memory.view(address, 2)[:] = b"ok"
    assert memory.read(address, 4) == b"ok\0t"
    assert memory.views.u8.ctypes.data == memory.base  # a device address is a pointer of the host


def test_eight_gibibytes_cost_nothing_until_touched() -> None:
    memory = Memory()
    address = memory.allocate(6 << 30)
    memory.write(address + (6 << 30) - 4, b"last")
    assert memory.read(address + (6 << 30) - 4, 4) == b"last"
    with pytest.raises(DeviceError, match="no room for 4294967296 bytes"):
        memory.allocate(4 << 30)


@pytest.mark.parametrize(
    ("offset", "size", "words"),
    [
        (4112, 16, "16 bytes past the end of 'C'"),
        (4096, 1, "0 bytes past the end of 'C'"),
        (-8, 4, "8 bytes before 'C'"),
        (4090, 16, "6 bytes before it"),
    ],
)
def test_wild_accesses_name_the_nearest_allocation(offset: int, size: int, words: str) -> None:
    memory = small()
    memory.allocate(4096, "A")
    address = memory.allocate(4096, "C")
    addresses = np.full((2, 4), address, np.uint64)
    addresses[1, 2] = address + offset
    with pytest.raises(MemoryFault) as caught:
        memory.check_access(addresses, size, None)
    assert words in str(caught.value)
    assert f"({address:#x}, 4096 bytes)" in str(caught.value)
    assert f"{size} bytes at {address + offset:#x}" in str(caught.value)
    assert (caught.value.place.wave, caught.value.place.lane) == (1, 2)


def test_lanes_outside_the_mask_are_not_checked() -> None:
    memory = small()
    address = memory.allocate(64)
    addresses = np.array([[0, address + 8, 2**63]], np.uint64)
    index = memory.check_access(addresses, 8, np.array([[False, True, False]]))
    assert index.tolist() == [[address + 8 - memory.base] * 3]
    with pytest.raises(MemoryFault) as caught:
        memory.check_access(addresses, 8, np.array([[False, True, True]]))
    assert caught.value.place.lane == 2


def test_the_tail_of_an_odd_size_is_exact() -> None:
    memory = small()
    address = memory.allocate(10)
    other = memory.allocate(64)
    for last, good in ((9, True), (10, False)):
        # Two allocations in one access: the check lane by lane.
        addresses = np.array([address + last, other], np.uint64)
        if good:
            memory.check_access(addresses, 1, None)
        else:
            with pytest.raises(MemoryFault):
                memory.check_access(addresses, 1, None)
    with pytest.raises(MemoryFault, match="across the end"):
        memory.check_access(np.array([address + 8, other], np.uint64), 4, None)


def test_checks_agree_with_a_list_of_bytes() -> None:
    """Random allocations, frees and accesses against a plain set of allowed bytes."""
    rng = random.Random(5)
    memory = Memory(1 << 18)
    live: dict[int, int] = {}
    for _ in range(300):
        if live and rng.random() < 0.4:
            gone = rng.choice(list(live))
            memory.free(gone)
            del live[gone]
        elif len(live) < 8:
            size = rng.randrange(1, 40)
            live[memory.allocate(size)] = size
        allowed = {start + k for start, size in live.items() for k in range(size)}
        for _ in range(5):
            anchors = [*live, memory.base + rng.randrange(1 << 18)]
            addresses = [rng.choice(anchors) + rng.randrange(-8, 48) for _ in range(3)]
            size = rng.choice((1, 2, 4, 8, 12, 16))
            good = all(address + k in allowed for address in addresses for k in range(size))
            try:
                memory.check_access(np.array([addresses], np.uint64), size, None)
            except MemoryFault:
                assert not good
            else:
                assert good


def test_addresses_that_wrap_are_faults() -> None:
    memory = small()
    memory.allocate(64)
    wrapped = np.array([2**64 - 16], np.uint64) + np.uint64(32)
    with pytest.raises(MemoryFault, match="at 0x10:"):
        memory.check_access(wrapped, 4, None)


def test_freeing_twice_or_what_was_never_allocated() -> None:
    memory = small()
    address = memory.allocate(64, "B")
    memory.free(address)
    with pytest.raises(MemoryFault, match="a second time"):
        memory.free(address)
    with pytest.raises(MemoryFault, match="is not an allocation"):
        memory.free(memory.allocate(64) + 16)
    with pytest.raises(MemoryFault, match=r"8 bytes into 'B' .*, which was freed"):
        memory.read(address + 8, 4)


def test_freed_memory_is_used_again_last_and_oldest_first() -> None:
    memory = Memory(1 << 17)
    size = 8 << 10
    first, second = memory.allocate(size), memory.allocate(size)
    memory.write(first, b"old" * 1000)
    memory.free(first)
    memory.free(second)
    others = []
    while (address := memory.allocate(size)) != first:
        others.append(address)
    assert second not in others
    assert memory.read(first, size)[: mmap.PAGESIZE] == bytes(mmap.PAGESIZE)
    assert memory.allocate(size) == second
    with pytest.raises(DeviceError, match="Free some"):
        memory.allocate(size)


def test_neighbouring_holes_join() -> None:
    memory = Memory(1 << 17)
    pieces = []
    while True:
        try:
            pieces.append(memory.allocate(4096))
        except DeviceError:
            break
    for address in pieces[3:6]:
        memory.free(address)
    assert memory.allocate(3 * 4096) == pieces[3]


def test_freed_buffers_cost_no_memory() -> None:
    memory = Memory()
    costs = []
    for _ in range(4):
        for _ in range(2 * KEPT_FREED):
            address = memory.allocate(8 << 10)
            memory.fill(address, 1, 8 << 10)
            memory.free(address)
        costs.append((len(gc.get_objects()), read_resident_bytes()))
    objects, resident = (max(cost) - min(cost) for cost in zip(*costs, strict=True))
    assert objects < KEPT_FREED  # all of the buffers are 6,144
    assert resident < 4 << 20  # all of the buffers are 48 MiB


def test_late_uses_of_freed_buffers_are_found() -> None:
    memory = Memory(1 << 24)
    first = memory.allocate(1)
    memory.free(first)
    for _ in range(KEPT_FREED - 1):
        memory.free(memory.allocate(1))
    with pytest.raises(MemoryFault, match="which was freed"):
        memory.read(first, 1)


def read_resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_senseless_sizes() -> None:
    with pytest.raises(InvalidValueError):
        small().allocate(0)
    with pytest.raises(InvalidValueError):
        Memory(1000)


def test_lds_is_aligned_and_poisoned() -> None:
    lds = Lds(3, 100, poison=0x7FC0DEAD)
    assert lds.stride == 256
    assert lds.base(2) == 512
    assert lds.views.u8.ctypes.data % 16 == 0
    assert (lds.views.u32 == 0x7FC0DEAD).all()
    assert not Lds(1, 64).views.u8.any()
