"""Numbers at their edges: 8-bit floats, clamp, output modifiers, subnormal numbers, order. Expected by plain Python."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from alu_bench import as_float, float_bits, half_bits, lanes_of, run, signed, waves

from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.group import WaveGroup

pytestmark = pytest.mark.compile

# By GPU: is it OCP's encoding? Then fp8 has a bias of 7 and bf8 of 15, else 8 and 16.
OCP = {"gfx942": False, "gfx950": True, "gfx1201": True}


def decode(code: int, kind: str, ocp: bool) -> float:
    """An 8-bit float, from its bits."""
    fraction = 3 if kind == "fp8" else 2
    bias = (7 if kind == "fp8" else 15) + (not ocp)
    sign = -1.0 if code & 0x80 else 1.0
    exponent, part = (code & 0x7F) >> fraction, code & ((1 << fraction) - 1)
    if not ocp and code == 0x80:
        return math.nan
    if ocp and kind == "fp8" and code & 0x7F == 0x7F:
        return math.nan
    if ocp and kind == "bf8" and exponent == 31:
        return math.nan if part else sign * math.inf
    if exponent == 0:
        return sign * part * 2.0 ** (1 - bias - fraction)
    return sign * (1 + part / (1 << fraction)) * 2.0 ** (exponent - bias)


def encode(value: float, kind: str, ocp: bool) -> int:
    """The nearest code, by trying all; of two equally near ones the even one. What is too large is not saturated."""
    nothing = 0x80 if not ocp else (0x7F if kind == "fp8" else 0x7E) | (0x80 if math.copysign(1, value) < 0 else 0)
    sign = 0x80 if math.copysign(1, value) < 0 else 0
    if math.isnan(value):
        return nothing
    codes = [code for code in range(0x80) if math.isfinite(decode(code, kind, ocp))]
    last = codes[-1]
    step = decode(last, kind, ocp) - decode(last - 1, kind, ocp)
    beyond = decode(last, kind, ocp) + step / 2
    too_large = abs(value) > beyond or (abs(value) == beyond and last % 2 == 1)
    if too_large:
        return sign | 0x7C if ocp and kind == "bf8" else nothing
    best = min(codes, key=lambda code: (abs(decode(code, kind, ocp) - abs(value)), code % 2))
    return best | sign if best or ocp else 0


def samples(group: WaveGroup, register: int, seed: int) -> list[list[float]]:
    """Floats around all edges of the 8-bit formats, put into a register."""
    numbers = np.random.default_rng(seed)
    edges = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        240,
        248,
        247.9,
        248.1,
        448,
        464,
        463.9,
        464.1,
        480,
        57344,
        61440,
    ]
    edges += [61439, 61441, 65536, -1e30, 2**-10, 2**-11, 3 * 2**-11, 2**-17, 2**-18, 1.0625, 1.1875, -1.125, 1e-30]
    values = numbers.normal(0, 1, (3, group.lanes)) * np.exp2(numbers.integers(-20, 18, (3, group.lanes)))
    values.reshape(-1)[: len(edges)] = edges
    group.vf[register][...] = values.astype(np.float32)
    return [[float(value) for value in row] for row in group.vf[register]]


@pytest.mark.parametrize("arch", OCP)
@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_8_bit_floats_are_encoded(arch: str, kind: str) -> None:
    group = waves(arch, some=False)
    one, two = samples(group, 1, 1), samples(group, 2, 2)
    before = [lanes_of(group, register) for register in (3, 4)]
    run(group, arch, f"v_cvt_pk_{kind}_f32 v3, v1, v2", f"v_cvt_pk_{kind}_f32 v4, v2, v1 op_sel:[0,0,1]")
    for wave in range(3):
        for lane in range(group.lanes):
            x, y = (encode(values[wave][lane], kind, OCP[arch]) for values in (one, two))
            assert int(group.v[3][wave, lane]) == x | y << 8 | before[0][wave][lane] & 0xFFFF0000, one[wave][lane]
            assert int(group.v[4][wave, lane]) == (y | x << 8) << 16 | before[1][wave][lane] & 0xFFFF


def decoding(arch: str, kind: str) -> list[str]:
    if arch == "gfx1201":
        texts = [f"v_cvt_f32_{kind}_e64 v{4 + byte}, v1 byte_sel:{byte}" for byte in range(4)]
        return [*texts, f"v_cvt_pk_f32_{kind}_e64 v[8:9], v1 op_sel:[1,0]"]
    texts = [f"v_cvt_f32_{kind}_sdwa v{4 + byte}, v1 src0_sel:BYTE_{byte}" for byte in range(4)]
    return [*texts, f"v_cvt_pk_f32_{kind}_sdwa v[8:9], v1 src0_sel:WORD_1"]


@pytest.mark.parametrize("arch", OCP)
@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_8_bit_floats_are_decoded(arch: str, kind: str) -> None:
    group = waves(arch, some=False)
    group.v[1].reshape(-1)[:64] = np.arange(256, dtype=np.uint8).view(np.uint32)
    codes = lanes_of(group, 1)
    run(group, arch, *decoding(arch, kind))
    for wave in range(3):
        for lane in range(group.lanes):
            octets = codes[wave][lane].to_bytes(4, "little")
            want = [decode(code, kind, OCP[arch]) for code in octets]
            got = [float(group.vf[register][wave, lane]) for register in (4, 5, 6, 7, 8, 9)]
            assert np.array_equal(got, [*want, *want[2:]], equal_nan=True)


@pytest.mark.parametrize(("arch", "byte", "pick"), [("gfx942", 3, "op_sel:[0,0,1,1]"), ("gfx1201", 2, "byte_sel:2")])
def test_random_rounding_takes_one_of_both_neighbours(arch: str, byte: int, pick: str) -> None:
    group = waves(arch, some=False)
    group.vf[1][...] = 1 + 5 / 64  # between 1 and 1.125: 5/8 of the way
    before = lanes_of(group, 3)
    random = lanes_of(group, 2)
    run(group, arch, f"v_cvt_sr_fp8_f32 v3, v1, v2 {pick}")
    for wave in range(3):
        for lane in range(group.lanes):
            up = random[wave][lane] / 2**32 >= 3 / 8
            code = encode(1.125 if up else 1.0, "fp8", OCP[arch])
            kept = before[wave][lane] & ~(0xFF << 8 * byte)
            assert int(group.v[3][wave, lane]) == code << 8 * byte | kept


def test_clamp_and_output_modifiers() -> None:
    group = waves("gfx942", some=False)
    group.float_mode = 0xD0  # subnormal results of f32 become zero, so that output modifiers have an effect
    values = samples(group, 1, 4)
    group.vf[2][...] = 0.25
    whole, other = lanes_of(group, 3), lanes_of(group, 4)
    run(
        group,
        "gfx942",
        "v_mul_f32_e64 v5, v1, v2 mul:4",
        "v_add_f32_e64 v6, v1, v2 clamp",
        "v_mul_f32_e64 v7, v1, v2 clamp mul:2",
        "v_add_f32_e64 v8, v1, v2 div:2",
        "v_add_u32_e64 v9, v3, v4 clamp",
        "v_sub_u32_e64 v10, v3, v4 clamp",
        "v_add_i32 v11, v3, v4 clamp",
    )
    with np.errstate(all="ignore"):
        for wave in range(3):
            for lane in range(64):
                x = np.float32(values[wave][lane])
                quarter = np.float32(0.25)
                got = {register: group.vf[register][wave, lane] for register in range(5, 9)}
                assert same(got[5], x * quarter * np.float32(4))
                assert same(
                    got[6], np.float32(0) if np.isnan(x) else min(max(x + quarter, np.float32(0)), np.float32(1))
                )
                half = x * quarter * np.float32(2)
                assert same(got[7], np.float32(0) if np.isnan(x) or half <= 0 else min(half, np.float32(1)))
                assert same(got[8], (x + quarter) / np.float32(2))
                a, b = whole[wave][lane], other[wave][lane]
                assert int(group.v[9][wave, lane]) == min(a + b, 2**32 - 1)
                assert int(group.v[10][wave, lane]) == max(a - b, 0)
                total = max(min(signed(a, 32) + signed(b, 32), 2**31 - 1), -(2**31))
                assert int(group.vi[11][wave, lane]) == total


def same(a: np.float32, b: np.float32) -> bool:
    return bool(a.view(np.uint32) == np.float32(b).view(np.uint32) or (np.isnan(a) and np.isnan(b)))


TINY, SMALL, QUIET, SIGNALLING = 2.0**-133, 2.0**-126, 0x7FC00000, 0x7F800001


# The mode, then what 2**-133 + 2**-133 and 2**-126 · 0.5 become.
@pytest.mark.parametrize(
    ("mode", "tiny", "half"),
    [(0xF0, 2.0**-132, 2.0**-127), (0xC0, 0.0, 0.0), (0xD0, 0.0, 0.0), (0xE0, 0.0, 2.0**-127)],
)
def test_subnormal_numbers_follow_the_mode(mode: int, tiny: float, half: float) -> None:
    group = waves("gfx942", some=False)
    group.float_mode = mode
    group.vf[1][...], group.vf[2][...] = TINY, SMALL
    run(group, "gfx942", "v_add_f32_e32 v3, v1, v1", "v_mul_f32_e32 v4, 0.5, v2", "v_mov_b32_e32 v5, v1")
    run(group, "gfx942", "v_cmp_lt_f32_e32 vcc, 0, v1", "v_add_f32_e64 v6, -v1, 0")
    assert float(group.vf[3][0, 0]) == np.float32(tiny)
    assert float(group.vf[4][0, 0]) == half
    assert float(group.vf[5][0, 0]) == np.float32(TINY)
    assert bool(group.read_mask(106)[0, 0]) == bool(mode & 0x10)


def test_halves_and_doubles_have_a_mode_of_their_own() -> None:
    group = waves("gfx942", some=False)
    group.float_mode = 0x30
    group.v[1][...] = half_bits(2.0**-20)
    group.v[2][...], group.v[3][...] = 1, 0
    run(group, "gfx942", "v_add_f16_e32 v4, v1, v1", "v_add_f64 v[6:7], v[2:3], v[2:3]", "v_cvt_f32_f16_e32 v8, v1")
    assert int(group.v[4][0, 0]) == 0
    assert int(group.v[6][0, 0]) | int(group.v[7][0, 0]) << 32 == 0
    assert float(group.vf[8][0, 0]) == 0
    group.float_mode = 0xF0
    run(group, "gfx942", "v_add_f16_e32 v4, v1, v1", "v_cvt_f32_f16_e32 v8, v1")
    assert int(group.v[4][0, 0]) == half_bits(2.0**-19)
    assert float(group.vf[8][0, 0]) == 2.0**-20


def test_another_rounding_is_a_fault_for_floats_only() -> None:
    group = waves("gfx942", some=False)
    group.float_mode = 0xF3
    run(group, "gfx942", "v_add_u32_e32 v3, v1, v2")
    with pytest.raises(UnknownInstructionFault, match="rounding mode"):
        run(group, "gfx942", "v_add_f32_e32 v3, v1, v2")


@pytest.mark.parametrize(
    ("arch", "name", "a", "b", "want"),
    [
        ("gfx942", "v_min_f32", 0x00000000, 0x80000000, 0x80000000),
        ("gfx942", "v_max_f32", 0x80000000, 0x00000000, 0x00000000),
        ("gfx942", "v_min_f32", QUIET, float_bits(3), float_bits(3)),
        ("gfx942", "v_max_f32", float_bits(3), QUIET, float_bits(3)),
        ("gfx942", "v_max_f32", float_bits(3), SIGNALLING, 0x7FC00001),
        ("gfx1201", "v_max_num_f32", float_bits(3), SIGNALLING, float_bits(3)),
        ("gfx1201", "v_min_num_f32", 0x00000000, 0x80000000, 0x80000000),
        ("gfx1201", "v_maximum_f32", float_bits(3), QUIET, QUIET),
        ("gfx1201", "v_minimum_f32", 0x00000000, 0x80000000, 0x80000000),
    ],
)
def test_order_of_zeros_and_nans(arch: str, name: str, a: int, b: int, want: int) -> None:
    group = waves(arch, some=False)
    group.v[1][...], group.v[2][...] = a, b
    ending = "" if name in ("v_maximum_f32", "v_minimum_f32") else "_e32"
    run(group, arch, f"{name}{ending} v3, v1, v2")
    assert {hex(value) for value in lanes_of(group, 3)[0]} == {hex(want)}


def test_medians() -> None:
    group = waves("gfx942", some=False)
    one, two, three = (samples(group, register, register) for register in (1, 2, 3))
    run(group, "gfx942", "v_med3_f32 v4, v1, v2, v3", "v_max3_f32 v5, v1, v2, v3")
    for wave in range(3):
        for lane in range(64):
            several = [one[wave][lane], two[wave][lane], three[wave][lane]]
            numbers = [value for value in several if not math.isnan(value)]
            got = float(group.vf[4][wave, lane])
            want = sorted(numbers)[1] if len(numbers) == 3 else min(numbers, default=math.nan)
            assert got == want or (math.isnan(got) and not numbers)
            largest = float(group.vf[5][wave, lane])
            assert largest == max(numbers, default=math.nan) or not numbers


def test_f16_towards_zero_and_bf16_to_nearest() -> None:
    group = waves("gfx950", some=False)
    values = samples(group, 1, 8)
    group.vf[2][...] = 65519.0
    run(
        group, "gfx950", "v_cvt_pkrtz_f16_f32 v3, v1, v2", "v_cvt_pk_bf16_f32 v4, v1, v2", "v_cvt_pk_f16_f32 v5, v1, v2"
    )
    for wave in range(3):
        for lane in range(64):
            value = values[wave][lane]
            if math.isnan(value):
                continue
            cut = struct.unpack("<e", struct.pack("<H", int(group.v[3][wave, lane]) & 0xFFFF))[0]
            assert abs(cut) <= abs(value)
            assert abs(value) - abs(cut) < max(abs(value) * 2**-10, 2.0**-24) or abs(value) > 65504
            assert int(group.v[3][wave, lane]) >> 16 == 0x7BFF
            assert int(group.v[5][wave, lane]) & 0xFFFF == half_bits(value)
            near = as_float(int(group.v[4][wave, lane]) << 16)
            if abs(value) < 1e38 and value:
                assert abs(near - value) <= abs(value) * 2**-8
