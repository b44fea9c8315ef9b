"""Values that move between lanes: DPP, and the instructions made for it. Expected values are loops over lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from alu_bench import active, lanes_of, run, waves

from tilewright.emulator.faults import UnknownInstructionFault

pytestmark = pytest.mark.compile

Where = Callable[[int], int | None]  # the lane that a lane reads, None when there is none


def in_row(offset: int) -> Where:
    def where(lane: int) -> int | None:
        place = lane % 16 + offset
        return lane - lane % 16 + place if 0 <= place < 16 else None

    return where


QUAD = (3, 1, 0, 2)
GFX9_MOVES: list[tuple[str, Where]] = [
    ("quad_perm:[3,1,0,2]", lambda lane: lane - lane % 4 + QUAD[lane % 4]),
    ("row_shl:1", in_row(1)),
    ("row_shl:15", in_row(15)),
    ("row_shr:3", in_row(-3)),
    ("row_ror:5", lambda lane: lane - lane % 16 + (lane % 16 - 5) % 16),
    ("wave_shl:1", lambda lane: lane + 1 if lane < 63 else None),
    ("wave_shr:1", lambda lane: lane - 1 if lane > 0 else None),
    ("wave_rol:1", lambda lane: (lane + 1) % 64),
    ("wave_ror:1", lambda lane: (lane - 1) % 64),
    ("row_mirror", lambda lane: lane - lane % 16 + 15 - lane % 16),
    ("row_half_mirror", lambda lane: lane - lane % 8 + 7 - lane % 8),
    ("row_bcast:15", lambda lane: lane // 16 * 16 - 1 if lane >= 16 else None),
    ("row_bcast:31", lambda lane: 31 if lane >= 32 else None),
    ("row_newbcast:6", lambda lane: lane - lane % 16 + 6),
]
GFX11_MOVES: list[tuple[str, Where]] = [
    *[move for move in GFX9_MOVES if not move[0].startswith(("wave", "row_bcast", "row_newbcast"))],
    ("row_share:9", lambda lane: lane - lane % 16 + 9),
    ("row_xmask:6", lambda lane: lane - lane % 16 + (lane % 16 ^ 6)),
]
MOVES = [("gfx942", *move) for move in GFX9_MOVES]
MOVES += [(arch, *move) for arch in ("gfx1100", "gfx1201") for move in GFX11_MOVES]


def expected(
    arch: str, where: Where, *, zero: bool, fetch: bool = False, rows: int = 15, banks: int = 15, seed: int = 0
) -> list[list[int]]:
    """v2 after v_add of the moved v1 and v3."""
    group = waves(arch, seed)
    result, first, second = (lanes_of(group, register) for register in (2, 1, 3))
    for wave, mask in enumerate(active(group)):
        for lane in range(group.lanes):
            source = where(lane)
            usable = source is not None and (fetch or mask[source])
            enabled = rows >> (lane // 16) & 1 and banks >> (lane // 4 % 4) & 1
            if not mask[lane] or not enabled or not (usable or zero):
                continue
            moved = first[wave][source] if usable and source is not None else 0
            result[wave][lane] = (moved + second[wave][lane]) % 2**32
    return result


@pytest.mark.parametrize(("arch", "move", "where"), MOVES)
@pytest.mark.parametrize("zero", [False, True])
def test_a_source_is_moved(arch: str, move: str, where: Where, zero: bool) -> None:
    group = waves(arch)
    name = "v_add_u32_dpp" if arch == "gfx942" else "v_add_nc_u32_dpp"
    bound = " bound_ctrl:1" if zero else ""
    run(group, arch, f"{name} v2, v1, v3 {move} row_mask:0xf bank_mask:0xf{bound}")
    assert lanes_of(group, 2) == expected(arch, where, zero=zero)


@pytest.mark.parametrize(("arch", "rows", "banks"), [("gfx942", 0b1010, 0b1111), ("gfx1100", 0b01, 0b0110)])
def test_masks_of_rows_and_banks_leave_lanes_unwritten(arch: str, rows: int, banks: int) -> None:
    group = waves(arch, 5)
    name = "v_add_u32_dpp" if arch == "gfx942" else "v_add_nc_u32_dpp"
    run(group, arch, f"{name} v2, v1, v3 row_shr:1 row_mask:{rows:#x} bank_mask:{banks:#x}")
    assert lanes_of(group, 2) == expected(arch, in_row(-1), zero=False, rows=rows, banks=banks, seed=5)


@pytest.mark.parametrize("fetch", [False, True])
def test_eight_lanes_in_any_order(fetch: bool) -> None:
    group = waves("gfx1100")
    order = (6, 6, 0, 1, 7, 2, 3, 5)
    ending = " fi:1" if fetch else ""
    run(group, "gfx1100", f"v_add_nc_u32_dpp v2, v1, v3 dpp8:[{','.join(map(str, order))}]{ending}")
    want = expected("gfx1100", lambda lane: lane - lane % 8 + order[lane % 8], zero=True, fetch=fetch)
    assert lanes_of(group, 2) == want


def test_inactive_lanes_are_fetched_on_request() -> None:
    group = waves("gfx1201")
    run(group, "gfx1201", "v_add_nc_u32_dpp v2, v1, v3 row_share:4 row_mask:0xf bank_mask:0xf fi:1")
    want = expected("gfx1201", lambda lane: lane - lane % 16 + 4, zero=False, fetch=True)
    assert lanes_of(group, 2) == want


def test_a_comparison_whose_lanes_may_be_unwritten_is_refused() -> None:
    with pytest.raises(UnknownInstructionFault, match="not written"):
        run(waves("gfx1201"), "gfx1201", "v_cmp_eq_u32_e64_dpp s2, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_reading_and_writing_one_lane(arch: str) -> None:
    group = waves(arch)
    group.s[7][...] = [3, 40, 21]
    before, mask = lanes_of(group, 1), active(group)
    lanes = [number % group.lanes for number in (3, 40, 21)]
    other = [int(value) for value in group.s[8]]
    run(group, arch, "v_readlane_b32 s4, v1, s7", "v_readlane_b32 s5, v1, 9", "v_readfirstlane_b32 s6, v1")
    assert list(group.s[4]) == [before[wave][lane] for wave, lane in enumerate(lanes)]
    assert list(group.s[5]) == [row[9] for row in before]
    assert list(group.s[6]) == [row[flags.index(True)] for row, flags in zip(before, mask, strict=True)]
    run(group, arch, "v_writelane_b32 v1, s8, 5", "v_writelane_b32 v1, 7, s7")
    for wave, lane in enumerate(lanes):
        before[wave][5] = other[wave]  # whatever exec is
        before[wave][lane] = 7
    assert lanes_of(group, 1) == before


def test_the_first_lane_is_lane_0_when_none_is_active() -> None:
    group = waves("gfx942")
    group.set_mask(126, np.zeros((3, 64), np.bool_))
    group.update_exec_mask()
    run(group, "gfx942", "v_readfirstlane_b32 s6, v1")
    assert list(group.s[6]) == [row[0] for row in lanes_of(group, 1)]


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_bits_of_a_mask_below_the_lane(arch: str) -> None:
    group = waves(arch)
    before, other, mask = lanes_of(group, 2), lanes_of(group, 3), active(group)
    low, high = (list(map(int, group.s[register])) for register in (10, 11))
    run(group, arch, "v_mbcnt_lo_u32_b32 v2, s10, v3", "v_mbcnt_hi_u32_b32 v4, s11, v2")
    for wave in range(3):
        for lane in range(group.lanes):
            if not mask[wave][lane]:
                assert int(group.v[2][wave, lane]) == before[wave][lane]
                continue
            below = sum(low[wave] >> bit & 1 for bit in range(min(lane, 32)))
            above = sum(high[wave] >> (bit - 32) & 1 for bit in range(32, lane))
            assert int(group.v[2][wave, lane]) == (below + other[wave][lane]) % 2**32
            assert int(group.v[4][wave, lane]) == (below + above + other[wave][lane]) % 2**32


@pytest.mark.parametrize("name", ["v_permlane16_b32", "v_permlanex16_b32"])
@pytest.mark.parametrize("flags", [(0, 0), (1, 0), (0, 1)])
def test_rows_are_permuted(name: str, flags: tuple[int, int]) -> None:
    group = waves("gfx1100", 3)
    result, values, mask = lanes_of(group, 2), lanes_of(group, 1), active(group)
    words = [(int(group.s[12][wave]), int(group.s[13][wave])) for wave in range(3)]
    run(group, "gfx1100", f"{name} v2, v1, s12, s13 op_sel:[{flags[0]},{flags[1]}]")
    for wave in range(3):
        for lane in range(32):
            pick = words[wave][lane % 16 // 8] >> (lane % 8 * 4) & 15
            row = lane // 16 if name == "v_permlane16_b32" else 1 - lane // 16
            source = 16 * row + pick
            usable = flags[0] or mask[wave][source]
            if mask[wave][lane] and (usable or flags[1]):
                result[wave][lane] = values[wave][source] if usable else 0
    assert lanes_of(group, 2) == result


@pytest.mark.parametrize(("name", "width"), [("v_permlane16_swap_b32", 16), ("v_permlane32_swap_b32", 32)])
def test_rows_are_swapped(name: str, width: int) -> None:
    group = waves("gfx950", some=False)
    first, second = lanes_of(group, 1), lanes_of(group, 2)
    run(group, "gfx950", f"{name} v1, v2")
    for wave in range(3):
        for lane in range(64):
            odd = lane // width % 2 == 1
            assert int(group.v[1][wave, lane]) == (second[wave][lane - width] if odd else first[wave][lane])
            assert int(group.v[2][wave, lane]) == (second[wave][lane] if odd else first[wave][lane + width])


def test_registers_are_swapped_where_exec_is_set() -> None:
    group = waves("gfx1201")
    first, second, mask = lanes_of(group, 1), lanes_of(group, 2), active(group)
    run(group, "gfx1201", "v_swap_b32 v1, v2")
    for wave in range(3):
        for lane in range(32):
            pair = (
                (second[wave][lane], first[wave][lane]) if mask[wave][lane] else (first[wave][lane], second[wave][lane])
            )
            assert (int(group.v[1][wave, lane]), int(group.v[2][wave, lane])) == pair


def test_comparisons_write_masks_of_active_lanes() -> None:
    group = waves("gfx942")
    first, second, mask = lanes_of(group, 1), lanes_of(group, 2), active(group)
    run(group, "gfx942", "v_cmp_lt_u32_e64 s[20:21], v1, v2", "v_cmp_ge_u32_e32 vcc, v1, v2")
    for wave in range(3):
        less = [mask[wave][k] and first[wave][k] < second[wave][k] for k in range(64)]
        more = [mask[wave][k] and first[wave][k] >= second[wave][k] for k in range(64)]
        assert list(group.read_mask(20)[wave]) == less
        assert list(group.read_mask(106)[wave]) == more
    run(group, "gfx942", "v_cmpx_lt_u32_e64 s[22:23], v1, v2")
    assert (group.exec_mask == group.read_mask(20)).all()
    assert (group.read_mask(22) == group.read_mask(20)).all()


def test_gfx10_comparisons_for_exec_name_no_destination() -> None:
    group = waves("gfx1201")
    want = group.exec_mask & (group.v[1] < group.v[2])
    vcc = group.s[106].copy()
    run(group, "gfx1201", "v_cmpx_lt_u32_e64 v1, v2")
    assert (group.exec_mask == want).all()
    assert (group.s[106] == vcc).all()


@pytest.mark.parametrize(("arch", "wide"), [("gfx942", True), ("gfx1100", False)])
def test_exec_is_saved_and_changed(arch: str, wide: bool) -> None:
    group = waves(arch)
    before = group.exec_mask.copy()
    other = group.read_mask(30).copy()
    pair = ("s[40:41], s[30:31]", "b64") if wide else ("s40, s30", "b32")
    name = "s_andn2" if wide else "s_and_not1"
    run(group, arch, f"{name}_saveexec_{pair[1]} {pair[0]}")
    assert (group.read_mask(40) == before).all()
    assert (group.exec_mask == (other & ~before)).all()
    assert list(group.scc) == [bool(row.any()) for row in other & ~before]
    assert group.full == bool(group.exec_mask.all())
