"""Running a hand-written kernel that gets the address of its output, and reading the output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import tilewright.arch
from tilewright.emulator.device import BATCH_WAVES, EmulatedDevice
from tilewright.emulator.launch import Counters, Extent, Launch, Mode
from tilewright.emulator.memory import Memory

ONE = Extent(1)
ONE_WAVE = Extent(64)  # on CDNA


@dataclass(frozen=True)
class Outcome:
    output: NDArray[np.uint32]
    counters: Counters


def launch(
    code: bytes,
    arch: str = "gfx942",
    *,
    grid: Extent = ONE,
    block: Extent = ONE_WAVE,
    words: int = 64,
    more: bytes = bytes(8),
    mode: Mode = Mode.FAST,
    limit: int = 10_000_000,
    batch_waves: int = BATCH_WAVES,
    engine: str = "numpy",
    turned: bool = False,
) -> Outcome:
    """The output's address is the first argument; `more` follows it. The output is zero before."""
    memory = Memory(1 << 24)
    device = EmulatedDevice(tilewright.arch.load(arch), memory)
    (kernel,) = device.load(code).kernels.values()
    output = memory.allocate(4 * words, "output")
    arguments = output.to_bytes(8, "little") + more
    asked = Launch(grid, block, arguments)
    counters = device.launch(kernel, asked, mode, limit=limit, batch_waves=batch_waves, engine=engine, turned=turned)
    return Outcome(np.frombuffer(memory.read(output, 4 * words), np.uint32), counters)
