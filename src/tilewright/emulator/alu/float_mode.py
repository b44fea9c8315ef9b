"""Steps that depend on the MODE register: rounding, subnormal numbers, output modifiers, overflow of f16 and fp8.

MODE has two bits for f32 (4 and 5), and two for f16 and f64 (6 and 7). The lower bit of each keeps subnormal sources,
the upper bit subnormal results; a cleared bit replaces them by zero. Bits 0 to 3 control rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.group import Step, WaveGroup

IEEE = 1 << 9  # gfx12 has no such bit
FP16_OVFL = 1 << 23  # numbers too large for f16, fp8 or bf8 become the largest number
_ROUNDING = 0xF
_FIRST_BIT = {"f32": 4, "f16": 6, "f64": 6}


@dataclass(frozen=True, slots=True)
class FloatMode:
    """The float types whose subnormal sources, and results, become zero, and the other settings.

    Output modifiers have an effect only on results whose subnormals become zero, and not in IEEE mode (ISA manuals of
    CDNA3 and RDNA3, "Output modifiers"; so does gfx1100).
    """

    sources: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    ieee: bool = True
    limits: bool = False  # FP16_OVFL

    def scales(self, kind: str) -> bool:
        """Whether output modifiers have an effect on a result."""
        return kind in self.results and not self.ieee


KEPT = FloatMode()


def _read_mode(mode: int) -> FloatMode:
    return FloatMode(
        frozenset(kind for kind, bit in _FIRST_BIT.items() if not mode >> bit & 1),
        frozenset(kind for kind, bit in _FIRST_BIT.items() if not mode >> bit & 2),
        bool(mode & IEEE),
        bool(mode & FP16_OVFL),
    )


def make_mode_step(site: InstructionContext, kinds: Iterable[str], make: Callable[[FloatMode], Step]) -> Step:
    """Return a step that depends on the group's mode. The usual mode, which keeps subnormals, costs nothing extra."""
    floats = {kind.removeprefix("old ") for kind in kinds} & _FIRST_BIT.keys()
    kept = make(KEPT)
    if not floats:
        return kept
    usual = 0
    for kind in floats:
        usual |= 3 << _FIRST_BIT[kind]
    relevant = usual | _ROUNDING | FP16_OVFL | IEEE
    others: dict[int, Step] = {}

    def make_other(mode: int) -> Step:
        if mode & _ROUNDING:
            raise site.unknown(f"the rounding mode {mode & _ROUNDING:#x} for {site.instruction.mnemonic}")
        return make(_read_mode(mode | 0xF0 & ~relevant))

    def execute(group: WaveGroup) -> None:
        mode = group.float_mode & relevant
        if mode & ~IEEE == usual:  # without flushed results, IEEE mode makes no difference
            kept(group)
            return
        if mode not in others:
            others[mode] = make_other(mode)
        others[mode](group)

    return execute
