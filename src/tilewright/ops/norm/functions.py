"""`rms_norm`, `layer_norm` and `smooth_quantize`: functions of arrays, whose shapes give the problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, TensorError, choose
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
    make_zeros,
    match_results,
)
from tilewright.ops.norm.config import QUANTIZED_DTYPES
from tilewright.ops.norm.problem import STRIDES, Problem, list_tensors

NAMES = ("x", "residual", "weight", "bias", "smooth")


@dataclass(frozen=True, slots=True)
class _Options:
    kind: str
    epsilon: float
    quantize: str | None
    return_sum: bool = False
    return_statistics: bool = False


def rms_norm(
    x: Array,
    weight: Array,
    *,
    epsilon: float = 1e-6,
    residual: Array = None,
    quantize: str | None = None,
    smooth: Array = None,
    return_sum: bool = False,
    return_statistics: bool = False,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Any:
    """RMSNorm over the last dimension, `x / sqrt(mean(x²) + epsilon) · weight`.

    `residual` is added to x before; `return_sum` also returns this sum. `quantize`, "int8" or "fp8", divides each row
    of the result by its scale, its largest magnitude over the largest value of the type, and also returns the scales;
    `smooth` is a float32 factor of each column before. `return_statistics` also returns 1 / sqrt(mean(x²) + epsilon)
    of each row.

    Returns the result, or a tuple of the results that you ask for: result, sum, scales, statistics. `out` is an array
    for the result, or such a tuple. For arrays, kernels and options see `tilewright.matmul` and `tilewright.options`.
    """
    options = _Options("rms", epsilon, quantize, return_sum, return_statistics)
    return _normalize((x, residual, weight, None, smooth), out, stream, device, options)


def layer_norm(
    x: Array,
    weight: Array,
    bias: Array = None,
    *,
    epsilon: float = 1e-5,
    residual: Array = None,
    quantize: str | None = None,
    smooth: Array = None,
    return_sum: bool = False,
    return_statistics: bool = False,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Any:
    """LayerNorm over the last dimension, `(x - mean) / sqrt(variance + epsilon) · weight + bias`.

    Statistics are the mean and 1 / sqrt(variance + epsilon) of each row. Everything else is as for `rms_norm`.
    """
    options = _Options("layer", epsilon, quantize, return_sum, return_statistics)
    return _normalize((x, residual, weight, bias, smooth), out, stream, device, options)


def smooth_quantize(
    x: Array,
    smooth: Array,
    *,
    quantize: str = "int8",
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Any:
    """Quantise `x · smooth`, with a float32 factor of each column and a scale of each row: (result, scales).

    `quantize` is "int8" or "fp8", as for `rms_norm`.
    """
    options = _Options("smoothquant", 0.0, quantize)
    return _normalize((x, None, None, None, smooth), out, stream, device, options)


def plan_norm(arch: Arch, *given: Any) -> ArrayPlan:
    """One launch. `given` are the arrays of `NAMES`, those for results, and the options."""
    *passed, options = given[len(NAMES) :]
    arrays: dict[str, ArraySpec] = {name: each for name, each in zip(NAMES, given, strict=False) if each is not None}
    _check(arrays, options)
    x = arrays["x"]
    rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
    if options.kind == "layer":
        arrays.setdefault("bias", make_zeros(x.dtype, (columns,)))
    fields: dict[str, Any] = {
        **{"kind": options.kind, "rows": max(1, rows), "columns": max(1, columns), "dtype": x.type},
        **{"dtype_y": options.quantize or x.type, "save": options.return_statistics, "epsilon": options.epsilon},
        "quant": "none" if options.quantize is None else "smooth" if "smooth" in arrays else "dynamic",
        "residual": "none" if "residual" not in arrays else "store" if options.return_sum else "add",
    }
    wanted = [tensor for tensor in list_tensors(Problem(**fields)) if tensor.output]
    outs = match_results(passed, [tensor.name for tensor in wanted])
    results = {}
    for place, (out, tensor) in enumerate(zip(outs, wanted, strict=True), len(NAMES)):
        shape = x.shape if len(tensor.shape) == 2 else x.shape[:-1]
        result = choose_result(out, tensor.name, place, arch.resolve_dtype(tensor.dtype), shape)
        results[tensor.name] = result if result.is_packed else result.pack()
    if 0 in x.shape:
        return ArrayPlan(tuple(results.values()), zeros=True)
    views = {name: each.view_rows() if name in STRIDES else each for name, each in arrays.items()}
    shapes = {tensor.name: tensor.shape for tensor in wanted}
    views |= {name: each.reshape(shapes[name]) for name, each in results.items()}
    strides: dict[str, Any] = {STRIDES[name]: view.strides[0] for name, view in views.items() if name in STRIDES}
    problem = Problem(**fields, **strides)
    inputs = tuple(views[tensor.name] for tensor in list_tensors(problem) if not tensor.output)
    launch = ArrayLaunch(problem, inputs, tuple(views[tensor.name] for tensor in wanted))
    return ArrayPlan(tuple(results.values()), (launch,))


def _check(arrays: dict[str, ArraySpec], options: _Options) -> None:
    x = arrays["x"]
    check_same_type(x, *(arrays.get(name) for name in ("residual", "weight", "bias")))
    if options.return_sum and "residual" not in arrays:
        raise InvalidValueError("return_sum needs a residual: without it the sum is x itself")
    if options.quantize is not None:
        choose("quantize", options.quantize, QUANTIZED_DTYPES)
    elif "smooth" in arrays:
        raise InvalidValueError('smooth needs quantize="int8" or "fp8": its factors are those of a quantisation')
    if options.kind != "smoothquant" and "weight" not in arrays:
        raise TensorError("weight is None, but kernels multiply by it: pass ones")
    for name, array in arrays.items():
        wanted = x.shape if name in STRIDES else x.shape[-1:]
        if array.shape != wanted or not wanted:
            raise TensorError(f"{name} has shape {array.shape}, must have {wanted or 'at least one dimension'}")
        if name == "smooth" and array.dtype != "fp32":
            raise TensorError(f"smooth is {array.dtype}, its factors are float32")
        if name not in STRIDES and not array.is_packed:
            arrays[name] = array.pack()


_normalize = ArrayFunction(plan_norm, *NAMES)
