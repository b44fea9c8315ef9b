"""Scalar instructions that our kernels use and few other sources cover, compared with integers in Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from both_engines import run_both

pytestmark = pytest.mark.compile

ARCHS = ("gfx942", "gfx1100")
WORD = 2**32
# No pair is equal: the carry of a minimum of equal numbers is not the same in all of AMD's texts.
PAIRS = [
    (0, 1), (1, 0), (7, 33), (0x80000000, 1), (0xFFFFFFFF, 2), (0x7FFFFFFF, 0x80000000), (0x12345678, 0x9ABCDEF0),
    (0xFFFF8000, 31), (5, 0xFFFFFFFB), (0x40000000, 0xC0000001),
]  # fmt: skip
_FIRST = 10  # vector register of the first result


def signed(value: int, bits: int = 32) -> int:
    """The number in two's complement."""
    half = 1 << bits - 1
    return (value & 2 * half - 1 ^ half) - half


def compare(function: Callable[[int, int], bool], *, is_signed: bool) -> Callable[[int, int], tuple[int, bool]]:
    """An expectation of a comparison, which has no result but the carry."""
    return lambda a, b: (0, function(signed(a), signed(b)) if is_signed else function(a, b))


def flagged(value: int) -> tuple[int, bool]:
    """A result whose carry says that it is not 0."""
    return value % WORD, value % WORD != 0


# An instruction with operands in s20 and s21 and its result in s22; the expected result and carry (None: it stays 0).
CASES: dict[str, Callable[[int, int], tuple[int, bool | None]]] = {
    "s_abs_i32 s22, s20": lambda a, _: flagged(abs(signed(a))),
    "s_not_b32 s22, s20": lambda a, _: flagged(~a),
    "s_ashr_i32 s22, s20, s21": lambda a, b: flagged(signed(a) >> b % 32),
    "s_min_i32 s22, s20, s21": lambda a, b: (min(signed(a), signed(b)) % WORD, signed(a) < signed(b)),
    "s_max_i32 s22, s20, s21": lambda a, b: (max(signed(a), signed(b)) % WORD, signed(a) > signed(b)),
    "s_lshl1_add_u32 s22, s20, s21": lambda a, b: ((2 * a + b) % WORD, 2 * a + b >= WORD),
    "s_lshl2_add_u32 s22, s20, s21": lambda a, b: ((4 * a + b) % WORD, 4 * a + b >= WORD),
    "s_lshl3_add_u32 s22, s20, s21": lambda a, b: ((8 * a + b) % WORD, 8 * a + b >= WORD),
    "s_mul_hi_i32 s22, s20, s21": lambda a, b: ((signed(a) * signed(b) >> 32) % WORD, None),
    "s_pack_lh_b32_b16 s22, s20, s21": lambda a, b: (a & 0xFFFF | b & 0xFFFF0000, None),
    "s_bitset0_b32 s22, s21": lambda _, b: (0, None),
    "s_bitset1_b32 s22, s21": lambda _, b: (1 << b % 32, None),
    "s_bitcmp0_b32 s20, s21": lambda a, b: (0, not a >> b % 32 & 1),
    "s_cmp_ge_i32 s20, s21": compare(lambda a, b: a >= b, is_signed=True),
    "s_cmp_gt_i32 s20, s21": compare(lambda a, b: a > b, is_signed=True),
    "s_cmp_le_i32 s20, s21": compare(lambda a, b: a <= b, is_signed=True),
    "s_cmp_ge_u32 s20, s21": compare(lambda a, b: a >= b, is_signed=False),
    "s_cmp_gt_u32 s20, s21": compare(lambda a, b: a > b, is_signed=False),
    "s_cmpk_gt_i32 s20, 0xff80": lambda a, _: (0, signed(a) > -128),
    "s_cmpk_lt_i32 s20, 0xff80": lambda a, _: (0, signed(a) < -128),
    "s_cmpk_lt_u32 s20, 0xff80": lambda a, _: (0, a < 0xFF80),
    "s_addk_i32 s22, 0xff80": lambda *_: (-128 % WORD, False),
    "s_mulk_i32 s22, 0xff80": lambda *_: (0, None),
}


@pytest.mark.parametrize("arch", ARCHS)
def test_results_and_carries(arch: str) -> None:
    for text, expect in CASES.items():
        texts: list[str] = []
        for number, (a, b) in enumerate(PAIRS):
            place = _FIRST + 2 * number
            texts += [f"s_mov_b32 s20, {a:#x}", f"s_mov_b32 s21, {b:#x}", "s_mov_b32 s22, 0", "s_cmp_lg_u32 s22, s22"]
            texts += [text, "s_cselect_b32 s23, 1, 0", f"v_mov_b32 v{place}, s22", f"v_mov_b32 v{place + 1}, s23"]
        made = run_both(arch, texts, {}, [_FIRST + number for number in range(2 * len(PAIRS))])
        for number, (a, b) in enumerate(PAIRS):
            value, carry = expect(a, b)
            found = int(made[2 * number][0]), int(made[2 * number + 1][0])
            assert found == (value, int(bool(carry))), (text, hex(a), hex(b))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("borrow", [0, 1])
def test_a_difference_with_borrow(arch: str, borrow: int) -> None:
    texts = []
    for number, (a, b) in enumerate(PAIRS):
        place = _FIRST + 2 * number
        texts += [f"s_mov_b32 s20, {a:#x}", f"s_mov_b32 s21, {b:#x}", f"s_cmp_eq_u32 s20, s{20 if borrow else 21}"]
        texts += ["s_subb_u32 s22, s20, s21", "s_cselect_b32 s23, 1, 0"]
        texts += [f"v_mov_b32 v{place}, s22", f"v_mov_b32 v{place + 1}, s23"]
    made = run_both(arch, texts, {}, [_FIRST + number for number in range(2 * len(PAIRS))])
    for number, (a, b) in enumerate(PAIRS):
        exact = a - b - borrow
        assert (int(made[2 * number][0]), int(made[2 * number + 1][0])) == (exact % WORD, int(exact < 0))


@pytest.mark.parametrize("arch", ARCHS)
def test_vector_comparisons_and_minima(arch: str) -> None:
    lanes = 64 if arch == "gfx942" else 32
    numbers = np.random.default_rng(1).integers(0, WORD, (3, lanes), np.uint32)
    numbers[:, :4] = [(0, 1, 0xFFFFFFFF, 0x80000000), (0, 0, 1, 0x7FFFFFFF), (5, 0xFFFFFFFF, 0, 0x80000000)]
    mask = "s[10:11]" if arch == "gfx942" else "s10"
    texts = ["v_min3_i32 v10, v2, v3, v4", "v_mad_i32_i24 v11, v2, v3, v4"]
    for place, name in ((12, "v_cmp_le_i32_e64"), (13, "v_cmp_ge_i32_e64")):
        texts += [f"{name} {mask}, v2, v3", f"v_cndmask_b32_e64 v{place}, 0, 1, {mask}"]
    made = run_both(arch, texts, dict(zip((2, 3, 4), numbers, strict=True)), [10, 11, 12, 13])
    for lane in range(lanes):
        a, b, c = (signed(int(values[lane])) for values in numbers)
        product = signed(a % 2**24, 24) * signed(b % 2**24, 24) + c
        want = [min(a, b, c) % WORD, product % WORD, int(a <= b), int(a >= b)]
        assert [int(values[lane]) for values in made] == want
