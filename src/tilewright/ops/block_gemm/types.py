"""The four types of a GEMM, and their defaults if only the operand types are given."""

from __future__ import annotations

from typing import Any

from tilewright.arch.dtype_names import read_dtype_name
from tilewright.arch.dtypes import ACCUMULATORS, DTYPES, find_accumulator
from tilewright.base.errors import InvalidValueError
from tilewright.ops.fields import DtypeType
from tilewright.ops.op import Shorthand
from tilewright.ops.problem_field import Derived, ProblemBase, problem_field, problem_shorthand

DTYPE_FIELDS = ("dtype_a", "dtype_b", "dtype_acc", "dtype_c")
# Problems do not tell the type of the sums.
PROBLEM_TYPES = ("dtype_a", "dtype_b", "dtype_c")
# The type of C if only the input types are given. 8- and 4-bit floats have too little range for a sum.
OUTPUTS = {"fp8": "fp16", "bf8": "fp16", "pk_fp4": "fp16", "int8": "int32"}


def normalize_dtype(value: object) -> str:
    """`fp16` for "half", `torch.float16` and the like; `fp8*bf8` for a pair of types in any spelling."""
    parts = value.split("*") if isinstance(value, str) else [value]
    return "*".join(str(read_dtype_name(part)) for part in parts)


def expand_dtype(dtype: object) -> dict[str, str]:
    """`fp16` or `fp8*bf8` → the four type fields, with the usual accumulator and output."""
    a, _, b = normalize_dtype(dtype).partition("*")
    b = b or a
    return dict(zip(DTYPE_FIELDS, (a, b, find_accumulator(a, b), OUTPUTS.get(a, a)), strict=True))


def declare_types() -> Any:
    """The shorthand `dtype` of a problem."""
    doc = "all types at once, with the usual output type"
    names = [a if a == b else f"{a}*{b}" for a, b in ACCUMULATORS]
    usual = {name: expand_dtype(name) for name in names}
    rows = {dtype: {name: row[name] for name in PROBLEM_TYPES} for dtype, row in usual.items()}
    return problem_shorthand("fp16, or fp8*bf8 for A and B of two types", doc, default=None, expands=rows)


def declare_type(matrices: str) -> Any:
    """The field of a problem with the element type of a matrix."""
    stands_for = Derived("follows from dtype")
    doc = f"element type of {matrices}"
    return problem_field(DtypeType(tuple(DTYPES)), doc, default="", stands_for=stands_for)


def set_problem_types(problem: ProblemBase, dtype: object) -> None:
    """Set the types of a problem's matrices that are not given from `dtype`."""
    usual = {} if dtype is None else expand_dtype(dtype)
    fields = problem.__dict__
    for name in PROBLEM_TYPES:
        if isinstance(fields[name], str):  # types of other libraries may not be comparable with a text
            fields[name] = fields[name] or usual.get(name, "")
        if isinstance(fields[name], str) and not fields[name]:
            raise InvalidValueError(f"the problem has no {name}: give dtype, or all of {', '.join(PROBLEM_TYPES)}")


# For the `shorthands` of an op.
DTYPE = Shorthand(DTYPE_FIELDS, lambda dtype: tuple(expand_dtype(dtype).values()), normalize=normalize_dtype)
