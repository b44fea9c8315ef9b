"""Vector instructions that apply one operation of the table in every lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.alu.dpp import LaneMap, read_lane_map
from tilewright.emulator.alu.float_mode import KEPT, FloatMode, make_mode_step
from tilewright.emulator.alu.instruction_context import (
    DPP_MODIFIERS,
    SDWA_MODIFIERS,
    VECTOR_MODIFIERS,
    InstructionContext,
)
from tilewright.emulator.alu.operands import (
    Getter,
    apply_function,
    make_mask_source,
    make_sdwa_source,
    make_vector_source,
    match_sources,
)
from tilewright.emulator.alu.results import Writer, make_finisher, make_mask_writer, make_register_writer, write_masked
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import EXEC, VCC, Operand
from tilewright.emulator.isa.float_functions import flush_subnormals
from tilewright.emulator.isa.numpy_form import find_direct_ufunc, make_function
from tilewright.emulator.isa.operation import TYPES, Array, Operation, choose_expression
from tilewright.emulator.isa.table import COMPARE, SATURATED, vector_operations
from tilewright.emulator.isa.vector import bitop3


def translate_vector(site: InstructionContext) -> Step | None:
    """Return the step of an instruction in the tables VECTOR and COMPARE; None for other instructions."""
    if site.name == "v_nop":
        site.check_modifiers()
        return lambda _group: None
    if site.name in COMPARE:
        return _translate_comparison(site, COMPARE[site.name])
    operation = find_vector_operation(site)
    if operation is None:
        return None
    kinds = (*operation.sources, operation.result)
    return make_mode_step(site, kinds, lambda mode: _make_step(site, operation, mode))


def find_vector_operation(site: InstructionContext) -> Operation | None:
    """Return the operation of an instruction, as changed by its modifiers."""
    if site.name in ("v_bitop3_b32", "v_bitop3_b16"):
        site.check_modifiers(frozenset({"bitop3", "op_sel"}))
        return bitop3(site.get_number("bitop3"), "u32" if site.name.endswith("32") else "u16")
    operation = vector_operations(site.code.arch.numbers.fp8, site.code.arch.family).get(site.name)
    if operation is None:
        return None
    modifiers = {"": VECTOR_MODIFIERS, "e32": VECTOR_MODIFIERS, "e64": VECTOR_MODIFIERS}
    modifiers |= {"sdwa": VECTOR_MODIFIERS | SDWA_MODIFIERS, "dpp": VECTOR_MODIFIERS | DPP_MODIFIERS}
    modifiers["e64_dpp"] = modifiers["dpp"]
    if site.instruction.encoding not in modifiers:
        raise site.unknown(f"the encoding {site.instruction.encoding}")
    site.check_modifiers(modifiers[site.instruction.encoding])
    if site.has_clamp() and not operation.result.startswith("f"):
        if site.name not in SATURATED:
            raise site.unknown(f"clamp of {site.instruction.mnemonic}")
        return SATURATED[site.name]
    return operation


@dataclass(frozen=True, slots=True)
class VectorOperation:
    """An instruction in two parts: computing the result and writing it."""

    compute: Callable[[WaveGroup], Array]
    write: Writer


def plan_operation(site: InstructionContext, operation: Operation, mode: FloatMode = KEPT) -> VectorOperation:
    """Return the two parts of an instruction without a second destination."""
    lanes = read_lane_map(site)
    sources = make_sources(site, operation, site.instruction.operands[1:], lanes, mode)
    return VectorOperation(
        _make_computation(site, operation, sources, mode), make_register_writer(site, operation.result, lanes)
    )


def _make_computation(
    site: InstructionContext, operation: Operation, sources: tuple[Getter, ...], mode: FloatMode
) -> Callable[[WaveGroup], Array]:
    function = make_function(choose_expression(operation, mode.limits), len(sources))
    integer_clamp = site.has_clamp() and not operation.result.startswith("f")
    finish = None if integer_clamp else make_finisher(site, operation.result, mode)
    flush = operation.result in mode.results
    compute = apply_function(function, sources)
    if finish is None and not flush:
        return compute

    def compute_result(group: WaveGroup) -> Array:
        values = compute(group)
        if finish is not None:
            values = finish(values)
        return flush_subnormals(values) if flush else values

    return compute_result


def make_sources(
    site: InstructionContext,
    operation: Operation,
    operands: tuple[Operand, ...],
    lanes: LaneMap | None = None,
    mode: FloatMode = KEPT,
) -> tuple[Getter, ...]:
    """Make the sources of an operation from the operands after the destinations."""
    getters = []
    for source in match_sources(site, operation, operands):
        if source.kind == "mask":
            getters.append(make_mask_source(site, source.operand))
            continue
        getter = _make_source(site, source.required_operand, source.kind, source.number, lanes)
        getters.append(_flush_source(getter) if source.kind in mode.sources else getter)
    return tuple(getters)


def _flush_source(getter: Getter) -> Getter:
    return lambda group: flush_subnormals(getter(group))


def _make_source(site: InstructionContext, operand: Operand, kind: str, number: int, lanes: LaneMap | None) -> Getter:
    """Make source `number`; -1 is the old value of the destination."""
    if number >= 0 and site.instruction.encoding == "sdwa" and number < 2:
        if TYPES[kind].itemsize == 1:  # conversions of 8-bit floats select a byte
            return make_vector_source(site, operand, kind, None, _find_byte_offset(site))
        return make_sdwa_source(site, operand, kind, number)
    moved = lanes if number == 0 else None
    return make_vector_source(site, operand, kind, moved, find_first_bit(site, kind, number))


def _find_byte_offset(site: InstructionContext) -> int:
    name = site.get_word("src0_sel", "BYTE_0")
    if not name.startswith("BYTE_"):
        raise site.unknown(f"the selection {name} of a byte")
    return 8 * int(name[5:])


def find_first_bit(site: InstructionContext, kind: str, number: int) -> int | None:
    """Return the first bit that op_sel or byte_sel selects; None if they do not apply."""
    size = TYPES[kind].itemsize
    picks = site.get_bits("op_sel", 4)
    if number < 0:
        return None
    if site.name.startswith("v_cvt_scalef32_"):  # the first source has both bits of a byte's index
        return 8 * (picks[0] + 2 * picks[1]) if size == 1 else 16 * picks[number] if size == 2 else None
    if size == 1:
        if any(picks):
            raise site.unknown(f"op_sel of {site.instruction.mnemonic}")
        return 8 * site.get_number("byte_sel")
    if size == 2:
        return 16 * picks[number]
    if picks[number] and not site.name.startswith("v_cvt_sr"):
        raise site.unknown(f"op_sel of a source of {8 * size} bits")
    return None


def _make_step(site: InstructionContext, operation: Operation, mode: FloatMode) -> Step:
    if operation.second:
        return _make_two_result_step(site, operation, mode)
    if (quick := _make_direct_step(site, operation, mode)) is not None:
        return quick
    both = plan_operation(site, operation, mode)
    compute, write = both.compute, both.write

    def execute(group: WaveGroup) -> None:
        write(group, compute(group))

    return execute


def _make_direct_step(site: InstructionContext, operation: Operation, mode: FloatMode) -> Step | None:
    """Make a step of one ufunc that writes directly to the destination, if that is possible."""
    single = find_direct_ufunc(operation)
    kind = operation.result
    if single is None or len(single.order) != 2 or kind not in ("u32", "i32", "f32") or mode != KEPT:
        return None
    if site.instruction.modifiers or site.instruction.encoding not in ("", "e32", "e64"):
        return None
    register = site.vector_destination()
    sources = make_sources(site, operation, site.instruction.operands[1:])
    ufunc = single.ufunc
    first, second = (sources[number] for number in single.order)
    if kind == "f32":

        def execute_float(group: WaveGroup) -> None:
            if group.full:
                ufunc(first(group), second(group), out=group.vf[register])
            else:
                write_masked(group.vf[register], ufunc(first(group), second(group)), group.exec_mask)

        return execute_float
    if kind == "i32":

        def execute_signed(group: WaveGroup) -> None:
            if group.full:
                ufunc(first(group), second(group), out=group.vi[register])
            else:
                write_masked(group.vi[register], ufunc(first(group), second(group)), group.exec_mask)

        return execute_signed

    def execute(group: WaveGroup) -> None:
        if group.full:
            ufunc(first(group), second(group), out=group.v[register])
        else:
            write_masked(group.v[register], ufunc(first(group), second(group)), group.exec_mask)

    return execute


def _make_two_result_step(site: InstructionContext, operation: Operation, mode: FloatMode) -> Step:
    """Make a step that also writes a lane mask: a carry, or whether v_div_scale scaled."""
    operands = site.instruction.operands
    if len(operands) < 3:
        raise site.unknown(f"too few operands of {site.instruction.mnemonic}")
    lanes = read_lane_map(site)
    if lanes is not None and not (lanes.zero and lanes.enabled.all()):
        raise site.unknown(f"lanes of {site.instruction.mnemonic} that are not written")
    if (
        (site.has_clamp() and operation.result.startswith("f"))
        or "mul" in site.instruction.modifiers
        or "div" in site.instruction.modifiers
    ):
        raise site.unknown(f"an output modifier of {site.instruction.mnemonic}")
    sources = make_sources(site, operation, operands[2:], lanes, mode)
    write, write_mask = make_register_writer(site, operation.result, lanes), make_mask_writer(site, operands[1])
    function = make_function(choose_expression(operation, mode.limits), len(sources))
    second = make_function(operation.second, len(sources), "r")
    flush = operation.result in mode.results
    kind = TYPES[operation.result]

    def execute(group: WaveGroup) -> None:
        values = [source(group) for source in sources]
        result = function(*values).astype(kind, copy=False)
        mask = second(*values, result)
        write(group, flush_subnormals(result) if flush else result)
        write_mask(group, mask)

    return execute


def _translate_comparison(site: InstructionContext, operation: Operation) -> Step:
    site.check_modifiers(DPP_MODIFIERS, SDWA_MODIFIERS, frozenset({"op_sel", "clamp"}))
    return make_mode_step(site, operation.sources, lambda mode: _make_compare_step(site, operation, mode))


def _make_compare_step(site: InstructionContext, operation: Operation, mode: FloatMode) -> Step:
    operands = site.instruction.operands
    changes_exec = site.name.startswith("v_cmpx")
    # On gfx10 and later v_cmpx writes only exec and has no destination operand.
    destination = operands[0] if len(operands) == 3 else None
    if destination is None and not changes_exec:
        destination = Operand("s", VCC, site.code.lanes // 32)
    lanes = read_lane_map(site)
    if lanes is not None and not (lanes.zero and lanes.enabled.all()):
        raise site.unknown(f"lanes of {site.instruction.mnemonic} that are not written")
    if "_class_" in site.name:
        mode = KEPT  # class tests distinguish subnormal numbers in every mode
    sources = make_sources(site, operation, operands[-2:], lanes, mode)
    compute = apply_function(make_function(operation.expression, len(sources)), sources)
    write = make_mask_writer(site, destination) if destination is not None else None

    def execute(group: WaveGroup) -> None:
        mask = compute(group)
        if mask.shape != group.exec_mask.shape:
            mask = np.broadcast_to(mask, group.exec_mask.shape)
        if write is not None:
            write(group, mask)
        if changes_exec and not (destination is not None and destination.index == EXEC):
            group.set_mask(EXEC, mask & group.exec_mask)
            group.update_exec_mask()

    return execute
