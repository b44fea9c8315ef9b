"""Running single records of the native engine: registers in, registers out, without a code object."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.instruction import EXEC
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.table import SCALAR, VECTOR
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import handler_numbers
from tilewright.emulator.native.layout import (
    LANES,
    AddressRange,
    InstructionRecord,
    LoweringTables,
    MatrixRecord,
    NativeLaunch,
    Permutation,
    make_record,
)
from tilewright.emulator.native.library import load_engine
from tilewright.emulator.native.lowered import make_array

WAVES = 16  # of a block
REGISTERS = 16
RESULT, FLAG = 8, 10  # vector registers
SOURCE_MASK, SECOND = 10, 20  # scalar registers
KEPT = 0xF0  # FLOAT_MODE: subnormal numbers stay


def words_of(values: np.ndarray) -> list[np.ndarray]:
    """Values as one or two arrays of dwords."""
    if values.itemsize == 8:
        pairs = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
        return [pairs[:, 0], pairs[:, 1]]
    return [np.ascontiguousarray(values).view(f"u{values.itemsize}").astype(np.uint32)]


def launch(
    records: list[InstructionRecord],
    vectors: np.ndarray,
    scalars: np.ndarray,
    float_mode: int = KEPT,
    *,
    results: range = range(RESULT, RESULT + 4),
    matrices: list[MatrixRecord] | None = None,
    lanes: int = LANES,
) -> np.ndarray:
    """Run records on waves, and return the registers `results` as [waves, lanes, registers].

    `vectors` is [waves, registers, lanes]; the last two registers are for the addresses of results.
    """
    compiled = load_engine()
    assert compiled is not None
    waves, registers = vectors.shape[:2]
    output = np.zeros((waves, LANES, len(results)), np.uint32)
    rows = np.arange(waves * LANES, dtype=np.uint64).reshape(waves, LANES)
    addresses = output.ctypes.data + output.strides[1] * rows
    vectors[:, registers - 2] = addresses.astype(np.uint32)
    vectors[:, registers - 1] = (addresses >> np.uint64(32)).astype(np.uint32)
    zero = layout.make_operand(0)
    stores = []
    for number, register in enumerate(results):
        operands = [layout.make_vector(registers - 2), zero, zero, layout.make_vector(register)]
        stores.append(make_record("global_store", None, operands, size=4, offset=4 * number))
    code = make_array(InstructionRecord, [*records, *stores, make_record("end")])
    executed = np.zeros(len(code), np.uint64)
    ranges = (AddressRange * 1)(AddressRange(output.ctypes.data, output.ctypes.data + output.nbytes))
    made = NativeLaunch(
        code=code, code_count=len(code), registers=registers, ranges=ranges, range_count=1,
        permutations=(Permutation * 1)(), matrices=make_array(MatrixRecord, matrices or []),
        scalars=scalars.ctypes.data,
        vectors=vectors.ctypes.data, first_vectors=registers, waves_per_block=waves, blocks=1, lanes=lanes,
        float_mode=float_mode, line_bytes=128, banks=32, threads=1, limit=1 << 40, executed=executed.ctypes.data,
    )  # fmt: skip
    assert compiled.run(made) == 0, f"fault {made.fault.code}"
    return output


def run_alone(made: InstructionRecord, tables: LoweringTables, registers: np.ndarray, results: int) -> None:
    """Run a record with no lane active. `registers` is [registers, waves, lanes]; the first `results` are replaced."""
    count, waves, lanes = registers.shape
    vectors, scalars = np.zeros((waves, count + 2, LANES), np.uint32), np.zeros((waves, 128), np.uint32)
    vectors[:, :count, :lanes] = registers.swapaxes(0, 1)
    on = layout.make_constant((1 << lanes) - 1)
    activate = make_record(handler_numbers()[1][SCALAR["s_mov_b64"]], layout.make_scalar(EXEC), [on])
    output = launch([made, activate], vectors, scalars, results=range(results), matrices=tables.matrices, lanes=lanes)
    registers[:results] = output[:, :lanes].transpose(2, 0, 1)


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
