"""The operators `tilewright::linear`, `tilewright::mm` and `tilewright::bmm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright.base.errors import TensorError, choose
from tilewright.ops.gemm.functions import ACTIVATIONS, matmul
from tilewright.torch.autocast import cast_inputs
from tilewright.torch.emulation import find_device

_TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """`activation(x @ weight.T + bias)` for x (…, k), weight (n, k) and bias (n,)."""
    if torch.is_autocast_enabled(x.device.type):
        x, weight, bias = cast_inputs(x, weight, bias)  # type: ignore[assignment]
    result: torch.Tensor = torch.ops.tilewright.linear(x, weight, bias, activation)
    return result


def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of two matrices (m, k) and (k, n)."""
    if torch.is_autocast_enabled(a.device.type):
        a, b = cast_inputs(a, b)  # type: ignore[assignment]
    result: torch.Tensor = torch.ops.tilewright.mm(a, b)
    return result


def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The products of two batches of matrices (b, m, k) and (b, k, n)."""
    if torch.is_autocast_enabled(a.device.type):
        a, b = cast_inputs(a, b)  # type: ignore[assignment]
    result: torch.Tensor = torch.ops.tilewright.bmm(a, b)
    return result


def _check_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    if x.dim() < 1 or weight.dim() != 2:
        raise TensorError(f"linear needs x (…, k) and weight (n, k), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.shape[-1] != weight.shape[1]:
        raise TensorError(f"x has {x.shape[-1]} features, and weight {tuple(weight.shape)} needs {weight.shape[1]}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise TensorError(f"bias is {tuple(bias.shape)}, must be ({weight.shape[0]},)")
    _check_types("linear", x, weight, bias)


def _check_product(name: str, a: torch.Tensor, b: torch.Tensor, dimensions: int) -> None:
    if a.dim() != dimensions or b.dim() != dimensions:
        raise TensorError(f"{name} needs tensors of {dimensions} dimensions, got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise TensorError(f"{name} cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    _check_types(name, a, b)


def _check_types(name: str, first: torch.Tensor, *others: torch.Tensor | None) -> None:
    for other in others:
        if other is not None and (other.dtype != first.dtype or other.device != first.device):
            raise TensorError(
                f"{name} needs tensors of one type on one device, got {first.dtype} on {first.device} and "
                f"{other.dtype} on {other.device}"
            )


@torch.library.custom_op("tilewright::linear", mutates_args=())
def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> torch.Tensor:
    device = find_device(x, "tilewright::linear")
    try:
        result: torch.Tensor = matmul(x, weight.mT, bias=bias, activation=activation, device=device)
    except (TensorError, RuntimeError):  # torch's own error for a weight that is not a matrix
        _check_linear(x, weight, bias)
        raise
    return result


@_linear.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> torch.Tensor:
    _check_linear(x, weight, bias)
    if activation is not None:
        choose("activation", activation, ACTIVATIONS)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _save_linear(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001
    x, weight, bias, activation = inputs
    ctx.save_for_backward(x, weight, bias)
    ctx.activation = activation


def _differentiate_linear(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight, bias = context.saved_tensors
    if context.activation is not None:
        # The product is computed again instead of being kept: an activation is fused to save that memory.
        before = torch.ops.tilewright.linear(x, weight, bias, None)
        recorded = torch.is_grad_enabled()  # for gradients of gradients
        if not recorded:
            before = before.detach().requires_grad_()
        with torch.enable_grad():
            after = _TORCH[context.activation](before)
        (gradient,) = torch.autograd.grad(after, before, gradient, create_graph=recorded)
    rows = gradient.reshape(-1, gradient.shape[-1])
    needs_x, needs_weight, needs_bias = context.needs_input_grad[:3]
    of_x = torch.ops.tilewright.mm(rows, weight).reshape(x.shape) if needs_x else None
    of_weight = torch.ops.tilewright.mm(rows.t(), x.reshape(-1, x.shape[-1])) if needs_weight else None
    return of_x, of_weight, rows.sum(0) if needs_bias else None, None


_linear.register_autograd(_differentiate_linear, setup_context=_save_linear)


def _multiply(name: str, a: torch.Tensor, b: torch.Tensor, dimensions: int) -> torch.Tensor:
    # `matmul` also accepts shapes that the operator must refuse.
    if a.dim() != dimensions or b.dim() != dimensions or a.shape[:-2] != b.shape[:-2]:
        _check_product(name, a, b, dimensions)
    try:
        result: torch.Tensor = matmul(a, b, device=find_device(a, f"tilewright::{name}"))
    except TensorError:
        _check_product(name, a, b, dimensions)
        raise
    return result


@torch.library.custom_op("tilewright::mm", mutates_args=())
def _mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _multiply("mm", a, b, 2)


@_mm.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _check_product("mm", a, b, 2)
    return a.new_empty((a.shape[0], b.shape[1]))


@torch.library.custom_op("tilewright::bmm", mutates_args=())
def _bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _multiply("bmm", a, b, 3)


@_bmm.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _check_product("bmm", a, b, 3)
    return a.new_empty((a.shape[0], a.shape[1], b.shape[2]))


def _save_product(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _differentiate_mm(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return _differentiate_product(context, gradient, torch.ops.tilewright.mm)


def _differentiate_bmm(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return _differentiate_product(context, gradient, torch.ops.tilewright.bmm)


def _differentiate_product(context: Any, gradient: torch.Tensor, multiply: Any) -> tuple[torch.Tensor | None, ...]:
    a, b = context.saved_tensors
    needs_a, needs_b = context.needs_input_grad
    of_a = multiply(gradient, b.transpose(-1, -2)) if needs_a else None
    of_b = multiply(a.transpose(-1, -2), gradient) if needs_b else None
    return of_a, of_b


_mm.register_autograd(_differentiate_mm, setup_context=_save_product)
_bmm.register_autograd(_differentiate_bmm, setup_context=_save_product)
