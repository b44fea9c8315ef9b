"""A grouped GEMM problem: its run-time values, its tensors, and the C struct with which a kernel is called."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import InitVar
from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import choose
from tilewright.ops.block_gemm.problem_strides import check_lines, declare_stride
from tilewright.ops.block_gemm.types import set_problem_types
from tilewright.ops.call_struct import WORKSPACE, CallStruct, declare_number, declare_numbers, declare_pointer
from tilewright.ops.execution import Tensor
from tilewright.ops.fields import ChoiceType, DtypeType
from tilewright.ops.grouped_gemm.config import DTYPES, LAYOUTS, OUTPUTS, SCALED
from tilewright.ops.problem_field import Derived, IntegerType, ProblemBase, problem_field, problem_shorthand
from tilewright.ops.strides import check_strides

# The dimension that the groups divide: `offs` has the end of each group along it.
RAGGED = ("m", "n", "k", "none")
# With which ragged dimension A, B and C have a matrix for each group; with "none" all have.
STACKED_BY = ("n", "m", "k")
_SIZE = IntegerType()
_USUAL = Derived("follows from dtype")


class Problem(ProblemBase):
    """C = A · B for each of `groups` products, whose sizes along the dimension `ragged` are known on the device only.

    ragged m: A (m×k) and C (m×n) have the rows of all groups, B is one k×n matrix for each group (2d × 3d in torch).
    ragged n: B (k×n) and C (m×n) have the columns of all groups, A is one matrix for each (3d × 2d). ragged k: A (m×k)
    and B (k×n) have the terms of all groups, C is one matrix for each (2d × 2d). none: all groups have the same sizes
    (3d × 3d). Group i ends before offs[i] along `ragged`, and begins where the one before ends. Strides are in
    elements, between neighbours of the non-contiguous dimension; 0 = packed. `dtype` sets all types at once.

    8-bit operands have factors in fp32: scale_a for each row of A and scale_b for each column of B. Those of a ragged
    dimension are of all groups together, the others of each group.
    """

    m: int = problem_field(_SIZE, "rows of A and C, of all groups together if they are ragged")
    n: int = problem_field(_SIZE, "columns of B and C, of all groups together if they are ragged")
    k: int = problem_field(_SIZE, "columns of A and rows of B, of all groups together if they are ragged")
    groups: int = problem_field(_SIZE, "number of products")
    ragged: str = problem_field(ChoiceType(RAGGED), "the dimension that groups divide, m, n or k; none: same sizes")
    dtype: InitVar[str | None] = problem_shorthand(
        "fp16, bf16, fp8 or bf8",
        "all types at once, with an fp16 C for 8-bit operands",
        default=None,
        expands={
            name: {"dtype_a": name, "dtype_b": name, "dtype_c": "fp16" if name in SCALED else name} for name in DTYPES
        },
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
        """Parts that K is split into: these kernels do not split it."""
        return 1

    @property
    def has_scales(self) -> bool:
        """Whether A and B have scales: 8-bit operands do."""
        return self.dtype_a in SCALED

    @property
    def flops(self) -> int:
        """Multiplications and additions, if the groups fill the ragged dimension."""
        return 2 * self.m * self.n * self.k * (self.groups if self.ragged == "none" else 1)

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: every operand is read once, C is written once."""
        sizes = {"a": self.m * self.k, "b": self.k * self.n, "c": self.m * self.n}
        types = {"a": self.dtype_a, "b": self.dtype_b, "c": self.dtype_c}
        bits = [
            size * find_dtype(types[name]).bits * (self.groups if is_stacked(self, name) else 1)
            for name, size in sizes.items()
        ]
        return sum(bits) // 8 + sum(4 * math.prod(shape) for shape in _list_scale_shapes(self))


def is_stacked(problem: Problem, matrix: str) -> bool:
    """Whether a, b or c has one matrix for each group."""
    return problem.ragged == "none" or problem.ragged == dict(zip("abc", STACKED_BY, strict=True))[matrix]


def _list_scale_shapes(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """The shapes of scale_a and scale_b; none without scales."""
    if not problem.has_scales:
        return ()
    of_a = (problem.m,) if problem.ragged == "m" else (problem.groups, problem.m)
    return of_a, (problem.n,) if problem.ragged == "n" else (problem.groups, problem.n)


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors in the order of the C struct's pointers: inputs first, then c. `offs` is missing without ragged, and
    scales without 8-bit operands."""
    m, n, k = problem.m, problem.n, problem.k
    matrices = {
        "a": _make_tensor(problem, "a", problem.dtype_a, (m, k), problem.layout[0], problem.stride_a),
        "b": _make_tensor(problem, "b", problem.dtype_b, (k, n), problem.layout[1], problem.stride_b),
        "c": _make_tensor(problem, "c", problem.dtype_c, (m, n), problem.layout[2], problem.stride_c),
    }
    offs = () if problem.ragged == "none" else (Tensor("offs", "int32", (problem.groups,), (1,)),)
    scales = tuple(
        Tensor(name, "fp32", shape, (shape[-1], 1)[-len(shape) :])
        for name, shape in zip(("scale_a", "scale_b"), _list_scale_shapes(problem), strict=False)
    )
    return (matrices["a"], matrices["b"], *scales, *offs, matrices["c"])


def _make_tensor(problem: Problem, name: str, dtype: str, shape: tuple[int, int], letter: str, stride: int) -> Tensor:
    """A matrix, or one for each group: they follow each other without a gap beyond that of lines."""
    rows = letter == "r"
    strides = (stride, 1) if rows else (1, stride)
    if not is_stacked(problem, name):
        return Tensor(name, dtype, shape, strides, output=name == "c")
    step = stride * (shape[0] if rows else shape[1])
    return Tensor(name, dtype, (problem.groups, *shape), (step, *strides), output=name == "c")


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
        line, along = (-2, -1) if tensor.strides[-1] == 1 else (-1, -2)
        # Matrices of one line: the next line is the next matrix.
        place = line if tensor.shape[line] > 1 else 0
        extent = tensor.shape[line] if tensor.shape[line] > 1 or len(given) == 2 else tensor.shape[0]
        if extent > 1 and given[place] >= tensor.shape[along]:
            changes[f"stride_{name}"] = given[place]
    changed = dataclasses.replace(problem, **changes)
    check_strides(list_tensors(changed), strides, "the problem's layout", "copy it, or use a problem with its layout")
    return changed


CALL = CallStruct(
    op="grouped_gemm",
    title="grouped GEMM",
    doc="""\
C = A * B for each of `groups` products. ragged 0: the rows of A and C are those of all groups, and B is one
matrix for each; 1: the columns of B and C, and A is one matrix for each; 2: the columns of A and rows of B,
and C is one matrix for each; 3: all matrices are one for each group, and offs is null. Group i ends before
offs[i], and begins where the one before ends; the kernel reads offs on the device. The matrices of groups
follow each other, with a distance of their lines times the stride. Strides are the distance in elements
between neighbours of the non-contiguous dimension. Kernels with 8-bit operands multiply by scale_a for each
row of A and scale_b for each column of B: along `ragged` those of all groups, else one line for each group.
Others do not read them.""",
    problem_type=Problem,
    members=(
        declare_pointer("a"),
        declare_pointer("b"),
        declare_pointer("scale_a", "float: m, or groups x m of them"),
        declare_pointer("scale_b", "float: n, or groups x n of them"),
        declare_pointer("offs", "int32: the end of each group"),
        declare_pointer("c", c_type="void"),
        *declare_numbers("m", "n", "k", "groups"),
        declare_number("ragged", "0: m, 1: n, 2: k, 3: none"),
        *declare_numbers("stride_a", "stride_b", "stride_c"),
        *WORKSPACE,
    ),
    places=lambda problem: tuple(tensor.name for tensor in list_tensors(problem)),
)
