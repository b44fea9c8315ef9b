"""Sparse matrix instructions of CDNA 3 (SMFMAC): D = A · B + D, with two of each four neighbours along k in A.

A holds the two, and a register holds their places: two bits for each element of A, in the lane of that element. Other
elements of B are not read, so that their infinities and NaNs have no effect. Sources: AMD's matrix instruction
calculator, and LLVM's description of amdgpu.sparse_mfma for the choice among sets of places. Only NumPy runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.formats import U32, find_format, unpack
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.matrix.arithmetic import make_accumulator
from tilewright.emulator.matrix.modifiers import MatrixModifiers, check_known, get_number
from tilewright.emulator.matrix.shapes import BITS, MatrixShape

PREFIX = "v_smfmac_"
_FAMILY = "cdna3"  # CDNA 4 has more of them, whose layouts are not known here
_CBSZ, _ABID = 8, 16  # values that the encoding has


@cache
def list_sparse_shapes(family: str) -> Mapping[str, MatrixShape]:
    """Return the supported sparse matrix instructions of a GPU family. Shapes are those of products, with all of k."""
    if family != _FAMILY:
        return {}
    pairs = [(a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
    kinds = [("f32", "f16", "f16", "f16"), ("f32", "bf16", "bf16", "bf16"), ("i32", "i8", "i8", "i8")]
    kinds += [("f32", f"{a}_{b}", a, b) for a, b in pairs]
    found = {}
    for result, name, a, b in kinds:
        for size in (16, 32):
            k = 512 // size * 16 // BITS[a]  # a lane has 64 bits of A
            found[f"{PREFIX}{result}_{size}x{size}x{k}_{name}"] = MatrixShape(result, size, size, k, a, b)
    return found


def translate_sparse(instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a sparse matrix instruction."""
    shape = list_sparse_shapes(code.arch.family).get(instruction.mnemonic)
    if shape is None:
        raise code.unknown(f"the matrix instruction {instruction.mnemonic}", instruction)
    if shape.lanes != code.lanes:
        raise code.unknown(f"{instruction.mnemonic} with {code.lanes} lanes", instruction)
    to, left, right, places = _find_registers(shape, instruction, code)
    first_bit = _find_first_bit(shape, instruction, code)
    formats = [find_format(kind, code.arch) for kind in (shape.a, shape.b)]
    add = make_accumulator(shape, MatrixModifiers(), flush=False)

    def execute(group: WaveGroup) -> None:
        registers = group.vgprs
        a = _arrange(unpack(registers[left], formats[0], False), shape.m).swapaxes(1, 2)
        b = _arrange(unpack(registers[right], formats[1], False), shape.n)
        k = _find_places(registers[places][0], shape, first_bit)
        waves = np.arange(group.waves)[:, None, None]
        # For each row of A: the elements of B at its places, [waves, row, element of A, column].
        product = np.matmul(a[:, :, None, :], b[waves, k])
        add(product.reshape(group.waves, -1), registers[to], registers[to])
        group.batch.counters.matrix_flops += shape.flops * group.waves

    return execute


def _find_registers(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> list[slice]:
    """Return the registers of D, A, B and the places."""
    counts = (shape.count_registers("d"), shape.count_registers("a") // 2, shape.count_registers("b"), 1)
    if len(instruction.operands) != len(counts):
        raise code.unknown(f"{instruction.mnemonic} with {len(instruction.operands)} operands", instruction)
    found = []
    for name, count, operand in zip(("D", "A", "B", "places"), counts, instruction.operands, strict=True):
        plain = not (operand.negated or operand.absolute or operand.sign_extended or operand.half)
        if operand.kind not in ("v", "a") or operand.count != count or not plain:
            raise code.unknown(f"operand {name}, which should be {count} vector registers,", instruction)
        first = code.get_register(operand)
        found.append(slice(first, first + count))
    return found


def _find_first_bit(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> int:
    """Return the first bit of the set of places: abid chooses the set if cbsz is 0, else it is the first one."""
    check_known({"cbsz", "abid"}, instruction, code)
    bits = 2 * 64 // BITS[shape.a]  # two for each element of A in a lane
    cbsz = get_number(instruction, code, "cbsz", _CBSZ)
    abid = get_number(instruction, code, "abid", _ABID if cbsz else 32 // bits)
    return 0 if cbsz else bits * abid


def _arrange(values: NDArray[np.generic], outer: int) -> NDArray[np.generic]:
    """Convert [waves, element, lane] to [waves, k, row or column]: neighbours along k are in a lane."""
    waves, elements, lanes = values.shape
    parts = values.reshape(waves, elements, lanes // outer, outer).swapaxes(1, 2)
    return parts.reshape(waves, -1, outer)


def _find_places(words: U32, shape: MatrixShape, first_bit: int) -> NDArray[np.intp]:
    """Return k of each element of A, [waves, row, element]: its place among the four that it and another stand for."""
    elements = 64 // BITS[shape.a]
    shifts = np.uint32(first_bit) + np.uint32(2) * np.arange(elements, dtype=np.uint32)
    places = _arrange(words[:, None, :] >> shifts[:, None] & np.uint32(3), shape.m).swapaxes(1, 2)
    return np.arange(shape.k // 2) // 2 * 4 + places.astype(np.intp)
