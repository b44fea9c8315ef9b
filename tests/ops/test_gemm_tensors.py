"""Tensors of GEMM problems, their strides, and padding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.ops import find_op
from tilewright.ops.execution import Execution, Tensor
from tilewright.ops.gemm.config import LAYOUTS

GEMM = find_op("gemm")
GFX942 = archs.load("gfx942")
EXECUTION = GEMM.execution
assert isinstance(EXECUTION, Execution)


def problem(**values: Any) -> Any:
    return tw.gemm.Problem(**{"m": 3, "n": 5, "k": 7, "dtype": "fp16", "layout": "rcr", **values})


def by_name(made: Any) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in EXECUTION.tensors(made)}


def test_inputs_come_first_and_c_last() -> None:
    made = EXECUTION.tensors(problem(num_d=2, elementwise="MultiDAdd"))
    assert [tensor.name for tensor in made] == ["a", "b", "d0", "d1", "c"]
    assert [tensor.name for tensor in made if tensor.output] == ["c"]


def test_strides_follow_the_layout() -> None:
    rcr, crr = by_name(problem()), by_name(problem(layout="crr", stride_a=8, stride_c=6))
    assert (rcr["a"].strides, rcr["b"].strides, rcr["c"].strides) == ((7, 1), (1, 7), (5, 1))
    assert (crr["a"].strides, crr["b"].strides, crr["c"].strides) == ((1, 8), (5, 1), (6, 1))


def test_every_d_is_packed_whatever_the_stride_of_c_is() -> None:
    made = by_name(problem(num_d=1, elementwise="MultiDAdd", stride_c=9))
    assert (made["d0"].shape, made["d0"].strides, made["c"].strides) == ((3, 5), (5, 1), (9, 1))


def test_a_batch_has_a_leading_dimension() -> None:
    made = by_name(problem(batch=4, stride_a=8, stride_b=9))
    assert (made["a"].shape, made["a"].strides) == ((4, 3, 7), (3 * 8, 8, 1))
    assert (made["b"].shape, made["b"].strides) == ((4, 7, 5), (5 * 9, 1, 9))
    assert (made["c"].shape, made["c"].strides) == ((4, 3, 5), (3 * 5, 5, 1))


@given(
    layout=st.sampled_from(LAYOUTS),
    sizes=st.tuples(*[st.integers(1, 9)] * 3),
    gaps=st.tuples(*[st.integers(0, 5)] * 3),
    batch=st.integers(1, 3),
)
def test_the_strides_of_real_arrays_give_the_problem_back(
    layout: str, sizes: tuple[int, ...], gaps: tuple[int, ...], batch: int
) -> None:
    m, n, k = sizes
    packed = problem(m=m, n=n, k=k, layout=layout, batch=batch)
    wide = {f"stride_{x}": getattr(packed, f"stride_{x}") + gap for x, gap in zip("abc", gaps, strict=True)}
    wanted = dataclasses.replace(packed, **wide)
    real = {}
    for tensor in EXECUTION.tensors(wanted):
        reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
        array = np.lib.stride_tricks.as_strided(
            np.zeros(reach + 1, np.float16), tensor.shape, tuple(2 * stride for stride in tensor.strides)
        )
        real[tensor.name] = tuple(stride // 2 for stride in array.strides)
    found = EXECUTION.with_strides(packed, real)
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    for x, letter in zip("abc", layout, strict=True):
        lines = shapes[x][0 if letter == "r" else 1]
        source = wanted if lines > 1 or batch > 1 else packed  # the stride of a single line is never used
        assert getattr(found, f"stride_{x}") == getattr(source, f"stride_{x}")


@pytest.mark.parametrize(
    ("strides", "what"),
    [
        ({"a": (1, 3)}, r"a of shape \(3, 7\) has strides \(1, 3\), the problem's layout requires \(7, 1\)"),
        ({"b": (5, 1)}, "b of shape"),
        ({"c": (4, 1)}, "c of shape"),
        ({"d0": (6, 1)}, "d0 of shape"),
        ({"a": (7,)}, "a has 2 dimensions, 1 strides"),
        ({"e": (7, 1)}, "unknown tensor"),
    ],
)
def test_strides_that_the_layout_cannot_have(strides: dict[str, tuple[int, ...]], what: str) -> None:
    made = problem(num_d=1, elementwise="MultiDAdd")
    with pytest.raises((InvalidValueError, UnknownValueError), match=what):
        EXECUTION.with_strides(made, strides)


def test_a_gap_between_matrices_of_a_batch_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="a of shape"):
        EXECUTION.with_strides(problem(batch=2), {"a": (30, 7, 1)})


def test_addresses_go_where_the_kernel_looks_for_them() -> None:
    made = problem(num_d=2, elementwise="MultiDAdd")
    args = EXECUTION.arguments(made)
    EXECUTION.point(made)(args, [16, 32, 48, 64, 80])
    assert (args.a, args.b, args.c, list(args.d[:3])) == (16, 32, 80, [48, 64, None])  # type: ignore[attr-defined]


def config(**values: Any) -> Any:
    fields = {**GEMM.example, "block": (64, 64, 32), **values}
    return GEMM.make_config(**fields)


def test_a_problem_that_fits_is_not_padded() -> None:
    made = problem(m=3, n=64, k=64)
    assert EXECUTION.padded(config(), made, GFX942) is made


@given(
    sizes=st.tuples(*[st.integers(1, 200)] * 3),
    flags=st.tuples(*[st.booleans()] * 3),
    layout=st.sampled_from(LAYOUTS),
    k_batch=st.integers(1, 3),
)
def test_what_is_padded_fits_and_is_no_smaller(
    sizes: tuple[int, int, int], flags: tuple[bool, bool, bool], layout: str, k_batch: int
) -> None:
    m, n, k = sizes
    pads = dict(zip(("pad_m", "pad_n", "pad_k"), flags, strict=True))
    kernel = config(layout=layout, split_k=True, **pads)
    asked = problem(m=m, n=n, k=k, layout=layout, k_batch=k_batch)
    larger = EXECUTION.padded(kernel, asked, GFX942)
    assert larger is not None
    assert tw.fits(kernel, larger, "gfx942") == []
    assert larger.m - m in range(64) and larger.n - n in range(64) and larger.k - k in range(32 * k_batch)


def test_padding_stops_at_vectors_where_the_kernel_pads_itself() -> None:
    kernel = config(pad_m=True, pad_n=True, pad_k=True)
    larger = EXECUTION.padded(kernel, problem(m=3, n=5, k=7), GFX942)
    assert (larger.m, larger.n, larger.k) == (3, 8, 8)


def test_no_padding_helps_against_other_types() -> None:
    assert EXECUTION.padded(config(), problem(dtype="bf16"), GFX942) is None
    assert EXECUTION.padded(config(), problem(k_batch=2), GFX942) is None
