"""Lower a kernel's code to records for the native engine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.building.instruction_mix import classify
from tilewright.emulator.code import Code
from tilewright.emulator.faults import CodeFault, Fault, Place
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.matrix.shapes import shapes
from tilewright.emulator.native.handlers import NUMBERS
from tilewright.emulator.native.layout import (
    NO_INSTRUCTION,
    SCALAR,
    VECTOR,
    Matrix,
    Permutation,
    Record,
    Written,
)
from tilewright.emulator.native.lower_alu import lower_alu
from tilewright.emulator.native.lower_control import INDIRECT, JUMPS, lower_control, queues_of
from tilewright.emulator.native.lower_matrix import lower_matrix
from tilewright.emulator.native.lower_memory import lower_memory
from tilewright.emulator.native.record import Tables, record
from tilewright.emulator.overwrites import written
from tilewright.emulator.program import Program, Raising

_LOWERERS: tuple[Callable[[Instruction, Code, Tables], Record | None], ...] = (
    lower_control, lower_memory, lower_matrix, lower_alu,
)  # fmt: skip
SPARE_REGISTERS = 2  # of the engine, after those of the kernel
_PARTS = frozenset((NUMBERS["pair"], NUMBERS["halves"]))
_ATOMICS = frozenset(NUMBERS[name] for name in ("global_atomic", "buffer_atomic", "flat_atomic"))
_BARRIERS = frozenset(NUMBERS[name] for name in ("barrier", "barrier_signal", "barrier_first"))


@dataclass(frozen=True, slots=True)
class Lowered:
    """Records in the order of their addresses, with details of each."""

    records: ctypes.Array[Record]
    count: int  # records that are instructions; the rest are parts of them
    permutations: ctypes.Array[Permutation]
    matrices: ctypes.Array[Matrix]
    instructions: tuple[Instruction, ...]
    faults: Mapping[int, Fault]  # of unknown instructions, by index
    index: NDArray[np.uint32]  # by address / 4
    addresses: NDArray[np.int64]
    classes: Mapping[str, NDArray[np.intp]]  # indices of the instructions in each class
    flops: NDArray[np.int64]
    barriers: NDArray[np.bool_]
    has_atomics: bool  # on memory

    def entry(self, address: int) -> int:
        return int(self.index[address // 4])


@dataclass(frozen=True, slots=True)
class Refusal:
    """An instruction that only the NumPy engine supports."""

    instruction: Instruction


@dataclass(frozen=True, slots=True)
class _Line:
    instruction: Instruction
    record: Record
    fault: Fault | None = None


def lower(program: Program, code: Code, entry: int, vgprs: int) -> Lowered | Refusal:
    """Lower all instructions that are reachable from `entry`."""
    tables = Tables(queues_of(code.arch.name), vgprs)
    found: dict[int, _Line] = {}
    ahead = [entry]
    while ahead:
        address = ahead.pop()
        if address in found:
            continue
        line = _lower_line(program, code, address, tables)
        if isinstance(line, Refusal):
            return line
        found[address] = line
        ahead += _following(line, program)
    return _joined(found, tables, code)


def _lower_line(program: Program, code: Code, address: int, tables: Tables) -> _Line | Refusal:
    if address not in program.lines:
        fault = CodeFault(f"there is no instruction at {address:#x}", Place(address=address))
        nowhere = Instruction(address, 4, "", (), "")
        return _Line(nowhere, record("nowhere", offset=address), fault)
    made: Record | None = None
    try:
        instruction = program.instruction(address)
        program.check_registers(instruction)
        made = _lowered(instruction, code, tables)
    except Fault:
        made = None
    if made is not None:
        _note_written(made, instruction, code)
        return _Line(instruction, made)
    instruction, _, step = program.read(address)
    if isinstance(step, Raising):
        return _Line(instruction, record("unknown"), step.fault)
    return Refusal(instruction)


def _note_written(made: Record, instruction: Instruction, code: Code) -> None:
    """Record the registers that an instruction writes at once, as ranges."""
    ranges: list[Written] = []
    for kind, number in sorted(written(instruction, code)):
        known = VECTOR if kind == "v" else SCALAR
        last = ranges[-1] if ranges else None
        if last is not None and last.kind == known and last.first + last.count == number:
            last.count += 1
        else:
            ranges.append(Written(known, 1, number))
    for number, each in enumerate(ranges):
        made.written[number] = each


def _lowered(instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    for lower_kind in _LOWERERS:
        made = lower_kind(instruction, code, tables)
        if made is not None:
            return made
    return None


def _following(line: _Line, program: Program) -> Sequence[int]:
    """Return the addresses where a wave may continue."""
    number, after = line.record.op, line.instruction.following
    if number in INDIRECT:
        return [after, *program.lines]
    if number in JUMPS:
        return [line.record.target] if number == NUMBERS["branch"] else [after, line.record.target]
    if number in (NUMBERS["end"], NUMBERS["nowhere"], NUMBERS["unknown"], NUMBERS["trap"]):
        return []
    return [after]


def _joined(found: Mapping[int, _Line], tables: Tables, code: Code) -> Lowered:
    addresses = sorted(found)
    lines = [found[address] for address in addresses]
    index = np.full(addresses[-1] // 4 + 1, NO_INSTRUCTION, np.uint32)
    index[np.array(addresses) // 4] = np.arange(len(addresses))
    for line in lines:
        if line.record.op in JUMPS:
            line.record.target = int(index[line.record.target // 4])
        elif line.record.op in _PARTS:
            line.record.target += len(lines)
    operations = [line.record.op for line in lines]
    return Lowered(
        records=_array(Record, [*(line.record for line in lines), *tables.parts]),
        count=len(lines),
        permutations=_array(Permutation, tables.permutations),
        matrices=_array(Matrix, tables.matrices),
        instructions=tuple(line.instruction for line in lines),
        faults={number: line.fault for number, line in enumerate(lines) if line.fault is not None},
        index=index,
        addresses=np.array(addresses, np.int64),
        classes=_classes([line.instruction for line in lines]),
        flops=np.array([_flops(line.instruction, code) for line in lines], np.int64),
        barriers=np.array([number in _BARRIERS for number in operations]),
        has_atomics=any(number in _ATOMICS for number in operations),
    )


def _array(kind: Any, items: Sequence[Any]) -> Any:
    # At least one element, because an empty array has no address.
    made = (kind * max(len(items), 1))()
    for number, item in enumerate(items):
        made[number] = item
    return made


def _classes(instructions: Sequence[Instruction]) -> dict[str, NDArray[np.intp]]:
    """Return the indices of the instructions in each class. A dual instruction may be in a class twice."""
    found: dict[str, list[int]] = {}
    for number, instruction in enumerate(instructions):
        for half in (instruction, instruction.other):
            if half is not None and half.mnemonic:
                found.setdefault(classify(half.mnemonic), []).append(number)
    return {name: np.array(numbers, np.intp) for name, numbers in found.items()}


def _flops(instruction: Instruction, code: Code) -> int:
    shape = shapes(code.arch.family).get(instruction.mnemonic)
    return shape.flops if shape is not None else 0
