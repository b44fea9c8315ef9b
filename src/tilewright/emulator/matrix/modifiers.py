"""Modifiers of matrix instructions. A modifier that is not defined for an instruction is a fault."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.matrix.shapes import F8F6F4, MatrixShape

Pair = tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class MatrixModifiers:
    """Modifiers by their effect."""

    cbsz: int = 0  # 2^cbsz blocks of A are the same …
    abid: int = 0  # … this one
    blgp: int = 0  # pattern of the lanes of B
    a_negated: Pair = (False, False)  # elements with even index, with odd index
    b_negated: Pair = (False, False)
    c_negated: bool = False
    c_absolute: bool = False
    a_signed: bool = True
    b_signed: bool = True
    clamp: bool = False  # integers stop at their limits instead of wrapping
    high: bool = False  # 16-bit C and D are in the upper halves of registers
    scale_bytes: tuple[int, int] = (0, 0)  # which byte of the registers with scales, for A and B


def choose_formats(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> MatrixShape:
    """Return the shape with the formats that the modifiers of an f8f6f4 instruction choose; others are unchanged."""
    if shape.layout != "f8f6f4":
        return shape
    numbers = [get_number(instruction, code, name, len(F8F6F4)) for name in ("cbsz", "blgp")]
    return shape.replace_formats(F8F6F4[numbers[0]], F8F6F4[numbers[1]])


def read_modifiers(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> MatrixModifiers:
    """Return the modifiers of an instruction of that shape."""
    if shape.layout == "f8f6f4":
        return _read_f8f6f4(shape, instruction, code)
    if shape.layout == "mfma":
        return _read_mfma(shape, instruction, code)
    if shape.result == "i32":
        return _read_integer_wmma(instruction, code)
    return _read_float_wmma(shape, instruction, code)


def _read_mfma(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> MatrixModifiers:
    known = {"cbsz", "abid"} if shape.broadcasts else set()
    known |= {"blgp"} if shape.patterns else set()
    # On CDNA 2 the bits of neg are blgp, and LLVM prints them so: their effect there is not known.
    known |= {"neg"} if shape.negates else set()
    check_known(known, instruction, code)
    cbsz = get_number(instruction, code, "cbsz", shape.blocks.bit_length())
    a, b, c = _get_bits(instruction, code, "neg")
    return MatrixModifiers(
        cbsz, get_number(instruction, code, "abid", 1 << cbsz), get_number(instruction, code, "blgp", 8),
        a_negated=(a, a), b_negated=(b, b), c_negated=c,
    )  # fmt: skip


def _read_f8f6f4(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> MatrixModifiers:
    check_known({"cbsz", "blgp"} | ({"op_sel", "op_sel_hi"} if shape.scaled else set()), instruction, code)
    if shape.scaled and "op_sel_hi" not in instruction.modifiers:
        # LLVM always prints it here; for other instructions it omits it if all bits are set.
        raise code.unknown(f"{instruction.mnemonic} without op_sel_hi", instruction)
    low, high = _get_bits(instruction, code, "op_sel"), _get_bits(instruction, code, "op_sel_hi")
    if low[2] or high[2]:
        raise code.unknown("op_sel of the third operand", instruction)
    return MatrixModifiers(scale_bytes=(low[0] + 2 * high[0], low[1] + 2 * high[1]))


def _read_integer_wmma(instruction: Instruction, code: LoadedCode) -> MatrixModifiers:
    check_known({"neg_lo", "clamp"}, instruction, code)
    return read_signs(instruction, code)


def read_signs(instruction: Instruction, code: LoadedCode) -> MatrixModifiers:
    """Return whether integers of A and B are signed, and whether results are clamped."""
    a, b, c = _get_bits(instruction, code, "neg_lo")
    if c:
        raise code.unknown("neg_lo of C", instruction)
    return MatrixModifiers(a_signed=a, b_signed=b, clamp="clamp" in instruction.modifiers)


def _read_float_wmma(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> MatrixModifiers:
    halves = shape.layout == "wmma11" and shape.result != "f32"
    check_known({"neg_lo", "neg_hi"} | ({"op_sel"} if halves else set()), instruction, code)
    low, high = _get_bits(instruction, code, "neg_lo"), _get_bits(instruction, code, "neg_hi")
    select = _get_bits(instruction, code, "op_sel")
    if select[0] or select[1]:
        raise code.unknown("op_sel of A or B", instruction)
    if shape.a in ("fp8", "bf8") and (low[0] or low[1] or high[0] or high[1]):
        raise code.unknown("neg of 8-bit operands", instruction)
    # For C, neg_lo is the sign and neg_hi takes the absolute value first: AMD's matrix instruction calculator.
    return MatrixModifiers(
        a_negated=(low[0], high[0]), b_negated=(low[1], high[1]),
        c_negated=low[2], c_absolute=high[2], high=select[2],
    )  # fmt: skip


def check_known(known: Set[str], instruction: Instruction, code: LoadedCode) -> None:
    """Raise for a modifier that is not among the known ones."""
    for name in instruction.modifiers:
        if name not in known:
            raise code.unknown(f"the modifier '{name}' of {instruction.mnemonic}", instruction)


def get_number(instruction: Instruction, code: LoadedCode, name: str, limit: int) -> int:
    """Return the number of a modifier, 0 if it is absent. Raises from `limit` on."""
    value = instruction.modifiers.get(name, 0)
    if type(value) is not int or not 0 <= value < limit:
        raise code.unknown(f"{name}:{value} of {instruction.mnemonic} (0 to {limit - 1} are)", instruction)
    return value


def _get_bits(instruction: Instruction, code: LoadedCode, name: str) -> tuple[bool, bool, bool]:
    value = instruction.modifiers.get(name, (0, 0, 0))
    if not isinstance(value, tuple) or len(value) != 3 or any(bit not in (0, 1) for bit in value):
        raise code.unknown(f"{name}:{value} of {instruction.mnemonic}", instruction)
    return bool(value[0]), bool(value[1]), bool(value[2])
