"""Mutations of one instruction: random changes, and removed barriers and waits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator.program import FaultStep, Program

SWAPS = (
    ("v_add_u32", "v_sub_u32"), ("v_lshlrev_b32", "v_lshrrev_b32"), ("v_and_b32", "v_or_b32"),
    ("v_or_b32", "v_xor_b32"), ("v_add_f32", "v_mul_f32"), ("v_lshl_or_b32", "v_lshl_add_u32"),
    ("v_and_or_b32", "v_or3_b32"), ("v_mul_lo_u32", "v_mul_hi_u32"), ("s_add_i32", "s_sub_i32"),
    ("s_lshl_b32", "s_lshr_b32"), ("s_and_b32", "s_or_b32"), ("s_mul_i32", "s_add_i32"),
    ("s_cmp_lt_i32", "s_cmp_ge_i32"), ("s_cmp_lg_u32", "s_cmp_eq_u32"), ("s_cbranch_scc0", "s_cbranch_scc1"),
    ("s_cbranch_vccz", "s_cbranch_vccnz"), ("v_cvt_f16_f32", "v_mov_b32"), ("s_min_i32", "s_max_i32"),
)  # fmt: skip
NOP = "s_nop 0"
# Waits for memory. Others, such as s_waitcnt_depctr, are for hazards that the emulator does not model.
WAIT = re.compile(r"s_waitcnt |s_waitcnt_vscnt|s_wait_(load|store|ds|km)cnt")


@dataclass(frozen=True)
class Mutation:
    """A changed line of a kernel's code."""

    line: DisassembledLine
    text: str

    def __str__(self) -> str:
        return f"{self.line.address:#x}: {self.line.text}  →  {self.text}"


def draw_mutations(
    lines: Sequence[DisassembledLine], count: int, seed: int, is_supported: Callable[[Mutation], bool]
) -> list[Mutation]:
    """Draw different random mutations. A larger `count` adds mutations after the same first ones.

    Only mutations that `is_supported` accepts count: a device rejects an unknown instruction without any trial.
    """
    rng = random.Random(seed)
    found: dict[str, Mutation] = {}
    for _ in range(1000 * count):  # a kernel may have fewer possible mutations than `count`
        if len(found) == count:
            break
        line = rng.choice(lines)
        change = rng.choice((swap_operation, change_register, change_constant, remove_instruction))
        text = change(line.text, rng)
        if text is not None and text != line.text:
            mutation = Mutation(line, text)
            if str(mutation) not in found and is_supported(mutation):
                found[str(mutation)] = mutation
    return list(found.values())


def is_supported_by(program: Program, mutation: Mutation) -> bool:
    """Whether the emulated device supports the changed instruction with the kernel's registers."""
    _, _, step = program.replace_instruction(mutation.line.address, mutation.text).translate_at(mutation.line.address)
    return not isinstance(step, FaultStep)


def swap_operation(text: str, _: random.Random) -> str | None:
    """Change the operation, and keep the operands."""
    for one, other in SWAPS:
        for name, replacement in ((one, other), (other, one)):
            if re.match(rf"{name}(?![a-z0-9_])|{name}_e(32|64)\b", text):
                return text.replace(name, replacement, 1)
    return None


def change_register(text: str, rng: random.Random) -> str | None:
    """Replace a source register by the one before or after it. The first operand is usually a destination."""
    name, _, operands = text.partition(" ")
    matches = [m for m in re.finditer(r"\b([vs])(\d+)\b", operands) if m.start() > operands.find(",") >= 0]
    if not matches or name.startswith(("s_waitcnt", "s_barrier")):
        return None
    match = rng.choice(matches)
    number = max(int(match[2]) + rng.choice((-1, 1)), 0)
    return f"{name} {operands[: match.start()]}{match[1]}{number}{operands[match.end() :]}"


def change_constant(text: str, rng: random.Random) -> str | None:
    """Change a constant by 1, or an offset by 16."""
    if text.startswith(("s_waitcnt", "s_nop", "s_cbranch", "s_branch", "s_barrier", "s_setprio", "v_mfma")):
        return None
    matches = [*re.finditer(r"(?<=offset:)(\d+)\b", text), *re.finditer(r"(?<=, )(0x[0-9a-f]+|\d+)(?=,|$)", text)]
    if not matches:
        return None
    match = rng.choice(matches)
    step = 16 if "offset:" in text[: match.start()] else 1
    return f"{text[: match.start()]}{int(match[0], 0) + step}{text[match.end() :]}"


def remove_instruction(text: str, _: random.Random) -> str | None:
    """Replace the instruction by one without effect."""
    if text.startswith(("s_nop", "s_wait", "s_barrier", "s_endpgm", "s_setprio")):
        return None  # `remove_synchronization` removes barriers and waits
    return NOP


def remove_synchronization(lines: Sequence[DisassembledLine]) -> list[Mutation]:
    """List mutations that each remove one barrier, one wait, or one of the counters that a wait is for."""
    found = []
    for line in lines:
        if line.text.startswith("s_barrier"):
            found.append(Mutation(line, NOP))
        elif WAIT.match(line.text):
            parts = [part for part in re.findall(r"\w+cnt\(\d+\)", line.text) if "exp" not in part]
            found.append(Mutation(line, NOP))
            found += [Mutation(line, f"s_waitcnt {part}") for part in parts if len(parts) > 1]
    return found
