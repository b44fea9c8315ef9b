"""A GEMM problem with scales: its run-time values, its tensors, and the C struct with which a kernel is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import InitVar
from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import choose
from tilewright.ops.block_gemm.problem_strides import check_lines, declare_stride
from tilewright.ops.block_gemm.types import set_problem_types
from tilewright.ops.call_struct import CallStruct, declare_numbers, declare_pointer
from tilewright.ops.execution import Tensor
from tilewright.ops.fields import ChoiceType, DtypeType
from tilewright.ops.gemm_quant.config import (
    DTYPES,
    GROUP_COLUMNS,
    GROUP_K,
    GROUP_ROWS,
    GROUPED,
    LAYOUTS,
    OUTPUTS,
    QUANT_DOC,
    QUANTS,
)
from tilewright.ops.problem_field import Derived, IntegerType, ProblemBase, problem_field, problem_shorthand
from tilewright.ops.strides import check_strides

_SIZE = IntegerType()
_USUAL = Derived("follows from dtype")
_PAIRS = {f"{a}*{b}" if a != b else a: (a, b) for a in DTYPES for b in DTYPES}


class Problem(ProblemBase):
    """C (m×n) = (A (m×k) · B (k×n)) · scale_a · scale_b. `dtype` sets all types at once: "fp8", "fp8*bf8".

    With quant tensor, A and B have one scale each; with rowcol, each row of A and each column of B has one. With b1x128
    and b128x128, A has none, and B has one for 128 elements along K of 1 or 128 columns. With a1x128, B has none, and A
    has one for 128 elements along K of each row; with a1x128_b128x128, both have. Scales are factors in fp32, those of
    groups are packed with K contiguous. Strides are in elements, between neighbours of the non-contiguous
    dimension; 0 = packed.
    """

    m: int = problem_field(_SIZE, "rows of A and C")
    n: int = problem_field(_SIZE, "columns of B and C")
    k: int = problem_field(_SIZE, "columns of A, rows of B")
    quant: str = problem_field(ChoiceType(QUANTS), QUANT_DOC)
    dtype: InitVar[str | None] = problem_shorthand(
        "fp8, or fp8*bf8 for A and B of two types",
        "all types at once, with an fp16 C",
        default=None,
        expands={name: {"dtype_a": a, "dtype_b": b, "dtype_c": "fp16"} for name, (a, b) in _PAIRS.items()},
    )
    dtype_a: str = problem_field(DtypeType(DTYPES), "element type of A", default="", stands_for=_USUAL)
    dtype_b: str = problem_field(DtypeType(DTYPES), "element type of B", default="", stands_for=_USUAL)
    dtype_c: str = problem_field(DtypeType(OUTPUTS), "element type of C", default="", stands_for=_USUAL)
    layout: str = problem_field(ChoiceType(LAYOUTS), "layouts of A, B and C: r = row-major, c = column-major")
    stride_a: int = declare_stride("stride_a", "lines of A")
    stride_b: int = declare_stride("stride_b", "lines of B")
    stride_c: int = declare_stride("stride_c", "rows of C")

    def __post_init__(self, dtype: str | None) -> None:
        set_problem_types(self, dtype)
        super().__post_init__()

    def check_values(self) -> None:
        check_lines(self)

    @property
    def k_batch(self) -> int:
        """Parts that K is split into: CK Tile's kernel takes one."""
        return 1

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product itself."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: every operand is read once, C is written once."""
        a, b = self.m * self.k * find_dtype(self.dtype_a).bits, self.k * self.n * find_dtype(self.dtype_b).bits
        scales = sum(_count_scales(self)) * 32
        return (a + b + scales + self.m * self.n * find_dtype(self.dtype_c).bits) // 8


def _count_scales(problem: Problem) -> tuple[int, int]:
    """The number of scales of A and of B."""
    if problem.quant == "rowcol":
        return problem.m, problem.n
    if problem.quant == "tensor":
        return 1, 1
    groups = -(-problem.k // GROUP_K)
    rows, columns = GROUP_ROWS.get(problem.quant), GROUP_COLUMNS.get(problem.quant)
    return -(-problem.m // rows) * groups if rows else 0, -(-problem.n // columns) * groups if columns else 0


def _list_scales(problem: Problem) -> tuple[Tensor, ...]:
    of_a, of_b = _count_scales(problem)
    if problem.quant not in GROUPED:
        return Tensor("scale_a", "fp32", (of_a,), (1,)), Tensor("scale_b", "fp32", (of_b,), (1,))
    groups = -(-problem.k // GROUP_K)
    scale_a = Tensor("scale_a", "fp32", (of_a // groups, groups), (groups, 1))
    scale_b = Tensor("scale_b", "fp32", (groups, of_b // groups), (1, groups))
    return tuple(scale for scale, count in ((scale_a, of_a), (scale_b, of_b)) if count)


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors in the order of the C struct's pointers: inputs first, then c."""
    m, n, k = problem.m, problem.n, problem.k
    return (
        Tensor("a", problem.dtype_a, (m, k), _get_strides(problem.layout[0], problem.stride_a)),
        Tensor("b", problem.dtype_b, (k, n), _get_strides(problem.layout[1], problem.stride_b)),
        *_list_scales(problem),
        Tensor("c", problem.dtype_c, (m, n), (problem.stride_c, 1), output=True),
    )


def _get_strides(letter: str, stride: int) -> tuple[int, int]:
    return (stride, 1) if letter == "r" else (1, stride)


def apply_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    """The problem with the actual strides (in elements) of its tensors, by name.

    Raises an error if the layout does not allow them. The stride of a dimension of extent 1 is never used.
    """
    known = {tensor.name: tensor for tensor in list_tensors(problem)}
    changes: dict[str, Any] = {}
    for name, given in strides.items():
        tensor = known[choose("tensor of the problem", name, known)]
        if name not in ("a", "b", "c") or len(given) != len(tensor.shape):
            continue
        line, along = (0, 1) if tensor.strides[1] == 1 else (1, 0)
        if tensor.shape[line] > 1 and given[line] >= tensor.shape[along]:
            changes[f"stride_{name}"] = given[line]
    changed = dataclasses.replace(problem, **changes)
    check_strides(list_tensors(changed), strides, "the problem's layout", "copy it, or use a problem with its layout")
    return changed


CALL = CallStruct(
    op="gemm_quant",
    title="GEMM with scales",
    doc="""\
C = (A * B) * scale_a * scale_b, with A of m x k, B of k x n and C of m x n. A kernel with quant tensor
reads one scale of A and one of B, one with rowcol a scale for each row of A and each column of B. Scales of
groups are for 128 elements along K of 1 row of A, or of 1 or 128 columns of B: groups is k / 128, rounded up,
and the scales of a row of A or of a column of groups of B are adjacent. Scales that a kernel does not have are
not read.
Strides are the distance in elements between neighbours of the non-contiguous dimension:
for a row-major matrix from row to row, for a column-major one from column to column.""",
    problem_type=Problem,
    members=(
        declare_pointer("a", "m x k"),
        declare_pointer("b", "k x n"),
        declare_pointer("scale_a", "float: 1, m, or m x groups of them"),
        declare_pointer("scale_b", "float: 1, n, or groups x (n, or n / 128 rounded up) of them"),
        declare_pointer("c", "m x n", c_type="void"),
        *declare_numbers("m", "n", "k", "stride_a", "stride_b", "stride_c"),
    ),
    places=lambda problem: tuple(tensor.name for tensor in list_tensors(problem)),
)
