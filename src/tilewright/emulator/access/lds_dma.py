"""Loads from memory and private memory to LDS without vector registers.

The element of a lane goes to M0 + instruction offset + lane · size in the LDS of the work-group. Elements of less than
4 bytes are extended to 4.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access import traffic
from tilewright.emulator.access.effects import LdsWrite, active_lanes, copy_to_lds, make_lane_step
from tilewright.emulator.access.elements import LOADS, Element
from tilewright.emulator.access.gather import load
from tilewright.emulator.access.lds_range import check_range
from tilewright.emulator.access.operands import get_number
from tilewright.emulator.access.private import Offsets, check_private_range
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, Step, WaveGroup
from tilewright.emulator.instruction import M0, Instruction
from tilewright.emulator.memory import Index, Mask

# dword from gfx9 on, wider ones from gfx950 on [llvm: FeatureLDSLoadB96_B128].
_NARROW = ("ubyte", "sbyte", "ushort", "sshort", "dword")
_WIDE = ("dwordx3", "dwordx4")


def find_dma_element(kind: str, instruction: Instruction, code: LoadedCode) -> Element:
    """Return the element that a lane copies."""
    if kind not in _NARROW and (kind not in _WIDE or code.arch.lds.async_copy_bytes < LOADS[kind].size):
        raise code.unknown(f"a copy of {kind} to LDS", instruction)
    return LOADS[kind]


def compute_lds_offsets(group: WaveGroup, offset: int, size: int, lds_bytes: int) -> Index:
    """Return the LDS offset of each lane's element. M0 has as many bits as the LDS size of the GPU needs."""
    bits = np.int64((1 << (lds_bytes - 1).bit_length()) - 1)
    first = (group.sc[M0].astype(np.int64) & bits) + offset
    return first + np.arange(group.lanes) * max(size, 4)


def send_to_lds(group: WaveGroup, values: list[U32], element: Element, offset: int, code: LoadedCode) -> None:
    """Send loaded elements to the LDS."""
    mask = active_lanes(group)
    size = max(element.size, 4)
    index = check_range(group, compute_lds_offsets(group, offset, size, code.arch.lds.bytes), size, mask)
    traffic.count_lds_write(group, size, mask, code.arch.lds.banks, index)
    copy_to_lds(group, LdsWrite(index, tuple(values), size, mask))


def read_elements(
    group: WaveGroup, address: NDArray[np.uint64], element: Element, mask: Mask | None, line_bytes: int
) -> list[U32]:
    """Load the elements at addresses, as they are written to registers or LDS."""
    memory = group.batch.memory
    index = memory.check_access(address, element.size, mask)
    traffic.count_memory_read(group, index, element.size, mask, line_bytes)
    return element.extend_loaded(load(memory.views, index, element.size))


def translate_global_load_lds(
    instruction: Instruction, code: LoadedCode, kind: str, address: Callable[[WaveGroup], NDArray[np.uint64]]
) -> Step:
    """Return the step of a global_load_lds_… instruction."""
    element = find_dma_element(kind, instruction, code)
    offset = get_number(instruction, code, "offset")

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        values = read_elements(group, address(group), element, mask, code.arch.memory.line_bytes)
        send_to_lds(group, values, element, offset, code)

    return make_lane_step("load", execute)


def translate_scratch_load_lds(instruction: Instruction, code: LoadedCode, element: Element, offsets: Offsets) -> Step:
    """Return the step of a scratch_load_lds_… instruction."""
    offset = get_number(instruction, code, "offset")

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        index = check_private_range(group, offsets(group), element.size, mask)
        values = element.extend_loaded(load(group.batch.memory.views, index, element.size))
        send_to_lds(group, values, element, offset, code)

    return make_lane_step("load", execute)
