"""Profiles of aiter's hand-written kernels for the first stage of fused experts: each runs on the emulated device.

The code objects are in aiter's wheel, not here. A launch has four work-groups, all of one expert and with all rows, for
one column of tiles; all values are zero, which changes no path.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tilewright.arch import load
from tilewright.arch.occupancy import compute_occupancy
from tilewright.emulator.device import DeviceKernel, EmulatedDevice
from tilewright.emulator.launch import Extent, Launch
from tilewright.emulator.memory import Memory
from tilewright.emulator.profile import KernelProfile, ProfileRecorder, list_instructions
from tilewright.emulator.wave_paths import RECORDED_BLOCKS

THREADS = 256
# Two lengths of the k loop, in elements. Both are multiples of 256 and 384, the rounds of the kernels' loops.
DEPTHS = (1536, 3072)
_GROUP = 128  # elements of k, and columns, that share a scale in the kernels for blocks
_NAME = re.compile(r"_ZN5aiter(\d+)(.*)")
_TILE = re.compile(r"_(\d+)x(\d+)(?:_|$)")


def find_code_object(folder: Path, gpu: str, symbol: str) -> Path:
    """Return the path of the code object with a kernel, in the folder of the unpacked wheel."""
    found = _NAME.fullmatch(symbol)
    assert found is not None, symbol
    return folder / gpu / "fmoe_2stages" / f"{found[2][: int(found[1])]}.co"


def profile_kernel(path: Path, gpu: str, depth: int) -> KernelProfile:
    """Return the profile of a small launch with this length of the k loop."""
    device = EmulatedDevice(load(gpu), Memory(1 << 28))
    (kernel,) = device.load(path.read_bytes()).kernels.values()
    size = kernel.metadata.explicit_bytes
    arguments = _make_arguments(device.memory, path.stem, depth)[:size].ljust(size, b"\0")
    grid, block, recorder = Extent(1, RECORDED_BLOCKS), Extent(THREADS), ProfileRecorder()
    counters = device.launch(kernel, Launch(grid, block, arguments), profile=recorder)
    return KernelProfile(
        kernel=kernel.name,
        arch=gpu,
        wave_size=device.arch.wave_size,
        grid=grid,
        block=block,
        waves=counters.waves,
        vgprs=kernel.descriptor.vgprs,
        lds_bytes=kernel.descriptor.lds_bytes,
        blocks_per_unit=_count_resident(kernel, device),
        instructions=list_instructions(recorder, kernel.program.lines, lambda _: None),
        paths=recorder.paths.list_paths(THREADS // device.arch.wave_size),
    )


def _count_resident(kernel: DeviceKernel, device: EmulatedDevice) -> int:
    """Return the work-groups that a unit holds, by the descriptor: what the hardware reads, not the metadata."""
    used = kernel.descriptor
    return compute_occupancy(
        device.arch,
        vgprs=used.accumulators,
        agprs=used.vgprs - used.accumulators,
        sgprs=device.arch.registers.max_sgprs,
        lds_bytes=used.lds_bytes,
        block_threads=THREADS,
    ).blocks_per_unit


def _make_arguments(memory: Memory, name: str, depth: int) -> bytes:
    """Allocate the arrays of a launch and return its arguments, in the order of `KernelArgs` of asm_moe_2stage.cu."""
    tile = _TILE.search(name)
    assert tile is not None, name
    rows, columns = int(tile[1]), int(tile[2])
    tokens, wide = RECORDED_BLOCKS * rows, 2 * columns  # gate and up
    in_blocks = "blockscale" in name
    scales = (wide // _GROUP) * (depth // _GROUP) if in_blocks else wide
    written = columns * (1 if in_blocks else 2)  # bytes of a row: fp8 with scales, or bf16

    def place(values: ArrayLike, kind: DTypeLike = np.uint8) -> bytes:
        array = np.asarray(values, kind)
        address = memory.allocate(array.nbytes, name)
        memory.write(address, array.tobytes())
        return address.to_bytes(8, "little")

    pointers = (
        place(np.zeros(2 * tokens * wide)),  # results, with room for their scales
        place(np.zeros(tokens * depth)),
        place(np.zeros(wide * depth)),
        place([tokens, tokens], np.uint32),  # rows with padding, and tokens
        place(np.zeros(tokens * depth // _GROUP if in_blocks else tokens), np.float32),
        place(np.zeros(scales), np.float32),
        bytes(8),  # scales for smoothing
        place(np.arange(tokens), np.uint32),  # the token of each row
        place([0] * RECORDED_BLOCKS, np.uint32),  # the expert of each work-group
    )
    sizes = (depth, columns, tokens, 1)
    strides = (depth, depth, written, wide * depth, 4 * scales, 4 * columns)
    chosen, split, activation = 1, 0, 0
    values = (*pointers, *sizes, *strides, chosen, split, activation, place(np.zeros(tokens), np.float32))
    words = (each if isinstance(each, bytes) else struct.pack("<I", each) for each in values)
    return b"".join(word.ljust(16, b"\0") for word in words)  # each argument is at a multiple of 16 bytes
