"""Conversions with random rounding. Expected by integers and fractions: see small_float_oracles.py."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from both_engines import float_words, run_both
from small_float_oracles import encode, find_exponent, make_words, next_random, read_numbers, read_scale

pytestmark = pytest.mark.compile

ARCH, LANES = "gfx950", 64
DENORMALS = ".amdhsa_float_denorm_mode_32 3"  # subnormal numbers are not made zero
SEEDS = [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0xFFF, 0x10000, 0x8000]


def make_seeds() -> np.ndarray:
    made = np.random.default_rng(1).integers(0, 2**32, LANES, np.uint32)
    made[: len(SEEDS)] = SEEDS
    return made


@pytest.mark.parametrize("kind", ["fp8", "bf8", "fp4"])
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
def test_small_floats_with_a_scale(kind: str, source: str) -> None:
    """Most numbers are subnormal ones of the format, or near them: their fractions are shifted first."""
    numbers = np.random.default_rng(2)
    lowest = {"fp8": -7, "bf8": -15, "fp4": -1}[kind]
    values = numbers.normal(0, 1, (LANES, 2)) * np.exp2(lowest + numbers.integers(-2, 3, (LANES, 2)))
    values[:8, 0] = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-30, 2.0**lowest, -(2.0**lowest)]
    scales = np.resize(float_words([1.0, 0.5, 8.0, -4.0]), LANES)
    scaled = values * np.array([float(read_scale(int(bits)) or 1) for bits in scales])[:, None]
    pair = kind == "fp4"
    name = f"sr_pk_{kind}_{source}" if pair else f"sr_{kind}_{source}"
    words = [make_words(scaled, source)] if source != "f32" else list(make_words(scaled, source).T)
    register = "v[2:3]" if source == "f32" and pair else "v2"
    given = {2 + k: word for k, word in enumerate(words)} | {4: make_seeds(), 5: scales, 6: np.full(LANES, 0x11223344)}
    text = f"v_cvt_scalef32_{name} v6, {register}, v4, v5 op_sel:[0,0,1,1]"
    (made,) = run_both(ARCH, [text], given, [6], directives=DENORMALS)
    exact = np.concatenate([read_numbers(word, source) for word in words], axis=1)
    for lane in range(LANES):
        seed, scale = int(given[4][lane]), read_scale(int(scales[lane]))
        want = encode(float(exact[lane, 0]), scale, kind, seed, source)
        if pair:
            want |= encode(float(exact[lane, 1]), scale, kind, next_random(seed), source) << 4
        assert int(made[lane]) == 0x00223344 | want << 24, (lane, exact[lane])


def round_by(value: float, seed: int, kind: str) -> int:
    """The bits of f16 or bf16: a random number below the last bit is added, then the rest is cut off."""
    fraction, bias, width = {"f16": (10, 15, 5), "bf16": (7, 127, 8)}[kind]
    sign = 0x8000 if math.copysign(1, value) < 0 else 0
    endless = ((1 << width) - 1) << fraction
    if math.isinf(value) or not value:
        return sign | (endless if value else 0)
    size = abs(Fraction(value))
    exponent = max(find_exponent(size), 1 - bias)
    whole = math.floor(size / Fraction(2) ** (exponent - 23)) + (seed >> (9 + fraction))
    steps = whole >> (23 - fraction)
    return sign | min((exponent + bias - 1 << fraction) + steps, endless)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves(kind: str) -> None:
    numbers = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        values = (numbers.normal(0, 1, LANES) * np.exp2(numbers.integers(-28, 18, LANES))).astype(np.float32)
        edges = [65504, 65519, 65536, -65535, 3.4028234e38, -3.4028234e38, 2.0**-24, 2.0**-25, -(2.0**-14), 1e-40, 0.0]
        values[7 : 7 + len(edges) + 4] = [*edges, -0.0, math.inf, -math.inf, math.nan]
    given = {1: values.view(np.uint32), 2: make_seeds(), 3: np.full(LANES, 0x11223344), 4: np.full(LANES, 0x55667788)}
    texts = [f"v_cvt_sr_{kind}_f32 v3, v1, v2", f"v_cvt_sr_{kind}_f32 v4, -|v1|, v2 op_sel:[0,0,1]"]
    low, high = run_both(ARCH, texts, given, [3, 4], directives=DENORMALS)
    for lane, value in enumerate(values):
        parts = int(low[lane]) & 0xFFFF, int(high[lane]) >> 16
        assert int(low[lane]) >> 16 == 0x1122
        assert int(high[lane]) & 0xFFFF == 0x7788
        if math.isnan(value):
            assert np.isnan(read_numbers(np.array(parts, np.uint32), kind)[:, 0]).all()
            continue
        seed = int(given[2][lane])
        want = round_by(float(value), seed, kind), round_by(-abs(float(value)), seed, kind)
        assert parts == want, (lane, value)


def test_too_large_halves_become_the_largest_if_the_mode_says_so() -> None:
    values = [65504.0, 65535.0, 1e6, -1e6, math.inf, 1.0]
    texts = ["s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1", "s_nop 0", "v_cvt_sr_f16_f32 v3, v1, v2"]
    given = {1: np.resize(float_words(values), LANES), 2: np.full(LANES, 0xFFFFFFFF), 3: np.zeros(LANES)}
    (made,) = run_both(ARCH, texts, given, [3])
    assert [int(each) for each in made[:6]] == [0x7BFF, 0x7BFF, 0x7BFF, 0xFBFF, 0x7C00, 0x3C00]
