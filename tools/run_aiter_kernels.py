"""Run hand-written kernels of the aiter wheel on the emulated device, and compare with NumPy.

    python tools/run_aiter_kernels.py FOLDER

FOLDER has the code objects by GPU: aiter_meta/hsa of the unpacked wheel. Matrix products of bf16 (bf16gemm) have small
integers and halves, so that they must be exact; the selection of experts (topksoftmax) may differ by rounding. Each
runs in fast mode, in strict mode, and in strict mode with the reverse order of waves.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import tilewright.arch
from tilewright.emulator.device import DeviceKernel, EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

Array = NDArray[Any]
MODES = (("fast", Mode.FAST, False), ("strict", Mode.STRICT, False), ("strict, reversed", Mode.STRICT, True))
THREADS = 256


@dataclass(frozen=True)
class Case:
    """A launch: the arrays that it gets the addresses of, its other arguments, and a check of the arrays afterwards."""

    name: str
    arrays: Sequence[Array]
    arguments: Callable[[Sequence[int]], bytes]
    grid: tuple[int, int, int]
    check: Callable[[Sequence[Array]], bool]


def pack(*values: int | float | bytes) -> bytes:
    """Pack arguments: aiter's kernels read each at a multiple of 16 bytes. Addresses are bytes."""
    parts = []
    for value in values:
        word = value if isinstance(value, bytes) else struct.pack("<f" if isinstance(value, float) else "<I", value)
        parts.append(word.ljust(16, b"\0"))
    return b"".join(parts)


def to_address(value: int) -> bytes:
    return value.to_bytes(8, "little")


def make_gemm(path: Path, split: int) -> Case:
    """A product with a ragged M. The tile is in the name of the file."""
    tile_m, tile_n = (int(part) for part in path.stem.split("_")[3].split("x"))
    m, n, k = 100, 192, 256
    numbers = np.random.default_rng(0)
    a, b = ((numbers.integers(-4, 5, (rows, k)) / 2).astype(ml_dtypes.bfloat16) for rows in (m, n))
    want = a.astype(np.float64) @ b.astype(np.float64).T

    def arguments(places: Sequence[int]) -> bytes:
        d, left, right = (to_address(place) for place in places)
        sizes = (0, 0, n * 4, 0, k * 2, 0, k * 2, 0, m, n, k, split)
        return pack(d, to_address(0), left, right, 1.0, 0.0, *sizes)

    return Case(
        f"{path.stem}, split {split}",
        [np.zeros((m, n), np.float32), a, b],
        arguments,
        (-(-n // tile_n), -(-m // tile_m), split),
        lambda arrays: np.array_equal(arrays[0], want),
    )


def make_selection(path: Path) -> Case:
    """The largest of a softmax over experts, for 37 tokens."""
    rows, experts, chosen = (int(part) for part in path.stem.split("_")[1].split("x"))
    tokens = 37
    gates = np.random.default_rng(0).standard_normal((tokens, experts)).astype(np.float32)
    shares = np.exp(gates - gates.max(1, keepdims=True))
    order = np.argsort(-shares, 1)[:, :chosen]
    weights = np.take_along_axis(shares, order, 1)
    weights /= weights.sum(1, keepdims=True)

    def arguments(places: Sequence[int]) -> bytes:
        return pack(*(to_address(place) for place in places), tokens, experts, chosen, 1, chosen * 4)

    def check(arrays: Sequence[Array]) -> bool:
        return np.array_equal(arrays[0], order) and bool(np.abs(arrays[1] - weights).max() < 1e-5)

    found = [np.zeros((tokens, chosen), np.int32), np.zeros((tokens, chosen), np.float32), gates]
    return Case(path.stem, found, arguments, (-(-tokens // rows), 1, 1), check)


def run(
    path: Path,
    gpu: str,
    case: Case,
    mode: Mode,
    turned: bool,
    change: Callable[[DeviceKernel], DeviceKernel] = lambda kernel: kernel,
) -> tuple[bool, int]:
    """Return whether the results are right, and the executed instructions of waves. `change` may change the kernel."""
    memory = Memory(1 << 28)
    device = EmulatedDevice(tilewright.arch.load(gpu), memory)
    (kernel,) = map(change, device.load(path.read_bytes()).kernels.values())
    places = []
    for array in case.arrays:
        places.append(memory.allocate(array.nbytes, f"array {array.shape}"))
        memory.write(places[-1], array.tobytes())
    size = kernel.metadata.explicit_bytes
    arguments = case.arguments(places)[:size].ljust(size, b"\0")
    counters = device.launch(kernel, Launch(Extent(*case.grid), Extent(THREADS), arguments), mode, turned=turned)
    after = [
        np.frombuffer(memory.read(place, array.nbytes), array.dtype).reshape(array.shape)
        for place, array in zip(places, case.arrays, strict=True)
    ]
    return case.check(after), sum(counters.instructions.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with the code objects by GPU: aiter_meta/hsa")
    given = parser.parse_args()
    wrong = total = 0
    for gpu in ("gfx942", "gfx950"):
        folder = given.folder / gpu
        cases = [(path, make_gemm(path, split)) for path in sorted(folder.glob("bf16gemm/*.co")) for split in (1, 2)]
        cases += [(path, make_selection(path)) for path in sorted(folder.glob("topksoftmax/*.co"))]
        for path, case in cases:
            for label, mode, turned in MODES:
                start = time.monotonic()
                right, count = run(path, gpu, case, mode, turned)
                seconds = time.monotonic() - start
                verdict = "right" if right else "WRONG"
                print(f"{gpu} {case.name}, {label}: {verdict}, {count} instructions, {seconds:.1f} s", flush=True)
                total += 1
                wrong += not right
    print(f"{total - wrong} of {total} right")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
