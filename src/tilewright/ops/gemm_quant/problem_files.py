"""Problems of aiter's tables for products of 8-bit floats with scales.

A row is x (M×K) times weights (N×K), both row-major, with a bf16 result. Whether the weights are reordered
(bpreshuffle, in the name of a file) is a property of the kernel, so a problem does not have it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from tilewright import arch as archs
from tilewright.arch.dtypes import ARRAY_TYPES
from tilewright.base.document_values import parse_digits
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.aiter_table import TableFamily
from tilewright.ops.gemm_quant.problem import Problem
from tilewright.ops.kernel import Kernel

# aiter names the encoding. A problem's fp8 is that of the GPU on which it is computed.
_TYPES = tuple(f"torch.{ARRAY_TYPES[name]}" for name in ("fp8_ocp", "fp8_fnuz"))
_RESULTS = ("libtype", "kernelId", "splitK", "us", "kernelName", "tflops", "bw", "errRatio")


def _make_problem(m: int, n: int, k: int, quant: str) -> Problem:
    return Problem(m=m, n=n, k=k, quant=quant, dtype_a="fp8", dtype_b="fp8", dtype_c="bf16", layout="rcr")


def _read_row(cells: Mapping[str, str], *, quant: str) -> Problem:
    if "q_dtype_w" in cells:
        choose("q_dtype_w", cells["q_dtype_w"], _TYPES)
    m, n, k = (parse_digits(name, cells[name]) for name in ("M", "N", "K"))
    return _make_problem(m, n, k, quant)


def _write_row(problem: Problem, *, quant: str) -> dict[str, str]:
    if problem != _make_problem(problem.m, problem.n, problem.k, quant):
        raise InvalidValueError(
            f"a row of aiter's table for scales {quant} is a packed product of fp8 with layout rcr and a bf16 result: "
            f"{problem} is not"
        )
    return {"M": str(problem.m), "N": str(problem.n), "K": str(problem.k)}


def _describe_winner(kernel: Kernel, _: Problem) -> dict[str, str]:
    encoded = archs.load(kernel.arch).resolve_dtype("fp8")
    return {"q_dtype_w": f"torch.{ARRAY_TYPES[encoded]}", "kernelId": "0", "splitK": "0", "errRatio": "0.0"}


def _make_family(quant: str, columns: tuple[str, ...], words: tuple[str, ...], others: tuple[str, ...]) -> TableFamily:
    return TableFamily(
        columns=columns,
        results=_RESULTS,
        file_words=words,
        other_words=others,
        read=functools.partial(_read_row, quant=quant),
        write=functools.partial(_write_row, quant=quant),
        describe=_describe_winner,
    )


# aiter/configs/a8w8_tuned_gemm.csv and a8w8_bpreshuffle_tuned_gemm.csv, and a8w8_blockscale_tuned_gemm.csv with or
# without bpreshuffle; those of models contain the same words.
AITER_TABLES = (
    _make_family("rowcol", ("M", "N", "K", "q_dtype_w"), ("a8w8", "gemm"), ("blockscale", "batched")),
    _make_family("a1x128_b128x128", ("M", "N", "K"), ("a8w8", "blockscale", "gemm"), ("batched",)),
)
