"""Conversions of 32 numbers to and from 6-bit floats (v_cvt_scalef32_pk32_… of gfx950). Expected by exact fractions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from both_engines import float_words, run_both
from small_float_oracles import FORMATS, encode, find_exponent, make_words, next_random, read_numbers, read_scale

pytestmark = pytest.mark.compile

ARCH, LANES = "gfx950", 64
DENORMALS = ".amdhsa_float_denorm_mode_32 3"  # subnormal numbers are not made zero
KINDS = ("fp6", "bf6")
# Ties, ends, what is beyond them, and subnormal numbers of both formats.
EDGES = [
    0.0,
    -0.0,
    7.5,
    7.74,
    7.75,
    -7.75,
    28.0,
    29.9,
    30.0,
    1e9,
    -1e9,
    math.inf,
    -math.inf,
    math.nan,
    -math.nan,
    0.0625,
]
EDGES += [0.1875, 0.03125, 0.09375, 1.0625, 1.1875, -2.125, 3.5, -0.125, 1e-30, -1e-30, 0.875, 0.9375, 0.96875, 0.3]
# The smallest and the largest scale, subnormal ones, and one that makes everything NaN.
SCALES = [1.0, 2.0, 0.25, 2.0**20, 2.0**-30, -1.5, 2.0**127, 2.0**-126, 2.0**-127, 0.0, math.inf, math.nan]


def run(texts: Sequence[str], given: Mapping[int, np.ndarray], outputs: Sequence[int]) -> list[np.ndarray]:
    return run_both(ARCH, texts, given, outputs, directives=DENORMALS)


def make_scales() -> np.ndarray:
    return np.resize(float_words(SCALES), LANES)


def make_singles(count: int, seed: int) -> np.ndarray:
    """Numbers [count, lanes], most of them within the formats after they are divided by the scale of their lane."""
    numbers = np.random.default_rng(seed)
    values = numbers.normal(0, 1, (count, LANES)) * np.exp2(numbers.integers(-6, 5, (count, LANES)))
    values.reshape(-1)[numbers.permutation(count * LANES)[: 8 * len(EDGES)]] = EDGES * 8
    scales = np.array([float(read_scale(int(bits)) or 1) for bits in make_scales()])
    with np.errstate(over="ignore", under="ignore"):
        return (values * scales).astype(np.float32)


def unpack(words: Sequence[np.ndarray], width: int) -> list[list[int]]:
    """The parts of so many bits in registers, for each lane."""
    whole = [sum(int(word[lane]) << 32 * k for k, word in enumerate(words)) for lane in range(LANES)]
    return [[each >> at & ((1 << width) - 1) for at in range(0, 32 * len(words), width)] for each in whole]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_two_sources_take_turns(kind: str) -> None:
    a, b = make_singles(16, 1), make_singles(16, 2)
    given = {16 + k: values for k, values in enumerate([*a.view(np.uint32), *b.view(np.uint32), make_scales()])}
    made = unpack(run([f"v_cvt_scalef32_2xpk16_{kind}_f32 v[2:7], v[16:31], v[32:47], v48"], given, range(2, 8)), 6)
    for lane in range(LANES):
        scale = read_scale(int(given[48][lane]))
        want = [encode(float(each[k][lane]), scale, kind) for k in range(16) for each in (a, b)]
        assert made[lane] == want, lane


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("random", [False, True])
def test_halves_become_six_bits(kind: str, source: str, random: bool) -> None:
    words = make_words(make_singles(32, 3).reshape(16, 2, LANES).transpose(0, 2, 1), source)
    seeds = np.random.default_rng(4).integers(0, 2**32, LANES, np.uint32)
    given = {16 + k: values for k, values in enumerate([*words, make_scales(), seeds])}
    name, seed = (f"sr_pk32_{kind}_{source}", "v33, ") if random else (f"pk32_{kind}_{source}", "")
    made = unpack(run([f"v_cvt_scalef32_{name} v[2:7], v[16:31], {seed}v32"], given, range(2, 8)), 6)
    numbers = np.concatenate([read_numbers(each, source) for each in words], axis=1)
    for lane in range(LANES):
        scale, number = read_scale(int(given[32][lane])), int(seeds[lane])
        for k in range(32):
            want = encode(float(numbers[lane, k]), scale, kind, number if random else None, source)
            assert made[lane][k] == want, (lane, k, numbers[lane, k])
            number = next_random(number)


@pytest.mark.parametrize("kind", KINDS)
def test_singles_are_rounded_by_random_numbers(kind: str) -> None:
    values, seeds = make_singles(32, 5), np.random.default_rng(6).integers(0, 2**32, LANES, np.uint32)
    seeds[:3] = (0, 0xFFFFFFFF, 0x80000000)
    given = {16 + k: each for k, each in enumerate([*values.view(np.uint32), make_scales(), seeds])}
    made = unpack(run([f"v_cvt_scalef32_sr_pk32_{kind}_f32 v[2:7], v[16:47], v49, v48"], given, range(2, 8)), 6)
    for lane in range(LANES):
        scale, number = read_scale(int(given[48][lane])), int(seeds[lane])
        for k in range(32):
            want = encode(float(values[k][lane]), scale, kind, number)
            assert made[lane][k] == want, (lane, k, values[k][lane])
            number = next_random(number)


def round_number(exact: Fraction, result: str) -> float:
    """The nearest number of a type, to even in the middle."""
    mantissa, least, most = {"f32": (24, -149, 128), "f16": (11, -24, 16), "bf16": (8, -133, 128)}[result]
    if not exact:
        return 0.0
    unit = Fraction(2) ** max(find_exponent(abs(exact)) + 1 - mantissa, least)
    rounded = round(exact / unit) * unit
    return math.copysign(math.inf, rounded) if abs(rounded) >= Fraction(2) ** most else float(rounded)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("result", ["f32", "f16", "bf16"])
def test_six_bits_are_multiplied_by_the_scale(kind: str, result: str) -> None:
    words = np.random.default_rng(7).integers(0, 2**32, (6, LANES), np.uint32)
    scales = np.resize(float_words([*SCALES, 2.0**-14, 2.0**-26, 2.0**15]), LANES)
    given = {50 + k: values for k, values in enumerate([*words, scales])}
    count = 32 if result == "f32" else 16
    text = f"v_cvt_scalef32_pk32_{result}_{kind} v[2:{1 + count}], v[50:55], v56"
    made = run([text], given, range(2, 2 + count))
    found = np.concatenate([read_numbers(each, result) for each in made], axis=1)
    for lane, codes in enumerate(unpack(words, 6)):
        scale = read_scale(int(scales[lane]))
        for k, code in enumerate(codes):
            number = FORMATS[kind].decode(code)
            want = math.nan if scale is None else round_number(Fraction(number) * scale, result)
            got = float(found[lane, k])
            assert got == want or (math.isnan(got) and math.isnan(want)), (lane, k, code)
            assert math.isnan(want) or math.copysign(1, got) == math.copysign(1, number), (lane, k, code)


def test_only_active_lanes_are_written_and_sources_may_be_the_destination() -> None:
    words = np.random.default_rng(8).integers(0, 2**32, (6, LANES), np.uint32)
    given = {10 + k: values for k, values in enumerate(words)}
    texts = ["s_mov_b32 s10, 2.0", "s_mov_b64 exec, 0xffff", "v_cvt_scalef32_pk32_f32_fp6 v[8:39], v[10:15], s10"]
    texts += ["v_cvt_scalef32_sr_pk32_fp6_f32 v[8:13], v[8:39], 5, 2.0", "s_mov_b64 exec, -1"]
    made = run(texts, {8: np.full(LANES, 8), 9: np.full(LANES, 9), **given}, range(8, 16))
    for lane in range(LANES):
        want = [8, 9, *(int(word[lane]) for word in words)]
        if lane < 16:  # there and back: every code is exact, so that nothing is rounded
            want[:6] = [int(word[lane]) for word in words]
            want[6:] = [
                int(np.float32(2 * FORMATS["fp6"].decode(code)).view(np.uint32)) for code in unpack(words, 6)[lane][6:8]
            ]
        assert [int(each[lane]) for each in made] == want, lane
