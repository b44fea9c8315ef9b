"""Move values between lanes through the LDS hardware, without using LDS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access.effects import Arrival, active_lanes, write_vectors
from tilewright.emulator.access.operands import check_modifiers, get_number, get_operands, get_vector
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, Step, WaveGroup
from tilewright.emulator.instruction import Instruction

# gfx12's ds_bpermute_fi reads inactive lanes too (AMD's pseudo-code of RDNA4, DS_BPERMUTE_FI_B32).
PULL_FROM_INACTIVE = "bpermute_fi_b32"
PERMUTES = ("bpermute_b32", PULL_FROM_INACTIVE, "permute_b32")
_FOURS = 0x8000  # ds_swizzle within four lanes
_ROTATE = 0xC000
_FFT = 0xE000


def translate_permute(rest: str, instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of ds_bpermute_b32, ds_permute_b32 or ds_swizzle_b32; None for other instructions."""
    if rest == "swizzle_b32":
        return _make_swizzle_step(instruction, code)
    if rest in PERMUTES:
        return _make_permute_step(
            instruction, code, _push if rest == "permute_b32" else _pull, from_inactive=rest == PULL_FROM_INACTIVE
        )
    return None


def _make_permute_step(
    instruction: Instruction,
    code: LoadedCode,
    move: Callable[[WaveGroup, U32, NDArray[np.intp]], U32],
    *,
    from_inactive: bool,
) -> Step:
    check_modifiers(instruction, code, ("offset",))
    registers = [get_vector(instruction, code, operand, 1) for operand in get_operands(instruction, code, (3,))]
    destination, address, data = registers
    offset = np.uint32(get_number(instruction, code, "offset"))

    def execute(group: WaveGroup) -> None:
        # The address counts bytes, as if each lane had a dword; it wraps at the number of lanes.
        other = ((group.v[address] + offset) >> np.uint32(2)) & np.uint32(group.lanes - 1)
        all_given = group.full or from_inactive
        values = group.v[data] if all_given else np.where(group.exec_mask, group.v[data], np.uint32(0))
        moved = move(group, values, other.astype(np.intp))
        write_vectors(group, "lds", Arrival(destination, (moved,), active_lanes(group)))

    return execute


def _pull(_: WaveGroup, values: U32, other: NDArray[np.intp]) -> U32:
    """Each lane reads from another one."""
    return np.take_along_axis(values, other, axis=1)


def _push(group: WaveGroup, values: U32, other: NDArray[np.intp]) -> U32:
    """Each lane sends to another one. The last of several senders wins; a lane without a sender gets 0."""
    moved = np.zeros_like(values)
    rows = np.broadcast_to(np.arange(group.waves)[:, None], other.shape)
    mask = group.exec_mask
    moved[rows[mask], other[mask]] = values[mask]
    return moved


def _make_swizzle_step(instruction: Instruction, code: LoadedCode) -> Step:
    check_modifiers(instruction, code, ("offset",))
    destination, data = (get_vector(instruction, code, operand, 1) for operand in get_operands(instruction, code, (2,)))
    sources = np.array(swizzle_sources(get_number(instruction, code, "offset"), code.lanes))

    def execute(group: WaveGroup) -> None:
        values = group.v[data] if group.full else np.where(group.exec_mask, group.v[data], np.uint32(0))
        write_vectors(group, "lds", Arrival(destination, (values[:, sources],), active_lanes(group)))

    return execute


def swizzle_sources(pattern: int, lanes: int) -> list[int]:
    """Return the source lane of each lane. Patterns apply within 32 lanes; the upper half of 64 repeats the lower."""
    return [_find_source_lane(pattern, lane & 31) | (lane & 32) for lane in range(lanes)]


def _find_source_lane(pattern: int, lane: int) -> int:
    if pattern >= _FFT:
        return _find_fft_lane(pattern & 31, lane)
    if pattern >= _ROTATE:
        fixed, distance = pattern & 31, pattern >> 5 & 31
        turned = lane - distance if pattern >> 10 & 1 else lane + distance
        return (lane & fixed) | (turned & ~fixed & 31)
    if pattern >= _FOURS:
        return (lane & 28) | (pattern >> 2 * (lane & 3) & 3)
    and_mask, or_mask, xor_mask = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
    return ((lane & and_mask) | or_mask) ^ xor_mask


def _find_fft_lane(fixed: int, lane: int) -> int:
    """Return the lane index with reversed bits, except the fixed ones."""
    if fixed == 31:
        return lane
    backwards = int(f"{lane:05b}"[::-1], 2)
    return (backwards >> fixed.bit_count()) | (lane & fixed)
