"""The tensors of a GEMM problem: a (m, k), b (k, n), d0 … and c (m, n), with a leading dimension for a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.execution import Preparation, Tensor
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.kind import find_kind
from tilewright.ops.gemm.problem import Problem


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors in the order of the C struct's pointers: inputs first, then c.

    Every D has the layout of a packed row-major C, independently of the stride of C, or is one row of it.
    """
    m, n, k = problem.m, problem.n, problem.k
    layouts = dict(zip("abc", problem.layout, strict=True))
    packed, row = Tensor("d", problem.dtype_c, (m, n), (n, 1)), Tensor("d", problem.dtype_c, (n,), (1,))
    ds = ([row] * problem.num_row_d + [packed] * problem.num_d)[: problem.num_d]
    matrices = [
        Tensor("a", problem.dtype_a, (m, k), _matrix_strides(layouts["a"], problem.stride_a)),
        Tensor("b", problem.dtype_b, (k, n), _matrix_strides(layouts["b"], problem.stride_b)),
        *(dataclasses.replace(d, name=f"d{i}") for i, d in enumerate(ds)),
        Tensor("c", problem.dtype_c, (m, n), _matrix_strides(layouts["c"], problem.stride_c), output=True),
    ]
    if problem.batch == 1:
        return tuple(matrices)
    return tuple(_add_batch(tensor, problem) for tensor in matrices)


def _matrix_strides(letter: str, stride: int) -> tuple[int, int]:
    return (stride, 1) if letter == "r" else (1, stride)


def _add_batch(tensor: Tensor, problem: Problem) -> Tensor:
    # Matrices of a batch are contiguous. D tensors have no batch in the C interface.
    step = batch_strides(problem).get(tensor.name, problem.m * problem.n)
    return dataclasses.replace(tensor, shape=(problem.batch, *tensor.shape), strides=(step, *tensor.strides))


def batch_strides(problem: Problem) -> dict[str, int]:
    """Elements from one matrix of a batch to the next: its number of lines times its stride."""
    rows = [letter == "r" for letter in problem.layout]
    return {
        "a": problem.stride_a * (problem.m if rows[0] else problem.k),
        "b": problem.stride_b * (problem.k if rows[1] else problem.n),
        "c": problem.stride_c * (problem.m if rows[2] else problem.n),
    }


def apply_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    """The problem with the actual strides (in elements) of its tensors, by name.

    Raises an error if the layout does not allow them. The stride of a dimension of extent 1 is never used and may be
    anything.
    """
    known = {tensor.name: tensor for tensor in list_tensors(problem)}
    changes: dict[str, Any] = {}
    for name, given in strides.items():
        tensor = known[choose("tensor of the problem", name, known)]
        if len(given) != len(tensor.shape):
            raise InvalidValueError(f"{name} has {len(tensor.shape)} dimensions, {len(given)} strides were given")
        if name in ("a", "b", "c"):
            changes[f"stride_{name}"] = _line_stride(problem, tensor, given)
    changed = dataclasses.replace(problem, **changes)
    wanted = {tensor.name: tensor for tensor in list_tensors(changed)}
    for name, given in strides.items():
        _compare_strides(wanted[name], given)
    return changed


def _line_stride(problem: Problem, tensor: Tensor, given: tuple[int, ...]) -> int:
    """The distance of neighbouring lines of a matrix: the stride of its non-contiguous dimension."""
    row_major = dict(zip("abc", problem.layout, strict=True))[tensor.name] == "r"
    line, along = (-2, -1) if row_major else (-1, -2)
    if tensor.shape[line] == 1 and problem.batch == 1:
        return tensor.shape[along]
    # Matrices of one line: the next line is the next matrix.
    stride = given[0] if tensor.shape[line] == 1 else given[line]
    if stride < tensor.shape[along]:
        raise InvalidValueError(_describe_mismatch(tensor, given))
    return stride


def _compare_strides(tensor: Tensor, given: tuple[int, ...]) -> None:
    pairs = zip(tensor.shape, tensor.strides, given, strict=True)
    if any(extent > 1 and wanted != real for extent, wanted, real in pairs):
        raise InvalidValueError(_describe_mismatch(tensor, given))


def _describe_mismatch(tensor: Tensor, given: tuple[int, ...]) -> str:
    return (
        f"{tensor.name} of shape {tensor.shape} has strides {given}, the problem's layout requires {tensor.strides}: "
        "copy it, or use a problem with its layout"
    )


def list_preparations(config: Config, _: Problem) -> tuple[Preparation, ...]:
    """The changes to inputs that a kernel requires. The problem must be supported."""
    return find_kind(config).preparations(config)
