"""What CK Tile's norms compute wrongly, and what Tilewright does about it, on the emulated device in strict mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_device import device_of

import tilewright as tw
from built_kernels import built, built_unchecked
from tests.functions.norm_kernels import QUANTIZED
from tilewright import arch as archs
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile
NORM = find_op("norm")
assert NORM.execution is not None
EXECUTION = NORM.execution


def run(kernel: Kernel, change: str = "") -> list[str]:
    """The verdicts on the first two trials of a kernel, whose rows are long enough for every wave."""
    trials = EXECUTION.trials(kernel.config, archs.load(kernel.arch))[:2]
    artifact = built_unchecked(kernel, change)
    return [check.verdict for check in verify(kernel, artifact, device_of(kernel), trials, mode=Mode.STRICT)]


def test_waves_that_share_a_row_need_the_barrier_before_the_epilogue() -> None:
    assert run(QUANTIZED) == ["ok", "ok"]
    assert run(QUANTIZED, "no_barrier") == ["wrong", "wrong"]


def test_vectors_of_16_halves_are_never_stored() -> None:
    (rule,) = (rule for rule in NORM.rules if rule.code == "N115")
    kernel = NORM.make_kernel(NORM.make_example(rule.bad), rule.arch)
    assert set(run(kernel)) == {"wrong"}


def test_a_row_of_zeros_has_scale_zero() -> None:
    built([QUANTIZED])
    x = np.zeros((2, 1024), np.float16)
    x[1] = 1
    weight = np.ones(1024, np.float16)
    with tw.options(device="emulated:gfx942", pool=(QUANTIZED,)):
        y, _, scale = tw.rms_norm(x, weight, residual=np.zeros_like(x), return_sum=True, quantize="int8")
    assert scale[0] == 0 and not y[0].any()
    assert set(y[1].tolist()) <= {126, 127}


@pytest.mark.deep
@pytest.mark.parametrize("gpu", ["gfx90a", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "rms", "dtype_y": "int8", "quant": "dynamic", "residual": "store", "save": True},
        {"kind": "layer", "dtype_y": "fp8", "quant": "smooth", "residual": "add"},
        {"kind": "layer", "two_pass": True, "residual": "store", "save": True},
        {"kind": "smoothquant", "dtype_y": "int8", "quant": "smooth", "two_pass": True},
    ],
    ids=lambda fields: f"{fields['kind']}-{fields.get('quant', 'none')}",
)
def test_two_waves_of_every_gpu(gpu: str, fields: dict[str, Any]) -> None:
    threads = 2 * archs.load(gpu).wave_size
    shape = {"rows": 2, "columns": 4 * threads, "threads": threads, "vector": 4, "pad": True}
    kernel = NORM.make_kernel(NORM.make_example({**shape, **fields}), gpu)
    trials = EXECUTION.trials(kernel.config, archs.load(gpu))
    (artifact,) = built([kernel])
    checks = verify(kernel, artifact, device_of(kernel), trials, mode=Mode.STRICT)
    assert [check for check in checks if not check.ok] == []
