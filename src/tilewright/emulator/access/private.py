"""Private memory: bytes of each lane, for spilled registers and arrays.

The device interleaves the dwords of the lanes; kernels cannot see that, because every access to private memory does so.
Here the bytes of a lane are contiguous: those of lane l of a wave begin at `scratch_base` + l · `Batch.scratch_bytes`.

gfx90a accesses it through a swizzled buffer in s[0:3]. The base of such a buffer and the scalar offset are not
interleaved: they count bytes of the whole wave, and are divided by the number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.access.effects import Arrival, active, deliver, occupy
from tilewright.emulator.access.elements import Element
from tilewright.emulator.access.gather import load, store
from tilewright.emulator.access.operands import number, scalar, vector
from tilewright.emulator.code import Code
from tilewright.emulator.faults import MemoryFault, Place
from tilewright.emulator.group import Group, Step
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.memory import Index, Mask

Offsets = Callable[[Group], Index]  # of each lane, in its private memory


def private_index(group: Group, offset: Index, size: int, mask: Mask | None) -> Index:
    """Return the index of `size` bytes at each lane's offset in memory. Raises for those outside the lane's part."""
    own = group.batch.scratch_bytes
    outside = (offset < 0) | (offset > own - size)
    if mask is not None:
        outside &= mask
        offset = np.where(mask, offset, 0)
    if outside.any():
        row, lane = np.unravel_index(int(outside.argmax()), outside.shape)
        what = f"{size} bytes at offset {int(offset[row, lane])} of the private memory of a lane, which has {own}"
        raise MemoryFault(what, Place(wave=int(row), lane=int(lane)))
    first = group.places.scratch_base - np.uint64(group.batch.memory.base)
    return first.view(np.int64)[:, None] + np.arange(group.lanes) * own + offset


def scratch_offsets(instruction: Instruction, code: Code, vaddr: Operand, saddr: Operand) -> Offsets:
    """Make a getter of scratch_… offsets: a vector register, a scalar register, both or neither, and a constant."""
    immediate = np.int64(number(instruction, code, "offset"))
    own = None if vaddr.kind == "none" else vector(instruction, code, vaddr, 1)
    common = None if saddr.kind == "none" else scalar(instruction, code, saddr, 1)

    def offsets(group: Group) -> Index:
        total = np.full((group.waves, group.lanes), immediate)
        if own is not None:
            total += group.vi[own]
        if common is not None:
            total += group.sci[common]
        return total

    return offsets


def private_load(group: Group, offset: Index, element: Element, register: int) -> None:
    mask = active(group)
    if mask is not None and not mask.any():
        occupy(group, "load")
        return
    index = private_index(group, offset, element.size, mask)
    values = element.arrived(load(group.batch.memory.views, index, element.size))
    deliver(group, "load", Arrival(register, tuple(values), mask, element.keep))


def private_store(group: Group, offset: Index, element: Element, register: int) -> None:
    mask = active(group)
    if mask is None or mask.any():
        index = private_index(group, offset, element.size, mask)
        values = element.leaving(group.v[register : register + element.registers])
        store(group.batch.memory.views, index, values, element.size, mask)
    occupy(group, "store")


def scratch_load(offsets: Offsets, element: Element, register: int) -> Step:
    """Return the step of a scratch_load_… instruction."""
    return lambda group: private_load(group, offsets(group), element, register)


def scratch_store(offsets: Offsets, element: Element, register: int) -> Step:
    """Return the step of a scratch_store_… instruction."""
    return lambda group: private_store(group, offsets(group), element, register)


def wave_offset(group: Group, base: Index, soffset: Index, code: Code, instruction: Instruction) -> Index:
    """Return the lane offset that base and scalar offset of a swizzled buffer stand for, as a column."""
    own = group.places.scratch_base.astype(np.int64)[:, None]
    whole = base - own + soffset
    part, rest = np.divmod(whole, group.lanes)
    if rest.any() or (part & 3).any():
        what = f"a swizzled buffer at byte {int(whole[0, 0])} of the private memory of a wave"
        raise code.unknown(what, instruction)
    return part
