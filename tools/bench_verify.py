"""Measure the host's time to verify a GEMM: once for a problem, and for each kernel. No kernel runs.

    python tools/bench_verify.py

Consecutive kernels share the inputs, the reference and the tolerances. For each kernel, tensors are filled, stray
writes are looked for, and every element is compared.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
from tilewright import arch as archs
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.dispatch.comparison import compare_output
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.poisoned_tensor import PoisonedTensor
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.dispatch.verify import SPECIAL_SEED
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

ARCH = "gfx942"
SIZES = (256, 512, 1024, 2048, 4096)
SEEDS = (SPECIAL_SEED, 1)
ROUNDS = 3


def main() -> None:
    op = find_op("gemm")
    kernel = op.make_kernel(op.make_config(**op.example), ARCH)
    arch = archs.load(ARCH)
    print(f"{'m = n = k':>10} {'once, s':>9} {'each kernel, s':>15} {'of 64, each, s':>15}")
    for size in SIZES:
        problem = tw.gemm.Problem(m=size, n=size, k=size, dtype="fp16", layout="rcr")
        references = ReferenceCache()
        began = time.perf_counter()
        for seed in SEEDS:
            references.get_tolerances((kernel,), problem, seed, arch)
        once = time.perf_counter() - began
        each = min(_measure_kernel(references, kernel, problem) for _ in range(ROUNDS))
        print(f"{size:>10} {once:>9.3f} {each:>15.3f} {each + once / 64:>15.3f}")


def _measure_kernel(references: ReferenceCache, kernel: Kernel, problem: tw.gemm.Problem) -> float:
    """Measure the seconds for a correct kernel: its output is the rounded reference."""
    arch = archs.load(ARCH)
    outputs = {seed: _make_correct_result(references, problem, seed) for seed in SEEDS}
    began = time.perf_counter()
    for seed in SEEDS:
        expected = references.get_expected(kernel.op, problem, seed, arch)
        allowed = references.get_tolerances((kernel,), problem, seed, arch)
        placed = [
            PoisonedTensor(tensor, to_numpy_dtype(tensor.dtype, arch), expected.inputs.get(tensor.name))
            for tensor in get_execution(kernel.op).tensors(problem)
        ]
        result = placed[-1]
        result.after[...] = outputs[seed]
        for each in placed[:-1]:
            each.after[...] = each.memory
        damaged = [said for each in placed if (said := each.describe_stray_writes())]
        ulps = references.get_ulps(kernel.op, problem, seed, arch, result.tensor)
        found = compare_output(result, expected.outputs, allowed, ulps, seed)
        assert not damaged, damaged
        assert not found.message, found.message
    return time.perf_counter() - began


def _make_correct_result(references: ReferenceCache, problem: tw.gemm.Problem, seed: int) -> NDArray[np.uint8]:
    """Make the memory of a correct result."""
    arch = archs.load(ARCH)
    tensor = get_execution("gemm").tensors(problem)[-1]
    dtype = to_numpy_dtype(tensor.dtype, arch)
    right = references.get_expected("gemm", problem, seed, arch).outputs[tensor.name].astype(dtype)
    return PoisonedTensor(tensor, dtype, right).memory


if __name__ == "__main__":
    main()
