"""The launches that `conv` and its gradients plan from shapes and strides, without a device."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, TensorError, UnsupportedError
from tilewright.ops.array_plan import ArrayPlan, ArraySpec
from tilewright.ops.grouped_conv import OP, Problem
from tilewright.ops.grouped_conv.functions import (
    ConvOptions,
    plan_conv,
    plan_input_gradient,
    plan_weight_gradient,
)
from tilewright.ops.grouped_conv.tensors import list_tensors
from tilewright.ops.strides import packed_strides

GPU = archs.load("gfx942")
LAST = "channels_last"


def spec(
    place: int, name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, dtype: str = "fp16"
) -> ArraySpec:
    return ArraySpec(place, name, dtype, shape, packed_strides(shape) if strides is None else strides)


def options(**changes: Any) -> ConvOptions:
    values = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "layout": "channels_first", **changes}
    return ConvOptions.create(**values)


def plan_forward(
    shape: tuple[int, ...], filters: tuple[int, ...], bias: ArraySpec | None = None, **changes: Any
) -> ArrayPlan:
    return plan_conv(GPU, spec(0, "input", shape), spec(1, "weight", filters), bias, None, options(**changes))


def list_elements(array: ArraySpec) -> Any:
    """The places of all elements of a view, in its shape."""
    places = np.full(array.shape, array.offset)
    for axis, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        steps = np.arange(extent) * stride
        places += steps.reshape([-1 if axis == each else 1 for each in range(len(array.shape))])
    return places


def check_tensors(plan: ArrayPlan) -> None:
    """Every launch has the shapes and strides that its problem requires, and results are as large as its output."""
    for launch in plan.launches:
        wanted = list_tensors(launch.problem)
        given = (*launch.inputs, *launch.outputs)
        assert [tensor.shape for tensor in wanted] == [array.shape for array in given]
        assert [tensor.strides for tensor in wanted] == [array.strides for array in given]
        assert [tensor.dtype for tensor in wanted] == [array.type for array in given]
    assert plan.launches[0].outputs[0].size == plan.results[0].size


@pytest.mark.parametrize(
    "shape, filters, changes, output",
    [
        ((2, 8, 20), (16, 8, 3), {}, (2, 16, 18)),
        ((2, 8, 9, 12), (16, 8, 3, 3), {"stride": 2, "padding": 1}, (2, 16, 5, 6)),
        ((2, 8, 9, 12), (16, 8, 3, 3), {"stride": (2, 1), "padding": (1, 0), "dilation": [1, 2]}, (2, 16, 5, 8)),
        ((2, 8, 9, 12), (16, 4, 3, 3), {"groups": 2, "padding": "same"}, (2, 16, 9, 12)),
        ((1, 8, 5, 6, 7), (16, 8, 3, 2, 1), {"padding": "valid"}, (1, 16, 3, 5, 7)),
        ((2, 9, 12, 8), (16, 3, 3, 4), {"groups": 2, "padding": 1, "layout": LAST}, (2, 9, 12, 16)),
        ((2, 6, 4, 4), (6, 1, 3, 3), {"groups": 6, "padding": 1}, (2, 6, 4, 4)),
        ((1, 1, 1, 1), (1, 1, 1, 1), {}, (1, 1, 1, 1)),
    ],
)
def test_shapes(
    shape: tuple[int, ...], filters: tuple[int, ...], changes: dict[str, Any], output: tuple[int, ...]
) -> None:
    plan = plan_forward(shape, filters, **changes)
    assert plan.results[0].shape == output
    assert len(plan.launches) == 1
    check_tensors(plan)


def test_channels_first_is_copied_and_channels_last_is_not() -> None:
    first = plan_forward((2, 8, 9, 12), (16, 8, 3, 3), padding=1).launches[0]
    assert all(array.packed and array.order == (0, 2, 3, 1) for array in first.inputs)
    assert not first.outputs[0].packed
    last = plan_forward((2, 9, 12, 8), (16, 3, 3, 8), padding=1, layout=LAST).launches[0]
    assert not any(array.packed for array in last.inputs)
    assert last.problem == first.problem


def test_memory_format_of_torch_is_not_copied() -> None:
    torch = pytest.importorskip("torch")
    images = torch.empty(2, 8, 9, 12).to(memory_format=torch.channels_last)
    filters = torch.empty(16, 8, 3, 3).to(memory_format=torch.channels_last)
    given = [
        spec(place, name, tuple(each.shape), each.stride())
        for place, (name, each) in enumerate({"input": images, "weight": filters}.items())
    ]
    plan = plan_conv(GPU, *given, None, None, options())
    check_tensors(plan)
    assert not any(array.packed for array in plan.launches[0].inputs)
    volumes = torch.empty(2, 8, 3, 4, 5).to(memory_format=torch.channels_last_3d)
    weights = torch.empty(4, 8, 1, 1, 1)
    given = [
        spec(0, "input", tuple(volumes.shape), volumes.stride()),
        spec(1, "weight", tuple(weights.shape), weights.stride()),
    ]
    assert not any(array.packed for array in plan_conv(GPU, *given, None, None, options()).launches[0].inputs)


@pytest.mark.parametrize("layout, shape", [("channels_first", (2, 8, 5, 6)), (LAST, (2, 5, 6, 8))])
def test_views_have_the_elements_of_their_array(layout: str, shape: tuple[int, ...]) -> None:
    weight = spec(1, "weight", (12, 4, 3, 3) if layout != LAST else (12, 3, 3, 4))
    plan = plan_conv(GPU, spec(0, "input", shape), weight, None, None, options(groups=2, layout=layout))
    images, filters = plan.launches[0].inputs
    order = (0, 2, 3, 1) if layout != LAST else (0, 1, 2, 3)
    copied = spec(0, "input", shape).pack(order)
    expected = list_elements(copied).transpose(order).reshape(images.shape)
    np.testing.assert_array_equal(list_elements(images), expected)
    expected = list_elements(weight.pack(order)).transpose(order).reshape(filters.shape)
    np.testing.assert_array_equal(list_elements(filters), expected)
    stored = list_elements(plan.results[0]).transpose(order).reshape(plan.launches[0].outputs[0].shape)
    np.testing.assert_array_equal(list_elements(plan.launches[0].outputs[0]), stored)
    assert len(np.unique(stored)) == plan.results[0].size


def test_slices_and_broadcast_arrays_are_copied() -> None:
    weight = spec(1, "weight", (16, 3, 3, 8))
    every_other = spec(0, "input", (2, 9, 12, 8), (4 * 864, 96, 8, 1))
    repeated = spec(0, "input", (2, 9, 12, 8), (0, 96, 8, 1))
    backwards = spec(0, "input", (2, 9, 12, 8), (864, 96, 8, -1))
    for array in (every_other, repeated, backwards):
        plan = plan_conv(GPU, array, weight, None, None, options(layout=LAST))
        assert plan.launches[0].inputs[0].packed
        check_tensors(plan)


def test_strides_of_single_elements_are_ignored() -> None:
    one_image = spec(0, "input", (1, 9, 12, 8), (7, 96, 8, 1))
    plan = plan_conv(GPU, one_image, spec(1, "weight", (16, 3, 3, 8)), None, None, options(layout=LAST))
    assert not plan.launches[0].inputs[0].packed
    check_tensors(plan)


def test_same_padding_has_one_more_zero_after_the_input() -> None:
    problem = plan_forward((1, 8, 9, 12), (16, 8, 4, 3), padding="same", dilation=(1, 2)).launches[0].problem
    assert (problem.left_pad, problem.right_pad) == ((1, 2), (2, 2))
    assert problem.output_size == problem.input_size


def test_result_in_memory() -> None:
    assert plan_forward((2, 8, 4, 5), (16, 8, 1, 1)).results[0].strides == (320, 1, 80, 16)
    assert plan_forward((2, 4, 5, 8), (16, 1, 1, 8), layout=LAST).results[0].strides == (320, 80, 16, 1)


def test_out_is_written_directly_or_by_a_copy() -> None:
    arrays = spec(0, "input", (2, 8, 4, 5)), spec(1, "weight", (16, 8, 1, 1))
    in_order = spec(3, "out", (2, 16, 4, 5), (320, 1, 80, 16))
    plan = plan_conv(GPU, *arrays, None, in_order, options())
    assert plan.results == (in_order,)
    other = spec(3, "out", (2, 16, 4, 5))
    plan = plan_conv(GPU, *arrays, None, other, options())
    assert plan.results[0].packed
    assert plan.results[0].strides == in_order.strides
    check_tensors(plan)
    with pytest.raises(TensorError, match="out is 2×16×4×4 of float16, must be 2×16×4×5 of float16"):
        plan_conv(GPU, *arrays, None, spec(3, "out", (2, 16, 4, 4)), options())


@pytest.mark.parametrize("layout", ["channels_first", LAST])
def test_bias_is_added_to_every_position(layout: str) -> None:
    shape, filters = ((2, 8, 4, 5), (16, 8, 1, 1)) if layout != LAST else ((2, 4, 5, 8), (16, 1, 1, 8))
    plan = plan_forward(shape, filters, spec(2, "bias", (16,), (3,)), layout=layout)
    assert plan.addend is not None
    assert plan.addend.shape == plan.results[0].shape
    channels = np.arange(16) * 3
    expected = channels[None, :, None, None] if layout != LAST else channels
    np.testing.assert_array_equal(list_elements(plan.addend), np.broadcast_to(expected, plan.results[0].shape))


def test_empty_batch() -> None:
    plan = plan_forward((0, 8, 9, 12), (16, 8, 3, 3), stride=2)
    assert (plan.results[0].shape, plan.launches, plan.zeros) == ((0, 16, 4, 5), (), False)
    gradient, weight = spec(0, "output_gradient", (0, 16, 4, 5)), spec(1, "weight", (16, 8, 3, 3))
    plan = plan_input_gradient(GPU, gradient, weight, None, (9, 12), options(stride=2))
    assert (plan.results[0].shape, plan.launches) == ((0, 8, 9, 12), ())
    images, gradient = spec(0, "input", (0, 8, 9, 12)), spec(1, "output_gradient", (0, 16, 4, 5))
    plan = plan_weight_gradient(GPU, images, gradient, None, 3, None, options(stride=2))
    assert (plan.results[0].shape, plan.launches, plan.zeros) == ((16, 8, 3, 3), (), True)


def test_gradients_have_the_problem_of_the_convolution() -> None:
    changes = {"stride": 2, "padding": (1, 0), "dilation": (1, 2), "groups": 2}
    forward = plan_forward((2, 8, 9, 12), (16, 4, 3, 3), **changes).launches[0].problem
    gradient = (2, 16, *forward.output_size)
    data = plan_input_gradient(
        GPU, spec(0, "output_gradient", gradient), spec(1, "weight", (16, 4, 3, 3)), None, (9, 12), options(**changes)
    )
    weight = plan_weight_gradient(
        GPU, spec(0, "input", (2, 8, 9, 12)), spec(1, "output_gradient", gradient), None, 3, None, options(**changes)
    )
    for plan, direction, shape in ((data, "backward_data", (2, 8, 9, 12)), (weight, "backward_weight", (16, 4, 3, 3))):
        check_tensors(plan)
        assert plan.results[0].shape == shape
        problem = plan.launches[0].problem
        assert problem.direction == direction
        assert dataclasses.replace(problem, direction="forward") == forward


def make_weight_gradient(n: int, size: int, channels: int, split: int | None) -> Problem:
    images = spec(0, "input", (n, size, size, channels))
    plan = plan_weight_gradient(
        GPU, images, spec(1, "output_gradient", images.shape), None, 3, split, options(padding=1, layout=LAST)
    )
    problem = plan.launches[0].problem
    assert isinstance(problem, Problem)
    return problem


def test_long_sums_are_split() -> None:
    assert make_weight_gradient(1, 16, 64, None).k_batch == 1  # 256 positions
    assert make_weight_gradient(32, 56, 64, None).k_batch == 32  # 5 blocks on 304 compute units, 100,352 positions
    assert make_weight_gradient(32, 56, 1024, None).k_batch == 1  # 576 blocks
    assert make_weight_gradient(32, 56, 64, 1).k_batch == 1
    assert make_weight_gradient(1, 16, 64, 3).k_batch == 3
    with pytest.raises(InvalidValueError, match="split is 0"):
        make_weight_gradient(1, 16, 64, 0)


IMAGE, FILTER = (2, 8, 9, 12), (16, 8, 3, 3)


@pytest.mark.parametrize(
    "shape, filters, changes, message",
    [
        ((8, 9, 12), FILTER, {}, "input is 8×9×12, must have 4 dimensions"),
        (IMAGE, (16, 8), {}, r"weight is 16×8: a convolution needs arrays of rank 3 \(1-D\), 4 \(2-D\), 5 \(3-D\)"),
        (IMAGE, (16, 4, 3, 3), {}, "input has 8 channels and weight 4: with 1 group, weight must have 8"),
        (IMAGE, (16, 8, 3, 3), {"groups": 2}, "with 2 groups, weight must have 4"),
        (IMAGE, (16, 2, 3, 3), {"groups": 3}, "8 input channels cannot be divided among 3 groups"),
        (IMAGE, (15, 4, 3, 3), {"groups": 2}, "15 output channels cannot be divided among 2 groups"),
    ],
)
def test_wrong_shapes(shape: tuple[int, ...], filters: tuple[int, ...], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TensorError, match=message):
        plan_forward(shape, filters, **changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"layout": "nhwc"}, "unknown layout 'nhwc'.*channels_first, channels_last"),
        ({"padding": "full"}, "unknown padding 'full'.*same, valid"),
        ({"padding": "same", "stride": 2}, "padding is 'same' and stride is"),
        ({"padding": -1}, "padding is -1, must be at least 0"),
        ({"padding": (1, 1, 1)}, "padding needs one number, or 2 of them"),
        ({"stride": 0}, "stride is 0, must be at least 1"),
        ({"stride": None}, "stride must be an integer"),
        ({"dilation": (1, 2.5)}, "dilation must be an integer"),
        ({"groups": 0}, "groups is 0, must be at least 1"),
        ({"dilation": 6}, "the filter reaches over 13 of the 9 padded input elements of dimension 0"),
    ],
)
def test_wrong_options(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        plan_forward(IMAGE, FILTER, **changes)


def test_wrong_types() -> None:
    images, filters = spec(0, "input", IMAGE), spec(1, "weight", FILTER, dtype="bf16")
    with pytest.raises(TensorError, match="input is float16, weight is bfloat16"):
        plan_conv(GPU, images, filters, None, None, options())
    with pytest.raises(TensorError, match="out is float16, bias is float32"):
        plan_forward(IMAGE, FILTER, spec(2, "bias", (16,), dtype="fp32"))
    with pytest.raises(TensorError, match="bias is 1×16, must be a vector of 16 elements"):
        plan_forward(IMAGE, FILTER, spec(2, "bias", (1, 16)))
    doubles = [spec(0, "input", IMAGE, dtype="fp64"), spec(1, "weight", FILTER, dtype="fp64")]
    with pytest.raises(InvalidValueError, match="no matrix instruction multiplies fp64 by fp64"):
        plan_conv(GPU, *doubles, None, None, options())


def test_wrong_gradients() -> None:
    weight = spec(1, "weight", FILTER)
    with pytest.raises(TensorError, match="output_gradient is 2×16×7×9, must be 2×16×7×10"):
        plan_input_gradient(GPU, spec(0, "output_gradient", (2, 16, 7, 9)), weight, None, (9, 12), options())
    with pytest.raises(TensorError, match="output_gradient has 8 channels, must have 16"):
        plan_input_gradient(GPU, spec(0, "output_gradient", (2, 8, 7, 10)), weight, None, (9, 12), options())
    with pytest.raises(InvalidValueError, match="input_size needs one number, or 2 of them"):
        plan_input_gradient(GPU, spec(0, "output_gradient", (2, 16, 7, 10)), weight, None, (9, 12, 3), options())
    with pytest.raises(TensorError, match="output_gradient is 3×16×7×10, must be 2×16×7×10"):
        plan_weight_gradient(
            GPU, spec(0, "input", IMAGE), spec(1, "output_gradient", (3, 16, 7, 10)), None, 3, None, options()
        )


# Channels of input and output, and groups: whole vectors, a first layer, odd numbers, and one channel in each group.
CHANNELS = ((64, 128, 1), (3, 64, 1), (5, 7, 1), (6, 6, 6), (96, 48, 3))


# With fp32 in all directions, in one, and in none.
PLANNED_IN_CI = ("gfx942", "gfx950", "gfx1201")


@functools.cache
def list_gpus_with_fp32(direction: str) -> tuple[str, ...]:
    """CDNA 4 has no transposing LDS reads for fp32 (rule A103), and RDNA no matrix instruction."""
    return ("gfx908", "gfx90a", "gfx942", *(("gfx950",) if direction == "forward" else ()))


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
@pytest.mark.parametrize(
    "gpu",
    [pytest.param(name, marks=() if name in PLANNED_IN_CI else pytest.mark.deep) for name in archs.arch_names()],
)
def test_portfolio_has_a_kernel_for_every_problem(gpu: str, direction: str) -> None:
    arch = archs.load(gpu)
    for ndim, dtype in ((1, "bf16"), (2, "fp16"), (3, "fp32")):
        for c, k, g in CHANNELS:
            for parts in (1, 4) if direction == "backward_weight" else (1,):
                problem = Problem(
                    direction=direction,
                    **{"n": 2, "c": c, "k": k, "g": g, "k_batch": parts, "dtype": dtype},
                    **{"input_size": (20,) * ndim, "filter_size": 3, "pad": 1},
                )
                if dtype == "fp32" and gpu not in list_gpus_with_fp32(direction):
                    assert OP.portfolio is not None
                    assert OP.portfolio.list_kernels(problem, arch) == ()
                    assert "0 of" in OP.portfolio.explain(problem, arch)
                else:
                    assert OP.portfolio is not None
                    kernels = tw.Registry(OP.portfolio.list_kernels(problem, arch))
                    assert kernels.select(problem, gpu, built=False, pad=True).choices


def test_portfolio_names_missing_types() -> None:
    problem = Problem(direction="backward_data", n=2, c=64, k=64, input_size=(20, 20), filter_size=3, dtype="int8")
    with pytest.raises(UnsupportedError, match="no kernels with direction backward_data, dtype_a int8"):
        tw.warm([problem], "gfx942")


def test_portfolio_has_kernels_of_one_direction() -> None:
    problem = Problem(direction="backward_weight", n=2, c=64, k=64, input_size=20, filter_size=3, dtype="fp16")
    assert OP.portfolio is not None
    kernels = OP.portfolio.list_kernels(problem, GPU)
    assert {(kernel.config.direction, kernel.config.ndim, kernel.config.split_k) for kernel in kernels} == {
        ("backward_weight", 1, False)
    }
