"""Functions with a result for each row: of a vector they return what they return of a matrix with one row."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.norm_kernels import LAYER, QUANTIZED, RMS, WAVES, make_norm
from tests.functions.routing_kernels import ARCH, SOFTMAX, make_topk

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.compile
Call = Callable[..., Any]


def draw(seed: int, dtype: Any, length: int = 1024) -> Any:
    return torch.randn(length, generator=torch.Generator().manual_seed(seed)).to(dtype)


WEIGHT = draw(1, torch.float16)
SMOOTH = draw(2, torch.float32).abs()
SUM = make_norm("rms", "bf16", residual="store", save=True, two_pass=True, **{**WAVES, "rows": 2, "vector": 4})
SMOOTHED = make_norm("layer", "fp16", "int8", residual="store", quant="smooth", **{**WAVES, "rows": 2})
SMOOTH_ALONE = make_norm("smoothquant", "fp16", "int8", quant="smooth", **WAVES)
SIGMOID = make_topk(activation="sigmoid", dtype="bf16", experts=32, rows=4, threads=256)
QUANTIZE = {"return_sum": True, "quantize": "int8"}
# Kernel, type and length of the rows, and the call with rows; the residual is the row itself.
CASES: dict[str, list[tuple[Any, Any, int, Call]]] = {
    "rms_norm": [
        (RMS, torch.float32, 24, lambda x: tw.rms_norm(x, WEIGHT[:24].float())),
        (QUANTIZED, torch.float16, 1024, lambda x: tw.rms_norm(x, WEIGHT, residual=x, **QUANTIZE)),
        (
            SUM, torch.bfloat16, 1024,
            lambda x: tw.rms_norm(x, WEIGHT.bfloat16(), residual=x, return_sum=True, return_statistics=True),
        ),
    ],
    "layer_norm": [
        (LAYER, torch.float32, 24, lambda x: tw.layer_norm(x, WEIGHT[:24].float())),
        (SMOOTHED, torch.float16, 1024, lambda x: tw.layer_norm(x, WEIGHT, residual=x, smooth=SMOOTH, **QUANTIZE)),
    ],
    "smooth_quantize": [(SMOOTH_ALONE, torch.float16, 1024, lambda x: tw.smooth_quantize(x, SMOOTH))],
    "topk_softmax": [(SOFTMAX, torch.float32, 60, lambda x: tw.topk_softmax(x, 3))],
    "topk_sigmoid": [(SIGMOID, torch.bfloat16, 32, lambda x: tw.topk_sigmoid(x, 3))],
}  # fmt: skip
# Functions of matrices, images or sequences. A vector is an operand of `matmul` in its own tests.
WITHOUT_ROWS = {
    *("append_to_cache", "attention", "attention_gradient", "conv", "conv_input_gradient", "conv_weight_gradient"),
    *("grouped_matmul", "matmul", "scaled_matmul", "sort_by_expert"),
}


def test_each_function_is_tested_or_has_no_rows() -> None:
    functions = {name for name in tw.__all__ if inspect.isfunction(getattr(tw, name))}
    of_arrays = {name for name in functions if "stream" in inspect.signature(getattr(tw, name)).parameters}
    assert of_arrays == set(CASES) | WITHOUT_ROWS


@pytest.mark.parametrize(("function", "number"), [(name, at) for name in CASES for at in range(len(CASES[name]))])
def test_a_vector_is_a_row(function: str, number: int) -> None:
    kernel, dtype, length, call = CASES[function][number]
    built([kernel])
    x = draw(3, dtype, length)
    with tw.options(device=f"emulated:{ARCH}", pool=(kernel,)):
        found, wanted = (results if isinstance(results, tuple) else (results,) for results in (call(x), call(x[None])))
    for one, row in zip(found, wanted, strict=True):
        assert one.shape == row.shape[1:]
        torch.testing.assert_close(one, row[0], rtol=0, atol=0)
