"""What a wave finds in its registers, and the kernel in its argument memory, when a launch begins.

After LLVM, "User Guide for AMDGPU Backend": "Initial Kernel Execution State" and "Kernel Dispatch".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.apertures import PRIVATE_BASE, SHARED_BASE
from tilewright.emulator.descriptor import Descriptor
from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.gpus import generation
from tilewright.emulator.group import POISON, U32, Batch, Group, Places
from tilewright.emulator.instruction import EXEC, SCALARS, TTMP
from tilewright.emulator.kernel_metadata import KernelMetadata
from tilewright.emulator.launch import Launch

# The numbers of the work-group are in ttmp9 and ttmp7 (LLVM, feature architected-sgprs with block numbers in TTMPs).
_BLOCK_IDS_IN_TTMP = "gfx12"
_ABSENT = (
    "none", "printf_buffer", "hostcall_buffer", "multigrid_sync_arg", "heap_v1", "default_queue",
    "completion_action", "queue_ptr", "tool_correlation_id",
)  # fmt: skip
_DIMENSIONS = 3  # HIP launches are three-dimensional
_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")  # hsa_kernel_dispatch_packet_t
_KERNEL_DISPATCH = 2  # HSA_PACKET_TYPE_KERNEL_DISPATCH
# A buffer descriptor's word 1, bit 31: swizzled. Word 3: index stride 64, and the lane's number is added.
_SWIZZLED = 0x80000000
_PER_LANE = 0x00E00000


@dataclass(frozen=True, slots=True)
class Start:
    """What all waves of a launch start from. Addresses are of the emulated memory."""

    arch: str
    descriptor: Descriptor
    launch: Launch
    kernarg: int
    dispatch: int
    preloaded: U32  # argument words that go to registers

    @property
    def waves_per_block(self) -> int:
        return -(-self.launch.block.count // self.descriptor.lanes)


def argument_memory(kernel: KernelMetadata, launch: Launch) -> bytes:
    """The kernel's arguments as the caller gave them, and the hidden ones."""
    memory = bytearray(kernel.argument_bytes)
    memory[: len(launch.arguments)] = launch.arguments
    values = _hidden_values(launch)
    for item in kernel.arguments:
        if not item.hidden:
            continue
        if item.kind not in values:
            known = ", ".join(values)
            raise CodeObjectError(f"the hidden argument '{item.kind}' is not known; known are {known}")
        memory[item.offset : item.offset + item.size] = values[item.kind].to_bytes(item.size, "little")
    return bytes(memory)


def _hidden_values(launch: Launch) -> Mapping[str, int]:
    """Hidden arguments by kind. There is no host to call, no heap and no queue: those addresses are 0."""
    grid, block = launch.grid, launch.block
    values = {
        "hidden_grid_dims": _DIMENSIONS,
        "hidden_dynamic_lds_size": launch.dynamic_lds,
        "hidden_private_base": PRIVATE_BASE >> 32,
        "hidden_shared_base": SHARED_BASE >> 32,
    }
    for axis in "xyz":
        values[f"hidden_block_count_{axis}"] = getattr(grid, axis)
        values[f"hidden_group_size_{axis}"] = getattr(block, axis)
        values[f"hidden_remainder_{axis}"] = 0  # the grid is made of whole work-groups
        values[f"hidden_global_offset_{axis}"] = 0
    return values | {f"hidden_{name}": 0 for name in _ABSENT}


def dispatch_packet(launch: Launch, descriptor: Descriptor, kernarg: int) -> bytes:
    """The packet that a queue would hold for this launch."""
    grid, block = launch.grid, launch.block
    sizes = (grid.x * block.x, grid.y * block.y, grid.z * block.z)
    lds = descriptor.lds_bytes + launch.dynamic_lds
    return _PACKET.pack(
        _KERNEL_DISPATCH, _DIMENSIONS, block.x, block.y, block.z, 0,
        *sizes, descriptor.private_bytes, lds, 0, kernarg, 0, 0,
    )  # fmt: skip


def first_group(start: Start, batch: Batch, first_block: int, blocks: int) -> Group:
    """The waves of some work-groups, before their first instruction."""
    per_block = start.waves_per_block
    waves = blocks * per_block
    vgprs = _filled((start.descriptor.vgprs, waves, start.descriptor.lanes), POISON if batch.strict else 0)
    vgprs[0] = np.tile(first_vector(start), (blocks, 1))
    sgprs = first_scalars(start, batch, first_block, blocks)
    scratch = _scratch_offsets(start, batch, waves)
    places = Places(
        wave=np.arange(first_block * per_block, (first_block + blocks) * per_block),
        lds_base=np.arange(blocks, dtype=np.int64).repeat(per_block) * batch.lds.stride,
        scratch_base=scratch + np.uint64(batch.scratch),
    )
    return Group(batch, vgprs, sgprs, np.zeros(waves, np.bool_), places, start.descriptor.float_mode)


def first_vector(start: Start) -> NDArray[np.int64]:
    """The first vector register of each wave of a work-group, the only one with a value: the work-items' numbers."""
    return _thread_ids(start, _threads(start))


def first_scalars(start: Start, batch: Batch, first_block: int, blocks: int) -> U32:
    """The scalar registers of the waves of some work-groups: [waves, SCALARS]."""
    per_block = start.waves_per_block
    sgprs = _filled((blocks * per_block, SCALARS), POISON if batch.strict else 0)
    _set_exec(sgprs, np.tile(_threads(start) < start.launch.block.count, (blocks, 1)))
    block = np.arange(first_block, first_block + blocks).repeat(per_block)
    _set_scalars(sgprs, start, batch, block, _scratch_offsets(start, batch, len(sgprs)))
    return sgprs


def _threads(start: Start) -> NDArray[np.int64]:
    """The work-items of a work-group by wave and lane."""
    lanes = start.descriptor.lanes
    return np.arange(start.waves_per_block * lanes).reshape(-1, lanes)


def _scratch_offsets(start: Start, batch: Batch, waves: int) -> NDArray[np.uint64]:
    return np.arange(waves, dtype=np.uint64) * np.uint64(start.descriptor.lanes * batch.scratch_bytes)


def _filled(shape: tuple[int, ...], value: int) -> U32:
    # Zeros of the system cost nothing until they are touched.
    return np.full(shape, value, np.uint32) if value else np.zeros(shape, np.uint32)


def _thread_ids(start: Start, thread: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of the work-items, packed into one register: ten bits for each of x, y and z."""
    block, dimensions = start.launch.block, start.descriptor.thread_dimensions
    packed = thread % block.x
    if dimensions > 1:
        packed = packed | (thread // block.x % block.y) << 10
    if dimensions > 2:
        packed = packed | (thread // (block.x * block.y)) << 20
    return packed


def _set_exec(sgprs: U32, active: NDArray[np.bool_]) -> None:
    words = np.packbits(active, axis=1, bitorder="little").view(np.uint32)
    sgprs[:, EXEC : EXEC + 2] = 0
    sgprs[:, EXEC : EXEC + words.shape[1]] = words


def _set_scalars(sgprs: U32, start: Start, batch: Batch, block: NDArray[np.int64], scratch: NDArray[np.uint64]) -> None:
    descriptor, grid = start.descriptor, start.launch.grid
    words = _user_words(start, batch)
    sgprs[:, : len(words)] = words
    ids = (block % grid.x, block // grid.x % grid.y, block // (grid.x * grid.y))
    at = descriptor.user_sgprs
    if generation(start.arch) == _BLOCK_IDS_IN_TTMP:
        sgprs[:, TTMP + 9] = ids[0]
        sgprs[:, TTMP + 7] = ids[1] | ids[2] << 16
    else:
        for asked, values in zip(descriptor.block_ids, ids, strict=True):
            if asked:
                sgprs[:, at] = values
                at += 1
    if descriptor.private_offset:
        sgprs[:, at] = scratch


def _user_words(start: Start, batch: Batch) -> list[int]:
    """The first scalar registers, the same in all waves."""
    user = start.descriptor.user
    words: list[int] = []
    if user.private_buffer:
        low, high = _halves(batch.scratch)
        words += [low, high | _SWIZZLED, 0xFFFFFFFF, _PER_LANE]
    for asked, value in (
        (user.dispatch, start.dispatch),
        (user.queue, 0),
        (user.kernarg, start.kernarg),
        (user.dispatch_id, 0),
        (user.flat_scratch, batch.scratch),
    ):
        if asked:
            words += _halves(value)
    if user.private_size:
        words.append(batch.scratch_bytes)
    return [*words, *(int(word) for word in start.preloaded)]


def _halves(address: int) -> tuple[int, int]:
    return address & 0xFFFFFFFF, address >> 32
