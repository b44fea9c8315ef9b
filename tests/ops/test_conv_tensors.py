"""Tensors of convolution problems, their strides and addresses, and padding."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.dispatch.run_tensors import to_tensor_bytes
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.fields import read_config
from tilewright.ops.grouped_conv import OP
from tilewright.ops.grouped_conv.call import CALL
from tilewright.ops.grouped_conv.config import DIRECTIONS, Config
from tilewright.ops.grouped_conv.problem import Problem

EXECUTION = OP.execution
assert EXECUTION is not None
GFX942 = archs.load("gfx942")


def problem(direction: str = "forward", **values: Any) -> Problem:
    usual = {"n": 2, "g": 3, "c": 12, "k": 6, "input_size": (5, 7), "filter_size": (3, 1), "dtype": "fp16"}
    return Problem(direction=direction, **{**usual, **values})


def config(**values: Any) -> Config:
    made = read_config(
        Config,
        {
            **expand_dtype("fp16"), "direction": "forward", "ndim": 2, "block": (64, 64, 32), "waves": (2, 2, 1),
            "mma": (32, 32, 8), "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "cshuffle",
            "vector": (8, 8, 8), **values,
        },
    )  # fmt: skip
    assert isinstance(made, Config)
    return made


def test_order_and_shapes_by_direction() -> None:
    image, weight, output = (2, 5, 7, 3, 4), (3, 2, 3, 1, 4), (2, 3, 7, 3, 2)
    wanted = {
        "forward": [("input", image), ("weight", weight), ("output", output)],
        "backward_data": [("grad_output", output), ("weight", weight), ("grad_input", image)],
        "backward_weight": [("grad_output", output), ("input", image), ("grad_weight", weight)],
    }
    assert set(wanted) == set(DIRECTIONS)
    for direction, pairs in wanted.items():
        made = EXECUTION.tensors(problem(direction))
        assert [(t.name, t.shape) for t in made] == pairs
        assert [t.output for t in made] == [False, False, True]


def test_types_are_those_of_a_b_and_c() -> None:
    made = EXECUTION.tensors(problem("backward_weight", dtype=None, dtype_a="fp16", dtype_b="bf16", dtype_c="fp32"))
    assert [t.dtype for t in made] == ["fp16", "bf16", "fp32"]


@pytest.mark.parametrize("size", [(5,), (5, 7), (2, 5, 7)])
def test_tensors_are_packed(size: tuple[int, ...]) -> None:
    for tensor in EXECUTION.tensors(problem(input_size=size, filter_size=1)):
        steps = np.zeros(tensor.shape, np.int8).strides
        assert tensor.strides == steps and len(tensor.shape) == len(size) + 3


def test_packed_strides_and_any_stride_of_a_single_element_will_do() -> None:
    made = problem(n=1, input_size=(1, 7), filter_size=1)
    strides = {t.name: t.strides for t in EXECUTION.tensors(made)}
    assert EXECUTION.with_strides(made, strides) == made
    odd = (99, 5, *strides["input"][2:])
    assert EXECUTION.with_strides(made, {"input": odd}) == made


@pytest.mark.parametrize(
    ("strides", "what"),
    [
        (
            {"input": (420, 7, 1, 140, 35)},
            r"input of shape \(2, 5, 7, 3, 4\) has strides \(420, 7, 1, 140, 35\), a convolution requires "
            r"\(420, 84, 12, 4, 1\)",
        ),
        ({"output": (1, 1, 1, 1, 1)}, "output of shape"),
        ({"weight": (24, 12)}, "weight has 5 dimensions, 2 strides"),
        ({"bias": (1,)}, "unknown tensor"),
    ],
)
def test_strides_that_a_convolution_cannot_have(strides: dict[str, tuple[int, ...]], what: str) -> None:
    with pytest.raises((InvalidValueError, UnknownValueError), match=what):
        EXECUTION.with_strides(problem(), strides)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_problem_fills_the_struct(direction: str) -> None:
    made = problem(direction, stride=(2, 1), dilation=(1, 3), left_pad=(1, 0), right_pad=(0, 2), k_batch=4)
    args: Any = EXECUTION.arguments(made)
    assert (args.size, args.ndim, args.n, args.g, args.k_batch) == (ctypes.sizeof(CALL.type), 2, 2, 3, 4)
    assert (args.channels_in, args.channels_out) == (12, 6)
    assert [list(x) for x in (args.input_size, args.filter_size)] == [[5, 7, 0], [3, 1, 0]]
    assert [list(x) for x in (args.stride, args.dilation)] == [[2, 1, 0], [1, 3, 0]]
    assert [list(x) for x in (args.left_pad, args.right_pad)] == [[1, 0, 0], [0, 2, 0]]
    assert (args.a, args.workspace, args.workspace_size) == (None, None, 0)
    EXECUTION.point(made)(args, [16, 32, 48])
    assert (args.a, args.b, args.c) == (16, 32, 48)


def test_kernels_take_tensors_as_they_are() -> None:
    assert EXECUTION.preparations(config(), problem()) == ()


def test_a_problem_that_fits_is_not_padded() -> None:
    made = problem(g=1, c=16, k=24)
    assert EXECUTION.padded(config(), made, GFX942) is made


@pytest.mark.parametrize(
    ("direction", "vector", "c", "k"),
    [
        ("forward", (8, 2, 4), 8, 4),
        ("forward", (2, 4, 1), 4, 2),
        ("backward_data", (8, 4, 2), 4, 8),
        ("backward_data", (1, 2, 8), 8, 2),
        ("backward_weight", (8, 4, 2), 4, 8),
        ("backward_weight", (4, 1, 8), 8, 4),
    ],
)
def test_channels_of_a_group_are_padded_to_vectors(direction: str, vector: Any, c: int, k: int) -> None:
    kernel = config(direction=direction, vector=vector)
    made = problem(direction, c=9, k=6)  # 3 and 2 channels in each of 3 groups
    larger = EXECUTION.padded(kernel, made, GFX942)
    assert larger is not None and larger.group_channels == (c, k)
    assert tw.fits(kernel, larger, "gfx942") == []
    kept = ("n", "g", "input_size", "filter_size", "stride", "dilation", "left_pad", "right_pad", "k_batch", "dtype_a")
    assert all(getattr(larger, name) == getattr(made, name) for name in kept)


@pytest.mark.parametrize(
    "problem_values",
    [{"dtype": "bf16"}, {"direction": "backward_data"}, {"k_batch": 2}, {"input_size": 5, "filter_size": 3}],
    ids=str,
)
def test_no_padding_helps_against(problem_values: dict[str, Any]) -> None:
    direction = problem_values.get("direction", "forward")
    values = {name: value for name, value in problem_values.items() if name != "direction"}
    assert EXECUTION.padded(config(), problem(direction, **values), GFX942) is None


def test_no_padding_helps_against_another_filter() -> None:
    assert EXECUTION.padded(config(specialization="filter1x1_pad0"), problem(), GFX942) is None
    assert EXECUTION.padded(config(merge_groups=2), problem(g=3), GFX942) is None


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_groups_stay_together_when_padded(direction: str) -> None:
    """The padded problem on tensors padded as dispatch does it, cut as dispatch does it, is the one asked for."""
    kernel = config(direction=direction, vector=(8, 8, 8))
    made = problem(direction, c=9, k=6, left_pad=1, right_pad=1, stride=(2, 1))
    larger = EXECUTION.padded(kernel, made, GFX942)
    assert larger is not None
    given = EXECUTION.inputs(made, 0, GFX942)
    launched = {t.name: t for t in EXECUTION.tensors(larger)}
    uploaded = {
        name: to_tensor_bytes(array, launched[name]).view(array.dtype).reshape(launched[name].shape)
        for name, array in given.items()
    }
    assert all(uploaded[name].size > array.size for name, array in given.items())
    name = EXECUTION.tensors(made)[-1].name
    found = EXECUTION.reference(larger, uploaded, GFX942)[name]
    wanted = EXECUTION.reference(made, given, GFX942)[name]
    assert np.array_equal(found[tuple(slice(extent) for extent in wanted.shape)], wanted)
    assert np.count_nonzero(found) == np.count_nonzero(wanted)
