"""Lower a kernel's code to records for the native engine."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.building.instruction_mix import classify
from tilewright.emulator import control
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import CodeFault, Fault
from tilewright.emulator.indexed_registers import can_index
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.matrix.sparse import find_any_shape
from tilewright.emulator.native.handlers import NUMBERS
from tilewright.emulator.native.layout import (
    NO_INSTRUCTION,
    SCALAR,
    VECTOR,
    InstructionRecord,
    LoweringTables,
    MatrixRecord,
    Permutation,
    WrittenRange,
    make_operand,
    make_record,
)
from tilewright.emulator.native.lower_alu import lower_alu
from tilewright.emulator.native.lower_control import INDIRECT, JUMPS, list_queue_numbers, lower_control
from tilewright.emulator.native.lower_lds import lower_lds
from tilewright.emulator.native.lower_matrix import lower_matrix
from tilewright.emulator.native.lower_memory import lower_memory
from tilewright.emulator.native.lowered import LOCATED, LoweredKernel, UnsupportedInstruction, make_array
from tilewright.emulator.program import FaultStep, Program
from tilewright.emulator.relative_moves import MOVES, check_operands, count_scalars, make_plain
from tilewright.emulator.write_hazards import find_written_registers, list_destinations

_LOWERERS: tuple[Callable[[Instruction, LoadedCode, LoweringTables], InstructionRecord | None], ...] = (
    lower_control, lower_memory, lower_lds, lower_matrix, lower_alu,
)  # fmt: skip
_PARTS = frozenset(NUMBERS[name] for name in ("pair", "halves", "indexed", "relative_move", "elements"))
# Handwritten handlers whose operands can be indexed; so can those of the table.
_INDEXABLE = frozenset(NUMBERS[name] for name in ("read_first_lane", "read_lane", "write_lane"))
_ATOMICS = frozenset(
    NUMBERS[name] for name in ("global_atomic", "buffer_atomic", "flat_atomic", "scalar_atomic", "scalar_buffer_atomic")
)
_BARRIERS = frozenset(NUMBERS[name] for name in ("barrier", "barrier_signal", "barrier_first"))


@dataclass(frozen=True, slots=True)
class _LoweredLine:
    instruction: Instruction
    record: InstructionRecord
    fault: Fault | None = None


def lower(program: Program, code: LoadedCode, entry: int, vgprs: int) -> LoweredKernel | UnsupportedInstruction:
    """Lower all instructions that are reachable from `entry`."""
    tables = LoweringTables(list_queue_numbers(code.arch.name), vgprs)
    found: dict[int, _LoweredLine] = {}
    ahead = [entry]
    while ahead:
        address = ahead.pop()
        if address in found:
            continue
        line = _lower_line(program, code, address, tables)
        if isinstance(line, UnsupportedInstruction):
            return line
        found[address] = line
        ahead += _list_successors(line, program)
    return _build_lowered(found, tables, code)


def lower_line_alone(program: Program, code: LoadedCode, address: int) -> InstructionRecord | None:
    """Lower one instruction, to find out whether the native engine supports it; None if it does not."""
    line = _lower_line(
        program, code, address, LoweringTables(list_queue_numbers(code.arch.name), program.register_limit)
    )
    return None if isinstance(line, UnsupportedInstruction) or line.fault is not None else line.record


def _lower_line(
    program: Program, code: LoadedCode, address: int, tables: LoweringTables
) -> _LoweredLine | UnsupportedInstruction:
    if address not in program.lines:
        fault = CodeFault(f"no instruction exists at {address:#x}", CodePlace(address=address))
        nowhere = Instruction(address, 4, "", (), "")
        return _LoweredLine(nowhere, make_record("nowhere", offset=address), fault)
    made: InstructionRecord | None = None
    try:
        instruction = program.read_instruction(address)
        program.check_registers(instruction)
        if program.is_indexed(instruction):
            made = _lower_indexed(instruction, program, code, tables)
        else:
            made = _lower_instruction(instruction, code, tables)
            if made is not None:
                _record_written(made, instruction, code)
    except Fault:
        made = None
    if made is not None:
        made.vector = int(control.is_skipped(instruction.mnemonic))
        return _LoweredLine(instruction, made)
    instruction, _, step = program.translate_at(address)
    if isinstance(step, FaultStep):
        return _LoweredLine(instruction, make_record("unknown"), step.fault)
    return UnsupportedInstruction(instruction)


def _lower_indexed(
    instruction: Instruction, program: Program, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord | None:
    """Put an instruction behind the code, for a record that indexes its registers. None if only NumPy supports it."""
    move = MOVES.get(instruction.mnemonic)
    if move is not None:
        check_operands(instruction, code)
        instruction = make_plain(instruction)
    made = _lower_instruction(instruction, code, tables)
    if made is None or (move is None and not _can_index(made, instruction)):
        return None
    for operand, record in zip(instruction.operands, (made.out, *made.sources), strict=False):
        if record.kind in (VECTOR, SCALAR):
            record.value = int(operand.count == 2)
    written = (operand for operand in list_destinations(instruction) if operand.kind in ("v", "s"))
    for number, operand in enumerate(written):
        made.written[number] = WrittenRange(VECTOR if operand.kind == "v" else SCALAR, operand.count, operand.index)
    tables.parts.append(made)
    target = len(tables.parts) - 1
    if move is None:
        return make_record("indexed", target=target, offset=program.register_limit)
    end = program.register_limit if made.out.kind == VECTOR else count_scalars(code)
    destination, source = (make_operand(0, value=end, shift=bits.first, width=bits.width) for bits in move.indices)
    return make_record("relative_move", destination, [source], target=target)


def _can_index(made: InstructionRecord, instruction: Instruction) -> bool:
    """Whether the engine can index the registers of an instruction of gfx9."""
    old_value = any(made.sources[k].kind == VECTOR and made.sources[k].index == made.out.index for k in (2, 3))
    return can_index(instruction) and not old_value and (made.op >= len(NUMBERS) or made.op in _INDEXABLE)


def _record_written(made: InstructionRecord, instruction: Instruction, code: LoadedCode) -> None:
    """Record the registers that an instruction writes at once, as ranges."""
    ranges: list[WrittenRange] = []
    for kind, number in sorted(find_written_registers(instruction, code)):
        known = VECTOR if kind == "v" else SCALAR
        last = ranges[-1] if ranges else None
        if last is not None and last.kind == known and last.first + last.count == number:
            last.count += 1
        else:
            ranges.append(WrittenRange(known, 1, number))
    for number, each in enumerate(ranges):
        made.written[number] = each


def _lower_instruction(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    for lower_kind in _LOWERERS:
        made = lower_kind(instruction, code, tables)
        if made is not None:
            return made
    return None


def _list_successors(line: _LoweredLine, program: Program) -> Sequence[int]:
    """Return the addresses where a wave may continue."""
    number, after = line.record.op, line.instruction.next_address
    if number in INDIRECT:
        return [after, *program.lines]
    if number in JUMPS:
        return [line.record.target] if number == NUMBERS["branch"] else [after, line.record.target]
    if number in (NUMBERS["end"], NUMBERS["nowhere"], NUMBERS["unknown"], NUMBERS["trap"]):
        return []
    return [after]


def _build_lowered(found: Mapping[int, _LoweredLine], tables: LoweringTables, code: LoadedCode) -> LoweredKernel:
    addresses = sorted(found)
    lines = [found[address] for address in addresses]
    index = array("I", [NO_INSTRUCTION]) * (addresses[-1] // 4 + 1)
    for number, address in enumerate(addresses):
        index[address // 4] = number
    for line in lines:
        if line.record.op in JUMPS:
            line.record.target = index[line.record.target // 4]
        elif line.record.op in _PARTS:
            line.record.target += len(lines)
    operations = [line.record.op for line in lines]
    return LoweredKernel(
        records=make_array(InstructionRecord, [*(line.record for line in lines), *tables.parts]),
        count=len(lines),
        permutations=make_array(Permutation, tables.permutations),
        matrices=make_array(MatrixRecord, tables.matrices),
        instructions=tuple(line.instruction for line in lines),
        faults={number: line.fault for number, line in enumerate(lines) if line.fault is not None},
        index=index,
        addresses=array("q", addresses),
        classes=_group_classes([line.instruction for line in lines]),
        flops={at: count for at, line in enumerate(lines) if (count := _count_flops(line.instruction, code))},
        barriers=tuple(at for at, number in enumerate(operations) if number in _BARRIERS),
        located=tuple(at for at, number in enumerate(operations) if number in LOCATED),
        has_atomics=any(number in _ATOMICS for number in operations),
    )


def _group_classes(instructions: Sequence[Instruction]) -> dict[str, array[int]]:
    """Return the indices of the instructions in each class. A dual instruction may be in a class twice."""
    found: dict[str, list[int]] = {}
    for number, instruction in enumerate(instructions):
        for half in (instruction, instruction.other):
            if half is not None and half.mnemonic:
                found.setdefault(classify(half.mnemonic), []).append(number)
    return {name: array("I", numbers) for name, numbers in found.items()}


def _count_flops(instruction: Instruction, code: LoadedCode) -> int:
    shape = find_any_shape(instruction.mnemonic, code.arch.family)
    return shape.flops if shape is not None else 0
