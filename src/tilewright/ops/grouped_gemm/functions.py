"""`grouped_matmul`: products of groups, as torch's grouped products."""

from __future__ import annotations

import math
from typing import Any

from tilewright.arch.dtype_names import read_dtype_name
from tilewright.arch.spec import Arch
from tilewright.base.errors import TensorError, choose
from tilewright.ops.array_plan import (
    Array,
    ArrayFunction,
    ArrayLaunch,
    ArrayPlan,
    ArraySpec,
    DeviceLike,
    StreamLike,
    check_same_type,
    choose_result,
)
from tilewright.ops.block_gemm.array_layouts import find_layout
from tilewright.ops.grouped_gemm.config import DTYPES, OUTPUTS, SCALED
from tilewright.ops.grouped_gemm.problem import Problem

NAMES = ("a", "b", "offs", "scale_a", "scale_b")
# The ragged dimension, by the numbers of dimensions of a and b.
_RAGGED = {(2, 3): "m", (3, 2): "n", (2, 2): "k", (3, 3): "none"}
# The layouts that groups can have any sizes in; the others are copied to the first of them.
_LAYOUTS_A = {"m": "r", "n": "rc", "k": "c", "none": "rc"}
_LAYOUTS_B = {"m": "cr", "n": "c", "k": "r", "none": "cr"}


def grouped_matmul(
    a: Array,
    b: Array,
    offs: Array = None,
    *,
    scale_a: Array = None,
    scale_b: Array = None,
    out_dtype: object = None,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Array:
    """The products of groups of rows, columns or terms, whose sizes are on the device.

    `offs` (groups,) of int32 has the end of each group; it is read by kernels only, so that the host does not wait.
    By the dimensions of `a` and `b`:

    - (m, k) and (groups, k, n): rows are divided, `out[i:j] = a[i:j] @ b[group]` of shape (m, n),
    - (groups, m, k) and (k, n): columns are divided, `out[:, i:j] = a[group] @ b[:, i:j]` of shape (m, n),
    - (m, k) and (k, n): terms are divided, `out[group] = a[:, i:j] @ b[i:j]` of shape (groups, m, n),
    - (groups, m, k) and (groups, k, n): all sizes are the same, and `offs` is None.

    Groups may be empty; sums without terms and elements behind the last end are 0. Types are fp16 or bf16, and the
    result may be fp32, too. An operand in which the divided dimension is contiguous is copied.

    fp8 and bf8 operands, in the encoding of the GPU, need float32 scales, with which sums are multiplied in fp32:
    `scale_a` for each row of `a`, (m,) if rows are divided, else (groups, m), and `scale_b` for each column of each
    `b[group]`, (groups, n). The result is then bf16 by default, and columns cannot be divided.

    For arrays, kernels and options see `tilewright.matmul` and `tilewright.options`.
    """
    arrays = (a, b, offs) if scale_a is None and scale_b is None else (a, b, offs, scale_a, scale_b)
    dtype = None if out_dtype is None else str(read_dtype_name(out_dtype))
    return _grouped_matmul(arrays, out, stream, device, dtype)


def plan_grouped_matmul(
    arch: Arch,  # noqa: ARG001  (planners of other ops depend on it)
    a: ArraySpec,
    b: ArraySpec,
    offs: ArraySpec | None,
    scale_a: ArraySpec | None,
    scale_b: ArraySpec | None,
    out: ArraySpec | None,
    out_dtype: str | None,
) -> ArrayPlan:
    """One launch, or none for empty results."""
    check_same_type(a, b)
    if a.type not in DTYPES:
        raise TensorError(f"a is {a.dtype}, kernels have {', '.join(DTYPES)}")
    dtype_c = choose("out_dtype", out_dtype or ("bf16" if a.type in SCALED else a.type), OUTPUTS)
    ragged = _RAGGED.get((len(a.shape), len(b.shape)))
    if ragged is None:
        raise TensorError(f"a has shape {a.shape} and b {b.shape}: each must have 2 or 3 dimensions")
    (m, k), n = a.shape[-2:], b.shape[-1]
    if b.shape[-2] != k:
        raise TensorError(f"a has shape {a.shape} and b {b.shape}: {k} columns of a need {k} rows of b")
    groups = _count_groups(ragged, a, b, offs)
    scales = _choose_scales(a, ragged, (m, n, groups), scale_a, scale_b)
    shape = (m, n) if ragged in ("m", "n") else (groups, m, n)
    result = choose_result(out, "out", len(NAMES), dtype_c, shape)
    if 0 in (*shape, k, groups):
        return ArrayPlan((result,), zeros=True)
    if not _is_stacked(result, "r"):
        result = result.pack()
    left, right = _make_usable(a, _LAYOUTS_A[ragged]), _make_usable(b, _LAYOUTS_B[ragged])
    letter_a = _find_letter(left, _LAYOUTS_A[ragged], of_b=False)
    letter_b = _find_letter(right, _LAYOUTS_B[ragged], of_b=True)
    fields: dict[str, Any] = {
        **{"m": m, "n": n, "k": k, "groups": groups, "ragged": ragged, "layout": f"{letter_a}{letter_b}r"},
        **{"dtype_a": a.type, "dtype_b": b.type, "dtype_c": dtype_c},
        **{"stride_a": _find_stride(left, letter_a), "stride_b": _find_stride(right, letter_b)},
        "stride_c": _find_stride(result, "r"),
    }
    ends = () if offs is None else (offs if offs.is_packed else offs.pack(),)
    return ArrayPlan((result,), (ArrayLaunch(Problem(**fields), (left, right, *scales, *ends), (result,)),))


def _choose_scales(
    a: ArraySpec, ragged: str, sizes: tuple[int, int, int], scale_a: ArraySpec | None, scale_b: ArraySpec | None
) -> tuple[ArraySpec, ...]:
    """Packed scales in the op's order; none for operands without them."""
    m, n, groups = sizes
    if a.type not in SCALED:
        if scale_a is not None or scale_b is not None:
            raise TensorError(f"a is {a.dtype}, only {' and '.join(SCALED)} have scales: leave scale_a and scale_b out")
        return ()
    if ragged == "n":
        raise TensorError(f"a is {a.dtype} and b has two dimensions: kernels with scales do not divide columns")
    of_a = (m,) if ragged == "m" else (groups, m)
    # With a dimension of 1 as operands have one more; and torch has a vector of all groups if terms are divided.
    known = ((of_a, (*of_a, 1), (math.prod(of_a),)), ((groups, n), (groups, 1, n), (groups * n,)))
    found = []
    for name, scale, shapes in zip(("scale_a", "scale_b"), (scale_a, scale_b), known, strict=True):
        if scale is None:
            raise TensorError(f"a is {a.dtype}: {name} must be given, of float32 and shape {shapes[0]}")
        if scale.dtype != "fp32" or scale.shape not in shapes:
            raise TensorError(f"{name} is {scale.dtype} of shape {scale.shape}, must be float32 of shape {shapes[0]}")
        found.append((scale if scale.is_packed else scale.pack()).reshape(shapes[0]))
    return tuple(found)


def _count_groups(ragged: str, a: ArraySpec, b: ArraySpec, offs: ArraySpec | None) -> int:
    """The number of groups: the extent of a three-dimensional operand, or of `offs`."""
    stacked = [array.shape[0] for array in (a, b) if len(array.shape) == 3]
    if ragged == "none":
        if offs is not None:
            raise TensorError(
                "offs must be None: a and b have three dimensions, so that all groups have the same sizes"
            )
    elif offs is None:
        raise TensorError(f"a has shape {a.shape} and b {b.shape}: offs must have the end of each group")
    elif offs.dtype != "int32" or len(offs.shape) != 1:
        raise TensorError(f"offs is {offs.dtype} of shape {offs.shape}, must be a vector of int32")
    counts = [*stacked, *([] if offs is None else [offs.shape[0]])]
    if len(set(counts)) != 1:
        raise TensorError(f"a has shape {a.shape} and b {b.shape}: the numbers of groups are {counts}")
    return counts[0]


def _is_stacked(array: ArraySpec, letter: str) -> bool:
    """Whether matrices have this layout and, if there are several, follow each other."""
    rows, columns = array.shape[-2:]
    down, along = array.strides[-2:]
    lines, width, stride, step = (rows, columns, down, along) if letter == "r" else (columns, rows, along, down)
    if not ((step == 1 or width == 1) and (lines == 1 or stride >= width)):
        return False
    line = _find_stride(array, letter)
    return len(array.shape) == 2 or array.shape[0] == 1 or (array.strides[0] == lines * line and line >= width)


def _find_stride(array: ArraySpec, letter: str) -> int:
    """The elements between lines. Of matrices with one line, the next matrix is the next line."""
    line, along = (-2, -1) if letter == "r" else (-1, -2)
    if array.shape[line] > 1:
        return array.strides[line]
    return array.strides[0] if len(array.shape) == 3 and array.shape[0] > 1 else array.shape[along]


def _make_usable(array: ArraySpec, letters: str) -> ArraySpec:
    """The operand as it is, or a copy in the first of the layouts."""
    if any(_is_stacked(array, letter) for letter in letters):
        return array
    last = len(array.shape) - 1
    return array.pack(tuple(range(last - 1)) + ((last - 1, last) if letters[0] == "r" else (last, last - 1)))


def _find_letter(array: ArraySpec, letters: str, *, of_b: bool) -> str:
    """The layout of a usable operand; if it has both, as of one line, that of a plain product."""
    usual = find_layout(array, of_b=of_b)
    found = [letter for letter in letters if _is_stacked(array, letter)]
    return usual[0] if usual is not None and usual[0] in found else found[0]


_grouped_matmul = ArrayFunction(plan_grouped_matmul, *NAMES, required=2)
