"""What only emulated devices have: settings, records, and the faults behind a HIP status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.emulator.stand_in import pending, settings

has_pending = pending.has_own
raise_pending = pending.raise_own
raise_orphan = pending.raise_orphan
recording = settings.recording
naming = settings.naming


@contextmanager
def emulating(device: int, **given: Any) -> Iterator[None]:
    """Launches of this thread on a device run with these settings; what is None stays as it is."""
    from tilewright.emulator.stand_in.opened import running_dry  # noqa: PLC0415  (loads NumPy)

    before = settings.settings_of(device)
    after = settings.changed(before, **given)
    with settings.in_force(device, after), running_dry(device, after.dry, before.dry):
        yield
