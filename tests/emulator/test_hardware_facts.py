"""What GPUs do where AMD's manuals are silent, differ from each other or are wrong.

The facts about gfx1100 are those of tinygrad's tests (test/amd/hw), whose expectations were compared with that GPU. The
facts about constants are those of LLVM (AMDGPUBaseInfo.cpp, getInlineEncodingV216).
"""

from __future__ import annotations

import numpy as np
import pytest
from both_engines import fill_lanes, float_words, run_both

pytestmark = pytest.mark.compile

ALL = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
RDNA = ("gfx1100", "gfx1201")
# FLOAT_MODE with subnormal f32 flushed; without IEEE mode, which gfx12 does not have.
FLUSHED = ".amdhsa_float_denorm_mode_32 0"


def vcc_to(register: int, arch: str) -> str:
    return f"v_mov_b32 v{register}, vcc_lo"


@pytest.mark.parametrize("arch", ALL)
def test_an_inline_float_fills_only_the_lower_half_of_packed_f16(arch: str) -> None:
    """1.0 above gives 0, also with op_sel_hi 1; integer instructions read the bits of the f32."""
    two = int(np.float16(2).view(np.uint16))
    given = {1: fill_lanes([two | two << 16], arch), 2: fill_lanes([0x00050003], arch)}
    texts = ["v_pk_add_f16 v3, v1, 1.0", "v_pk_add_f16 v4, v1, 1.0 op_sel_hi:[1,0]", "v_pk_add_u16 v5, v2, 1.0"]
    half, both, whole = run_both(arch, texts, given, [3, 4, 5])
    three = int(np.float16(3).view(np.uint16))
    assert int(half[0]) == three | two << 16
    assert int(both[0]) == three | three << 16
    assert int(whole[0]) == 0x0003 | (0x0005 + 0x3F80) << 16


@pytest.mark.parametrize("arch", ALL)
def test_div_scale_sets_the_mask_for_zero_operands_and_small_quotients(arch: str) -> None:
    """Denominator and numerator; whether the mask is set, and the scaled numerator (None: NaN)."""
    cases = [
        (4.0, 1.0, 0, 1.0),
        (0.0, 1.0, 1, None),
        (1.0, 0.0, 1, None),
        (1.0, 2.0**-126, 1, 2.0**-62),
        (2.0**127, 1.0, 1, 1.0),
        (1.0, 3.0e38, 1, 3.0e38),
    ]
    below, above = float_words([case[0] for case in cases]), float_words([case[1] for case in cases])
    name = "vcc" if arch.startswith("gfx9") else "vcc_lo"
    texts = [f"v_div_scale_f32 v3, {name}, v2, v1, v2", vcc_to(4, arch)]
    scaled, mask = run_both(arch, texts, {1: fill_lanes(below, arch), 2: fill_lanes(above, arch)}, [3, 4])
    for lane, (d, n, bit, want) in enumerate(cases):
        value = scaled.view(np.float32)[lane]
        assert int(mask[0]) >> lane & 1 == bit, (d, n)
        assert np.isnan(value) if want is None else value == np.float32(want), (d, n)


@pytest.mark.parametrize("arch", RDNA)
def test_permlane64_does_nothing_in_a_wave_of_32_lanes(arch: str) -> None:
    (kept,) = run_both(arch, ["v_permlane64_b32 v2, v1"], {1: np.arange(32), 2: np.full(32, 77)}, [2])
    assert (kept == 77).all()


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("ieee", [False, True])
def test_output_modifiers_need_flushed_results_and_no_ieee_mode(arch: str, flushed: bool, ieee: bool) -> None:
    if arch == "gfx1201" and ieee:
        pytest.skip("gfx12 has no IEEE mode")
    directives = f".amdhsa_float_denorm_mode_32 {0 if flushed else 3}"
    if arch != "gfx1201":
        directives += f"\n.amdhsa_ieee_mode {int(ieee)}"
    (made,) = run_both(arch, ["v_add_f32_e64 v2, v1, 1.0 mul:4"], {1: float_words([2.0])}, [2], directives=directives)
    assert float(made.view(np.float32)[0]) == (12.0 if flushed and not ieee else 3.0)


@pytest.mark.parametrize("arch", ALL)
def test_sine_and_cosine_are_exact_at_quarter_turns(arch: str) -> None:
    turns = [0.0, 0.25, 0.5, 0.75, 1.0, -0.25, -0.5, 2.5, 100.25]
    texts = ["v_sin_f32_e32 v2, v1", "v_cos_f32_e32 v3, v1"]
    sines, cosines = run_both(arch, texts, {1: fill_lanes(float_words(turns), arch)}, [2, 3])
    want = [(0, 1), (1, 0), (0, -1), (-1, 0), (0, 1), (-1, 0), (0, -1), (0, -1), (1, 0)]
    got = zip(sines.view(np.float32), cosines.view(np.float32), strict=True)
    assert [(float(s), float(c)) for s, c in got][: len(turns)] == want


@pytest.mark.parametrize("arch", RDNA)
def test_a_zero_product_leaves_the_sign_of_the_addend(arch: str) -> None:
    """v_fma_dx9_zero: D = S2 if a factor is 0, also -0."""
    texts = ["v_fma_dx9_zero_f32 v4, v1, v2, v3"]
    given = {1: float_words([0.0]), 2: float_words([np.inf]), 3: float_words([-0.0])}
    assert int(run_both(arch, texts, given, [4])[0][0]) == 0x80000000


def test_gfx12_has_its_own_name_for_the_mode_register() -> None:
    texts = ["s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 4, 2), 0", "s_nop 0", "v_add_f32_e32 v2, v1, v1"]
    texts += ["s_getreg_b32 s10, hwreg(HW_REG_WAVE_MODE, 0, 8)", "v_mov_b32 v3, s10"]
    total, mode = run_both("gfx1201", texts, {1: np.full(32, 5)}, [2, 3], directives=".amdhsa_float_denorm_mode_32 3")
    assert int(total[0]) == 0
    assert int(mode[0]) == 0xC0


@pytest.mark.parametrize("arch", RDNA)
def test_normalized_halves(arch: str) -> None:
    """1.0 is 32767 and 65535; the range of the signed form is symmetric."""
    numbers = np.array([1.0, -1.0, 0.0, 2.0], np.float16).view(np.uint16)
    texts = ["v_mov_b32 v2, 0", "v_mov_b32 v3, 0", "v_cvt_norm_i16_f16 v2, v1", "v_cvt_norm_u16_f16 v3, v1"]
    signed, unsigned = run_both(arch, texts, {1: fill_lanes(numbers, arch)}, [2, 3])
    assert [int(value) for value in signed[:4]] == [32767, 0x8001, 0, 32767]
    assert [int(value) for value in unsigned[:4]] == [65535, 0, 0, 65535]


@pytest.mark.parametrize("arch", RDNA)
def test_mullit_multiplies_only_for_a_positive_guard(arch: str) -> None:
    guards = float_words([1.0, 0.0, -1.0, np.nan])
    given = {1: float_words([2.0]), 2: float_words([3.0]), 3: fill_lanes(guards, arch)}
    (made,) = run_both(arch, ["v_mullit_f32 v4, v1, v2, v3"], given, [4])
    assert [int(value) for value in made[:4]] == [int(float_words([6.0])[0]), *[0xFF7FFFFF] * 3]
