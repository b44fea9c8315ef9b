"""The four types of a GEMM, and their defaults if only the operand types are given."""

from __future__ import annotations

from tilewright.arch.dtypes import find_accumulator
from tilewright.arch.dtypes import find_dtype as dtype_named
from tilewright.base.errors import InvalidValueError
from tilewright.ops.op import Shorthand

DTYPE_FIELDS = ("dtype_a", "dtype_b", "dtype_acc", "dtype_c")
# The type of C if only the input types are given. 8- and 4-bit floats have too little range for a sum.
OUTPUTS = {"fp8": "fp16", "bf8": "fp16", "pk_fp4": "fp16", "int8": "int32"}


def expand_dtype(dtype: str) -> dict[str, str]:
    """`fp16` or `fp8*bf8` → the four type fields, with the usual accumulator and output."""
    a, _, b = dtype.partition("*")
    b = b or a
    return dict(zip(DTYPE_FIELDS, (a, b, find_accumulator(a, b), OUTPUTS.get(a, a)), strict=True))


def fill_problem_types(dtype: str | None, **given: str) -> dict[str, str]:
    """The types of a problem's matrices: those given by name, the others from `dtype`."""
    usual = expand_dtype(dtype) if isinstance(dtype, str) else {}
    types = {name: value or usual.get(name, "") for name, value in given.items()}
    for name, value in types.items():
        if not value:
            raise InvalidValueError(f"the problem has no {name}: give dtype, or all of {', '.join(given)}")
        dtype_named(value)
    return types


# For the `shorthands` of an op.
DTYPE = Shorthand(DTYPE_FIELDS, lambda dtype: tuple(expand_dtype(dtype).values()))
