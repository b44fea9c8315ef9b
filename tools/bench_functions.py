"""Measure the cost of functions for arrays after their first call.

    python tools/bench_functions.py

`matmul` on device arrays is compared with `registry.run` of the same problem, and `tilewright.torch.linear` with a bare
operator of torch.library that calls `matmul`. Launches are dry: the emulated device does not execute them. For torch
tensors in host memory a launch includes their copies, so `linear` is measured with `matmul` replaced by a function that
does nothing. Rounds of both sides alternate, so that other load disturbs them equally; the median counts.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import tilewright as tw
import tilewright.torch as twt
from tilewright.torch import matmul as operators

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tests")]

GPU = "gfx942"
SIZE = 32
# Short rounds, so that most of them are not interrupted.
CALLS, ROUNDS = 100, 60


def compare(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[float, float]:
    """The median microseconds of a call of each side."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for side, found in zip((first, second), times, strict=True):
            began = time.perf_counter()
            for _ in range(CALLS):
                side()
            found.append((time.perf_counter() - began) / CALLS * 1e6)
    return statistics.median(times[0]), statistics.median(times[1])


def measure_matmul(kernels: Any) -> tuple[float, float]:
    """`registry.run` and `matmul` on arrays of the emulated device."""
    device = tw.Device(f"emulated:{GPU}")
    a, b, c = (tw.view_on(device.allocate(SIZE * SIZE * 4), (SIZE, SIZE), "fp32") for _ in range(3))
    problem = tw.gemm.Problem(m=SIZE, n=SIZE, k=SIZE, dtype="fp32", layout="rrr")
    registry = tw.build(kernels)
    with device.emulating(dry=True), tw.options(pool=kernels):
        for _ in range(2):
            registry.run(problem, a, b, out=c)
            tw.matmul(a, b, out=c)
        return compare(lambda: registry.run(problem, a, b, out=c), lambda: tw.matmul(a, b, out=c))


def measure_linear() -> tuple[float, float]:
    """A bare operator and `tilewright.torch.linear`, both with the same function that returns at once."""
    x, weight = torch.zeros(SIZE, SIZE), torch.zeros(SIZE, SIZE)
    done = torch.zeros(SIZE, SIZE)

    @torch.library.custom_op("tilewright_bench::linear", mutates_args=())
    def bare(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return operators.matmul(x, weight.t())  # type: ignore[attr-defined, no-any-return]

    def return_result(*_: Any, **__: Any) -> torch.Tensor:
        return done.clone()

    with mock.patch.object(operators, "matmul", return_result), twt.emulate(GPU):
        return compare(lambda: torch.ops.tilewright_bench.linear(x, weight), lambda: twt.linear(x, weight))


def main() -> int:
    from tests.functions.kernels import PRODUCTS

    for name, (base, mine) in {
        "matmul / registry.run": measure_matmul(list(PRODUCTS)),
        "tilewright.torch.linear / bare operator": measure_linear(),
    }.items():
        print(f"{name}: {mine:.2f} / {base:.2f} µs = {mine / base:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
