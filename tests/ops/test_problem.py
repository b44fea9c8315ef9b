"""GEMM problems and which kernels can compute them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, TilewrightError, UnknownValueError
from tilewright.ops import find_op
from tilewright.ops.rule import find_violations

GEMM = find_op("gemm")


def problem(**values: Any) -> Any:
    return tw.gemm.Problem(**{"m": 256, "n": 256, "k": 256, "dtype": "fp16", "layout": "rcr", **values})


def test_one_dtype_names_them_all() -> None:
    mixed = problem(dtype="fp8*bf8")
    assert (mixed.dtype_a, mixed.dtype_b, mixed.dtype_c) == ("fp8", "bf8", "fp16")
    assert problem(dtype="fp16", dtype_c="fp32").dtype_c == "fp32"


def test_strides_default_to_packed_and_must_hold_a_line() -> None:
    made = problem(m=3, n=5, k=7, layout="crr")
    assert (made.stride_a, made.stride_b, made.stride_c) == (3, 5, 5)
    assert problem(stride_a=300).stride_a == 300
    with pytest.raises(InvalidValueError, match="stride_a is 100, but one line"):
        problem(stride_a=100)


def test_work_and_traffic() -> None:
    made = problem(m=2, n=3, k=4, batch=5)
    assert made.flops == 2 * 2 * 3 * 4 * 5
    assert made.bytes_moved == 5 * 2 * (2 * 4 + 4 * 3 + 2 * 3)


@pytest.mark.parametrize(
    ("values", "error", "what"),
    [
        ({"m": 0}, InvalidValueError, "m is 0"),
        ({"k": 1.5}, InvalidValueError, "must be an integer"),
        ({"layout": "rcc"}, UnknownValueError, "layout"),
        ({"dtype": "fp17"}, UnknownValueError, "fp16"),
        ({"dtype": None}, InvalidValueError, "no dtype_a"),
        ({"elementwise": "Rellu"}, UnknownValueError, "Relu"),
    ],
)
def test_impossible_problems(values: dict[str, Any], error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        problem(**values)


@given(
    st.dictionaries(
        st.sampled_from(["m", "n", "k", "batch", "k_batch", "layout", "dtype", "num_d", "stride_a"]),
        st.none() | st.integers() | st.text() | st.floats(),
    )
)
def test_rubbish_raises_only_our_errors(values: dict[str, Any]) -> None:
    with contextlib.suppress(TilewrightError):
        problem(**values)


def test_a_kernel_says_which_problems_it_cannot_compute() -> None:
    config = GEMM.make_example()
    arch = archs.load("gfx942")

    assert find_violations(GEMM.fit_rules, config, problem(), arch) == []
    codes = {v.code for v in find_violations(GEMM.fit_rules, config, problem(n=100, k=100, dtype="bf16"), arch)}
    assert codes == {"S501", "S503", "S504", "S505"}
