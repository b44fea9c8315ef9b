"""Features of emulated devices: settings, launch records, and the faults that caused a HIP status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.emulator.hip_shim import deferred_errors, settings
from tilewright.runtime import hip_library
from tilewright.runtime.hip import Hip

has_pending = deferred_errors.has_errors
raise_pending = deferred_errors.raise_errors
raise_orphan = deferred_errors.raise_orphaned
recording = settings.record_launches
naming = settings.use_label


@contextmanager
def apply_settings(hip: Hip, device: int, **given: Any) -> Iterator[None]:
    """Apply settings to this thread's launches on a device; None does not change a setting."""
    if hip.own_process and given.get("exchange") is not None:
        raise InvalidValueError(
            "kernels can be exchanged only in the emulator's own process, and the emulator runs in a separate process, "
            "because this one has another HIP library loaded: use a process without it"
        )
    before = settings.get_settings(device)
    after = settings.update_settings(before, **given)
    with settings.use_settings(device, after), _skip_execution(hip, device, after.dry, before.dry):
        yield


def _skip_execution(hip: Hip, device: int, on: bool, before: bool) -> AbstractContextManager[None]:
    if hip.own_process:
        return nullcontext()  # each call sends the settings
    from tilewright.emulator.hip_shim.shim import use_dry_run  # noqa: PLC0415  (loads NumPy)

    return use_dry_run(device, on, before)


@contextmanager
def simulate_time(device: int, launches_us: Sequence[float], other_us: float = 0.0) -> Iterator[Callable[[], int]]:
    """Simulate time on an emulated device inside the `with` block. For tests of time measurement.

    This thread's launches take these microseconds, one after another, and each fill and copy takes `other_us`. Events
    measure the time between them. After the last launch, no time is left. The `with` block gets a function
    that returns the number of remaining launches.
    """
    from tilewright.emulator.hip_shim.shim import open_shim  # noqa: PLC0415  (loads NumPy)

    for value in (*launches_us, other_us):
        if not value >= 0:
            raise InvalidValueError(f"times must be at least 0 µs, got {value}")
    hip_library.load_shim_here()
    shim = open_shim()
    shim.set_launch_times(device, launches_us, other_us)
    try:
        yield lambda: shim.count_remaining_times(device)
    finally:
        shim.clear_launch_times(device)
