"""A decoder layer of a small mixture-of-experts model with 8-bit weights on emulated devices, against float64.

Every product, norm, quantisation and the routing run on kernels, products with 8-bit operands and scales for each row
and channel; those of experts, too.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.grouped_kernels import make_scaled as make_experts
from tests.functions.routing_kernels import make_sorting, make_topk
from tests.functions.scaled_kernels import make_scaled
from tilewright.ops.kernel import Kernel

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = [pytest.mark.compile, pytest.mark.deep]
TOKENS, HIDDEN, HEADS, EXPERTS, K, INNER = 24, 128, 2, 8, 2, 32
SIZE = HIDDEN // HEADS
EPSILON = 1e-6
FP8 = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}  # gfx942 has another encoding than OCP's
# Largest error of the layer's result, as a share of its size in the root mean square. Activations are rounded to bf16
# six times (2⁻⁹ each), and an 8-bit value near the middle of two may be rounded to the other one.
LIMIT = 0.02


def make_kernels(gpu: str) -> list[Kernel]:
    norm = {"kind": "rms", "dtype": "bf16", "rows": 4, "columns": 512, "threads": 64, "vector": 1, "pad": True}
    gemm = {
        **{"variant": "standard", "dtype": "bf16", "layout": "rcr", "block": "32x32x16", "waves": "2x2x1"},
        **{"mma": "16x16x16", "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "default"},
        **{"pad_m": True, "pad_n": True, "pad_k": True},
    }
    attention = {
        **{"family": "forward", "mode": "batch", "dtype": "bf16", "pipeline": "qr", "block": "64x64x32x64x32x64"},
        **{
            "waves": "4x1x1x4x1x1",
            "mma": "16x16x16x16x16x16",
            "pad_q": True,
            "pad_k": True,
            "mask_form": "any",
            "lse": True,
        },
    }
    return [
        tw.kernel_of(tw.norm.config(**norm, dtype_y="fp8", quant="dynamic"), gpu),
        tw.kernel_of(tw.norm.config(**norm, dtype_y="bf16", residual="store"), gpu),
        tw.kernel_of(tw.norm.config(**{**norm, "kind": "smoothquant"}, dtype_y="fp8", quant="smooth"), gpu),
        tw.kernel_of(tw.fmha.config(**attention), gpu),
        tw.kernel_of(tw.gemm.config(**gemm), gpu),
        *(make_scaled("rowcol", gpu), make_experts(gpu), make_topk(gpu), make_sorting(gpu)),
    ]


class Layer:
    """Weights: 8-bit ones with a scale for each output channel."""

    def __init__(self, dtype: Any) -> None:
        self.generator = torch.Generator().manual_seed(7)
        self.dtype = dtype
        self.x = self._draw(TOKENS, HIDDEN).bfloat16()
        self.norms = [(1 + self._draw(HIDDEN) / 8).bfloat16() for _ in range(2)]
        self.qkv, self.out = self._quantize(3 * HIDDEN, HIDDEN), self._quantize(HIDDEN, HIDDEN)
        self.router = self._draw(EXPERTS, HIDDEN).bfloat16()
        self.gate_up = self._quantize(EXPERTS, 2 * INNER, HIDDEN)
        self.down = self._quantize(EXPERTS, HIDDEN, INNER)

    def _draw(self, *shape: int) -> Any:
        return torch.randn(shape, generator=self.generator)

    def _quantize(self, *shape: int) -> tuple[Any, Any]:
        scales = 2.0 ** torch.randint(-5, -2, shape[:-1], generator=self.generator)
        return self._draw(*shape).to(self.dtype), scales


def widen(weights: tuple[Any, Any]) -> Any:
    values, scales = weights
    return values.float() * scales[..., None]


def run_layer(layer: Layer, device: str) -> tuple[Any, Any]:
    """The result of kernels, and the experts of each token."""
    rows, scales = tw.rms_norm(layer.x, layer.norms[0], epsilon=EPSILON, quantize="fp8", device=device)
    assert rows.dtype == layer.dtype
    values, channels = layer.qkv
    qkv = twt.scaled_mm(rows, values.t(), scales.reshape(-1, 1), channels.reshape(1, -1), out_dtype=torch.bfloat16)
    q, k, v = qkv.reshape(1, TOKENS, 3, HEADS, SIZE).unbind(2)
    mixed = twt.attention(q, k, v, causal=True).reshape(TOKENS, HIDDEN)
    rows, scales = tw.smooth_quantize(mixed, torch.ones(HIDDEN), quantize="fp8", device=device)
    values, channels = layer.out
    added = twt.scaled_mm(rows, values.t(), scales.reshape(-1, 1), channels.reshape(1, -1), out_dtype=torch.bfloat16)
    normed, summed = tw.rms_norm(
        added, layer.norms[1], epsilon=EPSILON, residual=layer.x, return_sum=True, device=device
    )
    weights, ids = twt.topk_softmax(twt.linear(normed, layer.router).float(), K)
    weights = weights / weights.sum(-1, keepdim=True)
    (gate_up, gate_up_scale), (down, down_scale) = layer.gate_up, layer.down
    experts = twt.fused_moe(
        *(normed, gate_up, down, weights, ids),
        quant_type="per_token",
        w1_scale=gate_up_scale[..., None],
        w2_scale=down_scale[..., None],
    )
    return summed + experts, ids


def compute_layer(layer: Layer, ids: Any, causal: bool = True) -> Any:
    """The same in float64, with activations in 8 bits where kernels have them. Experts are given."""
    largest = torch.finfo(layer.dtype).max

    def normalize(rows: Any, weight: Any) -> Any:
        return rows / torch.sqrt((rows * rows).mean(-1, keepdim=True) + EPSILON) * weight.double()

    def quantize(rows: Any) -> Any:
        scale = rows.abs().amax(-1, keepdim=True) / largest
        return (rows / scale).float().to(layer.dtype).double() * scale

    x = layer.x.double()
    qkv = quantize(normalize(x, layer.norms[0])) @ widen(layer.qkv).double().t()
    q, k, v = (each.transpose(0, 1) for each in qkv.reshape(TOKENS, 3, HEADS, SIZE).unbind(1))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    mixed = mixed.transpose(0, 1).reshape(TOKENS, HIDDEN)
    summed = x + quantize(mixed) @ widen(layer.out).double().t()
    normed = normalize(summed, layer.norms[1])
    weights = torch.softmax(normed @ layer.router.double().t(), -1).gather(1, ids.long())
    weights = weights / weights.sum(-1, keepdim=True)
    gate_up, down = (widen(each).double()[ids.long()] for each in (layer.gate_up, layer.down))
    gate, up = (gate_up @ quantize(normed)[:, None, :, None]).chunk(2, -2)
    experts = down @ quantize((torch.nn.functional.silu(gate) * up)[..., 0])[..., None]
    return summed + (weights[..., None] * experts[..., 0]).sum(1)


def measure_error(found: Any, wanted: Any) -> float:
    return float(((found.double() - wanted).square().mean() / wanted.square().mean()).sqrt())


@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_a_decoder_layer(gpu: str) -> None:
    kernels = make_kernels(gpu)
    built(kernels)
    layer = Layer(FP8[gpu])
    with tw.options(pool=kernels), twt.emulate(gpu):
        found, ids = run_layer(layer, f"emulated:{gpu}")
    wanted = compute_layer(layer, ids)
    assert measure_error(found, wanted) < LIMIT
    # The bound tells wrong layers apart: without the mask, and with other experts.
    assert measure_error(found, compute_layer(layer, ids, causal=False)) > 5 * LIMIT
    assert measure_error(found, compute_layer(layer, (ids + 1) % EXPERTS)) > 5 * LIMIT
