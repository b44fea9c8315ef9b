"""The suspects of disagreements: classes of instructions, and their use on both sides."""

from __future__ import annotations

import pytest

from tilewright.acceptance.agreement import judge
from tilewright.acceptance.instruction_classes import (
    CLASSES,
    adds_in_any_order,
    classify_instruction,
    list_mnemonics,
)
from tilewright.acceptance.suspects import find_exclusive, find_symptom, rank_suspects
from tilewright.building.disassembled import DisassembledInstruction


@pytest.mark.parametrize(
    ("mnemonic", "expected"),
    [
        ("v_mfma_f32_16x16x16_f16", "matrix"),
        ("v_wmma_f32_16x16x16_f16", "matrix"),
        ("v_cvt_pk_fp8_f32", "8-bit conversion"),
        ("v_exp_f32", "transcendental function"),
        ("v_cvt_f16_f32", "conversion"),
        ("buffer_atomic_pk_add_f16", "atomic"),
        ("global_atomic_add_f32", "atomic"),
        ("ds_bpermute_b32", "cross-lane"),
        ("v_add_f32_dpp", "cross-lane"),
        ("v_permlanex16_b32", "cross-lane"),
        ("buffer_load_dword_lds", "copy to LDS"),
        ("ds_read_b128", "LDS"),
        ("ds_store_b64", "LDS"),
        ("buffer_load_dwordx4", "buffer load"),
        ("buffer_store_short", "buffer store"),
        ("global_load_b32", "global load"),
        ("v_fma_f32", "fused multiply-add"),
        ("v_pk_mul_f32", "float arithmetic"),
        ("v_max_f32", "float arithmetic"),
        ("v_perm_b32", "packing"),
        ("v_cmp_gt_i32", "comparison"),
        ("v_lshl_add_u32", "integer arithmetic"),
        ("s_waitcnt", "synchronisation"),
        ("s_load_dwordx4", "scalar load"),
        ("s_add_u32", "scalar arithmetic"),
        ("image_sample", "other"),
    ],
)
def test_classes(mnemonic: str, expected: str) -> None:
    assert classify_instruction(mnemonic) == expected


def test_every_class_has_a_name_of_its_own() -> None:
    assert len({each.name for each in CLASSES}) == len(CLASSES)


def test_encodings_are_removed_and_hints_left_out() -> None:
    texts = (
        *("v_exp_f32_e32 v1, v2", "v_add_f32_dpp v1, v2, v3 row_shr:1", "s_nop 0", "s_endpgm"),
        *("buffer_load_dword off, s[0:3], 0 lds", "v_dual_mul_f32 v0, v1, v2 :: v_dual_mov_b32 v3, v4"),
    )
    listed = list_mnemonics(DisassembledInstruction(0, text.split()[0], text) for text in texts)
    expected = {"v_exp_f32", "v_add_f32_dpp", "buffer_load_dword_lds", "v_dual_mul_f32", "v_dual_mov_b32"}
    assert listed == expected


def test_only_additions_of_floats_depend_on_their_order() -> None:
    assert adds_in_any_order(["s_nop", "buffer_atomic_pk_add_f16"])
    assert adds_in_any_order(["global_atomic_add_f32"])
    assert not adds_in_any_order(["global_atomic_add_u32", "v_add_f32"])


USES = {
    "softmax": ["v_exp_f32", "v_add_f32", "ds_read_b128"],
    "combine": ["v_exp_f32", "v_log_f32", "v_add_f32"],
    "copy": ["v_add_f32", "ds_read_b128"],
}


def test_instructions_of_the_wrong_kernels_only_come_first() -> None:
    (first,) = rank_suspects(USES, ["softmax", "combine"], ["copy"])
    assert (first.name, first.mnemonics, first.exclusive) == ("transcendental function", ("v_exp_f32",), True)
    assert (first.disagreeing, first.of_disagreeing, first.agreeing, first.of_agreeing) == (2, 2, 0, 1)


def test_an_instruction_that_an_agreeing_kernel_uses_seldom_is_still_a_suspect() -> None:
    uses = {**USES, "lucky": ["v_exp_f32", "v_add_f32"], "other": ["v_add_f32"]}
    ranked = rank_suspects(uses, ["softmax", "combine"], ["copy", "lucky", "other"])
    assert ranked[0].mnemonics == ("v_exp_f32",) and not ranked[0].exclusive and ranked[0].agreeing == 1


def test_kernels_may_use_different_instructions_of_the_wrong_class() -> None:
    uses = {"wide": ["ds_read_b128", "s_nop"], "narrow": ["ds_read_b32", "s_nop"], "none": ["s_nop"]}
    (found,) = rank_suspects(uses, ["wide", "narrow"], ["none"])
    assert (found.name, found.mnemonics, found.disagreeing) == ("LDS", ("ds_read_b128", "ds_read_b32"), 2)


def test_without_an_agreeing_kernel_everything_is_a_suspect() -> None:
    ranked = rank_suspects(USES, ["softmax", "combine", "copy"], [])
    assert ranked[0].mnemonics == ("v_add_f32",) and not any(each.exclusive for each in ranked)


def test_what_one_kernel_uses_alone() -> None:
    assert find_exclusive(USES, "combine", ["copy"]) == {"transcendental function": ["v_exp_f32", "v_log_f32"]}


def test_the_symptom_needs_all_differences() -> None:
    assert find_symptom([1.0, 2.0]) == "rounding"
    assert find_symptom([5000.0, None]) == "movement"
    assert find_symptom([1.0, 5000.0]) is None
    assert find_symptom([]) is None


def row(kernel: str, verdict: str, **more: object) -> dict[str, object]:
    right = {"repeatable": True, "device_right": True, "emulated_right": True, "strays": 0, "atomics": 64}
    return {"kernel": kernel, "verdict": verdict, "message": "", **right, **more}


def test_the_order_of_atomic_additions_is_no_disagreement_within_the_tolerance() -> None:
    uses = {"sum": ["global_atomic_add_f32"], "plain": ["v_add_f32"]}
    assert judge([row("sum", "disagrees")], uses).list_names("order") == ["sum"]
    assert judge([row("sum", "agrees", repeatable=False)], uses).list_names("order") == ["sum"]
    assert judge([row("sum", "disagrees", device_right=False)], uses).list_names("disagrees") == ["sum"]
    assert judge([row("sum", "disagrees", atomics=0)], uses).list_names("disagrees") == ["sum"]
    assert judge([row("plain", "disagrees")], uses).list_names("disagrees") == ["plain"]


def test_a_kernel_whose_runs_differ_disagrees() -> None:
    judged = judge([row("plain", "agrees", repeatable=False), row("plain", "agrees")], {})
    assert not judged.ok and judged.list_names("disagrees") == ["plain"]


def test_the_worst_run_of_a_kernel_decides() -> None:
    rows = [row("a", "agrees"), row("a", "fault"), row("b", "agrees"), row("c", "emulator fault")]
    judged = judge(rows, {})
    assert [each.verdict for each in judged.kernels] == ["fault", "agrees", "emulator fault"]
    assert judged.describe() == "1 of 3 kernels agree bit by bit, 1 failed on the device, 1 cannot be emulated"
