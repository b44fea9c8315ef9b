"""Measure the cost of an emulated instruction on six loops, compared with the same loop in C, and of starting programs.

    python tools/bench_emulated_loops.py                                       # tables
    python tools/bench_emulated_loops.py --out docs/bench-emulated-loops.md    # the same as a page

Each loop is one C function, called by every thread of a kernel and by a plain loop on the CPU. All figures are CPU
time: the lowest of interleaved rounds, so that other processes on the machine matter little.
"""

from __future__ import annotations

import argparse
import ctypes
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deep_tests import describe_run
from hip_compiler import write_hipcc
from tilewright.arch import load
from tilewright.building.compile import compile_device
from tilewright.building.toolchain import find_toolchain
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import NATIVE, Extent, Launch, Mode
from tilewright.emulator.memory import Memory

GPU = "gfx942"
THREADS = 256
COUNT = 64 * 1024  # elements of each loop
SIDE = 256  # COUNT is SIDE x SIDE
PROGRAMS = 8
_LEAST_S = 0.02  # CPU time of a measurement in C
_TOLERANCE = 1e-5

# The statements for element `i`, with the input `x`, the output `y` and a square of SIDE x SIDE elements.
LOOPS = {
    "y = a x + y": "y[i] = 1.5f * x[i] + y[i];",
    "polynomial of degree 64": (
        "float v = x[i], s = 0; for(int k = 0; k < 64; ++k) s = __builtin_fmaf(s, v, 0.5f); y[i] = s;"
    ),
    "integer hash, 32 rounds": (
        "unsigned h = i; for(int k = 0; k < 32; ++k) { h ^= h >> 15; h *= 0x2c1b3c6du; h ^= h << 3; } "
        "y[i] = (float)(h >> 8);"
    ),
    "stencil of 5 points": (
        "unsigned r = i / SIDE, c = i % SIDE; float s = x[i]; "
        "if(r > 0) s += x[i - SIDE]; if(r + 1 < SIDE) s += x[i + SIDE]; "
        "if(c > 0) s += x[i - 1]; if(c + 1 < SIDE) s += x[i + 1]; y[i] = s;"
    ),
    "matrix product, 32 terms": (
        "unsigned r = i / SIDE, c = i % SIDE; float s = 0; "
        "for(int k = 0; k < 32; ++k) s = __builtin_fmaf(x[r * SIDE + k], x[k * SIDE + c], s); y[i] = s;"
    ),
    "steps of Collatz": (
        "unsigned v = i % 512 + 1, steps = 0; while(v != 1) { v = v % 2 ? 3 * v + 1 : v / 2; ++steps; } "
        "y[i] = (float)steps;"
    ),
}
SOURCE = """#define SIDE {side}
{place} static inline void run(unsigned i, const float* x, float* y) {{ {body} }}
{entry}
"""
KERNEL = """extern "C" __attribute__((global)) void loop(const float* x, float* y)
{ run(__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x(), x, y); }"""
FUNCTION = "void loop(const float* x, float* y, unsigned n) { for(unsigned i = 0; i < n; ++i) run(i, x, y); }"
PROGRAM = """#include <hip/hip_runtime.h>
#include <cstdio>
__global__ void fill(int* out) { out[threadIdx.x] = threadIdx.x; }
int main()
{
    int* out;
    int last = 0;
    if(hipMalloc(&out, 1024) != hipSuccess) return 1;
    fill<<<1, 256>>>(out);
    if(hipMemcpy(&last, out + 255, 4, hipMemcpyDeviceToHost) != hipSuccess) return 1;
    std::printf("%d\\n", last);
    return hipFree(out) == hipSuccess ? 0 : 1;
}
"""


@dataclass(frozen=True)
class LoopFigures:
    """CPU seconds of one loop, and the instructions that its waves execute."""

    name: str
    instructions: int
    fast_s: float
    strict_s: float
    c_s: float

    def format_row(self) -> str:
        per = 1e9 / self.instructions
        cells = (f"{self.instructions:,}", f"{self.fast_s * per:.0f}", f"{self.strict_s * per:.0f}",
                 f"{self.fast_s * per / 64:.2f}", f"{1e9 * self.c_s / COUNT:.2f}",
                 f"{self.fast_s / self.c_s:.0f}", f"{self.strict_s / self.c_s:.0f}")  # fmt: skip
        return f"| {self.name} | " + " | ".join(cells) + " |"


def measure_loop(name: str, body: str, folder: Path, rounds: int) -> LoopFigures:
    """Measure one loop, after comparing its results."""
    numbers = np.random.default_rng(0)
    x = numbers.uniform(-0.9, 0.9, COUNT).astype(np.float32)
    in_c, expected = prepare_c(body, x, folder)
    device = EmulatedDevice(load(GPU), Memory())
    file = folder / "loop.co"
    text = SOURCE.format(side=SIDE, place="__attribute__((device))", body=body, entry=KERNEL)
    if not (compiled := compile_device(text, device.arch, find_toolchain(with_ck=False), file)).ok:
        raise SystemExit(compiled.log)
    kernel = device.load(file.read_bytes()).kernels["loop"]
    given, out = (device.memory.allocate(x.nbytes, label) for label in "xy")
    device.memory.write(given, x.tobytes())
    launch = Launch(Extent(COUNT // THREADS), Extent(THREADS), struct.pack("QQ", given, out))
    times: dict[str, list[float]] = {"fast": [], "strict": [], "c": []}
    instructions = 0
    for _ in range(rounds + 1):
        times["c"].append(in_c())
        for mode in Mode:
            device.memory.fill(out, 0, x.nbytes)
            begin = time.process_time()
            counters = device.launch(kernel, launch, mode, engine=NATIVE)
            times[mode.value].append(time.process_time() - begin)
            instructions = sum(counters.instructions.values())
            found = np.frombuffer(device.memory.read(out, x.nbytes), np.float32)
            if not np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
                raise SystemExit(f"{name}: the emulated device and C have different results")
    # The first launch translates the code.
    return LoopFigures(name, instructions, min(times["fast"][1:]), min(times["strict"][1:]), min(times["c"]))


def prepare_c(body: str, x: NDArray[np.float32], folder: Path) -> tuple[Callable[[], float], NDArray[np.float32]]:
    """Return a function that measures the loop in C once, and its result for an output of zeros."""
    source, library = (
        folder / "loop.c",
        folder / f"loop{time.monotonic_ns()}.so",
    )  # a library is loaded once by its name
    source.write_text(SOURCE.format(side=SIDE, place="", body=body, entry=FUNCTION))
    cxx = find_toolchain(with_ck=False).cxx
    command = [str(cxx), "-x", "c", "-O2", "-march=native", "-fPIC", "-shared", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).loop
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
    expected = np.zeros(COUNT, np.float32)
    function(x.ctypes.data, expected.ctypes.data, COUNT)
    scratch = np.zeros(COUNT, np.float32)

    def measure() -> float:
        repeats, spent = 1, 0.0
        while spent < _LEAST_S:
            repeats *= 2
            begin = time.process_time()
            for _ in range(repeats):
                function(x.ctypes.data, scratch.ctypes.data, COUNT)
            spent = time.process_time() - begin
        return spent / repeats

    return measure, expected


@dataclass(frozen=True)
class ProgramFigures:
    """CPU seconds of a HIP program with one small kernel, alone and next to seven others, and of importing NumPy."""

    alone_s: float
    together_s: float
    numpy_s: float
    peak_mib: float


def measure_programs(folder: Path, rounds: int) -> ProgramFigures:
    """Run a program alone, and eight at once. All must print the right number."""
    write_hipcc(folder / "bin", GPU)
    source, program = folder / "fill.hip", folder / "fill"
    source.write_text(PROGRAM)
    subprocess.run([str(folder / "bin" / "hipcc"), "-O2", str(source), "-o", str(program)], check=True)
    command = [sys.executable, "-m", "tilewright", "emulate", "--gpu", GPU, str(program)]
    run_all(command, 1)  # compiles the HIP library and fills the caches
    alone = min(run_all(command, 1) for _ in range(rounds))
    together = min(run_all(command, PROGRAMS) for _ in range(rounds)) / PROGRAMS
    numpy = min(run_all([sys.executable, "-c", "import numpy; print(255)"], 1) for _ in range(rounds))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return ProgramFigures(alone, together, numpy, peak)


def run_all(command: list[str], count: int) -> float:
    """Run a command several times at once; return the CPU seconds of all."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    for process in started:
        text, _ = process.communicate(timeout=600)
        if (process.returncode, text) != (0, "255\n"):
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode} and printed {text!r}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


COLUMNS = (
    *("loop", "wave instructions", "fast, ns each", "strict, ns each", "fast, ns per lane", "C, ns per element"),
    *("fast / C", "strict / C"),
)
HEAD = "| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|"


def format_page(loops: list[LoopFigures], programs: ProgramFigures) -> str:
    rows = "\n".join(each.format_row() for each in loops)
    return f"""# Cost of an emulated instruction

Written by `make bench-emulator`. All figures are CPU time, summed over threads: the lowest of interleaved rounds. They
say how slow the emulated device is, and nothing about a GPU. {describe_run()}

Six loops over {COUNT:,} elements on an emulated {GPU}, with the native engine. An instruction is one of a wave of 64
lanes. "C" is the same function, called in a plain loop and compiled with `clang -O2 -march=native`, which vectorizes it
where it can.

{HEAD}
{rows}

The first loop has 14 instructions per wave: there, most of the time is the launch itself.

A HIP program with one small kernel, under `tilewright emulate` from start to end, when all caches are filled, Python's
byte code too:

| | CPU seconds | as a multiple of `import numpy` |
|---|---|---|
| `python -c "import numpy"` | {programs.numpy_s:.2f} | 1.0 |
| one program | {programs.alone_s:.2f} | {programs.alone_s / programs.numpy_s:.1f} |
| each of {PROGRAMS} that run at once | {programs.together_s:.2f} | {programs.together_s / programs.numpy_s:.1f} |

All {PROGRAMS} end with the right output. The largest process uses {programs.peak_mib:.0f} MiB.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write a page")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        loops = [measure_loop(each, body, Path(name), given.rounds) for each, body in LOOPS.items()]
        page = format_page(loops, measure_programs(Path(name), given.rounds))
    print(page)
    if given.out:
        given.out.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
