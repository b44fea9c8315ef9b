"""The operator `tilewright::topk`: the routing of tokens to experts."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.base.errors import TensorError
from tilewright.ops.topk import functions
from tilewright.torch.emulation import find_device
from tilewright.torch.torch_gradients import differentiate_with_torch


def topk_softmax(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k most probable experts of each token: weights in float32, and indices in int32.

    `x` (tokens, experts) are logits. The largest logit is first; of equal ones, that with the lower index, as in a
    stable `torch.sort`, where NaN is the largest. Weights are `torch.softmax(x.float(), -1)` at the indices, and have
    gradients; they are not normalised again. Indices are different experts that exist, also where weights are NaN: in
    rows with NaN or +infinity, or with nothing but -infinity.
    """
    weights, indices = torch.ops.tilewright.topk(x, k, "softmax")
    return weights, indices


def topk_sigmoid(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, with weights `torch.sigmoid(x.float())` at the k largest logits: NaN only where the logit is."""
    weights, indices = torch.ops.tilewright.topk(x, k, "sigmoid")
    return weights, indices


def _check(x: torch.Tensor, k: int) -> None:
    if x.dim() < 1 or not 1 <= k <= x.shape[-1]:
        raise TensorError(f"topk needs x with k to the last dimension, got k {k} and shape {tuple(x.shape)}")


@torch.library.custom_op("tilewright::topk", mutates_args=())
def _topk(x: torch.Tensor, k: int, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    device = find_device(x, "tilewright::topk")
    _check(x, k)
    select = functions.topk_softmax if activation == "softmax" else functions.topk_sigmoid
    weights, indices = select(x, k, device=device)
    return weights, indices


@_topk.register_fake
def _(x: torch.Tensor, k: int, activation: str) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG001
    _check(x, k)
    shape = (*x.shape[:-1], k)
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.int32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, _, ctx.activation = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(x, output[1])


def _differentiate(context: Any, gradient: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, None, None]:
    x, indices = context.saved_tensors

    def weigh(wide: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(wide, -1) if context.activation == "softmax" else torch.sigmoid(wide)
        return weights.gather(-1, indices.long())

    (found,) = differentiate_with_torch(weigh, [x], gradient)
    return found, None, None


_topk.register_autograd(_differentiate, setup_context=_save)
