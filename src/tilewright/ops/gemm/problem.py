"""A GEMM problem: the run-time values of one product."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar

from tilewright.arch.dtypes import find_dtype as dtype_named
from tilewright.base.errors import InvalidValueError
from tilewright.ops.block_gemm.types import declare_type, declare_types, set_problem_types
from tilewright.ops.fields import ChoiceType
from tilewright.ops.gemm.config import ELEMENTWISE, LAYOUTS, MAX_D
from tilewright.ops.gemm.own_operations import OperationType
from tilewright.ops.problem_field import Derived, IntegerType, ProblemBase, problem_field

_SIZE = IntegerType()
_STRIDE = IntegerType(0)
# The elements of one line of each matrix: the packed stride.
_LINES: Mapping[str, Callable[[Problem], int]] = {
    "stride_a": lambda p: p.k if p.layout[0] == "r" else p.m,
    "stride_b": lambda p: p.n if p.layout[1] == "r" else p.k,
    "stride_c": lambda p: p.n if p.layout[2] == "r" else p.m,
}


class Problem(ProblemBase):
    """C (m×n) = elementwise(A (m×k) · B (k×n), D…). `dtype` sets all types at once: "fp16", "fp8*bf8".

    Strides are in elements, between neighbours of the non-contiguous dimension; 0 = packed.
    """

    m: int = problem_field(_SIZE, "rows of A and C")
    n: int = problem_field(_SIZE, "columns of B and C")
    k: int = problem_field(_SIZE, "columns of A, rows of B")
    dtype: InitVar[str | None] = declare_types()
    dtype_a: str = declare_type("A")
    dtype_b: str = declare_type("B")
    dtype_c: str = declare_type("C and of every D")
    layout: str = problem_field(ChoiceType(LAYOUTS), "layouts of A, B and C: r = row-major, c = column-major")
    batch: int = problem_field(_SIZE, "number of products of this size", default=1)
    k_batch: int = problem_field(_SIZE, "parts that K is split into, summed atomically", default=1)
    num_d: int = problem_field(IntegerType(0, MAX_D), "number of D tensors", default=0)
    num_row_d: int = problem_field(
        IntegerType(0, MAX_D),
        "number of D tensors that are one row, used for all rows of C; they come first",
        default=0,
        newer=True,
    )
    elementwise: str = problem_field(
        OperationType(ELEMENTWISE), "operation applied to the product and the D tensors", default="PassThrough"
    )
    stride_a: int = problem_field(
        _STRIDE, "elements between lines of A", default=0, stands_for=Derived("packed", _LINES["stride_a"])
    )
    stride_b: int = problem_field(
        _STRIDE, "elements between lines of B", default=0, stands_for=Derived("packed", _LINES["stride_b"])
    )
    stride_c: int = problem_field(
        _STRIDE, "elements between lines of C", default=0, stands_for=Derived("packed", _LINES["stride_c"])
    )

    def __post_init__(self, dtype: str | None) -> None:
        set_problem_types(self, dtype)
        super().__post_init__()

    def check_values(self) -> None:
        if self.num_row_d > self.num_d:
            raise InvalidValueError(f"num_row_d is {self.num_row_d}, but the problem has {self.num_d} D tensors")
        for name, get_line in _LINES.items():
            stride, line = getattr(self, name), get_line(self)
            if stride < line:
                raise InvalidValueError(f"{name} is {stride}, but one line of the matrix has {line} elements")

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product itself."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: every operand is read once, C is written once."""
        a = self.m * self.k * dtype_named(self.dtype_a).bits
        b = self.k * self.n * dtype_named(self.dtype_b).bits
        rows = self.m * (1 + self.num_d - self.num_row_d) + self.num_row_d
        c = rows * self.n * dtype_named(self.dtype_c).bits
        return self.batch * (a + b + c) // 8
