"""Features of emulated devices: settings, launch records, and the faults that caused a HIP status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.emulator.stand_in import pending, settings
from tilewright.runtime import loaded
from tilewright.runtime.hip import Hip

has_pending = pending.has_own
raise_pending = pending.raise_own
raise_orphan = pending.raise_orphan
recording = settings.recording
naming = settings.naming


@contextmanager
def emulating(hip: Hip, device: int, **given: Any) -> Iterator[None]:
    """Apply settings to this thread's launches on a device; None does not change a setting."""
    if hip.own_process and given.get("exchange") is not None:
        raise InvalidValueError(
            "kernels can be exchanged only in the emulator's own process, and the emulator runs in a separate process, "
            "because this one has another HIP library loaded: use a process without it"
        )
    before = settings.settings_of(device)
    after = settings.changed(before, **given)
    with settings.in_force(device, after), _running_dry(hip, device, after.dry, before.dry):
        yield


def _running_dry(hip: Hip, device: int, on: bool, before: bool) -> AbstractContextManager[None]:
    if hip.own_process:
        return nullcontext()  # each call sends the settings
    from tilewright.emulator.stand_in.opened import running_dry  # noqa: PLC0415  (loads NumPy)

    return running_dry(device, on, before)


@contextmanager
def scripted(device: int, launches_us: Sequence[float], other_us: float = 0.0) -> Iterator[Callable[[], int]]:
    """Simulate time on an emulated device inside the `with` block. For tests of time measurement.

    This thread's launches take these microseconds, one after another, and each fill and copy takes `other_us`. Events
    measure the time between them. After the last launch there is no time any more. The `with` block gets a function
    that returns the number of remaining launches.
    """
    from tilewright.emulator.stand_in.opened import opened  # noqa: PLC0415  (loads NumPy)

    for value in (*launches_us, other_us):
        if not value >= 0:
            raise InvalidValueError(f"times must be at least 0 µs, got {value}")
    loaded.stand_in_here()
    stand_in = opened()
    stand_in.script(device, launches_us, other_us)
    try:
        yield lambda: stand_in.script_left(device)
    finally:
        stand_in.unscript(device)
