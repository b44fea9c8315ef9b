"""The C struct of a GEMM call."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ops.call_struct import WORKSPACE, CallStruct, declare_number, declare_numbers, declare_pointer
from tilewright.ops.cost_model.arithmetic import where
from tilewright.ops.gemm.config import MAX_D
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import batch_strides


def _list_places(problem: Problem) -> Sequence[str]:
    return ("a", "b", *(f"d[{i}]" for i in range(problem.num_d)), "c")


def _list_strides_d(problem: Problem) -> list[int]:
    """Every D is packed. A D of one row has stride 0, so that all rows of C use it."""
    return [where(index < problem.num_row_d, 0, problem.n) for index in range(problem.num_d)]


CALL = CallStruct(
    op="gemm",
    title="GEMM",
    doc="""\
C = elementwise(A * B, D...), with A of m x k, B of k x n, C and every D of m x n.
Strides are the distance in elements between neighbours of the non-contiguous dimension:
for a row-major matrix from row to row, for a column-major one from column to column.""",
    problem_type=Problem,
    constants={"MAX_D": MAX_D},
    members=(
        declare_pointer("a", "m x k"),
        declare_pointer("b", "k x n"),
        declare_pointer("c", "m x n", c_type="void"),
        declare_pointer("d", "m x n, for each D", length="MAX_D"),
        *declare_numbers("m", "n", "k", "stride_a", "stride_b", "stride_c"),
        declare_number("stride_d", "of every D, which is row-major", value=_list_strides_d, length="MAX_D"),
        declare_number("k_batch", "parts that K is split into, summed atomically; 1 = no split"),
        declare_number("batch", "number of matrices of a batched kernel; 1 otherwise"),
        declare_number("batch_stride_a", "elements between matrices of a batch", value=lambda p: batch_strides(p)["a"]),
        declare_number("batch_stride_b", value=lambda p: batch_strides(p)["b"]),
        declare_number("batch_stride_c", value=lambda p: batch_strides(p)["c"]),
        *WORKSPACE,
    ),
    places=_list_places,
)
