"""The emulated device: compiled AMD code objects, executed on the CPU.

It works alone: it knows instructions and memory, but neither ops nor kernel configs, and imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

if TYPE_CHECKING:
    from tilewright.emulator.code_place import CodePlace
    from tilewright.emulator.debugger import Debugger, Stop
    from tilewright.emulator.device import DeviceKernel, EmulatedDevice, Module
    from tilewright.emulator.faults import (
        AlignmentFault,
        BarrierFault,
        CodeFault,
        CodeObjectError,
        EndlessLoopFault,
        Fault,
        LaunchFault,
        LdsFault,
        MemoryFault,
        SpinFault,
        TrapFault,
        UnknownInstructionFault,
    )
    from tilewright.emulator.launch import Counters, Extent, Launch, Mode
    from tilewright.emulator.memory import Memory
    from tilewright.emulator.sanitizer.findings import CheckFault, Finding
    from tilewright.emulator.sanitizer.reports import write_report
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.emulator.code_place": ("CodePlace",),
            "tilewright.emulator.debugger": ("Debugger", "Stop"),
            "tilewright.emulator.device": ("DeviceKernel", "EmulatedDevice", "Module"),
            "tilewright.emulator.faults": (
                *("AlignmentFault", "BarrierFault", "CodeFault", "CodeObjectError", "EndlessLoopFault", "Fault"),
                *(
                    "LaunchFault",
                    "LdsFault",
                    "MemoryFault",
                    "SpinFault",
                    "TrapFault",
                    "UnknownInstructionFault",
                ),
            ),
            "tilewright.emulator.launch": ("Counters", "Extent", "Launch", "Mode"),
            "tilewright.emulator.memory": ("Memory",),
            "tilewright.emulator.sanitizer.findings": ("CheckFault", "Finding"),
            "tilewright.emulator.sanitizer.reports": ("write_report",),
        },
    )

__all__ = [
    "AlignmentFault",
    "BarrierFault",
    "CheckFault",
    "CodeFault",
    "CodeObjectError",
    "CodePlace",
    "Counters",
    "Debugger",
    "DeviceKernel",
    "EmulatedDevice",
    "EndlessLoopFault",
    "Extent",
    "Fault",
    "Finding",
    "Launch",
    "LaunchFault",
    "LdsFault",
    "Memory",
    "MemoryFault",
    "Mode",
    "Module",
    "SpinFault",
    "Stop",
    "TrapFault",
    "UnknownInstructionFault",
    "write_report",
]
