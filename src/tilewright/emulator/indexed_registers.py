"""Vector registers by index (gfx9): between s_set_gpr_idx_on and s_set_gpr_idx_off, M0 is added to register numbers.

M0 has the index in bits 0 to 7, and in bits 12 to 15 what it applies to: the three sources and the destination of
vector arithmetic. Code is taken as it is listed: instructions between the two are indexed. A jump among them, out of or
into their range, is not supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilewright.base.lazy_module import LazyModule
from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.group import Registers, Step, WaveGroup
from tilewright.emulator.instruction import M0, Instruction, Operand
from tilewright.emulator.write_hazards import apply_pending_loads, find_written_registers

if TYPE_CHECKING:
    import numpy as np
else:
    np = LazyModule("numpy")

_INDEX, _PARTS_BIT, _PARTS = 0xFF, 12, 0xF
_USED = _INDEX | _PARTS << _PARTS_BIT
_DESTINATION = 8
_NAMES = {"SRC0": 1, "SRC1": 2, "SRC2": 4, "DST": _DESTINATION}
_LIST = re.compile(r"gpr_idx\(([A-Z0-9,]*)\)")


def find_indexed(lines: Iterable[DisassembledLine]) -> frozenset[int]:
    """Return the addresses of the instructions between s_set_gpr_idx_on and s_set_gpr_idx_off, or the end."""
    found, active = set(), False
    for line in lines:
        name = line.text.partition(" ")[0]
        if name == "s_set_gpr_idx_on":
            active = True
        elif name == "s_set_gpr_idx_off" or name.startswith("s_endpgm"):
            active = False
        elif active:
            found.add(line.address)
    return frozenset(found)


def read_index_change(instruction: Instruction, code: LoadedCode) -> tuple[Operand | None, int, int] | None:
    """Return what an instruction does to M0: the operand of the index (or None), the bits that it replaces, and the
    fixed bits among them; None for other instructions."""
    name, operands = instruction.mnemonic, instruction.operands
    if name == "s_set_gpr_idx_on":
        return operands[0], _USED, _read_parts(operands[1], instruction, code) << _PARTS_BIT
    if name == "s_set_gpr_idx_idx":
        return operands[0], _INDEX, 0
    if name == "s_set_gpr_idx_mode":
        return None, _PARTS << _PARTS_BIT, _read_parts(operands[0], instruction, code) << _PARTS_BIT
    return None


def _read_parts(operand: Operand, instruction: Instruction, code: LoadedCode) -> int:
    if operand.kind == "const" and isinstance(operand.value, int):
        return operand.value & _PARTS
    match = _LIST.fullmatch(operand.name)
    names = [name for name in match[1].split(",") if name] if match else []
    if match is None or any(name not in _NAMES for name in names):
        raise code.unknown(f"the list of indexed operands '{operand.name}'", instruction)
    return sum(_NAMES[name] for name in names)


def make_index_step(instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of s_set_gpr_idx_on, …_idx and …_mode; None for other instructions."""
    change = read_index_change(instruction, code)
    if change is None:
        return None
    source, replaced, fixed = change
    if source is not None and source.kind not in ("s", "const"):
        raise code.unknown("the register index", instruction)

    def execute(group: WaveGroup) -> None:
        index = 0 if source is None else group.s[source.index] if source.kind == "s" else int(source.value)
        group.s[M0][...] = group.s[M0] & np.uint32(~replaced & 0xFFFFFFFF) | np.uint32(fixed) | (index & _INDEX)

    return execute


def can_index(instruction: Instruction) -> bool:
    """Whether the operands of an instruction can be indexed here: one destination, and no accumulation registers."""
    return instruction.other is None and not any(operand.kind == "a" for operand in instruction.operands)


def shift_registers(instruction: Instruction, m0: int) -> Instruction:
    """Return the instruction with the registers that M0 selects."""
    index, parts = m0 & _INDEX, m0 >> _PARTS_BIT & _PARTS
    bits = (_DESTINATION, 1, 2, 4)
    operands = tuple(
        replace(operand, index=operand.index + index)
        if operand.kind == "v" and number < len(bits) and parts & bits[number]
        else operand
        for number, operand in enumerate(instruction.operands)
    )
    return replace(instruction, operands=operands)


@dataclass(frozen=True, slots=True)
class RegisterIndexing:
    """How M0 changes an instruction: the bits of M0 that count, and the instruction with the registers they select.

    `shift` raises `CodeObjectError` for registers that do not exist. `masked`: a wave without active lanes does
    nothing, whatever its index.
    """

    used: int
    shift: Callable[[int], Instruction]
    masked: bool = False


def index_operands(instruction: Instruction, code: LoadedCode) -> RegisterIndexing:
    """Return the indexing of an instruction between s_set_gpr_idx_on and s_set_gpr_idx_off."""
    if not can_index(instruction):
        raise code.unknown("these operands with a register index", instruction)
    return RegisterIndexing(_USED, lambda m0: shift_registers(instruction, m0))


def make_indexed_step(
    instruction: Instruction, code: LoadedCode, indexing: RegisterIndexing, make: Callable[[Instruction], Step]
) -> Step:
    """Return the step of an instruction whose registers M0 selects. `make` checks the registers and returns a step."""
    steps: dict[int, tuple[Step, Registers]] = {}

    def get_step(m0: int) -> tuple[Step, Registers]:
        if m0 not in steps:
            try:
                shifted = indexing.shift(m0)
                steps[m0] = make(shifted), find_written_registers(shifted, code)
            except CodeObjectError as error:
                raise code.unknown("a register index beyond the registers of the kernel", instruction) from error
        return steps[m0]

    def run(group: WaveGroup, m0: int) -> None:
        step, written = get_step(m0)
        step(group)
        if group.batch.strict and group.pending:
            apply_pending_loads(group, written)

    get_step(0)  # an unknown form of the instruction is one with every index

    def execute(group: WaveGroup) -> None:
        values = group.s[M0] & np.uint32(indexing.used)
        runs = group.exec_mask.any(axis=1) if indexing.masked else np.ones(group.waves, np.bool_)
        if runs.all() and (values == values[0]).all():
            run(group, int(values[0]))
            return
        for value in np.unique(values[runs]):
            rows = np.flatnonzero(runs & (values == value))
            # Its pending loads stay those of the group: they come after the write, also with `turned`.
            part = group.take(rows)
            run(part, int(value))
            group.vgprs[:, rows], group.sgprs[rows], group.scc[rows] = part.vgprs, part.sgprs, part.scc
        group.update_exec_mask()

    return execute
