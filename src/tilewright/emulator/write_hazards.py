"""Write hazards: registers that are written while a load into them is pending.

A load may arrive at any time before its wait. If another instruction writes the register before the wait, the load may
arrive right after and overwrite that value. Strict mode does this, which exposes the missing wait. With `turned` the
load arrives right before the write, so that the new value stays: this exposes values that were computed from the
register contents before the load. A load that arrives later would hide them where the computation does not change the
value.
"""

from __future__ import annotations

from tilewright.building.instruction_mix import classify
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Registers, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand

NONE: Registers = frozenset()

_COMPUTES = ("valu", "salu", "matrix")
# Arithmetic instructions that write none of their operands.
_READ_ONLY = ("s_cmp", "s_bitcmp", "s_nop", "s_set", "s_cbranch")
# Both operands are exchanged.
_SWAPS = ("v_swap", "v_permlane16_swap", "v_permlane32_swap")


def find_written_registers(instruction: Instruction, code: LoadedCode) -> Registers:
    """Return the registers that an instruction writes at once. Loads have none: they write when they arrive."""
    halves = (instruction, instruction.other) if instruction.other else (instruction,)
    return NONE.union(*(_find_written(half, code) for half in halves))


def _find_written(instruction: Instruction, code: LoadedCode) -> Registers:
    targets = list_destinations(instruction)
    return frozenset(register for target in targets for register in _list_registers(target, code))


def list_destinations(instruction: Instruction) -> list[Operand]:
    """Return the operands that one instruction, not a dual one, writes at once."""
    name = instruction.mnemonic
    if classify(name) not in _COMPUTES or name.startswith(_READ_ONLY):
        return []
    targets = list(instruction.operands[:1])
    second = instruction.operands[1:2]
    if name.startswith(_SWAPS) or (name.startswith("v_") and second and second[0].kind == "s" and _has_carry(name)):
        targets += second
    return targets


def _has_carry(name: str) -> bool:
    """Whether the second operand is a second destination."""
    return "_co_" in name or name.startswith(("v_mad_u64_u32", "v_mad_i64_i32", "v_div_scale"))


def _list_registers(operand: Operand, code: LoadedCode) -> list[tuple[str, int]]:
    if operand.kind in ("v", "a"):
        first = code.get_register(operand)
        return [("v", first + k) for k in range(operand.count)]
    return [("s", operand.index + k) for k in range(operand.count)] if operand.kind == "s" else []


def apply_pending_loads(group: WaveGroup, changed: Registers) -> None:
    """Apply the pending loads whose registers were just written. They stay in their counters until a wait."""
    for queue in group.pending.values():
        for at, effect in enumerate(queue):
            if effect.registers.isdisjoint(changed):
                continue
            if group.batch.turned and effect.overtaken is not None:
                queue[at] = effect.overtaken(group, changed)
            else:
                effect.commit(group)
