"""A hand-written kernel on both engines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.faults import Fault
from tilewright.emulator.launch import Counters, Extent, Launch, Mode
from tilewright.emulator.memory import Memory


@dataclass(frozen=True)
class Run:
    output: np.ndarray
    counters: Counters | None
    fault: Fault | None


def run(
    code: bytes, arch: str, engine: str, mode: Mode, *, words: int = 4096, grid: int = 2, block: int = 256,
    limit: int = 10_000_000, dynamic_lds: int = 0,
) -> Run:  # fmt: skip
    """The kernel gets the addresses of its output and of its input: random words."""
    memory = Memory(1 << 24)
    device = EmulatedDevice(tilewright.arch.load(arch), memory)
    (kernel,) = device.load(code).kernels.values()
    output, given = memory.allocate(4 * words, "output"), memory.allocate(4 * words, "input")
    memory.fill(output, 0, 4 * words)
    memory.write(given, np.random.default_rng(1).integers(0, 2**32, words, dtype=np.uint32).tobytes())
    arguments = output.to_bytes(8, "little") + given.to_bytes(8, "little")
    asked = Launch(Extent(grid), Extent(block), arguments, dynamic_lds)
    counters, fault = None, None
    try:
        counters = device.launch(kernel, asked, mode, detailed=True, limit=limit, engine=engine)
        counters.steps = 0  # what an engine costs, no fact of the kernel
    except Fault as caught:
        fault = caught
    return Run(np.frombuffer(memory.read(output, 4 * words), np.uint32), counters, fault)
