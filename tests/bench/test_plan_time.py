"""A plan is timed as a whole: all launches of a problem between two events, through the code for GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_gpu import built_small, gpu_of, small_kernel, stand_in_as_gpu

import tilewright as tw
from tilewright.base.errors import InvalidValueError
from tilewright.bench.timing import TimingSettings
from tilewright.ops import find_op
from tilewright.runtime.device import simulate_time

pytestmark = pytest.mark.compile

# Two rounds of warm-up and a few samples: times are scripted, so they are steady at once.
SHORT = TimingSettings(least_warmup_ms=0, max_warmup_ms=0.01, least_ms=0, least_runs=3, max_runs=3)


@pytest.fixture(scope="module")
def registry(staged_plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Registry]:
    kernels = [small_kernel(), small_kernel(step="add")]
    yield tw.Registry(tuple(kernels), built_small(kernels, tmp_path_factory.mktemp("ck")))


def test_the_launches_of_all_stages_count(registry: tw.Registry) -> None:
    problem = find_op("axpb").problem_type("whole", 100)
    with stand_in_as_gpu():
        device = gpu_of("gfx90a")
        assert len(registry.plan(problem, device).stages) == 2
        with simulate_time(device.index, [100.0, 50.0] * 3000):
            found = tw.time_plan(registry, problem, device, settings=SHORT)
    assert found.us == pytest.approx(150) and found.us_max == pytest.approx(150) and found.runs == 3


def test_what_cannot_be_timed(registry: tw.Registry) -> None:
    problem = find_op("axpb").problem_type("whole", 100)
    with pytest.raises(InvalidValueError, match="emulated:gfx90a measures counters, not times"):
        tw.time_plan(registry, problem, "emulated:gfx90a")
    with stand_in_as_gpu(), pytest.raises(InvalidValueError, match="cold applies to single kernels"):
        tw.time_plan(registry, problem, gpu_of("gfx90a"), settings=TimingSettings(cold=True))
