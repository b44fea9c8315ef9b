"""The tolerance of GEMM holds for every way a kernel may compute, and for not much more.

A kernel is simulated in fp32: products summed in random orders, cut off or rounded, stored, split, with the
element-wise operations computed step by step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played import Played
from simulated_sums import F, rounding_of, shares_of, stored

import tilewright as tw
from tilewright import arch as archs
from tilewright.arch.number_formats import compute_spacing, is_representable
from tilewright.arch.spec import Arch
from tilewright.ops import find_op
from tilewright.ops.gemm.config import ELEMENTWISE
from tilewright.ops.gemm.elementwise import UNARY
from tilewright.ops.gemm.reference import compute_reference, compute_tolerance, make_inputs

GEMM = find_op("gemm")
GFX942, GFX90A = archs.load("gfx942"), archs.load("gfx90a")


def subject(elementwise: str = "PassThrough", num_d: int = 0, **values: Any) -> tuple[Any, Any]:
    """A config and a problem that go together."""
    dtype, dtype_c = values.pop("dtype", "fp16"), values.pop("dtype_c", None)
    epilogue = values.pop("epilogue", "cshuffle")
    problem = tw.gemm.Problem(
        **{"m": 9, "n": 11, "k": 40, **values},
        dtype=dtype, dtype_c=dtype_c or "", layout="rcr", elementwise=elementwise, num_d=num_d,
    )  # fmt: skip
    config = tw.gemm.config(**{
        **{name: value for name, value in GEMM.example.items() if not name.startswith("dtype")},
        "dtype_a": problem.dtype_a, "dtype_b": problem.dtype_b, "dtype_c": problem.dtype_c,
        "dtype_acc": "int32" if dtype == "int8" else "fp32",
        "variant": "multi_d" if num_d else "standard", "epilogue": epilogue,
        "elementwise": elementwise, "num_d": num_d, "mma": (32, 32, 8), "split_k": num_d == 0,
    })  # fmt: skip
    return config, problem


def summed(a: Any, b: Any, rng: Any, *, rounding: Any) -> Any:
    """Σ a·b in fp32 in a random order of single steps: chunks that are summed on their own, then together."""
    order = rng.permutation(a.shape[1])
    chunks = np.array_split(order, rng.integers(1, 5))
    parts = []
    for chunk in chunks:
        total = np.zeros((a.shape[0], b.shape[1]), F)
        for x in chunk:
            total = rounding(total.astype(float) + np.outer(a[:, x], b[x, :]))
        parts.append(total)
    total = parts[0]
    for part in parts[1:]:
        total = rounding(total.astype(float) + part)
    return total


def operated(name: str, c: Any, ds: list[Any]) -> Any:
    """The element-wise operation step by step in fp32."""
    x = c.astype(F)
    for d in ds:
        x = x * d.astype(F) if name == "MultiDMultiply" else x + d.astype(F)
    one = F(1)
    steps = {
        "Relu": lambda: np.maximum(x, F(0)),
        "Gelu": lambda: F(0.5) * x * (one + np.vectorize(lambda v: F(math.erf(v)))(F(0.70710678118) * x)),
        "FastGelu": lambda: x * (one / (one + np.exp(x * (F(-2 * F(0.035677)) * x * x + F(-2 * F(0.797885)))))),
        "Silu": lambda: x * (one / (one + np.exp(-x))),
        "Sigmoid": lambda: one / (one + np.exp(-x)),
        "Tanh": lambda: np.tanh(x),
    }
    with np.errstate(over="ignore"):  # exp of a large number is inf, and one over it 0
        return c if name == "PassThrough" else steps[name]() if name in steps else x


def computed(config: Any, problem: Any, given: dict[str, Any], seed: int, arch: Arch) -> Any:
    """C as a kernel might compute it."""
    rng = np.random.default_rng(seed)
    rounding = rounding_of(seed)
    a, b = given["a"].astype(float), given["b"].astype(float)
    if problem.k_batch > 1:
        whole = -(-problem.k // (problem.k_batch * config.mma.k)) * config.mma.k
        total = stored(np.zeros((problem.m, problem.n)), problem.dtype_c, arch)
        for start in rng.permutation(range(0, problem.k, whole)):
            part = summed(a[:, start : start + whole], b[start : start + whole], rng, rounding=rounding)
            total = stored(total.astype(F) + stored(part, problem.dtype_c, arch).astype(F), problem.dtype_c, arch)
        return total
    c = summed(a, b, rng, rounding=rounding)
    if config.epilogue == "cshuffle":
        c = stored(c, problem.dtype_c, arch)
    ds = [given[f"d{i}"] for i in range(problem.num_d)]
    return stored(operated(problem.elementwise, c, ds), problem.dtype_c, arch)


def shares(config: Any, problem: Any, seed: int, arch: Arch = GFX942, given: Any = None) -> Any:
    """Error over tolerance, element by element; 0 where both are 0."""
    given = make_inputs(problem, seed, arch) if given is None else given
    exact = compute_reference(problem, given, arch)
    allowed = compute_tolerance(config, problem, given, exact, arch)["c"].limit
    error = np.abs(computed(config, problem, given, seed, arch).astype(float) - exact["c"])
    return shares_of(error, allowed)


FLOATS = [("fp16", None), ("bf16", None), ("fp16", "fp32"), ("fp8", None), ("bf8", "bf16"), ("fp32", None)]


@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
@given(seed=st.integers(0, 2**32), k=st.integers(1, 90), k_batch=st.integers(1, 3))
@settings(max_examples=12)
def test_sums_in_any_order_stay_within(dtype: str, dtype_c: str | None, seed: int, k: int, k_batch: int) -> None:
    config, problem = subject(dtype=dtype, dtype_c=dtype_c, k=k, k_batch=k_batch)
    assert shares(config, problem, seed).max() <= 1


@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
@pytest.mark.parametrize("k_batch", [1, 3])
def test_a_right_kernel_has_room(dtype: str, dtype_c: str | None, k_batch: int) -> None:
    """Also by the root mean square of its errors."""
    config, problem = subject(dtype=dtype, dtype_c=dtype_c, k_batch=k_batch, m=20, n=20, k=90)
    played = Played(tw.kernel_of(config, "gfx942"), problem, GFX942, seeds=(0, 1, 2, 3))
    assert played.share(lambda given, seed: {"c": computed(config, problem, dict(given), seed, GFX942)}) < 0.7


@pytest.mark.parametrize("elementwise", ELEMENTWISE)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_right_operation_has_room(elementwise: str, dtype: str) -> None:
    config, problem = subject(elementwise, 2, dtype=dtype, m=20, n=20)
    played = Played(tw.kernel_of(config, "gfx942"), problem, GFX942, seeds=(0, 1, 2, 3))
    assert played.share(lambda given, seed: {"c": computed(config, problem, dict(given), seed, GFX942)}) < 0.7


@pytest.mark.parametrize("elementwise", ELEMENTWISE)
@pytest.mark.parametrize("epilogue", ["cshuffle", "default"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_element_wise_operations_stay_within(elementwise: str, epilogue: str, dtype: str) -> None:
    config, problem = subject(elementwise, 2, dtype=dtype, epilogue=epilogue)
    for seed in range(6):
        assert shares(config, problem, seed).max() <= 1


@pytest.mark.parametrize("elementwise", [name for name in ELEMENTWISE if name != "PassThrough"])
def test_operations_on_integers_stay_within(elementwise: str) -> None:
    config, problem = subject(elementwise, 1, dtype="int8")
    given = make_inputs(problem, 3, GFX942)
    exact = compute_reference(problem, given, GFX942)
    allowed = compute_tolerance(config, problem, given, exact, GFX942)["c"].limit
    product = given["a"].astype(np.int32) @ given["b"].astype(np.int32)
    found = np.trunc(operated(elementwise, product, [given["d0"]]))
    assert np.all(np.abs(found - exact["c"]) <= allowed)


@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
@pytest.mark.parametrize("k_batch", [1, 3])
def test_whole_numbers_are_exact_where_c_holds_them(dtype: str, dtype_c: str | None, k_batch: int) -> None:
    config, problem = subject(dtype=dtype, dtype_c=dtype_c, k_batch=k_batch)
    given = make_inputs(problem, 0, GFX942)
    exact = compute_reference(problem, given, GFX942)
    allowed = compute_tolerance(config, problem, given, exact, GFX942)["c"].limit
    assert np.mean(allowed == 0) > 0.8
    assert is_representable(exact["c"][allowed == 0], problem.dtype_c, GFX942).all()
    assert shares(config, problem, 0).max() <= 1


def test_integers_are_exact() -> None:
    config, problem = subject(dtype="int8", k_batch=2)
    given = make_inputs(problem, 5, GFX942)
    exact = compute_reference(problem, given, GFX942)
    assert not compute_tolerance(config, problem, given, exact, GFX942)["c"].limit.any()


@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
@pytest.mark.parametrize("k_batch", [1, 2])
def test_the_bound_is_not_much_wider_than_needed(dtype: str, dtype_c: str | None, k_batch: int) -> None:
    """A few ulps of C at the size of the sum, or, for fp32, what k roundings of it can cost."""
    config, problem = subject(dtype=dtype, dtype_c=dtype_c, k=64, k_batch=k_batch)
    given = make_inputs(problem, 5, GFX942)
    exact = compute_reference(problem, given, GFX942)
    allowed = compute_tolerance(config, problem, given, exact, GFX942)["c"].limit
    magnitude = np.abs(given["a"].astype(float)) @ np.abs(given["b"].astype(float))
    ulps = compute_spacing(magnitude, problem.dtype_c, GFX942)
    most = (1 + k_batch) * (1.0 if problem.dtype_c == "bf16" else 0.5) * ulps + 65 * 2.0**-23 * magnitude
    assert np.all(allowed <= most)


def test_a_missing_term_is_noticed() -> None:
    for dtype, dtype_c in FLOATS:
        config, problem = subject(dtype=dtype, dtype_c=dtype_c)
        given = make_inputs(problem, 5, GFX942)
        exact = compute_reference(problem, given, GFX942)
        allowed = compute_tolerance(config, problem, given, exact, GFX942)["c"].limit
        without = given["a"].astype(float)[:, 1:] @ given["b"].astype(float)[1:]
        assert np.mean(np.abs(without - exact["c"]) > allowed) > 0.9


def test_four_times_the_bound_is_refused() -> None:
    config, problem = subject()
    given = make_inputs(problem, 5, GFX942)
    exact = compute_reference(problem, given, GFX942)["c"]
    allowed = compute_tolerance(config, problem, given, {"c": exact}, GFX942)["c"].limit
    off = (exact + 4 * allowed).astype(np.float16).astype(float)
    assert np.all(np.abs(off - exact) > allowed)


def test_gfx90a_may_take_subnormal_inputs_for_zero() -> None:
    config, problem = subject(dtype_c="fp32")
    given = make_inputs(problem, 5, GFX90A)
    given["a"] = (given["a"].astype(float) * 2.0**-15).astype(np.float16)
    flushed = {**given, "a": np.where(np.abs(given["a"]) < 2.0**-14, np.float16(0), given["a"])}
    exact = compute_reference(problem, given, GFX90A)["c"]
    found = compute_reference(problem, flushed, GFX90A)["c"]
    off = np.abs(found - exact)
    assert np.all(off <= compute_tolerance(config, problem, given, {"c": exact}, GFX90A)["c"].limit)
    assert np.any(off > compute_tolerance(config, problem, given, {"c": exact}, GFX942)["c"].limit)


@pytest.mark.parametrize("name", UNARY)
def test_slopes_are_upper_bounds_and_close(name: str) -> None:
    x = np.linspace(-12, 12, 400_001)
    slope = np.abs(np.diff(UNARY[name].apply(x)) / np.diff(x)).max()
    assert UNARY[name].slope * 0.98 < slope <= UNARY[name].slope * (1 + 1e-9)


@pytest.mark.parametrize("name", UNARY)
def test_own_errors_cover_single_precision(name: str) -> None:
    x = np.concatenate([np.linspace(-30, 30, 20_001), np.geomspace(1e-8, 1e3, 500), -np.geomspace(1e-8, 1e3, 500)])
    x = x.astype(F)
    exact = UNARY[name].apply(x.astype(float))
    found = operated(name, x, []).astype(float)
    allowed = UNARY[name].own_error(x.astype(float), exact)
    assert np.all(np.abs(found - exact) <= allowed)
