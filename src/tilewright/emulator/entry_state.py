"""Initial register values of waves and initial argument memory of a launch.

Source: LLVM, "User Guide for AMDGPU Backend": "Initial Kernel Execution State" and "Kernel Dispatch".
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tilewright.base.lazy_module import LazyModule
from tilewright.emulator.descriptor import Descriptor
from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.group import POISON, Batch, WaveGroup, WaveIndices
from tilewright.emulator.hardware import PRIVATE_BASE, SHARED_BASE, generation
from tilewright.emulator.instruction import EXEC, SCALARS, TTMP
from tilewright.emulator.kernel_metadata import KernelMetadata
from tilewright.emulator.launch import Launch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")

_WORD = "I"  # of `array`: 32 bits
_LOW_WORD = 0xFFFFFFFF
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


class BatchStart(Protocol):
    """The properties of a batch on which its first registers depend."""

    @property
    def strict(self) -> bool: ...
    @property
    def scratch(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EntryState:
    """The start state that all waves of a launch share. Addresses are in emulated memory."""

    arch: str
    descriptor: Descriptor
    launch: Launch
    kernarg: int
    dispatch: int
    preloaded: tuple[int, ...]  # argument words that go to registers

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
        value = values[item.kind]
        if value.bit_length() > 8 * item.size:
            raise CodeObjectError(f"the hidden argument '{item.kind}' has {item.size} bytes, too few for {value}")
        memory[item.offset : item.offset + item.size] = value.to_bytes(item.size, "little")
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
    per_block, lanes = start.waves_per_block, start.descriptor.lanes
    waves = blocks * per_block
    shape, unset = (start.descriptor.vgprs, waves, lanes), POISON if batch.strict else 0
    # Zeroed pages cost nothing until they are touched.
    vgprs = np.full(shape, unset, np.uint32) if unset else np.zeros(shape, np.uint32)
    threads = np.frombuffer(compute_thread_ids(start, lanes), np.uint32).reshape(per_block, lanes)
    vgprs[0] = np.tile(threads, (blocks, 1))
    scalars = make_scalar_registers(start, batch, first_block, blocks)
    places = WaveIndices(
        wave=np.arange(first_block * per_block, (first_block + blocks) * per_block),
        lds_base=np.arange(blocks, dtype=np.int64).repeat(per_block) * batch.lds.stride,
        scratch_base=_list_scratch_addresses(start, batch, waves),
    )
    sgprs = np.frombuffer(scalars, np.uint32).reshape(waves, SCALARS)
    return WaveGroup(batch, vgprs, sgprs, np.zeros(waves, np.bool_), places, start.descriptor.mode)


def _list_scratch_addresses(start: EntryState, batch: Batch, waves: int) -> NDArray[np.uint64]:
    of_wave = np.uint64(start.descriptor.lanes * batch.scratch_bytes)
    return np.arange(waves, dtype=np.uint64) * of_wave + np.uint64(batch.scratch)


def make_scalar_registers(start: EntryState, batch: BatchStart, first_block: int, blocks: int) -> array[int]:
    """Return the scalar registers of the waves of some work-groups, one wave after another."""
    words = _list_user_words(start, batch)
    row = array(_WORD, [POISON if batch.strict else 0]) * SCALARS
    row[: len(words)] = array(_WORD, words)
    block = array(_WORD)
    for wave in range(start.waves_per_block):
        row[EXEC : EXEC + 2] = array(_WORD, _split_words(_find_active_lanes(start, wave)))
        block += row
    scalars = block * blocks
    for register, values in _list_wave_values(start, batch, first_block, blocks):
        scalars[register::SCALARS] = array(_WORD, values)
    return scalars


def compute_thread_ids(start: EntryState, stride: int) -> array[int]:
    """Return v0 for the waves of a work-group, `stride` words each: work-item indices, ten bits for x, y and z."""
    block, dimensions, lanes = start.launch.block, start.descriptor.thread_dimensions, start.descriptor.lanes
    packed = array(_WORD, bytes(4 * start.waves_per_block * stride))
    for wave in range(start.waves_per_block):
        threads: Iterable[int] = range(wave * lanes, (wave + 1) * lanes)
        values = [thread % block.x for thread in threads]
        if dimensions > 1:
            values = [old | (thread // block.x % block.y) << 10 for old, thread in zip(values, threads, strict=True)]
        if dimensions > 2:
            per_layer = block.x * block.y
            values = [old | (thread // per_layer) << 20 for old, thread in zip(values, threads, strict=True)]
        packed[wave * stride : wave * stride + lanes] = array(_WORD, values)
    return packed


def _find_active_lanes(start: EntryState, wave: int) -> int:
    """Return exec: the last wave of a work-group may have fewer work-items than lanes."""
    lanes = start.descriptor.lanes
    return (1 << min(start.launch.block.count - wave * lanes, lanes)) - 1


def _list_wave_values(
    start: EntryState, batch: BatchStart, first_block: int, blocks: int
) -> Iterable[tuple[int, list[int]]]:
    """Return the registers that differ between work-groups or waves, each with one value for each wave."""
    descriptor, grid, per_block = start.descriptor, start.launch.grid, start.waves_per_block
    block = [number for number in range(first_block, first_block + blocks) for _ in range(per_block)]
    divisors = ((1, grid.x), (grid.x, grid.y), (grid.x * grid.y, grid.z))
    at = descriptor.user_sgprs
    if generation(start.arch) == _IDS_IN_TTMP:
        yield TTMP + 9, [each % grid.x for each in block]
        yield TTMP + 7, [each // grid.x % grid.y | each // (grid.x * grid.y) << 16 for each in block]
        yield TTMP + 8, [wave << _WAVE_ID_SHIFT for wave in range(per_block)] * blocks
    else:
        for asked, (before, size) in zip(descriptor.block_ids, divisors, strict=True):
            if asked:
                yield at, [each // before % size for each in block]
                at += 1
    if descriptor.private_offset:
        of_wave = descriptor.lanes * batch.scratch_bytes
        yield at, [wave * of_wave & _LOW_WORD for wave in range(len(block))]


def _list_user_words(start: EntryState, batch: BatchStart) -> list[int]:
    """Return the first scalar registers, which are the same in all waves."""
    user = start.descriptor.user
    words: list[int] = []
    if user.private_buffer:
        low, high = _split_words(batch.scratch)
        words += [low, high | _SWIZZLED, 0xFFFFFFFF, _PER_LANE]
    for asked, value in (
        (user.dispatch, start.dispatch),
        (user.queue, 0),
        (user.kernarg, start.kernarg),
        (user.dispatch_id, 0),
        (user.flat_scratch, batch.scratch),
    ):
        if asked:
            words += _split_words(value)
    if user.private_size:
        words.append(batch.scratch_bytes)
    return [*words, *start.preloaded]


def _split_words(value: int) -> tuple[int, int]:
    return value & _LOW_WORD, value >> 32
