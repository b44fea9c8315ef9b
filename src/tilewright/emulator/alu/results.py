"""Write results: vector registers under exec, lane masks, parts of registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.alu.dpp import LaneMap
from tilewright.emulator.alu.float_mode import FloatMode
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.alu.operands import SELECTIONS
from tilewright.emulator.group import Mask, WaveGroup
from tilewright.emulator.instruction import EXEC, Operand
from tilewright.emulator.isa.operation import TYPES, Array
from tilewright.emulator.isa.table import keeps_other_half

Writer = Callable[[WaveGroup, Array], None]
Finisher = Callable[[Array], Array]


def find_written_lanes(group: WaveGroup, lanes: LaneMap | None) -> Mask | None:
    """Return the lanes that an instruction writes; None for all."""
    more = None if lanes is None else lanes.find_written_lanes(group)
    if more is None:
        return None if group.full else group.exec_mask
    return np.broadcast_to(more, (group.waves, group.lanes)) if group.full else group.exec_mask & more


def write_masked(destination: Array, values: Array, mask: Mask | None) -> None:
    """Write where the mask is set (None: everywhere). The values may need broadcasting or a cast."""
    if mask is None:
        destination[...] = values
    elif values.shape == destination.shape and values.dtype == destination.dtype:
        np.putmask(destination, mask, values)  # up to five times as fast as copyto; would repeat missing values
    else:
        np.copyto(destination, values, where=mask, casting="unsafe")


def make_register_writer(site: InstructionContext, kind: str, lanes: LaneMap | None) -> Writer:
    """Return a function that writes a result of a type to the destination of an instruction."""
    size = TYPES[kind].itemsize
    if size == 8:
        return _make_pair_writer(site, lanes)
    if site.instruction.encoding == "sdwa" and site.get_word("dst_sel", "DWORD") != "DWORD":
        return _make_selected_writer(site, kind)
    if size == 4:
        return _make_dword_writer(site, kind, lanes)
    return _make_part_writer(site, kind, lanes)


def _make_dword_writer(site: InstructionContext, kind: str, lanes: LaneMap | None) -> Writer:
    register = site.vector_destination()
    if kind == "f32":
        return lambda group, values: write_masked(group.vf[register], values, find_written_lanes(group, lanes))
    if kind == "i32":
        return lambda group, values: write_masked(group.vi[register], values, find_written_lanes(group, lanes))
    return lambda group, values: write_masked(group.v[register], values, find_written_lanes(group, lanes))


def _make_pair_writer(site: InstructionContext, lanes: LaneMap | None) -> Writer:
    low = site.vector_destination(2)

    def write(group: WaveGroup, values: Array) -> None:
        halves = np.ascontiguousarray(values).view(np.uint32)
        mask = find_written_lanes(group, lanes)
        write_masked(group.v[low], halves[..., 0::2], mask)
        write_masked(group.v[low + 1], halves[..., 1::2], mask)

    return write


def find_destination_part(site: InstructionContext, size: int) -> int:
    """Return the index of the part of `size` bytes of the destination that an instruction writes."""
    operand = site.destination
    if operand.half:
        return int(operand.half == "h")
    if size == 1:
        selected = site.get_bits("op_sel", 4)
        return site.get_number("byte_sel", 2 * selected[3] + selected[2])
    picks = site.instruction.modifiers.get("op_sel", ())
    # op_sel has a bit for each source and one for the destination, but none for a lane mask.
    count = len(site.instruction.operands) - (site.name == "v_cndmask_b16")
    return site.get_bits("op_sel", count)[-1] if isinstance(picks, tuple) and len(picks) == count else 0


def _make_part_writer(site: InstructionContext, kind: str, lanes: LaneMap | None) -> Writer:
    """Write 8 or 16 bits. The rest of the register is kept, or cleared as on gfx9."""
    register = site.vector_destination()
    dtype = TYPES[kind]
    part = find_destination_part(site, dtype.itemsize)
    step = 4 // dtype.itemsize
    if part or dtype.itemsize == 1 or keeps_other_half(site.name, site.code.arch):

        def write_part(group: WaveGroup, values: Array) -> None:
            write_masked(group.v[register].view(dtype)[:, part::step], values, find_written_lanes(group, lanes))

        return write_part

    def write_cleared(group: WaveGroup, values: Array) -> None:
        bits = values.astype(dtype, copy=False).view(f"u{dtype.itemsize}")
        write_masked(group.v[register], bits, find_written_lanes(group, lanes))

    return write_cleared


def _make_selected_writer(site: InstructionContext, kind: str) -> Writer:
    """SDWA: write a byte or a half of the destination; `dst_unused` defines the rest."""
    register = site.vector_destination()
    name, rest = site.get_word("dst_sel", "DWORD"), site.get_word("dst_unused", "UNUSED_PAD")
    if name not in SELECTIONS or rest not in ("UNUSED_PAD", "UNUSED_PRESERVE", "UNUSED_SEXT"):
        raise site.unknown(f"the selection {name} with {rest}")
    first, width = SELECTIONS[name]
    ones = np.uint32(((1 << width) - 1) << first)
    dtype = TYPES[kind]

    def write(group: WaveGroup, values: Array) -> None:
        whole = values.astype(dtype, copy=False).view(f"u{dtype.itemsize}").astype(np.uint32)
        bits = (whole << np.uint32(first)) & ones
        if rest == "UNUSED_PRESERVE":
            bits = bits | (group.v[register] & ~ones)
        elif rest == "UNUSED_SEXT":
            signs = bits << np.uint32(32 - width - first)
            bits = (signs.view(np.int32) >> np.int32(32 - width - first)).view(np.uint32)
        group.write(register, bits)

    return write


def make_mask_writer(site: InstructionContext, operand: Operand) -> Writer:
    """Return a function that writes a lane mask to scalar registers; lanes that exec disables get 0."""
    if operand.kind == "none":
        return lambda _group, _mask: None
    register = site.mask_register(operand)

    def write(group: WaveGroup, mask: Array) -> None:
        group.set_mask(register, mask if group.full else mask & group.exec_mask)
        if register == EXEC:
            group.update_exec_mask()

    return write


def make_finisher(site: InstructionContext, kind: str, mode: FloatMode) -> Finisher | None:
    """Return a function that applies output modifiers and clamp. Clamping turns NaN into 0: DX10_CLAMP is set."""
    factor = site.get_number("mul", 1) / site.get_number("div", 1)
    clamp = site.has_clamp()
    if factor == 1 and not clamp:
        return None
    if not kind.startswith("f"):
        raise site.unknown(f"clamp or an output modifier of {site.instruction.mnemonic}")
    if factor not in (0.5, 1, 2, 4):
        raise site.unknown(f"the output modifier {factor}")
    scaled = factor != 1 and mode.scales(kind)
    scale, zero, one = (TYPES[kind].type(value) for value in (factor, 0, 1))

    def finish(values: Array) -> Array:
        if scaled:
            values = values * scale
        # Adding zero turns -0 into +0.
        return np.fmin(np.fmax(values, zero), one) + zero if clamp else values

    return finish
