"""Write results: vector registers under exec, lane masks, parts of registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.alu.lanes import LaneMap
from tilewright.emulator.alu.operands import SELECTIONS
from tilewright.emulator.alu.site import Site
from tilewright.emulator.group import Group, Mask
from tilewright.emulator.instruction import EXEC, Operand
from tilewright.emulator.isa.arrays import TYPES, Array
from tilewright.emulator.isa.table import keeps_other_half

Writer = Callable[[Group, Array], None]
Finisher = Callable[[Array], Array]


def written_lanes(group: Group, lanes: LaneMap | None) -> Mask | None:
    """Return the lanes that an instruction writes; None for all."""
    more = None if lanes is None else lanes.written(group)
    if more is None:
        return None if group.full else group.exec_mask
    return np.broadcast_to(more, (group.waves, group.lanes)) if group.full else group.exec_mask & more


def put(destination: Array, values: Array, mask: Mask | None) -> None:
    """Write where the mask is set (None: everywhere). The values may need broadcasting or a cast."""
    if mask is None:
        destination[...] = values
    elif values.shape == destination.shape and values.dtype == destination.dtype:
        np.putmask(destination, mask, values)  # up to five times as fast as copyto; would repeat missing values
    else:
        np.copyto(destination, values, where=mask, casting="unsafe")


def register_writer(site: Site, kind: str, lanes: LaneMap | None) -> Writer:
    """Return a function that writes a result of a type to the destination of an instruction."""
    size = TYPES[kind].itemsize
    if size == 8:
        return _pair_writer(site, lanes)
    if site.instruction.encoding == "sdwa" and site.word("dst_sel", "DWORD") != "DWORD":
        return _selected_writer(site, kind)
    if size == 4:
        return _dword_writer(site, kind, lanes)
    return _part_writer(site, kind, lanes)


def _dword_writer(site: Site, kind: str, lanes: LaneMap | None) -> Writer:
    register = site.vector_destination()
    if kind == "f32":
        return lambda group, values: put(group.vf[register], values, written_lanes(group, lanes))
    if kind == "i32":
        return lambda group, values: put(group.vi[register], values, written_lanes(group, lanes))
    return lambda group, values: put(group.v[register], values, written_lanes(group, lanes))


def _pair_writer(site: Site, lanes: LaneMap | None) -> Writer:
    low = site.vector_destination(2)

    def write(group: Group, values: Array) -> None:
        halves = np.ascontiguousarray(values).view(np.uint32)
        mask = written_lanes(group, lanes)
        put(group.v[low], halves[..., 0::2], mask)
        put(group.v[low + 1], halves[..., 1::2], mask)

    return write


def destination_part(site: Site, size: int) -> int:
    """Return the index of the part of `size` bytes of the destination that an instruction writes."""
    operand = site.destination
    if operand.half:
        return int(operand.half == "h")
    if size == 1:
        selected = site.bits("op_sel", 4)
        return site.number("byte_sel", 2 * selected[3] + selected[2])
    picks = site.instruction.modifiers.get("op_sel", ())
    # op_sel has a bit for each source and one for the destination, but none for a lane mask.
    count = len(site.instruction.operands) - (site.name == "v_cndmask_b16")
    return site.bits("op_sel", count)[-1] if isinstance(picks, tuple) and len(picks) == count else 0


def _part_writer(site: Site, kind: str, lanes: LaneMap | None) -> Writer:
    """Write 8 or 16 bits. The rest of the register is kept, or cleared as on gfx9."""
    register = site.vector_destination()
    dtype = TYPES[kind]
    part = destination_part(site, dtype.itemsize)
    step = 4 // dtype.itemsize
    if part or dtype.itemsize == 1 or keeps_other_half(site.name, site.code.arch):

        def write_part(group: Group, values: Array) -> None:
            put(group.v[register].view(dtype)[:, part::step], values, written_lanes(group, lanes))

        return write_part

    def write_cleared(group: Group, values: Array) -> None:
        bits = values.astype(dtype, copy=False).view(f"u{dtype.itemsize}")
        put(group.v[register], bits, written_lanes(group, lanes))

    return write_cleared


def _selected_writer(site: Site, kind: str) -> Writer:
    """SDWA: write a byte or a half of the destination; `dst_unused` defines the rest."""
    register = site.vector_destination()
    name, rest = site.word("dst_sel", "DWORD"), site.word("dst_unused", "UNUSED_PAD")
    if name not in SELECTIONS or rest not in ("UNUSED_PAD", "UNUSED_PRESERVE", "UNUSED_SEXT"):
        raise site.unknown(f"the selection {name} with {rest}")
    first, width = SELECTIONS[name]
    ones = np.uint32(((1 << width) - 1) << first)
    dtype = TYPES[kind]

    def write(group: Group, values: Array) -> None:
        whole = values.astype(dtype, copy=False).view(f"u{dtype.itemsize}").astype(np.uint32)
        bits = (whole << np.uint32(first)) & ones
        if rest == "UNUSED_PRESERVE":
            bits = bits | (group.v[register] & ~ones)
        elif rest == "UNUSED_SEXT":
            signs = bits << np.uint32(32 - width - first)
            bits = (signs.view(np.int32) >> np.int32(32 - width - first)).view(np.uint32)
        group.write(register, bits)

    return write


def mask_writer(site: Site, operand: Operand) -> Writer:
    """Return a function that writes a lane mask to scalar registers; lanes that exec disables get 0."""
    if operand.kind == "none":
        return lambda _group, _mask: None
    register = site.mask_register(operand)

    def write(group: Group, mask: Array) -> None:
        group.set_mask(register, mask if group.full else mask & group.exec_mask)
        if register == EXEC:
            group.exec_changed()

    return write


def finisher(site: Site, kind: str) -> Finisher | None:
    """Return a function that applies output modifiers and clamp. Clamping turns NaN into 0: DX10_CLAMP is set."""
    factor = site.number("mul", 1) / site.number("div", 1)
    clamp = site.clamps()
    if factor == 1 and not clamp:
        return None
    if not kind.startswith("f"):
        raise site.unknown(f"clamp or an output modifier of {site.instruction.mnemonic}")
    if factor not in (0.5, 1, 2, 4):
        raise site.unknown(f"the output modifier {factor}")
    scale, zero, one = (TYPES[kind].type(value) for value in (factor, 0, 1))

    def finish(values: Array) -> Array:
        if factor != 1:
            values = values * scale
        # Adding zero turns -0 into +0.
        return np.fmin(np.fmax(values, zero), one) + zero if clamp else values

    return finish
