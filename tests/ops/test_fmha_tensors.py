"""The tensors of attention problems, their strides for the C struct, and the stages of a problem."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.ops.fmha.call import CALL, STRIDED, get_struct_strides
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.kinds import COMPUTATIONS
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.stages import get_keys_per_part, plan_next_stage
from tilewright.ops.fmha.tensors import apply_strides, list_tensors

SIZES = {"batch": 2, "heads": 4, "kv_heads": 2, "seqlen_q": 5, "seqlen_k": 7, "hdim_q": 16, "hdim_v": 8}
GROUP = {"mode": "group", "total_q": 8, "total_k": 9}


def problem(family: str = "forward", **values: Any) -> Problem:
    return Problem(**{"family": family, "dtype": "fp16", **SIZES, **values})


def shapes(of: Problem) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in list_tensors(of)}


def strides(of: Problem, name: str) -> tuple[int, int, int, int]:
    (tensor,) = [tensor for tensor in list_tensors(of) if tensor.name == name]
    return get_struct_strides(of, tensor)


def test_two_layouts() -> None:
    assert shapes(problem()) == {"q": (2, 5, 4, 16), "k": (2, 7, 2, 16), "v": (2, 7, 2, 8), "o": (2, 5, 4, 8)}
    assert shapes(problem(layout="bhsd")) == {"q": (2, 4, 5, 16), "k": (2, 2, 7, 16), "v": (2, 2, 7, 8), "o": (2, 4, 5, 8)}  # fmt: skip  # noqa: E501
    assert shapes(problem(v_layout="col"))["v"] == (2, 2, 8, 7)


def test_group_mode_has_no_batch() -> None:
    found = shapes(problem(**GROUP, v_layout="col", bias="elementwise", lse=True))
    assert found == {
        **{"q": (8, 4, 16), "k": (9, 2, 16), "v": (2, 8, 9), "bias": (4, 8, 7)},
        **{"seqstart_q": (3,), "seqstart_k": (3,), "o": (8, 4, 8), "lse": (4, 8)},
    }


def test_strides_of_the_struct() -> None:
    assert strides(problem(), "q") == (0, 5 * 64, 16, 64)
    assert strides(problem(layout="bhsd"), "q") == (0, 4 * 80, 80, 16)
    assert strides(problem(v_layout="col"), "v") == (0, 2 * 56, 56, 7)
    assert strides(problem(**GROUP), "q") == (0, 0, 16, 64)
    assert strides(problem(lse=True), "lse") == (0, 20, 5, 1)
    assert strides(problem(bias="elementwise"), "bias") == (0, 4 * 35, 35, 7)
    assert strides(problem(bias="alibi", **GROUP), "bias") == (0, 4, 1, 0)
    assert strides(problem("pagedkv", page_size=4, **GROUP), "k") == (0, 4 * 2 * 16, 16, 32)
    assert strides(problem("splitkv", num_splits=3), "o_acc") == (2 * 4 * 5 * 8, 4 * 5 * 8, 40, 8)
    assert strides(problem("splitkv", num_splits=3, **GROUP), "lse_acc") == (32, 0, 8, 1)
    assert strides(problem("dq_dk_dv", dq_parts=2), "dq_acc") == (2 * 4 * 5 * 16, 4 * 5 * 16, 80, 16)


def test_cached_keys_have_lengths() -> None:
    assert "seqlens_k" not in shapes(problem())
    for of in (problem("splitkv", num_splits=2), problem(num_splits=2), problem("appendkv", seqlen_new=1)):
        assert shapes(of)["seqlens_k"] == (2,)
    assert "seqlens_k" not in shapes(problem("splitkv", num_splits=2, **GROUP))
    paged = shapes(problem("pagedkv", page_size=3))
    assert (paged["k"], paged["page_table"]) == ((6, 3, 2, 16), (2, 3))
    # Nine tokens in two sequences fill four pages of three at most: 7 + 2 take 3 + 1.
    assert shapes(problem("pagedkv", page_size=3, **GROUP))["v"] == (4, 3, 2, 8)
    assert shapes(problem("pagedkv", page_size=3, pages=50))["k"][0] == 50


def test_appendkv_updates() -> None:
    found = list_tensors(problem("appendkv", seqlen_new=2, rotary="half", rotary_dim=8))
    assert [t.name for t in found if t.updated] == [t.name for t in found if t.output] == ["q", "k", "v"]
    positions = {t.name: t.shape for t in found}["rotary_cos"]
    assert positions == (7 + 5 - 2, 4)


def test_types() -> None:
    def types(of: Problem) -> dict[str, str]:
        return {tensor.name: tensor.dtype for tensor in list_tensors(of)}

    found = types(problem(dtype="fp8bf16", bias="elementwise", lse=True, store_randval=True))
    assert found == {**dict.fromkeys("qkv", "fp8"), "bias": "fp32", "o": "bf16", "lse": "fp32", "randval": "uint8"}
    assert types(problem(bias="alibi"))["bias"] == "fp32"
    assert types(problem("combine", num_splits=2))["o_acc"] == "fp32"
    assert types(problem("batch_prefill", page_size=1))["page_list"] == "int32"


@pytest.mark.parametrize("family", COMPUTATIONS)
@pytest.mark.parametrize("values", [{}, GROUP], ids=["batch", "group"])
def test_every_family_fills_the_struct(family: str, values: dict[str, Any]) -> None:
    of = problem(family, num_splits=2 if family in ("splitkv", "combine") else 0, seqlen_new=1, **values)
    args = CALL.make_arguments(of)
    names = [tensor.name for tensor in list_tensors(of)]
    assert len(set(names)) == len(names)
    CALL.make_address_setter(of)(args, range(4096, 4096 + len(names)))
    for address, name in enumerate(names, 4096):
        placed = getattr(args, name)
        assert (placed.data if name in STRIDED else placed) == address
    outputs = [tensor.output for tensor in list_tensors(of)]
    assert outputs == sorted(outputs)


def test_other_strides_are_refused() -> None:
    of = problem()
    assert apply_strides(of, {"q": (320, 64, 16, 1)}) is of
    assert apply_strides(problem(batch=1), {"q": (7, 64, 16, 1)}).batch == 1
    with pytest.raises(InvalidValueError, match="no gaps"):
        apply_strides(of, {"q": (640, 64, 16, 1)})
    with pytest.raises(InvalidValueError, match="4 dimensions, 3 strides"):
        apply_strides(of, {"q": (64, 16, 1)})
    with pytest.raises(UnknownValueError):
        apply_strides(of, {"lse": (20, 5, 1)})


def config(family: str) -> Config:
    return Config(family=family, mode="batch", dtype="fp16", pipeline="combine", block=(32, 8))


def stages(of: Problem) -> list[Problem]:
    found: list[Problem] = []
    while (stage := plan_next_stage(of, tuple(config(each.family) for each in found))) is not None:
        found.append(stage)
    return found


def test_one_kernel_is_its_own_stage() -> None:
    for of in (problem(lse=True), problem("pagedkv", page_size=4), problem("convert_dq")):
        assert stages(of) == [of]


def test_pages_are_read_by_pagedkv() -> None:
    assert stages(problem(page_size=4, lse=True)) == [problem("pagedkv", page_size=4, lse=True)]


def test_splits_have_two_stages() -> None:
    of = problem(num_splits=3, lse=True, mask="top_left", page_size=4)
    split, combine = stages(of)
    assert split == problem("splitkv", num_splits=3, mask="top_left", page_size=4)
    assert combine == problem("combine", num_splits=3, lse=True)


def test_gradients_have_three_stages() -> None:
    of = problem("backward", bias="elementwise", bias_gradient=True, p_drop=0.5)
    dot, gradients, convert = stages(of)
    assert (dot, convert) == (problem("dot_do_o", p_drop=0.5), problem("convert_dq"))
    assert gradients == problem("dq_dk_dv", bias="elementwise", bias_gradient=True, p_drop=0.5)


@pytest.mark.parametrize(("values", "parts"), [({}, 3), ({"hdim_q": 256}, 5), ({"dq_parts": 9}, 9)])
def test_deterministic_gradients_keep_parts(values: dict[str, Any], parts: int) -> None:
    of = problem("backward", deterministic=True, seqlen_k=300, **values)
    _, gradients, convert = stages(of)
    assert (gradients.dq_parts, convert.dq_parts) == (parts, parts)
    (between,) = shapes(gradients).keys() & shapes(convert).keys()
    assert between == "dq_acc"
    assert shapes(gradients)[between] == shapes(convert)[between]


@pytest.mark.parametrize("of", [problem(num_splits=2, lse=True), problem("backward"), problem(num_splits=2, **GROUP)])
def test_stages_share_tensors(of: Problem) -> None:
    """What a stage reads is given, or was written before with the same shape; at the end all is written."""
    known = {tensor.name: tensor for tensor in list_tensors(of) if not tensor.output}
    for stage in stages(of):
        for tensor in list_tensors(stage):
            if tensor.name in known:
                assert known[tensor.name].shape == tensor.shape
            else:
                assert tensor.output
                known[tensor.name] = tensor
    assert {tensor.name for tensor in list_tensors(of)} <= set(known)


def test_keys_of_a_part() -> None:
    assert get_keys_per_part(problem("dq_dk_dv")) == 7
    assert get_keys_per_part(problem("dq_dk_dv", seqlen_k=300, dq_parts=3)) == 128
    assert get_keys_per_part(problem("dq_dk_dv", seqlen_k=300, dq_parts=5)) == 64
    with pytest.raises(InvalidValueError, match="dq_parts = 4"):
        get_keys_per_part(problem("dq_dk_dv", seqlen_k=300, dq_parts=4))
