"""What CK Tile's top-k computes wrongly, and what Tilewright does about it, on the emulated device in strict mode."""

from __future__ import annotations

import pytest
from on_device import device_of

from built_kernels import built_unchecked
from tests.functions.routing_kernels import SOFTMAX, make_topk
from tilewright import arch as archs
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile
TOPK = find_op("topk")
assert TOPK.execution is not None
EXECUTION = TOPK.execution


def run(kernel: Kernel, change: str = "") -> list[str]:
    """The verdicts on the trials of a kernel."""
    trials = EXECUTION.trials(kernel.config, archs.load(kernel.arch))
    artifact = built_unchecked(kernel, change)
    return [check.verdict for check in verify(kernel, artifact, device_of(kernel), trials, mode=Mode.STRICT)]


def test_edges_of_a_kernel() -> None:
    assert run(SOFTMAX) == ["ok"] * 7


@pytest.mark.deep
def test_the_top_k_of_ck_repeats_an_index_if_logits_are_equal() -> None:
    assert run(SOFTMAX, "topk_of_ck").count("wrong") >= 4


@pytest.mark.deep
def test_the_end_of_a_row_that_is_no_multiple_of_a_wave_is_ignored() -> None:
    (rule,) = (rule for rule in TOPK.rules if rule.code == "K102")
    kernel = TOPK.make_kernel(TOPK.make_example(rule.bad), rule.arch)
    assert "wrong" in run(kernel)


@pytest.mark.deep
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("gpu", ["gfx90a", "gfx950", "gfx1100", "gfx1201"])
def test_edges_of_other_kernels(gpu: str, activation: str) -> None:
    kernel = make_topk(gpu, activation=activation, dtype="bf16", experts=128, rows=2, threads=128, vector=2)
    assert set(run(kernel)) == {"ok"}
