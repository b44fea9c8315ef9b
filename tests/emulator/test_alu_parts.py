"""Parts of registers: SDWA, halves, packed numbers, pairs. Expected values are loops over lanes."""

from __future__ import annotations

import numpy as np
import pytest
from alu_bench import active, as_float, as_half, float_bits, half_bits, lanes_of, run, signed, waves

from tilewright.emulator.faults import UnknownInstructionFault

pytestmark = pytest.mark.compile

PARTS = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
}
PARTS["DWORD"] = (0, 32)


def part(value: int, name: str) -> int:
    first, width = PARTS[name]
    return value >> first & ((1 << width) - 1)


@pytest.mark.parametrize("to", PARTS)
@pytest.mark.parametrize("rest", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
@pytest.mark.parametrize("first", ["BYTE_0", "BYTE_3", "WORD_1"])
def test_sdwa_reads_and_writes_parts(to: str, rest: str, first: str) -> None:
    group = waves("gfx942", 3)
    result, one, two, mask = (*(lanes_of(group, register) for register in (2, 1, 3)), active(group))
    parts = f"dst_sel:{to} dst_unused:{rest} src0_sel:{first} src1_sel:BYTE_2"
    run(group, "gfx942", f"v_max_i32_sdwa v2, sext(v1), v3 {parts}")
    start, width = PARTS[to]
    ones = (1 << width) - 1
    for wave in range(3):
        for lane in range(64):
            if not mask[wave][lane]:
                continue
            larger = max(signed(part(one[wave][lane], first), PARTS[first][1]), part(two[wave][lane], "BYTE_2"))
            value = (larger & ones) << start
            if rest == "UNUSED_PRESERVE":
                value |= result[wave][lane] & ~(ones << start)
            elif rest == "UNUSED_SEXT":
                value |= -(larger >> (width - 1) & 1) << (start + width)
            result[wave][lane] = value & 0xFFFFFFFF
    assert lanes_of(group, 2) == result


def test_sdwa_compares_and_adds_parts() -> None:
    group = waves("gfx90a")
    one, two, mask = lanes_of(group, 1), lanes_of(group, 3), active(group)
    run(
        group,
        "gfx90a",
        "v_cmp_gt_i16_sdwa s[20:21], sext(v1), v3 src0_sel:BYTE_1 src1_sel:WORD_1",
        "v_add_co_u32_sdwa v4, vcc, v1, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:DWORD",
        "v_cvt_f32_i32_sdwa v5, sext(v1) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3",
    )
    for wave in range(3):
        for lane in range(64):
            if not mask[wave][lane]:
                assert not group.read_mask(20)[wave, lane]
                continue
            x, y = one[wave][lane], two[wave][lane]
            assert group.read_mask(20)[wave, lane] == (signed(x >> 8, 8) > signed(y >> 16, 16))
            total = (x >> 16 & 255) + y
            assert int(group.v[4][wave, lane]) == total & 0xFFFFFFFF
            assert group.read_mask(106)[wave, lane] == bool(total >> 32)
            assert float(group.vf[5][wave, lane]) == signed(x >> 24, 8)


def small_halves(arch: str) -> object:
    """Waves whose registers hold pairs of small f16."""
    group = waves(arch)
    numbers = np.random.default_rng(9).normal(0, 4, (8, 3, group.lanes * 2)).astype(np.float16)
    for register in range(8):
        group.v[register][...] = numbers[register].view(np.uint32)
    return group


@pytest.mark.parametrize(("arch", "clears"), [("gfx942", True), ("gfx1201", False)])
def test_the_other_half_is_cleared_or_kept(arch: str, clears: bool) -> None:
    group = small_halves(arch)
    before, one, two, mask = (*(lanes_of(group, register) for register in (2, 1, 3)), active(group))
    fused = lanes_of(group, 4)
    run(group, arch, "v_add_f16_e32 v2, v1, v3", "v_fma_f16 v4, v1, v3, v1 op_sel:[1,0,0,1]")
    for wave in range(3):
        for lane in range(group.lanes):
            if not mask[wave][lane]:
                assert int(group.v[2][wave, lane]) == before[wave][lane]
                continue
            x, y = one[wave][lane], two[wave][lane]
            high = 0 if clears else before[wave][lane] >> 16 << 16
            assert int(group.v[2][wave, lane]) == half_bits(as_half(x) + as_half(y)) | high
            # A result in the upper half always leaves the lower one alone.
            product = half_bits(as_half(x >> 16) * as_half(y) + as_half(x)) << 16
            assert int(group.v[4][wave, lane]) == product | fused[wave][lane] & 0xFFFF


@pytest.mark.parametrize("table", [0x00, 0xCA, 0x96, 0xE8, 0x2B, 0xFF])
@pytest.mark.parametrize(("halves", "picked"), [("", (0, 0, 0, 0)), (" op_sel:[1,0,1,1]", (16, 0, 16, 16))])
def test_any_function_of_three_halves(table: int, halves: str, picked: tuple[int, ...]) -> None:
    group = waves("gfx950")
    result, *sources, mask = (*(lanes_of(group, register) for register in (2, 1, 3, 4)), active(group))
    run(group, "gfx950", f"v_bitop3_b16 v2, v1, v3, v4 bitop3:{table:#x}{halves}")
    *shifts, to = picked
    for wave, lane in np.ndindex(np.shape(mask)):
        if not mask[wave][lane]:
            continue
        a, b, c = (source[wave][lane] >> shift for source, shift in zip(sources, shifts, strict=True))
        bits = sum((table >> ((a >> n & 1) * 4 + (b >> n & 1) * 2 + (c >> n & 1)) & 1) << n for n in range(16))
        # The other half is kept: LLVM does not count this instruction among those that clear it.
        result[wave][lane] = result[wave][lane] & ~(0xFFFF << to) | bits << to
    assert lanes_of(group, 2) == result


def test_halves_by_name() -> None:
    group = small_halves("gfx1100")
    before, one, two, mask = (*(lanes_of(group, register) for register in (2, 1, 3)), active(group))
    run(group, "gfx1100", "v_add_nc_u16 v2.h, v1.l, v3.h", "v_cvt_f16_f32 v4.h, v5", "v_mov_b16 v6.l, v1.h")
    for wave in range(3):
        for lane in range(32):
            if mask[wave][lane]:
                total = (one[wave][lane] + (two[wave][lane] >> 16)) & 0xFFFF
                assert int(group.v[2][wave, lane]) == total << 16 | before[wave][lane] & 0xFFFF
                assert int(group.v[6][wave, lane]) & 0xFFFF == one[wave][lane] >> 16


def test_packed_halves_pick_and_negate_their_sources() -> None:
    group = small_halves("gfx942")
    one, two, three, mask = (*(lanes_of(group, register) for register in (1, 2, 3)), active(group))
    run(
        group,
        "gfx942",
        "v_pk_fma_f16 v4, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,1,0] neg_hi:[1,0,0]",
        "v_pk_add_f16 v5, v1, 1.0 op_sel_hi:[1,0]",
        "v_pk_mad_u16 v6, v1, v2, v3",
        "v_pk_max_f16 v1, v1, v2 clamp",
    )
    for wave in range(3):
        for lane in range(64):
            if not mask[wave][lane]:
                continue
            x, y, z = one[wave][lane], two[wave][lane], three[wave][lane]
            low = half_bits(as_half(x >> 16) * -as_half(y) + as_half(z))
            high = half_bits(-as_half(x) * as_half(y >> 16) + as_half(z >> 16))
            assert int(group.v[4][wave, lane]) == low | high << 16
            assert int(group.v[5][wave, lane]) == half_bits(as_half(x) + 1) | half_bits(as_half(x >> 16) + 1) << 16
            products = [((x >> s & 0xFFFF) * (y >> s & 0xFFFF) + (z >> s & 0xFFFF)) & 0xFFFF for s in (0, 16)]
            assert int(group.v[6][wave, lane]) == products[0] | products[1] << 16
            largest = [min(max(as_half(x >> s), as_half(y >> s), 0.0), 1.0) for s in (0, 16)]
            assert int(group.v[1][wave, lane]) == half_bits(largest[0]) | half_bits(largest[1]) << 16


def test_packed_pairs_pick_their_registers() -> None:
    group = waves("gfx942")
    for register in range(12):
        group.vf[register][...] = np.random.default_rng(register).normal(0, 3, (3, 64)).astype(np.float32)
    group.s[20][...], group.s[21][...] = float_bits(2.5), float_bits(-3.0)
    values = [lanes_of(group, register) for register in range(12)]
    mask = active(group)
    run(
        group,
        "gfx942",
        "v_pk_mul_f32 v[4:5], v[0:1], s[20:21] op_sel_hi:[1,0]",
        "v_pk_add_f32 v[6:7], v[0:1], v[2:3] op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0]",
        "v_pk_mov_b32 v[8:9], v[0:1], v[2:3] op_sel:[1,0]",
    )
    for wave in range(3):
        for lane in range(64):
            if not mask[wave][lane]:
                assert [int(group.v[k][wave, lane]) for k in range(12)] == [v[wave][lane] for v in values]
                continue
            a, b, c, d = (as_float(values[k][wave][lane]) for k in range(4))
            assert int(group.v[4][wave, lane]) == float_bits(a * 2.5)
            assert int(group.v[5][wave, lane]) == float_bits(b * 2.5)
            assert int(group.v[6][wave, lane]) == float_bits(np.float32(-b) + np.float32(c))
            assert int(group.v[7][wave, lane]) == float_bits(np.float32(a) + np.float32(d))
            assert (int(group.v[8][wave, lane]), int(group.v[9][wave, lane])) == (float_bits(b), float_bits(c))


def test_mixed_precision_and_sums_of_products() -> None:
    group = small_halves("gfx942")
    group.vf[5][...] = np.random.default_rng(1).normal(0, 3, (3, 64)).astype(np.float32)
    one, two, three, before, mask = (*(lanes_of(group, register) for register in (1, 2, 5, 7)), active(group))
    run(
        group,
        "gfx942",
        "v_fma_mix_f32 v3, -v1, |v5|, v2 op_sel:[1,0,0] op_sel_hi:[1,0,1]",
        "v_fma_mixhi_f16 v7, v5, v1, v2 op_sel_hi:[0,1,1]",
        "v_dot2_f32_f16 v4, v1, v2, v5",
        "v_dot4_i32_i8 v6, v1, v2, v5",
    )
    for wave in range(3):
        for lane in range(64):
            if not mask[wave][lane]:
                continue
            x, y, z = one[wave][lane], two[wave][lane], three[wave][lane]
            assert int(group.v[3][wave, lane]) == float_bits(-as_half(x >> 16) * abs(as_float(z)) + as_half(y))
            mixed = np.float32(as_float(z) * as_half(x) + as_half(y))
            assert int(group.v[7][wave, lane]) == half_bits(mixed) << 16 | before[wave][lane] & 0xFFFF
            total = as_half(x) * as_half(y) + as_half(x >> 16) * as_half(y >> 16) + as_float(z)
            assert int(group.v[4][wave, lane]) == float_bits(total)
            whole = sum(signed(x >> s, 8) * signed(y >> s, 8) for s in (0, 8, 16, 24)) + z
            assert int(group.v[6][wave, lane]) == whole & 0xFFFFFFFF


@pytest.mark.parametrize(("signs", "kinds"), [((0, 0), "uu"), ((1, 0), "iu"), ((0, 1), "ui"), ((1, 1), "ii")])
def test_bytes_are_signed_as_asked(signs: tuple[int, int], kinds: str) -> None:
    group = waves("gfx1100", some=False)
    one, two, three = (lanes_of(group, register) for register in (1, 2, 3))
    run(group, "gfx1100", f"v_dot4_i32_iu8 v4, v1, v2, v3 neg_lo:[{signs[0]},{signs[1]},0]")
    for lane in range(32):
        total = three[0][lane]
        for s in (0, 8, 16, 24):
            x, y = one[0][lane] >> s & 255, two[0][lane] >> s & 255
            total += (signed(x, 8) if kinds[0] == "i" else x) * (signed(y, 8) if kinds[1] == "i" else y)
        assert int(group.v[4][0, lane]) == total & 0xFFFFFFFF


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_both_halves_of_a_pair_read_before_either_writes(arch: str) -> None:
    group = waves(arch)
    for register in (1, 2, 3, 4):
        group.vf[register][...] = np.random.default_rng(register).normal(0, 3, (3, 32)).astype(np.float32)
    before = [lanes_of(group, register) for register in range(8)]
    mask, vcc = active(group), group.read_mask(106).copy()
    run(
        group,
        arch,
        "v_dual_mov_b32 v2, v1 :: v_dual_mov_b32 v1, v2",
        "v_dual_fmac_f32 v4, v1, v3 :: v_dual_add_nc_u32 v5, v4, v2",
        "v_dual_cndmask_b32 v6, v1, v3 :: v_dual_mul_f32 v7, v2, v4",
    )
    for wave in range(3):
        for lane in range(32):
            old = [values[wave][lane] for values in before]
            now = [int(group.v[register][wave, lane]) for register in range(8)]
            if not mask[wave][lane]:
                assert now == old
                continue
            one, two = old[2], old[1]
            assert (now[1], now[2]) == (one, two)
            four = float_bits(as_float(one) * as_float(old[3]) + as_float(old[4]))
            assert now[4] == four
            assert now[5] == (old[4] + two) & 0xFFFFFFFF
            assert now[6] == (old[3] if vcc[wave, lane] else one)
            assert now[7] == float_bits(np.float32(as_float(two)) * np.float32(as_float(four)))


def test_wide_numbers_take_two_registers() -> None:
    group = waves("gfx942")
    before = [lanes_of(group, register) for register in range(8)]
    mask = active(group)
    run(
        group,
        "gfx942",
        "v_lshl_add_u64 v[4:5], v[0:1], 3, v[2:3]",
        "v_mad_u64_u32 v[6:7], s[20:21], v0, v1, v[2:3]",
        "v_ashrrev_i64 v[0:1], 9, v[0:1]",
    )
    for wave in range(3):
        for lane in range(64):
            if not mask[wave][lane]:
                continue
            a, b, c, d = (before[k][wave][lane] for k in range(4))
            now = [int(group.v[k][wave, lane]) for k in range(8)]
            assert now[4] | now[5] << 32 == ((a | b << 32) * 8 + (c | d << 32)) % 2**64
            assert now[6] | now[7] << 32 == (a * b + (c | d << 32)) % 2**64
            assert group.read_mask(20)[wave, lane] == bool(a * b + (c | d << 32) >> 64)
            assert now[0] | now[1] << 32 == signed(a | b << 32, 64) >> 9 & (2**64 - 1)


@pytest.mark.parametrize(
    ("arch", "text"),
    [
        ("gfx942", "v_dot4_i32_i8 v0, v1, v2, v3 clamp"),
        ("gfx942", "v_mul_lo_u32 v0, v1, src_shared_base"),
        ("gfx942", "v_mul_hi_u32 v0, v1, src_shared_base"),
    ],
)
def test_what_is_not_known_is_a_fault(arch: str, text: str) -> None:
    with pytest.raises(UnknownInstructionFault):
        run(waves(arch), arch, text)
