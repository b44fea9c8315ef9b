"""Vector instructions that apply one operation of the table in every lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.alu import pairing
from tilewright.emulator.alu.float_mode import KEPT, Subnormal, step_by_mode
from tilewright.emulator.alu.lanes import LaneMap, lane_map
from tilewright.emulator.alu.operands import Getter, applied, mask_source, sdwa_source, vector_source
from tilewright.emulator.alu.results import Writer, finisher, mask_writer, put, register_writer
from tilewright.emulator.alu.site import DPP_MODIFIERS, SDWA_MODIFIERS, VECTOR_MODIFIERS, Site
from tilewright.emulator.group import Group, Step
from tilewright.emulator.instruction import EXEC, VCC, Operand
from tilewright.emulator.isa.arrays import TYPES, Array
from tilewright.emulator.isa.bitop import bitop3
from tilewright.emulator.isa.float_functions import flushed
from tilewright.emulator.isa.numpy_form import direct, function_of
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.table import COMPARE, SATURATED, vector_operations


def translate_vector(site: Site) -> Step | None:
    """Return the step of an instruction in the tables VECTOR and COMPARE; None for other instructions."""
    if site.name == "v_nop":
        site.check()
        return lambda _group: None
    if site.name in COMPARE:
        return _comparison(site, COMPARE[site.name])
    operation = vector_operation(site)
    if operation is None:
        return None
    kinds = (*operation.sources, operation.result)
    return step_by_mode(site, kinds, lambda subnormal: _step(site, operation, subnormal))


def vector_operation(site: Site) -> Operation | None:
    """Return the operation of an instruction, as changed by its modifiers."""
    if site.name in ("v_bitop3_b32", "v_bitop3_b16"):
        site.check(frozenset({"bitop3", "op_sel"}))
        return bitop3(site.number("bitop3"), "u32" if site.name.endswith("32") else "u16")
    operation = vector_operations(site.code.arch.numbers.fp8).get(site.name)
    if operation is None:
        return None
    modifiers = {"": VECTOR_MODIFIERS, "e32": VECTOR_MODIFIERS, "e64": VECTOR_MODIFIERS}
    modifiers |= {"sdwa": VECTOR_MODIFIERS | SDWA_MODIFIERS, "dpp": VECTOR_MODIFIERS | DPP_MODIFIERS}
    modifiers["e64_dpp"] = modifiers["dpp"]
    if site.instruction.encoding not in modifiers:
        raise site.unknown(f"the encoding {site.instruction.encoding}")
    site.check(modifiers[site.instruction.encoding])
    if site.clamps() and not operation.result.startswith("f"):
        if site.name not in SATURATED:
            raise site.unknown(f"clamp of {site.instruction.mnemonic}")
        return SATURATED[site.name]
    return operation


@dataclass(frozen=True, slots=True)
class Plan:
    """An instruction in two parts: computing the result and writing it."""

    compute: Callable[[Group], Array]
    write: Writer


def plan(site: Site, operation: Operation, subnormal: Subnormal = KEPT) -> Plan:
    """Return the two parts of an instruction without a second destination."""
    lanes = lane_map(site)
    sources = sources_of(site, operation, site.instruction.operands[1:], lanes, subnormal)
    return Plan(_computation(site, operation, sources, subnormal), register_writer(site, operation.result, lanes))


def _computation(
    site: Site, operation: Operation, sources: tuple[Getter, ...], subnormal: Subnormal
) -> Callable[[Group], Array]:
    function = function_of(operation.expression, len(sources))
    integer_clamp = site.clamps() and not operation.result.startswith("f")
    finish = None if integer_clamp else finisher(site, operation.result)
    flush = operation.result in subnormal.results
    compute = applied(function, sources)
    if finish is None and not flush:
        return compute

    def finished(group: Group) -> Array:
        values = compute(group)
        if finish is not None:
            values = finish(values)
        return flushed(values) if flush else values

    return finished


def sources_of(
    site: Site,
    operation: Operation,
    operands: tuple[Operand, ...],
    lanes: LaneMap | None = None,
    subnormal: Subnormal = KEPT,
) -> tuple[Getter, ...]:
    """Make the sources of an operation from the operands after the destinations."""
    getters = []
    for source in pairing.sources_of(site, operation, operands):
        if source.kind == "mask":
            getters.append(mask_source(site, source.operand))
            continue
        getter = _source(site, source.given, source.kind, source.number, lanes)
        getters.append(_flushing(getter) if source.kind in subnormal.sources else getter)
    return tuple(getters)


def _flushing(getter: Getter) -> Getter:
    return lambda group: flushed(getter(group))


def _source(site: Site, operand: Operand, kind: str, number: int, lanes: LaneMap | None) -> Getter:
    """Make source `number`; -1 is the old value of the destination."""
    if number >= 0 and site.instruction.encoding == "sdwa" and number < 2:
        if TYPES[kind].itemsize == 1:  # conversions of 8-bit floats select a byte
            return vector_source(site, operand, kind, None, _byte(site))
        return sdwa_source(site, operand, kind, number)
    moved = lanes if number == 0 else None
    return vector_source(site, operand, kind, moved, first_bit_of(site, kind, number))


def _byte(site: Site) -> int:
    name = site.word("src0_sel", "BYTE_0")
    if not name.startswith("BYTE_"):
        raise site.unknown(f"the selection {name} of a byte")
    return 8 * int(name[5:])


def first_bit_of(site: Site, kind: str, number: int) -> int | None:
    """Return the first bit that op_sel or byte_sel selects; None if they do not apply."""
    size = TYPES[kind].itemsize
    picks = site.bits("op_sel", 4)
    if number < 0:
        return None
    if size == 1:
        if any(picks):
            raise site.unknown(f"op_sel of {site.instruction.mnemonic}")
        return 8 * site.number("byte_sel")
    if size == 2:
        return 16 * picks[number]
    if picks[number] and not site.name.startswith("v_cvt_sr"):
        raise site.unknown(f"op_sel of a source of {8 * size} bits")
    return None


def _step(site: Site, operation: Operation, subnormal: Subnormal) -> Step:
    if operation.second:
        return _with_second(site, operation, subnormal)
    if (quick := _direct_step(site, operation, subnormal)) is not None:
        return quick
    both = plan(site, operation, subnormal)
    compute, write = both.compute, both.write

    def step(group: Group) -> None:
        write(group, compute(group))

    return step


def _direct_step(site: Site, operation: Operation, subnormal: Subnormal) -> Step | None:
    """Make a step of one ufunc that writes directly to the destination, if that is possible."""
    single = direct(operation)
    kind = operation.result
    if single is None or len(single.order) != 2 or kind not in ("u32", "i32", "f32") or subnormal != KEPT:
        return None
    if site.instruction.modifiers or site.instruction.encoding not in ("", "e32", "e64"):
        return None
    register = site.vector_destination()
    sources = sources_of(site, operation, site.instruction.operands[1:])
    ufunc = single.ufunc
    first, second = (sources[number] for number in single.order)
    if kind == "f32":

        def float_step(group: Group) -> None:
            if group.full:
                ufunc(first(group), second(group), out=group.vf[register])
            else:
                put(group.vf[register], ufunc(first(group), second(group)), group.exec_mask)

        return float_step
    if kind == "i32":

        def signed_step(group: Group) -> None:
            if group.full:
                ufunc(first(group), second(group), out=group.vi[register])
            else:
                put(group.vi[register], ufunc(first(group), second(group)), group.exec_mask)

        return signed_step

    def step(group: Group) -> None:
        if group.full:
            ufunc(first(group), second(group), out=group.v[register])
        else:
            put(group.v[register], ufunc(first(group), second(group)), group.exec_mask)

    return step


def _with_second(site: Site, operation: Operation, subnormal: Subnormal) -> Step:
    """Make a step that also writes a lane mask: a carry, or whether v_div_scale scaled."""
    operands = site.instruction.operands
    if len(operands) < 3:
        raise site.unknown(f"too few operands of {site.instruction.mnemonic}")
    lanes = lane_map(site)
    if lanes is not None and not (lanes.zero and lanes.enabled.all()):
        raise site.unknown(f"lanes of {site.instruction.mnemonic} that are not written")
    if site.clamps() or "mul" in site.instruction.modifiers or "div" in site.instruction.modifiers:
        raise site.unknown(f"an output modifier of {site.instruction.mnemonic}")
    sources = sources_of(site, operation, operands[2:], lanes, subnormal)
    write, write_mask = register_writer(site, operation.result, lanes), mask_writer(site, operands[1])
    function = function_of(operation.expression, len(sources))
    second = function_of(operation.second, len(sources), "r")
    flush = operation.result in subnormal.results
    kind = TYPES[operation.result]

    def step(group: Group) -> None:
        values = [source(group) for source in sources]
        result = function(*values).astype(kind, copy=False)
        mask = second(*values, result)
        write(group, flushed(result) if flush else result)
        write_mask(group, mask)

    return step


def _comparison(site: Site, operation: Operation) -> Step:
    site.check(DPP_MODIFIERS, SDWA_MODIFIERS, frozenset({"op_sel", "clamp"}))
    return step_by_mode(site, operation.sources, lambda subnormal: _compare_step(site, operation, subnormal))


def _compare_step(site: Site, operation: Operation, subnormal: Subnormal) -> Step:
    operands = site.instruction.operands
    changes_exec = site.name.startswith("v_cmpx")
    # On gfx10 and later v_cmpx writes only exec and has no destination operand.
    destination = operands[0] if len(operands) == 3 else None
    if destination is None and not changes_exec:
        destination = Operand("s", VCC, site.code.lanes // 32)
    lanes = lane_map(site)
    if lanes is not None and not (lanes.zero and lanes.enabled.all()):
        raise site.unknown(f"lanes of {site.instruction.mnemonic} that are not written")
    if "_class_" in site.name:
        subnormal = KEPT  # class tests distinguish subnormal numbers in every mode
    sources = sources_of(site, operation, operands[-2:], lanes, subnormal)
    compute = applied(function_of(operation.expression, len(sources)), sources)
    write = mask_writer(site, destination) if destination is not None else None

    def step(group: Group) -> None:
        mask = compute(group)
        if mask.shape != group.exec_mask.shape:
            mask = np.broadcast_to(mask, group.exec_mask.shape)
        if write is not None:
            write(group, mask)
        if changes_exec and not (destination is not None and destination.index == EXEC):
            group.set_mask(EXEC, mask & group.exec_mask)
            group.exec_changed()

    return step
