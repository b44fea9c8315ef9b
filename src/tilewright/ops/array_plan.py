"""Functions for arrays: how an op turns the shapes of its arguments into launches of its problems.

An op declares such a function as a plain Python function and a planner. The planner gets an `ArraySpec` for each array
and returns an `ArrayPlan`. It never sees an address, so that a plan holds for all arrays of the same specs.
`tilewright.functions` selects, builds and runs the kernels.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright.arch.dtypes import ARRAY_TYPES
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.strides import packed_strides

# An array of the caller: a NumPy array, a torch tensor, a `View` or an object with `__dlpack__`.
Array: TypeAlias = Any
# A stream of Tilewright, torch or hip-python, or its handle.
StreamLike: TypeAlias = Any
# A device or its name.
DeviceLike: TypeAlias = Any
# The index of an argument that the function itself provides: zeros.
ZEROS = -1


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """A view of one argument: all of it, or a part. Strides and offset are in elements.

    `packed` means that it is a view of a packed copy of the argument: `pack` requests one. `order` are the dimensions
    of the argument in the order of this copy, or of a new result, outermost first; if it is empty, in their own order.
    `expanded` is the shape that the argument is broadcast to before it is copied: `expand` requests that.
    """

    argument: int
    name: str
    dtype: str  # as in `ARRAY_TYPES`: 8-bit floats with their encoding
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    packed: bool = False
    order: tuple[int, ...] = ()
    expanded: tuple[int, ...] | None = None

    @property
    def type(self) -> str:
        """The type as problems name it."""
        return self.dtype.partition("_")[0]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def pack(self, order: tuple[int, ...] = ()) -> ArraySpec:
        """The view of a copy of the whole argument without gaps. Only for an argument that is not changed yet.

        `order` are its dimensions in the order of the copy, outermost first.
        """
        return dataclasses.replace(self, strides=order_strides(self.shape, order), packed=True, order=order)

    def expand(self, shape: tuple[int, ...]) -> ArraySpec:
        """The view of a packed copy of this shape, in which dimensions of one element are repeated."""
        wanted = self.broadcast(shape)
        return dataclasses.replace(wanted, strides=packed_strides(shape), packed=True, expanded=shape)

    def permute(self, *order: int) -> ArraySpec:
        """The dimensions in another order."""
        return dataclasses.replace(
            self,
            shape=tuple(self.shape[place] for place in order),
            strides=tuple(self.strides[place] for place in order),
        )

    def transpose(self) -> ArraySpec:
        """The last two dimensions exchanged."""
        rest = range(len(self.shape) - 2)
        return self.permute(*rest, len(self.shape) - 1, len(self.shape) - 2)

    def select(self, index: int) -> ArraySpec:
        """One element of the first dimension."""
        return dataclasses.replace(
            self, shape=self.shape[1:], strides=self.strides[1:], offset=self.offset + index * self.strides[0]
        )

    def broadcast(self, shape: tuple[int, ...]) -> ArraySpec:
        """The view of this shape, in which repeated dimensions have stride 0. An error if shapes do not match."""
        missing = len(shape) - len(self.shape)
        own = (*(1,) * missing, *self.shape)
        strides = (*(0,) * missing, *self.strides)
        if missing < 0 or any(have not in (1, want) for have, want in zip(own, shape, strict=True)):
            raise TensorError(f"{self.name} of shape {self.shape} cannot be broadcast to {shape}")
        repeated = tuple(0 if have != want else stride for have, want, stride in zip(own, shape, strides, strict=True))
        return dataclasses.replace(self, shape=shape, strides=repeated)

    def merge_leading(self, keep: int) -> ArraySpec | None:
        """All dimensions but the last `keep` merged into one; None if memory order does not allow it."""
        split = len(self.shape) - keep
        extent, stride = 1, 0
        for size, step in zip(reversed(self.shape[:split]), reversed(self.strides[:split]), strict=True):
            if size == 1:
                continue
            if extent > 1 and step != extent * stride:
                return None
            if extent == 1:
                stride = step
            extent *= size
        if extent == 1:  # a dimension of one element may have any stride
            stride = packed_strides((1, *self.shape[split:]))[0]
        return dataclasses.replace(self, shape=(extent, *self.shape[split:]), strides=(stride, *self.strides[split:]))

    def view_rows(self) -> ArraySpec:
        """The whole argument as rows, whose elements are neighbours: a view, or else that of a packed copy."""
        columns = self.shape[-1]
        merged = self.merge_leading(1)
        if merged is not None and (self.strides[-1] == 1 or columns == 1) and merged.strides[0] >= columns:
            return merged
        return self.pack().reshape((math.prod(self.shape[:-1]), columns))

    def reshape(self, shape: tuple[int, ...]) -> ArraySpec:
        """Another shape of a packed view."""
        return dataclasses.replace(self, shape=shape, strides=packed_strides(shape))

    @property
    def is_packed(self) -> bool:
        """Whether elements are in row-major order without gaps."""
        wanted = packed_strides(self.shape)
        return all(size == 1 or have == want for size, have, want in zip(self.shape, self.strides, wanted, strict=True))


@dataclass(frozen=True, slots=True)
class ArrayLaunch:
    """One problem of a plan, with its inputs and outputs in the op's order."""

    problem: Any
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """The launches of a function for arguments of certain specs.

    `results` are the outputs that the caller gets, allocated with these strides unless the caller passes them: their
    `argument` counts on from the arguments. Outputs of launches are views of them. Without launches, `zeros` tells
    whether the results are to be filled with zeros; otherwise they are empty. `addend` is a view of an argument in the
    shape of the first result: it is added to this result after the launches.
    """

    results: tuple[ArraySpec, ...]
    launches: tuple[ArrayLaunch, ...] = ()
    zeros: bool = False
    addend: ArraySpec | None = None


def order_strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps of dimensions in this order, outermost first; in their own order if it is empty."""
    if not order:
        return packed_strides(shape)
    steps = dict(zip(order, packed_strides(tuple(shape[place] for place in order)), strict=True))
    return tuple(steps[place] for place in range(len(shape)))


def make_result(argument: int, name: str, dtype: str, shape: tuple[int, ...], order: tuple[int, ...] = ()) -> ArraySpec:
    """A packed result. `order` are its dimensions in the order of memory, outermost first."""
    return ArraySpec(argument, name, dtype, shape, order_strides(shape, order), order=order)


def choose_result(
    out: ArraySpec | None,
    name: str,
    argument: int,
    dtype: str,
    shape: tuple[int, ...],
    order: tuple[int, ...] = (),
) -> ArraySpec:
    """The array that the caller passed for a result, checked, or a new packed one, as of `make_result`."""
    if out is None:
        return make_result(argument, name, dtype, shape, order)
    if out.shape != shape or out.dtype != dtype:
        wanted = "×".join(map(str, shape))
        have = "×".join(map(str, out.shape))
        raise TensorError(f"{name} is {have} of {ARRAY_TYPES[out.dtype]}, must be {wanted} of {ARRAY_TYPES[dtype]}")
    return out


def match_results(
    passed: Sequence[object], results: Sequence[str], argument: str = "out"
) -> tuple[ArraySpec | None, ...]:
    """The arrays that the caller passed in `argument`, one for each result, by their names; None for each if none."""
    given = [each for each in passed if isinstance(each, ArraySpec)]
    if given and len(given) != len(results):
        names = ", ".join(results)
        raise InvalidValueError(f"{argument} has {len(given)} arrays, but there are {len(results)} results: {names}")
    return tuple(given) or (None,) * len(results)


def make_zeros(dtype: str, shape: tuple[int, ...]) -> ArraySpec:
    """An input of zeros that the caller does not pass."""
    return ArraySpec(ZEROS, "zeros", dtype, shape, packed_strides(shape))


def check_same_type(first: ArraySpec, *others: ArraySpec | None) -> None:
    """Require one element type of all arrays."""
    for other in others:
        if other is not None and other.dtype != first.dtype:
            names = f"{first.name} is {ARRAY_TYPES[first.dtype]}, {other.name} is {ARRAY_TYPES[other.dtype]}"
            raise TensorError(f"{names}: convert one of them, kernels need the same type")


class ArrayFunction:
    """A function for arrays of an op: its planner, and the names of its arrays.

    A planner gets the GPU, the spec of each array (None for one that is not passed) and of the result that the caller
    passes (None otherwise), and the options of the call. The first `required` arrays are always passed.
    """

    __slots__ = ("_compute", "names", "planner", "required")

    def __init__(self, planner: Callable[..., ArrayPlan], *names: str, required: int = 1) -> None:
        self.planner = planner
        self.names = names
        self.required = required
        self._compute: Callable[..., Any] | None = None

    def __call__(
        self, arrays: tuple[Any, ...], out: Any = None, stream: Any = None, device: Any = None, *options: Hashable
    ) -> Any:
        """Compute the function. Arrays that are not passed are None; those at the end may be left out."""
        if self._compute is None:
            # The layer above, which builds and runs kernels.
            self._compute = importlib.import_module("tilewright.functions.compute").compute
        return self._compute(self, arrays, out, stream, device, options)
