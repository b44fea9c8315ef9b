"""Private memory: bytes of each lane, for spilled registers and arrays.

The device interleaves the dwords of the lanes; kernels cannot see that, because every access to private memory does so.
Here the bytes of a lane are contiguous: those of lane l of a wave begin at `scratch_base` + l · `Batch.scratch_bytes`.

gfx90a accesses it through a swizzled buffer in s[0:3]. The base of such a buffer and the scalar offset are not
interleaved: they count bytes of the whole wave, and are divided by the number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.access.effects import Arrival, active_lanes, reserve_counter, write_vectors
from tilewright.emulator.access.elements import Element
from tilewright.emulator.access.gather import load, store
from tilewright.emulator.access.operands import get_number, get_scalar, get_vector
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import MemoryFault
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.memory import Index, Mask

Offsets = Callable[[WaveGroup], Index]  # of each lane, in its private memory


def check_private_range(group: WaveGroup, offset: Index, size: int, mask: Mask | None) -> Index:
    """Return the index of `size` bytes at each lane's offset in memory. Raises for those outside the lane's part."""
    own = group.batch.scratch_bytes
    outside = (offset < 0) | (offset > own - size)
    if mask is not None:
        outside &= mask
        offset = np.where(mask, offset, 0)
    if outside.any():
        row, lane = np.unravel_index(int(outside.argmax()), outside.shape)
        what = f"{size} bytes at offset {int(offset[row, lane])} of the private memory of a lane, which has {own}"
        raise MemoryFault(what, CodePlace(wave=int(row), lane=int(lane)))
    first = group.places.scratch_base - np.uint64(group.batch.memory.base)
    return first.view(np.int64)[:, None] + np.arange(group.lanes) * own + offset


def make_scratch_offsets(instruction: Instruction, code: LoadedCode, vaddr: Operand, saddr: Operand) -> Offsets:
    """Make a getter of scratch_… offsets: a vector register, a scalar register, both or neither, and a constant."""
    immediate = np.int64(get_number(instruction, code, "offset"))
    own = None if vaddr.kind == "none" else get_vector(instruction, code, vaddr, 1)
    common = None if saddr.kind == "none" else get_scalar(instruction, code, saddr, 1)

    def compute_offsets(group: WaveGroup) -> Index:
        total = np.full((group.waves, group.lanes), immediate)
        if own is not None:
            total += group.vi[own]
        if common is not None:
            total += group.sci[common]
        return total

    return compute_offsets


def load_private(group: WaveGroup, offset: Index, element: Element, register: int) -> None:
    mask = active_lanes(group)
    if mask is not None and not mask.any():
        reserve_counter(group, "load")
        return
    index = check_private_range(group, offset, element.size, mask)
    values = element.extend_loaded(load(group.batch.memory.views, index, element.size))
    write_vectors(group, "load", Arrival(register, tuple(values), mask, element.keep))


def store_private(group: WaveGroup, offset: Index, element: Element, register: int) -> None:
    mask = active_lanes(group)
    if mask is None or mask.any():
        index = check_private_range(group, offset, element.size, mask)
        values = element.extract_stored(group.v[register : register + element.registers])
        store(group.batch.memory.views, index, values, element.size, mask)
    reserve_counter(group, "store")


def translate_scratch_load(offsets: Offsets, element: Element, register: int) -> Step:
    """Return the step of a scratch_load_… instruction."""
    return lambda group: load_private(group, offsets(group), element, register)


def translate_scratch_store(offsets: Offsets, element: Element, register: int) -> Step:
    """Return the step of a scratch_store_… instruction."""
    return lambda group: store_private(group, offsets(group), element, register)


def compute_wave_offset(
    group: WaveGroup, base: Index, soffset: Index, code: LoadedCode, instruction: Instruction
) -> Index:
    """Return the lane offset that base and scalar offset of a swizzled buffer stand for, as a column."""
    own = group.places.scratch_base.astype(np.int64)[:, None]
    whole = base - own + soffset
    part, rest = np.divmod(whole, group.lanes)
    if rest.any() or (part & 3).any():
        what = f"a swizzled buffer at byte {int(whole[0, 0])} of the private memory of a wave"
        raise code.unknown(what, instruction)
    return part
