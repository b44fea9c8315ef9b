"""Running single records of the native engine: registers in, registers out, without a code object."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.instruction import EXEC
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.table import VECTOR
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import handler_numbers
from tilewright.emulator.native.layout import (
    LANES,
    AddressRange,
    InstructionRecord,
    MatrixRecord,
    NativeLaunch,
    Permutation,
    make_record,
)
from tilewright.emulator.native.library import load_engine

WAVES = 16  # of a block
REGISTERS = 16
RESULT, FLAG, ADDRESS = 8, 10, 12  # vector registers
SOURCE_MASK, SECOND = 10, 20  # scalar registers
KEPT = 0xF0  # FLOAT_MODE: subnormal numbers stay


def words_of(values: np.ndarray) -> list[np.ndarray]:
    """Values as one or two arrays of dwords."""
    if values.itemsize == 8:
        pairs = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
        return [pairs[:, 0], pairs[:, 1]]
    return [np.ascontiguousarray(values).view(f"u{values.itemsize}").astype(np.uint32)]


def launch(
    records: list[InstructionRecord], vectors: np.ndarray, scalars: np.ndarray, float_mode: int = KEPT
) -> np.ndarray:
    """Run records on waves. `vectors` is [waves, registers, lanes]; the records store four registers per lane."""
    compiled = load_engine()
    assert compiled is not None
    waves = len(vectors)
    output = np.zeros((waves, LANES, 4), np.uint32)
    addresses = output.ctypes.data + 16 * np.arange(waves * LANES, dtype=np.uint64).reshape(waves, LANES)
    vectors[:, ADDRESS] = addresses.astype(np.uint32)
    vectors[:, ADDRESS + 1] = (addresses >> np.uint64(32)).astype(np.uint32)
    zero = layout.make_operand(0)
    operands = [layout.make_vector(ADDRESS), zero, zero, layout.make_vector(RESULT)]
    store = make_record("global_store", None, operands, size=16)
    code = (InstructionRecord * (len(records) + 2))(*records, store, make_record("end"))
    executed = np.zeros(len(code), np.uint64)
    ranges = (AddressRange * 1)(AddressRange(output.ctypes.data, output.ctypes.data + output.nbytes))
    made = NativeLaunch(
        code=code, code_count=len(code), registers=REGISTERS, ranges=ranges, range_count=1,
        permutations=(Permutation * 1)(), matrices=(MatrixRecord * 1)(), scalars=scalars.ctypes.data,
        vectors=vectors.ctypes.data, first_vectors=REGISTERS, waves_per_block=waves, blocks=1, lanes=LANES,
        float_mode=float_mode, line_bytes=128, banks=32, threads=1, limit=1 << 40, executed=executed.ctypes.data,
    )  # fmt: skip
    assert compiled.run(made) == 0, f"fault {made.fault.code}"
    return output


def _flag(source: layout.OperandRecord) -> InstructionRecord:
    """A lane mask, or SCC, as 0 or 1 in the register FLAG."""
    if source.kind == layout.LANE_MASK:
        choice = [layout.make_constant(0), layout.make_constant(1), source]
        return make_record(handler_numbers()[0][VECTOR["v_cndmask_b32"]], layout.make_vector(FLAG), choice)
    return make_record(handler_numbers()[0][VECTOR["v_mov_b32"]], layout.make_vector(FLAG), [source])


def _registers(waves: int) -> tuple[np.ndarray, np.ndarray]:
    scalars = np.zeros((waves, 128), np.uint32)
    scalars[:, EXEC : EXEC + 2] = 0xFFFFFFFF
    return np.zeros((waves, REGISTERS, LANES), np.uint32), scalars


def run_vector(
    operation: Operation, sources: list[np.ndarray], float_mode: int = KEPT
) -> tuple[np.ndarray, np.ndarray]:
    """Result (as u64) and lane mask of an operation for as many values as sources have."""
    waves = sources[0].size // LANES
    vectors, scalars = _registers(waves)
    operands = []
    for k, (values, kind) in enumerate(zip(sources, operation.sources, strict=True)):
        if kind == "mask":
            bits = np.packbits(values.reshape(waves, LANES), axis=1, bitorder="little")
            scalars[:, SOURCE_MASK : SOURCE_MASK + 2] = bits.view(np.uint32)
            operands.append(layout.make_operand(layout.LANE_MASK, SOURCE_MASK))
            continue
        for number, words in enumerate(words_of(values)):
            vectors[:, 2 * k + number] = words.reshape(waves, LANES)
        operands.append(layout.make_vector(2 * k))
    out = layout.make_scalar(SECOND) if operation.result == "mask" else layout.make_vector(RESULT)
    made = make_record(handler_numbers()[0][operation], out, operands)
    made.second = layout.make_scalar(SECOND)
    output = launch([made, _flag(layout.make_operand(layout.LANE_MASK, SECOND))], vectors, scalars, float_mode)
    result = output[..., 0].astype(np.uint64) | output[..., 1].astype(np.uint64) << np.uint64(32)
    return result.reshape(-1), output[..., 2].reshape(-1) != 0


def run_scalar(
    operation: Operation, sources: list[np.ndarray], float_mode: int = KEPT
) -> tuple[np.ndarray, np.ndarray]:
    """Result (as u64) and SCC of a scalar operation, one wave for each value."""
    waves = sources[0].size
    vectors, scalars = _registers(waves)
    operands, before = [], []
    for k, (values, kind) in enumerate(zip(sources, operation.sources, strict=True)):
        if kind == "scc":
            scalars[:, 40] = values
            test = Operation("", ("u32", "u32"), "", scc="a != b")
            before.append(
                make_record(handler_numbers()[1][test], None, [layout.make_scalar(40), layout.make_constant(0)])
            )
            operands.append(layout.make_operand(layout.SCC))
            continue
        for number, words in enumerate(words_of(values)):
            scalars[:, 2 * k + number] = words
        operands.append(layout.make_scalar(2 * k))
    made = make_record(handler_numbers()[1][operation], layout.make_scalar(30), operands)
    move = handler_numbers()[0][VECTOR["v_mov_b32"]]
    after = [make_record(move, layout.make_vector(RESULT + k), [layout.make_scalar(30 + k)]) for k in range(2)]
    output = launch([*before, made, *after, _flag(layout.make_operand(layout.SCC))], vectors, scalars, float_mode)[:, 0]
    return output[:, 0].astype(np.uint64) | output[:, 1].astype(np.uint64) << np.uint64(32), output[:, 2] != 0


def bits64(values: np.ndarray) -> np.ndarray:
    """Values as the bits that a register (pair) has after them."""
    return np.ascontiguousarray(values).view(f"u{values.itemsize}").astype(np.uint64)
