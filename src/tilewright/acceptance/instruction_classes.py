"""Classes of instructions that may behave differently on a GPU and on the emulated device, and their use by kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.arch.spec import Arch
from tilewright.building.code_object import disassemble, read_functions, read_resources, select_op_kernels
from tilewright.building.disassembled import DisassembledInstruction
from tilewright.building.inspect import find_reachable
from tilewright.building.toolchain import Toolchain

# The possible effects of a wrong instruction: rounding changes the last bits of values, movement changes which value is
# where.
ROUNDING, MOVEMENT = "rounding", "movement"
_ENCODINGS = re.compile(r"_(?:e32|e64|sdwa)$")
_DPP = re.compile(r"_(?:e64_)?dpp$")


@dataclass(frozen=True, slots=True)
class InstructionClass:
    """A class of instructions: its name, the pattern of its mnemonics, and the possible effects of an error."""

    name: str
    pattern: re.Pattern[str]
    effects: tuple[str, ...]


def _make_class(name: str, pattern: str, *effects: str) -> InstructionClass:
    return InstructionClass(name, re.compile(pattern), effects)


# The first match decides. In order of suspicion: AMD's manuals leave more open about the first classes.
CLASSES = (
    _make_class("matrix", r"v_(?:mfma|smfmac|wmma|swmmac)_", ROUNDING, MOVEMENT),
    _make_class("8-bit conversion", r"v_cvt_\w*(?:fp8|bf8)", ROUNDING, MOVEMENT),
    _make_class("transcendental function", r"v_(?:s_)?(?:exp|log|rcp|rsq|sqrt|sin|cos)_", ROUNDING),
    _make_class("conversion", r"(?:v|s)_cvt_", ROUNDING),
    _make_class("atomic", r"\w+_atomic_|ds_\w*add_(?:rtn_)?(?:f|pk)", ROUNDING, MOVEMENT),
    _make_class(
        "cross-lane",
        r"\w+_dpp$|ds_(?:bpermute|permute|swizzle)|v_(?:permlane|readlane|readfirstlane|writelane|mov_b32_dpp)",
        MOVEMENT,
    ),
    _make_class("copy to LDS", r"(?:buffer|global)_load_\w*_lds$", MOVEMENT),
    _make_class("LDS", r"(?:ds|lds)_", MOVEMENT),
    _make_class("buffer load", r"t?buffer_load", MOVEMENT),
    _make_class("buffer store", r"t?buffer_store", MOVEMENT),
    _make_class("global load", r"(?:global|flat)_load", MOVEMENT),
    _make_class("global store", r"(?:global|flat)_store", MOVEMENT),
    _make_class("private memory", r"scratch_", MOVEMENT),
    _make_class("division step", r"v_div_", ROUNDING),
    _make_class("fused multiply-add", r"v_(?:pk_|dual_)?(?:fma|fmac|mad|mac|dot\d)\w*_(?:f|bf|mix)", ROUNDING),
    _make_class(
        "float arithmetic",
        r"v_(?:pk_|dual_)?(?:add|sub|mul|max|min|ldexp|rndne|floor|ceil|trunc|fract|med3)\w*_f",
        ROUNDING,
    ),
    _make_class("packing", r"v_(?:perm_b32|pack_|alignb|bfi_|bfe_|pk_)", MOVEMENT),
    _make_class("comparison", r"v_(?:cmpx?|cndmask|dual_cndmask)_?", MOVEMENT),
    _make_class("accumulator move", r"v_acc(?:vgpr|_)", MOVEMENT),
    _make_class("integer arithmetic", r"v_", MOVEMENT),
    _make_class("synchronisation", r"s_(?:barrier|waitcnt|wait_)", MOVEMENT),
    _make_class("scalar load", r"s_(?:buffer_)?load_", MOVEMENT),
    _make_class("branch", r"s_c?branch|s_setpc|s_swappc|s_call", MOVEMENT),
    _make_class("scalar arithmetic", r"s_", MOVEMENT),
    _make_class("other", r"", MOVEMENT),
)
CLASS_ORDER: Mapping[str, int] = {each.name: place for place, each in enumerate(CLASSES)}
EFFECTS: Mapping[str, tuple[str, ...]] = {each.name: each.effects for each in CLASSES}
# They have no result that could differ.
_WITHOUT_RESULT = re.compile(r"s_(?:nop|endpgm|code_end|clause|delay_alu|sleep|setprio|sched_barrier|inst_prefetch)")
# Their sums depend on the order of the additions, which a GPU chooses anew in every run.
_UNORDERED = re.compile(r"\w+_atomic_(?:pk_)?(?:add|fadd|sub)_(?:no_rtn_)?(?:rtn_)?(?:f|bf)")


def classify_instruction(mnemonic: str) -> str:
    """The class of a mnemonic without its encoding."""
    return next(each.name for each in CLASSES if each.pattern.match(mnemonic))


def normalize_mnemonic(instruction: DisassembledInstruction) -> tuple[str, ...]:
    """The mnemonics of an instruction without encodings, but with `_dpp` and `_lds`, which move data between lanes and
    to LDS. A dual instruction has two."""
    found = []
    for mnemonic in instruction.mnemonics:
        plain = f"{_DPP.sub('', mnemonic)}_dpp" if _DPP.search(mnemonic) else _ENCODINGS.sub("", mnemonic)
        to_lds = plain.startswith(("buffer_load", "global_load")) and " lds" in f" {instruction.text.partition(' ')[2]}"
        found.append(f"{plain}_lds" if to_lds and not plain.endswith("_lds") else plain)
    return tuple(found)


def list_mnemonics(instructions: Iterable[DisassembledInstruction]) -> frozenset[str]:
    """The normalized mnemonics of a code, without those that have no result."""
    names = {name for each in instructions for name in normalize_mnemonic(each)}
    return frozenset(name for name in names if not _WITHOUT_RESULT.match(name))


def adds_in_any_order(mnemonics: Iterable[str]) -> bool:
    """Whether code with these mnemonics adds floating-point numbers with atomics."""
    return any(_UNORDERED.match(name) for name in mnemonics)


def read_mnemonics(path: Path, arch: Arch, toolchain: Toolchain) -> frozenset[str]:
    """The mnemonics of the kernels in a code object that compute the op, and of the functions that they call."""
    functions = read_functions(path, toolchain)
    code = disassemble(path, arch, toolchain)
    found: set[str] = set()
    for each in select_op_kernels(read_resources(path, arch, toolchain)):
        for part in find_reachable(each.name, code, functions):
            found |= list_mnemonics(code[part])
    return frozenset(found)
