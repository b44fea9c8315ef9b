"""Two vector instructions issued as one (VOPD): both read before either writes."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.alu.float_mode import Subnormal, step_by_mode
from tilewright.emulator.alu.packed import DOTS
from tilewright.emulator.alu.site import Site
from tilewright.emulator.alu.vector import plan, vector_operation
from tilewright.emulator.code import Code
from tilewright.emulator.group import Group, Step
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.isa.names import canonical
from tilewright.emulator.isa.operation import Operation


def translate_dual(instruction: Instruction, code: Code) -> Step:
    """Return the step of a dual instruction."""
    halves = [_half(half, code) for half in (instruction, instruction.other) if half is not None]
    kinds = [kind for _, operation in halves for kind in (*operation.sources, operation.result)]
    return step_by_mode(halves[0][0], kinds, lambda subnormal: _step(halves, subnormal))


def _half(instruction: Instruction, code: Code) -> tuple[Site, Operation]:
    name = canonical(instruction.mnemonic.replace("v_dual_", "v_"))
    site = Site(instruction, code, name)
    site.check()
    operation = DOTS.get(name) or vector_operation(site)
    if operation is None or operation.second or not instruction.mnemonic.startswith("v_dual_"):
        raise site.unknown(f"the half {instruction.mnemonic} of a pair")
    return site, operation


def _step(halves: list[tuple[Site, Operation]], subnormal: Subnormal) -> Step:
    (first, second) = (plan(site, operation, subnormal) for site, operation in halves)

    def step(group: Group) -> None:
        # A move returns the register itself: copy it before the other half writes to it.
        one, other = np.array(first.compute(group)), np.array(second.compute(group))
        first.write(group, one)
        second.write(group, other)

    return step
