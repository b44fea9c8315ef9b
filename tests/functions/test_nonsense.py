"""Each argument of each function for arrays, replaced by nonsense: every exception is one of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
from nonsense import list_foreign_errors
from tilewright.base.errors import TilewrightError

torch = pytest.importorskip("torch")


def make(*shape: int, dtype: Any = torch.float16) -> Any:
    return torch.ones(shape).to(dtype)


SEQUENCES = {name: make(1, 4, 2, 64) for name in ("q", "k", "v")}
FP8 = {"dtype": torch.float8_e4m3fnuz}
# Arguments that are right, for each function: those that are left out are replaced, too.
RIGHT: dict[str, dict[str, Any]] = {
    "append_to_cache": {
        **SEQUENCES,
        **{"k_cache": make(1, 16, 2, 64), "v_cache": make(1, 16, 2, 64), "seqlens_k": make(1, dtype=torch.int32)},
    },
    "attention": SEQUENCES,
    "attention_gradient": {
        **SEQUENCES,
        **{"output_gradient": SEQUENCES["q"], "out": SEQUENCES["q"], "lse": make(1, 2, 4, dtype=torch.float32)},
    },
    "conv": {"input": make(1, 8, 6, 6), "weight": make(8, 8, 3, 3)},
    "conv_input_gradient": {
        **{"output_gradient": make(1, 8, 4, 4), "weight": make(8, 8, 3, 3), "input_size": (6, 6)},
    },
    "conv_weight_gradient": {
        **{"input": make(1, 8, 6, 6), "output_gradient": make(1, 8, 4, 4), "filter_size": (3, 3)},
    },
    "grouped_matmul": {"a": make(8, 8), "b": make(2, 8, 8), "offs": make(2, dtype=torch.int32)},
    "layer_norm": {"x": make(2, 8), "weight": make(8), "bias": make(8)},
    "matmul": {"a": make(4, 8), "b": make(8, 4)},
    "rms_norm": {"x": make(2, 8), "weight": make(8)},
    "scaled_matmul": {
        **{"a": make(4, 128, **FP8), "b": make(128, 16, **FP8)},
        **{"scale_a": make(1, dtype=torch.float32), "scale_b": make(1, dtype=torch.float32)},
    },
    "smooth_quantize": {"x": make(2, 8), "smooth": make(8, dtype=torch.float32)},
    "sort_by_expert": {
        **{"topk_ids": make(2, 2, dtype=torch.int32), "topk_weights": make(2, 2, dtype=torch.float32)},
        **{"experts": 4, "unit": 32},
    },
    "topk_sigmoid": {"x": make(2, 8), "k": 2},
    "topk_softmax": {"x": make(2, 8), "k": 2},
}


def list_array_functions() -> dict[str, Callable[..., Any]]:
    functions = {name: getattr(tw, name) for name in tw.__all__ if inspect.isfunction(getattr(tw, name))}
    return {name: each for name, each in functions.items() if "stream" in inspect.signature(each).parameters}


def test_all_functions_for_arrays_are_tested() -> None:
    assert set(list_array_functions()) == set(RIGHT)


@pytest.mark.parametrize("name", RIGHT)
def test_nonsense_raises_our_errors(name: str) -> None:
    function = list_array_functions()[name]
    with tw.options(device="emulated:gfx942", pool=()):  # no kernel: what is not refused before is refused then
        with pytest.raises(TilewrightError):
            function(**RIGHT[name])
        foreign = list_foreign_errors(function, RIGHT[name], inspect.signature(function).parameters)
    assert not foreign, "\n".join(foreign)
