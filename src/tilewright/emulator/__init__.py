"""The emulated device: compiled AMD code objects, executed on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

if TYPE_CHECKING:
    from tilewright.emulator.device import EmulatedDevice
    from tilewright.emulator.launch import Counters, Extent, Launch, Mode
    from tilewright.emulator.memory import Memory
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.emulator.device": ("EmulatedDevice",),
            "tilewright.emulator.launch": ("Counters", "Extent", "Launch", "Mode"),
            "tilewright.emulator.memory": ("Memory",),
        },
    )

__all__ = [
    "Counters",
    "EmulatedDevice",
    "Extent",
    "Launch",
    "Memory",
    "Mode",
]
