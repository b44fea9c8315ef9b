"""Instructions that newer ones replaced: those of gfx8 that end in _legacy, and other names of those of gfx12."""

from __future__ import annotations

import math
from fractions import Fraction

import isa_oracles as oracles
import numpy as np
import pytest
from assembled import LANES
from both_engines import fill_lanes, float_words, run_both

pytestmark = pytest.mark.compile

GFX9 = ("gfx90a", "gfx942", "gfx950")
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 65504.0, 2.0**-24, -(2.0**-14), 3.0, 0.333]
MODES = ".amdhsa_float_denorm_mode_32 3\n.amdhsa_float_denorm_mode_16_64 3"  # subnormal numbers are not made zero


def make_halves(seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed)
    values = (numbers.normal(0, 1, 64) * np.exp2(numbers.integers(-12, 8, 64))).astype(np.float16)
    places = numbers.permutation(64)[: 3 * len(EDGES)]
    values[places] = EDGES * 3
    return values


def add(a: float, b: float) -> float:
    exact = None if oracles.is_special(a, b) else Fraction(a) + Fraction(b)
    return oracles.round_float(exact, "e") if exact else a + b


def multiply(a: float, b: float) -> float:
    if oracles.is_special(a, b):
        return math.nan if not a or not b else a * b
    return oracles.round_float(Fraction(a) * Fraction(b), "e") if a and b else a * b


def fuse(a: float, b: float, c: float) -> float:
    exact = None if oracles.is_special(a, b, c) else Fraction(a) * Fraction(b) + Fraction(c)
    return oracles.round_float(exact, "e") if exact else (math.nan if math.isinf(a * b) and a * b == -c else a * b + c)


def fix_quotient(q: float, d: float, n: float) -> float:
    """AMD's pseudo-code of V_DIV_FIXUP_LEGACY_F16."""
    sign = math.copysign(1, d) * math.copysign(1, n)
    if math.isnan(n) or math.isnan(d) or (not n and not d) or (math.isinf(n) and math.isinf(d)):
        return math.nan
    if not d or math.isinf(n):
        return sign * math.inf
    return sign * (0.0 if math.isinf(d) or not n else abs(q))


@pytest.mark.parametrize("arch", GFX9)
def test_halves_clear_the_other_half(arch: str) -> None:
    parts = [make_halves(seed) for seed in (1, 2, 3)]
    given = {1 + k: values.view(np.uint16).astype(np.uint32) | np.uint32(0xABCD0000) for k, values in enumerate(parts)}
    names = {"mad": lambda a, b, c: add(multiply(a, b), c), "fma": fuse, "div_fixup": fix_quotient}
    texts = [f"v_mov_b32 v{10 + k}, -1" for k in range(3)]
    texts += [f"v_{name}_legacy_f16 v{10 + k}, v1, -|v2|, v3" for k, name in enumerate(names)]
    # The engines may give NaN another sign.
    texts.append("v_mov_b32 v4, 0x7e00")
    for register in (10, 11, 12):
        texts += [f"v_cmp_u_f16 vcc, v{register}, v{register}", f"v_cndmask_b32 v{register}, v{register}, v4, vcc"]
    for made, expect in zip(run_both(arch, texts, given, [10, 11, 12], directives=MODES), names.values(), strict=True):
        for lane in range(64):
            a, b, c = (float(values[lane]) for values in parts)
            want = expect(a, -abs(b), c)
            assert int(made[lane]) == (0x7E00 if math.isnan(want) else oracles.to_bits(want, "e")), (lane, a, b, c)


def test_zero_times_anything_is_zero() -> None:
    """v_mad_legacy_f32, which is only on gfx90a; a sum of zeros is not negative then."""
    a = [0.0, -0.0, 0.0, math.nan, 0.0, 2.0, 1.5, math.inf, 1 + 2.0**-23, 3e38]
    b = [math.inf, 5.0, math.nan, -0.0, 1.0, 3.0, math.nan, 2.0, 1 + 2.0**-23, 10.0]
    c = [1.0, -0.0, 7.0, -2.0, math.nan, 0.5, 1.0, -math.inf, -1.0, -math.inf]
    given = {k + 1: fill_lanes(float_words(values), "gfx90a") for k, values in enumerate((a, b, c))}
    (made,) = run_both("gfx90a", ["v_mad_legacy_f32 v4, v1, v2, v3"], given, [4], directives=MODES)
    # The product is rounded before the sum: the last bit of the square is lost.
    want = [1.0, 0.0, 7.0, -2.0, math.nan, 6.5, math.nan, math.nan, 2.0**-22, math.nan]
    for lane, got in enumerate(made[:10]):
        same = (
            math.isnan(oracles.to_float(int(got)))
            if math.isnan(want[lane])
            else int(got) == oracles.to_bits(want[lane])
        )
        assert same, lane


@pytest.mark.parametrize("arch", GFX9)
def test_powers_and_logarithms(arch: str) -> None:
    given = {1: fill_lanes(float_words([0.0, 3.0, -2.0, 127.0, 1000.0, -1000.0, math.inf, -math.inf, math.nan]), arch)}
    given[2] = fill_lanes(float_words([1.0, 8.0, 0.25, 2.0**127, 0.0, -1.0, math.inf, 2.0**-126, math.nan]), arch)
    powers, logarithms = run_both(arch, ["v_exp_legacy_f32 v3, v1", "v_log_legacy_f32 v4, v2"], given, [3, 4])
    wanted = [1.0, 8.0, 0.25, 2.0**127, math.inf, 0.0, math.inf, 0.0, math.nan]
    assert np.array_equal(powers[:9].view(np.float32), wanted, equal_nan=True)
    wanted = [0.0, 3.0, -2.0, 127.0, -math.inf, math.nan, math.inf, -126.0, math.nan]
    assert np.array_equal(logarithms[:9].view(np.float32), wanted, equal_nan=True)


@pytest.mark.parametrize("arch", LANES)
def test_hints_change_nothing(arch: str) -> None:
    """They clear exceptions, flush caches of results, and wait for exports of graphics."""
    texts = ["v_clrexcp"] if arch in GFX9 else ["v_pipeflush", "s_wait_event 0x1", "s_wait_event 0x0"]
    (made,) = run_both(arch, ["v_mov_b32 v2, v1", *texts], {1: np.arange(LANES[arch])}, [2])
    assert np.array_equal(made, np.arange(LANES[arch]))


@pytest.mark.parametrize("name", ["min", "max"])
def test_scalar_minima_have_two_names_on_gfx12(name: str) -> None:
    """The assembler makes s_min_num_f32 of s_min_f32."""
    pairs = [(1.0, 2.0), (-1.0, -2.0), (math.nan, 3.0), (4.0, math.nan), (-0.0, 0.0), (math.inf, -math.inf)]
    for low, high in pairs:
        a, b = oracles.to_bits(low), oracles.to_bits(high)
        x, y = oracles.to_bits(low, "e"), oracles.to_bits(high, "e")
        texts = [f"s_mov_b32 s20, {a:#x}", f"s_mov_b32 s21, {b:#x}", f"s_mov_b32 s22, {x:#x}", f"s_mov_b32 s23, {y:#x}"]
        texts += [
            f"s_{name}_f32 s24, s20, s21",
            f"s_{name}_f16 s25, s22, s23",
            "v_mov_b32 v1, s24",
            "v_mov_b32 v2, s25",
        ]
        single, half = (int(each[0]) for each in run_both("gfx1201", texts, {}, [1, 2]))
        choose = oracles.smallest if name == "min" else oracles.largest
        want = choose(low, high)
        if not low and not high:
            want = -0.0 if name == "min" else 0.0
        assert single == oracles.to_bits(want)
        assert half == oracles.to_bits(want, "e")
