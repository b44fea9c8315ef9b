"""A top-k problem: its run-time values, its tensors, and the C struct with which a kernel is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.call_struct import CallStruct, declare_numbers, declare_pointer
from tilewright.ops.execution import Tensor
from tilewright.ops.fields import ChoiceType, DtypeType
from tilewright.ops.problem_field import Derived, IntegerType, ProblemBase, problem_field
from tilewright.ops.strides import check_strides
from tilewright.ops.topk.config import ACTIVATIONS, DTYPES


class Problem(ProblemBase):
    """The k largest elements of each row of x: their places, and the values of softmax or sigmoid at these places.

    x are the logits of a router: a row for each token, with an element for each expert. Results are in the order of
    logits, largest first; of equal logits, that with the lower index is first, and NaN is larger than all others. With
    softmax, weights of rows with NaN or +infinity, or with nothing but -infinity, are NaN. The stride is in elements,
    between neighbouring rows; 0 = packed.
    """

    activation: str = problem_field(ChoiceType(ACTIVATIONS), "softmax over a row, or sigmoid of each element")
    rows: int = problem_field(IntegerType(), "rows of x: tokens")
    experts: int = problem_field(IntegerType(), "elements of a row")
    k: int = problem_field(IntegerType(), "results of each row")
    dtype: str = problem_field(DtypeType(DTYPES), "type of x")
    stride_x: int = problem_field(
        IntegerType(0), "elements between rows of x", default=0, stands_for=Derived("packed", lambda p: p.experts)
    )

    def check_values(self) -> None:
        if self.k > self.experts:
            raise InvalidValueError(f"k is {self.k}, but a row has {self.experts} elements")
        if self.stride_x < self.experts:
            raise InvalidValueError(f"stride_x is {self.stride_x}, but a row has {self.experts} elements")

    @property
    def flops(self) -> int:
        """An exponential, a sum and a product of each element, and a comparison for each result."""
        return self.rows * self.experts * (3 + self.k)

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: x is read once, weights and indices are written once."""
        return self.rows * (self.experts * find_dtype(self.dtype).storage_bytes + 8 * self.k)


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors in the order of the C struct's pointers."""
    results = (problem.rows, problem.k)
    return (
        Tensor("x", problem.dtype, (problem.rows, problem.experts), (problem.stride_x, 1)),
        Tensor("weights", "fp32", results, (problem.k, 1), output=True),
        Tensor("indices", "int32", results, (problem.k, 1), output=True),
    )


def apply_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    """The problem with the actual strides of its tensors, by name. Only the rows of x may have gaps."""
    known = {tensor.name: tensor for tensor in list_tensors(problem)}
    changed = problem
    for name, given in strides.items():
        shape = known[choose("tensor of the problem", name, known)].shape
        if name == "x" and len(given) == 2 and shape[0] > 1 and given[0] >= shape[1]:
            changed = dataclasses.replace(problem, stride_x=given[0])
    check_strides(list_tensors(changed), strides, "a top-k kernel", "copy it")
    return changed


CALL = CallStruct(
    op="topk",
    title="top-k",
    doc="""\
The k largest elements of each row of x, largest first, of equal ones that with the lower index first: their
indices, and their values after softmax over the row, or after sigmoid. NaN is the largest element; indices are
always different and those of elements. weights and indices are packed; stride_x is the distance in elements
between neighbouring rows of x.""",
    problem_type=Problem,
    members=(
        declare_pointer("x"),
        declare_pointer("weights", "float, rows * k", c_type="void"),
        declare_pointer("indices", "int32, rows * k", c_type="void"),
        *declare_numbers("rows", "experts", "k", "stride_x"),
    ),
    places=lambda _: ("x", "weights", "indices"),
)
