"""Measure the cost of dispatch: `registry.run` with a cached plan, compared with a bare ctypes call of the kernel.

    python tools/bench_dispatch.py

Launches are dry: the emulated device does not execute them, so the time is that from the problem to the launch, with
the checks in the kernel library. Tensors are on the device. The bare call gets a struct that is filled in before.
`registry.run` is measured twice: with the same tensors in each call, and with two sets of tensors in turn, whose
addresses are compared and written into the struct each time. Rounds of all sides alternate, so that other load disturbs
them equally; the median counts.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.dispatch.launch import BoundKernel
from tilewright.dispatch.tensors import SIZES, View, compute_span, find_array_type
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.execution import Tensor

GPU = "gfx942"
PLUGIN = Path(__file__).resolve().parents[1] / "tests" / "plugin"
ATTENTION = (
    "fmha-gfx942-forward-batch-fp16-qr-b64x64x16x32x16x32-w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk-mask_any-lse-"
    "bd99e9df4d58"
)
# Long enough to measure, short enough that most rounds are not interrupted.
CALLS = 200


@dataclass(frozen=True)
class Overhead:
    """The median nanoseconds of a call: the bare one, and `registry.run` with the same tensors and with others in
    turn."""

    kernel: str
    bare_ns: float
    run_ns: float
    in_turn_ns: float

    @property
    def ratio(self) -> float:
        return self.run_ns / self.bare_ns

    @property
    def ratio_in_turn(self) -> float:
        return self.in_turn_ns / self.bare_ns


def measure_overhead(registry: tw.Registry, problem: Any, rounds: int) -> Overhead:
    """Measure all sides for the kernel that the registry selects, without launches."""
    device = tw.Device(f"emulated:{GPU}")
    execution = find_op(registry.kernels[0].op).execution
    assert execution is not None
    tensors = execution.tensors(problem)
    views, others = ([_allocate(device, tensor) for tensor in tensors] for _ in range(2))
    outputs = sum(tensor.output for tensor in tensors)
    with device.emulating(dry=True), device.make_current():
        plan, call = registry._dispatcher.plan(problem, device, None, False)
        assert isinstance(call, BoundKernel)
        assert not call.workspace_bytes
        args = execution.arguments(problem)
        execution.point(problem)(args, [view.address for view in views])
        place, function = ctypes.addressof(args), call.functions.run
        run, run_other = (_make_call(registry, problem, each, outputs) for each in (views, others))
        sides = ([lambda: function(place, None)], [run], [run, run_other])
        medians = _alternate([side * (CALLS // len(side)) for side in sides], rounds)
    return Overhead(plan.stages[0].kernel.slug, *medians)


def _make_call(registry: tw.Registry, problem: Any, views: list[View], outputs: int) -> Callable[[], Any]:
    """Make the call as a user writes it. Unpacking a list in it would take additional time."""
    inputs, results = views[:-outputs], views[-outputs:]
    out = results[0] if outputs == 1 else tuple(results)
    match inputs:
        case [x]:
            return lambda: registry.run(problem, x, out=out)
        case [a, b]:
            return lambda: registry.run(problem, a, b, out=out)
        case [q, k, v]:
            return lambda: registry.run(problem, q, k, v, out=out)
    raise ValueError(f"a problem has {len(inputs)} inputs, and calls are measured with 1 to 3")


def _allocate(device: tw.Device, tensor: Tensor) -> View:
    dtype = find_array_type(tensor.dtype, device.arch)
    buffer = device.allocate(compute_span(tensor.shape, tensor.strides) * SIZES[dtype], tensor.name)
    return tw.view_on(buffer, tensor.shape, dtype, tensor.strides)


def _alternate(sides: Sequence[Sequence[Callable[[], Any]]], rounds: int) -> list[float]:
    """The median nanoseconds of a call of each side: all of a side are called in order, then the next side."""
    taken: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds + 1):
        for calls, into in zip(sides, taken, strict=True):
            started = time.perf_counter_ns()
            for act in calls:
                act()
            into.append((time.perf_counter_ns() - started) / len(calls))
    # The first round makes plans and fills caches.
    return [statistics.median(times[1:]) for times in taken]


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


def make_attention_case() -> tuple[tw.Registry, Any]:
    """Make a case with attention's forward."""
    return tw.build([parse_kernel(ATTENTION)]), make_attention_problem()


def make_attention_problem() -> Any:
    """Make a problem with three inputs, q, k and v, and two outputs, o and lse."""
    return tw.fmha.Problem(
        family="forward", dtype="fp16", batch=2, heads=4, seqlen_q=128, hdim_q=32, mask="top_left", lse=True
    )


CASES = {"scale": make_scale_case, "gemm": make_gemm_case, "attention": make_attention_case}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300, help="rounds of each side (default: 300)")
    parser.add_argument("--case", choices=CASES, action="append", help="measure only this one")
    given = parser.parse_args(arguments)
    print(f"{'case':10} {'bare call':>11} {'registry.run':>13} {'ratio':>7} {'in turn':>10} {'ratio':>7}")
    for name in given.case or CASES:
        result = measure_overhead(*CASES[name](), rounds=given.rounds)
        times = f"{result.bare_ns:8,.0f} ns {result.run_ns:10,.0f} ns {result.ratio:6.2f}×"
        print(f"{name:10} {times} {result.in_turn_ns:7,.0f} ns {result.ratio_in_turn:6.2f}×")
    return 0


if __name__ == "__main__":
    sys.exit(main())
