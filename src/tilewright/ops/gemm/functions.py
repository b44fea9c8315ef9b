"""`matmul`: products of arrays, with the problem and the layout taken from the arrays."""

from __future__ import annotations

import itertools
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
)
from tilewright.ops.block_gemm.array_layouts import find_layout
from tilewright.ops.block_gemm.types import OUTPUTS
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import batch_strides

# The number of arguments, after which the result is counted.
RESULT = 3
# Names of activations as frameworks spell them.
ACTIVATIONS = {
    "relu": "Relu",
    "gelu": "Gelu",
    "gelu_tanh": "FastGelu",
    "silu": "Silu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
}


def matmul(
    a: Array,
    b: Array,
    *,
    bias: Array = None,
    activation: str | None = None,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Array:
    """The matrix product of two arrays, `activation(a @ b + bias)`.

    The last two dimensions of `a` (…, m, k) and `b` (…, k, n) are matrices, and leading dimensions are broadcast, as in
    `numpy.matmul`; a vector is a matrix of one row (`a`) or one column (`b`). Any strides are accepted: `w.T` is not
    copied. `bias` is a vector (n,), or an array that can be broadcast to the result. `activation` is one of relu, gelu,
    gelu_tanh, silu, sigmoid and tanh. Both are applied after the product is rounded to the result's type. bf16 results
    are truncated if kernels are compiled with HIP headers before 6.5.50421.

    The kernel is selected, and built if necessary, on the first call for these shapes. Arrays may be NumPy arrays,
    torch tensors or objects with `__dlpack__`; the result is of the same library. `tilewright.options` sets the device
    and how kernels are selected.
    """
    arrays = (a, b) if bias is None else (a, b, bias)
    return _matmul(arrays, out, stream, device, activation)


def plan_matmul(
    arch: Arch,  # noqa: ARG001  (planners of other ops depend on it)
    a: ArraySpec,
    b: ArraySpec,
    bias: ArraySpec | None,
    out: ArraySpec | None,
    activation: str | None,
) -> ArrayPlan:
    """The launches of a product: one if possible, else one for each product of a batch."""
    check_same_type(a, b, bias)
    operation = "PassThrough" if activation is None else ACTIVATIONS[choose("activation", activation, ACTIVATIONS)]
    for array in (a, b):
        if not array.shape:
            raise TensorError(f"{array.name} has no dimensions: multiply by a number with your array library")
    left = _make_usable(a, of_b=False)
    right = _make_usable(b, of_b=True)
    (m, k), n = left.shape[-2:], right.shape[-1]
    if right.shape[-2] != k:
        raise TensorError(f"a is {_format_shape(a)} and b is {_format_shape(b)}: {k} columns of a need {k} rows of b")
    batch = _broadcast_batch(left, right)
    shape = (*batch, *((m,) if len(a.shape) > 1 else ()), *((n,) if len(b.shape) > 1 else ()))
    if not shape:
        raise TensorError("a and b are vectors: pass at least one matrix, or use the dot product of your array library")
    result = choose_result(out, "out", RESULT, OUTPUTS.get(a.type, a.dtype), shape)
    if 0 in (*shape, k):
        if result.size and (bias is not None or activation is not None):
            raise InvalidValueError("k is 0: a product without terms cannot have a bias or an activation")
        return ArrayPlan((result,), zeros=True)
    operands = _Operands(left, right, _prepare_bias(bias, shape), operation)
    return operands.plan_launches(result, batch)


def _make_usable(array: ArraySpec, *, of_b: bool) -> ArraySpec:
    """The matrices of an argument, packed if a kernel cannot read them as they are."""
    matrices = _view_as_matrices(array, of_b)
    return matrices if find_layout(matrices, of_b) else _view_as_matrices(array.pack(), of_b)


def _view_as_matrices(array: ArraySpec, of_b: bool) -> ArraySpec:
    if len(array.shape) > 1:
        return array
    row = array.broadcast((1, *array.shape))
    return row.transpose() if of_b else row


def _broadcast_batch(a: ArraySpec, b: ArraySpec) -> tuple[int, ...]:
    """The leading dimensions of the result."""
    pairs = list(itertools.zip_longest(reversed(a.shape[:-2]), reversed(b.shape[:-2]), fillvalue=1))
    if any(one != two and 1 not in (one, two) for one, two in pairs):
        raise TensorError(
            f"a is {_format_shape(a)} and b is {_format_shape(b)}: their leading dimensions cannot be broadcast"
        )
    return tuple(two if one == 1 else one for one, two in reversed(pairs))


def _format_shape(array: ArraySpec) -> str:
    return "×".join(map(str, array.shape))


def _prepare_bias(bias: ArraySpec | None, shape: tuple[int, ...]) -> ArraySpec | None:
    """The bias as a vector (n,), or packed in the shape of the result."""
    if bias is None:
        return None
    if bias.shape == shape[-1:]:
        return bias if bias.strides == (1,) else bias.pack()
    if bias.shape == shape:
        return bias if bias.is_packed else bias.pack()
    wanted = "×".join(map(str, shape))
    raise TensorError(
        f"bias is {_format_shape(bias)}, must be a vector of {shape[-1]} elements or have the result's shape {wanted}"
    )


@dataclass(frozen=True, slots=True)
class _Operands:
    """The matrices of a product with their leading dimensions, and the operation on it."""

    a: ArraySpec
    b: ArraySpec
    bias: ArraySpec | None
    operation: str

    def plan_launches(self, result: ArraySpec, batch: tuple[int, ...]) -> ArrayPlan:
        m, n = self.a.shape[-2], self.b.shape[-1]
        if not _can_store(result, m, n):
            result = result.pack()
        if math.prod(self.b.shape[:-2]) == 1:
            rows, stored = self.a.merge_leading(1), _view_as_rows(result, n)
            if rows is not None and stored is not None and find_layout(rows, of_b=False):
                return ArrayPlan(
                    (result,), (self._make_launch(rows, _drop_batch(self.b), stored, self._get_bias(0, 1)),)
                )
        count = math.prod(batch)
        flat = _view_as_batch(result, count, m, n)
        if flat is None:
            result = result.pack()
            flat = result.reshape((count, m, n))
        a, b = (each.broadcast((*batch, *each.shape[-2:])) for each in (self.a, self.b))
        launch = self._plan_batched(a, b, flat)
        if launch is not None:
            return ArrayPlan((result,), (launch,))
        places = itertools.product(*map(range, batch))
        launches = [
            self._make_launch(_select_all(a, place), _select_all(b, place), flat.select(i), self._get_bias(i, count))
            for i, place in enumerate(places)
        ]
        return ArrayPlan((result,), tuple(launches))

    def _get_bias(self, index: int, count: int) -> ArraySpec | None:
        """The bias of one of `count` products: a vector, or its part of the whole bias."""
        if self.bias is None or len(self.bias.shape) == 1:
            return self.bias
        n = self.bias.shape[-1]
        return self.bias.reshape((count, self.bias.size // count // n, n)).select(index)

    def _plan_batched(self, a: ArraySpec, b: ArraySpec, out: ArraySpec) -> ArrayLaunch | None:
        """One launch for all products, if they follow each other in memory."""
        if len(out.shape) < 3 or out.shape[0] == 1 or self.bias is not None or self.operation != "PassThrough":
            return None
        merged = [each.merge_leading(2) for each in (a, b)]
        if merged[0] is None or merged[1] is None:
            return None
        problem = Problem(**_describe(merged[0], merged[1], out), batch=out.shape[0])
        steps = {"a": merged[0].strides[0], "b": merged[1].strides[0], "c": out.strides[0]}
        return ArrayLaunch(problem, (merged[0], merged[1]), (out,)) if batch_strides(problem) == steps else None

    def _make_launch(self, a: ArraySpec, b: ArraySpec, out: ArraySpec, bias: ArraySpec | None) -> ArrayLaunch:
        values = _describe(a, b, out)
        if bias is None and self.operation == "PassThrough":
            return ArrayLaunch(Problem(**values), (a, b), (out,))
        # Kernels with an element-wise operation have at least one D tensor.
        d = make_zeros(out.dtype, out.shape[-1:]) if bias is None else bias
        operation = "MultiDAdd" if self.operation == "PassThrough" else self.operation
        problem = Problem(**values, elementwise=operation, num_d=1, num_row_d=int(len(d.shape) == 1))
        return ArrayLaunch(problem, (a, b, d), (out,))


def _describe(a: ArraySpec, b: ArraySpec, out: ArraySpec) -> dict[str, Any]:
    """The fields of the problem of one product."""
    layouts = find_layout(a, of_b=False), find_layout(b, of_b=True), find_layout(out, of_b=False)
    (of_a, stride_a), (of_b, stride_b), (of_c, stride_c) = (layout or ("r", 0) for layout in layouts)
    return {
        **{"m": a.shape[-2], "n": b.shape[-1], "k": a.shape[-1], "layout": of_a + of_b + of_c},
        **{"dtype_a": a.type, "dtype_b": b.type, "dtype_c": out.type},
        **{"stride_a": stride_a, "stride_b": stride_b, "stride_c": stride_c},
    }


def _can_store(result: ArraySpec, m: int, n: int) -> bool:
    """Whether a kernel can store matrices into the result: rows are contiguous."""
    return n == 1 or m == 1 or (result.strides[-1] == 1 and result.strides[-2] >= n)


def _view_as_rows(result: ArraySpec, n: int) -> ArraySpec | None:
    """The result as a single matrix of rows of n elements."""
    if len(result.shape) == 1:
        return result.broadcast((1, n)) if result.shape == (n,) else None
    return result.merge_leading(1) if result.shape[-1] == n else None


def _view_as_batch(result: ArraySpec, count: int, m: int, n: int) -> ArraySpec | None:
    """The result as `count` matrices."""
    if result.is_packed:
        return result.reshape((count, m, n))
    return result.merge_leading(2) if result.shape[-2:] == (m, n) else None


def _drop_batch(array: ArraySpec) -> ArraySpec:
    return _select_all(array, (0,) * (len(array.shape) - 2))


def _select_all(array: ArraySpec, place: tuple[int, ...]) -> ArraySpec:
    """The matrix at an index of the leading dimensions."""
    for index in place:
        array = array.select(index)
    return array


_matmul = ArrayFunction(plan_matmul, "a", "b", "bias", required=2)
