"""Sparse matrix instructions: D = A · B + D, with two of each four neighbours along k in A.

CDNA 3 and 4 call them SMFMAC, RDNA 4 calls them SWMMAC. A holds the two, and a register holds their places: two bits
for each element of A, in the lane of that element. Other elements of B are not read, so that their infinities and NaNs
have no effect.

Sources: AMD's matrix instruction calculator (CDNA 3, RDNA 4); LLVM's description of amdgpu.sparse_mfma for the choice
among sets of places; CK Tile's sparse_gfx9.hpp of 2026-06 for the instructions that only CDNA 4 has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.formats import U32
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.matrix.arithmetic import is_flushing, make_accumulator, make_inputs
from tilewright.emulator.matrix.layout import arrange_inputs, has_double_k
from tilewright.emulator.matrix.modifiers import MatrixModifiers, check_known, get_number, read_signs
from tilewright.emulator.matrix.shapes import BITS, MatrixShape, list_shapes

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
            shape = MatrixShape(result, size, size, k, a, b, sparse=True)
            yield f"v_smfmac_{result}_{size}x{size}x{k}_{name}", shape


def _list_swmmac() -> Iterator[tuple[str, MatrixShape]]:
    kinds = [("f32", "f16", 32), ("f32", "bf16", 32), ("f16", "f16", 32), ("bf16", "bf16", 32)]
    kinds += [("i32", "iu8", 32), ("i32", "iu4", 32), ("i32", "iu4", 64), *(("f32", f"{a}_{b}", 32) for a, b in _PAIRS)]
    for result, name, k in kinds:
        a, _, b = name.partition("_")
        shape = MatrixShape(result, 16, 16, k, a, b or a, layout="wmma12", sparse=True)
        yield f"v_swmmac_{result}_16x16x{k}_{name}", shape


def find_any_shape(name: str, family: str) -> MatrixShape | None:
    """Return the shape of a matrix instruction, dense or sparse; None if the GPU family does not have it."""
    return list_shapes(family).get(name) or list_sparse_shapes(family).get(name)


@dataclass(frozen=True, slots=True)
class SparseForm:
    """A sparse matrix instruction: its shape, modifiers and registers, and the first bit of its places."""

    shape: MatrixShape
    modifiers: MatrixModifiers
    to: slice
    left: slice
    right: slice
    places: slice
    first_bit: int


def read_sparse(instruction: Instruction, code: LoadedCode) -> SparseForm:
    """Read a sparse matrix instruction. Raises for a form that is not known."""
    shape = list_sparse_shapes(code.arch.family).get(instruction.mnemonic)
    if shape is None:
        raise code.unknown(f"the matrix instruction {instruction.mnemonic}", instruction)
    if shape.lanes != code.lanes:
        raise code.unknown(f"{instruction.mnemonic} with {code.lanes} lanes", instruction)
    to, left, right, places = _find_registers(shape, instruction, code)
    modifiers, first_bit = _read_modifiers(shape, instruction, code)
    return SparseForm(shape, modifiers, to, left, right, places, first_bit)


def translate_sparse(instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a sparse matrix instruction."""
    form = read_sparse(instruction, code)
    left, right = make_inputs(form.shape, form.modifiers, code.arch)
    add = make_accumulator(form.shape, form.modifiers, is_flushing(form.shape, code.arch))

    def execute(group: WaveGroup) -> None:
        registers = group.vgprs
        a = left.to_matrices(registers[form.left])[:, 0].swapaxes(1, 2)
        b = right.to_matrices(registers[form.right])[:, 0]
        k = _find_places(registers[form.places][0], form)
        waves = np.arange(group.waves)[:, None, None]
        # For each row of A: the elements of B at its places, [waves, row, element of A, column].
        product = np.matmul(a[:, :, None, :], b[waves, k])
        add(product.reshape(group.waves, -1), registers[form.to], registers[form.to])
        group.batch.counters.matrix_flops += form.shape.flops * group.waves

    return execute


def _find_registers(shape: MatrixShape, instruction: Instruction, code: LoadedCode) -> list[slice]:
    """Return the registers of D, A, B and the places."""
    counts = (*(shape.count_registers(operand) for operand in ("d", "a", "b")), 1)
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
    bits = 2 * shape.count_elements("a")
    if shape.layout == "mfma":
        check_known({"cbsz", "abid"}, instruction, code)
        cbsz = get_number(instruction, code, "cbsz", _CBSZ)
        # How abid chooses among the two sets of 16 bits on CDNA 4 is not known here.
        sets = 1 if has_double_k(shape) else 32 // bits
        abid = get_number(instruction, code, "abid", _ABID if cbsz else sets)
        return MatrixModifiers(), 0 if cbsz else bits * abid
    integer = shape.result == "i32"
    known = {"index_key"} if bits < 32 else set()
    check_known(known | ({"neg_lo", "clamp"} if integer else set()), instruction, code)
    key = get_number(instruction, code, "index_key", 32 // bits)
    return read_signs(instruction, code) if integer else MatrixModifiers(), bits * key


def _find_places(words: U32, form: SparseForm) -> NDArray[np.intp]:
    """Return k of each element of A, [waves, row, element]: its place among the four that it and another stand for."""
    elements = form.shape.count_elements("a")
    shifts = np.uint32(form.first_bit) + np.uint32(2) * np.arange(elements, dtype=np.uint32)
    codes = words[:, None, :] >> shifts[:, None] & np.uint32(3)
    places = arrange_inputs(form.shape)[0].to_matrices(codes.reshape(len(codes), -1))[:, 0].swapaxes(1, 2)
    return np.arange(form.shape.count_along_k("a")) // 2 * 4 + places.astype(np.intp)
