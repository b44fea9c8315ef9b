"""A whole mixture-of-experts layer on an emulated device against float64: router, sorting, products, weighted sum."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.grouped_kernels import ROWS, make_grouped
from tests.functions.routing_kernels import ARCH, SOFTMAX, SORTING, make_sorting, make_topk
from tilewright.base.errors import InvalidValueError, TensorError, UnknownValueError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = pytest.mark.compile
HIDDEN, INNER = 32, 16
ULP = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


@pytest.fixture(autouse=True)
def _use_small_kernels() -> Iterator[None]:
    pool = (SOFTMAX, SORTING, ROWS)
    built(pool)
    with tw.options(pool=pool), twt.emulate(ARCH):
        yield


def draw_layer(tokens: int, experts: int, dtype: Any = torch.bfloat16) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(1000 * experts + tokens)
    shapes = ((tokens, HIDDEN), (experts, 2 * INNER, HIDDEN), (experts, HIDDEN, INNER), (HIDDEN, experts))
    x, w1, w2, router = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return x, w1 / 4, w2 / 4, x.float() @ router.float()


def compute_layer(x: Any, w1: Any, w2: Any, weights: Any, ids: Any) -> tuple[Any, Any]:
    """The result in float64, expert by expert of each token, and the largest error of each element.

    Results of products are stored as halves, of bf16 by truncation, with an error of up to one ulp: gate, up, and the
    product with w2. torch rounds the activation and the sum, by half an ulp.
    """
    ulp = ULP[x.dtype]
    x, w1, w2, weights = (each.detach().double() for each in (x, w1, w2, weights))
    out, error = torch.zeros_like(x), torch.zeros_like(x)
    for token, (row, chosen) in enumerate(zip(x, ids.tolist(), strict=True)):
        for place, expert in enumerate(chosen):
            gate, up = (w1[expert] @ row).chunk(2)
            share = torch.sigmoid(gate)
            inner, slope = gate * share * up, share * (1 + gate * (1 - share)) * up
            down = w2[expert] @ inner
            off = w2[expert].abs() @ (ulp * (gate * slope).abs() + 1.5 * ulp * inner.abs()) + ulp * down.abs()
            out[token] += weights[token, place] * down
            error[token] += weights[token, place] * off
    return out, 1.05 * (error + ulp / 2 * out.abs())  # errors of errors


def check_close(found: Any, layer: tuple[Any, ...]) -> None:
    wanted, error = compute_layer(*layer)
    assert float(((found.double() - wanted).abs() / error).max()) < 1
    other, _ = compute_layer(*layer[:4], (layer[4] + 1) % layer[1].shape[0])
    assert float(((other - wanted).abs() > error).double().mean()) > 0.8  # those of other experts


def check_layer(tokens: int, experts: int, k: int, dtype: Any = torch.bfloat16) -> None:
    x, w1, w2, logits = draw_layer(tokens, experts, dtype)
    weights, ids = twt.topk_softmax(logits, k)
    assert torch.equal(ids.long(), torch.topk(logits.double(), k)[1])
    found = twt.fused_moe(x, w1, w2, weights, ids)
    assert found.shape == x.shape and found.dtype == dtype
    check_close(found, (x, w1, w2, weights, ids))


@pytest.mark.parametrize(("tokens", "experts"), [(1, 8), (4, 64), (33, 8)])
def test_a_layer(tokens: int, experts: int) -> None:
    check_layer(tokens, experts, 2)


@pytest.mark.deep
@pytest.mark.parametrize("tokens", [1, 3, 4, 33, 64])
@pytest.mark.parametrize("experts", [8, 64, 128])
@pytest.mark.parametrize("gpu", [ARCH, "gfx950"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_layers_of_all_sizes(tokens: int, experts: int, gpu: str, dtype: str) -> None:
    kernels = (make_topk(gpu, experts=128), make_sorting(gpu), make_grouped(gpu, dtype=dtype))
    built(kernels)
    with tw.options(pool=kernels), twt.emulate(gpu):
        check_layer(tokens, experts, min(8, experts // 2), {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype])


def test_everything_in_one_expert_and_aiters_constants() -> None:
    x, w1, w2, _ = draw_layer(5, 8)
    ids, weights = torch.full((5, 1), 3, dtype=torch.int32), torch.ones(5, 1)
    silu, none = SimpleNamespace(name="Silu"), SimpleNamespace(name="No")
    found = twt.fused_moe(x, w1, w2, weights, ids, activation=silu, quant_type=none, dtype=torch.float32)
    assert found.dtype == torch.float32
    check_close(found, (x, w1, w2, weights, ids))


def test_unknown_experts_contribute_nothing_and_repeated_ones_all_their_weights() -> None:
    x, w1, w2, _ = draw_layer(6, 8)
    ids = torch.tensor([[0, -1], [8, 3], [5, 5], [1_000_000, -1_000_000], [2, 4], [-1, -1]], dtype=torch.int32)
    weights = torch.rand(6, 2, generator=torch.Generator().manual_seed(36))
    known = (ids >= 0) & (ids < 8)
    found = twt.fused_moe(x, w1, w2, weights.where(known, torch.nan), ids)
    some, none = [0, 1, 2, 4], [3, 5]
    check_close(found[some], (x[some], w1, w2, (weights * known)[some], ids.where(known, 0)[some]))
    assert not found[none].any()


def test_nan_from_the_router_stays_in_its_token() -> None:
    x, w1, w2, logits = draw_layer(5, 8)
    logits[3, 2] = torch.nan
    weights, ids = twt.topk_softmax(logits, 2)
    missing = twt.fused_moe(x, w1, w2, weights, ids).isnan()
    assert missing[3].all() and not missing[[0, 1, 2, 4]].any()


def test_no_tokens() -> None:
    x, w1, w2, _ = draw_layer(2, 8)
    empty = torch.empty(0, 2)
    assert twt.fused_moe(x[:0], w1, w2, empty, empty.int()).shape == (0, HIDDEN)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"w1_scale": torch.ones(1)}, InvalidValueError, "scales only with quant_type per_token"),
        ({"quant_type": "per_1x128"}, UnknownValueError, "per_token"),
        ({"doweight_stage1": True}, InvalidValueError, "does not support doweight_stage1"),
        ({"activation": "relu"}, UnknownValueError, "silu"),
        ({"topk_ids": torch.zeros(3, 2).long()}, TensorError, "int32"),
        ({"w2": torch.zeros(8, HIDDEN, 3)}, TensorError, "do not match"),
        ({"w2": torch.zeros(8, HIDDEN)}, TensorError, "fused_moe needs"),
    ],
)
def test_errors_tell_the_cause(changes: dict[str, Any], error: type[Exception], said: str) -> None:
    x, w1, w2, _ = draw_layer(3, 8)
    given = {"topk_weight": torch.ones(3, 2), "topk_ids": torch.tensor([[0, 1]] * 3).int()}
    with pytest.raises(error, match=said):
        twt.fused_moe(**{"hidden_states": x, "w1": w1, "w2": w2, **given, **changes})


@pytest.mark.deep
def test_experts_of_two_gpus_add_up_to_the_whole_layer() -> None:
    kernels = (SOFTMAX, make_sorting(masked=True), ROWS)
    built(kernels)
    x, w1, w2, logits = draw_layer(33, 64)
    with tw.options(pool=kernels):
        weights, ids = twt.topk_softmax(logits, 6)
        parts = []
        for first in (True, False):
            here = (torch.arange(64) % 3 == 0) == first
            parts.append(twt.fused_moe(x, w1[here], w2[here], weights, ids, here.int(), dtype=torch.float32))
    check_close(sum(parts), (x, w1, w2, weights, ids))


@pytest.mark.deep
def test_gradients_are_those_of_torch() -> None:
    kernels = (SORTING, *(make_grouped(layout=layout) for layout in ("rcr", "rrr", "crr")))
    built(kernels)
    x, w1, w2, logits = draw_layer(6, 8)
    weights, ids = twt.topk_softmax(logits, 2)
    inputs = [each.detach().requires_grad_() for each in (x, w1, w2, weights)]
    with tw.options(pool=kernels):
        out = twt.fused_moe(inputs[0], inputs[1], inputs[2], inputs[3], ids, dtype=torch.float32)
        found = torch.autograd.grad(out.square().sum(), inputs)
    wide = [each.detach().double().requires_grad_() for each in inputs]
    rows = wide[0][:, None, None]
    gate, up = (rows @ wide[1][ids.long()].transpose(-1, -2)).chunk(2, -1)
    down = (torch.nn.functional.silu(gate) * up) @ wide[2][ids.long()].transpose(-1, -2)
    whole = (down[:, :, 0] * wide[3][..., None]).sum(1)
    for one, other in zip(found, torch.autograd.grad(whole.square().sum(), wide), strict=True):
        assert float((one.double() - other).abs().max() / other.abs().max()) < 0.05
