"""One kernel on one problem: verified before anything is timed, counters on emulated devices, failures as statuses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scripted_gpu import (
    built_small,
    captured,
    gpu_of,
    launches_of,
    small_kernel,
    small_problem,
    stand_in_as_gpu,
    task_of,
)

import tilewright as tw
from tilewright.base.errors import InvalidValueError
from tilewright.bench.gpu_time import (
    ALIGNMENT,
    MAX_SETS,
    _get_handle,
    cache_bytes,
    count_tensor_sets,
    measure_times,
    open_monitor,
)
from tilewright.bench.measure import TimingSettings, measure_task
from tilewright.bench.record import Record
from tilewright.bench.timing import ROUND
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.runtime.device import simulate_time

pytestmark = pytest.mark.compile

VERIFYING = 2  # launches: special inputs, then random ones
QUICK = TimingSettings(least_runs=10, least_ms=0, least_warmup_ms=0)
# A row of single launches and three steady ones, then ten samples that count. A launch that is not timed leads each.
WARM = [250.0] * (4 * (1 + ROUND) + 1)
TAKEN = [250.0, 125.0, 375.0, 250.0, 250.0, 500.0, 250.0, 125.0, 375.0, 1000.0]
SCRIPT = [62.5] * VERIFYING + WARM + TAKEN


@pytest.fixture(scope="module")
def artifacts(staged_plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Kernel, Artifact]:
    kernels = [small_kernel(), small_kernel(lazy=True), small_kernel(parts=3), small_kernel(step="add")]
    return built_small(kernels, tmp_path_factory.mktemp("ck"))


@pytest.fixture
def gpu() -> Iterator[tw.Device]:
    with stand_in_as_gpu():
        yield gpu_of("gfx90a")


def measured(
    artifacts: dict[Kernel, Artifact],
    device: tw.Device,
    problem: Any = None,
    settings: TimingSettings = QUICK,
    **fields: Any,
) -> Record:
    kernel = small_kernel(**fields)
    problem = small_problem() if problem is None else problem
    task = task_of(kernel, problem, device.name, cold=settings.cold)
    return measure_task(task, device, kernel, artifacts[kernel], problem, settings)


def test_a_right_kernel_is_timed(artifacts: dict[Kernel, Artifact], gpu: tw.Device) -> None:
    with simulate_time(gpu.index, SCRIPT) as left, launches_of(gpu) as launches:
        found = measured(artifacts, gpu)
        assert left() == 0 and len(launches) == len(SCRIPT)
    assert (found.status, found.kind, found.message, dict(found.counters)) == ("ok", "time", "", {})
    assert found.times is not None
    assert (found.times.us, found.times.us_min, found.times.us_max) == (250.0, 125.0, 1000.0)
    assert (found.times.us_p10, found.times.us_p90) == pytest.approx((125.0, 550.0), rel=1e-12)
    assert (found.times.runs, found.times.warmups) == (10, 20)
    assert (found.times.clock_mhz, found.times.power_w) == (None, None)  # no amdsmi here
    assert found.share == 0.0 and found.error_ulps == 0.0
    assert found.took_s > 0 and found.started > 1.7e9 and found.worker


def test_a_wrong_kernel_is_never_timed(artifacts: dict[Kernel, Artifact], gpu: tw.Device) -> None:
    with simulate_time(gpu.index, SCRIPT) as left, launches_of(gpu) as launches:
        found = measured(artifacts, gpu, lazy=True)
        assert left() == len(SCRIPT) - VERIFYING and len(launches) == VERIFYING
    assert (found.status, found.kind, found.times) == ("wrong", "none", None)
    assert "1 of 100 elements are wrong, 1 were never written" in found.message
    assert found.share == float("inf")


def test_what_is_not_steady_is_told(artifacts: dict[Kernel, Artifact], gpu: tw.Device) -> None:
    growing = [1000.0 * 1.1**i for i in range(40)]
    settings = TimingSettings(least_runs=2, least_ms=0, least_warmup_ms=0, max_warmup_ms=10)
    with simulate_time(gpu.index, growing):
        found = measured(artifacts, gpu, settings=settings)
    assert found.ok and found.message.startswith("not steady after 10 warm-up samples")


def test_a_kernel_that_fails_while_it_is_timed(artifacts: dict[Kernel, Artifact], gpu: tw.Device) -> None:
    with simulate_time(gpu.index, SCRIPT[:9]):
        found = measured(artifacts, gpu)
    assert (found.status, found.kind) == ("fault", "none")
    assert found.message.startswith("verified, but failed while it was timed: hipEventElapsedTime")


def test_cold_launches_take_turns(artifacts: dict[Kernel, Artifact], gpu: tw.Device) -> None:
    """Tensors of 100 numbers: as many sets as there may be, and a fill that sweeps the caches before each sample."""
    cold = TimingSettings(least_runs=10, least_ms=0, least_warmup_ms=0, cold=True)
    script = [62.5] * VERIFYING + [250.0] * (4 * ROUND) + TAKEN  # a sweep leads each sample
    with simulate_time(gpu.index, script, other_us=5000.0) as left:
        found = measured(artifacts, gpu, settings=cold)
        assert left() == 0
    assert found.ok and found.task.cold and found.times is not None
    # What sweeps the caches takes 5 ms and is in no sample.
    assert (found.times.us, found.times.us_min, found.times.us_max) == (250.0, 125.0, 1000.0)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
def test_sets_fill_the_caches(arch: str) -> None:
    facts = tw.arch.load(arch)
    cache = cache_bytes(facts)
    assert cache == facts.memory.l2_bytes * facts.compute.dies + facts.memory.mall_bytes
    for size in (4096, 1 << 20, cache // 7, cache - 1, cache, cache + 1, 10 * cache):
        sets = count_tensor_sets(size, facts)
        assert 2 <= sets <= MAX_SETS
        assert sets == MAX_SETS or (sets - 1) * size >= cache  # what is used between two uses of a set
        assert sets == 2 or (sets - 2) * size < cache  # and no more memory than that


def inputs_launched(seen: list[Any]) -> list[int]:
    """The address of the input of each launch: `tw_axpb_args` is the only argument."""
    args = type(get_execution("axpb").arguments(small_problem()))
    return [args.from_buffer_copy(launch.arguments).x for launch in seen]


def test_no_set_is_twice_in_a_cold_sample(artifacts: dict[Kernel, Artifact], gpu: tw.Device) -> None:
    """Launches of 7 µs: a sample has eight, each with tensors of its own, from the first set on."""
    cold = TimingSettings(least_runs=2, least_ms=0, least_warmup_ms=0, cold=True)
    with simulate_time(gpu.index, [7.0] * 1000), captured() as seen:
        found = measured(artifacts, gpu, settings=cold)
    assert found.times is not None and found.times.us == pytest.approx(7.0)
    places = inputs_launched(seen)[VERIFYING + ROUND :]
    samples = [places[at : at + 8] for at in range(0, len(places), 8)]
    assert len(samples) == 3 * ROUND + 2
    assert all(sample == samples[0] for sample in samples)  # the caches were swept between
    assert [b - a for a, b in pairwise(samples[0])] == [2 * ALIGNMENT] * 7  # of input and output one page each


def test_sets_that_fill_the_caches_need_no_sweep(artifacts: dict[Kernel, Artifact], gpu: tw.Device) -> None:
    size = cache_bytes(gpu.arch) // 2  # of a set, so that three take turns
    kernel, problem = small_kernel(), small_problem(size // 8)
    cold = TimingSettings(least_runs=3, least_ms=0, least_warmup_ms=0, cold=True)
    with simulate_time(gpu.index, [250.0] * 200, other_us=1e6), captured() as seen:
        times, note = measure_times(gpu, kernel, artifacts[kernel], problem, cold, ReferenceCache())
    assert (times.us, times.us_max, note) == (250.0, 250.0, "")
    places = inputs_launched(seen)
    assert len(places) == 4 * (1 + ROUND) + 1 + 3
    assert [b - a for a, b in pairwise(places)] == ([size, size, -2 * size] * 10)[: len(places) - 1]


def test_an_emulated_device_gives_counters(artifacts: dict[Kernel, Artifact]) -> None:
    found = measured(artifacts, tw.Device("emulated:gfx90a"))
    assert (found.status, found.kind, found.times) == ("ok", "counters", None)
    assert found.counters["waves"] == 2  # 100 elements in groups of 64
    assert found.counters["global_write_bytes"] == 400 and found.counters["global_read_bytes"] >= 400
    assert "steps" not in found.counters and list(found.counters) == sorted(found.counters)
    assert found.counters["instructions_global"] > 0
    again = measured(artifacts, tw.Device("emulated:gfx90a"), settings=TimingSettings(seed=5, mode="strict"))
    assert again.counters == found.counters  # exact, whatever the inputs


def test_failures_are_statuses(artifacts: dict[Kernel, Artifact]) -> None:
    device = tw.Device("emulated:gfx90a")
    wrong = measured(artifacts, device, lazy=True)
    assert (wrong.status, wrong.kind, dict(wrong.counters)) == ("wrong", "none", {})
    refused = measured(artifacts, device, small_problem(), parts=3)
    assert refused.status == "unsupported" and "the kernel has 3 parts" in refused.message
    assert refused.share is None


def test_a_full_memory_is_not_the_kernels_fault(artifacts: dict[Kernel, Artifact]) -> None:
    device = tw.Device("emulated:gfx90a")
    held = [device.allocate(1 << 30) for _ in range(7)]
    try:
        with device.allocate(960 << 20):
            found = measured(artifacts, device, small_problem(1 << 23))
    finally:
        for buffer in held:
            buffer.free()
    assert found.status == "out_of_memory" and "no room for 33554432 bytes" in found.message


def test_a_stage_is_measured_and_a_whole_problem_is_not(artifacts: dict[Kernel, Artifact]) -> None:
    problem_type = find_op("axpb").problem_type
    device = tw.Device("emulated:gfx90a")
    stage = measured(artifacts, device, problem_type("add", 100), step="add")
    whole = measured(artifacts, device, problem_type("whole", 100), step="add")
    assert stage.ok and whole.status == "unsupported"


def test_what_does_not_go_together_is_an_error(artifacts: dict[Kernel, Artifact]) -> None:
    kernel, device = small_kernel(), tw.Device("emulated:gfx90a")
    task = task_of(kernel, small_problem(), device.name)
    with pytest.raises(InvalidValueError, match="for emulated:gfx90a, not for emulated:gfx942"):
        measure_task(task, tw.Device("emulated:gfx942"), kernel, artifacts[kernel], small_problem(), QUICK)
    with pytest.raises(InvalidValueError, match="cold"):
        measure_task(task, device, kernel, artifacts[kernel], small_problem(), TimingSettings(cold=True))
    cold = task_of(kernel, small_problem(), device.name, cold=True)
    with pytest.raises(InvalidValueError, match="measures counters"):
        measure_task(cold, device, kernel, artifacts[kernel], small_problem(), TimingSettings(cold=True))
    on_gpu = task_of(kernel, small_problem(), "gpu:0")
    with pytest.raises(InvalidValueError, match="mode=fast applies to emulated devices only"):
        measure_task(
            on_gpu, tw.Device("gpu:0"), kernel, artifacts[kernel], small_problem(), TimingSettings(mode="fast")
        )
    with pytest.raises(InvalidValueError, match="needs axpb"):
        measure_task(task, device, kernel, None, small_problem(), QUICK)
    other = small_kernel(lazy=True)
    with pytest.raises(InvalidValueError, match="the kernel is axpb-gfx90a-scale-t64-lazy"):
        measure_task(task, device, other, artifacts[other], small_problem(), QUICK)


AMDSMI = '''
class AmdSmiException(Exception):
    """Base of amdsmi's errors."""

class AmdSmiClkType:
    GFX = 0

def amdsmi_init():
    pass

def amdsmi_get_processor_handle_from_bdf(bdf):
    if bdf != "0000:01:00.0":
        raise AmdSmiException(f"there is no {bdf}")
    return bdf

def amdsmi_get_clock_info(handle, kind):
    return {"clk": 1700, "min_clk": 500, "max_clk": 1700}

def amdsmi_get_power_info(handle):
    return {"current_socket_power": "N/A", "average_socket_power": 431}
'''


def test_clock_and_power_are_recorded_where_amdsmi_is(
    artifacts: dict[Kernel, Artifact], gpu: tw.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "amdsmi.py").write_text(AMDSMI)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with simulate_time(gpu.index, SCRIPT):
            found = measured(artifacts, gpu)
        assert open_monitor(tw.Device("gpu:1")) is None  # amdsmi does not know it, and says so
    finally:
        sys.modules.pop("amdsmi")
        _get_handle.cache_clear()
    assert found.times is not None
    assert (found.times.clock_mhz, found.times.power_w) == (1700.0, 431.0)
