"""Layers of experts with 8-bit weights on an emulated device against float64, and their activations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.grouped_kernels import QUANTIZER, SCALED, make_quantizer, make_scaled
from tests.functions.routing_kernels import ARCH, SORTING, make_sorting
from tilewright.base.errors import InvalidValueError, TensorError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = pytest.mark.compile
HIDDEN, INNER = 32, 16
ULP = 2.0**-7  # of bf16, relative to a number
FP8 = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}  # gfx942 has another encoding than OCP's
LEAST = {"gfx942": 2.0**-10, "gfx950": 2.0**-9}  # the smallest positive number of the encoding
ALPHA, LIMIT = 1.702, 7.0  # those of aiter's kernels


class Layer:
    """8-bit weights with a scale for each channel, tokens and their experts."""

    def __init__(self, gpu: str, tokens: int, experts: int, k: int) -> None:
        self.gpu, self.dtype = gpu, FP8[gpu]
        generator = torch.Generator().manual_seed(1000 * experts + tokens)
        shapes = ((experts, 2 * INNER, HIDDEN), (experts, HIDDEN, INNER), (tokens, HIDDEN), (tokens, experts))
        w1, w2, x, logits = (torch.randn(shape, generator=generator) for shape in shapes)
        self.weights = [each.to(self.dtype) for each in (w1, w2)]
        self.scales = [2.0 ** (torch.rand(each.shape[:2], generator=generator) - 3) for each in (w1, w2)]
        self.x = x.bfloat16()
        weights, ids = torch.topk(torch.softmax(logits, -1), k)
        self.topk = (weights, ids.int())

    def run(self, **changes: Any) -> Any:
        given: dict[str, Any] = {
            **{"hidden_states": self.x, "w1": self.weights[0], "w2": self.weights[1], "topk_weight": self.topk[0]},
            **{"topk_ids": self.topk[1], "quant_type": "per_token", "w1_scale": self.scales[0][..., None]},
            "w2_scale": self.scales[1][..., None],
        }
        return twt.fused_moe(**{**given, **changes})

    def compute(self, ids: Any = None, limit: float | None = None) -> tuple[Any, Any]:
        """The result in float64, and the largest error of each element: `x` is quantised, the activation is not.

        An 8-bit value of x may be the other neighbour if it is near their middle: scales are computed in fp32, with an
        error below 2⁻²⁰. gate, up and the product with w2 are stored as bf16 by truncation, with an error of up to one
        ulp; torch rounds the activation and the sum, by half an ulp. Quantising the activation adds 2⁻⁴ of it, half the
        distance of two numbers with three bits of fraction, or half the smallest number.
        """
        w1, w2 = (
            each.double() * scale.double()[..., None] for each, scale in zip(self.weights, self.scales, strict=True)
        )
        x = self.x.double()
        scale = x.abs().amax(-1, keepdim=True) / torch.finfo(self.dtype).max
        low, rows, high = ((x / scale * (1 + e)).float().to(self.dtype).double() * scale for e in (-1e-6, 0, 1e-6))
        weights = self.topk[0].double()
        out, error = torch.zeros_like(x), torch.zeros_like(x)
        for token, chosen in enumerate((self.topk[1] if ids is None else ids).tolist()):
            for place, expert in enumerate(chosen):
                both = w1[expert] @ rows[token]
                off = w1[expert].abs() @ (high - low)[token].abs() + ULP * both.abs()
                inner, off = activate(both, off, limit)
                off = off + ULP / 2 * inner.abs()
                top = (inner.abs() + off).max() / torch.finfo(self.dtype).max
                off = off + 2.0**-4 * (inner.abs() + off) + LEAST[self.gpu] / 2 * top
                down = w2[expert] @ inner
                out[token] += weights[token, place] * down
                error[token] += weights[token, place] * (w2[expert].abs() @ off + ULP * down.abs())
        return out, 1.05 * (error + ULP / 2 * out.abs())  # errors of errors


def activate(both: Any, off: Any, limit: float | None) -> tuple[Any, Any]:
    """The activation of gate and up, and its largest error for theirs. With a limit, it is the clamped SwiGLU."""
    (gate, up), (off_gate, off_up) = both.chunk(2), off.chunk(2)
    alpha = 1.0
    if limit is not None:  # clamping makes no error larger
        gate, up, alpha = gate.clamp(max=limit), up.clamp(-limit, limit) + 1, ALPHA
    share = torch.sigmoid(alpha * gate)
    slope = share * (1 + alpha * gate * (1 - share)) * up
    return gate * share * up, slope.abs() * off_gate + (gate * share).abs() * off_up


def check_close(found: Any, wanted: Any, error: Any) -> None:
    assert float(((found.double() - wanted).abs() / error).max()) < 1


def check_layer(gpu: str, tokens: int, experts: int, k: int) -> None:
    layer = Layer(gpu, tokens, experts, k)
    found = layer.run()
    assert found.shape == layer.x.shape and found.dtype == torch.bfloat16
    wanted, error = layer.compute()
    check_close(found, wanted, error)
    other, _ = layer.compute((layer.topk[1] + 1) % experts)
    assert float(((other - wanted).abs() > error).double().mean()) > 0.5  # those of other experts


def test_a_layer_with_8_bit_experts() -> None:
    kernels = (SORTING, SCALED, QUANTIZER)
    built(kernels)
    with tw.options(pool=kernels), twt.emulate(ARCH):
        check_layer(ARCH, 33, 8, 2)
        # Tokens that are quantised already, by aiter's names; a token of zeros.
        layer = Layer(ARCH, 5, 8, 2)
        layer.x[2] = 0
        rows, scales = twt.quantize_rows(layer.x, layer.dtype)
        assert not rows[2].float().any() and float(scales[2]) == 0
        kind = SimpleNamespace(name="per_Token")
        ready = layer.run(hidden_states=rows, a1_scale=scales[:, None], quant_type=kind, dtype=torch.bfloat16)
        found = layer.run()
        assert torch.equal(ready, found) and not found[2].any() and found.isfinite().all()
        layer.x[2] = 1  # for the scale of the reference
        keep = [0, 1, 3, 4]
        wanted, error = layer.compute()
        check_close(found[keep], wanted[keep], error[keep])


@pytest.mark.deep
@pytest.mark.parametrize("tokens", [1, 3, 4, 33, 64])
@pytest.mark.parametrize("experts", [8, 64])
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_layers_of_all_sizes(tokens: int, experts: int, gpu: str) -> None:
    kernels = (make_sorting(gpu), make_scaled(gpu), make_quantizer(gpu))
    built(kernels)
    with tw.options(pool=kernels), twt.emulate(gpu):
        check_layer(gpu, tokens, experts, min(8, experts // 2))


def test_rows_are_quantised_by_their_largest_element() -> None:
    built([QUANTIZER])
    x = torch.randn(7, 40, generator=torch.Generator().manual_seed(1)).bfloat16()
    with tw.options(pool=[QUANTIZER]), twt.emulate(ARCH):
        rows, scales = twt.quantize_rows(x, FP8[ARCH])
        with pytest.raises(TensorError, match="convert the weights"):
            twt.quantize_rows(x, FP8["gfx950"])
    exact = x.double().abs().amax(-1) / torch.finfo(FP8[ARCH]).max
    assert float((scales.double() / exact - 1).abs().max()) < 2.0**-20
    low, high = ((x.double() / exact[:, None] * (1 + e)).float().to(FP8[ARCH]).float() for e in (-1e-6, 1e-6))
    assert ((rows.float() == low) | (rows.float() == high)).all()


def test_the_clamped_activation() -> None:
    kernels = (SORTING, SCALED, QUANTIZER)
    built(kernels)
    layer = Layer(ARCH, 6, 8, 2)
    with tw.options(pool=kernels), twt.emulate(ARCH):
        usual = layer.run(activation=SimpleNamespace(name="Swiglu"))
        clamped = layer.run(activation="swiglu", swiglu_limit=0.5)
        other = layer.run(activation="swiglu", swiglu_limit=0.5, swiglu_alpha=4.0)
    check_close(usual, *layer.compute(limit=LIMIT))
    wanted, error = layer.compute(limit=0.5)
    check_close(clamped, wanted, error)
    for wrong in (usual, other):
        assert float(((wrong.double() - wanted).abs() > error).double().mean()) > 0.2


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"quant_type": "no"}, InvalidValueError, "only with quant_type per_token"),
        ({"w1_scale": None}, TensorError, "needs w1_scale of float32"),
        ({"w2_scale": torch.ones(8, 3)}, TensorError, "needs w2_scale of float32"),
        ({"w1": torch.zeros(8, 2 * INNER, HIDDEN)}, TensorError, "needs w1 and w2 of fp8"),
        ({"a1_scale": torch.ones(3, 1)}, TensorError, "needs a1_scale for hidden_states of the type of w1"),
        ({"a2_scale": torch.ones(3, 1)}, InvalidValueError, "does not support a2_scale"),
    ],
)
def test_errors_tell_the_cause(changes: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Layer(ARCH, 3, 8, 2).run(**changes)
