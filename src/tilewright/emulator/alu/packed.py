"""Packed instructions (two elements at a time, dot products, f16 mixed with f32) and dual instructions (VOPD)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.emulator.alu.float_mode import FloatMode, make_mode_step
from tilewright.emulator.alu.instruction_context import PACKED_MODIFIERS, InstructionContext
from tilewright.emulator.alu.operands import Getter, apply_function, make_vector_source, match_sources
from tilewright.emulator.alu.results import make_finisher, make_register_writer, write_masked
from tilewright.emulator.alu.vector import find_vector_operation, plan_operation
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.isa.float_functions import flush_subnormals, limit_f16
from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.isa.numpy_form import make_function
from tilewright.emulator.isa.operation import TYPES, Array, Operation, choose_expression
from tilewright.emulator.isa.packed import DOT, PACKED, SATURATED_PACKED, SMALL_DOTS, find_signed_dot
from tilewright.emulator.isa.table import VECTOR

MIXED = frozenset({"v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"})


def translate_packed(site: InstructionContext) -> Step | None:
    """Return the step of a packed instruction; None for other instructions."""
    if site.name == "v_pk_mov_b32":
        return _move_pair(site)
    if site.name in PACKED:
        site.check_modifiers(PACKED_MODIFIERS)
        operation = _choose_operation(site)
        make = _make_pair_step if operation.result == "f32" else _make_halves_step
        kinds = (*operation.sources, operation.result)
        return make_mode_step(site, kinds, lambda mode: make(site, operation, mode))
    if site.name in MIXED:
        site.check_modifiers(PACKED_MODIFIERS)
        return make_mode_step(site, ("f32", "f16"), lambda mode: _make_mixed_step(site, mode))
    dot = DOT.get(site.name) or find_signed_dot(site.name, *map(bool, site.get_bits("neg_lo", 3)[:2]))
    if dot is None:
        return None
    site.check_modifiers(PACKED_MODIFIERS)
    return make_mode_step(site, (*dot.sources, dot.result), lambda mode: _make_dot_step(site, dot, mode))


def _choose_operation(site: InstructionContext) -> Operation:
    if site.has_clamp() and not PACKED[site.name].result.startswith("f"):
        if site.name not in SATURATED_PACKED:
            raise site.unknown(f"clamp of {site.instruction.mnemonic}")
        return SATURATED_PACKED[site.name]
    return PACKED[site.name]


@dataclass(frozen=True, slots=True)
class _Picks:
    """The modifiers of one source: which element each result uses, and which is negated."""

    low: int
    high: int
    negate_low: int
    negate_high: int


def _read_picks(site: InstructionContext, count: int, high: int = 1) -> list[_Picks]:
    lists = (
        site.get_bits("op_sel", count),
        site.get_bits("op_sel_hi", count, high),
        site.get_bits("neg_lo", count),
        site.get_bits("neg_hi", count),
    )
    return [_Picks(*four) for four in zip(*lists, strict=True)]


def _list_source_operands(site: InstructionContext, operation: Operation) -> list[Operand]:
    return [source.required_operand for source in match_sources(site, operation, site.instruction.operands[1:])]


def _apply_negation(getter: Getter, kind: str, negate: int) -> Getter:
    if not negate:
        return getter
    if kind.startswith("f"):
        return lambda group: np.negative(getter(group))
    sign = np.uint16(0x8000)
    return lambda group: (getter(group).view(np.uint16) ^ sign).view(TYPES[kind])


def _flush_source(getter: Getter, kind: str, mode: FloatMode) -> Getter:
    return (lambda group: flush_subnormals(getter(group))) if kind in mode.sources else getter


def _make_element_functions(
    site: InstructionContext,
    operation: Operation,
    mode: FloatMode,
    read: Callable[[Operand, str, int], Getter],
) -> tuple[Callable[[WaveGroup], Array], Callable[[WaveGroup], Array]]:
    """Return the functions that compute the lower and the upper result."""
    operands = _list_source_operands(site, operation)
    picks = _read_picks(site, len(operands))
    function = make_function(choose_expression(operation, mode.limits), len(operands))
    finish = make_finisher(site, operation.result, mode) if operation.result.startswith("f") else None
    flush = operation.result in mode.results
    results = []
    for upper in (False, True):
        sources = []
        for operand, kind_text, pick in zip(operands, operation.sources, picks, strict=True):
            kind = kind_text.removeprefix("old ")
            part = int(upper) if kind_text != kind else pick.high if upper else pick.low
            getter = _apply_negation(read(operand, kind, part), kind, pick.negate_high if upper else pick.negate_low)
            sources.append(_flush_source(getter, kind, mode))
        results.append(_wrap_finish(apply_function(function, tuple(sources)), finish, flush))
    return results[0], results[1]


def _wrap_finish(
    compute: Callable[[WaveGroup], Array], finish: Callable[[Array], Array] | None, flush: bool
) -> Callable[[WaveGroup], Array]:
    if finish is None and not flush:
        return compute

    def compute_result(group: WaveGroup) -> Array:
        values = compute(group)
        values = values if finish is None else finish(values)
        return flush_subnormals(values) if flush else values

    return compute_result


def _make_halves_step(site: InstructionContext, operation: Operation, mode: FloatMode) -> Step:
    """Make a step for two elements of 16 bits in each register."""
    target = site.vector_destination()
    dtype = TYPES[operation.result]
    low, high = _make_element_functions(
        site, operation, mode, lambda operand, kind, part: make_vector_source(site, operand, kind, None, 16 * part)
    )

    def execute(group: WaveGroup) -> None:
        # Compute both before the register, which may be a source, changes.
        first, second = low(group), high(group)
        halves = group.v[target].view(dtype)
        if group.full:
            halves[:, 1::2] = second
            halves[:, 0::2] = first
        else:
            write_masked(halves[:, 1::2], second, group.exec_mask)
            write_masked(halves[:, 0::2], first, group.exec_mask)

    return execute


def _select_register(site: InstructionContext, operand: Operand, part: int) -> Operand:
    """Return one of the two registers of an operand; a constant serves as both."""
    if operand.kind == "const":
        return operand
    if operand.kind not in ("v", "a", "s") or operand.count != 2:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return Operand(operand.kind, operand.index + part, 1, negated=operand.negated, absolute=operand.absolute)


def _make_pair_step(site: InstructionContext, operation: Operation, mode: FloatMode) -> Step:
    """Make a step for two elements of 32 bits in each pair of registers."""
    target = site.vector_destination(2)
    low, high = _make_element_functions(
        site,
        operation,
        mode,
        lambda operand, kind, part: make_vector_source(site, _select_register(site, operand, part), kind, None, None),
    )

    def execute(group: WaveGroup) -> None:
        first, second = low(group), high(group)
        if group.full:
            group.vf[target][...] = first
            group.vf[target + 1][...] = second
        else:
            write_masked(group.vf[target], first, group.exec_mask)
            write_masked(group.vf[target + 1], second, group.exec_mask)

    return execute


def _move_pair(site: InstructionContext) -> Step:
    """v_pk_mov_b32: the lower register comes from the first source, the upper one from the second."""
    site.check_modifiers(frozenset({"op_sel"}))
    if len(site.instruction.operands) != 3:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    target = site.vector_destination(2)
    low, high = (
        make_vector_source(site, _select_register(site, operand, part), "u32", None, None)
        for operand, part in zip(site.instruction.operands[1:], site.get_bits("op_sel", 2), strict=True)
    )

    def execute(group: WaveGroup) -> None:
        first, second = np.array(low(group)), np.array(high(group))
        group.write(target, first)
        group.write(target + 1, second)

    return execute


def _make_mixed_step(site: InstructionContext, mode: FloatMode) -> Step:
    """v_fma_mix: op_sel_hi selects f16 sources, op_sel the half of the register that holds them."""
    if len(site.instruction.operands) != 4:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    sources = []
    for operand, pick in zip(site.instruction.operands[1:], _read_picks(site, 3, 0), strict=True):
        if pick.negate_low or pick.negate_high:
            raise site.unknown("neg_lo or neg_hi of " + site.instruction.mnemonic)
        kind = "f16" if pick.high else "f32"
        if pick.low and not pick.high:
            raise site.unknown("op_sel of an f32 source of " + site.instruction.mnemonic)
        getter = _flush_source(
            make_vector_source(site, operand, kind, None, 16 * pick.low if pick.high else None), kind, mode
        )
        sources.append(_to_single(getter) if pick.high else getter)
    compute = apply_function(make_function(VECTOR["v_fma_f32"].expression, 3), tuple(sources))
    finish = make_finisher(site, "f32", mode)
    result = "f32" if site.name == "v_fma_mix_f32" else "f16"
    finished = _wrap_finish(compute, finish, "f32" in mode.results)
    if result == "f32":
        write = make_register_writer(site, "f32", None)
        return lambda group: write(group, finished(group))
    target, part = site.vector_destination(), int(site.name == "v_fma_mixhi_f16")
    flush = "f16" in mode.results

    def execute(group: WaveGroup) -> None:
        single = finished(group)
        values = single.astype(np.float16)
        if mode.limits:
            values = limit_f16(values, np.isfinite(single))
        half = group.v[target].view(np.float16)[:, part::2]
        np.copyto(half, flush_subnormals(values) if flush else values, where=group.exec_mask)

    return execute


def _to_single(getter: Getter) -> Getter:
    return lambda group: getter(group).astype(np.float32)


def list_dot_operands(site: InstructionContext, operation: Operation) -> list[Operand]:
    """Return the sources of a dot product; those of 8-bit floats with the sign modifiers of the last one."""
    operands = [source.required_operand for source in match_sources(site, operation, site.instruction.operands[1:])]
    if site.name in SMALL_DOTS:
        (*low, negated), (*high, absolute) = site.get_bits("neg_lo", 3), site.get_bits("neg_hi", 3)
        if any((*low, *high, *site.get_bits("op_sel", 3))) or not all(site.get_bits("op_sel_hi", 3, 1)[:2]):
            raise site.unknown(f"op_sel or a sign modifier of {site.instruction.mnemonic}")
        operands[2] = replace(operands[2], negated=bool(negated), absolute=bool(absolute))
    return operands


def _make_dot_step(site: InstructionContext, operation: Operation, mode: FloatMode) -> Step:
    operands = list_dot_operands(site, operation)
    integer = not operation.result.startswith("f")
    if site.has_clamp() and integer:
        raise site.unknown(f"clamp of {site.instruction.mnemonic}")
    signedness = site.name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4")
    sources = []
    for number, (operand, kind, pick) in enumerate(
        zip(operands, operation.sources, _read_picks(site, len(operands)), strict=True)
    ):
        plain = (pick.low, pick.high) == (0, 1) and not (pick.negate_low and not signedness) and not pick.negate_high
        plain = plain or site.name in SMALL_DOTS
        if number < 2 and not integer and not plain:
            getter = _make_rearranged_source(site, operand, pick)
        elif not plain and not (number == 2 and pick.high == 0):
            raise site.unknown(f"op_sel or a sign modifier of {site.instruction.mnemonic}")
        else:
            getter = _make_dword_source(site, operand, kind.removeprefix("old "))
        sources.append(_flush_source(getter, kind.removeprefix("old "), mode))
    compute = apply_function(make_function(choose_expression(operation, mode.limits), 3), tuple(sources))
    finish = make_finisher(site, operation.result, mode) if not integer else None
    finished = _wrap_finish(compute, finish, operation.result in mode.results)
    write = make_register_writer(site, operation.result, None)
    return lambda group: write(group, finished(group))


def _make_dword_source(site: InstructionContext, operand: Operand, kind: str) -> Getter:
    if operand.kind == "const" and kind == "u32" and isinstance(operand.value, float):
        raise site.unknown(f"the constant {operand.value} as packed numbers")
    return make_vector_source(site, operand, kind, None, None)


def _make_rearranged_source(site: InstructionContext, operand: Operand, pick: _Picks) -> Getter:
    """Make a source from selected and negated halves of a register."""
    low, high = (make_vector_source(site, operand, "u16", None, 16 * part) for part in (pick.low, pick.high))
    signs = np.uint32(0x8000 * pick.negate_low + 0x80000000 * pick.negate_high)

    def rearrange_halves(group: WaveGroup) -> Array:
        return (low(group).astype(np.uint32) | (high(group).astype(np.uint32) << np.uint32(16))) ^ signs

    return rearrange_halves


def translate_dual(instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of two vector instructions issued as one (VOPD): both read before either writes."""
    halves = [_read_dual_half(half, code) for half in (instruction, instruction.other) if half is not None]
    kinds = [kind for _, operation in halves for kind in (*operation.sources, operation.result)]
    return make_mode_step(halves[0][0], kinds, lambda mode: _make_dual_step(halves, mode))


def _read_dual_half(instruction: Instruction, code: LoadedCode) -> tuple[InstructionContext, Operation]:
    name = normalize_name(instruction.mnemonic.replace("v_dual_", "v_"))
    site = InstructionContext(instruction, code, name)
    site.check_modifiers()
    operation = DOT.get(name) or find_vector_operation(site)
    if operation is None or operation.second or not instruction.mnemonic.startswith("v_dual_"):
        raise site.unknown(f"the half {instruction.mnemonic} of a pair")
    return site, operation


def _make_dual_step(halves: list[tuple[InstructionContext, Operation]], mode: FloatMode) -> Step:
    (first, second) = (plan_operation(site, operation, mode) for site, operation in halves)

    def execute(group: WaveGroup) -> None:
        # A move returns the register itself: copy it before the other half writes to it.
        one, other = np.array(first.compute(group)), np.array(second.compute(group))
        first.write(group, one)
        second.write(group, other)

    return execute
