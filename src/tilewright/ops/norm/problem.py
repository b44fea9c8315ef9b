"""A norm problem: its run-time values, its tensors, and the C struct with which a kernel is called."""

from __future__ import annotations

import functools

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import InvalidValueError
from tilewright.ops.call_struct import CallStruct, declare_number, declare_numbers
from tilewright.ops.declared_tensors import DeclaredTensor, apply_row_strides, declare_pointers, list_present
from tilewright.ops.fields import ChoiceType, DtypeType, FlagType
from tilewright.ops.norm.config import DTYPES, KIND_NAMES, QUANTIZED_DTYPES, QUANTS, RESIDUALS
from tilewright.ops.problem_field import Derived, IntegerType, NumberType, ProblemBase, problem_field

_STRIDE = IntegerType(0)
_PACKED = Derived("packed", lambda problem: problem.columns)


class Problem(ProblemBase):
    """Each row of x is normalised, or only quantised: y = (x + residual - mean) · rstd · weight + bias.

    RMSNorm has neither mean nor bias. Quantised rows are divided by their scale, the largest magnitude over the largest
    value of y's type. Strides are in elements, between neighbouring rows; 0 = packed.
    """

    kind: str = problem_field(ChoiceType(KIND_NAMES), "rms, layer, or smoothquant: quantisation alone")
    rows: int = problem_field(IntegerType(), "rows of x and y")
    columns: int = problem_field(IntegerType(), "elements of a row")
    dtype: str = problem_field(DtypeType(DTYPES), "type of x, residual, sum, weight and bias")
    dtype_y: str = problem_field(DtypeType((*DTYPES, *QUANTIZED_DTYPES)), "type of y; that of x without quant")
    quant: str = problem_field(
        ChoiceType(QUANTS), "dynamic: with a scale for each row; smooth: y · smooth, likewise", default="none"
    )
    residual: str = problem_field(
        ChoiceType(RESIDUALS), "add: x + residual is normalised; store: the sum is also an output", default="none"
    )
    save: bool = problem_field(FlagType(), "the mean (LayerNorm) and rstd of each row are outputs", default=False)
    epsilon: float = problem_field(NumberType(least=0), "added to the variance, or to the mean square", default=1e-5)
    stride_x: int = problem_field(_STRIDE, "elements between rows of x", default=0, stands_for=_PACKED)
    stride_residual: int = problem_field(_STRIDE, "elements between rows of residual", default=0, stands_for=_PACKED)
    stride_y: int = problem_field(_STRIDE, "elements between rows of y", default=0, stands_for=_PACKED)
    stride_sum: int = problem_field(_STRIDE, "elements between rows of sum", default=0, stands_for=_PACKED)

    def check_values(self) -> None:
        for name in STRIDES.values():
            if getattr(self, name) < self.columns:
                raise InvalidValueError(f"{name} is {getattr(self, name)}, but a row has {self.columns} elements")
        if self.kind == "smoothquant" and (self.quant != "smooth" or self.residual != "none" or self.save):
            raise InvalidValueError(
                f"smoothquant has quant smooth and neither residual nor save, got quant {self.quant}, "
                f"residual {self.residual}, save {self.save}"
            )
        if self.dtype_y not in ((self.dtype,) if self.quant == "none" else QUANTIZED_DTYPES):
            wanted = self.dtype if self.quant == "none" else " or ".join(QUANTIZED_DTYPES)
            raise InvalidValueError(f"dtype_y is {self.dtype_y}, must be {wanted} with quant {self.quant}")

    @property
    def flops(self) -> int:
        """A square, a sum and two products of each element."""
        return 4 * self.rows * self.columns

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: every matrix is read or written once."""
        own = find_dtype(self.dtype).storage_bytes * {"none": 1, "add": 2, "store": 3}[self.residual]
        return self.rows * self.columns * (own + find_dtype(self.dtype_y).storage_bytes)


_MATRIX, _ROWS, _COLUMNS = ("rows", "columns"), ("rows",), ("columns",)
TENSORS = (
    DeclaredTensor("x", _MATRIX, "dtype", stride="stride_x"),
    DeclaredTensor("residual", _MATRIX, "dtype", lambda p: p.residual != "none", stride="stride_residual"),
    DeclaredTensor("weight", _COLUMNS, "dtype", lambda p: p.kind != "smoothquant"),
    DeclaredTensor("bias", _COLUMNS, "dtype", lambda p: p.kind == "layer"),
    DeclaredTensor("smooth", _COLUMNS, "", lambda p: p.quant == "smooth"),
    DeclaredTensor("y", _MATRIX, "dtype_y", stride="stride_y", output=True),
    DeclaredTensor("sum", _MATRIX, "dtype", lambda p: p.residual == "store", "x + residual", "stride_sum", output=True),
    DeclaredTensor("scale", _ROWS, "", lambda p: p.quant != "none", output=True),
    DeclaredTensor("mean", _ROWS, "", lambda p: p.save and p.kind == "layer", output=True),
    DeclaredTensor("rstd", _ROWS, "", lambda p: p.save, "inverse deviation or root mean square", output=True),
)
# The problem field with the distance of rows, by tensor.
STRIDES = {tensor.name: tensor.stride for tensor in TENSORS if tensor.stride}
list_tensors = functools.partial(list_present, TENSORS)
apply_strides = functools.partial(apply_row_strides, TENSORS, who="a norm")

CALL = CallStruct(
    op="norm",
    title="norm",
    doc="""\
y = (x + residual - mean) * rstd * weight + bias, row by row; RMSNorm has neither mean nor bias.
A kernel with quantisation divides each row of y by its scale and rounds it; smooth is a factor of
each column before. Strides are the distance in elements between neighbouring rows.""",
    problem_type=Problem,
    members=(
        *declare_pointers(TENSORS),
        *declare_numbers("rows", "columns", *STRIDES.values()),
        declare_number("epsilon", c_type="double"),
    ),
    places=lambda problem: tuple(tensor.name for tensor in list_tensors(problem)),
)
