"""Lower matrix instructions, with their layouts as runs of neighbouring lanes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator import matrix
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.formats import find_format, make_value_table
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.matrix.layout import broadcast_block, find_input, find_output, pattern_lane
from tilewright.emulator.matrix.modifiers import MatrixModifiers, choose_formats, read_modifiers
from tilewright.emulator.matrix.shapes import MatrixShape, list_shapes
from tilewright.emulator.matrix.sparse import PREFIXES, read_sparse
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import (
    LANES,
    MOST_RUNS,
    InstructionRecord,
    LoweringTables,
    MatrixRecord,
    make_record,
)

# In the order of the kinds in matrix.h.
_KINDS = (
    "f32", "f16", "bf16", "fp8", "bf8", "i8", "u8", "i4", "u4", "i32", "f64", "f16 half", "bf16 half",
    "fp6", "bf6", "fp4", "xf32",
)  # fmt: skip
_SMALL = ("fp8", "bf8", "fp6", "bf6", "fp4")
_Runs = list[tuple[int, int]]


def lower_matrix(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of a matrix instruction; None for others."""
    if instruction.mnemonic.startswith(PREFIXES):
        return _lower_sparse(instruction, code, tables)
    if not instruction.mnemonic.startswith(("v_mfma_", "v_wmma_")):
        return None
    matrix.translate(instruction, code)  # raises for unknown forms
    shape = choose_formats(list_shapes(code.arch.family)[instruction.mnemonic], instruction, code)
    modifiers = read_modifiers(shape, instruction, code)
    number = _find_matrix_index(shape, modifiers, code, tables)
    registers = [layout.make_vector(code.get_register(operand)) for operand in instruction.operands[:3]]
    sources = [*registers[1:], _make_addend(instruction.operands[3], shape, code)]
    if not shape.scaled:
        doubled = int(shape.layout == "wmma11")
        return make_record(_choose_handler(shape), registers[0], sources, target=number, detail=doubled)
    scales = [_make_scale(operand, code) for operand in instruction.operands[4:]]
    first, second = modifiers.scale_bytes
    made = make_record("matrix_scaled", registers[0], [*sources, scales[0]], target=number, detail=first | second << 2)
    made.second = scales[1]
    return made


def _lower_sparse(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord:
    form = read_sparse(instruction, code)  # raises for unknown forms
    number = _find_matrix_index(form.shape, form.modifiers, code, tables)
    to, left, right, places = (layout.make_vector(each.start) for each in (form.to, form.left, form.right, form.places))
    places.shift = form.first_bit
    return make_record(_choose_handler(form.shape), to, [left, right, to, places], target=number)


def _make_scale(operand: Operand, code: LoadedCode) -> layout.OperandRecord:
    if operand.kind == "const":
        return layout.make_constant(matrix.encode_scale(operand))
    return layout.make_vector(code.get_register(operand))


def _find_matrix_index(shape: MatrixShape, modifiers: MatrixModifiers, code: LoadedCode, tables: LoweringTables) -> int:
    """Return the index of the side table, which instructions of one form share."""
    key = (shape, modifiers)
    if key not in tables.matrix_numbers:
        tables.matrix_numbers[key] = len(tables.matrices)
        tables.matrices.append(_make_matrix(shape, modifiers, code))
    return tables.matrix_numbers[key]


def _choose_handler(shape: MatrixShape) -> str:
    if shape.scaled:
        return "matrix_scaled"
    return {"i32": "matrix_int", "f64": "matrix_double"}.get(shape.result, "matrix_float")


def _make_addend(operand: Operand, shape: MatrixShape, code: LoadedCode) -> layout.OperandRecord:
    if operand.kind != "const":
        return layout.make_vector(code.get_register(operand))
    value = operand.value
    if isinstance(value, float):
        kind, bits = (np.float64, np.uint64) if shape.result == "f64" else (np.float32, np.uint32)
        value = int(np.array(value, kind).view(bits))
    return layout.make_constant(value if shape.result == "f64" else value & 0xFFFFFFFF)


def _find_kind(name: str, signed: bool) -> int:
    if name in ("iu8", "iu4"):
        name = f"{'i' if signed else 'u'}{name[2:]}"
    return _KINDS.index(name)


def _make_matrix(shape: MatrixShape, modifiers: MatrixModifiers, code: LoadedCode) -> MatrixRecord:
    a, b = _find_kind(shape.a, modifiers.a_signed), _find_kind(shape.b, modifiers.b_signed)
    half = shape.layout == "wmma11" and shape.result in ("f16", "bf16")
    c = _find_kind(f"{shape.result} half" if half else shape.result, True)
    made = MatrixRecord(shape.m, shape.n, shape.count_along_k("a"), shape.blocks, a, b, c)
    made.a_count, made.b_count, made.c_count = (shape.count_elements(operand) for operand in ("a", "b", "d"))
    for name, found in zip("abc", _find_all_runs(shape, modifiers), strict=True):
        for to, (element, lane) in zip(getattr(made, name), found, strict=False):
            to.element, to.lane = element, lane
    for values, name in ((made.a_values, shape.a), (made.b_values, shape.b)):
        if name in _SMALL:
            table = make_value_table(find_format(name, code.arch).name)
            values[: len(table)] = [float(value) for value in table]
    _set_modifiers(made, modifiers)
    return made


def _set_modifiers(made: MatrixRecord, modifiers: MatrixModifiers) -> None:
    made.high, made.clamp = int(modifiers.high), int(modifiers.clamp)
    made.a_sign, made.b_sign = (
        even | odd << 1 for even, odd in (map(int, modifiers.a_negated), map(int, modifiers.b_negated))
    )
    made.c_sign = 3 * modifiers.c_negated | 4 * modifiers.c_absolute
    made.b_moved = int(modifiers.blgp != 0)
    made.b_lanes[:] = pattern_lane(modifiers.blgp, np.arange(LANES)).tolist()


def _find_all_runs(shape: MatrixShape, modifiers: MatrixModifiers) -> tuple[_Runs, _Runs, _Runs]:
    """Find the rows of A (for each block and k), and the columns of B (likewise) and of C (for each row)."""
    lanes = np.arange(shape.lanes)
    found: list[_Runs] = []
    for operand, outer in (("a", shape.m), ("b", shape.n), ("c", shape.n)):
        lines = shape.m if operand == "c" else shape.count_along_k(operand)
        places: NDArray[np.int64] = np.full((shape.blocks, lines, outer, 2), -1)
        for element in range(shape.count_elements("d" if operand == "c" else operand)):
            number = np.full_like(lanes, element)
            if operand == "c":
                block, line, place = find_output(shape, number, lanes)
            else:
                block, place, line = find_input(shape, operand, number, lanes)
            # From the last lane to the first, so that the first of several copies stays.
            places[block[::-1], line[::-1], place[::-1]] = np.stack([number, lanes], axis=-1)[::-1]
        if operand == "a" and modifiers.cbsz:
            places = places[broadcast_block(modifiers.cbsz, modifiers.abid, np.arange(shape.blocks))]
        found.append(_find_runs(places.reshape(-1, outer, 2)))
    return found[0], found[1], found[2]


def _find_runs(places: NDArray[np.int64]) -> _Runs:
    """Return element and first lane of each line."""
    neighbours = np.arange(places.shape[1])
    element, lane = places[:, :1, 0], places[:, :1, 1]
    if (places[..., 0] != element).any() or (places[..., 1] != lane + neighbours).any() or len(places) > MOST_RUNS:
        raise AssertionError("a line of a matrix that is not in neighbouring lanes of one element")
    return [(int(line[0, 0]), int(line[0, 1])) for line in places]
