"""Lower jumps, barriers, waits and accesses to the mode register."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from tilewright.emulator import control, waits
from tilewright.emulator.code import Code
from tilewright.emulator.control import Barrier, Call, End, Jump
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.native.handlers import NUMBERS
from tilewright.emulator.native.layout import ANY_NUMBER, QUEUES, Operand, Record, constant, operand, scalar
from tilewright.emulator.native.record import Tables, record

# Records whose `target` is an address until all addresses have indices.
JUMPS = frozenset(number for name, number in NUMBERS.items() if name.startswith("branch") or name == "call")
INDIRECT = frozenset((NUMBERS["set_pc"], NUMBERS["swap_pc"]))

_CONDITIONS = ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")
_BARRIERS = {"both": "barrier", "wait": "barrier_wait"}
_MODE = re.compile(r"hwreg\(HW_REG_MODE(?:, ?(\d+), ?(\d+))?\)")


def lower_control(instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    """Return the record of a control instruction; None for others and for those that only NumPy supports."""
    ending = control.ending(instruction, code)
    if ending is not None:
        return _ending(ending, instruction, code)
    step = control.translate(instruction, code)
    if step is None:
        return None
    if step is control.nothing:
        return record("nothing")
    if isinstance(step, waits.Wait):
        return _wait(step, code)
    return _other(instruction, code, tables)


def _ending(ending: control.Ending, instruction: Instruction, code: Code) -> Record | None:
    if isinstance(ending, End):
        return record("end")
    if isinstance(ending, Barrier):
        signal = "barrier_first" if ending.first else "barrier_signal"
        return record(_BARRIERS.get(ending.kind, signal))
    if isinstance(ending, Jump):
        if ending.condition is None:
            return record("branch", target=ending.target)
        condition = instruction.mnemonic.removeprefix("s_cbranch_")
        return record(f"branch_{condition}", target=ending.target) if condition in _CONDITIONS else None
    return _call(ending, code.base + instruction.following)


def _call(call: Call, back: int) -> Record:
    link = None if call.link is None else scalar(call.link)
    if call.register is None:
        return record("call", link, offset=back, target=call.target)
    return record("set_pc" if link is None else "swap_pc", link, [scalar(call.register)], offset=back)


def _wait(wait: waits.Wait, code: Code) -> Record:
    made = record("wait")
    for counter, count in wait.counts.items():
        number = counters_of(code.arch.name)[counter]
        made.wait[number] = min(count, made.wait[number], ANY_NUMBER)
    return made


def counters_of(arch: str) -> dict[str, int]:
    """Return the number of each counter of a GPU."""
    names = sorted(set(waits.counter_of(arch).values()))
    if len(names) > QUEUES:
        raise AssertionError(f"{arch} has {len(names)} counters, but the engine has {QUEUES}")
    return {name: number for number, name in enumerate(names)}


def queues_of(arch: str) -> dict[str, int]:
    """Return the counter number of each kind of access."""
    numbers = counters_of(arch)
    return {kind: numbers[counter] for kind, counter in waits.counter_of(arch).items()}


def capacities(arch: str) -> Any:
    """Return the largest value of each counter, by counter number."""
    numbers = counters_of(arch)
    made = (ctypes.c_uint8 * QUEUES)()
    for counter, most in waits.capacity_of(arch).items():
        made[numbers[counter]] = most
    return made


def _other(instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    name, operands = instruction.mnemonic, instruction.operands
    if name == "s_trap":
        return record("trap", detail=int(operands[0].value))
    if name == "s_getpc_b64":
        return record("get_pc", scalar(operands[0].index), offset=code.base + instruction.following)
    if name in ("s_memtime", "s_memrealtime"):
        return record("time", scalar(operands[0].index), queue=tables.queues["scalar"])
    return _mode_register(instruction)


def _mode_register(instruction: Instruction) -> Record | None:
    name, operands = instruction.mnemonic, instruction.operands
    if name == "s_getreg_b32":
        return _mode("get_mode", operands[1].name, scalar(operands[0].index), [])
    if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        source = operands[1]
        given = scalar(source.index) if source.kind == "s" else constant(int(source.value))
        return _mode("set_mode", operands[0].name, None, [given])
    if name in ("s_round_mode", "s_denorm_mode"):
        first = 0 if name == "s_round_mode" else 4
        return record("set_mode", None, [constant(int(operands[0].value))], detail=first, size=4)
    return None


def _mode(handler: str, register: str, out: Operand | None, sources: list[Operand]) -> Record | None:
    match = _MODE.fullmatch(register)
    if match is None:
        return None
    return record(handler, out or operand(0), sources, detail=int(match[1] or 0), size=int(match[2] or 32))
