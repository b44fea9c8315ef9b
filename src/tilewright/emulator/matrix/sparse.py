"""Sparse matrix instructions: D = A · B + D, with two of each four neighbours along k in A.

CDNA 3 and 4 call them SMFMAC, RDNA 4 calls them SWMMAC. A holds the two, and a register holds their places: two bits
for each element of A, in the lane of that element. Other elements of B are not read, so that their infinities and NaNs
have no effect. Only NumPy runs them.

Sources: AMD's matrix instruction calculator (CDNA 3, RDNA 4); LLVM's description of amdgpu.sparse_mfma for the choice
among sets of places; CK Tile's sparse_gfx9.hpp of 2026-06 for the instructions that only CDNA 4 has. In these, which
have twice the k, a lane's elements of B are from both halves of k.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.formats import U32, unpack
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.matrix.arithmetic import choose_format, make_accumulator
from tilewright.emulator.matrix.modifiers import MatrixModifiers, check_known, get_number, read_signs
from tilewright.emulator.matrix.shapes import BITS, MatrixShape

PREFIXES = ("v_smfmac_", "v_swmmac_")
_CBSZ, _ABID = 8, 16  # values that the encoding has
_PAIRS = tuple((a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8"))


@cache
def list_sparse_shapes(family: str) -> Mapping[str, MatrixShape]:
    """Return the sparse matrix instructions of a GPU family. Shapes are those of products, with all of k."""
    if family == "rdna4":
        return dict(_list_swmmac())
    sizes = {"cdna3": (64,), "cdna4": (64, 128)}.get(family, ())
    return {name: shape for bits in sizes for name, shape in _list_smfmac(bits)}


def _list_smfmac(bits: int) -> Iterator[tuple[str, MatrixShape]]:
    """List the instructions of CDNA in which a lane has that many bits of A."""
    kinds = [("f32", "f16", "f16", "f16"), ("f32", "bf16", "bf16", "bf16"), ("i32", "i8", "i8", "i8")]
    kinds += [("f32", f"{a}_{b}", a, b) for a, b in _PAIRS]
    for result, name, a, b in kinds:
        for size in (16, 32):
            k = 2 * bits // BITS[a] * 64 // size
            yield f"v_smfmac_{result}_{size}x{size}x{k}_{name}", MatrixShape(result, size, size, k, a, b)


def _list_swmmac() -> Iterator[tuple[str, MatrixShape]]:
    kinds = [("f32", "f16", 32), ("f32", "bf16", 32), ("f16", "f16", 32), ("bf16", "bf16", 32)]
    kinds += [("i32", "iu8", 32), ("i32", "iu4", 32), ("i32", "iu4", 64), *(("f32", f"{a}_{b}", 32) for a, b in _PAIRS)]
    for result, name, k in kinds:
        a, _, b = name.partition("_")
        shape = MatrixShape(result, 16, 16, k, a, b or a, layout="wmma12")
        yield f"v_swmmac_{result}_16x16x{k}_{name}", shape


def translate_sparse(instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a sparse matrix instruction."""
    shape = list_sparse_shapes(code.arch.family).get(instruction.mnemonic)
    if shape is None:
        raise code.unknown(f"the matrix instruction {instruction.mnemonic}", instruction)
    if shape.lanes != code.lanes:
        raise code.unknown(f"{instruction.mnemonic} with {code.lanes} lanes", instruction)
    to, left, right, places = _find_registers(shape, instruction, code)
    modifiers, first_bit = _read_modifiers(shape, instruction, code)
    a_format = choose_format(shape.a, modifiers.a_signed, code.arch)
    b_format = choose_format(shape.b, modifiers.b_signed, code.arch)
    halves = 2 if _has_double_k(shape) else 1
    add = make_accumulator(shape, modifiers, flush=False)

    def execute(group: WaveGroup) -> None:
        registers = group.vgprs
        a = _arrange(unpack(registers[left], a_format, False), shape.m).swapaxes(1, 2)
        b = _arrange(unpack(registers[right], b_format, False), shape.n, halves)
        k = _find_places(registers[places][0], shape, first_bit)
        waves = np.arange(group.waves)[:, None, None]
        # For each row of A: the elements of B at its places, [waves, row, element of A, column].
        product = np.matmul(a[:, :, None, :], b[waves, k])
        add(product.reshape(group.waves, -1), registers[to], registers[to])
        group.batch.counters.matrix_flops += shape.flops * group.waves

    return execute


def _count_elements(shape: MatrixShape) -> int:
    """Return the number of elements of A in a lane."""
    return shape.count_elements("a") // 2


def _has_double_k(shape: MatrixShape) -> bool:
    """Whether the instruction is one of those that only CDNA 4 has."""
    return shape.layout == "mfma" and _count_elements(shape) * BITS[shape.a] == 128


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


def _read_modifiers(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> tuple[MatrixModifiers, int]:
    """Return the modifiers, and the first bit of the set of places.

    SMFMAC: abid chooses the set if cbsz is 0, else it is the first one. SWMMAC: index_key chooses it.
    """
    bits = 2 * _count_elements(shape)
    if shape.layout == "mfma":
        check_known({"cbsz", "abid"}, instruction, code)
        cbsz = get_number(instruction, code, "cbsz", _CBSZ)
        # How abid chooses among the two sets of 16 bits on CDNA 4 is not known here.
        sets = 1 if _has_double_k(shape) else 32 // bits
        abid = get_number(instruction, code, "abid", _ABID if cbsz else sets)
        return MatrixModifiers(), 0 if cbsz else bits * abid
    integer = shape.result == "i32"
    known = {"index_key"} if bits < 32 else set()
    check_known(known | ({"neg_lo", "clamp"} if integer else set()), instruction, code)
    key = get_number(instruction, code, "index_key", 32 // bits)
    return read_signs(instruction, code) if integer else MatrixModifiers(), bits * key


def _arrange(values: NDArray[np.generic], outer: int, halves: int = 1) -> NDArray[np.generic]:
    """Convert [waves, element, lane] to [waves, k, row or column].

    Neighbours along k are in a lane. With two halves, each half of a lane's elements is from that half of k. RDNA 4 has
    another order of k for 16-bit types, which is the same for A and B and has no effect.
    """
    waves, elements, lanes = values.shape
    parts = values.reshape(waves, halves, elements // halves, lanes // outer, outer).swapaxes(2, 3)
    return parts.reshape(waves, -1, outer)


def _find_places(words: U32, shape: MatrixShape, first_bit: int) -> NDArray[np.intp]:
    """Return k of each element of A, [waves, row, element]: its place among the four that it and another stand for."""
    shifts = np.uint32(first_bit) + np.uint32(2) * np.arange(_count_elements(shape), dtype=np.uint32)
    places = _arrange(words[:, None, :] >> shifts[:, None] & np.uint32(3), shape.m).swapaxes(1, 2)
    return np.arange(shape.k // 2) // 2 * 4 + places.astype(np.intp)
