"""Checks tensors against their problem (count, shape, type, memory), and applies the strides of device tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import TensorError
from tilewright.dispatch.element_types import find_array_type
from tilewright.dispatch.tensors import View, format_shape
from tilewright.ops.execution import Execution, Tensor


def match_tensors(
    tensors: Sequence[Tensor], inputs: Sequence[View], outputs: Sequence[View | None]
) -> list[View | None]:
    """The views in the order of the problem's tensors; None for an output that must be allocated."""
    wanted = [tensor.name for tensor in tensors if not tensor.output]
    made = [tensor.name for tensor in tensors if tensor.output]
    if len(wanted) != len(inputs):
        raise TensorError(f"the problem has {len(wanted)} inputs ({', '.join(wanted)}), and {len(inputs)} were passed")
    if len(made) != len(outputs):
        raise TensorError(f"the problem has {len(made)} outputs ({', '.join(made)}), and {len(outputs)} were passed")
    given, results = iter(inputs), iter(outputs)
    return [next(results) if tensor.output else next(given) for tensor in tensors]


def check_shapes_and_types(tensors: Sequence[Tensor], views: Sequence[View | None], arch: Arch) -> None:
    """Require the problem's shape and, on this GPU, its type. Tensors that are updated in place must be passed."""
    for tensor, view in zip(tensors, views, strict=True):
        if view is None:
            if tensor.updated:
                raise TensorError(f"{tensor.name} is updated in place, so it must be passed as out=…")
            continue
        if view.shape != tensor.shape:
            raise TensorError(f"{tensor.name} is {format_shape(view.shape)}, must be {format_shape(tensor.shape)}")
        if tensor.output and view.read_only:
            raise TensorError(f"{tensor.name} is an output, and the array passed for it is read-only")
        wanted = find_array_type(tensor.dtype, arch)
        if view.dtype != wanted:
            detail = f", which is {wanted} on {arch.name}" if wanted != tensor.dtype else ""
            raise TensorError(f"{tensor.name} is of type {view.dtype}, must be {tensor.dtype}{detail}")


def is_on_host(tensors: Sequence[Tensor], views: Sequence[View | None]) -> bool:
    """Whether the tensors are in host memory. Raises `TensorError` if only some are."""
    placed = [(tensor.name, view.on_host) for tensor, view in zip(tensors, views, strict=True) if view is not None]
    host = [name for name, is_host in placed if is_host]
    if host and len(host) < len(placed):
        rest = [name for name, is_host in placed if not is_host]
        raise TensorError(
            f"{', '.join(host)} in host memory and {', '.join(rest)} on a device: copy all of them to one side first"
        )
    return bool(host) or not placed


def apply_strides(execution: Execution, problem: Any, tensors: Sequence[Tensor], views: Sequence[View | None]) -> Any:
    """The problem with the strides of the device tensors. Dimensions of one element keep the problem's strides."""
    found = {}
    for tensor, view in zip(tensors, views, strict=True):
        if view is not None:
            triples = zip(tensor.shape, view.strides, tensor.strides, strict=True)
            strides = tuple(own if extent == 1 else real for extent, real, own in triples)
            if strides != tensor.strides:
                found[tensor.name] = strides
    return execution.with_strides(problem, found) if found else problem
