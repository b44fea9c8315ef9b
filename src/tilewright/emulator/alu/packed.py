"""Packed instructions: two elements at a time, dot products, and f16 mixed with f32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.alu import pairing
from tilewright.emulator.alu.float_mode import Subnormal, step_by_mode
from tilewright.emulator.alu.operands import Getter, applied, vector_source
from tilewright.emulator.alu.results import finisher, put, register_writer
from tilewright.emulator.alu.site import PACKED_MODIFIERS, Site
from tilewright.emulator.group import Group, Step
from tilewright.emulator.instruction import Operand
from tilewright.emulator.isa.arrays import TYPES, Array
from tilewright.emulator.isa.float_functions import flushed
from tilewright.emulator.isa.numpy_form import function_of
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.packed import dot_signed
from tilewright.emulator.isa.table import DOT, PACKED, SATURATED_PACKED, VECTOR

DOTS = DOT
_MIXED = frozenset({"v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"})


def translate_packed(site: Site) -> Step | None:
    """Return the step of a packed instruction; None for other instructions."""
    if site.name == "v_pk_mov_b32":
        return _move_pair(site)
    if site.name in PACKED:
        site.check(PACKED_MODIFIERS)
        operation = _element(site)
        make = _pair_step if operation.result == "f32" else _halves_step
        kinds = (*operation.sources, operation.result)
        return step_by_mode(site, kinds, lambda subnormal: make(site, operation, subnormal))
    if site.name in _MIXED:
        site.check(PACKED_MODIFIERS)
        return step_by_mode(site, ("f32", "f16"), lambda subnormal: _mixed_step(site, subnormal))
    dot = DOT.get(site.name) or dot_signed(site.name, *map(bool, site.bits("neg_lo", 3)[:2]))
    if dot is None:
        return None
    site.check(PACKED_MODIFIERS)
    return step_by_mode(site, dot.sources, lambda subnormal: _dot_step(site, dot, subnormal))


def _element(site: Site) -> Operation:
    if site.clamps() and not PACKED[site.name].result.startswith("f"):
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


def _picks(site: Site, count: int, high: int = 1) -> list[_Picks]:
    lists = (
        site.bits("op_sel", count),
        site.bits("op_sel_hi", count, high),
        site.bits("neg_lo", count),
        site.bits("neg_hi", count),
    )
    return [_Picks(*four) for four in zip(*lists, strict=True)]


def _source_operands(site: Site, operation: Operation) -> list[Operand]:
    return [source.given for source in pairing.sources_of(site, operation, site.instruction.operands[1:])]


def _negated(getter: Getter, kind: str, negate: int) -> Getter:
    if not negate:
        return getter
    if kind.startswith("f"):
        return lambda group: np.negative(getter(group))
    sign = np.uint16(0x8000)
    return lambda group: (getter(group).view(np.uint16) ^ sign).view(TYPES[kind])


def _flushing(getter: Getter, kind: str, subnormal: Subnormal) -> Getter:
    return (lambda group: flushed(getter(group))) if kind in subnormal.sources else getter


def _element_functions(
    site: Site, operation: Operation, subnormal: Subnormal, read: Callable[[Operand, str, int], Getter]
) -> tuple[Callable[[Group], Array], Callable[[Group], Array]]:
    """Return the functions that compute the lower and the upper result."""
    operands = _source_operands(site, operation)
    picks = _picks(site, len(operands))
    function = function_of(operation.expression, len(operands))
    finish = finisher(site, operation.result) if operation.result.startswith("f") else None
    flush = operation.result in subnormal.results
    results = []
    for upper in (False, True):
        sources = []
        for operand, kind_text, pick in zip(operands, operation.sources, picks, strict=True):
            kind = kind_text.removeprefix("old ")
            part = int(upper) if kind_text != kind else pick.high if upper else pick.low
            getter = _negated(read(operand, kind, part), kind, pick.negate_high if upper else pick.negate_low)
            sources.append(_flushing(getter, kind, subnormal))
        results.append(_finished(applied(function, tuple(sources)), finish, flush))
    return results[0], results[1]


def _finished(
    compute: Callable[[Group], Array], finish: Callable[[Array], Array] | None, flush: bool
) -> Callable[[Group], Array]:
    if finish is None and not flush:
        return compute

    def finished(group: Group) -> Array:
        values = compute(group)
        values = values if finish is None else finish(values)
        return flushed(values) if flush else values

    return finished


def _halves_step(site: Site, operation: Operation, subnormal: Subnormal) -> Step:
    """Make a step for two elements of 16 bits in each register."""
    target = site.vector_destination()
    dtype = TYPES[operation.result]
    low, high = _element_functions(
        site, operation, subnormal, lambda operand, kind, part: vector_source(site, operand, kind, None, 16 * part)
    )

    def step(group: Group) -> None:
        # Compute both before the register, which may be a source, changes.
        first, second = low(group), high(group)
        halves = group.v[target].view(dtype)
        if group.full:
            halves[:, 1::2] = second
            halves[:, 0::2] = first
        else:
            put(halves[:, 1::2], second, group.exec_mask)
            put(halves[:, 0::2], first, group.exec_mask)

    return step


def _register_of_pair(site: Site, operand: Operand, part: int) -> Operand:
    """Return one of the two registers of an operand; a constant serves as both."""
    if operand.kind == "const":
        return operand
    if operand.kind not in ("v", "a", "s") or operand.count != 2:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return Operand(operand.kind, operand.index + part, 1, negated=operand.negated, absolute=operand.absolute)


def _pair_step(site: Site, operation: Operation, subnormal: Subnormal) -> Step:
    """Make a step for two elements of 32 bits in each pair of registers."""
    target = site.vector_destination(2)
    low, high = _element_functions(
        site,
        operation,
        subnormal,
        lambda operand, kind, part: vector_source(site, _register_of_pair(site, operand, part), kind, None, None),
    )

    def step(group: Group) -> None:
        first, second = low(group), high(group)
        if group.full:
            group.vf[target][...] = first
            group.vf[target + 1][...] = second
        else:
            put(group.vf[target], first, group.exec_mask)
            put(group.vf[target + 1], second, group.exec_mask)

    return step


def _move_pair(site: Site) -> Step:
    """v_pk_mov_b32: the lower register comes from the first source, the upper one from the second."""
    site.check(frozenset({"op_sel"}))
    if len(site.instruction.operands) != 3:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    target = site.vector_destination(2)
    low, high = (
        vector_source(site, _register_of_pair(site, operand, part), "u32", None, None)
        for operand, part in zip(site.instruction.operands[1:], site.bits("op_sel", 2), strict=True)
    )

    def step(group: Group) -> None:
        first, second = np.array(low(group)), np.array(high(group))
        group.write(target, first)
        group.write(target + 1, second)

    return step


def _mixed_step(site: Site, subnormal: Subnormal) -> Step:
    """v_fma_mix: op_sel_hi selects f16 sources, op_sel the half of the register that holds them."""
    if len(site.instruction.operands) != 4:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    sources = []
    for operand, pick in zip(site.instruction.operands[1:], _picks(site, 3, 0), strict=True):
        if pick.negate_low or pick.negate_high:
            raise site.unknown("neg_lo or neg_hi of " + site.instruction.mnemonic)
        kind = "f16" if pick.high else "f32"
        if pick.low and not pick.high:
            raise site.unknown("op_sel of an f32 source of " + site.instruction.mnemonic)
        getter = _flushing(
            vector_source(site, operand, kind, None, 16 * pick.low if pick.high else None), kind, subnormal
        )
        sources.append(_single(getter) if pick.high else getter)
    compute = applied(function_of(VECTOR["v_fma_f32"].expression, 3), tuple(sources))
    finish = finisher(site, "f32")
    result = "f32" if site.name == "v_fma_mix_f32" else "f16"
    finished = _finished(compute, finish, "f32" in subnormal.results)
    if result == "f32":
        write = register_writer(site, "f32", None)
        return lambda group: write(group, finished(group))
    target, part = site.vector_destination(), int(site.name == "v_fma_mixhi_f16")
    flush = "f16" in subnormal.results

    def step(group: Group) -> None:
        values = finished(group).astype(np.float16)
        half = group.v[target].view(np.float16)[:, part::2]
        np.copyto(half, flushed(values) if flush else values, where=group.exec_mask)

    return step


def _single(getter: Getter) -> Getter:
    return lambda group: getter(group).astype(np.float32)


def _dot_step(site: Site, operation: Operation, subnormal: Subnormal) -> Step:
    operands = _source_operands(site, operation)
    integer = not operation.result.startswith("f")
    if site.clamps() and integer:
        raise site.unknown(f"clamp of {site.instruction.mnemonic}")
    signedness = site.name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4")
    sources = []
    for number, (operand, kind, pick) in enumerate(
        zip(operands, operation.sources, _picks(site, len(operands)), strict=True)
    ):
        plain = (pick.low, pick.high) == (0, 1) and not (pick.negate_low and not signedness) and not pick.negate_high
        if number < 2 and not integer and not plain:
            getter = _rearranged(site, operand, pick)
        elif not plain and not (number == 2 and pick.high == 0):
            raise site.unknown(f"op_sel or a sign modifier of {site.instruction.mnemonic}")
        else:
            getter = _dword(site, operand, kind.removeprefix("old "))
        sources.append(_flushing(getter, kind.removeprefix("old "), subnormal))
    compute = applied(function_of(operation.expression, 3), tuple(sources))
    finish = finisher(site, operation.result) if not integer else None
    finished = _finished(compute, finish, operation.result in subnormal.results)
    write = register_writer(site, operation.result, None)
    return lambda group: write(group, finished(group))


def _dword(site: Site, operand: Operand, kind: str) -> Getter:
    if operand.kind == "const" and kind == "u32" and isinstance(operand.value, float):
        raise site.unknown(f"the constant {operand.value} as packed numbers")
    return vector_source(site, operand, kind, None, None)


def _rearranged(site: Site, operand: Operand, pick: _Picks) -> Getter:
    """Make a source from selected and negated halves of a register."""
    low, high = (vector_source(site, operand, "u16", None, 16 * part) for part in (pick.low, pick.high))
    signs = np.uint32(0x8000 * pick.negate_low + 0x80000000 * pick.negate_high)

    def rearranged(group: Group) -> Array:
        return (low(group).astype(np.uint32) | (high(group).astype(np.uint32) << np.uint32(16))) ^ signs

    return rearranged
