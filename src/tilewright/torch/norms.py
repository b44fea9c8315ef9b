"""The operators `tilewright::rms_norm` and `tilewright::layer_norm`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tilewright.base.errors import TensorError
from tilewright.ops.norm import functions
from tilewright.torch.emulation import find_device
from tilewright.torch.torch_gradients import differentiate_with_torch

# What torch 2.13 adds if `eps` is None: half types are computed in fp32, so it is fp32's epsilon for them, too.
_EPSILON = torch.finfo(torch.float32).eps


def rms_norm(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """RMSNorm over the last dimensions, `normalized_shape`, as `torch.nn.functional.rms_norm`.

    `eps` is that of float32, 1.2e-7, unless you pass it, for all types.
    """
    epsilon = _EPSILON if eps is None else eps
    result: torch.Tensor = torch.ops.tilewright.rms_norm(x, list(normalized_shape), weight, epsilon)
    return result


def layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """LayerNorm over the last dimensions, `normalized_shape`, as `torch.nn.functional.layer_norm`."""
    result: torch.Tensor = torch.ops.tilewright.layer_norm(x, list(normalized_shape), weight, bias, eps)
    return result


def _check(name: str, x: torch.Tensor, shape: list[int], *factors: torch.Tensor | None) -> None:
    if not shape or list(x.shape[x.dim() - len(shape) :]) != shape:
        raise TensorError(f"{name} over {tuple(shape)} needs x with these last dimensions, got {tuple(x.shape)}")
    for factor in factors:
        if factor is not None and (list(factor.shape) != shape or factor.dtype != x.dtype or factor.device != x.device):
            raise TensorError(
                f"{name} needs weight and bias of shape {tuple(shape)} and type {x.dtype} on {x.device}, got "
                f"{tuple(factor.shape)} and {factor.dtype} on {factor.device}"
            )


def _view_rows(x: torch.Tensor, shape: list[int]) -> torch.Tensor:
    return x if len(shape) == 1 else x.reshape((*x.shape[: x.dim() - len(shape)], math.prod(shape)))


def _view_factor(factor: torch.Tensor | None, x: torch.Tensor, shape: list[int]) -> torch.Tensor:
    return x.new_ones(math.prod(shape)) if factor is None else factor.reshape(-1)


@torch.library.custom_op("tilewright::rms_norm", mutates_args=())
def _rms_norm(x: torch.Tensor, shape: list[int], weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    device = find_device(x, "tilewright::rms_norm")
    _check("rms_norm", x, shape, weight)
    rows = _view_rows(x, shape)
    result: torch.Tensor = functions.rms_norm(rows, _view_factor(weight, x, shape), epsilon=eps, device=device)
    return result.reshape(x.shape)


@_rms_norm.register_fake
def _(x: torch.Tensor, shape: list[int], weight: torch.Tensor | None, eps: float) -> torch.Tensor:  # noqa: ARG001
    _check("rms_norm", x, shape, weight)
    return x.new_empty(x.shape)


@torch.library.custom_op("tilewright::layer_norm", mutates_args=())
def _layer_norm(
    x: torch.Tensor, shape: list[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    device = find_device(x, "tilewright::layer_norm")
    _check("layer_norm", x, shape, weight, bias)
    added = None if bias is None else bias.reshape(-1)
    rows, factor = _view_rows(x, shape), _view_factor(weight, x, shape)
    result: torch.Tensor = functions.layer_norm(rows, factor, added, epsilon=eps, device=device)
    return result.reshape(x.shape)


@_layer_norm.register_fake
def _(
    x: torch.Tensor,
    shape: list[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,  # noqa: ARG001
) -> torch.Tensor:
    _check("layer_norm", x, shape, weight, bias)
    return x.new_empty(x.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001
    x, ctx.shape, *factors, ctx.eps = inputs
    ctx.save_for_backward(x, *factors)


def _differentiate(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    normalize: Any = torch.nn.functional.rms_norm if len(context.saved_tensors) == 2 else torch.nn.functional.layer_norm
    x, *factors = differentiate_with_torch(
        lambda x, *factors: normalize(x, context.shape, *factors, eps=context.eps), context.saved_tensors, gradient
    )
    return x, None, *factors, None


_rms_norm.register_autograd(_differentiate, setup_context=_save)
_layer_norm.register_autograd(_differentiate, setup_context=_save)
