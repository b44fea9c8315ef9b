"""`scaled_matmul`: a product of 8-bit arrays with scales, as torch's scaled products."""

from __future__ import annotations

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
    choose_result,
)
from tilewright.ops.block_gemm.array_layouts import find_layout
from tilewright.ops.gemm_quant.config import DTYPES, GROUP_COLUMNS, GROUP_K, GROUP_ROWS, OUTPUTS
from tilewright.ops.gemm_quant.problem import Problem

NAMES = ("a", "b", "scale_a", "scale_b")


def scaled_matmul(
    a: Array,
    b: Array,
    scale_a: Array,
    scale_b: Array,
    *,
    out_dtype: object = "bf16",
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Array:
    """The product of two matrices of 8-bit floats with scales, `(a * scale_a) @ (b * scale_b)`.

    `a` (m, k) and `b` (k, n) are fp8 or bf8 in the encoding of the GPU, with any strides: `w.T` is not copied. Scales
    are float32: one number each, or one for each row of `a`, of shape (m,) or (m, 1), and one for each column of `b`,
    of shape (n,) or (1, n). If `scale_a` is None, `b` has a scale for 128 elements along k of each column, of shape
    (k / 128, n), or for 128 × 128 elements, of shape (k / 128, n / 128), both rounded up. `w_scale.T` of weights (n, k)
    is not copied. `scale_a` for 128 elements along k of each row of `a` has the shape (m, k / 128); then `scale_b` is
    None, or has the shape (k / 128, n / 128), which needs CK Tile's headers of 2026-06. Scales of groups with other
    strides than packed ones with k contiguous are copied. Sums and scales are computed in fp32, and rounded once to
    `out_dtype`: bf16, fp16 or fp32.

    For arrays, kernels and options see `tilewright.matmul` and `tilewright.options`.
    """
    return _scaled_matmul((a, b, scale_a, scale_b), out, stream, device, str(read_dtype_name(out_dtype)))


def plan_scaled_matmul(
    arch: Arch,  # noqa: ARG001  (planners of other ops depend on it)
    a: ArraySpec,
    b: ArraySpec,
    scale_a: ArraySpec | None,
    scale_b: ArraySpec | None,
    out: ArraySpec | None,
    out_dtype: str,
) -> ArrayPlan:
    """One launch, or none for an empty product."""
    choose("out_dtype", out_dtype, OUTPUTS)
    for array in (a, b):
        if array.type not in DTYPES or len(array.shape) != 2:
            known = " or ".join(DTYPES)
            raise TensorError(f"{array.name} is {array.dtype} of shape {array.shape}, must be a matrix of {known}")
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k:
        raise TensorError(f"a has shape {a.shape} and b {b.shape}: {k} columns of a need {k} rows of b")
    quant, scales = _choose_scales(scale_a, scale_b, m, n, k)
    result = choose_result(out, "out", len(NAMES), out_dtype, (m, n))
    if 0 in (m, n, k):
        return ArrayPlan((result,), zeros=True)
    if not (n == 1 or m == 1 or (result.strides[1] == 1 and result.strides[0] >= n)):
        result = result.pack()
    left, right = (each if find_layout(each, of_b) else each.pack() for each, of_b in ((a, False), (b, True)))
    of_a, of_b, of_c = find_layout(left, of_b=False), find_layout(right, of_b=True), find_layout(result, of_b=False)
    (letter_a, stride_a), (letter_b, stride_b), (_, stride_c) = (found or ("r", 0) for found in (of_a, of_b, of_c))
    fields: dict[str, Any] = {
        **{"m": m, "n": n, "k": k, "quant": quant, "layout": f"{letter_a}{letter_b}r"},
        **{"dtype_a": a.type, "dtype_b": b.type, "dtype_c": out_dtype},
        **{"stride_a": stride_a, "stride_b": stride_b, "stride_c": stride_c},
    }
    return ArrayPlan((result,), (ArrayLaunch(Problem(**fields), (left, right, *scales), (result,)),))


def _choose_scales(
    scale_a: ArraySpec | None, scale_b: ArraySpec | None, m: int, n: int, k: int
) -> tuple[str, tuple[ArraySpec, ...]]:
    """The kind of scales, and the scales in the op's order."""
    if scale_a is None or scale_b is None or _has_groups(scale_a, scale_b, m, n, k):
        return _choose_groups(scale_a, scale_b, m, n, k)
    scales = (_check_scale(scale_a, ((m,), (m, 1)), "row"), _check_scale(scale_b, ((n,), (1, n)), "column"))
    # One scale for each row and one for the whole of B: the latter is repeated.
    single = [scale.size == 1 for scale in scales]
    quant = "tensor" if all(single) else "rowcol"
    wanted = ((1,), (1,)) if quant == "tensor" else ((m,), (n,))
    return quant, tuple(
        scale.expand(shape) if one and shape != (1,) else scale
        for scale, shape, one in zip(scales, wanted, single, strict=True)
    )


def _has_groups(scale_a: ArraySpec, scale_b: ArraySpec, m: int, n: int, k: int) -> bool:
    """Whether A has scales of groups, if B has scales. If there is one group along K, the scales of B decide."""
    of_columns = n > GROUP_K and scale_b.shape == (1, -(-n // GROUP_K))
    return scale_a.shape == (m, -(-k // GROUP_K)) and (k > GROUP_K or of_columns)


def _choose_groups(
    scale_a: ArraySpec | None, scale_b: ArraySpec | None, m: int, n: int, k: int
) -> tuple[str, tuple[ArraySpec, ...]]:
    """The kind of scales of groups. A single column counts as a group of columns."""
    groups = -(-k // GROUP_K)
    shape_a = None if scale_a is None else (m, groups)
    names = [name for name in (*GROUP_COLUMNS, *GROUP_ROWS) if (name in GROUP_ROWS) == (scale_a is not None)]
    shapes = {(groups, -(-n // GROUP_COLUMNS[name])) if name in GROUP_COLUMNS else None: name for name in names}
    for scale in filter(None, (scale_a, scale_b)):
        _check_float(scale)
    if scale_a is not None and scale_a.shape != shape_a:
        raise TensorError(f"scale_a has shape {scale_a.shape}, must be one for each group along k of a row: {shape_a}")
    shape_b = None if scale_b is None else scale_b.shape
    if shape_b not in shapes:
        known = " or ".join(map(str, shapes))
        without = "without scale_a" if scale_a is None else "with scales of groups of a"
        raise TensorError(f"scale_b has shape {shape_b}, {without} it must be one for each group: {known}")
    of_a = () if scale_a is None else (scale_a if scale_a.is_packed else scale_a.pack(),)
    of_b = () if scale_b is None else (scale_b if scale_b.transpose().is_packed else scale_b.pack((1, 0)),)
    return shapes[shape_b], (*of_a, *of_b)


def _check_float(scale: ArraySpec) -> None:
    if scale.dtype != "fp32":
        raise TensorError(f"{scale.name} is {scale.dtype}, scales are float32")


def _check_scale(scale: ArraySpec, shapes: tuple[tuple[int, ...], ...], line: str) -> ArraySpec:
    """A scale as a packed vector."""
    _check_float(scale)
    if scale.size != 1 and scale.shape not in shapes:
        known = " or ".join(map(str, shapes))
        raise TensorError(f"{scale.name} has shape {scale.shape}, must be one number or one for each {line}: {known}")
    vector = scale if scale.shape else scale.broadcast((1,))  # a number without dimensions
    return (vector if vector.is_packed else vector.pack()).reshape((scale.size,))


_scaled_matmul = ArrayFunction(plan_scaled_matmul, *NAMES, required=2)
