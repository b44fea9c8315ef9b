"""Names of foreign kernels and problems, read into numbers. No measurements are needed."""

from __future__ import annotations

import pytest

from research import miopen_data, moe_data, tensile, winners_data
from tilewright.base.errors import InvalidValueError, TilewrightError, UnknownValueError

TENSILE = (
    "Cijk_Ailk_Bljk_HHS_BH_MT64x48x32_MI16x16x16x1_SN_1LDSB1_GRVW4_LRVW8_LPB8_MIWT1_3_NLCA1_PLR3_SS1_SVW4_VW2_WG64_4_1"
)


def test_a_tensile_name() -> None:
    got = {name: column.tolist() for name, column in tensile.parse_names([TENSILE]).items()}
    assert (got["block_m"], got["block_n"]) == ([64.0], [48.0])
    assert (got["block_k"], got["mma"], got["mma_k"]) == ([32.0], [16.0], [16.0])
    assert (got["repeat_m"], got["repeat_n"], got["waves_m"], got["waves_n"]) == ([1.0], [3.0], [4.0], [1.0])
    assert (got["one_buffer"], got["load_width"], got["prefetch"], got["swapped"]) == ([1.0], [4.0], [3.0], [1.0])
    assert got["store_read_width"] == [0.0]  # not in the name


def test_a_tensile_name_without_matrix_instructions_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="no tile, matrix instruction"):
        tensile.parse_names(["Cijk_Ailk_Bljk_HHS_BH_MT64x48x32_SN"])


def problem(key: str) -> dict[str, float]:
    return dict(zip(miopen_data.FIELDS, miopen_data.parse_key(key), strict=True))


def test_a_forward_problem_of_two_dimensions() -> None:
    got = problem("64-56-57-3x5-128-28-29-16-1x2-2x2-1x1-0-NCHW-FP16-F_g4")
    assert (got["c"], got["h"], got["w"], got["k"], got["ho"], got["wo"], got["n"]) == (64, 56, 57, 128, 28, 29, 16)
    assert (got["fd"], got["fh"], got["fw"], got["pd"], got["ph"], got["pw"]) == (1, 3, 5, 0, 1, 2)
    assert (got["d"], got["do"], got["sd"], got["sh"], got["g"], got["dims"]) == (1, 1, 1, 2, 4, 2)
    assert (got["direction"], got["dtype"], got["channels_last"]) == (0, 1, 0)


def test_directions_of_a_layer_are_one_geometry() -> None:
    forward = problem("512-1-4-4-1x4x4-7-1-1-1-128-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F")
    for direction in "BW":
        # Input and output change places in the key.
        key = f"7-1-1-1-1x4x4-512-1-4-4-64-0x0x0-1x1x1-1x1x1-0-NCDHW-BF16-{direction}"
        assert all(problem(key)[name] == forward[name] for name in miopen_data.GEOMETRY)
        assert problem(key)["n"] == 64


def test_three_layouts_in_a_key() -> None:
    got = problem("64-56-56-1x1-128-56-56-16-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-F")
    assert (got["channels_last"], got["dtype"], got["bias"]) == (1, 1, 0)


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(TilewrightError, match="16 fields"):
        miopen_data.parse_key("64-56-56-1x1-128-56-56-16-0x0-1x1-1x1-0-NHWC-NHWC-FP16-F")
    with pytest.raises(UnknownValueError, match="'FP8'"):
        miopen_data.parse_key("64-56-56-1x1-128-56-56-16-0x0-1x1-1x1-0-NCHW-FP8-F")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "moe_ck2stages_gemm1_256x64x128x256_1x4_MulABScale_v3_Nswizzle0_Quant4_FP4X2_FP4X2_B16",
            {"family": 1, "threads": 256, "block_m": 64, "block_n": 128, "block_k": 512, "waves_n": 4, "pipeline": 3},
        ),
        (
            "moe_cktile2stages_gemm2_256x32x256x128_1x4_16x16x32_2perCU_a16w4",
            {"family": 2, "block_m": 32, "block_n": 256, "block_k": 128, "waves_m": 1, "per_unit": 2},
        ),
        (
            "flydsl_moe1_afp4_wfp4_bf16_t32x64x256_w3_kb4_bnt2_go_fp4",
            {"family": 3, "block_m": 32, "block_n": 64, "w": 3, "split": 4, "b_hint": 2, "go": 1, "fp4_out": 1},
        ),
        (
            "_ZN5aiter48fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2E",
            {"family": 0, "block_m": 16, "block_n": 128, "tg": 4, "pf": 2, "one_stage": 0},
        ),
    ],
)
def test_names_of_moe_kernels(name: str, expected: dict[str, float]) -> None:
    got = moe_data.parse_kernel_name(name, 16.0)
    assert {key: got[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("Cijk_Alik_Bljk_F8_MT128x64x32_MI16x16x1_GSU4_", 7, ("tensile", (64, 128, 32, 4))),
        ("a8w8_256x32x64x512_16x16_16x16_1x1_intrawave_v3", 2, ("ck", (32, 64, 512, 4))),
        ("flydsl_gemm2_abf16_wbf16_bf16_t64x128x64_split_k4_x", 0, ("flydsl", (64, 128, 64, 4))),
        ("_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128E", 1, ("asm", (32, 128, 256, 2))),
        ("_ZN5aiter32bf16gemm_fp32bf16_tn_48x64_splitkE", 3, ("asm", (48, 64, 128, 3))),
        ("some_cktile_gemm_128x64x256_1x4x1_16x16x128", 0, ("cktile", (128, 64, 256, 1))),
        ("auto", 0, ("no tile", (0, 0, 0, 1))),
    ],
)
def test_names_of_winners(name: str, split: int, expected: tuple[str, tuple[int, int, int, int]]) -> None:
    assert winners_data.parse_name(name, split) == expected
