"""v_cvt_scalef32_…: conversions with a scale. Expected by exact fractions: the nearest of all numbers of a format."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from both_engines import float_words, run_both

pytestmark = pytest.mark.compile

ARCH = "gfx950"
# Bits of exponent and fraction, and the bias.
FORMATS = {"fp8": (4, 3, 7), "bf8": (5, 2, 15), "fp4": (2, 1, 1)}
SCALES = [1.0, 2.0, 0.25, 2.0**20, 2.0**-30]


def decode(code: int, kind: str) -> Fraction | float:
    """A number from its bits."""
    exponent_bits, fraction_bits, bias = FORMATS[kind]
    sign = -1 if code >> (exponent_bits + fraction_bits) & 1 else 1
    exponent, part = code >> fraction_bits & ((1 << exponent_bits) - 1), code & ((1 << fraction_bits) - 1)
    if kind == "fp8" and code & 0x7F == 0x7F:
        return math.nan
    if kind == "bf8" and exponent == 31:
        return math.nan if part else sign * math.inf
    whole = part + (1 << fraction_bits if exponent else 0)
    return sign * Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def encode(value: Fraction, negative: bool, kind: str) -> int:
    """The nearest code, ties to even. What is too large becomes NaN (fp8), infinity (bf8) or the largest (fp4)."""
    sign = 1 << sum(FORMATS[kind][:2]) if negative else 0
    codes = [code for code in range(1 << sum(FORMATS[kind][:2])) if isinstance(decode(code, kind), Fraction)]
    last = codes[-1]
    step = decode(last, kind) - decode(last - 1, kind)
    size = abs(value)
    beyond = decode(last, kind) + step / 2
    if size > beyond or (size == beyond and last % 2):
        return sign | {"fp8": 0x7F, "bf8": 0x7C, "fp4": last}[kind]
    return min(codes, key=lambda code: (abs(decode(code, kind) - size), code % 2)) | sign


def make_numbers(seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed)
    values = numbers.normal(0, 1, 64) * np.exp2(numbers.integers(-12, 20, 64))
    values[:12] = [0.0, -0.0, 448, 464, 465, 57344, 61440, 61441, 6.0, 5.0, 0.25, 2.0**-9]
    return values.astype(np.float32)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("scale", SCALES)
def test_f32_is_divided_by_the_scale_and_rounded_once(kind: str, scale: float) -> None:
    a, b = make_numbers(1) * np.float32(scale), make_numbers(2) * np.float32(scale)
    given = {1: a.view(np.uint32), 2: b.view(np.uint32), 3: float_words([scale * 1.5]), 4: np.full(64, 0x11223344)}
    last = "op_sel:[0,0,0,1]"
    (made,) = run_both(ARCH, [f"v_cvt_scalef32_pk_{kind}_f32 v4, v1, v2, v3 {last}"], given, [4])
    for lane in range(64):
        x, y = (
            encode(Fraction(float(values[lane])) / Fraction(scale), bool(np.signbit(values[lane])), kind)
            for values in (a, b)
        )
        # Only the exponent of the scale counts. op_sel chooses byte 2 or half 1; the other bits stay.
        keep = 0xFF00FFFF if kind == "fp4" else 0x0000FFFF
        assert int(made[lane]) == 0x11223344 & keep | (x | y << (4 if kind == "fp4" else 8)) << 16, a[lane]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_halves_are_divided_by_the_scale(kind: str, source: str) -> None:
    a, b = make_numbers(3) / np.float32(64), make_numbers(4) / np.float32(64)
    if source == "f16":
        parts = [values.astype(np.float16) for values in (a, b)]
        words = parts[0].view(np.uint16).astype(np.uint32) | parts[1].view(np.uint16).astype(np.uint32) << np.uint32(16)
        exact = [[Fraction(float(value)) for value in part] for part in parts]
        signs = [np.signbit(part) for part in parts]
    else:
        bits = [values.view(np.uint32) & np.uint32(0xFFFF0000) for values in (a, b)]
        words = bits[0] >> np.uint32(16) | bits[1]
        exact = [[Fraction(float(value)) for value in part.view(np.float32)] for part in bits]
        signs = [np.signbit(part.view(np.float32)) for part in bits]
    given = {1: words, 2: float_words([0.5]), 4: np.zeros(64)}
    (made,) = run_both(ARCH, [f"v_cvt_scalef32_pk_{kind}_{source} v4, v1, v2"], given, [4])
    bits_of = 1 + sum(FORMATS[kind][:2])
    for lane in range(64):
        x, y = (encode(exact[k][lane] * 2, bool(signs[k][lane]), kind) for k in (0, 1))
        assert int(made[lane]) == x | y << bits_of, (a[lane], b[lane])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("result", ["f32", "f16", "bf16"])
def test_every_code_is_multiplied_by_the_scale(kind: str, result: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(np.uint32)
    scale = 2.0**3
    per_word = 2 if kind != "fp4" else 4
    texts, outputs = [], []
    for part in range(per_word):
        bits = f"op_sel:[{part & 1},{part >> 1},0]" if kind == "fp4" else f"op_sel:[{part},0,0]"
        target = f"v[{10 + 2 * part}:{11 + 2 * part}]" if result == "f32" else f"v{10 + 2 * part}"
        texts.append(f"v_cvt_scalef32_pk_{result}_{kind} {target}, v1, v2 {bits}")
        outputs += [10 + 2 * part, 11 + 2 * part] if result == "f32" else [10 + 2 * part]
    made = np.array(run_both(ARCH, texts, {1: codes, 2: float_words([scale])}, outputs))
    small = 4 if kind == "fp4" else 8
    for lane in range(64):
        whole = int(codes[lane])
        want = [float(decode(whole >> at & ((1 << small) - 1), kind)) * scale for at in range(0, 32, small)]
        if result == "f32":
            got = made[:, lane].view(np.float32)
        elif result == "f16":
            got = np.ascontiguousarray(made[:, lane]).view(np.float16)
        else:
            got = (np.ascontiguousarray(made[:, lane]).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(
                np.float32
            )
        with np.errstate(over="ignore"):
            limit = np.array(want).astype(np.float16).astype(np.float64) if result == "f16" else np.array(want)
        assert np.array_equal(got.astype(np.float64), limit, equal_nan=True)


@pytest.mark.parametrize(("kind", "source"), [("fp8", "f32"), ("bf8", "f32"), ("fp8", "f16"), ("bf8", "bf16")])
def test_random_rounding_takes_a_neighbour_by_the_random_bits(kind: str, source: str) -> None:
    """1 + 5/64 times the scale is 5/8 of the way from 1 to 1.125 (fp8), 5/16 of that to 1.25 (bf8)."""
    random = np.random.default_rng(7).integers(0, 2**32, 64, np.uint32)
    value = np.float32((1 + 5 / 64) * 4)
    bits = {
        "f32": int(value.view(np.uint32)),
        "f16": int(np.float16(value).view(np.uint16)),
        "bf16": int(value.view(np.uint32)) >> 16,
    }[source]
    given = {1: np.full(64, bits), 2: random, 3: float_words([4.0]), 4: np.zeros(64)}
    (made,) = run_both(ARCH, [f"v_cvt_scalef32_sr_{kind}_{source} v4, v1, v2, v3 op_sel:[0,0,1,0]"], given, [4])
    part = Fraction(5, 8) if kind == "fp8" else Fraction(5, 16)
    one = {"fp8": 0x38, "bf8": 0x3C}[kind]
    for lane in range(64):
        up = Fraction(int(random[lane]), 2**32) >= 1 - part
        assert int(made[lane]) == (one + up) << 8


def test_random_rounding_of_pairs_takes_the_next_random_number() -> None:
    """1.25 is in the middle of 1 and 1.5; v_prng_b32 gives the number for the second."""
    random = np.random.default_rng(8).integers(0, 2**32, 64, np.uint32)
    given = {2: float_words([1.25]), 3: float_words([1.25]), 4: random, 5: float_words([1.0]), 6: np.zeros(64)}
    texts = ["v_cvt_scalef32_sr_pk_fp4_f32 v6, v[2:3], v4, v5", "v_prng_b32_e32 v7, v4"]
    made, after = run_both(ARCH, texts, given, [6, 7])
    for lane in range(64):
        seed = int(random[lane])
        following = (seed << 1 ^ (197 if seed >> 31 else 0)) & 0xFFFFFFFF
        assert int(after[lane]) == following
        codes = [2 + (each >= 2**31) for each in (seed, following)]
        assert int(made[lane]) == codes[0] | codes[1] << 4
