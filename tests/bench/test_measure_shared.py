"""Kernels that follow each other on a problem share what its outputs should be, and are judged as if they did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted_gpu import built_small, small_kernel, small_problem, task_of

import tilewright as tw
from tilewright import arch as archs
from tilewright.bench.measure import TimingSettings, measure_task
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel


@pytest.fixture(scope="module")
def artifacts(staged_plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Kernel, Artifact]:
    kernels = [small_kernel(), small_kernel(lazy=True), small_kernel(threads=128)]
    return built_small(kernels, tmp_path_factory.mktemp("ck"))


@pytest.mark.compile
def test_each_kernel_is_judged_by_itself(artifacts: dict[Kernel, Artifact]) -> None:
    device = tw.Device("emulated:gfx90a")

    def found(kernel: Kernel, size: int, references: ReferenceCache | None) -> Any:
        problem = small_problem(size)
        task = task_of(kernel, problem, device.name)
        record = measure_task(task, device, kernel, artifacts[kernel], problem, TimingSettings(), references)
        return record.status, record.message, record.counters, record.share, record.error_ulps

    shared = ReferenceCache()
    asked = [(kernel, size) for size in (65, 64, 65) for kernel in (*artifacts, *artifacts)]
    together = [found(kernel, size, shared) for kernel, size in asked]
    assert together == [found(kernel, size, None) for kernel, size in asked]
    assert [status for status, *_ in together] == ["ok", "wrong", "ok"] * 6


def test_a_problem_is_worked_out_once_and_then_forgotten() -> None:
    arch = archs.load("gfx942")
    op = find_op("gemm")
    kernels = [
        op.make_kernel(op.make_config(**{**op.example, "block": block}), "gfx942")
        for block in ("64x64x32", "128x64x32")
    ]
    problem = tw.gemm.Problem(m=5, n=6, k=7, dtype="fp16", layout="rcr")
    other = tw.gemm.Problem(m=6, n=6, k=7, dtype="fp16", layout="rcr")
    shared = ReferenceCache()
    expected = shared.get_expected("gemm", problem, 1, arch)
    one, two = (shared.get_tolerances((kernel,), problem, 1, arch) for kernel in kernels)
    assert one is two
    assert shared.get_expected("gemm", problem, 1, arch) is expected
    assert shared.get_expected("gemm", problem, 0, arch) is not expected
    with pytest.raises(ValueError, match="read-only"):
        expected.outputs["c"][0, 0] = 0.0
    shared.get_expected("gemm", other, 1, arch)
    again = shared.get_expected("gemm", problem, 1, arch)
    assert again is not expected
    np.testing.assert_array_equal(again.outputs["c"], expected.outputs["c"])
