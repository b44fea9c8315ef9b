"""Measure the cost of dispatch: `registry.run` with a cached plan, compared with a bare ctypes call of the kernel.

    python tools/bench_dispatch.py

Launches are dry: the emulated device does not execute them, so the time is that from the problem to the launch, with
the checks in the kernel library. Tensors are on the device. Rounds of both sides alternate, so that other load disturbs
both equally; the median counts.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.dispatch.launch import BoundKernel
from tilewright.dispatch.tensors import SIZES, View, compute_span, find_array_type
from tilewright.ops import find_op
from tilewright.ops.execution import Tensor

GPU = "gfx942"
PLUGIN = Path(__file__).resolve().parents[1] / "tests" / "plugin"
# Long enough to measure, short enough that most rounds are not interrupted.
CALLS = 200


@dataclass(frozen=True)
class Overhead:
    """The median nanoseconds of a call on each side."""

    kernel: str
    bare_ns: float
    run_ns: float

    @property
    def ratio(self) -> float:
        return self.run_ns / self.bare_ns


def measure_overhead(registry: tw.Registry, problem: Any, rounds: int) -> Overhead:
    """Measure both sides for the kernel that the registry selects, without launches."""
    device = tw.Device(f"emulated:{GPU}")
    execution = find_op(registry.kernels[0].op).execution
    assert execution is not None
    tensors = execution.tensors(problem)
    views = [_allocate(device, tensor) for tensor in tensors]
    inputs, out = views[:-1], views[-1]
    with device.emulating(dry=True), device.make_current():
        plan, call = registry._dispatcher.plan(problem, device, None, False)
        assert isinstance(call, BoundKernel)
        args = execution.arguments(problem)
        execution.point(problem)(args, [view.address for view in views])
        place, function = ctypes.addressof(args), call.functions.run
        times = _alternate(lambda: function(place, None), _make_call(registry, problem, inputs, out), rounds)
    return Overhead(plan.stages[0].kernel.slug, *times)


def _make_call(registry: tw.Registry, problem: Any, inputs: list[View], out: View) -> Callable[[], Any]:
    """Make the call as a user writes it. Unpacking a list in it would take additional time."""
    if len(inputs) == 1:
        (x,) = inputs
        return lambda: registry.run(problem, x, out=out)
    a, b = inputs
    return lambda: registry.run(problem, a, b, out=out)


def _allocate(device: tw.Device, tensor: Tensor) -> View:
    dtype = find_array_type(tensor.dtype, device.arch)
    buffer = device.allocate(compute_span(tensor.shape, tensor.strides) * SIZES[dtype], tensor.name)
    return tw.view_on(buffer, tensor.shape, dtype, tensor.strides)


def _alternate(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[float, float]:
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for act, into in zip((one, other), taken, strict=True):
            started = time.perf_counter_ns()
            for _ in range(CALLS):
                act()
            into.append((time.perf_counter_ns() - started) / CALLS)
    # The first round makes plans and fills caches.
    first, second = (statistics.median(times[1:]) for times in taken)
    return first, second


def make_scale_case() -> tuple[tw.Registry, Any]:
    """Make a case with the smallest op, in which the call is nearly everything."""
    sys.path.insert(0, str(PLUGIN))
    op = find_op("scale")
    kernel = op.make_kernel(op.make_config(dtype="fp32", threads=64, factor=2), GPU)
    return tw.build([kernel]), op.problem_type(256)


def make_gemm_case() -> tuple[tw.Registry, Any]:
    """Make a case with a GEMM, whose library makes CK Tile's checks of the arguments."""
    config = tw.gemm.config(
        variant="standard",
        dtype="fp16",
        layout="rcr",
        block=(64, 64, 32),
        waves=(2, 2, 1),
        mma=(16, 16, 16),
        pipeline="compv3",
        scheduler="intrawave",
        epilogue="cshuffle",
    )
    return tw.build([config], arch=GPU), tw.gemm.Problem(m=256, n=256, k=256, dtype="fp16", layout="rcr")


CASES = {"scale": make_scale_case, "gemm": make_gemm_case}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300, help="rounds of each side (default: 300)")
    parser.add_argument("--case", choices=CASES, action="append", help="measure only this one")
    given = parser.parse_args(arguments)
    print(f"{'case':8} {'bare call':>12} {'registry.run':>14} {'ratio':>7}")
    for name in given.case or CASES:
        result = measure_overhead(*CASES[name](), rounds=given.rounds)
        print(f"{name:8} {result.bare_ns:9,.0f} ns {result.run_ns:11,.0f} ns {result.ratio:6.2f}×")
    return 0


if __name__ == "__main__":
    sys.exit(main())
