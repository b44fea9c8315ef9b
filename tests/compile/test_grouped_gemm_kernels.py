"""Grouped GEMM kernels on the emulated device in strict mode, on the trials of their edges."""

from __future__ import annotations

from typing import Any

import pytest
from on_device import device_of

from built_kernels import built, built_unchecked, in_tier_ci
from tests.functions.grouped_kernels import COLUMNS, ROWS, SCALED, TERMS, make_grouped, make_scaled
from tilewright import arch as archs
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile
OP = find_op("grouped_gemm")
assert OP.execution is not None
EXECUTION = OP.execution


def check(kernel: Kernel, most: int) -> None:
    trials = EXECUTION.trials(kernel.config, archs.load(kernel.arch))
    (artifact,) = built([kernel])
    step = max(1, len(trials) // most)
    checks = verify(kernel, artifact, device_of(kernel), trials[::step], mode=Mode.STRICT)
    assert [each for each in checks if not each.ok] == []
    assert len(checks) >= most


@pytest.mark.parametrize("kernel", [ROWS, TERMS, COLUMNS, SCALED], ids=["rows", "terms", "columns", "scaled"])
def test_edges_of_a_grouped_kernel(kernel: Kernel) -> None:
    check(kernel, 4 if in_tier_ci() else 9)


def run_many_tiles(kernel: Kernel, change: str = "") -> list[str]:
    """The verdicts on the trials with more tiles than the GPU has work-groups at once."""
    trials = EXECUTION.trials(kernel.config, archs.load(kernel.arch))
    largest = [trial for trial in trials if trial.m * trial.n > 1 << 20]
    artifact = built_unchecked(kernel, change)
    return [each.verdict for each in verify(kernel, artifact, device_of(kernel), largest, mode=Mode.STRICT)]


@pytest.mark.deep
def test_work_groups_that_compute_several_tiles_need_a_barrier_between_them() -> None:
    assert run_many_tiles(COLUMNS) == ["ok"] * 3
    assert "wrong" in run_many_tiles(COLUMNS, "no_barrier")


@pytest.mark.deep
@pytest.mark.parametrize("kernel", [ROWS, TERMS, SCALED], ids=["rows", "terms", "scaled"])
def test_work_groups_compute_several_tiles(kernel: Kernel) -> None:
    assert run_many_tiles(kernel) == ["ok"] * 2


@pytest.mark.deep
@pytest.mark.parametrize("fields", [{"pipeline": "mem"}, {"dtype": "fp16"}, {"layout": "rrr"}, {"layout": "ccr"}])
@pytest.mark.parametrize("gpu", ["gfx90a", "gfx950", "gfx1100", "gfx1201"])
def test_edges_of_other_kernels(gpu: str, fields: dict[str, Any]) -> None:
    check(make_grouped(gpu, epilogue="default", **fields), 12)


@pytest.mark.deep
@pytest.mark.parametrize("fields", [{"dtype": "bf8"}, {"pipeline": "mem"}, {"layout": "rrr"}, {"layout": "crr"}])
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_edges_of_kernels_with_scales(gpu: str, fields: dict[str, Any]) -> None:
    check(make_scaled(gpu, **{**fields, "pad_m": fields.get("layout") == "crr"}), 12)
