"""Tensors held against their problem: number, shape, type, place; what a device tensor's strides make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import TensorError
from tilewright.dispatch.element_types import stored_as
from tilewright.dispatch.tensors import View, shape_text
from tilewright.ops.execution import Execution, Tensor


def match(tensors: Sequence[Tensor], inputs: Sequence[View], outputs: Sequence[View | None]) -> list[View | None]:
    """The views in the order of the problem's tensors; None for an output that is to be made."""
    wanted = [tensor.name for tensor in tensors if not tensor.output]
    made = [tensor.name for tensor in tensors if tensor.output]
    if len(wanted) != len(inputs):
        raise TensorError(f"the problem has {len(wanted)} inputs ({', '.join(wanted)}), and {len(inputs)} were given")
    if len(made) != len(outputs):
        raise TensorError(f"the problem has {len(made)} outputs ({', '.join(made)}), and {len(outputs)} were given")
    given, results = iter(inputs), iter(outputs)
    return [next(results) if tensor.output else next(given) for tensor in tensors]


def check(tensors: Sequence[Tensor], views: Sequence[View | None], arch: Arch) -> None:
    """Every tensor given has the problem's shape and, on this GPU, its type; those that are changed are given."""
    for tensor, view in zip(tensors, views, strict=True):
        if view is None:
            if tensor.updated:
                raise TensorError(f"{tensor.name} is changed in place, its old contents count: give it with out=…")
            continue
        if view.shape != tensor.shape:
            raise TensorError(f"{tensor.name} is {shape_text(view.shape)}, the problem has {shape_text(tensor.shape)}")
        if tensor.output and view.read_only:
            raise TensorError(f"{tensor.name} is an output, and the array given for it is read-only")
        wanted = stored_as(tensor.dtype, arch)
        if view.dtype != wanted:
            detail = f", which {arch.name} takes as {wanted}" if wanted != tensor.dtype else ""
            raise TensorError(f"{tensor.name} is of type {view.dtype}, the problem has {tensor.dtype}{detail}")


def on_host(tensors: Sequence[Tensor], views: Sequence[View | None]) -> bool:
    """Whether the tensors are in host memory: all of them, or none."""
    placed = [(tensor.name, view.on_host) for tensor, view in zip(tensors, views, strict=True) if view is not None]
    host = [name for name, is_host in placed if is_host]
    if host and len(host) < len(placed):
        rest = [name for name, is_host in placed if not is_host]
        raise TensorError(
            f"{', '.join(host)} in host memory and {', '.join(rest)} on a device: move all to one side first"
        )
    return bool(host) or not placed


def strided(execution: Execution, problem: Any, tensors: Sequence[Tensor], views: Sequence[View | None]) -> Any:
    """The problem with the strides that device tensors have. A dimension of one element has the problem's."""
    found = {}
    for tensor, view in zip(tensors, views, strict=True):
        if view is not None:
            triples = zip(tensor.shape, view.strides, tensor.strides, strict=True)
            strides = tuple(own if extent == 1 else real for extent, real, own in triples)
            if strides != tensor.strides:
                found[tensor.name] = strides
    return execution.with_strides(problem, found) if found else problem
