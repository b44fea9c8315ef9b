"""A kernel that computes with fewer bits than its types have is called wrong at every size, and a right one is not.

Kernels are played in NumPy and judged by the function that `verify` uses, for both of its inputs. The sizes are those
of benchmarks: errors that are allowed grow with the number of terms, those of a lost bit do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from played import Played, with_bits
from simulated_attention import Simulated
from simulated_sums import F, cut_off, stored

import tilewright as tw
from tilewright import arch as archs
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.fields import read_config
from tilewright.ops.fmha.config import Config as FmhaConfig
from tilewright.ops.fmha.problem import Problem as FmhaProblem
from tilewright.ops.grouped_conv.config import BACKWARD_WEIGHT, DIRECTIONS, Config
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.reference import compute_convolution
from tilewright.ops.grouped_conv.tensors import list_tensors

GFX942 = archs.load("gfx942")
MOST = 0.7  # of a limit, for a right kernel: nothing may depend on the last bit
SIZES = [2**i for i in range(6, 17)]


def at(*usual: int) -> list[Any]:
    """All sizes take minutes; these take seconds."""
    return [pytest.param(k, marks=() if k in usual else pytest.mark.deep) for k in SIZES]


# Computed in fewer bits: bf16 has 8, tf32 11, e4m3 4.
LOST = [("fp32", 8), ("fp32", 11), ("fp16", 8), ("fp16", 4), ("bf16", 4), ("bf16", 7)]


def gemm(dtype: str, k: int, **values: Any) -> Played:
    mma = (16, 16, 4) if dtype == "fp32" else (16, 16, 16)
    config = tw.gemm.config(
        dtype=dtype, variant="standard", layout="rcr", block=(64, 64, 32), waves=(2, 2, 1), mma=mma,
        pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
    )  # fmt: skip
    size = 24 if k <= 8192 else 18
    problem = tw.gemm.Problem(**{"m": size, "n": size, "k": k, "dtype": dtype, "layout": "rcr", **values})
    return Played(tw.kernel_of(config, "gfx942"), problem, GFX942)


def product_of(change: Callable[[Any, Any], Any], dtype_c: str) -> Callable[[Mapping[str, Any], int], dict[str, Any]]:
    """A GEMM that computes so, and then stores as kernels do."""

    def compute(given: Mapping[str, Any], seed: int) -> dict[str, Any]:
        a, b = (given[name].astype(np.float64) for name in ("a", "b"))
        return {"c": stored(change(a, b), dtype_c, GFX942)}

    return compute


def exactly(a: Any, b: Any) -> Any:
    return a @ b


@pytest.mark.parametrize("k", at(64, 2048, 65_536))
@pytest.mark.parametrize(("dtype", "bits"), LOST)
def test_a_gemm_of_coarser_operands_is_refused(dtype: str, bits: int, k: int) -> None:
    played = gemm(dtype, k)
    assert played.share(product_of(exactly, dtype)) < MOST
    both, left, right = (
        lambda a, b: with_bits(a, bits) @ with_bits(b, bits),
        lambda a, b: with_bits(a, bits) @ b,
        lambda a, b: a @ with_bits(b, bits),
    )
    for lost in (both, left, right):
        assert played.refuses(product_of(lost, dtype))


@pytest.mark.parametrize("sizes", [(1, 24), (24, 1), (2, 2)], ids=str)
def test_few_rows_or_columns_show_lost_bits(sizes: tuple[int, int]) -> None:
    """One row or one column has wide numbers of both operands, too."""
    for dtype, bits in LOST[:4]:
        played = gemm(dtype, 8192, m=sizes[0], n=sizes[1])
        assert played.refuses(product_of(lambda a, b, bits=bits: with_bits(a, bits) @ b, dtype))
        assert played.refuses(product_of(lambda a, b, bits=bits: a @ with_bits(b, bits), dtype))


def in_blocks(a: Any, b: Any, size: int, rounding: Callable[[Any], Any]) -> Any:
    """Sums of `size` products each, exact, that are added up in a type."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for first in range(0, a.shape[1], size):
        part = a[:, first : first + size] @ b[first : first + size]
        total = rounding(total + part).astype(np.float64)
    return total


def towards_minus_infinity(values: Any) -> Any:
    near = values.astype(F)
    return np.where(near > values, np.nextafter(near, F(-np.inf)), near)


def to_fp16(values: Any) -> Any:
    return with_bits(values, 11)


def to_bf16(values: Any) -> Any:
    return with_bits(values, 8)


@pytest.mark.parametrize("k", at(64, 2048))
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_a_narrow_accumulator_is_refused(dtype: str, k: int) -> None:
    """Partial sums of 32 products each, added up in a type of 11 or 8 bits, where sums are far below its largest."""
    played = gemm(dtype, k)
    for rounding in (to_fp16, to_bf16) if dtype != "bf16" else (to_bf16,):
        assert played.refuses(product_of(lambda a, b, to=rounding: in_blocks(a, b, 32, to), dtype))


@pytest.mark.parametrize("k", at(64, 2048))
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_a_term_too_few_or_too_many_is_refused(dtype: str, k: int) -> None:
    played = gemm(dtype, k, m=64, n=64) if dtype == "bf16" else gemm(dtype, k)  # of bf16's whole numbers most are 0
    for term in (0, k // 2, k - 1):
        assert played.refuses(product_of(lambda a, b, i=term: a @ b - np.outer(a[:, i], b[i]), dtype))
        assert played.refuses(product_of(lambda a, b, i=term: a @ b + np.outer(a[:, i], b[i]), dtype))


@pytest.mark.parametrize("k", at(64, 2048))
def test_an_output_that_is_cut_off_is_refused_where_rounding_is_promised(k: int) -> None:
    def cut(given: Mapping[str, Any], seed: int) -> dict[str, Any]:
        exact = given["a"].astype(np.float64) @ given["b"].astype(np.float64)
        near = exact.astype(np.float16)
        return {"c": np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float16(0)), near)}

    assert gemm("fp16", k).refuses(cut)


@pytest.mark.parametrize(
    "rounding", [lambda x: x.astype(F), cut_off, towards_minus_infinity], ids=["round", "cut", "down"]
)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp8"])
@pytest.mark.parametrize("k", [64, 512, *(pytest.param(k, marks=pytest.mark.deep) for k in (4096, 65_536))])
def test_a_right_gemm_has_room(k: int, dtype: str, rounding: Callable[[Any], Any]) -> None:
    """One product at a time, in a random order, rounded or cut off after each."""

    def one_by_one(a: Any, b: Any) -> Any:
        order = np.random.default_rng(k).permutation(k)
        return in_blocks(a[:, order], b[order], 1, rounding)

    dtype_c = "fp16" if dtype == "fp8" else dtype
    assert gemm(dtype, k).share(product_of(one_by_one, dtype_c)) < MOST


def conv(direction: str, dtype: str, terms: int) -> Played:
    """A convolution with sums of so many terms."""
    if direction == BACKWARD_WEIGHT:
        sizes = {"n": 4, "c": 8, "k": 8, "input_size": (8, terms // 32), "filter_size": (3, 3)}
    else:
        summed = terms // 8
        c, k = (summed, 16) if direction == "forward" else (16, summed)
        sizes = {"n": 2, "c": c, "k": k, "input_size": (3, 5), "filter_size": (2, 4)}
    problem = Problem(direction=direction, dtype=dtype, g=1, left_pad=1, right_pad=1, **sizes)
    fields = {
        **expand_dtype(dtype), "direction": direction, "ndim": 2, "block": (64, 64, 32), "waves": (2, 2, 1),
        "mma": (32, 32, 8), "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "cshuffle",
        "vector": (1, 1, 2),
    }  # fmt: skip
    return Played(tw.kernel_of(read_config(Config, fields), "gfx942"), problem, GFX942)


def convolution_of(played: Played, change: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
    first, second, output = list_tensors(played.problem)

    def compute(given: Mapping[str, Any], seed: int) -> dict[str, Any]:
        a, b = change(*(given[t.name].astype(np.float64) for t in (first, second)))
        return {output.name: stored(compute_convolution(played.problem, a, b), output.dtype, GFX942)}

    return compute


@pytest.mark.parametrize("terms", at(64, 4096))
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_convolution_of_coarser_operands_is_refused(direction: str, terms: int) -> None:
    for dtype, bits in LOST[:4]:
        played = conv(direction, dtype, terms)
        assert played.share(convolution_of(played, lambda a, b: (a, b))) < MOST
        assert played.refuses(convolution_of(played, lambda a, b, n=bits: (with_bits(a, n), with_bits(b, n))))
        assert played.refuses(convolution_of(played, lambda a, b, n=bits: (with_bits(a, n), b)))
        assert played.refuses(convolution_of(played, lambda a, b, n=bits: (a, with_bits(b, n))))


def attention(dtype: str, keys: int, family: str = "forward", **values: Any) -> Played:
    problem = FmhaProblem(
        family=family, dtype=dtype, batch=1, heads=2, kv_heads=1, seqlen_q=24, seqlen_k=keys, hdim_q=32, hdim_v=32,
        **values,
    )  # fmt: skip
    gradient = family == "backward"
    block = (16, 32, 32, 16, 16, 16, 32, 32, 16) if gradient else (64, 32, 16, 16, 16, 32)
    config = FmhaConfig(
        family="dq_dk_dv" if gradient else family, mode="batch", dtype=dtype, pipeline="qr", block=block
    )
    return Played(tw.kernel_of(config, "gfx942"), problem, GFX942)


def attention_of(played: Played, p_type: str = "", **bits: int) -> Any:
    """Attention with inputs that are rounded to so many bits, or with probabilities of another type."""

    def compute(given: Mapping[str, Any], seed: int) -> dict[str, Any]:
        kernel = Simulated(played.problem, GFX942, 32, seed)
        kernel.p_type = p_type or kernel.p_type
        coarse = {name: with_bits(given[name], n).astype(given[name].dtype) for name, n in bits.items()}
        made = kernel.gradients if played.problem.family == "backward" else kernel.forward
        return made({**given, **coarse})

    return compute


@pytest.mark.parametrize("keys", [64, 1024, pytest.param(16_384, marks=pytest.mark.deep)])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_attention_that_loses_bits_is_refused(dtype: str, keys: int) -> None:
    played = attention(dtype, keys)
    assert played.share(attention_of(played)) < MOST
    assert played.refuses(attention_of(played, p_type="fp8"))
    bits = {"fp16": 8, "bf16": 4, "fp32": 11}[dtype]
    # With more keys what is lost of a query or a key is less than what 512 tiles may lose by rescaling.
    for name in ("q", "k", "v") if keys <= 1024 else ("v",):
        assert played.refuses(attention_of(played, **{name: bits})), name


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_gradients_that_lose_bits_are_refused(dtype: str) -> None:
    played = attention(dtype, 256, "backward")
    assert played.share(attention_of(played)) < MOST
    bits = {"fp16": 8, "bf16": 4, "fp32": 11}[dtype]
    for name in ("q", "k", "v", "d_o"):
        assert played.refuses(attention_of(played, **{name: bits})), name


def test_gradients_that_are_truncated_twice_have_room() -> None:
    """Shared keys: bf16 is truncated for each head and again for their sum, with losses in the same direction."""
    problem = FmhaProblem(
        family="backward", dtype="bf16", batch=1, heads=9, kv_heads=3, seqlen_q=11, seqlen_k=74, hdim_q=64, hdim_v=64
    )
    played = Played(attention("bf16", 64, "backward").kernel, problem, GFX942)
    assert max(found.rms_share for found in played.judge(attention_of(played))) < 0.62
    for name in ("q", "k", "v", "d_o"):
        assert played.refuses(attention_of(played, **{name: 5})), name
