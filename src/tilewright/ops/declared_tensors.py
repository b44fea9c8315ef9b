"""Tensors as a table: for each, the fields of a problem that give its shape, its type and the distance of its rows.

For ops whose tensors are packed vectors, and matrices in which the elements of a row are neighbours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.base.errors import choose
from tilewright.ops.call_struct import Member, declare_pointer
from tilewright.ops.execution import Tensor
from tilewright.ops.strides import check_strides, packed_strides

P = TypeVar("P")  # a problem


def _always(problem: object) -> bool:  # noqa: ARG001
    return True


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """A tensor that some problems have.

    `shape` are the problem's fields with its sizes. `dtype` is the field with its type; without one, it is fp32.
    `stride` is the field with the elements between neighbouring rows of a matrix; without one, it is packed.
    """

    name: str
    shape: tuple[str, ...]
    dtype: str = ""
    is_present: Callable[[Any], bool] = _always
    doc: str = ""
    stride: str = ""
    output: bool = False


def list_present(declared: Sequence[DeclaredTensor], problem: object) -> tuple[Tensor, ...]:
    """The tensors of a problem, in the order of their declarations."""
    return tuple(_make_tensor(each, problem) for each in declared if each.is_present(problem))


def _make_tensor(declared: DeclaredTensor, problem: object) -> Tensor:
    shape = tuple(getattr(problem, field) for field in declared.shape)
    strides = (getattr(problem, declared.stride), 1) if declared.stride else packed_strides(shape)
    dtype = getattr(problem, declared.dtype) if declared.dtype else "fp32"
    return Tensor(declared.name, dtype, shape, strides, output=declared.output)


def apply_row_strides(
    declared: Sequence[DeclaredTensor], problem: P, strides: Mapping[str, tuple[int, ...]], who: str
) -> P:
    """The problem with the actual strides of its tensors, by name. An error, with the words `who`, if the elements of
    a row are not neighbours, or a tensor without a stride has gaps."""
    fields = {each.name: each.stride for each in declared if each.stride}
    known = {tensor.name: tensor for tensor in list_present(declared, problem)}
    changes: dict[str, Any] = {}
    for name, given in strides.items():
        shape = known[choose("tensor of the problem", name, known)].shape
        if name in fields and len(given) == len(shape) and shape[0] > 1 and given[0] >= shape[1]:
            changes[fields[name]] = given[0]
    changed: P = dataclasses.replace(problem, **changes)  # type: ignore[type-var]
    check_strides(list_present(declared, changed), strides, who, "copy it")
    return changed


def declare_pointers(declared: Sequence[DeclaredTensor]) -> tuple[Member, ...]:
    """The addresses of all tensors as members of a C struct, each with a comment on its shape and type."""
    return tuple(
        declare_pointer(each.name, _describe(each), c_type="void" if each.output else "const void") for each in declared
    )


def _describe(declared: DeclaredTensor) -> str:
    shape = "matrix" if len(declared.shape) > 1 else declared.shape[0]
    return f"{shape}{'' if declared.dtype else ', float'}{f': {declared.doc}' if declared.doc else ''}"
