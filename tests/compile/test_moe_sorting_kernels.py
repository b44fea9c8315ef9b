"""What CK Tile's sorting computes wrongly, and what Tilewright does about it, on the emulated device in strict mode."""

from __future__ import annotations

import pytest
from on_device import device_of

from built_kernels import built_unchecked
from tests.functions.routing_kernels import SORTING, make_sorting
from tilewright import arch as archs
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.moe_sorting.problem import Problem

pytestmark = pytest.mark.compile
SORTING_OP = find_op("moe_sorting")
assert SORTING_OP.execution is not None
EXECUTION = SORTING_OP.execution


def run(kernel: Kernel, change: str = "", problems: tuple[Problem, ...] = ()) -> list[str]:
    """The verdicts on problems, by default the trials of a kernel."""
    trials = problems or EXECUTION.trials(kernel.config, archs.load(kernel.arch))
    artifact = built_unchecked(kernel, change)
    return [check.verdict for check in verify(kernel, artifact, device_of(kernel), trials, mode=Mode.STRICT)]


def test_edges_of_a_kernel() -> None:
    assert run(SORTING) == ["ok"] * 11


@pytest.mark.deep
def test_one_shot_lacks_a_barrier() -> None:
    """All tokens fit into the table at once, so that the form in one shot is meant for it."""
    problem = Problem(tokens=3, experts=64, k=6, unit=32)
    assert run(SORTING, problems=(problem,)) == ["ok"]
    assert run(SORTING, "one_shot", (problem,)) == ["wrong"]


@pytest.mark.deep
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("gpu", ["gfx90a", "gfx950", "gfx1100", "gfx1201"])
def test_edges_of_other_kernels(gpu: str, masked: bool) -> None:
    assert set(run(make_sorting(gpu, tile=2, masked=masked))) == {"ok"}
