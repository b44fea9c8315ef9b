"""Instructions that move values between lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.alu.operands import Getter, make_vector_source
from tilewright.emulator.alu.scalar import make_scalar_source
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import EXEC, Operand
from tilewright.emulator.isa.operation import Array

_ROW = 16


def translate_cross_lane(site: InstructionContext) -> Step | None:
    """Return the step of a cross-lane instruction; None for other instructions."""
    translator = _TRANSLATORS.get(site.name)
    return None if translator is None else translator(site)


def _get_operands(site: InstructionContext, count: int) -> tuple[Operand, ...]:
    if len(site.instruction.operands) != count:
        raise site.unknown(f"{len(site.instruction.operands)} operands of {site.instruction.mnemonic}")
    return site.instruction.operands


def _get_vector(site: InstructionContext, operand: Operand) -> int:
    if operand.kind not in ("v", "a") or operand.count != 1 or operand.negated or operand.absolute:
        raise site.unknown(f"an operand of {site.instruction.mnemonic}")
    return site.code.get_register(operand)


def get_scalar_destination(site: InstructionContext) -> int:
    """Return the scalar register that an instruction writes; exec is not supported."""
    register = site.scalar_register(site.destination, 1)
    if register >= EXEC:
        raise site.unknown(f"exec as the destination of {site.instruction.mnemonic}")
    return register


def _read_first_lane(site: InstructionContext) -> Step:
    site.check_modifiers()
    _, source = _get_operands(site, 2)
    target = get_scalar_destination(site)
    if source.kind == "s":  # a scalar register is the same in all lanes
        same = make_scalar_source(site, source, "u32")

        def copy(group: WaveGroup) -> None:
            group.s[target][...] = same(group)

        return copy
    register = _get_vector(site, source)

    def execute(group: WaveGroup) -> None:
        if group.full:
            group.s[target][...] = group.v[register][:, 0]
        else:
            # Lane 0 if no lane is active.
            group.s[target][...] = group.v[register][np.arange(group.waves), group.exec_mask.argmax(axis=1)]

    return execute


def _make_lane_getter(site: InstructionContext, operand: Operand) -> Getter:
    last = np.uint32(site.code.lanes - 1)
    number = make_scalar_source(site, operand, "u32")
    return lambda group: np.broadcast_to(number(group) & last, (group.waves,))


def _read_lane(site: InstructionContext) -> Step:
    site.check_modifiers()
    _, source, lane = _get_operands(site, 3)
    target, register, number = get_scalar_destination(site), _get_vector(site, source), _make_lane_getter(site, lane)

    def execute(group: WaveGroup) -> None:
        group.s[target][...] = group.v[register][np.arange(group.waves), number(group)]

    return execute


def _write_lane(site: InstructionContext) -> Step:
    """Write one lane, independent of exec."""
    site.check_modifiers()
    _, source, lane = _get_operands(site, 3)
    target, value, number = (
        site.vector_destination(),
        make_scalar_source(site, source, "u32"),
        _make_lane_getter(site, lane),
    )

    def execute(group: WaveGroup) -> None:
        group.v[target][np.arange(group.waves), number(group)] = value(group)

    return execute


def _count_mask_bits(site: InstructionContext) -> Step:
    """v_mbcnt: count the mask bits below the lane's own bit, in the lower or upper half of 64, and add a source."""
    site.check_modifiers()
    _, mask, addend = _get_operands(site, 3)
    below = [(1 << lane) - 1 for lane in range(site.code.lanes)]
    shift = 0 if site.name == "v_mbcnt_lo_u32_b32" else 32
    halves = np.array([bits >> shift & 0xFFFFFFFF for bits in below], np.uint32)
    bits, other = (make_vector_source(site, operand, "u32", None, None) for operand in (mask, addend))
    target = site.vector_destination()

    def execute(group: WaveGroup) -> None:
        group.write(target, np.bitwise_count(bits(group) & halves) + other(group))

    return execute


def _translate_swap(site: InstructionContext) -> Step:
    site.check_modifiers()
    first, second = (_get_vector(site, operand) for operand in _get_operands(site, 2))

    def execute(group: WaveGroup) -> None:
        before = group.v[first].copy()
        group.write(first, group.v[second])
        group.write(second, before)

    return execute


def _translate_half_swap(site: InstructionContext) -> Step:
    """v_swap_b16: exchange two halves of registers."""
    site.check_modifiers()
    one, two = _get_operands(site, 2)
    (first, a), (second, b) = ((_get_vector(site, operand), int(operand.half == "h")) for operand in (one, two))

    def execute(group: WaveGroup) -> None:
        left, right = group.v[first].view(np.uint16)[:, a::2], group.v[second].view(np.uint16)[:, b::2]
        before = left.copy()
        np.copyto(left, right, where=group.exec_mask)
        np.copyto(right, before, where=group.exec_mask)

    return execute


def _translate_row_swap(site: InstructionContext) -> Step:
    """v_permlane16_swap, v_permlane32_swap: exchange the odd rows of the first with the even rows of the second."""
    if any(site.get_number(name) for name in ("bound_ctrl", "fi")):
        raise site.unknown("a modifier of " + site.instruction.mnemonic)
    site.check_modifiers(frozenset({"bound_ctrl", "fi"}))
    first, second = (_get_vector(site, operand) for operand in _get_operands(site, 2))
    width = 32 if site.name == "v_permlane32_swap_b32" else 16

    def execute(group: WaveGroup) -> None:
        if not group.full:
            raise site.unknown(f"{site.instruction.mnemonic} with lanes that exec disables")
        left = group.v[first].reshape(group.waves, -1, 2, width)
        right = group.v[second].reshape(group.waves, -1, 2, width)
        before = left[:, :, 1].copy()
        left[:, :, 1] = right[:, :, 0]
        right[:, :, 0] = before

    return execute


def _translate_half_exchange(site: InstructionContext) -> Step:
    """v_permlane64: exchange lanes n and n + 32 of 64; with 32 lanes it does nothing (RDNA3 ISA; so does gfx1100)."""
    site.check_modifiers()
    target, register = site.vector_destination(), _get_vector(site, _get_operands(site, 2)[1])
    if site.code.lanes == 32:
        return lambda _group: None
    source = np.arange(64) ^ 32

    def execute(group: WaveGroup) -> None:
        group.write(target, group.v[register][:, source])

    return execute


def _translate_row_permute(site: InstructionContext) -> Step:
    """v_permlane16, v_permlanex16: four bits of two scalars select the source lane of each lane, in the same row of 16,
    or in the neighbouring row. op_sel has fetch-inactive first, then bound_ctrl."""
    site.check_modifiers(frozenset({"op_sel"}))
    _, source, low, high = _get_operands(site, 4)
    fetch, zero = site.get_bits("op_sel", 4)[:2]
    target, register = site.vector_destination(), _get_vector(site, source)
    first, second = make_scalar_source(site, low, "u32"), make_scalar_source(site, high, "u32")
    lanes = np.arange(site.code.lanes)
    row = (lanes & ~(_ROW - 1)) ^ (_ROW if site.name == "v_permlanex16_b32" else 0)

    def execute(group: WaveGroup) -> None:
        place = lanes % _ROW
        word: Array = np.where(place < 8, first(group)[:, None], second(group)[:, None])
        picked = row + ((word >> ((place % 8) * 4).astype(np.uint32)) & 15).astype(np.intp)
        _write_picked(group, target, register, picked, fetch, zero)

    return execute


def _write_picked(group: WaveGroup, target: int, register: int, picked: Array, fetch: int, zero: int) -> None:
    """Write the lanes of a register that `picked` names. Lanes that exec disables are read if `fetch` is set, else they
    are 0 (`zero`), or the lane is not written."""
    rows = np.arange(group.waves)[:, None]
    values = group.v[register][rows, picked]
    if fetch or group.full:
        group.write(target, values)
        return
    usable = group.exec_mask[rows, picked]
    if zero:
        group.write(target, np.where(usable, values, np.uint32(0)))
    else:
        np.copyto(group.v[target], values, where=usable & group.exec_mask)


def _translate_row_permute_by_lane(site: InstructionContext) -> Step:
    """v_permlane16_var, v_permlanex16_var: the same with the lanes that the low four bits of a register name."""
    site.check_modifiers(frozenset({"op_sel"}))
    _, source, selector = _get_operands(site, 3)
    fetch, zero = site.get_bits("op_sel", 3)[:2]
    target, register, places = site.vector_destination(), _get_vector(site, source), _get_vector(site, selector)
    lanes = np.arange(site.code.lanes)
    row = (lanes & ~(_ROW - 1)) ^ (_ROW if site.name == "v_permlanex16_var_b32" else 0)

    def execute(group: WaveGroup) -> None:
        picked = row + (group.v[places] & np.uint32(15)).astype(np.intp)
        _write_picked(group, target, register, picked, fetch, zero)

    return execute


_TRANSLATORS: dict[str, Callable[[InstructionContext], Step]] = {
    "v_readfirstlane_b32": _read_first_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_mbcnt_lo_u32_b32": _count_mask_bits,
    "v_mbcnt_hi_u32_b32": _count_mask_bits,
    "v_swap_b32": _translate_swap,
    "v_swap_b16": _translate_half_swap,
    "v_permlane16_swap_b32": _translate_row_swap,
    "v_permlane32_swap_b32": _translate_row_swap,
    "v_permlane64_b32": _translate_half_exchange,
    "v_permlane16_b32": _translate_row_permute,
    "v_permlanex16_b32": _translate_row_permute,
    "v_permlane16_var_b32": _translate_row_permute_by_lane,
    "v_permlanex16_var_b32": _translate_row_permute_by_lane,
}
