"""What goes wrong on the emulated device, with everything that is known about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.base.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fault happened; what is not known is None."""

    kernel: str | None = None
    address: int | None = None  # of the instruction, in its code object
    instruction: str | None = None
    block: int | None = None  # number of the work-group in the grid
    wave: int | None = None  # number of the wave in its work-group
    lane: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.instruction is not None:
            at = f" at {self.address:#x}" if self.address is not None else ""
            parts.append(f"instruction{at}: {self.instruction}")
        where = [f"{name} {value}" for name, value in self._numbers() if value is not None]
        if where:
            parts.append(", ".join(where))
        if self.kernel is not None:
            parts.append(f"kernel: {self.kernel}")
        return "\n  ".join(["", *parts]) if parts else ""

    def _numbers(self) -> tuple[tuple[str, int | None], ...]:
        return ("block", self.block), ("wave", self.wave), ("lane", self.lane)


class Fault(DeviceError):  # noqa: N818 - the word of the field
    """A kernel did what no device may do, or what this one cannot. `name` is short and stable, for programs."""

    name = "fault"

    def __init__(self, what: str, place: Place | None = None) -> None:
        self.what = what
        self.place = place or Place()
        super().__init__(f"{self.name}: {what}{self.place}")

    def at(self, **known: object) -> Fault:
        """The same fault with more known about its place; what is known already stays."""
        missing = {key: value for key, value in known.items() if getattr(self.place, key) is None}
        return type(self)(self.what, replace(self.place, **missing))  # type: ignore[arg-type]


class MemoryFault(Fault):
    """An access outside every allocation, or across the end of one."""

    name = "memory-fault"


class LdsFault(Fault):
    """An access outside the LDS of the work-group."""

    name = "lds-fault"


class AlignmentFault(Fault):
    """An address that the instruction may not be given."""

    name = "misaligned-access"


class UnknownInstructionFault(Fault):
    """An instruction, modifier or descriptor bit that the emulated device does not know. It never guesses."""

    name = "unknown-instruction"


class EndlessLoopFault(Fault):
    """More instructions than the limit of a launch."""

    name = "endless-loop"


class BarrierFault(Fault):
    """Waves wait at a barrier that the others never reach."""

    name = "barrier-deadlock"


class CodeFault(Fault):
    """A jump to a place where there is no instruction."""

    name = "bad-jump"


class TrapFault(Fault):
    """The kernel stopped itself: a failed assertion, or code that must not be reached."""

    name = "trap"


class CodeObjectError(Fault):
    """A code object that is damaged, or made for something else."""

    name = "bad-code-object"


class LaunchFault(Fault):
    """A launch that the kernel does not allow: too many threads, too much LDS, too few arguments."""

    name = "bad-launch"
