"""`conv` and its gradients: convolutions of arrays, with the problem taken from the arrays.

Kernels need packed arrays with the channels last. An array with this order in memory is not copied, whatever the order
of its dimensions is: torch's `channels_last` memory format is such an order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, TensorError, choose
from tilewright.ops.array_plan import (
    Array,
    ArrayFunction,
    ArrayLaunch,
    ArrayPlan,
    ArraySpec,
    DeviceLike,
    StreamLike,
    check_same_type,
    choose_result,
)
from tilewright.ops.block_gemm.types import OUTPUTS
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, FORWARD, NDIMS
from tilewright.ops.grouped_conv.implicit_gemm import compute_gemm_sizes
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.problem_values import Extents, check_count, read_extents, repeat_extent

CHANNELS_FIRST, CHANNELS_LAST = "channels_first", "channels_last"
LAYOUTS = (CHANNELS_FIRST, CHANNELS_LAST)
SAME, VALID = "same", "valid"
PADDINGS = (SAME, VALID)
# Blocks of most kernels of the portfolio.
_BLOCK = 128
# A part of a split sum is at least this long: 16 steps of a block's 64, in which the start of the loop and the addition
# of the result are a small part. At most as many parts as rule S516 allows for all types.
_LEAST_SUM, _MOST_PARTS = 1024, 128


class ConvOptions(NamedTuple):
    """The arguments of a convolution that are not arrays, as the caller gives them. Sequences are tuples."""

    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    layout: Any

    @classmethod
    def create(cls, stride: Any, padding: Any, dilation: Any, groups: Any, layout: Any) -> ConvOptions:
        return cls(_to_hashable(stride), _to_hashable(padding), _to_hashable(dilation), groups, layout)


def _to_hashable(value: Any) -> Any:
    """Extents as part of a key. They are checked by the planner."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


def conv(
    input: Array,
    weight: Array,
    *,
    bias: Array = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = CHANNELS_FIRST,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Array:
    """The convolution of an array, 1-D, 2-D or 3-D, as `torch.nn.functional.conv2d`.

    With `layout="channels_first"`, `input` is (n, c, …) and `weight` is (k, c/groups, …); with "channels_last", they
    are (n, …, c) and (k, …, c/groups). The result (n, k, …) or (n, …, k) has its channels last in memory. Arrays that
    have another order in memory are copied; torch tensors in the memory format channels_last are not.

    `stride`, `padding` and `dilation` are a number, or one for each spatial dimension. `padding` may also be "same" or
    "valid". `bias` (k,) is added to the rounded result. All arrays have the same type.

    The kernel is selected, and built if necessary, on the first call for these shapes. Arrays may be NumPy arrays,
    torch tensors or objects with `__dlpack__`; the result is of the same library. `tilewright.options` sets the device
    and how kernels are selected.
    """
    options = ConvOptions.create(stride, padding, dilation, groups, layout)
    arrays = (input, weight) if bias is None else (input, weight, bias)
    return _conv(arrays, out, stream, device, options)


def conv_input_gradient(
    output_gradient: Array,
    weight: Array,
    input_size: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = CHANNELS_FIRST,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Array:
    """The gradient of a convolution with respect to its input.

    `output_gradient` has the shape of the output, `input_size` is the spatial size of the input: a number, or one for
    each dimension. Other arguments are those of `conv`. The result has the shape of the input.
    """
    options = ConvOptions.create(stride, padding, dilation, groups, layout)
    size = _to_hashable(input_size)
    return _conv_input_gradient((output_gradient, weight), out, stream, device, size, options)


def conv_weight_gradient(
    input: Array,
    output_gradient: Array,
    filter_size: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = CHANNELS_FIRST,
    split: int | None = None,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Array:
    """The gradient of a convolution with respect to its weights.

    `output_gradient` has the shape of the output, `filter_size` is the spatial size of the filter: a number, or one for
    each dimension. Other arguments are those of `conv`. The result has the shape of the weights.

    A gradient is a sum over all positions of all images. `split` is the number of parts that this sum is divided into,
    so that more of the GPU is used; by default it follows from the sizes and the GPU. Parts are added in any order, so
    that the last bits of the result may differ between calls: pass 1 if they must not, or if your pool has no kernels
    with `split_k`.
    """
    options = ConvOptions.create(stride, padding, dilation, groups, layout)
    size = _to_hashable(filter_size)
    return _conv_weight_gradient((input, output_gradient), out, stream, device, size, split, options)


def plan_conv(
    arch: Arch,  # noqa: ARG001  (planners of other functions depend on it)
    input: ArraySpec,
    weight: ArraySpec,
    bias: ArraySpec | None,
    out: ArraySpec | None,
    options: ConvOptions,
) -> ArrayPlan:
    """The launch of a convolution."""
    check_same_type(input, weight)
    order = _find_order(weight, options.layout)
    n, size, c = _split_shape(input, order)
    k, filter_size, group_channels = _split_shape(weight, order)
    _check_channels(options.groups, c=c, k=k)
    if group_channels * options.groups != c:
        raise TensorError(
            f"input has {c} channels and weight {group_channels}: with {_format_groups(options.groups)}, weight must "
            f"have {c // options.groups}"
        )
    problem = _make_problem(FORWARD, input, n, c, k, size, filter_size, options)
    shape = _join_shape(n, problem.output_size, k, order)
    result = choose_result(out, "out", 3, OUTPUTS.get(input.type, input.dtype), shape, order)
    addend = None if bias is None else _broadcast_bias(bias, result, order)
    if not n:
        return ArrayPlan((result,))
    images, filters = _view_images(input, order, problem), _view_filters(weight, order, problem)
    return _make_plan(problem, (images, filters), result, _view_images, order, addend)


def plan_input_gradient(
    arch: Arch,  # noqa: ARG001  (planners of other functions depend on it)
    output_gradient: ArraySpec,
    weight: ArraySpec,
    out: ArraySpec | None,
    input_size: Any,
    options: ConvOptions,
) -> ArrayPlan:
    """The launch of the gradient of the input."""
    check_same_type(output_gradient, weight)
    order = _find_order(weight, options.layout)
    n, _, channels = _split_shape(output_gradient, order)
    k, filter_size, group_channels = _split_shape(weight, order)
    c = group_channels * check_count("groups", options.groups, 1)
    _check_channels(options.groups, c=c, k=k)
    size = repeat_extent("input_size", read_extents("input_size", input_size, 1), len(filter_size))
    problem = _make_problem(BACKWARD_DATA, output_gradient, n, c, k, size, filter_size, options)
    if channels != k:
        raise TensorError(f"output_gradient has {channels} channels, must have {k}: one for each filter of weight")
    _check_gradient(output_gradient, problem, n, k, order)
    dtype = OUTPUTS.get(weight.type, weight.dtype)
    result = choose_result(out, "out", 2, dtype, _join_shape(n, size, c, order), order)
    if not n:
        return ArrayPlan((result,))
    gradients, filters = _view_images(output_gradient, order, problem), _view_filters(weight, order, problem)
    return _make_plan(problem, (gradients, filters), result, _view_images, order)


def plan_weight_gradient(
    arch: Arch,
    input: ArraySpec,
    output_gradient: ArraySpec,
    out: ArraySpec | None,
    filter_size: Any,
    split: int | None,
    options: ConvOptions,
) -> ArrayPlan:
    """The launch of the gradient of the weights."""
    check_same_type(input, output_gradient)
    order = _find_order(input, options.layout)
    n, size, c = _split_shape(input, order)
    _, _, k = _split_shape(output_gradient, order)
    _check_channels(options.groups, c=c, k=k)
    taps = repeat_extent("filter_size", read_extents("filter_size", filter_size, 1), len(size))
    problem = _make_problem(BACKWARD_WEIGHT, input, n, c, k, size, taps, options)
    _check_gradient(output_gradient, problem, n, k, order)
    dtype = OUTPUTS.get(input.type, input.dtype)
    result = choose_result(out, "out", 2, dtype, _join_shape(k, taps, c // options.groups, order), order)
    if not n:
        return ArrayPlan((result,), zeros=True)
    parts = _choose_split(problem, arch) if split is None else check_count("split", split, 1)
    problem = dataclasses.replace(problem, k_batch=parts)
    gradients, images = _view_images(output_gradient, order, problem), _view_images(input, order, problem)
    return _make_plan(problem, (gradients, images), result, _view_filters, order)


def _find_order(array: ArraySpec, layout: Any) -> tuple[int, ...]:
    """The dimensions in the order of kernels: images or filters, spatial dimensions, channels."""
    choose("layout", layout, LAYOUTS)
    rank = len(array.shape)
    if rank - 2 not in NDIMS:
        known = ", ".join(f"{ndim + 2} ({ndim}-D)" for ndim in NDIMS)
        raise TensorError(f"{array.name} is {_format_shape(array.shape)}: a convolution needs arrays of rank {known}")
    return (0, *range(2, rank), 1) if layout == CHANNELS_FIRST else tuple(range(rank))


def _split_shape(array: ArraySpec, order: tuple[int, ...]) -> tuple[int, Extents, int]:
    """The number of images or filters, the spatial size, and the channels."""
    if len(array.shape) != len(order):
        raise TensorError(
            f"{array.name} is {_format_shape(array.shape)}, must have {len(order)} dimensions, as the other array has. "
            "A single image needs a dimension of 1, too"
        )
    first, *size, channels = (array.shape[place] for place in order)
    return first, tuple(size), channels


def _join_shape(first: int, size: Extents, channels: int, order: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an array in the caller's layout."""
    extents = dict(zip(order, (first, *size, channels), strict=True))
    return tuple(extents[place] for place in range(len(order)))


def _format_shape(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape))


def _format_groups(groups: int) -> str:
    return "1 group" if groups == 1 else f"{groups} groups"


def _check_channels(groups: Any, **channels: int) -> None:
    """Require channels of the input (c) and of the output (k) that the groups divide."""
    check_count("groups", groups, 1)
    names = {"c": "input", "k": "output"}
    for letter, count in channels.items():
        if count % groups:
            raise TensorError(
                f"{count} {names[letter]} channels cannot be divided among {groups} groups: the number must be a "
                f"multiple of {groups}"
            )


def _make_problem(
    direction: str, typed: ArraySpec, n: int, c: int, k: int, size: Extents, taps: Extents, options: ConvOptions
) -> Problem:
    """The problem of a convolution; of one image if there are none, so that its sizes are checked and computed."""
    left, right = _read_padding(options, taps)
    return Problem(
        direction=direction,
        n=max(n, 1),
        g=options.groups,
        c=c,
        k=k,
        input_size=size,
        filter_size=taps,
        stride=options.stride,
        dilation=options.dilation,
        left_pad=left,
        right_pad=right,
        dtype=typed.type,
    )


def _read_padding(options: ConvOptions, taps: Extents) -> tuple[Extents, Extents]:
    """The zeros before and after the input."""
    ndim = len(taps)
    if not isinstance(options.padding, str):
        pads = repeat_extent("padding", read_extents("padding", options.padding, 0), ndim)
        return pads, pads
    if choose("padding", options.padding, PADDINGS) == VALID:
        return (0,) * ndim, (0,) * ndim
    stride = repeat_extent("stride", read_extents("stride", options.stride, 1), ndim)
    if set(stride) != {1}:
        raise InvalidValueError(
            f"padding is 'same' and stride is {stride}: the output can have the size of the input with stride 1 only"
        )
    dilation = repeat_extent("dilation", read_extents("dilation", options.dilation, 1), ndim)
    both = [(size - 1) * step for size, step in zip(taps, dilation, strict=True)]
    # An odd number of zeros has one more after the input, as in torch.
    return tuple(pads // 2 for pads in both), tuple(pads - pads // 2 for pads in both)


def _check_gradient(gradient: ArraySpec, problem: Problem, n: int, k: int, order: tuple[int, ...]) -> None:
    """Require the shape of the output."""
    wanted = _join_shape(n, problem.output_size, k, order)
    if gradient.shape != wanted:
        raise TensorError(
            f"output_gradient is {_format_shape(gradient.shape)}, must be {_format_shape(wanted)}: the shape of the "
            "output with these sizes, strides, padding and dilation"
        )


def _broadcast_bias(bias: ArraySpec, result: ArraySpec, order: tuple[int, ...]) -> ArraySpec:
    """The bias in the shape of the result."""
    check_same_type(result, bias)
    k = result.shape[order[-1]]
    if bias.shape != (k,):
        raise TensorError(f"bias is {_format_shape(bias.shape) or 'a single value'}, must be a vector of {k} elements")
    repeated = bias.broadcast(tuple(result.shape[place] for place in order))
    return repeated.permute(*(order.index(place) for place in range(len(order))))


def _choose_split(problem: Problem, arch: Arch) -> int:
    """The number of parts of a weight gradient's sum: as many as there are compute units for, if they are long enough.

    Powers of two, so that parts are of equal length more often.
    """
    sizes = compute_gemm_sizes(problem)
    blocks = problem.g * -(-sizes.m // _BLOCK) * -(-sizes.n // _BLOCK)
    parts = min(arch.compute.units // blocks, sizes.k // _LEAST_SUM, _MOST_PARTS)
    return 1 << (parts.bit_length() - 1) if parts else 1


_ViewArray = Callable[[ArraySpec, tuple[int, ...], Problem], ArraySpec]


def _view_images(array: ArraySpec, order: tuple[int, ...], problem: Problem) -> ArraySpec:
    """Input, output or their gradients as (n, …, g, channels of a group)."""
    packed = _view_channels_last(array, order)
    *rest, channels = packed.shape
    return packed.reshape((*rest, problem.g, channels // problem.g))


def _view_filters(array: ArraySpec, order: tuple[int, ...], problem: Problem) -> ArraySpec:
    """Weights or their gradient as (g, filters of a group, …, channels of a group)."""
    packed = _view_channels_last(array, order)
    count, *rest = packed.shape
    return packed.reshape((problem.g, count // problem.g, *rest))


def _view_channels_last(array: ArraySpec, order: tuple[int, ...]) -> ArraySpec:
    """An array in the order of kernels, of a copy if its memory has another order."""
    view = array.permute(*order)
    return view if view.is_packed else array.pack(order).permute(*order)


def _make_plan(
    problem: Problem,
    inputs: tuple[ArraySpec, ...],
    result: ArraySpec,
    view: _ViewArray,
    order: tuple[int, ...],
    addend: ArraySpec | None = None,
) -> ArrayPlan:
    stored = view(result, order, problem)
    whole = result.pack(order) if stored.packed else result
    return ArrayPlan((whole,), (ArrayLaunch(problem, inputs, (stored,)),), addend=addend)


_conv = ArrayFunction(plan_conv, "input", "weight", "bias", required=2)
_conv_input_gradient = ArrayFunction(plan_input_gradient, "output_gradient", "weight", required=2)
_conv_weight_gradient = ArrayFunction(plan_weight_gradient, "input", "output_gradient", required=2)
