"""Time through the code for GPUs: real calls of HIP by ctypes, into the stand-in, whose times are scripted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_gpu import built_small, gpu_of, launches_of, small_kernel, small_problem, stand_in_as_gpu

import tilewright as tw
from tilewright.base.errors import InvalidValueError
from tilewright.bench.gpu_time import EventClock
from tilewright.bench.timing import ROUND, TimingSettings, compute_time_stats, time_calls
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.launch import BoundKernel, bind_functions
from tilewright.dispatch.plan import get_execution
from tilewright.ops.kernel import Kernel
from tilewright.runtime import HipError
from tilewright.runtime.device import simulate_time

pytestmark = pytest.mark.compile

NOT_READY, NOT_SUPPORTED = 600, 801  # hipErrorNotReady, hipErrorNotSupported


@pytest.fixture(scope="module")
def artifact(staged_plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    kernel = small_kernel()
    return built_small([kernel], tmp_path_factory.mktemp("ck"))[kernel]


@pytest.fixture
def gpu() -> Iterator[tw.Device]:
    with stand_in_as_gpu():
        yield gpu_of("gfx90a")


@pytest.fixture
def launch(gpu: tw.Device, artifact: Artifact) -> Iterator[Callable[[], None]]:
    """A launch of a real kernel in the default stream, ready to be repeated."""
    kernel: Kernel = small_kernel()
    functions = bind_functions(gpu, artifact.verify_file(LIBRARY), kernel)
    call = BoundKernel(gpu, kernel, functions, get_execution(kernel.op), small_problem())
    with gpu.allocate(400, "x") as x, gpu.allocate(400, "parts") as parts, gpu.make_current():
        x.fill(0)
        yield call.prepare_launch([x.address, parts.address], None)


def test_events_give_what_the_launches_between_them_took(gpu: tw.Device, launch: Callable[[], None]) -> None:
    start, stop = gpu.event(), gpu.event()
    with simulate_time(gpu.index, [500.0, 125.0, 250.0, 1000.0]) as left:
        launch()
        start.record()
        launch()
        launch()
        stop.record()
        launch()
        gpu.synchronize()
        assert stop.elapsed_ms(start) == 0.375
        assert start.elapsed_ms(start) == 0.0
        assert left() == 0


def test_fills_and_copies_take_time_too(gpu: tw.Device, launch: Callable[[], None]) -> None:
    start, stop = gpu.event(), gpu.event()
    with simulate_time(gpu.index, [1000.0], other_us=125.0), gpu.allocate(64) as buffer:
        buffer.fill(1)
        start.record()
        buffer.fill(2)
        launch()
        buffer.copy_from(bytes(8))
        stop.record()
        stop.synchronize()
        start.synchronize()
        assert stop.elapsed_ms(start) == 1.25


def test_nobody_may_ask_before_having_waited(gpu: tw.Device, launch: Callable[[], None]) -> None:
    start, stop = gpu.event(), gpu.event()
    with simulate_time(gpu.index, [250.0]):
        start.record()
        launch()
        stop.record()
        with pytest.raises(HipError) as early:
            stop.elapsed_ms(start)
        assert early.value.status == NOT_READY
        gpu.synchronize()
        assert stop.elapsed_ms(start) == 0.25


def test_waiting_for_another_stream_is_not_enough(gpu: tw.Device) -> None:
    one, other, event = gpu.stream(), gpu.stream(), gpu.event()
    with simulate_time(gpu.index, []):
        event.record(one)
        other.synchronize()
        with pytest.raises(HipError) as early:
            event.elapsed_ms(event)
        assert early.value.status == NOT_READY
        one.synchronize()
        assert event.elapsed_ms(event) == 0.0


def test_no_time_is_made_up(gpu: tw.Device, launch: Callable[[], None]) -> None:
    start, stop = gpu.event(), gpu.event()

    def asked() -> int:
        start.record()
        launch()
        stop.record()
        gpu.synchronize()
        with pytest.raises(HipError) as error:
            stop.elapsed_ms(start)
        return error.value.status

    assert asked() == NOT_SUPPORTED  # no script
    with simulate_time(gpu.index, [250.0]):
        launch()
        assert asked() == NOT_SUPPORTED  # the script is over
    assert asked() == NOT_SUPPORTED
    with pytest.raises(InvalidValueError, match="-1"), simulate_time(gpu.index, [-1]):
        pass


def test_an_emulated_device_has_no_time() -> None:
    device = tw.Device("emulated:gfx90a")
    start, stop = device.event(), device.event()
    start.record()
    stop.record()
    device.synchronize()
    with pytest.raises(HipError) as error:
        stop.elapsed_ms(start)
    assert error.value.status == NOT_SUPPORTED


def test_samples_are_the_launches_of_the_script(gpu: tw.Device, launch: Callable[[], None]) -> None:
    before = []
    with (
        simulate_time(gpu.index, [125.0, 250.0, 375.0, 500.0, 625.0, 750.0], other_us=10_000.0) as left,
        gpu.allocate(64) as other,
    ):

        def sweep() -> None:
            before.append(1)
            other.fill(0, wait=False)  # takes 10 ms, outside of all samples

        clock = EventClock(gpu, None, before=sweep)
        assert clock.take_samples(launch, 3, 2) == [187.5, 437.5, 687.5]
        assert left() == 0 and len(before) == 3


def test_a_row_of_samples_is_led_by_launches_that_do_not_count(gpu: tw.Device, launch: Callable[[], None]) -> None:
    with simulate_time(gpu.index, [9000.0, 9000.0, 125.0, 250.0, 375.0, 500.0]) as left:
        assert EventClock(gpu, None).take_samples(launch, 2, 2) == [187.5, 437.5]
        assert left() == 0


def test_the_whole_figure_is_exact(gpu: tw.Device, launch: Callable[[], None]) -> None:
    """Singles, a warm-up that settles, then what counts: one disturbed sample of twenty."""
    rounds = [[1000.0] * ROUND, [800.0, 700.0, 600.0, 500.0, 450.0], *[[250.0] * ROUND] * 3]
    taken = [250.0 + 12.5 * (i % 8) for i in range(19)] + [16_000.0]
    script = [us for row in (*rounds, taken) for us in (7777.0, *row)]  # a launch that is not timed leads each row
    settings = TimingSettings(least_runs=20, least_ms=0, least_warmup_ms=0)
    with simulate_time(gpu.index, script) as left, launches_of(gpu) as launches:
        timing = time_calls(EventClock(gpu, None), launch, settings)
        assert left() == 0
    assert len(launches) == 45 + 6
    assert timing.samples == pytest.approx(taken, rel=1e-6)  # HIP's milliseconds are 32-bit
    assert timing.batch == 1 and timing.steady and timing.warmups == 25
    found = compute_time_stats(timing.samples, warmups=timing.warmups)
    assert (found.us_min, found.us_max, found.runs) == (250.0, 16_000.0, 20)
    ordered = sorted(taken)
    assert found.us == pytest.approx((ordered[9] + ordered[10]) / 2, rel=1e-6)
    assert found.us_p10 == pytest.approx(ordered[1] + 0.9 * (ordered[2] - ordered[1]), rel=1e-6)
    assert found.us_p90 == pytest.approx(ordered[17] + 0.1 * (ordered[18] - ordered[17]), rel=1e-6)


def test_a_stream_of_its_own(gpu: tw.Device, artifact: Artifact) -> None:
    kernel = small_kernel()
    functions = bind_functions(gpu, artifact.verify_file(LIBRARY), kernel)
    call = BoundKernel(gpu, kernel, functions, get_execution(kernel.op), small_problem())
    stream = gpu.stream()
    with gpu.allocate(400) as x, gpu.allocate(400) as parts, simulate_time(gpu.index, [125.0] * 6):
        launch = call.prepare_launch([x.address, parts.address], stream)
        clock = EventClock(gpu, stream)
        assert clock.take_samples(launch, 2, 2) == [125.0, 125.0]


def test_the_gpu_is_read_while_it_works(gpu: tw.Device, launch: Callable[[], None]) -> None:
    seen = []
    with simulate_time(gpu.index, [125.0] * 8) as left:
        clock = EventClock(gpu, None, busy=lambda: seen.append(left()))
        clock.take_samples(launch, 2, 1)
        clock.take_samples(launch, 4, 1)
    assert seen == [5, 0]
