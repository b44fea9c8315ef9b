"""Two vector instructions issued as one (VOPD): both read before either writes."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.alu.float_mode import SubnormalMode, make_mode_step
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.alu.packed import DOTS
from tilewright.emulator.alu.vector import find_vector_operation, plan_operation
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.isa.operation import Operation


def translate_dual(instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a dual instruction."""
    halves = [_read_half(half, code) for half in (instruction, instruction.other) if half is not None]
    kinds = [kind for _, operation in halves for kind in (*operation.sources, operation.result)]
    return make_mode_step(halves[0][0], kinds, lambda subnormal: _make_step(halves, subnormal))


def _read_half(instruction: Instruction, code: LoadedCode) -> tuple[InstructionContext, Operation]:
    name = normalize_name(instruction.mnemonic.replace("v_dual_", "v_"))
    site = InstructionContext(instruction, code, name)
    site.check_modifiers()
    operation = DOTS.get(name) or find_vector_operation(site)
    if operation is None or operation.second or not instruction.mnemonic.startswith("v_dual_"):
        raise site.unknown(f"the half {instruction.mnemonic} of a pair")
    return site, operation


def _make_step(halves: list[tuple[InstructionContext, Operation]], subnormal: SubnormalMode) -> Step:
    (first, second) = (plan_operation(site, operation, subnormal) for site, operation in halves)

    def execute(group: WaveGroup) -> None:
        # A move returns the register itself: copy it before the other half writes to it.
        one, other = np.array(first.compute(group)), np.array(second.compute(group))
        first.write(group, one)
        second.write(group, other)

    return execute
