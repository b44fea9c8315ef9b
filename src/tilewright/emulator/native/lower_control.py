"""Lower jumps, barriers, waits and accesses to the mode register."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from tilewright.emulator import control, waitcnt
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.control import Barrier, Call, End, GridBarrier, Jump, SkipVector
from tilewright.emulator.indexed_registers import read_index_change
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.native.handlers import NUMBERS
from tilewright.emulator.native.layout import (
    ANY_NUMBER,
    QUEUES,
    InstructionRecord,
    LoweringTables,
    OperandRecord,
    make_constant,
    make_operand,
    make_record,
    make_scalar,
    make_vector,
)
from tilewright.emulator.native.memory_scopes import find_wait_scope

# Records whose `target` is an address until all addresses have indices.
JUMPS = frozenset(number for name, number in NUMBERS.items() if name.startswith("branch") or name == "call")
INDIRECT = frozenset((NUMBERS["set_pc"], NUMBERS["swap_pc"]))

_CONDITIONS = ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")
_BARRIERS = {"both": "barrier", "wait": "barrier_wait"}
_MODE = re.compile(r"hwreg\(HW_REG_(?:WAVE_)?MODE(?:, ?(\d+), ?(\d+))?\)")


def lower_control(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of a control instruction; None for others and for those that only NumPy supports."""
    ending = control.find_ending(instruction, code)
    if ending is not None:
        return _lower_ending(ending, instruction, code)
    step = control.translate(instruction, code)
    if step is None:
        return None
    if step is control.do_nothing:
        return make_record("nothing")
    if isinstance(step, waitcnt.Wait):
        return _lower_wait(step, code)
    return _lower_other(instruction, code, tables)


def _lower_ending(ending: control.Ending, instruction: Instruction, code: LoadedCode) -> InstructionRecord | None:
    if isinstance(ending, End | SkipVector):
        sources = instruction.operands if isinstance(ending, SkipVector) else ()
        return make_record("set_skip" if sources else "end", None, [_make_uniform(operand) for operand in sources])
    if isinstance(ending, Barrier):
        signal = "barrier_first" if ending.first else "barrier_signal"
        return make_record(_BARRIERS.get(ending.kind, signal))
    if isinstance(ending, GridBarrier):
        return make_record("grid_barrier", None, [make_vector(ending.register)])
    if isinstance(ending, Jump):
        if ending.condition is None:
            return make_record("branch", target=ending.target)
        condition = instruction.mnemonic.removeprefix("s_cbranch_")
        return make_record(f"branch_{condition}", target=ending.target) if condition in _CONDITIONS else None
    return _lower_call(ending, code.base + instruction.next_address)


def _make_uniform(operand: Operand) -> OperandRecord:
    return make_scalar(operand.index) if operand.kind == "s" else make_constant(int(operand.value))


def _lower_call(call: Call, back: int) -> InstructionRecord:
    link = None if call.link is None else make_scalar(call.link)
    if call.register is None:
        return make_record("call", link, offset=back, target=call.target)
    return make_record("set_pc" if link is None else "swap_pc", link, [make_scalar(call.register)], offset=back)


def _lower_wait(wait: waitcnt.Wait, code: LoadedCode) -> InstructionRecord:
    made = make_record("wait")
    for counter, count in wait.counts.items():
        number = list_counter_numbers(code.arch.name)[counter]
        made.wait[number] = min(count, made.wait[number], ANY_NUMBER)
    made.scope = find_wait_scope(wait.counts, code.arch.name)
    return made


def list_counter_numbers(arch: str) -> dict[str, int]:
    """Return the number of each counter of a GPU."""
    names = sorted(set(waitcnt.find_counters(arch).values()))
    if len(names) > QUEUES:
        raise AssertionError(f"{arch} has {len(names)} counters, but the engine has {QUEUES}")
    return {name: number for number, name in enumerate(names)}


def list_queue_numbers(arch: str) -> dict[str, int]:
    """Return the counter number of each kind of access."""
    numbers = list_counter_numbers(arch)
    return {kind: numbers[counter] for kind, counter in waitcnt.find_counters(arch).items()}


def make_capacities(arch: str) -> Any:
    """Return the largest value of each counter, by counter number."""
    numbers = list_counter_numbers(arch)
    made = (ctypes.c_uint8 * QUEUES)()
    for counter, most in waitcnt.find_capacities(arch).items():
        made[numbers[counter]] = most
    return made


def _lower_other(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    name, operands = instruction.mnemonic, instruction.operands
    if name == "s_trap":
        return make_record("trap", detail=int(operands[0].value))
    if name == "s_getpc_b64":
        return make_record("get_pc", make_scalar(operands[0].index), offset=code.base + instruction.next_address)
    if control.reads_clock(instruction):
        return make_record("time", make_scalar(operands[0].index), queue=tables.queues["scalar"])
    change = read_index_change(instruction, code)
    if change is not None:
        source, replaced, fixed = change
        index = make_constant(0) if source is None else _make_uniform(source)
        return make_record("set_index", None, [index], size=replaced, detail=fixed)
    return _lower_mode_register(instruction)


def _lower_mode_register(instruction: Instruction) -> InstructionRecord | None:
    name, operands = instruction.mnemonic, instruction.operands
    if name == "s_getreg_b32":
        return _make_mode_record("get_mode", operands[1].name, make_scalar(operands[0].index), [])
    if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        source = operands[1]
        given = make_scalar(source.index) if source.kind == "s" else make_constant(int(source.value))
        return _make_mode_record("set_mode", operands[0].name, None, [given])
    if name in ("s_round_mode", "s_denorm_mode"):
        first = 0 if name == "s_round_mode" else 4
        return make_record("set_mode", None, [make_constant(int(operands[0].value))], detail=first, size=4)
    return None


def _make_mode_record(
    handler: str, register: str, out: OperandRecord | None, sources: list[OperandRecord]
) -> InstructionRecord | None:
    match = _MODE.fullmatch(register)
    if match is None:
        return None
    return make_record(handler, out or make_operand(0), sources, detail=int(match[1] or 0), size=int(match[2] or 32))
