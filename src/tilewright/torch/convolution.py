"""The operators `tilewright::conv1d`, `conv2d` and `conv3d`, and those of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.grouped_conv.functions import conv, conv_input_gradient, conv_weight_gradient
from tilewright.torch.autocast import cast_inputs
from tilewright.torch.emulation import find_device

_Extents = int | Sequence[int]


def conv1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: _Extents = 1,
    padding: _Extents | str = 0,
    dilation: _Extents = 1,
    groups: int = 1,
) -> torch.Tensor:
    """`torch.nn.functional.conv1d` on Tilewright's kernels."""
    return _call("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: _Extents = 1,
    padding: _Extents | str = 0,
    dilation: _Extents = 1,
    groups: int = 1,
) -> torch.Tensor:
    """`torch.nn.functional.conv2d` on Tilewright's kernels. Tensors of the format channels_last are not copied."""
    return _call("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: _Extents = 1,
    padding: _Extents | str = 0,
    dilation: _Extents = 1,
    groups: int = 1,
) -> torch.Tensor:
    """`torch.nn.functional.conv3d` on Tilewright's kernels."""
    return _call("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _call(
    name: str,
    ndim: int,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: _Extents,
    padding: _Extents | str,
    dilation: _Extents,
    groups: int,
) -> torch.Tensor:
    if input.dim() != ndim + 2 or weight.dim() != ndim + 2:
        raise TensorError(
            f"{name} needs tensors of {ndim + 2} dimensions, got {tuple(input.shape)} and {tuple(weight.shape)}"
        )
    if torch.is_autocast_enabled(input.device.type):
        input, weight, bias = cast_inputs(input, weight, bias)  # type: ignore[assignment]
    steps = {"stride": _repeat("stride", stride, ndim), "dilation": _repeat("dilation", dilation, ndim)}
    before, after = _read_padding(padding, weight.shape[2:], steps, ndim)
    if before != after:
        # Kernels of torch.nn.functional pad an uneven "same" explicitly, too.
        pads = [extent for pair in reversed(list(zip(before, after, strict=True))) for extent in pair]
        input, before = torch.nn.functional.pad(input, pads), [0] * ndim
    operator = getattr(torch.ops.tilewright, name)
    result: torch.Tensor = operator(input, weight, bias, steps["stride"], before, steps["dilation"], groups)
    return result


def _repeat(name: str, value: _Extents, ndim: int) -> list[int]:
    """One number for each spatial dimension."""
    found = [value] * ndim if isinstance(value, int) else list(value)
    if len(found) != ndim:
        raise InvalidValueError(f"{name} has {len(found)} numbers, the convolution has {ndim} dimensions")
    return found


def _read_padding(
    padding: _Extents | str, taps: Sequence[int], steps: dict[str, list[int]], ndim: int
) -> tuple[list[int], list[int]]:
    """The zeros before and after the input."""
    if padding == "valid":
        return [0] * ndim, [0] * ndim
    if padding == "same":
        if any(step != 1 for step in steps["stride"]):
            raise InvalidValueError(f"padding='same' needs a stride of 1, got {steps['stride']}")
        whole = [(size - 1) * step for size, step in zip(taps, steps["dilation"], strict=True)]
        return [extent // 2 for extent in whole], [extent - extent // 2 for extent in whole]
    if isinstance(padding, str):
        raise InvalidValueError(f"unknown padding {padding!r}. Known: same, valid, and numbers.")
    pads = _repeat("padding", padding, ndim)
    return pads, pads


def _convolve(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    options: Any = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    result: torch.Tensor = conv(input, weight, bias=bias, device=find_device(input, "tilewright::conv"), **options)
    return result


def _make_output(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,  # noqa: ARG001  (the arguments of the operator)
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,  # noqa: ARG001
) -> torch.Tensor:
    """An empty result: channels are last in memory."""
    axes = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    size = [(extent + 2 * pad - (taps - 1) * step - 1) // jump + 1 for extent, taps, jump, pad, step in axes]
    return _make_channels_last(input, (input.shape[0], weight.shape[0], *size))


def _make_channels_last(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    return like.new_empty((shape[0], *shape[2:], shape[1])).movedim(-1, 1)


@torch.library.custom_op("tilewright::conv_input_gradient", mutates_args=())
def _input_gradient(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    input_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    options: Any = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    device = find_device(gradient, "tilewright::conv_input_gradient")
    result: torch.Tensor = conv_input_gradient(gradient, weight, input_shape[2:], device=device, **options)
    return result


@_input_gradient.register_fake
def _(
    gradient: torch.Tensor,
    weight: torch.Tensor,  # noqa: ARG001
    input_shape: Sequence[int],
    stride: Sequence[int],  # noqa: ARG001
    padding: Sequence[int],  # noqa: ARG001
    dilation: Sequence[int],  # noqa: ARG001
    groups: int,  # noqa: ARG001
) -> torch.Tensor:
    return _make_channels_last(gradient, input_shape)


@torch.library.custom_op("tilewright::conv_weight_gradient", mutates_args=())
def _weight_gradient(
    input: torch.Tensor,
    gradient: torch.Tensor,
    weight_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    options: Any = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    device = find_device(gradient, "tilewright::conv_weight_gradient")
    found: torch.Tensor = conv_weight_gradient(input, gradient, weight_shape[2:], device=device, **options)
    return found


@_weight_gradient.register_fake
def _(
    input: torch.Tensor,  # noqa: ARG001
    gradient: torch.Tensor,
    weight_shape: Sequence[int],
    stride: Sequence[int],  # noqa: ARG001
    padding: Sequence[int],  # noqa: ARG001
    dilation: Sequence[int],  # noqa: ARG001
    groups: int,  # noqa: ARG001
) -> torch.Tensor:
    return _make_channels_last(gradient, weight_shape)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001
    input, weight, bias, *ctx.options = inputs
    ctx.save_for_backward(input, weight)
    ctx.has_bias = bias is not None


def _differentiate(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    input, weight = ctx.saved_tensors
    needs_input, needs_weight, needs_bias = ctx.needs_input_grad[:3]
    of_input = of_weight = of_bias = None
    if needs_input:
        of_input = torch.ops.tilewright.conv_input_gradient(gradient, weight, input.shape, *ctx.options)
    if needs_weight:
        of_weight = torch.ops.tilewright.conv_weight_gradient(input, gradient, weight.shape, *ctx.options)
    if needs_bias and ctx.has_bias:
        of_bias = gradient.sum([0, *range(2, gradient.dim())])
    return of_input, of_weight, of_bias, None, None, None, None


for _name in ("conv1d", "conv2d", "conv3d"):
    _operator = torch.library.custom_op(f"tilewright::{_name}", _convolve, mutates_args=())
    _operator.register_fake(_make_output)
    _operator.register_autograd(_differentiate, setup_context=_save_inputs)
