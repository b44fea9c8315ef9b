"""Run a Triton kernel on an emulated MI300X, and find its out-of-bounds access.

`tilewright.triton.use` is the only line that is not in the program for a GPU. Every tensor is bounds-checked, and the
error names the tensor and the line of the kernel.
"""

import torch
import triton
import triton.language as tl

import tilewright.triton
from tilewright.emulator import MemoryFault


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):  # noqa: N803
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


@triton.jit
def softmax_without_mask(x, out, columns, BLOCK: tl.constexpr):  # noqa: N803
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at)
    e = tl.where(at < columns, tl.exp(values - tl.max(values, 0)), 0.0)
    tl.store(out + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


x = torch.linspace(-2, 2, 8 * 100).view(8, 100)
out = torch.empty_like(x)
with tilewright.triton.use("gfx942", mode="strict") as gpu:
    softmax[(8,)](x, out, 100, BLOCK=128)
    assert torch.allclose(out, x.softmax(1))
    launch = gpu.last_launch
    print(f"{launch.kernel}: {launch.grid[0]} programs of {launch.threads} threads")
    print(f"  {sum(launch.counters.instructions.values())} instructions of {launch.counters.waves} waves")
    try:
        softmax_without_mask[(8,)](x, out, 100, BLOCK=128)
    except MemoryFault as fault:
        tensor = str(fault).split("'")[1]
        line = next(line for line in str(fault).splitlines() if "source" in line)
        print(f"{fault.name} of program {fault.place.block}, next to {tensor}")
        print(f"  {line.rpartition(': ')[2]}")
