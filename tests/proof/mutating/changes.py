"""Changes of one instruction: random ones, and barriers and waits that are taken away."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.building.code_object import DisassembledLine
from tilewright.emulator.program import FaultStep, Program

SWAPS = (
    ("v_add_u32", "v_sub_u32"), ("v_lshlrev_b32", "v_lshrrev_b32"), ("v_and_b32", "v_or_b32"),
    ("v_or_b32", "v_xor_b32"), ("v_add_f32", "v_mul_f32"), ("v_lshl_or_b32", "v_lshl_add_u32"),
    ("v_and_or_b32", "v_or3_b32"), ("v_mul_lo_u32", "v_mul_hi_u32"), ("s_add_i32", "s_sub_i32"),
    ("s_lshl_b32", "s_lshr_b32"), ("s_and_b32", "s_or_b32"), ("s_mul_i32", "s_add_i32"),
    ("s_cmp_lt_i32", "s_cmp_ge_i32"), ("s_cmp_lg_u32", "s_cmp_eq_u32"), ("s_cbranch_scc0", "s_cbranch_scc1"),
    ("s_cbranch_vccz", "s_cbranch_vccnz"), ("v_cvt_f16_f32", "v_mov_b32"), ("s_min_i32", "s_max_i32"),
)  # fmt: skip
NOTHING = "s_nop 0"
# Waits for memory; others, such as s_waitcnt_depctr, are for hazards that are not modelled.
WAIT = re.compile(r"s_waitcnt |s_waitcnt_vscnt|s_wait_(load|store|ds|km)cnt")


@dataclass(frozen=True)
class Mutation:
    """A changed line of a kernel's code."""

    line: DisassembledLine
    text: str

    def __str__(self) -> str:
        return f"{self.line.address:#x}: {self.line.text}  →  {self.text}"


def random_mutations(
    lines: Sequence[DisassembledLine], count: int, seed: int, is_known: Callable[[Mutation], bool]
) -> list[Mutation]:
    """Changes of instructions chosen at random, each another one. The first of them do not depend on `count`.

    Only changes that `is_known` takes: an instruction that no device knows says nothing about what notices errors.
    """
    rng = random.Random(seed)
    found: dict[str, Mutation] = {}
    for _ in range(1000 * count):  # a kernel may have fewer changes than are asked for
        if len(found) == count:
            break
        line = rng.choice(lines)
        change = rng.choice((swapped, other_register, other_number, removed))
        text = change(line.text, rng)
        if text is not None and text != line.text:
            mutation = Mutation(line, text)
            if str(mutation) not in found and is_known(mutation):
                found[str(mutation)] = mutation
    return list(found.values())


def is_known_in(program: Program, mutation: Mutation) -> bool:
    """Whether the emulated device knows the changed instruction, with registers that the kernel has."""
    _, _, step = program.replace_instruction(mutation.line.address, mutation.text).translate_at(mutation.line.address)
    return not isinstance(step, FaultStep)


def swapped(text: str, _: random.Random) -> str | None:
    """Another operation on the same operands."""
    for one, other in SWAPS:
        for name, instead in ((one, other), (other, one)):
            if re.match(rf"{name}(?![a-z0-9_])|{name}_e(32|64)\b", text):
                return text.replace(name, instead, 1)
    return None


def other_register(text: str, rng: random.Random) -> str | None:
    """A source register with a number one lower or higher. The first operand is mostly a destination."""
    name, _, operands = text.partition(" ")
    places = [m for m in re.finditer(r"\b([vs])(\d+)\b", operands) if m.start() > operands.find(",") >= 0]
    if not places or name.startswith(("s_waitcnt", "s_barrier")):
        return None
    place = rng.choice(places)
    number = max(int(place[2]) + rng.choice((-1, 1)), 0)
    return f"{name} {operands[: place.start()]}{place[1]}{number}{operands[place.end() :]}"


def other_number(text: str, rng: random.Random) -> str | None:
    """A constant or an offset that is a little off."""
    if text.startswith(("s_waitcnt", "s_nop", "s_cbranch", "s_branch", "s_barrier", "s_setprio", "v_mfma")):
        return None
    places = [*re.finditer(r"(?<=offset:)(\d+)\b", text), *re.finditer(r"(?<=, )(0x[0-9a-f]+|\d+)(?=,|$)", text)]
    if not places:
        return None
    place = rng.choice(places)
    step = 16 if "offset:" in text[: place.start()] else 1
    return f"{text[: place.start()]}{int(place[0], 0) + step}{text[place.end() :]}"


def removed(text: str, _: random.Random) -> str | None:
    """No instruction at all."""
    if text.startswith(("s_nop", "s_wait", "s_barrier", "s_endpgm", "s_setprio")):
        return None  # the others are asked about by themselves
    return NOTHING


def synchronisation(lines: Sequence[DisassembledLine]) -> list[Mutation]:
    """Every barrier and every wait taken away, one at a time; of a wait for two counters each by itself, too."""
    found = []
    for line in lines:
        if line.text.startswith("s_barrier"):
            found.append(Mutation(line, NOTHING))
        elif WAIT.match(line.text):
            parts = [part for part in re.findall(r"\w+cnt\(\d+\)", line.text) if "exp" not in part]
            found.append(Mutation(line, NOTHING))
            found += [Mutation(line, f"s_waitcnt {part}") for part in parts if len(parts) > 1]
    return found
