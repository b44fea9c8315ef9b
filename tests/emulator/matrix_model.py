"""Matrix instructions one element at a time, written from AMD's documents and not from the emulator's layouts.

The formulas go the other way round than the emulator's: from an element of a matrix to its register and lane. They are
those that AMD's matrix instruction calculator prints, the tables of CK's mx_mfma_op.hpp, and CK Tile's WMMA traits.
"""

from __future__ import annotations

import numpy as np
import pytest
from native_records import run_alone

from tilewright.arch.load import list_arch_files, load_file
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Batch, WaveGroup, WaveIndices
from tilewright.emulator.instruction import EXEC, SCALARS, Instruction, Operand
from tilewright.emulator.launch import Counters
from tilewright.emulator.matrix import translate
from tilewright.emulator.matrix.shapes import BITS, MatrixShape
from tilewright.emulator.native.layout import LoweringTables
from tilewright.emulator.native.lower_matrix import lower_matrix

each_engine = pytest.mark.parametrize("engine", ["numpy", pytest.param("native", marks=pytest.mark.compile)])
ARCHES = {name: load_file(path) for name, path in list_arch_files().items()}


def a_place(shape: MatrixShape, block: int, row: int, k: int, kind: str) -> tuple[int, int]:
    """Element of the lane, and lane, of A[row][k] of a block; B is the same with its column in the place of the row."""
    m = shape.m
    if shape.layout == "wmma11":
        return k, row
    if shape.layout == "wmma12":
        half = shape.k // 2
        return k % half, row + 16 * (k // half)
    if shape.result == "f64":
        return 0, 16 * k + 4 * block + row if m == 4 else 16 * k + row
    if shape.layout == "f8f6f4" and BITS[kind] == 8:
        chunk, groups = k // 16, 64 // m
        return k % 16 + 16 * (chunk // groups), row + m * (chunk % groups)
    if shape.blocks > 1:
        return k, m * block + row
    per_lane = m * shape.k // 64
    return k % per_lane, m * (k // per_lane) + row


def d_place(shape: MatrixShape, block: int, row: int, column: int) -> tuple[int, int]:
    """Element of the lane, and lane, of D[row][column] of a block."""
    if shape.layout == "wmma11":
        return row // 2, 16 * (row % 2) + column
    if shape.layout == "wmma12":
        return row % 8, column + 16 * (row // 8)
    if shape.result == "f64":
        return (row // 4, 16 * (row % 4) + column) if shape.m == 16 else (0, 16 * row + 4 * block + column)
    if shape.m == 32:
        return 16 * block + 4 * (row // 8) + row % 4, 32 * (row // 4 % 2) + column
    if shape.m == 16:
        return 4 * block + row % 4, 16 * (row // 4) + column
    return row, 4 * block + column


# Bits of exponent and mantissa.
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "fp8": (4, 3), "bf8": (5, 2), "fp6": (2, 3), "bf6": (3, 2), "fp4": (2, 1)}


def value(kind: str, code: int) -> float:
    """What a bit pattern of a format means. fp8 and bf8 carry their encoding: fp8_fnuz, fp8_ocp, …"""
    if kind[0] in "iu":
        bits = int(kind[1:])
        return code - (1 << bits if kind[0] == "i" and code >> (bits - 1) else 0)
    name, _, encoding = kind.partition("_")
    exponent_bits, mantissa_bits = FLOATS[name]
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent, mantissa = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    last = exponent == (1 << exponent_bits) - 1
    if (encoding == "fnuz" and code == 0x80) or (kind == "fp8_ocp" and last and mantissa == 7):
        return float("nan")
    if kind in ("f16", "bf16", "bf8_ocp") and last:
        return float("nan") if mantissa else sign * float("inf")
    bias = (1 << (exponent_bits - 1)) - 1 + (encoding == "fnuz")
    leading = 0 if exponent == 0 else 1
    return sign * (leading + mantissa / 2**mantissa_bits) * 2.0 ** (max(exponent, 1) - bias)


def put(registers: np.ndarray, element: int, lane: int, codes: np.ndarray, bits: int) -> None:
    """Write an element's bit pattern of every wave into registers [registers, waves, lanes] that hold zeros there."""
    at = element * bits
    while bits > 0:
        word, shift = divmod(at, 32)
        room = min(bits, 32 - shift)
        part = codes.astype(np.uint64) & np.uint64((1 << room) - 1)
        registers[word, :, lane] |= (part << np.uint64(shift)).astype(np.uint32)
        codes, at, bits = codes.astype(np.uint64) >> np.uint64(room), at + room, bits - room


def make_group(registers: int, waves: int, lanes: int) -> WaveGroup:
    """Waves with nothing in their registers and no lane active: matrix instructions do not ask."""
    batch = Batch(memory=None, lds=None, counters=Counters(), strict=False, detailed=False)  # type: ignore[arg-type]
    none = np.zeros(waves, np.int64)
    places = WaveIndices(none, none, none.astype(np.uint64))
    scalars = np.zeros((waves, SCALARS), np.uint32)
    assert not scalars[:, EXEC].any()
    return WaveGroup(
        batch, np.zeros((registers, waves, lanes), np.uint32), scalars, np.zeros(waves, bool), places, 0xF0
    )


def code_for(arch: str, lanes: int | None = None) -> LoadedCode:
    found = ARCHES[arch]
    return LoadedCode(arch=found, kernel="test", lanes=lanes or found.wave_size, accumulators=256, base=0)


def run_matrix(engine: str, instruction: Instruction, arch: str, group: WaveGroup) -> None:
    """Run a matrix instruction that writes to register 0 and those after it."""
    if engine == "numpy":
        step = translate(instruction, code_for(arch))
        assert step is not None
        with np.errstate(all="ignore"):  # as the device does for a whole launch
            step(group)
        return
    tables = LoweringTables({}, 0)
    made = lower_matrix(instruction, code_for(arch), tables)
    assert made is not None
    run_alone(made, tables, group.vgprs, instruction.operands[0].count)


class Run:
    """One instruction in registers of its own: D, A, B, C and scales, one after another."""

    def __init__(self, arch: str, mnemonic: str, shape: MatrixShape, waves: int, **modifiers: object) -> None:
        self.shape, self.arch = shape, arch
        counts = [
            shape.count_registers("d"),
            shape.count_registers("a"),
            shape.count_registers("b"),
            shape.count_registers("d"),
        ]
        counts += [1, 1] if shape.scaled else []
        starts = np.cumsum([0, *counts])
        self.operands = tuple(Operand("v", int(start), count) for start, count in zip(starts[:-1], counts, strict=True))
        self.group = make_group(int(starts[-1]), waves, shape.lanes)
        parts = np.split(self.group.vgprs, starts[1:-1])
        self.d, self.a, self.b, self.c = parts[:4]
        self.scales = parts[4:]
        self.mnemonic, self.modifiers = mnemonic, modifiers

    def put_inputs(self, a: np.ndarray, b: np.ndarray, a_kind: str, b_kind: str) -> None:
        """Bit patterns [waves, block, row, k] of A and [waves, block, column, k] of B."""
        for registers, codes, kind in ((self.a, a, a_kind), (self.b, b, b_kind)):
            for block, outer, k in np.ndindex(*codes.shape[1:]):
                element, lane = a_place(self.shape, block, outer, k, kind)
                for copy in (0, 16) if self.shape.layout == "wmma11" else (0,):
                    put(registers, element, lane + copy, codes[:, block, outer, k], BITS[kind])

    def step(self, c: Operand | None = None, engine: str = "numpy") -> None:
        operands = list(self.operands)
        if c is not None:
            operands[3] = c
        instruction = Instruction(0, 8, self.mnemonic, tuple(operands), self.mnemonic, "", self.modifiers)  # type: ignore[arg-type]
        run_matrix(engine, instruction, self.arch, self.group)

    def words(self, registers: np.ndarray) -> np.ndarray:
        """C or D of 32-bit words as [waves, block, row, column]."""
        shape = self.shape
        out = np.empty((registers.shape[1], shape.blocks, shape.m, shape.n), np.uint32)
        for block, row, column in np.ndindex(*out.shape[1:]):
            element, lane = d_place(shape, block, row, column)
            out[:, block, row, column] = registers[element, :, lane]
        return out
