"""Kernels with scales on the emulated device in strict mode, on the trials of their edges."""

from __future__ import annotations

from typing import Any

import pytest
from on_device import device_of

from built_kernels import built
from tests.functions.scaled_kernels import COLUMNS, GROUPS, ROWCOL, ROWS, TENSOR, make_scaled
from tilewright import arch as archs
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

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
    check(kernel, 6)


@pytest.mark.deep
@pytest.mark.parametrize("fields", [{"pipeline": "mem"}, {"pipeline": "compv6", "dtype": "bf8*fp8"}, {"layout": "crr"}])
@pytest.mark.parametrize("quant", ["rowcol", "tensor"])
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_edges_of_other_kernels(gpu: str, quant: str, fields: dict[str, Any]) -> None:
    check(make_scaled(quant, gpu, pad_m=True, **{"dtype_c": "fp16", **fields}), 12)
