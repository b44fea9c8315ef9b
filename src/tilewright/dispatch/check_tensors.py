"""Checks of the tensors that are passed for a problem: number, place, shapes and types, and the memory they share.

An output must not share memory with another tensor, and its elements must not overlap: a kernel reads its inputs while
it writes its outputs, in an undefined order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.arch.spec import Arch
from tilewright.base.errors import TensorError
from tilewright.dispatch.tensors import SIZES, TensorSpec, View, find_array_type, format_shape
from tilewright.ops.execution import Execution, Tensor

# NumPy's limit of steps to decide whether two strided tensors share an element: some 10 ms.
_MOST_WORK = 100_000


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


class DisjointPair(NamedTuple):
    """An output and another tensor, by their index among the tensors of a problem.

    They can share memory only if `least < address of the output - address of the other < most`.
    """

    output: int
    other: int
    least: int
    most: int


def list_disjoint_pairs(
    tensors: Sequence[Tensor], forms: Sequence[TensorSpec | None], *, inputs: bool = True
) -> tuple[DisjointPair, ...]:
    """Every output with each tensor that must not share its memory; without `inputs`, with other outputs only.

    An output that must be allocated has no spec: it has its own memory.
    """
    pairs = []
    for place, (tensor, form) in enumerate(zip(tensors, forms, strict=True)):
        if not tensor.output or form is None:
            continue
        for other, (against, shape) in enumerate(zip(tensors, forms, strict=True)):
            if shape is None or other == place or (other < place if against.output else not inputs):
                continue
            (low, high), (other_low, other_high) = _compute_extent(form), _compute_extent(shape)
            pairs.append(DisjointPair(place, other, other_low - high, other_high - low))
    return tuple(pairs)


def check_disjoint(pairs: Sequence[DisjointPair], tensors: Sequence[Tensor], views: Sequence[Any]) -> None:
    """Raise `TensorError` if an output shares memory with another tensor."""
    for pair in pairs:
        output, other = views[pair.output], views[pair.other]
        distance = output.address - other.address
        if pair.least < distance < pair.most and _has_shared_elements(output.form, other.form, distance) is not False:
            raise _make_overlap_error(tensors[pair.output], output, tensors[pair.other], other)


def check_outputs(tensors: Sequence[Tensor], views: Sequence[View | None]) -> None:
    """Raise `TensorError` if two elements of an output have the same address, as in a broadcast view."""
    for tensor, view in zip(tensors, views, strict=True):
        if tensor.output and view is not None and _has_repeated_elements(view.form):
            raise TensorError(
                f"{tensor.name} is an output, and its elements share memory with each other: shape {view.shape}, "
                f"strides {view.strides}. Pass a tensor in which every element has its own address."
            )


def _make_overlap_error(tensor: Tensor, output: View, against: Tensor, other: View) -> TensorError:
    extents = [(view.address, *_compute_extent(view.form)) for view in (output, other)]
    start = max(address + low for address, low, _ in extents)
    end = min(address + high for address, _, high in extents)
    sure = _has_shared_elements(output.form, other.form, output.address - other.address)
    return TensorError(
        f"{tensor.name} is an output, and it {'shares' if sure else 'may share'} memory with the "
        f"{'output' if against.output else 'input'} {against.name}: both span the {end - start:,} bytes from "
        f"{start:#x} to {end:#x}. A kernel writes while it reads, so results would be wrong: pass an output with "
        "its own memory."
    )


def _compute_extent(form: TensorSpec) -> tuple[int, int]:
    """The byte range of a tensor relative to its address: the first byte, and the one after the last."""
    reach = [(extent - 1) * stride for extent, stride in zip(form.shape, form.strides, strict=True)]
    size = SIZES[form.dtype]
    return sum(step for step in reach if step < 0) * size, (sum(step for step in reach if step > 0) + 1) * size


@functools.lru_cache(maxsize=256)
def _has_shared_elements(output: TensorSpec, other: TensorSpec, distance: int) -> bool | None:
    """Whether both have a byte in common. `distance` is the output's address minus the other's. None: unknown.

    Interleaved views, such as the parts of one packed tensor, have overlapping spans and no byte in common. NumPy
    decides it from addresses and strides; the memory is not read. Without NumPy the result is unknown.
    """
    try:
        import numpy as np  # noqa: PLC0415  (costs start-up time, and is an optional package)
    except ImportError:
        return None
    # Any address works as long as the distance is right: nothing is read.
    base = 1 << 46
    arrays = [
        np.asarray(_ArrayInterface(form, address)) for form, address in ((output, base + distance), (other, base))
    ]
    shares_memory: Any = np.shares_memory  # its stub knows only 0 and -1 for max_work
    try:
        return bool(shares_memory(*arrays, max_work=_MOST_WORK))
    except np.exceptions.TooHardError:
        return None


class _ArrayInterface:
    """A tensor spec at an address, as NumPy's array interface."""

    def __init__(self, form: TensorSpec, address: int) -> None:
        size = SIZES[form.dtype]
        self.__array_interface__ = {
            "version": 3,
            "shape": form.shape,
            "typestr": f"|V{size}",
            "strides": tuple(stride * size for stride in form.strides),
            "data": (address, True),
        }


def _has_repeated_elements(form: TensorSpec) -> bool:
    """Whether two elements may have the same address: a stride is not larger than the span of inner dimensions."""
    reach = 0
    for stride, extent in sorted(
        (abs(stride), extent) for stride, extent in zip(form.strides, form.shape, strict=True)
    ):
        if extent > 1:
            if stride <= reach:
                return True
            reach += stride * (extent - 1)
    return False
