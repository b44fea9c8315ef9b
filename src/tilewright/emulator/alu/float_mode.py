"""Steps that depend on the floating-point mode: rounding and the handling of subnormal numbers.

FLOAT_MODE has two bits for f32 (4 and 5), and two for f16 and f64 (6 and 7). The lower bit of each keeps subnormal
sources, the upper bit subnormal results; a cleared bit replaces them by zero. Bits 0 to 3 control rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.group import Step, WaveGroup

_ROUNDING = 0xF
_FIRST_BIT = {"f32": 4, "f16": 6, "f64": 6}


@dataclass(frozen=True, slots=True)
class SubnormalMode:
    """The float types whose subnormal sources, and results, become zero."""

    sources: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()


KEPT = SubnormalMode()


def _to_subnormal_mode(mode: int) -> SubnormalMode:
    return SubnormalMode(
        frozenset(kind for kind, bit in _FIRST_BIT.items() if not mode >> bit & 1),
        frozenset(kind for kind, bit in _FIRST_BIT.items() if not mode >> bit & 2),
    )


def make_mode_step(site: InstructionContext, kinds: Iterable[str], make: Callable[[SubnormalMode], Step]) -> Step:
    """Return a step that depends on the group's mode. The usual mode, which keeps subnormals, costs nothing extra."""
    floats = {kind.removeprefix("old ") for kind in kinds} & _FIRST_BIT.keys()
    kept = make(KEPT)
    if not floats:
        return kept
    usual = 0
    for kind in floats:
        usual |= 3 << _FIRST_BIT[kind]
    relevant = usual | _ROUNDING
    others: dict[int, Step] = {}

    def make_other(mode: int) -> Step:
        if mode & _ROUNDING:
            raise site.unknown(f"the rounding mode {mode & _ROUNDING:#x} for {site.instruction.mnemonic}")
        return make(_to_subnormal_mode(mode | ~relevant))

    def execute(group: WaveGroup) -> None:
        mode = group.float_mode & relevant
        if mode == usual:
            kept(group)
            return
        if mode not in others:
            others[mode] = make_other(mode)
        others[mode](group)

    return execute
