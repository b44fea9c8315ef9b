"""What only emulated devices have: settings, records, and the faults behind a HIP status."""

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
    """Launches of this thread on a device run with these settings; what is None stays as it is."""
    if hip.own_process and given.get("exchange") is not None:
        raise InvalidValueError(
            "kernels can be exchanged only in the process of the emulated device, and it has one of its own here, "
            "because another HIP library is loaded: use a process without it"
        )
    before = settings.settings_of(device)
    after = settings.changed(before, **given)
    with settings.in_force(device, after), _running_dry(hip, device, after.dry, before.dry):
        yield


def _running_dry(hip: Hip, device: int, on: bool, before: bool) -> AbstractContextManager[None]:
    if hip.own_process:
        return nullcontext()  # each call takes the settings with it
    from tilewright.emulator.stand_in.opened import running_dry  # noqa: PLC0415  (loads NumPy)

    return running_dry(device, on, before)


@contextmanager
def scripted(device: int, launches_us: Sequence[float], other_us: float = 0.0) -> Iterator[Callable[[], int]]:
    """A device has time inside the `with` block: that of a script. For tests of what measures time.

    This thread's launches take these microseconds, one after another, and each fill and copy `other_us`. Events give
    what passed between them. After the last launch there is no time any more. Gives a function that tells how many
    launches of the script are left.
    """
    from tilewright.emulator.stand_in.opened import opened  # noqa: PLC0415  (loads NumPy)

    for value in (*launches_us, other_us):
        if not value >= 0:
            raise InvalidValueError(f"{value} µs is no time that anything takes")
    loaded.stand_in_here()
    stand_in = opened()
    stand_in.script(device, launches_us, other_us)
    try:
        yield lambda: stand_in.script_left(device)
    finally:
        stand_in.unscript(device)
