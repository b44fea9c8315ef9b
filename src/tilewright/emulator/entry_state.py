"""Initial register values of waves and initial argument memory of a launch.

Source: LLVM, "User Guide for AMDGPU Backend": "Initial Kernel Execution State" and "Kernel Dispatch".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.descriptor import Descriptor
from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.group import POISON, U32, Batch, WaveGroup, WaveIndices
from tilewright.emulator.hardware import PRIVATE_BASE, SHARED_BASE, generation
from tilewright.emulator.instruction import EXEC, SCALARS, TTMP
from tilewright.emulator.kernel_metadata import KernelMetadata
from tilewright.emulator.launch import Launch

# The work-group indices are in ttmp9 and ttmp7 (LLVM, feature architected-sgprs with work-group ids in TTMPs), and the
# index of the wave in its work-group is in bits 25 to 29 of ttmp8 (LLVM, SITargetLowering::lowerWaveID).
_IDS_IN_TTMP = "gfx12"
_WAVE_ID_SHIFT = 25
_ABSENT = (
    "none", "printf_buffer", "default_queue",
    "completion_action", "queue_ptr", "tool_correlation_id",
)  # fmt: skip
_DIMENSIONS = 3  # HIP launches are three-dimensional
_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")  # hsa_kernel_dispatch_packet_t
_KERNEL_DISPATCH = 2  # HSA_PACKET_TYPE_KERNEL_DISPATCH
# Word 1 of a buffer descriptor, bit 31: swizzled. Word 3: index stride 64, and the lane index is added.
_SWIZZLED = 0x80000000
_PER_LANE = 0x00E00000


@dataclass(frozen=True, slots=True)
class EntryState:
    """The start state that all waves of a launch share. Addresses are in emulated memory."""

    arch: str
    descriptor: Descriptor
    launch: Launch
    kernarg: int
    dispatch: int
    preloaded: U32  # argument words that go to registers

    @property
    def waves_per_block(self) -> int:
        return -(-self.launch.block.count // self.descriptor.lanes)


def build_argument_memory(kernel: KernelMetadata, launch: Launch) -> bytes:
    """Return the argument memory: the caller's arguments and the hidden ones."""
    memory = bytearray(kernel.argument_bytes)
    memory[: len(launch.arguments)] = launch.arguments
    values = _list_hidden_values(launch)
    for item in kernel.arguments:
        if not item.hidden:
            continue
        if item.kind not in values:
            known = ", ".join(values)
            raise CodeObjectError(f"the hidden argument '{item.kind}' is not supported; supported are {known}")
        memory[item.offset : item.offset + item.size] = values[item.kind].to_bytes(item.size, "little")
    return bytes(memory)


def _list_hidden_values(launch: Launch) -> Mapping[str, int]:
    """Return hidden arguments by kind. A queue does not exist: its address is 0."""
    grid, block = launch.grid, launch.block
    values = {
        "hidden_grid_dims": _DIMENSIONS,
        "hidden_dynamic_lds_size": launch.dynamic_lds,
        "hidden_hostcall_buffer": launch.host_calls,
        "hidden_heap_v1": launch.heap,
        # Device libraries compare it with 0 to find out whether a launch is cooperative.
        "hidden_multigrid_sync_arg": int(launch.cooperative),
        "hidden_private_base": PRIVATE_BASE >> 32,
        "hidden_shared_base": SHARED_BASE >> 32,
    }
    for axis in "xyz":
        values[f"hidden_block_count_{axis}"] = getattr(grid, axis)
        values[f"hidden_group_size_{axis}"] = getattr(block, axis)
        values[f"hidden_remainder_{axis}"] = 0  # the grid consists of complete work-groups
        values[f"hidden_global_offset_{axis}"] = 0
    return values | {f"hidden_{name}": 0 for name in _ABSENT}


def build_dispatch_packet(launch: Launch, descriptor: Descriptor, kernarg: int) -> bytes:
    """Return the packet that a queue would hold for this launch."""
    grid, block = launch.grid, launch.block
    sizes = (grid.x * block.x, grid.y * block.y, grid.z * block.z)
    lds = descriptor.lds_bytes + launch.dynamic_lds
    return _PACKET.pack(
        _KERNEL_DISPATCH, _DIMENSIONS, block.x, block.y, block.z, 0,
        *sizes, descriptor.private_bytes, lds, 0, kernarg, 0, 0,
    )  # fmt: skip


def make_first_group(start: EntryState, batch: Batch, first_block: int, blocks: int) -> WaveGroup:
    """Return the waves of some work-groups before their first instruction."""
    per_block = start.waves_per_block
    waves = blocks * per_block
    vgprs = _make_filled((start.descriptor.vgprs, waves, start.descriptor.lanes), POISON if batch.strict else 0)
    vgprs[0] = np.tile(compute_thread_ids(start), (blocks, 1))
    sgprs = make_scalar_registers(start, batch, first_block, blocks)
    places = WaveIndices(
        wave=np.arange(first_block * per_block, (first_block + blocks) * per_block),
        lds_base=np.arange(blocks, dtype=np.int64).repeat(per_block) * batch.lds.stride,
        scratch_base=_compute_scratch_offsets(start, batch, waves) + np.uint64(batch.scratch),
    )
    return WaveGroup(batch, vgprs, sgprs, np.zeros(waves, np.bool_), places, start.descriptor.mode)


def make_scalar_registers(start: EntryState, batch: Batch, first_block: int, blocks: int) -> U32:
    """Return the scalar registers of the waves of some work-groups, one row per wave."""
    per_block = start.waves_per_block
    waves = blocks * per_block
    sgprs = _make_filled((waves, SCALARS), POISON if batch.strict else 0)
    _set_exec(sgprs, np.tile(_list_threads(start) < start.launch.block.count, (blocks, 1)))
    block = np.arange(first_block, first_block + blocks).repeat(per_block)
    _set_scalars(sgprs, start, batch, block, _compute_scratch_offsets(start, batch, waves))
    return sgprs


def compute_thread_ids(start: EntryState) -> NDArray[np.int64]:
    """Return v0 for the waves of a work-group: work-item indices, ten bits for each of x, y and z."""
    thread = _list_threads(start)
    block, dimensions = start.launch.block, start.descriptor.thread_dimensions
    packed = thread % block.x
    if dimensions > 1:
        packed = packed | (thread // block.x % block.y) << 10
    if dimensions > 2:
        packed = packed | (thread // (block.x * block.y)) << 20
    return packed


def _list_threads(start: EntryState) -> NDArray[np.int64]:
    """Return the work-item indices of a work-group by wave and lane."""
    lanes = start.descriptor.lanes
    return np.arange(start.waves_per_block)[:, None] * lanes + np.arange(lanes)


def _compute_scratch_offsets(start: EntryState, batch: Batch, waves: int) -> NDArray[np.uint64]:
    return np.arange(waves, dtype=np.uint64) * np.uint64(start.descriptor.lanes * batch.scratch_bytes)


def _make_filled(shape: tuple[int, ...], value: int) -> U32:
    # Zeroed pages cost nothing until they are touched.
    return np.full(shape, value, np.uint32) if value else np.zeros(shape, np.uint32)


def _set_exec(sgprs: U32, active: NDArray[np.bool_]) -> None:
    words = np.packbits(active, axis=1, bitorder="little").view(np.uint32)
    sgprs[:, EXEC : EXEC + 2] = 0
    sgprs[:, EXEC : EXEC + words.shape[1]] = words


def _set_scalars(
    sgprs: U32, start: EntryState, batch: Batch, block: NDArray[np.int64], scratch: NDArray[np.uint64]
) -> None:
    descriptor, grid = start.descriptor, start.launch.grid
    words = _list_user_words(start, batch)
    sgprs[:, : len(words)] = words
    ids = (block % grid.x, block // grid.x % grid.y, block // (grid.x * grid.y))
    at = descriptor.user_sgprs
    if generation(start.arch) == _IDS_IN_TTMP:
        sgprs[:, TTMP + 9] = ids[0]
        sgprs[:, TTMP + 7] = ids[1] | ids[2] << 16
        sgprs[:, TTMP + 8] = np.arange(len(block)) % start.waves_per_block << _WAVE_ID_SHIFT
    else:
        for asked, values in zip(descriptor.block_ids, ids, strict=True):
            if asked:
                sgprs[:, at] = values
                at += 1
    if descriptor.private_offset:
        sgprs[:, at] = scratch


def _list_user_words(start: EntryState, batch: Batch) -> list[int]:
    """Return the first scalar registers, which are the same in all waves."""
    user = start.descriptor.user
    words: list[int] = []
    if user.private_buffer:
        low, high = _split_address(batch.scratch)
        words += [low, high | _SWIZZLED, 0xFFFFFFFF, _PER_LANE]
    for asked, value in (
        (user.dispatch, start.dispatch),
        (user.queue, 0),
        (user.kernarg, start.kernarg),
        (user.dispatch_id, 0),
        (user.flat_scratch, batch.scratch),
    ):
        if asked:
            words += _split_address(value)
    if user.private_size:
        words.append(batch.scratch_bytes)
    return [*words, *(int(word) for word in start.preloaded)]


def _split_address(address: int) -> tuple[int, int]:
    return address & 0xFFFFFFFF, address >> 32
