"""Read the operands and modifiers of memory instructions. Unknown ones raise a fault."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.instruction import Instruction, Operand

# Cache policies. No cache is emulated, so they have no effect, except those that make an atomic return the old value:
# see `needs_old_value`.
CACHE_POLICY = frozenset({"glc", "slc", "dlc", "sc0", "sc1", "nt", "scc", "th", "scope"})

Scalars = Callable[[WaveGroup], NDArray[np.int64]]  # one value per wave


def check_modifiers(instruction: Instruction, code: LoadedCode, known: Collection[str]) -> None:
    """Raise for a modifier that is set but not in `known`."""
    for name, value in instruction.modifiers.items():
        if name not in known and value is not False:
            raise code.unknown(f"modifier {name!r}", instruction)


def get_number(instruction: Instruction, code: LoadedCode, name: str) -> int:
    """Return the number of a modifier; 0 if it is missing."""
    value = instruction.modifiers.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise code.unknown(f"{name}:{value}", instruction)
    return value


def needs_old_value(instruction: Instruction, code: LoadedCode) -> bool:
    """Whether an atomic instruction returns the old value."""
    modifiers = instruction.modifiers
    policy = modifiers.get("th", "")
    if isinstance(policy, str) and policy.startswith("TH_ATOMIC"):
        return "RETURN" in policy
    if policy:
        raise code.unknown(f"th:{policy}", instruction)
    return bool(modifiers.get("glc") or modifiers.get("sc0"))


def get_operands(instruction: Instruction, code: LoadedCode, counts: Collection[int]) -> tuple[Operand, ...]:
    """Return the operands after checking their number."""
    operands = instruction.operands
    if len(operands) not in counts or any(o.half or o.negated or o.absolute for o in operands):
        raise code.unknown("this form of its operands", instruction)
    return operands


def get_vector(instruction: Instruction, code: LoadedCode, operand: Operand, count: int = 0) -> int:
    """Return the first vector register of an operand of `count` registers (0: any)."""
    if operand.kind not in ("v", "a") or (count and operand.count != count):
        raise code.unknown("this form of its operands", instruction)
    return code.get_register(operand)


def get_scalar(instruction: Instruction, code: LoadedCode, operand: Operand, count: int = 0) -> int:
    """Return the first scalar register of an operand of `count` registers (0: any)."""
    if operand.kind != "s" or (count and operand.count != count):
        raise code.unknown("this form of its operands", instruction)
    return operand.index


def get_scalar_offset(instruction: Instruction, code: LoadedCode, operand: Operand, *, signed_literal: bool) -> Scalars:
    """Make a getter of an offset: an unsigned scalar register, a literal, or 0."""
    if operand.kind == "s" and operand.count == 1:
        register = operand.index
        return lambda group: group.s[register].astype(np.int64)
    if operand.kind == "const" and isinstance(operand.value, int):
        value = operand.value if signed_literal else operand.value & 0xFFFFFFFF
    elif operand.kind == "none":
        value = 0
    else:
        raise code.unknown("this offset", instruction)
    constant = np.array([value], np.int64)
    return lambda _: constant


def scale_scalars(scalars: Scalars, factor: int) -> Scalars:
    """Return a getter of values times a number."""
    return scalars if factor == 1 else lambda group: scalars(group) * factor


def read_pair(group: WaveGroup, register: int) -> NDArray[np.uint64]:
    """Return the 64-bit value of each wave in two scalar registers."""
    if register % 2 == 0:
        return group.s64[register]
    return group.s[register].astype(np.uint64) | (group.s[register + 1].astype(np.uint64) << np.uint64(32))
