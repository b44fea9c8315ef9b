"""Instructions that access memory and LDS."""

from __future__ import annotations

from tilewright.emulator.access.buffer import translate_buffer
from tilewright.emulator.access.effects import reserve_counter
from tilewright.emulator.access.flat import translate_flat
from tilewright.emulator.access.global_memory import translate_global, translate_scratch
from tilewright.emulator.access.lds import translate_lds
from tilewright.emulator.access.operands import CACHE_POLICY, check_modifiers
from tilewright.emulator.access.scalar import translate_scalar
from tilewright.emulator.access.scalar_writes import translate_scalar_write
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.isa.names import normalize_name

_FAMILIES = {
    "buffer_": translate_buffer,
    "global_": translate_global,
    "flat_": translate_flat,
    "scratch_": translate_scratch,
    "ds_": translate_lds,
}
# They write back or invalidate caches, which are not emulated. LLVM's wait counting does not count buffer_…; on gfx12
# the load counter counts global_inv, and the store counter the others.
CACHE_CONTROL = frozenset((
    "buffer_wbl2", "buffer_inv", "buffer_invl2", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_gl0_inv",
    "buffer_gl1_inv",
))  # fmt: skip
COUNTED_CACHE_CONTROL = {"global_inv": "load", "global_wb": "store", "global_wbinv": "store"}


def translate(instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of a memory instruction; None for other instructions."""
    name = normalize_name(instruction.mnemonic)
    if name in CACHE_CONTROL or name in COUNTED_CACHE_CONTROL:
        return _translate_cache_control(name, instruction, code)
    for prefix, build in _FAMILIES.items():
        if name.startswith(prefix):
            return build(name, instruction, code)
    return translate_scalar(name, instruction, code) or translate_scalar_write(name, instruction, code)


def _translate_cache_control(name: str, instruction: Instruction, code: LoadedCode) -> Step:
    check_modifiers(instruction, code, CACHE_POLICY)
    if instruction.operands:
        raise code.unknown("this form of its operands", instruction)
    kind = COUNTED_CACHE_CONTROL.get(name)

    def execute(group: WaveGroup) -> None:
        if kind is not None:
            reserve_counter(group, kind)

    return execute
