"""Matrix instructions with small floats, scales and xf32 on the native engine: the same bits as NumPy's.

All sums are exact in f64, so that their order makes no difference.
"""

from __future__ import annotations

import numpy as np
import pytest
from both_engines import float_words, run_both

from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator.disassembly import parse_line

pytestmark = pytest.mark.compile

BITS = {0: 8, 2: 6, 3: 6, 4: 4}  # by the number of the format in cbsz and blgp
FIRST_A, FIRST_B, A_SCALES, B_SCALES, RESULT = 10, 20, 30, 31, 40


def random_elements(bits: int, seed: int) -> dict[int, np.ndarray]:
    """32 elements a lane. Those of 8 bits are fp8 from 1 to 1.875 and their negatives."""
    numbers = np.random.default_rng(seed)
    if bits != 8:
        return dict(enumerate(numbers.integers(0, 2**32, (bits, 64), np.uint32)))
    codes = numbers.integers(0x38, 0x40, (8, 64, 4), np.uint8) | numbers.integers(0, 2, (8, 64, 4), np.uint8) << 7
    return dict(enumerate(np.ascontiguousarray(codes).view(np.uint32)[..., 0]))


@pytest.mark.parametrize(("size", "count"), [("16x16x128", 4), ("32x32x64", 16)])
@pytest.mark.parametrize(("a", "b"), [(0, 0), (4, 4), (2, 3), (0, 4)])
def test_scaled_products_are_those_of_numpy(size: str, count: int, a: int, b: int) -> None:
    given = {FIRST_A + k: values for k, values in random_elements(BITS[a], 1).items()}
    given |= {FIRST_B + k: values for k, values in random_elements(BITS[b], 2).items()}
    numbers = np.random.default_rng(3)
    for register in (A_SCALES, B_SCALES):
        given[register] = np.ascontiguousarray(numbers.integers(125, 130, (64, 4), np.uint8)).view(np.uint32)[:, 0]
    left, right = (f"v[{first}:{first + BITS[kind] - 1}]" for first, kind in ((FIRST_A, a), (FIRST_B, b)))
    to = f"v[{RESULT}:{RESULT + count - 1}]"
    formats = "".join(f" {name}:{kind}" for name, kind in (("cbsz", a), ("blgp", b)) if kind)
    text = f"v_mfma_scale_f32_{size}_f8f6f4 {to}, {left}, {right}, 1.0, v{A_SCALES}, v{B_SCALES}"
    plain = text.replace("scale_", "").replace(f", v{A_SCALES}, v{B_SCALES}", "") + formats
    made = run_both(
        "gfx950", [f"{text} op_sel:[1,0,0] op_sel_hi:[1,0,0]{formats}", "s_nop 15", "s_nop 15"], given,
        list(range(RESULT, RESULT + count)),
    )  # fmt: skip
    assert np.isfinite(np.array(made).view(np.float32)).all()
    without = run_both("gfx950", [plain, "s_nop 15"], given, list(range(RESULT, RESULT + count)))
    assert not np.array_equal(made, without)


def test_scales_multiply_rows_and_columns() -> None:
    """All elements 1, and one scale for each row and column: 128 · 2^(row + column)."""
    given = {FIRST_A + k: np.full(64, 0x38383838) for k in range(8)}
    given |= {FIRST_B + k: np.full(64, 0x38383838) for k in range(8)}
    given |= {A_SCALES: 127 + np.arange(64) % 16, B_SCALES: 127 - np.arange(64) % 16}
    text = f"v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], v[10:17], v[20:27], 0, v{A_SCALES}, v{B_SCALES}"
    made = run_both("gfx950", [f"{text} op_sel_hi:[0,0,0]", "s_nop 15"], given, [40, 41, 42, 43])
    for element, values in enumerate(made):
        for lane, value in enumerate(values.view(np.float32)):
            row, column = 4 * (lane // 16) + element, lane % 16
            assert float(value) == 128 * 2.0 ** (row - column)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_integers_stop_at_the_limits(arch: str) -> None:
    """16 products of 100 and 100 or -100 are added to numbers near the limits."""
    numbers = np.random.default_rng(4)
    signs = np.where(np.arange(16) % 2, np.uint32(0x64646464), np.uint32(0x9C9C9C9C))  # of columns
    given = {FIRST_A + k: np.full(32, 0x64646464) for k in range(4)}
    given |= {FIRST_B + k: np.tile(signs, 2) for k in range(4)}
    limits = np.iinfo(np.int32)
    start = numbers.integers(160000 - 9, 160000 + 10, (8, 32))
    start = np.where(np.arange(32) % 2, limits.max - start, limits.min + start)
    given |= {RESULT + k: values.astype(np.uint32) for k, values in enumerate(start)}
    last = 4 if arch == "gfx1100" else 2
    left, right, to = f"v[10:{9 + last}]", f"v[20:{19 + last}]", f"v[{RESULT}:{RESULT + 7}]"
    text = f"v_wmma_i32_16x16x16_iu8 {to}, {left}, {right}, {to} neg_lo:[1,1,0]"
    total = start + np.where(np.arange(32) % 2, 160000, -160000)
    wrapped, stopped = (
        np.array(run_both(arch, [f"{text}{clamp}"], given, list(range(RESULT, RESULT + 8)))).view(np.int32)
        for clamp in ("", " clamp")
    )
    assert np.array_equal(stopped, np.clip(total, limits.min, limits.max))
    assert np.array_equal(wrapped, total.astype(np.int32))
    assert not np.array_equal(wrapped, stopped)


@pytest.mark.parametrize(("size", "count"), [("16x16x8", 4), ("32x32x4", 16)])
def test_xf32_rounds_to_ten_bits(size: str, count: int) -> None:
    """1 + 2^-11 is a tie that becomes 1; 1 + 3 · 2^-11 becomes 1 + 2^-9."""
    given = {10: float_words([1 + 2.0**-11]), 11: float_words([1 + 3 * 2.0**-11])}
    given |= {20: float_words([1.0]), 21: float_words([2.0])}
    to = f"v[40:{39 + count}]"
    texts = [f"v_mfma_f32_{size}_xf32 {to}, v[10:11], v[20:21], 0", "s_nop 15"]
    made = run_both("gfx942", texts, given, list(range(40, 40 + count)))
    k = 8 if size == "16x16x8" else 4
    assert (np.array(made).view(np.float32) == np.float32(k / 2 * (1 + 2 * (1 + 2.0**-9)))).all()


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("gfx90a", "v_mfma_f32_4x4x4f16"),
        ("gfx90a", "v_mfma_f32_4x4x4bf16_1k"),
        ("gfx942", "v_mfma_f32_4x4x4_16b_f16"),
        ("gfx942", "v_mfma_f32_4x4x4_16b_bf16"),
        ("gfx950", "v_mfma_f32_4x4x4_16b_bf16"),
    ],
)
def test_sixteen_small_products(gpu: str, name: str) -> None:
    """Four lanes for each product: rows of A, columns of B and of D, whose rows are registers. All sums are exact."""
    numbers = np.random.default_rng(5)
    a, b = (numbers.integers(-8, 9, (16, 4, 4)) for _ in range(2))  # [product, row or column, k]
    given = {}
    for first, matrix in ((FIRST_A, a), (FIRST_B, b)):
        floats = matrix.reshape(64, 4).astype(np.float32)
        halves = (floats.view(np.uint32) >> 16 if "bf16" in name else floats.astype(np.float16).view(np.uint16)).astype(
            np.uint32
        )
        given |= {first + at: halves[:, 2 * at] | halves[:, 2 * at + 1] << 16 for at in (0, 1)}
    text = f"{name} v[40:43], v[{FIRST_A}:{FIRST_A + 1}], v[{FIRST_B}:{FIRST_B + 1}], 1.0"
    made = np.array(run_both(gpu, [text, "s_nop 15"], given, [40, 41, 42, 43])).view(np.float32)
    expected = np.einsum("prk,pck->rpc", a, b).reshape(4, 64) + 1
    assert np.array_equal(made, expected)


def test_a_constant_in_place_of_scales_is_read() -> None:
    text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], 1.0/*Invalid immediate*/, v20"
    parsed = parse_line(DisassembledLine(0, f"{text} op_sel_hi:[0,0,0]", (0, 0, 0, 0)))
    assert parsed.operands[4].kind == "const"
    assert parsed.operands[4].value == 1.0
