"""A norm problem: its run-time values, its tensors, and the C struct with which a kernel is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.call_struct import CallStruct, declare_number, declare_numbers, declare_pointer
from tilewright.ops.execution import Tensor
from tilewright.ops.fields import ChoiceType, DtypeType, FlagType
from tilewright.ops.norm.config import DTYPES, KIND_NAMES, QUANTIZED_DTYPES, QUANTS, RESIDUALS
from tilewright.ops.problem_field import Derived, IntegerType, NumberType, ProblemBase, problem_field
from tilewright.ops.strides import check_strides

_STRIDE = IntegerType(0)
_PACKED = Derived("packed", lambda problem: problem.columns)
# The problem field with the distance of rows, by tensor.
STRIDES = {"x": "stride_x", "residual": "stride_residual", "y": "stride_y", "sum": "stride_sum"}


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


@dataclass(frozen=True, slots=True)
class _Slot:
    """A tensor that some problems have: a matrix, or a vector of its rows or columns, in fp32 or the named type."""

    name: str
    shape: str
    is_present: Callable[[Problem], bool]
    dtype: str = ""
    output: bool = False
    doc: str = ""


_SLOTS = (
    _Slot("x", "matrix", lambda _: True, "dtype"),
    _Slot("residual", "matrix", lambda problem: problem.residual != "none", "dtype"),
    _Slot("weight", "columns", lambda problem: problem.kind != "smoothquant", "dtype"),
    _Slot("bias", "columns", lambda problem: problem.kind == "layer", "dtype"),
    _Slot("smooth", "columns", lambda problem: problem.quant == "smooth"),
    _Slot("y", "matrix", lambda _: True, "dtype_y", output=True),
    _Slot("sum", "matrix", lambda problem: problem.residual == "store", "dtype", output=True, doc=": x + residual"),
    _Slot("scale", "rows", lambda problem: problem.quant != "none", output=True),
    _Slot("mean", "rows", lambda problem: problem.save and problem.kind == "layer", output=True),
    _Slot("rstd", "rows", lambda problem: problem.save, output=True, doc=": inverse deviation or root mean square"),
)


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors in the order of the C struct: inputs first."""
    return tuple(_make_tensor(slot, problem) for slot in _SLOTS if slot.is_present(problem))


def _make_tensor(slot: _Slot, problem: Problem) -> Tensor:
    dtype = getattr(problem, slot.dtype) if slot.dtype else "fp32"
    if slot.shape == "matrix":
        strides = (getattr(problem, STRIDES[slot.name]), 1)
        return Tensor(slot.name, dtype, (problem.rows, problem.columns), strides, output=slot.output)
    return Tensor(slot.name, dtype, (getattr(problem, slot.shape),), (1,), output=slot.output)


def apply_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    """The problem with the actual strides of its tensors, by name. Elements of a row must be neighbours."""
    known = {tensor.name: tensor for tensor in list_tensors(problem)}
    changes: dict[str, Any] = {}
    for name, given in strides.items():
        tensor = known[choose("tensor of the problem", name, known)]
        if name in STRIDES and len(given) == len(tensor.shape) and problem.rows > 1 and given[0] >= problem.columns:
            changes[STRIDES[name]] = given[0]
    changed = dataclasses.replace(problem, **changes)
    check_strides(list_tensors(changed), strides, "a norm", "copy it")
    return changed


CALL = CallStruct(
    op="norm",
    title="norm",
    doc="""\
y = (x + residual - mean) * rstd * weight + bias, row by row; RMSNorm has neither mean nor bias.
A kernel with quantisation divides each row of y by its scale and rounds it; smooth is a factor of
each column before. Strides are the distance in elements between neighbouring rows.""",
    problem_type=Problem,
    members=(
        *(
            declare_pointer(
                slot.name,
                f"{slot.shape}{'' if slot.dtype else ', float'}{slot.doc}",
                c_type="void" if slot.output else "const void",
            )
            for slot in _SLOTS
        ),
        *declare_numbers("rows", "columns", *STRIDES.values()),
        declare_number("epsilon", c_type="double"),
    ),
    places=lambda problem: tuple(tensor.name for tensor in list_tensors(problem)),
)
