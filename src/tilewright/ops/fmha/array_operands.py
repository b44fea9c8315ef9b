"""The arrays of attention as the tensors of its problem: a layout without copies if possible, and packed copies if not.

Kernels need packed tensors, all in one layout.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.arch.dtypes import ARRAY_TYPES
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.array_plan import ArrayLaunch, ArraySpec, choose_result, make_result
from tilewright.ops.fmha.array_options import AttentionOptions
from tilewright.ops.fmha.array_sizes import Operands, Sizes, swap_heads
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.problem import LAYOUTS, Problem
from tilewright.ops.fmha.tensors import list_tensors


@dataclass(frozen=True, slots=True)
class MemoryOrder:
    """The order of heads and tokens in memory: the layout of the problem.

    It is the caller's, or the other one (`swapped`) if all arrays are views of packed arrays in that order.
    """

    layout: str
    swapped: bool

    def view(self, array: ArraySpec) -> ArraySpec:
        """An array of tokens in the problem's layout, packed."""
        if self.swapped:
            return swap_heads(array)
        return array if array.is_packed else array.pack()

    def make_result(
        self, out: ArraySpec | None, name: str, argument: int, dtype: str, shape: tuple[int, ...]
    ) -> ArraySpec:
        """A result of tokens in the caller's layout, with memory in the problem's layout."""
        wanted = make_result(argument, name, dtype, shape)
        if self.swapped:
            wanted = swap_heads(make_result(argument, name, dtype, swap_heads(wanted).shape))
        if out is None:
            return wanted
        result = choose_result(out, name, argument, dtype, shape)
        stored = swap_heads(result) if self.swapped else result
        return result if stored.is_packed else dataclasses.replace(result, strides=wanted.strides, packed=True)

    def view_result(self, result: ArraySpec) -> ArraySpec:
        """A result of tokens in the problem's layout."""
        return swap_heads(result) if self.swapped else result


def find_memory(layout: str, *arrays: ArraySpec) -> MemoryOrder:
    """The layout that needs no copies, if there is one, else the caller's."""
    own = all(array.is_packed for array in arrays)
    other = all(swap_heads(array).is_packed for array in arrays)
    if own or not other:
        return MemoryOrder(layout, swapped=False)
    return MemoryOrder(next(name for name in LAYOUTS if name != layout), swapped=True)


def pack(array: ArraySpec) -> ArraySpec:
    """A packed array: the view itself, or of a copy."""
    return array if array.is_packed else array.pack()


def make_plain_result(out: ArraySpec | None, name: str, argument: int, dtype: str, shape: tuple[int, ...]) -> ArraySpec:
    """A packed result whose layout does not depend on the caller's."""
    return pack(choose_result(out, name, argument, dtype, shape))


def prepare_bias(given: Operands, options: AttentionOptions, sizes: Sizes, dtype: str) -> tuple[str, ArraySpec | None]:
    """The kind of the bias, and the array that is added to scores or has the slopes of ALiBi."""
    bias, slopes = given.bias, given.alibi_slopes
    if bias is None and slopes is None:
        return "none", None
    if bias is not None and slopes is not None:
        raise InvalidValueError("pass either bias or alibi_slopes: kernels have one of them")
    if options.softcap:
        name = "bias" if bias is not None else "alibi_slopes"
        raise InvalidValueError(f"softcap and {name} are both set: kernels cap scores only without a bias")
    if slopes is not None:
        _check_type(slopes, "fp32")
        return "alibi", _broadcast(slopes, (sizes.batch, sizes.heads))
    assert bias is not None
    _check_type(bias, DTYPES[dtype].bias)
    return "elementwise", _broadcast(bias, get_pair_shape(sizes))


def get_pair_shape(sizes: Sizes) -> tuple[int, ...]:
    """The shape of an array with a number for each pair of a query and a key."""
    return (*get_query_shape(sizes), sizes.length_k)


def get_query_shape(sizes: Sizes) -> tuple[int, ...]:
    """The shape of an array with a number for each query of each head."""
    return (sizes.heads, sizes.total_q) if sizes.packed else (sizes.batch, sizes.heads, sizes.length_q)


def _broadcast(array: ArraySpec, shape: tuple[int, ...]) -> ArraySpec:
    return pack(array) if array.shape == shape else array.expand(shape)


def _check_type(array: ArraySpec, dtype: str) -> None:
    if array.type != dtype:
        raise TensorError(f"{array.name} is {ARRAY_TYPES[array.dtype]}, must be {ARRAY_TYPES[dtype]}")


def make_launch(problem: Problem, arrays: dict[str, ArraySpec | None]) -> ArrayLaunch:
    """The launch of a problem, with its tensors by name."""
    inputs: list[ArraySpec] = []
    outputs: list[ArraySpec] = []
    for tensor in list_tensors(problem):
        array = arrays[tensor.name]
        assert array is not None, f"the problem has a tensor {tensor.name}"
        (outputs if tensor.output else inputs).append(array)
    return ArrayLaunch(problem, tuple(inputs), tuple(outputs))
