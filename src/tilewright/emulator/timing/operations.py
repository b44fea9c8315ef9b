"""Instructions as the timeline sees them: their unit, the clocks that they take, and what they wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.building.disassembled import DisassembledLine
from tilewright.building.instruction_mix import classify
from tilewright.emulator import waitcnt
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.disassembly import parse_line
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.profile import ProfiledInstruction
from tilewright.emulator.timing.machine import TimingMachine

# Units of a SIMD. VECTOR also issues matrix instructions, which then occupy the matrix pipe. INTERNAL instructions
# (waits, idling, hints) take a wave's time, but no unit. MEMORY and LDS are issued by the SIMD and then queue in pipes
# that the whole compute unit shares.
VECTOR, SCALAR, SCALAR_MEMORY, LDS, MEMORY, BRANCH, INTERNAL = range(7)
UNITS = 7
_UNIT_OF_CLASS = {
    "matrix": VECTOR, "valu": VECTOR, "salu": SCALAR, "smem": SCALAR_MEMORY, "lds": LDS, "global": MEMORY,
    "wait": INTERNAL, "barrier": INTERNAL, "branch": BRANCH, "other": INTERNAL,
}  # fmt: skip

# LLVM's WriteTrans32 and WriteTrans64. Conversions have the same latency there, and count as other instructions here.
_SLOW = re.compile(r"v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos)(_iflag)?_(f16|f32|f64|bf16)")
_IDLE = re.compile(r"s_nop|v_nop")
_STORES = re.compile(r"(buffer|tbuffer|global|flat|scratch)_store|.*_(wb|wbl2|wbinv\w*)$")
_ADDRESSES_PER_CLOCK = 16  # lanes whose addresses a unit's vector cache takes per clock [isa]: 4 clocks for 64 lanes


@dataclass(frozen=True, slots=True)
class TimedOperation:
    """One instruction. Clocks are those of `TimingMachine`; a field is 0 or empty where it does not apply."""

    address: int
    unit: int
    occupancy: int  # of its SIMD's unit
    step: int  # until the same wave can issue its next instruction
    matrix: int = 0  # occupancy of the matrix pipe
    pipe: int = 0  # occupancy of the compute unit's LDS or memory pipe
    latency: int = 0  # from the end of that to the data
    counter: str = ""  # counts the access until it is complete
    capacity: int = 0  # of that counter
    waits: tuple[tuple[str, int], ...] = ()  # counters, and the most that each may be
    reads: tuple[int, ...] = ()  # registers whose results may come late
    writes: tuple[int, ...] = ()
    result: int = 0  # from issue until another instruction can read the registers
    accumulates: frozenset[int] = frozenset()  # registers of C, which the next matrix instruction gets earlier
    barrier: bool = False
    end: bool = False


def make_operations(instructions: Iterable[ProfiledInstruction], machine: TimingMachine) -> dict[int, TimedOperation]:
    """Return the operations of a profile's instructions by address."""
    code = LoadedCode(machine.arch, "", machine.arch.wave_size, 0, 0)
    return {each.address: make_operation(each, machine, code) for each in instructions}


def make_operation(profiled: ProfiledInstruction, machine: TimingMachine, code: LoadedCode) -> TimedOperation:
    """Return the operation of an instruction. Bytes, cache lines and bank conflicts are the means of its executions."""
    instruction = parse_line(DisassembledLine(profiled.address, profiled.text, (0,)))
    kind = classify(instruction.mnemonic)
    issue = machine.issue
    unit = _UNIT_OF_CLASS[kind]
    common: dict[str, Any] = {"address": profiled.address, "unit": unit, "reads": _list_reads(instruction)}
    if kind == "matrix":
        return _make_matrix(instruction, machine, common)
    if kind == "valu":
        slow = machine.slow_vector if _SLOW.match(instruction.mnemonic) else 0
        result = max(machine.vector_result, slow)
        late = _list_written(instruction) if result > issue else ()
        return TimedOperation(**common, occupancy=max(issue, slow), step=issue, writes=late, result=result)
    if kind == "salu":
        late = _list_written(instruction) if machine.scalar_result > issue else ()
        return TimedOperation(**common, occupancy=issue, step=issue, writes=late, result=machine.scalar_result)
    if kind in ("lds", "global", "smem"):
        return _make_access(profiled, instruction, kind, machine, common)
    return _make_control(instruction, kind, machine, code, {**common, "reads": ()})


def _make_control(
    instruction: Instruction, kind: str, machine: TimingMachine, code: LoadedCode, common: dict[str, Any]
) -> TimedOperation:
    issue, name = machine.issue, instruction.mnemonic
    if kind == "wait":
        wait = waitcnt.translate(instruction, code)
        counts = () if wait is None else tuple(wait.counts.items())
        return TimedOperation(**common, occupancy=0, step=issue, waits=counts)
    if kind == "branch":
        return TimedOperation(**common, occupancy=issue, step=issue)
    idle = _count_idle(instruction) if _IDLE.fullmatch(name) else 1
    barrier = name in ("s_barrier", "s_barrier_wait")
    return TimedOperation(**common, occupancy=0, step=issue * idle, barrier=barrier, end=name.startswith("s_endpgm"))


def _make_matrix(instruction: Instruction, machine: TimingMachine, common: dict[str, Any]) -> TimedOperation:
    cbsz = instruction.modifiers.get("cbsz", 0)
    shape = machine.find_shape(instruction.mnemonic, cbsz if isinstance(cbsz, int) else 0)
    clocks = machine.count_matrix_clocks(instruction.mnemonic, shape)
    written = _list_registers(instruction.operands[0])
    return TimedOperation(
        **common,
        occupancy=machine.issue,
        step=machine.issue,
        matrix=clocks,
        writes=written,
        result=clocks + machine.matrix_result,
        accumulates=frozenset(_list_registers(instruction.operands[3])),
    )


def _make_access(
    profiled: ProfiledInstruction, instruction: Instruction, kind: str, machine: TimingMachine, common: dict[str, Any]
) -> TimedOperation:
    arch, counts = machine.arch, profiled.counts
    runs = max(counts.executed, 1)
    store = bool(_STORES.match(instruction.mnemonic))
    if kind == "smem":
        pipe, latency = 0, machine.scalar_latency
    elif kind == "lds":
        moved = (counts.lds_read_bytes + counts.lds_write_bytes) / runs
        pipe = _round_up(moved / machine.lds_bytes + counts.bank_conflict_cycles / runs)
        latency = machine.lds_latency
    else:
        moved = (counts.global_read_bytes + arch.memory.store_cost * counts.global_write_bytes) / runs
        lanes = arch.wave_size / _ADDRESSES_PER_CLOCK
        pipe = _round_up(max(lanes, moved / machine.memory_bytes, counts.cache_lines / runs))
        latency = machine.memory_latency
    access = {"smem": "scalar", "lds": "lds", "global": "store" if store else "load"}[kind]
    counter = waitcnt.find_counters(arch.name)[access]
    return TimedOperation(
        **common,
        occupancy=machine.issue,
        step=machine.issue,
        pipe=pipe,
        latency=latency,
        counter=counter,
        capacity=waitcnt.find_capacities(arch.name)[counter],
    )


def _round_up(clocks: float) -> int:
    return max(-int(-clocks // 1), 1)


def _count_idle(instruction: Instruction) -> int:
    """Return the number of issue slots that s_nop takes: its operand and one more."""
    operands = instruction.operands
    return 1 + int(operands[0].value) if operands and operands[0].kind == "const" else 1


# Numbers of registers in a wave: vector registers, accumulation registers and scalar registers.
_FIRST: Mapping[str, int] = {"v": 0, "a": 512, "s": 1024}


def _list_registers(operand: Operand) -> tuple[int, ...]:
    if operand.kind not in _FIRST:
        return ()
    first = _FIRST[operand.kind] + operand.index
    return tuple(range(first, first + operand.count))


def _list_reads(instruction: Instruction) -> tuple[int, ...]:
    """List all registers that it names: a write must also come after a late result of the same register."""
    halves = (instruction, instruction.other) if instruction.other else (instruction,)
    return tuple(dict.fromkeys(each for half in halves for item in half.operands for each in _list_registers(item)))


def _list_written(instruction: Instruction) -> tuple[int, ...]:
    halves = (instruction, instruction.other) if instruction.other else (instruction,)
    return tuple(each for half in halves for item in half.operands[:1] for each in _list_registers(item))
