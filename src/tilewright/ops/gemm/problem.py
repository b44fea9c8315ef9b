"""A GEMM problem: the run-time values of one product."""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from tilewright.arch.dtypes import find_dtype as dtype_named
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.block_gemm.types import fill_problem_types
from tilewright.ops.gemm.config import ELEMENTWISE, LAYOUTS, MAX_D
from tilewright.ops.problem_values import check_count


@dataclass(frozen=True, kw_only=True)
class Problem:
    """C (m×n) = elementwise(A (m×k) · B (k×n), D…). `dtype` sets all types at once: "fp16", "fp8*bf8".

    Strides are in elements, between neighbours of the non-contiguous dimension; 0 = packed.
    """

    m: int
    n: int
    k: int
    dtype: InitVar[str | None] = None
    dtype_a: str = ""
    dtype_b: str = ""
    dtype_c: str = ""
    layout: str
    batch: int = 1
    k_batch: int = 1
    num_d: int = 0
    elementwise: str = "PassThrough"
    stride_a: int = 0
    stride_b: int = 0
    stride_c: int = 0

    def __post_init__(self, dtype: str | None) -> None:
        types = fill_problem_types(dtype, dtype_a=self.dtype_a, dtype_b=self.dtype_b, dtype_c=self.dtype_c)
        for name, value in types.items():
            object.__setattr__(self, name, value)
        choose("layout", self.layout, LAYOUTS)
        choose("elementwise operation", self.elementwise, ELEMENTWISE)
        for name in ("m", "n", "k", "batch", "k_batch"):
            check_count(name, getattr(self, name), 1)
        check_count("num_d", self.num_d, 0, MAX_D)
        for name, packed in self._packed_strides().items():
            value = getattr(self, name)
            check_count(name, value, 0)
            if value and value < packed:
                raise InvalidValueError(f"{name} is {value}, but one line of the matrix has {packed} elements")
            object.__setattr__(self, name, value or packed)

    def _packed_strides(self) -> dict[str, int]:
        return {
            "stride_a": self.k if self.layout[0] == "r" else self.m,
            "stride_b": self.n if self.layout[1] == "r" else self.k,
            "stride_c": self.n if self.layout[2] == "r" else self.m,
        }

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product itself."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: every operand is read once, C is written once."""
        a = self.m * self.k * dtype_named(self.dtype_a).bits
        b = self.k * self.n * dtype_named(self.dtype_b).bits
        c = self.m * self.n * dtype_named(self.dtype_c).bits * (1 + self.num_d)
        return self.batch * (a + b + c) // 8
