"""Findings from the records that the native engine writes."""

from __future__ import annotations

from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.inlined_calls import find_source_frames
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.memory import Memory
from tilewright.emulator.native.layout import FindingRecord
from tilewright.emulator.native.lowered import LoweredKernel
from tilewright.emulator.sanitizer.findings import Finding

# In the order of the enumeration in shadow.h.
UNINITIALIZED_READ, _RACE, _PARTIAL_BARRIER, _MISSED_BARRIER = range(4)
_ACTIONS = ("reads", "writes", "updates atomically")
_LATE = 4  # Access.flags


def make_finding(
    record: FindingRecord, lowered: LoweredKernel, memory: Memory, code_object: bytes, gpu: str, kernel: str
) -> Finding:
    """Return the finding of a record."""
    maker = _Maker(record, lowered, memory, code_object, kernel)
    name, message, places, advice = maker.make()
    lines = any(place.source is not None for place in places)
    return Finding(name, message, gpu, places, advice, record.count, lines)


def is_expanded_atomic(finding: Finding) -> bool:
    """Whether a race is between the parts of one atomic operation that the compiler expanded.

    Without an instruction for an operation, LLVM (AtomicExpandPass) loads the old value and exchanges it in a loop
    until nobody has changed it. A wrong old value does no harm. Both parts have the operation's source line and column.
    """
    if finding.name != "race":
        return False
    reads, updates = sorted(finding.places, key=lambda place: "atomically" in place.action)
    is_exchange = "_cmpswap" in (updates.instruction or "") and reads.action.startswith(_ACTIONS[0])
    same = (reads.source, reads.calls) == (updates.source, updates.calls)
    return is_exchange and same and reads.source is not None and reads.source.column > 0


class _Maker:
    def __init__(
        self, record: FindingRecord, lowered: LoweredKernel, memory: Memory, code_object: bytes, kernel: str
    ) -> None:
        self._record = record
        self._lowered = lowered
        self._memory = memory
        self._code_object = code_object
        self._kernel = kernel

    def make(self) -> tuple[str, str, tuple[CodePlace, ...], str]:
        """Return name, message, places and advice."""
        record = self._record
        if record.kind == UNINITIALIZED_READ:
            advice = "Write it first, or clear it: LDS has no initial value, and neither has memory of hipMalloc."
            return (
                "uninitialized-read",
                f"{self._describe_bytes()} that nobody wrote",
                (self._make_place("reads"),),
                advice,
            )
        if record.kind == _RACE:
            places = (self._make_place(_ACTIONS[record.writes]), self._make_other(_ACTIONS[record.other_writes]))
            return (
                "race",
                f"{self._describe_bytes()}: two waves access it, and nothing orders them",
                places,
                self._advise(),
            )
        if record.kind == _PARTIAL_BARRIER:
            message = f"lane {record.lane} of the wave does not reach the barrier, or has ended"
            advice = "Move the barrier out of the branch: all threads of a work-group must reach it."
            return "divergent-barrier", message, (self._make_place("waits at the barrier", lane=False),), advice
        message = "a wave ended without reaching the barrier at which others wait"
        advice = "Let all waves reach it: replace an early return by a condition around the work."
        places = (self._make_place("waits at the barrier"), self._make_other("ended"))
        return "divergent-barrier", message, places, advice

    def _describe_bytes(self) -> str:
        record = self._record
        if record.in_lds:
            return f"{record.size} bytes at {record.address:#x} of the LDS"
        return (
            f"{record.size} bytes at {record.address:#x}, {self._memory.describe_address(record.address, record.size)}"
        )

    def _make_place(self, action: str, lane: bool = True) -> CodePlace:
        record = self._record
        return self._locate(action, record.instruction, record.block, record.wave, record.lane if lane else -1)

    def _make_other(self, action: str) -> CodePlace:
        record = self._record
        return self._locate(
            f"{action} before" if action != "ended" else action,
            record.other_instruction, record.other_block, record.other_wave, record.other_lane,
        )  # fmt: skip

    def _locate(self, action: str, index: int, block: int, wave: int, lane: int) -> CodePlace:
        instruction: Instruction = self._lowered.instructions[index]
        source, calls = find_source_frames(self._code_object, instruction.address)
        return CodePlace(
            kernel=self._kernel, address=instruction.address, instruction=instruction.text, block=block, wave=wave,
            lane=lane if lane >= 0 else None, source=source, calls=calls, action=action,
        )  # fmt: skip

    def _advise(self) -> str:
        record = self._record
        mixed = (record.writes == 2) != (record.other_writes == 2)
        if record.block == record.other_block:
            if record.flags & _LATE:
                return "The write was still pending at the barrier: wait for it before (s_waitcnt, or __syncthreads())."
            also = " An atomic access is not ordered with others without a barrier." if mixed else ""
            return f"No barrier is between the two: add __syncthreads().{also}"
        if mixed:
            return "One of them is not atomic: make both atomic, at the scope of the device."
        return "Order them with __threadfence() and an atomic flag at device scope: that of a work-group is not enough."
