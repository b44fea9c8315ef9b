"""Lower instructions that move values between lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.alu.lanes import LaneMap
from tilewright.emulator.alu.site import Site
from tilewright.emulator.instruction import EXEC, Operand
from tilewright.emulator.isa.table import VECTOR
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import numbers
from tilewright.emulator.native.layout import Record
from tilewright.emulator.native.lower_source import permutation, source
from tilewright.emulator.native.record import Tables, record


def lower_cross_lane(site: Site, tables: Tables) -> Record | None:
    """Return the record of a cross-lane instruction; None for others and for those that only NumPy supports."""
    make = _MAKERS.get(site.name)
    return None if make is None else make(site, site.instruction.operands, tables)


def _write_lane(site: Site, operands: tuple[Operand, ...], _: Tables) -> Record:
    site.check()
    given = [_uniform(site, operand) for operand in operands[1:3]]
    return record("write_lane", layout.vector(site.vector_destination()), given)


def _count_below(site: Site, operands: tuple[Operand, ...], _: Tables) -> Record:
    site.check()
    given = [source(site, operand, "u32") for operand in operands[1:3]]
    shift = 0 if site.name == "v_mbcnt_lo_u32_b32" else 32
    return record("count_below", layout.vector(site.vector_destination()), given, detail=shift)


def _swap(site: Site, operands: tuple[Operand, ...], _: Tables) -> Record:
    site.check()
    first, second = (layout.vector(_vector(site, operand)) for operand in operands)
    return record("swap", first, [second])


def _vector(site: Site, operand: Operand) -> int:
    if operand.kind not in ("v", "a") or operand.count != 1 or operand.negated or operand.absolute or operand.half:
        raise site.unknown(f"an operand of {site.instruction.mnemonic}")
    return site.code.register(operand)


def _uniform(site: Site, operand: Operand) -> layout.Operand:
    """Make a source that is the same in all lanes."""
    if operand.kind in ("v", "a"):
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return source(site, operand, "u32")


def _read_lane(site: Site, operands: tuple[Operand, ...], _: Tables) -> Record:
    site.check()
    register = site.scalar_register(site.destination, 1)
    if register >= EXEC:
        raise site.unknown(f"exec as the destination of {site.instruction.mnemonic}")
    first = operands[1]
    from_ = _uniform(site, first) if first.kind == "s" else layout.vector(_vector(site, first))
    if site.name == "v_readfirstlane_b32":
        return record("read_first_lane", layout.scalar(register), [from_])
    return record("read_lane", layout.scalar(register), [from_, _uniform(site, operands[2])])


def _swap_rows(site: Site, operands: tuple[Operand, ...], _: Tables) -> Record:
    if any(site.number(name) for name in ("bound_ctrl", "fi")):
        raise site.unknown("a modifier of " + site.instruction.mnemonic)
    site.check(frozenset({"bound_ctrl", "fi"}))
    first, second = (_vector(site, operand) for operand in operands)
    width = 32 if site.name == "v_permlane32_swap_b32" else 16
    return record("swap_rows", layout.vector(first), [layout.vector(second)], detail=width)


def _other_half(site: Site, operands: tuple[Operand, ...], tables: Tables) -> Record:
    site.check()
    lanes = site.code.lanes
    everywhere = np.ones(lanes, np.bool_)
    crossed = LaneMap(np.arange(lanes) ^ (32 if lanes == 64 else 0), everywhere, everywhere, True, True)
    given = layout.operand(layout.VECTOR, _vector(site, operands[1]), flags=layout.PERMUTED)
    tables.permutations.append(permutation(crossed))
    number = numbers()[0][VECTOR["v_mov_b32"]]
    out = layout.vector(site.vector_destination())
    return record(number, out, [given], target=len(tables.permutations) - 1)


def _permute_row(site: Site, operands: tuple[Operand, ...], _: Tables) -> Record:
    site.check(frozenset({"op_sel"}))
    fetch, zero = site.bits("op_sel", 4)[:2]
    beside = 16 if site.name == "v_permlanex16_b32" else 0
    given = [layout.vector(_vector(site, operands[1])), *(_uniform(site, operand) for operand in operands[2:4])]
    out = layout.vector(site.vector_destination())
    return record("permute_row", out, given, detail=beside, offset=fetch, offset1=zero)


_MAKERS: dict[str, Callable[[Site, tuple[Operand, ...], Tables], Record]] = {
    "v_readfirstlane_b32": _read_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_mbcnt_lo_u32_b32": _count_below,
    "v_mbcnt_hi_u32_b32": _count_below,
    "v_swap_b32": _swap,
    "v_permlane16_swap_b32": _swap_rows,
    "v_permlane32_swap_b32": _swap_rows,
    "v_permlane64_b32": _other_half,
    "v_permlane16_b32": _permute_row,
    "v_permlanex16_b32": _permute_row,
}
