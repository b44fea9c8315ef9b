"""Measure how fast the emulated device runs a GEMM: the NumPy engine compared with the native engine.

    python tools/bench_emulator.py                                 # a table
    python tools/bench_emulator.py --out docs/bench-emulator.md    # the same as a page

Both run the same kernel (fp16, compv3, cshuffle, 128x128x32 on gfx942) on the same data. Rounds are interleaved, and
the lowest time counts. The first launch, which translates the code, is reported separately. `--beside FOLDER` also
measures another emulator: a module gcnemu with CodeObject, Memory and Emulator. The page leaves it out.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_tests import describe_run
from tilewright import arch as archs
from tilewright.base.knobs import job_count
from tilewright.building.builder import build_kernels
from tilewright.building.compile_job import CODE_OBJECT
from tilewright.emulator.device import DeviceKernel, EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory
from tilewright.ops import find_op

ARCH = "gfx942"
BLOCK = (128, 128, 32)
SIZES = ((256, 256, 128), (512, 512, 256), (1024, 1024, 512), (2048, 2048, 512))
OTHER = "the other"
_TOLERANCE = 0.05  # results are at most about 60, where fp16 rounds by up to 0.016


@dataclass(frozen=True)
class Problem:
    """C = A · Bᵀ."""

    a: NDArray[np.float16]
    b: NDArray[np.float16]

    @property
    def sizes(self) -> tuple[int, int, int]:
        return len(self.a), len(self.b), self.a.shape[1]

    @property
    def blocks(self) -> int:
        m, n, _ = self.sizes
        return -(-m // BLOCK[0]) * -(-n // BLOCK[1])

    def check(self, c: NDArray[np.float16], who: str) -> None:
        exact = self.a.astype(np.float32) @ self.b.astype(np.float32).T
        error = float(np.abs(c.astype(np.float32) - exact).max())
        if not error < _TOLERANCE:
            raise SystemExit(f"{who} is wrong by {error} for {self.sizes}")


def make_problem(m: int, n: int, k: int) -> Problem:
    numbers = np.random.default_rng(0)
    a, b = (numbers.uniform(-1, 1, (rows, k)).astype(np.float16) for rows in (m, n))
    return Problem(a, b)


def find_kernel_name(names: list[str], k: int) -> str:
    """Find the kernel that CK's host code would launch, by the number of steps along k."""
    steps = -(-k // BLOCK[2])
    tail = 10 if steps > 2 else 1 - steps % 2
    marks = (f"ELb{int(steps > 2)}ELNS_10TailNumberE{tail}E", "memory_operation_enumE0E")
    return next(name for name in names if all(mark in name for mark in marks))


def pack_arguments(a: int, b: int, c: int, sizes: tuple[int, int, int], room: int) -> bytes:
    m, n, k = sizes
    return struct.pack("<QQQQiiiiiiii", a, b, 0, c, m, n, k, k, k, 0, n, 1)[:room].ljust(room, b"\0")


class OurEmulator:
    """The kernel on our emulated device."""

    def __init__(self, code: bytes) -> None:
        self.device = EmulatedDevice(archs.load(ARCH), Memory())
        self.kernels = self.device.load(code).kernels

    def launch(self, given: Problem, engine: str, mode: Mode) -> Callable[[], NDArray[np.float16]]:
        m, n, k = given.sizes
        kernel: DeviceKernel = self.kernels[find_kernel_name(list(self.kernels), k)]
        memory = self.device.memory
        a, b, c = (memory.allocate(size, "") for size in (given.a.nbytes, given.b.nbytes, 2 * m * n))
        memory.write(a, given.a.tobytes())
        memory.write(b, given.b.tobytes())
        packed = pack_arguments(a, b, c, given.sizes, kernel.metadata.explicit_bytes)
        launch = Launch(Extent(given.blocks), Extent(256), packed)

        def run() -> NDArray[np.float16]:
            self.device.launch(kernel, launch, mode, engine=engine)
            return np.frombuffer(memory.read(c, 2 * m * n), np.float16).reshape(m, n)

        return run


def load_other_emulator(folder: Path, path: Path) -> Callable[[Problem], Callable[[], NDArray[np.float16]]]:
    """Load the emulator in a folder, and the code object into it."""
    sys.path.insert(0, str(folder))
    old: Any = importlib.import_module("gcnemu")
    code = old.CodeObject(str(path))

    def prepare(given: Problem) -> Callable[[], NDArray[np.float16]]:
        m, n, k = given.sizes
        machine = old.Emulator(old.Memory(1 << 27))
        a, b = machine.mem.put(given.a), machine.mem.put(given.b)
        c = machine.mem.put(np.zeros((m, n), np.float16))
        kernel = machine.kernel(code, find_kernel_name(list(code.kernels), k))
        packed = pack_arguments(a, b, c, given.sizes, 64)

        def run() -> NDArray[np.float16]:
            machine.launch(kernel, (given.blocks, 1, 1), (256, 1, 1), packed)
            result: NDArray[np.float16] = machine.mem.get(c, np.float16, (m, n))
            return result

        return run

    return prepare


def measure(runs: dict[str, Callable[[], NDArray[np.float16]]], given: Problem, rounds: int) -> dict[str, list[float]]:
    """Measure the seconds of the first launch, and the lowest of the others, by name."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            result = run()
            times[name].append(time.perf_counter() - begin)
            given.check(result, name)
    return {name: [seconds[0], min(seconds[1:])] for name, seconds in times.items()}


def format_table(rows: list[tuple[tuple[int, int, int], dict[str, list[float]]]]) -> str:
    names = list(rows[0][1])
    head = ["M x N x K", *(f"{name}, ms" for name in names), "numpy / native", "numpy / native, strict"]
    if OTHER in names:
        head.append(f"{OTHER} / numpy")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for sizes, times in rows:
        least = {name: seconds[1] for name, seconds in times.items()}
        cells = ["x".join(map(str, sizes)), *(f"{1000 * least[name]:.1f}" for name in names)]
        cells.append(f"{least['numpy'] / least['native']:.1f}")
        cells.append(f"{least['numpy, strict'] / least['native, strict']:.1f}")
        if OTHER in names:
            cells.append(f"{least[OTHER] / least['numpy']:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def format_page(measured: list[tuple[tuple[int, int, int], dict[str, list[float]]]]) -> str:
    rows = [(sizes, {name: t for name, t in times.items() if name != OTHER}) for sizes, times in measured]
    first = {name: seconds[0] for name, seconds in rows[0][1].items()}
    begun = ", ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in first.items())
    return f"""# Speed of the emulated device

Written by `make bench-emulator`. An fp16 GEMM (compv3, cshuffle, 128x128x32, {ARCH}) on {platform.machine()},
{job_count()} threads for the native engine in fast mode, one otherwise. Lowest time of interleaved launches.
{describe_run()}

{format_table(rows)}

First launch of the smallest problem, which includes translating the code:
{begun}.
The native engine is compiled once on your machine, which is not included in these times.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write a page")
    parser.add_argument("--code", type=Path, help="a code object to run, instead of building the kernel")
    parser.add_argument("--beside", type=Path, help="a folder with another emulator")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many sizes to measure, from the smallest")
    given = parser.parse_args()
    path = given.code or build_code_object()
    ours, old = OurEmulator(path.read_bytes()), load_other_emulator(given.beside, path) if given.beside else None
    rows = []
    for sizes in SIZES[: given.sizes]:
        data = make_problem(*sizes)
        runs = {"numpy": ours.launch(data, "numpy", Mode.FAST), "native": ours.launch(data, "native", Mode.FAST)}
        runs |= {f"{engine}, strict": ours.launch(data, engine, Mode.STRICT) for engine in ("numpy", "native")}
        if old is not None:
            runs[OTHER] = old(data)
        rows.append((sizes, measure(runs, data, given.rounds)))
        print(format_table(rows[-1:]).splitlines()[-1], flush=True)
    print(format_table(rows))
    if given.out:
        given.out.write_text(format_page(rows), "utf-8")


def build_code_object() -> Path:
    """Return the path of the kernel's code object in the store."""
    op = find_op("gemm")
    kernel = op.make_kernel(op.make_example({"block": BLOCK}), ARCH)
    result = build_kernels([kernel])
    if result.failures:
        raise SystemExit(f"the kernel does not build: {result.failures}")
    return result.artifacts[kernel].verify_file(CODE_OBJECT)


if __name__ == "__main__":
    main()
