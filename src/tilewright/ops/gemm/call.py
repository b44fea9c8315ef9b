"""The C struct of a GEMM call, `tw_gemm_args` of abi.h, and its values for a problem."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from tilewright.ops.gemm.config import MAX_D
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import batch_strides

_SIZES = ("m", "n", "k", "stride_a", "stride_b", "stride_c")


class GemmArgs(ctypes.Structure):
    """tw_gemm_args, field by field."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("d", ctypes.c_void_p * MAX_D),
        *((name, ctypes.c_int64) for name in _SIZES),
        ("stride_d", ctypes.c_int64 * MAX_D),
        ("k_batch", ctypes.c_int64),
        ("batch", ctypes.c_int64),
        *((f"batch_stride_{name}", ctypes.c_int64) for name in "abc"),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_uint64),
    )


def make_arguments(problem: Problem) -> GemmArgs:
    """The struct of a problem, without addresses."""
    args = GemmArgs(size=ctypes.sizeof(GemmArgs), k_batch=problem.k_batch, batch=problem.batch)
    for name in _SIZES:
        setattr(args, name, getattr(problem, name))
    for i in range(problem.num_d):
        args.stride_d[i] = problem.n
    for name, stride in batch_strides(problem).items():
        setattr(args, f"batch_stride_{name}", stride)
    return args


def make_address_setter(problem: Problem) -> Callable[[GemmArgs, Sequence[int]], None]:  # noqa: ARG001
    """The function that writes the addresses of a, b, d0 …, c into the struct."""
    return _put_addresses


def _put_addresses(args: GemmArgs, addresses: Sequence[int]) -> None:
    args.a, args.b, *ds, args.c = addresses
    for i, address in enumerate(ds):
        args.d[i] = address
