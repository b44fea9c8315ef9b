"""Instructions that compilers rarely emit. Expected by integers and fractions in Python, or by LLVM's own folding."""

from __future__ import annotations

import math
import re
import subprocess
from fractions import Fraction

import isa_oracles as oracles
import numpy as np
import pytest
from assembled import LANES
from both_engines import fill_lanes, float_words, run_both

pytestmark = pytest.mark.compile

ALL = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
GFX9, RDNA = ALL[:3], ALL[3:]


def random_words(arch: str, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, 2**32, LANES[arch], np.uint32)
    values[:4] = (0, 0xFFFFFFFF, 0x80000000, 0x00FF00FF)
    return values


def octets(value: int) -> bytes:
    return int(value).to_bytes(4, "little")


def masked_sum(a: int, b: int, c: int, masked: bool) -> int:
    return c + sum(abs(x - y) for x, y in zip(octets(a), octets(b), strict=True) if y or not masked)


@pytest.mark.parametrize("arch", ALL)
def test_sums_of_byte_differences(arch: str) -> None:
    given = {register: random_words(arch, register) for register in (2, 3, 4, 6, 7)}
    texts = ["v_msad_u8 v10, v2, v4, v6"]
    texts += ["v_qsad_pk_u16_u8 v[12:13], v[2:3], v4, v[6:7]", "v_mqsad_pk_u16_u8 v[14:15], v[2:3], v4, v[6:7]"]
    single, *quads = run_both(arch, texts, given, [10, 12, 13, 14, 15])
    for lane in range(LANES[arch]):
        low, high, other, c_low, c_high = (int(values[lane]) for values in given.values())
        assert int(single[lane]) == masked_sum(low, other, c_low, True) % 2**32
        wide, addends = low | high << 32, c_low | c_high << 32
        for masked, (first, second) in zip((False, True), (quads[:2], quads[2:]), strict=True):
            parts = [
                masked_sum(wide >> 8 * k & 0xFFFFFFFF, other, addends >> 16 * k & 0xFFFF, masked) & 0xFFFF
                for k in range(4)
            ]
            assert int(first[lane]) | int(second[lane]) << 32 == sum(part << 16 * k for k, part in enumerate(parts))


def test_halves_of_registers_are_swapped() -> None:
    """In the active lanes; also halves of one register."""
    given = {register: random_words("gfx1100", register) for register in (2, 3, 4)}
    texts = ["s_mov_b32 exec_lo, 0x00ff0ff1", "v_swap_b16 v2.l, v3.h", "v_swap_b16 v4.h, v4.l", "s_mov_b32 exec_lo, -1"]
    got = run_both("gfx1100", texts, given, [2, 3, 4])
    for lane in range(LANES["gfx1100"]):
        first, second, third = (int(values[lane]) for values in given.values())
        if 0x00FF0FF1 >> lane & 1:
            first, second = first & 0xFFFF0000 | second >> 16, second & 0xFFFF | (first & 0xFFFF) << 16
            third = third >> 16 | (third & 0xFFFF) << 16
        assert [int(values[lane]) for values in got] == [first, second, third]


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize("source", ["v[2:3]", "s[10:11]"])
def test_four_wide_sums_of_byte_differences(arch: str, source: str) -> None:
    """The destination begins within the addends: all sources are read before."""
    given = {register: random_words(arch, register) for register in (2, 3, 4, 8, 9, 10, 11)}
    given[9][:] |= np.uint32(0xFFFFFF00)  # so that sums wrap around
    texts = [
        "v_readfirstlane_b32 s10, v2",
        "v_readfirstlane_b32 s11, v3",
        f"v_mqsad_u32_u8 v[10:13], {source}, v4, v[8:11]",
    ]
    made = run_both(arch, texts, given, [10, 11, 12, 13])
    for lane in range(LANES[arch]):
        low, high, other, *addends = (int(values[lane]) for values in given.values())
        wide = low | high << 32 if source.startswith("v") else int(given[2][0]) | int(given[3][0]) << 32
        want = [masked_sum(wide >> 8 * k & 0xFFFFFFFF, other, addends[k], True) % 2**32 for k in range(4)]
        assert [int(each[lane]) for each in made] == want


@pytest.mark.parametrize("arch", ALL)
def test_carries_with_clamp_stop_at_the_ends(arch: str) -> None:
    a, b = random_words(arch, 1), random_words(arch, 2)
    old = arch.startswith("gfx9")
    mask = "s[10:11]" if old else "s10"
    carry = "vcc" if old else "vcc_lo"
    with_carry = ("v_addc_co_u32_e64", "v_subb_co_u32_e64") if old else ("v_add_co_ci_u32_e64", "v_sub_co_ci_u32_e64")
    texts = [f"v_cmp_gt_u32_e64 {carry}, 16, v0"]
    outputs = []
    for number, name in enumerate(("v_add_co_u32_e64", "v_sub_co_u32_e64", *with_carry)):
        source = f", {carry}" if number > 1 else ""
        texts += [f"{name} v{10 + 2 * number}, {mask}, v2, v3{source} clamp"]
        texts += [f"v_cndmask_b32_e64 v{11 + 2 * number}, 0, 1, {mask}"]
        outputs += [10 + 2 * number, 11 + 2 * number]
    made = run_both(arch, texts, {2: a, 3: b}, outputs)
    for lane in range(LANES[arch]):
        x, y, c = int(a[lane]), int(b[lane]), int(lane < 16)
        want = [x + y, x - y, x + y + c, x - y - c]
        for number, exact in enumerate(want):
            assert int(made[2 * number][lane]) == min(max(exact, 0), 2**32 - 1)
            assert int(made[2 * number + 1][lane]) == int(not 0 <= exact < 2**32)


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize("value", [0, 1, 0x80000000, 0x00F00100, 0xFFFFFFFF, 0x12345678])
def test_masks_of_four_lanes(arch: str, value: int) -> None:
    texts = [f"s_mov_b32 s10, {value:#x}", "s_mov_b32 s11, 0x00010000"]
    for number, name in enumerate(("s_quadmask_b32", "s_wqm_b32")):
        texts += [f"{name} s{12 + number}, s10", f"s_cselect_b32 s{14 + number}, 1, 0"]
    texts += ["s_quadmask_b64 s[16:17], s[10:11]", "s_wqm_b64 s[18:19], s[10:11]"]
    texts += [f"v_mov_b32 v{10 + k}, s{12 + k}" for k in range(8)]
    got = [int(values[0]) for values in run_both(arch, texts, {}, list(range(10, 18)))]
    wide = value | 0x00010000 << 32
    groups = [k for k in range(16) if wide >> 4 * k & 15]
    quads, whole = sum(1 << k for k in groups), sum(15 << 4 * k for k in groups)
    narrow = sum(1 << k for k in groups if k < 8)
    assert got[:4] == [narrow, whole & 0xFFFFFFFF, int(narrow != 0), int(narrow != 0)]
    assert got[4] | got[5] << 32 == quads
    assert got[6] | got[7] << 32 == whole


@pytest.mark.parametrize("arch", ALL)
def test_four_bits_become_sixteenths(arch: str) -> None:
    (made,) = run_both(arch, ["v_cvt_off_f32_i4 v2, v1"], {1: fill_lanes(np.arange(16) | 0x50, arch)}, [2])
    want = [float(Fraction(k if k < 8 else k - 16, 16)) for k in range(16)]
    assert [float(value) for value in made.view(np.float32)[:16]] == want


@pytest.mark.parametrize("arch", ALL)
def test_a_float_becomes_a_byte_of_a_register(arch: str) -> None:
    numbers = [128.5, -3.0, 300.0, 254.9, np.nan, np.inf, 0.99, 1.0]
    given = {
        1: fill_lanes(float_words(numbers), arch),
        2: fill_lanes([0, 1, 2, 3], arch),
        3: fill_lanes([0x44332211], arch),
    }
    (made,) = run_both(arch, ["v_cvt_pk_u8_f32 v4, v1, v2, v3"], given, [4])
    octet = [128, 0, 255, 254, 0, 255, 0, 1]
    for lane, value in enumerate(octet):
        place = 8 * (lane % 4)
        assert int(made[lane]) == 0x44332211 & ~(0xFF << place) | value << place


@pytest.mark.parametrize("arch", GFX9)
def test_a_float_becomes_a_byte_of_the_destination(arch: str) -> None:
    numbers = [128.5, -3.0, 300.0, 254.9, np.nan, np.inf, -np.inf, -0.5]
    given = {
        1: fill_lanes(float_words(numbers), arch),
        2: fill_lanes([0, 1, 2, 3, 4, 7], arch),
        3: random_words(arch, 3),
    }
    texts = ["v_mov_b32 v4, v3", "v_cvt_pkaccum_u8_f32 v3, v1, v2", "v_cvt_pkaccum_u8_f32 v4, -v1, 2"]
    first, second = run_both(arch, texts, given, [3, 4])
    for lane in range(LANES[arch]):
        for made, value, place in (
            (first, numbers[lane % 8], int(given[2][lane]) % 4),
            (second, -numbers[lane % 8], 2),
        ):
            want = 0 if np.isnan(value) else int(min(max(value, 0), 255))
            parts = bytearray(octets(int(given[3][lane])))
            parts[place] = want
            assert octets(int(made[lane])) == parts


@pytest.mark.parametrize("arch", ALL)
def test_signed_halves_become_bytes(arch: str) -> None:
    """On gfx9 the upper half of the destination becomes 0; later GPUs keep it, and gfx1100 names halves."""
    words = random_words(arch, 12)
    edges = [0x00FF0100, 0xFFFF0001, 0x7FFF8000, 0x00FE00FF]
    words[4:8] = edges
    texts = ["v_sat_pk_u8_i16 v2, v1" if arch != "gfx1100" else "v_sat_pk_u8_i16 v2.h, v1"]
    (made,) = run_both(arch, texts, {1: words, 2: np.full(LANES[arch], 0x11223344)}, [2])
    for lane, word in enumerate(words):
        low, high = (min(max((int(word) >> at & 0xFFFF ^ 0x8000) - 0x8000, 0), 255) for at in (0, 16))
        octet = low | high << 8
        want = octet if arch.startswith("gfx9") else 0x11220000 | octet
        assert int(made[lane]) == (octet << 16 | 0x3344 if arch == "gfx1100" else want)


def decode_octet(code: int, kind: str) -> float:
    """An 8-bit float; every one is exact in f32."""
    fraction, bias = (3, 7) if kind == "fp8" else (2, 15)
    exponent, part = (code & 0x7F) >> fraction, code & ((1 << fraction) - 1)
    if code & 0x7F == 0x7F if kind == "fp8" else exponent == 31:
        return math.nan if kind == "fp8" or part else math.copysign(math.inf, 0x7F - code)
    size = math.ldexp(part + (1 << fraction if exponent else 0), max(exponent, 1) - bias - fraction)
    return math.copysign(size, 0x7F - code)


def add_products(a: int, b: int, c: float, kinds: tuple[str, str]) -> float:
    """c and one product after the other, each sum rounded to f32."""
    for x, y in zip(octets(a), octets(b), strict=True):
        product = decode_octet(x, kinds[0]) * decode_octet(y, kinds[1])
        if any(map(math.isnan, (product, c))) or any(map(math.isinf, (product, c))):
            c = product + c
        else:
            exact = Fraction(product) + Fraction(c)
            c = oracles.round_float(exact) if exact else product + c
    return c


@pytest.mark.parametrize("first", ["fp8", "bf8"])
@pytest.mark.parametrize("second", ["fp8", "bf8"])
def test_dot_products_of_small_floats(first: str, second: str) -> None:
    """The modifiers are those of the addend: neg_hi makes it positive, then neg_lo changes the sign."""
    numbers = np.random.default_rng(13)
    a, b = (numbers.integers(0, 2**32, 32, np.uint32) for _ in range(2))
    a[:5], b[:5] = (0x80000000, 0x38, 0x7F000000, 0x7C7C7C7C, 0xFC00007C), (0, 0xB8, 0, 0x3C3C3C3C, 0x3C00003C)
    c = (numbers.normal(0, 1, 32) * np.exp2(numbers.integers(-12, 30, 32))).astype(np.float32)
    c[:8] = [-0.0, 1.0, 2.0, -np.inf, np.inf, np.nan, 2.0**-140, 3e38]
    b[6:8] = 0
    name = f"v_dot4_f32_{first}_{second}"
    texts = [f"{name} v{10 + k}, v1, v2, v3 neg_lo:[0,0,{k & 1}] neg_hi:[0,0,{k >> 1}]" for k in range(4)]
    given = {1: a, 2: b, 3: c.view(np.uint32)}
    made = run_both("gfx1201", texts, given, range(10, 14), directives=".amdhsa_float_denorm_mode_32 3")
    for k, results in enumerate(made):
        for lane, got in enumerate(results.view(np.float32)):
            addend = abs(float(c[lane])) if k >> 1 else float(c[lane])
            want = add_products(int(a[lane]), int(b[lane]), -addend if k & 1 else addend, (first, second))
            same = math.isnan(got) if math.isnan(want) else oracles.to_bits(want) == int(got.view(np.uint32))
            assert same, (lane, k, got, want)


def fold_trig_preop(cases: list[tuple[int, int]]) -> list[int]:
    """What LLVM folds llvm.amdgcn.trig.preop to."""
    lines = ['target triple = "amdgcn-amd-amdhsa"', "declare double @llvm.amdgcn.trig.preop.f64(double, i32)"]
    for number, (bits, segment) in enumerate(cases):
        call = f"call double @llvm.amdgcn.trig.preop.f64(double 0x{bits:016X}, i32 {segment})"
        lines.append(f"define double @f{number}() {{ %r = {call} ret double %r }}")
    done = subprocess.run(
        ["opt-22", "-S", "-passes=instcombine"], input="\n".join(lines), text=True, check=True, capture_output=True
    )
    found = re.findall(r"ret double (\S+)", done.stdout)
    assert len(found) == len(cases)
    return [int(text, 16) if text.startswith("0x") else int(np.float64(text).view(np.uint64)) for text in found]


@pytest.mark.parametrize("arch", ALL)
def test_bits_of_two_over_pi_are_those_that_llvm_folds(arch: str) -> None:
    numbers = [1.0, 1e10, 2.0**54, 2.0**55, 1e100, 2.0**944, 2.0**945, 1.7e308]
    bits = [int(np.float64(number).view(np.uint64)) for number in numbers]
    cases = [(bits[k % 8], (k // 8) % 4 + (8 if k % 5 == 4 else 0)) for k in range(LANES[arch])]
    # LLVM gives 0 where fewer bits are left than its table has; AMD's text has 1201 bits.
    cases = [(x, segment if segment * 53 + max((x >> 52) - 1077, 0) < 1100 else 0) for x, segment in cases]
    want = fold_trig_preop(cases)
    given = {
        2: np.array([case[0] & 0xFFFFFFFF for case in cases], np.uint32),
        3: np.array([case[0] >> 32 for case in cases], np.uint32),
        4: np.array([case[1] for case in cases], np.uint32),
    }
    low, high = run_both(arch, ["v_trig_preop_f64 v[6:7], v[2:3], v4"], given, [6, 7])
    assert [int(a) | int(b) << 32 for a, b in zip(low, high, strict=True)] == want


@pytest.mark.parametrize("arch", RDNA)
def test_dot_products_of_halves_with_exact_results(arch: str) -> None:
    """Small integers, so that no step is rounded."""
    numbers = np.random.default_rng(3).integers(-8, 9, (5, 32))

    def pack(low: np.ndarray, high: np.ndarray, brain: bool) -> np.ndarray:
        def encode(values: np.ndarray) -> np.ndarray:
            if brain:
                return values.astype(np.float32).view(np.uint32) >> np.uint32(16)
            return values.astype(np.float16).view(np.uint16).astype(np.uint32)

        return encode(low) | encode(high) << np.uint32(16)

    for name, brain in (("v_dot2_f16_f16", False), ("v_dot2_bf16_bf16", True)):
        a, b = pack(numbers[0], numbers[1], brain), pack(numbers[2], numbers[3], brain)
        c = pack(numbers[4], numbers[4], brain)
        (made,) = run_both(arch, [f"{name} v4, v1, v2, v3"], {1: a, 2: b, 3: c, 4: np.full(32, 0x7777_0000)}, [4])
        exact = numbers[0] * numbers[2] + numbers[1] * numbers[3] + numbers[4]
        assert np.array_equal(made, pack(exact, np.zeros(32), brain) & np.uint32(0xFFFF) | np.uint32(0x77770000))


@pytest.mark.parametrize("name", ["v_permlane16_var_b32", "v_permlanex16_var_b32"])
def test_lanes_pick_lanes_of_their_row(name: str) -> None:
    places = np.random.default_rng(5).integers(0, 2**32, 32, np.uint32)
    (made,) = run_both("gfx1201", [f"{name} v3, v1, v2"], {1: np.arange(32) + 100, 2: places}, [3])
    other = 16 if "x16" in name else 0
    want = [100 + ((lane & 16) ^ other) + int(places[lane] & 15) for lane in range(32)]
    assert [int(value) for value in made] == want


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1201"])
def test_overflow_stops_at_the_largest_number_if_the_mode_says_so(arch: str) -> None:
    """MODE.FP16_OVFL, for f16 and 8-bit floats; true infinities stay what they are, except in 8-bit floats of CDNA4."""
    register = "HW_REG_WAVE_MODE" if arch == "gfx1201" else "HW_REG_MODE"
    numbers = [1e6, -1e6, np.inf, 1.0]
    texts = [f"s_setreg_imm32_b32 hwreg({register}, 23, 1), 1", "s_nop 0", "v_mov_b32 v2, 0", "v_mov_b32 v3, 0"]
    texts += ["v_cvt_f16_f32 v2, v1", "v_cvt_pk_fp8_f32 v3, v1, v1"]
    half, octet = run_both(arch, texts, {1: fill_lanes(float_words(numbers), arch)}, [2, 3])
    assert [int(value) & 0xFFFF for value in half[:4]] == [0x7BFF, 0xFBFF, 0x7C00, 0x3C00]
    want = {
        "gfx942": [0x7F, 0xFF, 0x80, 0x40],
        "gfx950": [0x7E, 0xFE, 0x7E, 0x38],
        "gfx1201": [0x7E, 0xFE, 0x7F, 0x38],
    }
    assert [int(value) & 0xFF for value in octet[:4]] == want[arch]


@pytest.mark.parametrize("arch", ALL)
def test_pairs_of_normalized_halves(arch: str) -> None:
    numbers = np.random.default_rng(9).uniform(-1.5, 1.5, (2, LANES[arch])).astype(np.float16)
    given = {k + 1: values.view(np.uint16).astype(np.uint32) for k, values in enumerate(numbers)}
    names = ("v_cvt_pknorm_i16_f16", "v_cvt_pknorm_u16_f16")
    if not arch.startswith("gfx9"):
        names = ("v_cvt_pk_norm_i16_f16", "v_cvt_pk_norm_u16_f16")
    signed, unsigned = run_both(arch, [f"{names[0]} v3, v1, v2", f"{names[1]} v4, v1, v2"], given, [3, 4])
    for lane in range(LANES[arch]):
        parts = [Fraction(float(values[lane])) for values in numbers]
        low = [round(max(min(part, 1), -1) * 32767) & 0xFFFF for part in parts]
        high = [round(max(min(part, 1), 0) * 65535) for part in parts]
        assert int(signed[lane]) == low[0] | low[1] << 16
        assert int(unsigned[lane]) == high[0] | high[1] << 16


def test_shifted_numbers_are_limited_to_bytes() -> None:
    a, b = random_words("gfx950", 10), random_words("gfx950", 11)
    shifts = np.resize(np.array([0, 8, 20, 24, 28, 31, 56], np.uint32), 64)
    texts = ["v_ashr_pk_i8_i32 v4, v1, v2, v3", "v_ashr_pk_u8_i32 v5, v1, v2, v3"]
    given = {1: a, 2: b, 3: shifts, 4: np.full(64, 0x11112222), 5: np.full(64, 0x33334444)}
    signed, unsigned = run_both("gfx950", texts, given, [4, 5])
    for lane in range(64):
        numbers = [int(np.int32(values[lane].view(np.int32))) >> (int(shifts[lane]) & 31) for values in (a, b)]
        low = [min(max(number, -128), 127) & 0xFF for number in numbers]
        high = [min(max(number, 0), 255) for number in numbers]
        assert int(signed[lane]) == 0x11110000 | low[0] | low[1] << 8
        assert int(unsigned[lane]) == 0x33330000 | high[0] | high[1] << 8
