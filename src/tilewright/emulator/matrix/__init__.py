"""Matrix instructions: MFMA of CDNA, WMMA of RDNA, and the sparse ones of both (sparse.py).

They ignore exec: all lanes take part. They also ignore the rounding and denormal bits of the mode register. Neither is
confirmed on a GPU. NumPy's floating-point warnings are off during a launch (device.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, Step, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.matrix.arithmetic import (
    has_equal_halves,
    is_flushing,
    make_accumulator,
    make_multiplier,
    make_scaled_multiplier,
)
from tilewright.emulator.matrix.modifiers import choose_formats, read_modifiers
from tilewright.emulator.matrix.shapes import MatrixShape, list_shapes
from tilewright.emulator.matrix.sparse import PREFIXES, translate_sparse

_DENSE_PREFIXES = ("v_mfma_", "v_wmma_")


def translate(instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of a matrix instruction; None for other instructions."""
    if instruction.mnemonic.startswith(PREFIXES):
        return translate_sparse(instruction, code)
    if not instruction.mnemonic.startswith(_DENSE_PREFIXES):
        return None
    known = list_shapes(code.arch.family).get(instruction.mnemonic)
    if known is None:
        raise code.unknown(f"the matrix instruction {instruction.mnemonic}", instruction)
    if known.lanes != code.lanes:
        raise code.unknown(f"{instruction.mnemonic} with {code.lanes} lanes", instruction)
    shape = choose_formats(known, instruction, code)
    _check_operands(shape, instruction, code)
    return _make_scaled_step(shape, instruction, code) if shape.scaled else _make_step(shape, instruction, code)


def _check_operands(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> None:
    """Check the operands: D, A, B, C and the scales of A and B, if any."""
    names, counts = ["D", "A", "B", "C"], [shape.count_registers(operand) for operand in ("d", "a", "b", "d")]
    if shape.scaled:
        names, counts = [*names, "A's scales", "B's scales"], [*counts, 1, 1]
    if len(instruction.operands) != len(names):
        raise code.unknown(f"{instruction.mnemonic} with {len(instruction.operands)} operands", instruction)
    for name, count, operand in zip(names, counts, instruction.operands, strict=True):
        if name not in ("D", "A", "B") and operand.kind == "const" and not operand.negated and not operand.absolute:
            continue
        plain = not (operand.negated or operand.absolute or operand.sign_extended or operand.half)
        if operand.kind not in ("v", "a") or operand.count != count or not plain:
            raise code.unknown(f"operand {name}, which should be {count} vector registers,", instruction)


def _make_constant(
    operand: Operand, shape: MatrixShape, instruction: Instruction, code: LoadedCode
) -> NDArray[np.generic]:
    """Return a constant C as an array without axes. Integers are bits; numbers with a decimal point are floats."""
    value = operand.value
    if shape.result == "f64":
        return np.array(value) if isinstance(value, float) else np.array(value, np.int64).view(np.float64)
    if shape.result in ("f16", "bf16"):
        if value != 0:
            raise code.unknown("a constant other than 0 for a 16-bit C", instruction)
        return np.array(0, np.float32)
    bits = np.array(value, np.float32).view(np.uint32) if isinstance(value, float) else value & 0xFFFFFFFF
    return np.array(bits, np.uint32).view(np.int32 if shape.result == "i32" else np.float32)


def _make_slice(operand: Operand, code: LoadedCode) -> slice:
    first = code.get_register(operand)
    return slice(first, first + operand.count)


def _make_step(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> Step:
    modifiers = read_modifiers(shape, instruction, code)
    multiply = make_multiplier(shape, modifiers, code.arch)
    add = make_accumulator(shape, modifiers, is_flushing(shape, code.arch))
    to, left, right = (_make_slice(operand, code) for operand in instruction.operands[:3])
    addend = _read_addend(shape, instruction, code)
    doubled = shape.layout == "wmma11"

    def execute(group: WaveGroup) -> None:
        registers = group.vgprs
        a, b = registers[left], registers[right]
        if doubled and not (has_equal_halves(a) and has_equal_halves(b)):
            raise code.unknown("A or B that differs between lanes 0 to 15 and lanes 16 to 31", instruction)
        values = multiply(a, b)
        add(values, registers[addend] if isinstance(addend, slice) else addend, registers[to])
        group.batch.counters.matrix_flops += shape.flops * group.waves

    return execute


def _make_scaled_step(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> Step:
    modifiers = read_modifiers(shape, instruction, code)
    multiply = make_scaled_multiplier(shape, modifiers, code.arch)
    add = make_accumulator(shape, modifiers, is_flushing(shape, code.arch))
    to, left, right = (_make_slice(operand, code) for operand in instruction.operands[:3])
    a_scales, b_scales = (_make_scale_getter(operand, code) for operand in instruction.operands[4:])
    addend = _read_addend(shape, instruction, code)

    def execute(group: WaveGroup) -> None:
        registers = group.vgprs
        values = multiply(registers[left], registers[right], a_scales(group), b_scales(group))
        add(values, registers[addend] if isinstance(addend, slice) else addend, registers[to])
        group.batch.counters.matrix_flops += shape.flops * group.waves

    return execute


def encode_scale(operand: Operand) -> int:
    """Return the bits of a constant in place of a register with scales: all lanes have them."""
    value = operand.value
    return int(np.float32(value).view(np.uint32)) if isinstance(value, float) else value & 0xFFFFFFFF


def _make_scale_getter(operand: Operand, code: LoadedCode) -> Callable[[WaveGroup], U32]:
    if operand.kind == "const":
        bits = np.uint32(encode_scale(operand))
        return lambda group: np.full((1, group.waves, group.lanes), bits)
    register = _make_slice(operand, code)
    return lambda group: group.vgprs[register]


def _read_addend(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> slice | NDArray[np.generic]:
    operand = instruction.operands[3]
    return _make_constant(operand, shape, instruction, code) if operand.kind == "const" else _make_slice(operand, code)
