"""`record_problems`: the problems of a model, on the device meta and in host memory, with gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)


def make_model() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2), torch.nn.Flatten(), torch.nn.Linear(16 * 16, 10)
    )


def test_a_model_on_the_device_meta(tmp_path: Path) -> None:
    with torch.device("meta"), torch.no_grad():
        model, images = make_model().half(), torch.empty(4, 8, 8, 8, dtype=torch.float16)
        with twt.record_problems() as recorded:
            for _ in range(3):
                model(images)
    conv = tw.grouped_conv.Problem(
        direction="forward", n=4, g=2, c=8, k=16, input_size=(8, 8), filter_size=3, stride=2, pad=1, dtype="fp16"
    )
    product = tw.gemm.Problem(
        m=4, n=10, k=256, dtype="fp16", layout="rcr", elementwise="MultiDAdd", num_d=1, num_row_d=1
    )
    assert recorded.counts == {conv: 3, product: 3}
    assert not recorded.skipped
    files = recorded.save(tmp_path / "shapes")
    assert [file.name for file in files] == ["grouped_conv.csv", "gemm.csv"]
    assert tw.read_problems("gemm", files[1]) == [product]
    assert tw.read_problems("grouped_conv", recorded.save(tmp_path, repeated=True)[0]) == [conv] * 3
    assert repr(recorded) == "RecordedProblems(1 grouped_conv problems, 1 gemm problems, 6 calls)"


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_attention_is_one_problem(mode: Any) -> None:
    q, k, v = (torch.randn(2, heads, 5, 16).bfloat16() for heads in (4, 4, 4))
    with mode(), twt.record_problems() as recorded:
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(5, 5).bfloat16())
    sizes: Any = {"dtype": "bf16", "batch": 2, "heads": 4, "seqlen_q": 5, "hdim_q": 16, "layout": "bhsd"}
    assert list(recorded.counts) == [
        tw.fmha.Problem(family="forward", mask="top_left", **sizes),
        tw.fmha.Problem(family="forward", bias="elementwise", **sizes),
    ]


def test_gradients_are_recorded() -> None:
    model, images = make_model(), torch.randn(4, 8, 8, 8, requires_grad=True)
    with twt.record_problems() as recorded:
        model(images).square().sum().backward()
    directions = [problem.direction for problem in recorded.problems["grouped_conv"]]
    assert directions == ["forward", "backward_data", "backward_weight"]
    sizes = [(problem.m, problem.n, problem.k, problem.layout) for problem in recorded.problems["gemm"]]
    assert sizes == [(4, 10, 256, "rcr"), (4, 256, 10, "rrr"), (10, 256, 4, "crr")]


def test_a_transposed_convolution_is_a_gradient() -> None:
    layer = torch.nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1).half().to("meta")
    with torch.no_grad(), twt.record_problems() as recorded:
        layer(torch.empty(2, 16, 7, 7, dtype=torch.float16, device="meta"))
    (problem,) = recorded.counts
    assert (problem.direction, problem.c, problem.k, problem.input_size) == ("backward_data", 8, 16, (14, 14))
    assert problem.output_size == (7, 7)


def test_products_that_no_kernel_computes_are_counted() -> None:
    with twt.record_problems() as recorded:
        torch.ones(3, 4, dtype=torch.int64) @ torch.ones(4, 5, dtype=torch.int64)
    assert not recorded.counts
    ((said, count),) = recorded.skipped.items()
    assert count == 1 and said.startswith("aten::mm: unknown dtype 'torch.int64'")
