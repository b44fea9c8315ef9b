"""Every function that writes to a torch tensor counts up its version, so that autograd notices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.attention_kernels import get_kernels
from tests.functions.grouped_kernels import QUANTIZER
from tests.functions.grouped_kernels import ROWS as GROUPS
from tests.functions.kernels import PRODUCTS
from tests.functions.norm_kernels import LAYER, RMS
from tests.functions.routing_kernels import SOFTMAX, SORTING, make_topk
from tests.functions.scaled_kernels import TENSOR
from tests.functions.test_conv import POOLS
from tests.functions.test_tensor_kinds import FUNCTIONS
from tests.functions.test_torch_checks import make_attention_gradient, make_pairs
from tests.functions.test_torch_operators import GRADIENT_KERNELS, draw

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = pytest.mark.compile
DEVICE = "emulated:gfx942"
FP8 = torch.float8_e4m3fnuz


def make(seed: int, *shape: int, dtype: Any = torch.float32) -> Any:
    return draw(seed, *shape).detach().to(dtype)


def make_heads(*names: str) -> dict[str, Any]:
    return {name: make(seed, 1, 16, 2, 32, dtype=torch.float16) for seed, name in enumerate(names)}


def make_known_attention() -> dict[str, Any]:
    gradient, q, k, v, out, lse, *_ = make_attention_gradient()
    return {"output_gradient": gradient, "q": q, "k": k, "v": v, "out": out, "lse": lse}


def make_cache() -> dict[str, Any]:
    shapes = {"q": (1, 3, 4, 64), "k_cache": (1, 128, 2, 64), "v_cache": (1, 128, 2, 64)}
    shapes |= {"k": (1, 3, 2, 64), "v": (1, 3, 2, 64), "rotary_cos": (160, 32), "rotary_sin": (160, 32)}
    arrays = {name: make(seed, *shape, dtype=torch.float16) for seed, (name, shape) in enumerate(shapes.items())}
    return {**arrays, "seqlens_k": torch.tensor([7], dtype=torch.int32), "causal": True}


def make_images() -> tuple[Any, Any]:
    return make(1, 2, 16, 7, 6, dtype=torch.float16), make(2, 16, 16, 3, 3, dtype=torch.float16)


SIGMOID = make_topk(activation="sigmoid", dtype="bf16", experts=32, rows=4, threads=256)
# Kernels from CI's list, and arguments.
CALLS: dict[str, tuple[Any, Callable[[], dict[str, Any]]]] = {
    "append_to_cache": (get_kernels("append"), make_cache),
    "attention": (get_kernels("plain"), lambda: {**make_heads("q", "k", "v"), "return_lse": True}),
    "attention_gradient": (get_kernels(*GRADIENT_KERNELS), make_known_attention),
    "conv": (POOLS["gfx942"], lambda: dict(zip(("input", "weight"), make_images(), strict=True))),
    "conv_input_gradient": (
        POOLS["gfx942"],
        lambda: {**dict(zip(("output_gradient", "weight"), make_images(), strict=True)), "input_size": (9, 8)},
    ),
    "conv_weight_gradient": (
        POOLS["gfx942"],
        lambda: {"input": make_images()[0], "output_gradient": make_images()[0][:, :, 2:, 2:], "filter_size": (3, 3)},
    ),
    "grouped_matmul": (
        (GROUPS,),
        lambda: {
            **{"a": make(1, 6, 16, dtype=torch.bfloat16), "b": make(2, 2, 8, 16, dtype=torch.bfloat16).mT},
            "offs": torch.tensor([2, 6], dtype=torch.int32),
        },
    ),
    "layer_norm": ((LAYER,), lambda: {"x": make(1, 6, 20), "weight": make(2, 20)}),
    "matmul": (PRODUCTS, lambda: {"a": make(1, 6, 20), "b": make(2, 20, 8)}),
    "rms_norm": ((RMS,), lambda: {"x": make(1, 6, 20), "weight": make(2, 20)}),
    "scaled_matmul": (
        (TENSOR,),
        lambda: {
            **{"a": make(1, 6, 32, dtype=FP8), "b": make(2, 8, 32, dtype=FP8).t()},
            **dict.fromkeys(("scale_a", "scale_b"), torch.ones(1)),
        },
    ),
    "smooth_quantize": (
        (QUANTIZER,),
        lambda: {"x": make(1, 6, 20, dtype=torch.bfloat16), "smooth": make(2, 20), "quantize": "fp8"},
    ),
    "sort_by_expert": (
        (SORTING,),
        lambda: dict(zip(("topk_ids", "topk_weights", "expert_mask", "experts", "unit"), make_pairs(), strict=True)),
    ),
    "topk_sigmoid": ((SIGMOID,), lambda: {"x": make(1, 6, 20, dtype=torch.bfloat16), "k": 3}),
    "topk_softmax": ((SOFTMAX,), lambda: {"x": make(1, 6, 20), "k": 3}),
}
UPDATED = {"append_to_cache": ("q", "k_cache", "v_cache")}


def test_every_function_is_called() -> None:
    assert {f"tw.{name}" for name in CALLS} == {name for name in FUNCTIONS if name.startswith("tw.")}


@pytest.mark.parametrize("name", CALLS)
def test_functions_count_up_versions(name: str) -> None:
    kernels, make_arguments = CALLS[name]
    built(kernels)
    function = getattr(tw, name)
    with tw.options(device=DEVICE, pool=kernels, build="never"), twt.emulate("gfx942"):
        arguments = make_arguments()
        if name in UPDATED:
            written = [arguments[each] for each in UPDATED[name]]
        else:
            result = function(**arguments)
            written = [torch.empty_like(each) for each in (result if isinstance(result, tuple) else (result,))]
            out = "gradients" if "gradients" in inspect.signature(function).parameters else "out"
            arguments[out] = tuple(written) if len(written) > 1 else written[0]
        inputs = [each for each in arguments.values() if isinstance(each, torch.Tensor)]
        read = [each for each in inputs if not any(each is other for other in written)]
        before = [each._version for each in written], [each._version for each in read]
        function(**arguments)
    assert all(each._version > old for each, old in zip(written, before[0], strict=True))
    assert [each._version for each in read] == before[1]


def test_a_changed_tensor_stops_the_backward_pass() -> None:
    registry = tw.build(PRODUCTS)
    problem = tw.gemm.Problem(m=4, n=4, k=4, dtype="fp32", layout="rrr")
    a, x = make(1, 4, 4), make(2, 4, 4).requires_grad_()
    with tw.options(pool=PRODUCTS):
        for write in (
            lambda out: registry.run(problem, a, a, out=out, device=DEVICE),
            lambda out: tw.matmul(a, a, out=out, device=DEVICE),
            lambda out: tw.matmul(a, a, out=out.t(), device=DEVICE),  # a view, and a copy
        ):
            weight = torch.zeros(4, 4)
            result = (x * weight).sum()
            write(weight)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.backward()


def test_results_are_not_on_torchs_default_device() -> None:
    registry = tw.build(PRODUCTS)
    problem = tw.gemm.Problem(m=4, n=4, k=4, dtype="fp32", layout="rrr")
    a = make(1, 4, 4)
    with torch.device("meta"):
        result = registry.run(problem, a, a, device=DEVICE)
    torch.testing.assert_close(result, a @ a)
