from __future__ import annotations

import pytest

from tilewright.building.disassembled import DisassembledInstruction
from tilewright.building.instruction_mix import CLASSES, classify, count_by_class, count_matrix_instructions


@pytest.mark.parametrize(
    ("mnemonic", "kind"),
    [
        ("v_mfma_f32_32x32x8_f16", "matrix"),
        ("v_mfma_scale_f32_16x16x128_f8f6f4", "matrix"),
        ("v_smfmac_f32_16x16x32_f16", "matrix"),
        ("v_wmma_f32_16x16x16_f16", "matrix"),
        ("v_swmmac_f32_16x16x32_f16", "matrix"),
        ("v_accvgpr_read_b32", "valu"),
        ("v_dual_fmamk_f32", "valu"),
        ("v_dot2_f32_f16", "valu"),
        ("s_mov_b32", "salu"),
        ("s_and_saveexec_b64", "salu"),
        ("s_getpc_b64", "salu"),
        ("s_bitset0_b32", "salu"),
        ("s_load_dwordx2", "smem"),
        ("s_load_b96", "smem"),
        ("s_buffer_load_dword", "smem"),
        ("s_memtime", "smem"),
        ("s_prefetch_inst", "smem"),
        ("ds_read_b128", "lds"),
        ("ds_store_b32", "lds"),
        ("lds_direct_load", "lds"),
        ("buffer_load_dwordx4", "global"),
        ("buffer_inv", "global"),
        ("global_store_b32", "global"),
        ("global_inv", "global"),
        ("flat_load_dword", "global"),
        ("scratch_store_dword", "global"),
        ("s_waitcnt", "wait"),
        ("s_waitcnt_vscnt", "wait"),
        ("s_wait_loadcnt_dscnt", "wait"),
        ("s_wait_alu", "wait"),
        ("s_barrier", "barrier"),
        ("s_barrier_signal", "barrier"),
        ("s_barrier_wait", "barrier"),
        ("s_branch", "branch"),
        ("s_cbranch_scc1", "branch"),
        ("s_swappc_b64", "branch"),
        ("s_endpgm", "other"),
        ("s_nop", "other"),
        ("s_delay_alu", "other"),
        ("s_setprio", "other"),
        ("s_set_inst_prefetch_distance", "other"),
        ("exp", "other"),
        (".long", "other"),
    ],
)
def test_classes(mnemonic: str, kind: str) -> None:
    assert kind in CLASSES
    assert classify(mnemonic) == kind


def code(*texts: str) -> list[DisassembledInstruction]:
    return [DisassembledInstruction(4 * n, text.split()[0], text) for n, text in enumerate(texts)]


def test_both_halves_of_a_dual_instruction_count() -> None:
    counts = count_by_class(code("v_dual_mov_b32 v0, v1 :: v_dual_add_f32 v2, v3, v4", "s_endpgm"))
    assert counts == {**dict.fromkeys(CLASSES, 0), "valu": 2, "other": 1}


def test_matrix_instructions_are_counted_by_name() -> None:
    a, b = "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1]", "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1]"
    assert count_matrix_instructions(code(a, b, a, "v_mov_b32_e32 v0, v1")) == {
        "v_mfma_f32_16x16x16_f16": 1,
        "v_mfma_f32_32x32x8_f16": 2,
    }
    assert count_matrix_instructions([]) == {}
