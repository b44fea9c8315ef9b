"""Faults of the emulated device, with all details that are known."""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.errors import DeviceError
from tilewright.emulator.code_place import CodePlace


class Fault(DeviceError):  # noqa: N818 - the usual term
    """A kernel did something invalid, or something that is not emulated. `name` is short and stable, for programs."""

    name = "fault"

    def __init__(self, what: str, place: CodePlace | None = None) -> None:
        self.what = what
        self.place = place or CodePlace()
        super().__init__(f"{self.name}: {what}{self.place}")

    def add_location(self, **known: object) -> Fault:
        """Return the same fault with more details of its location. Known details are not replaced."""
        missing = {key: value for key, value in known.items() if getattr(self.place, key) in (None, ())}
        return type(self)(self.what, replace(self.place, **missing))  # type: ignore[arg-type]


class MemoryFault(Fault):
    """An access outside every allocation, or across the end of one."""

    name = "memory-fault"


class LdsFault(Fault):
    """An access outside the LDS of the work-group."""

    name = "lds-fault"


class AlignmentFault(Fault):
    """An address that is not aligned as the instruction requires."""

    name = "misaligned-access"


class UnknownInstructionFault(Fault):
    """An instruction, modifier or descriptor bit that the emulated device does not support. It never guesses."""

    name = "unknown-instruction"


class EndlessLoopFault(Fault):
    """A launch executed more instructions than its limit."""

    name = "endless-loop"


class SpinFault(Fault):
    """All waves that still run wait for a change that none of them makes."""

    name = "spin"


class BarrierFault(Fault):
    """Waves wait at a barrier that the others never reach."""

    name = "barrier-deadlock"


class CodeFault(Fault):
    """A jump to an address without an instruction."""

    name = "bad-jump"


class TrapFault(Fault):
    """The kernel stopped itself: a failed assertion, or unreachable code."""

    name = "trap"


class CodeObjectError(Fault):
    """A code object that is damaged, or built for something else."""

    name = "bad-code-object"


class LaunchFault(Fault):
    """A launch that the kernel does not allow: too many threads, too much LDS, too few arguments."""

    name = "bad-launch"
