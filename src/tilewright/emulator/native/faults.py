"""Translate faults of the native engine into those that the NumPy engine raises."""

from __future__ import annotations

from tilewright.base.errors import DeviceError
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.faults import (
    AlignmentFault,
    BarrierFault,
    CodeFault,
    EndlessLoopFault,
    Fault,
    FaultLocation,
    LdsFault,
    MemoryFault,
    TrapFault,
)
from tilewright.emulator.memory import Memory
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import NativeLaunch
from tilewright.emulator.native.lower import LoweredKernel

# In the order of the enumeration in types.h.
_CODES = (
    "none", "memory", "lds", "alignment", "unknown", "loop", "barrier", "jump", "rounding", "descriptor", "scratch",
    "trap", "no room", "atomic", "inactive", "halves",
)  # fmt: skip


def make_fault(launch: NativeLaunch, lowered: LoweredKernel, code: LoadedCode, memory: Memory) -> Exception:
    """Return the exception for the fault of a launch."""
    found = launch.fault
    name = _CODES[found.code]
    if name == "no room":
        return DeviceError(f"the engine has no memory for a work-group, which needs {found.size} bytes")
    instruction = lowered.instructions[found.instruction]
    fault = _translate_fault(name, launch, lowered, code, memory)
    nowhere = isinstance(fault, CodeFault) and fault.place.address is not None
    known: dict[str, object] = {"kernel": code.kernel, "block": found.block, "wave": found.wave}
    if found.lane >= 0:
        known["lane"] = found.lane
    if not nowhere:
        known |= {"address": instruction.address, "instruction": instruction.text}
    return fault.add_location(**known)


def _translate_fault(
    name: str, launch: NativeLaunch, lowered: LoweredKernel, code: LoadedCode, memory: Memory
) -> Fault:
    found: layout.FaultRecord = launch.fault
    size, address = found.size, found.address
    offset = address - 2**64 if address >> 63 else address
    available, own = launch.lds_bytes, launch.scratch_bytes
    if name == "memory":
        return MemoryFault(f"{size} bytes at {address:#x}: {memory.describe_address(address, size)}")
    if name == "jump":
        return _make_jump_fault(offset, found.instruction, lowered, code)
    endless = "wait at a barrier that never completes: not all waves of their work-groups signal it"
    kinds: dict[str, tuple[type[Fault], str]] = {
        "lds": (LdsFault, f"{size} bytes at {offset:#x} of the LDS of the work-group, which has {available} bytes"),
        "scratch": (
            MemoryFault,
            f"{size} bytes at offset {offset} of the private memory of a lane, which has {own}",
        ),
        "alignment": (
            AlignmentFault,
            f"a scalar load of {size}-byte elements at {address:#x}, which is not a multiple of {size}",
        ),
        "atomic": (
            AlignmentFault,
            f"an atomic access of {size} bytes at an address that is {address % max(size, 1)} past a multiple",
        ),
        "barrier": (BarrierFault, f"{size} waves {endless}"),
        "loop": (EndlessLoopFault, f"{size} instructions of waves, the limit is {launch.limit}"),
    }
    if name in kinds:
        kind, what = kinds[name]
        return kind(what)
    return _make_unknown_fault(name, found, lowered, code)


def _make_jump_fault(offset: int, index: int, lowered: LoweredKernel, code: LoadedCode) -> Fault:
    if index in lowered.faults:
        return lowered.faults[index]
    if 0 <= offset < 1 << 32:
        return CodeFault(f"no instruction exists at {offset:#x}", FaultLocation(address=offset))
    return CodeFault(f"a jump to {(offset + code.base) % 2**64:#x}, which is outside the code object")


def _make_unknown_fault(name: str, found: layout.FaultRecord, lowered: LoweredKernel, code: LoadedCode) -> Fault:
    """Return the fault for something that the emulated device does not support."""
    instruction = lowered.instructions[found.instruction]
    if name == "unknown":
        return lowered.faults[found.instruction]
    if name == "trap":
        return TrapFault(f"the kernel stopped itself with trap {instruction.operands[0].value}")
    words = ", ".join(f"{word:#010x}" for word in found.words)
    what = {
        "rounding": "rounding other than to the nearest",
        "descriptor": f"the buffer descriptor {words}",
        "inactive": f"{instruction.mnemonic} with lanes that exec disables",
        "halves": "A or B that differs between lanes 0 to 15 and lanes 16 to 31",
    }
    return code.unknown(what[name], instruction)
