"""Kernels with scales on the emulated device in strict mode, on the trials of their edges."""

from __future__ import annotations

from typing import Any

import pytest
from on_device import device_of

from built_kernels import built, in_tier_ci
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tests.functions.scaled_kernels import COLUMNS, GROUPS, ROWCOL, ROWS, TENSOR, make_scaled
from tilewright import arch as archs
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.gemm_quant.config import GROUPED
from tilewright.ops.gemm_quant.problem import Problem
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import find_violations

pytestmark = pytest.mark.compile
OP = find_op("gemm_quant")
assert OP.execution is not None
EXECUTION = OP.execution


def check(kernel: Kernel, most: int) -> None:
    trials = EXECUTION.trials(kernel.config, archs.load(kernel.arch))
    (artifact,) = built([kernel])
    step = max(1, len(trials) // most)
    checks = verify(kernel, artifact, device_of(kernel), trials[::step], mode=Mode.STRICT)
    assert [each for each in checks if not each.ok] == []
    assert len(checks) >= most


@pytest.mark.parametrize("kernel", [ROWCOL, TENSOR, GROUPS, COLUMNS, ROWS], ids=lambda kernel: kernel.config.quant)
def test_edges_of_a_kernel_with_scales(kernel: Kernel) -> None:
    check(kernel, 3 if in_tier_ci() else 6)


@pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)
@pytest.mark.parametrize("quant", GROUPED)
def test_functions_have_kernels_for_any_number_of_rows_with_newer_headers(quant: str) -> None:
    types = {"dtype_a": "fp8", "dtype_b": "fp8", "dtype_c": "bf16"}
    problem = Problem(m=1, n=4096, k=7168, quant=quant, layout="rcr", **types)
    assert OP.portfolio is not None
    with use_tree(TREES / NEWER):
        arch = archs.load("gfx942")
        kernels = OP.portfolio.list_kernels(problem, arch)
        broken = [find_violations(OP.fit_rules, kernel.config, problem, arch) for kernel in kernels]
    assert broken and not any(broken)


@pytest.mark.deep
@pytest.mark.parametrize(
    "fields",
    [{"pipeline": "mem"}, {"pipeline": "compv6", "dtype": "bf8*fp8", "mma": (32, 32, 16)}, {"layout": "crr"}],
    ids=["mem", "compv6", "crr"],
)
@pytest.mark.parametrize("quant", ["rowcol", "tensor"])
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_edges_of_other_kernels(gpu: str, quant: str, fields: dict[str, Any]) -> None:
    check(make_scaled(quant, gpu, pad_m=True, **{"dtype_c": "fp16", **fields}), 12)
