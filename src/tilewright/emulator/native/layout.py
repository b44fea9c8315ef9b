"""The structures of types.h and matrix.h, which Python fills. Their sizes must equal those that the library reports."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.emulator.native.handlers import NUMBERS

LANES = 64
QUEUES = 8
MOST_WRITTEN = 4
MOST_RUNS = 256

# Operand.kind
NOTHING, VECTOR, SCALAR, CONSTANT, SCC, VCCZ, EXECZ, LANE_MASK = range(8)
# Operand.flags
NEGATE, ABSOLUTE, SIGN_EXTEND, PERMUTED = 1, 2, 4, 8
# Instruction.flags of arithmetic
CLAMP, PLACED, DST_KEEP, DST_SEXT, WRITES_EXEC, MASKED = 1, 2, 4, 8, 16, 32
# Instruction.flags of memory instructions
SIGNED, D16, D16_HIGH, RETURNS, LDS_DMA, OFFEN, IDXEN, TWO, SCALED = 1, 2, 4, 8, 16, 32, 64, 128, 256
ANY_NUMBER = 255  # in `wait`: ignore the counter
NO_INSTRUCTION = 0xFFFFFFFF  # in the address map


class OperandRecord(c.Structure):
    _fields_ = (
        ("kind", c.c_uint8),
        ("flags", c.c_uint8),
        ("shift", c.c_uint8),
        ("width", c.c_uint8),
        ("index", c.c_int32),
        ("value", c.c_uint64),
    )


class WrittenRange(c.Structure):
    _fields_ = (("kind", c.c_uint8), ("count", c.c_uint8), ("first", c.c_int16))


class InstructionRecord(c.Structure):
    """`Instruction` in types.h."""

    _fields_ = (
        ("op", c.c_uint32),
        ("flags", c.c_uint32),
        ("out", OperandRecord),
        ("second", OperandRecord),
        ("sources", OperandRecord * 4),
        ("offset", c.c_int64),
        ("offset1", c.c_int64),
        ("size", c.c_uint32),
        ("target", c.c_uint32),
        ("detail", c.c_uint32),
        ("omod", c.c_int16),
        ("queue", c.c_uint8),
        ("scope", c.c_uint8),
        ("vector", c.c_uint8),
        ("wait", c.c_uint8 * QUEUES),
        ("written", WrittenRange * MOST_WRITTEN),
    )


class Permutation(c.Structure):
    _fields_ = (
        ("source", c.c_uint8 * LANES),
        ("valid", c.c_uint64),
        ("enabled", c.c_uint64),
        ("zero", c.c_uint32),
        ("inactive", c.c_uint32),
    )


class MatrixRun(c.Structure):
    _fields_ = (("element", c.c_uint8), ("lane", c.c_uint8))


class MatrixRecord(c.Structure):
    _fields_ = (
        *((name, c.c_uint32) for name in ("m", "n", "k", "blocks", "a_kind", "b_kind", "c_kind")),
        *((name, c.c_uint32) for name in ("a_count", "b_count", "c_count", "high", "clamp")),
        *((name, c.c_uint32) for name in ("a_sign", "b_sign", "c_sign", "b_moved")),
        ("b_lanes", c.c_uint8 * LANES),
        *((name, MatrixRun * MOST_RUNS) for name in ("a", "b", "c")),
        ("a_values", c.c_float * 256),
        ("b_values", c.c_float * 256),
    )


class FaultRecord(c.Structure):
    _fields_ = (
        ("code", c.c_uint32),
        ("instruction", c.c_uint32),
        ("block", c.c_int64),
        ("wave", c.c_int32),
        ("lane", c.c_int32),
        ("address", c.c_uint64),
        ("size", c.c_uint64),
        ("words", c.c_uint32 * 4),
    )


class AddressRange(c.Structure):
    _fields_ = (("start", c.c_uint64), ("end", c.c_uint64))


class CountsRecord(c.Structure):
    """`InstructionCounts` in types.h."""

    _fields_ = (
        ("lanes", c.c_uint64),
        ("bytes", c.c_uint64 * 4),
        *((name, c.c_uint64) for name in ("atomics", "cache_lines", "conflict_cycles")),
    )


class CellRecord(c.Structure):
    """`Cell` in shadow.h: three accesses."""

    _fields_ = (("accesses", c.c_uint32 * 12),)


class ShadowRecord(c.Structure):
    _fields_ = (("cells", c.c_void_p), ("defined", c.c_void_p))


class FindingRecord(c.Structure):
    _fields_ = (
        *((name, c.c_uint32) for name in ("kind", "in_lds", "instruction", "other_instruction")),
        *((name, c.c_int64) for name in ("block", "other_block")),
        *((name, c.c_int32) for name in ("wave", "lane", "other_wave", "other_lane")),
        *((name, c.c_uint32) for name in ("writes", "other_writes", "flags", "size")),
        *((name, c.c_uint64) for name in ("address", "count")),
    )


class NativeLaunch(c.Structure):
    _fields_ = (
        ("code", c.POINTER(InstructionRecord)),
        ("code_count", c.c_uint32),
        ("registers", c.c_uint32),
        ("at", c.c_void_p),
        ("at_count", c.c_uint64),
        ("code_base", c.c_uint64),
        ("ranges", c.POINTER(AddressRange)),
        ("range_count", c.c_uint64),
        ("permutations", c.POINTER(Permutation)),
        ("matrices", c.POINTER(MatrixRecord)),
        ("scalars", c.c_void_p),
        ("vectors", c.c_void_p),
        ("first_vectors", c.c_uint32),
        ("waves_per_block", c.c_uint32),
        ("first_block", c.c_int64),
        ("blocks", c.c_int64),
        ("lds_bytes", c.c_uint32),
        ("scratch_bytes", c.c_uint32),
        ("scratch", c.c_uint64),
        *((name, c.c_uint32) for name in ("lanes", "strict", "turned", "detailed", "float_mode")),
        *((name, c.c_uint32) for name in ("entry", "poison")),
        *((name, c.c_uint32) for name in ("line_bytes", "banks", "threads", "matrix_flush", "dma_mask", "gfx9")),
        *((name, c.c_uint32) for name in ("cooperative", "grid_arrived", "grid_phase")),
        ("stop", c.c_uint64),
        ("limit", c.c_uint64),
        ("capacity", c.c_uint8 * QUEUES),
        ("executed", c.c_void_p),
        ("profile", c.c_void_p),
        ("paths", c.c_void_p),
        ("path_waves", c.c_uint32),
        ("path_room", c.c_uint32),
        ("bytes", c.c_uint64 * 4),
        ("atomics", c.c_uint64),
        ("cache_lines", c.c_uint64),
        ("conflict_cycles", c.c_uint64),
        *((name, c.c_uint32) for name in ("checks", "needs_writeback", "scoped_stores")),
        *((name, c.c_uint32) for name in ("finding_room", "finding_count", "findings_lost")),
        ("shadows", c.POINTER(ShadowRecord)),
        ("findings", c.POINTER(FindingRecord)),
        ("checker", c.c_void_p),
        ("fault", FaultRecord),
    )


STRUCTURES = (
    OperandRecord, InstructionRecord, Permutation, NativeLaunch, MatrixRecord, FindingRecord, CellRecord, CountsRecord,
)  # fmt: skip


def make_operand(
    kind: int, index: int = 0, value: int = 0, flags: int = 0, shift: int = 0, width: int = 32
) -> OperandRecord:
    """Make an operand; by default the whole register."""
    return OperandRecord(kind, flags, shift, width, index, value & (2**64 - 1))


def make_vector(index: int) -> OperandRecord:
    return make_operand(VECTOR, index)


def make_scalar(index: int) -> OperandRecord:
    return make_operand(SCALAR, index)


def make_constant(value: int) -> OperandRecord:
    return make_operand(CONSTANT, value=value)


@dataclass(slots=True)
class LoweringTables:
    """Tables that records point to. `parts` are records that belong to others; they follow the code."""

    queues: Mapping[str, int]  # the queue of each kind of access: load, store, lds, scalar
    first_spare: int  # vector registers from here on belong to the engine
    permutations: list[Permutation] = field(default_factory=list)
    matrices: list[MatrixRecord] = field(default_factory=list)
    matrix_numbers: dict[Any, int] = field(default_factory=dict)  # indices in `matrices` by form
    parts: list[InstructionRecord] = field(default_factory=list)


def make_record(
    handler: str | int, out: OperandRecord | None = None, sources: Sequence[OperandRecord] = (), **fields: Any
) -> InstructionRecord:
    """Make a record from the name or number of its handler."""
    made = InstructionRecord.from_buffer_copy(_EMPTY_RECORD)
    made.op = NUMBERS[handler] if isinstance(handler, str) else handler
    for name, value in fields.items():
        setattr(made, name, value)
    if out is not None:
        made.out = out
    for k, source in enumerate(sources[:4]):
        made.sources[k] = source
    return made


def _make_empty_record() -> bytes:
    """Make the bytes of a record without operands, which waits for nothing: copying them is faster."""
    made = InstructionRecord(out=make_operand(0))
    for k in range(4):
        made.sources[k] = make_operand(0)
    made.wait = type(made.wait)(*[ANY_NUMBER] * QUEUES)
    return bytes(made)


_EMPTY_RECORD = _make_empty_record()
