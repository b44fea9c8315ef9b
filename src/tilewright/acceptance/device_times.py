"""Check that a device's events measure plausible times: a copy, and one kernel against its estimate.

Imports NumPy: import this module only in a process that runs kernels.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tilewright.bench.gpu_time import EventClock, cache_bytes, measure_times, open_monitor
from tilewright.bench.timing import TimingSettings, compute_quantile
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import Facts
from tilewright.ops.problem_text import format_problem
from tilewright.runtime.hip import DEVICE_TO_DEVICE, HipError

if TYPE_CHECKING:
    from tilewright.acceptance.device_runs import Subject
    from tilewright.bench.gpu_time import Reading
    from tilewright.runtime.device import Device

# hipErrorNotSupported: the device's events measure no time.
_NOT_SUPPORTED = 801
# A copy of less than the caches does not measure memory. This is the least for GPUs with small caches.
_LEAST_COPY = 64 << 20
_SAMPLES = 5
# Enough for a plausible time; a measurement for comparison takes longer.
_SETTINGS = TimingSettings(least_runs=10, least_ms=5.0, least_warmup_ms=5.0, max_warmup_ms=500.0)


def measure_copy(device: Device) -> dict[str, Any]:
    """The time of a copy inside the device's memory, by its events and by the host's clock.

    `time` is false if the device has no time, as an emulated one.
    """
    try:
        _measure_nothing(device)
    except HipError as error:
        if error.status != _NOT_SUPPORTED:
            raise
        return {"time": False, "message": str(error)}
    size = max(cache_bytes(device.arch), _LEAST_COPY)
    readings: list[Reading] = []
    read = open_monitor(device)
    with device.allocate(size, "source") as source, device.allocate(size, "target") as target:
        source.fill(1)
        stream = device.stream()

        def copy() -> None:
            device.call("hipMemcpyAsync", target.address, source.address, size, DEVICE_TO_DEVICE, stream.handle)

        clock = EventClock(device, stream, busy=None if read is None else lambda: readings.append(read()))
        began = time.perf_counter()
        samples = clock.take_samples(copy, _SAMPLES, 1)
        host_us = (time.perf_counter() - began) * 1e6
        stream.synchronize()
    last = readings[-1] if readings else None
    return {
        "time": True,
        "bytes": size,
        "samples_us": samples,
        "copy_us": compute_quantile(sorted(samples), 0.5),
        "events_us": sum(samples),
        "host_us": host_us,
        "clock_mhz": None if last is None else last.clock_mhz,
        "power_w": None if last is None else last.power_w,
    }


def _measure_nothing(device: Device) -> float:
    """The time between two events without work: an error where events measure no time."""
    first, last = device.event(), device.event()
    first.record()
    last.record()
    last.synchronize()
    return last.elapsed_ms(first)


def measure_kernel(device: Device, subject: Subject, seed: int) -> dict[str, Any]:
    """The time of a kernel on a problem, and the estimate of its op, if it has one."""
    references = ReferenceCache()
    references.get_expected(subject.kernel.op, subject.problem, seed, device.arch)
    times, note = measure_times(
        device, subject.kernel, subject.artifact, subject.problem, _replace_seed(seed), references
    )
    cost = find_op(subject.kernel.op).cost
    estimate = None
    if cost is not None:
        problem = Facts(**cost.problem_numbers(subject.problem))
        kernel = Facts(**cost.kernel_numbers(subject.kernel.config, device.arch, None))
        estimate = float(cost.estimate(problem, kernel, device.arch).us)
    return {
        "problem": format_problem(subject.problem, subject.kernel.config),
        "us": times.us,
        "us_min": times.us_min,
        "us_max": times.us_max,
        "runs": times.runs,
        "note": note,
        "estimate_us": estimate,
        "clock_mhz": times.clock_mhz,
    }


def _replace_seed(seed: int) -> TimingSettings:
    return TimingSettings(**{**_SETTINGS.to_json(), "seed": seed})
