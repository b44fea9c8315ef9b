"""The C struct of a convolution call, `tw_grouped_conv_args` of abi.h, and its values for a problem."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from tilewright.ops.grouped_conv.config import NDIMS
from tilewright.ops.grouped_conv.problem import Problem

MAX_NDIM = max(NDIMS)
_EXTENTS = ("input_size", "filter_size", "stride", "dilation", "left_pad", "right_pad")


class ConvArgs(ctypes.Structure):
    """tw_grouped_conv_args, field by field."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("ndim", "n", "g", "channels_in", "channels_out")),
        *((name, ctypes.c_int64 * MAX_NDIM) for name in _EXTENTS),
        ("k_batch", ctypes.c_int64),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_uint64),
    )


def make_arguments(problem: Problem) -> ConvArgs:
    """The struct of a problem, without addresses."""
    args = ConvArgs(size=ctypes.sizeof(ConvArgs), ndim=problem.ndim, n=problem.n, g=problem.g, k_batch=problem.k_batch)
    args.channels_in, args.channels_out = problem.c, problem.k
    for name in _EXTENTS:
        getattr(args, name)[: problem.ndim] = getattr(problem, name)
    return args


def make_address_setter(problem: Problem) -> Callable[[ConvArgs, Sequence[int]], None]:  # noqa: ARG001
    """The function that writes the addresses of A, B and C into the struct."""
    return _put_addresses


def _put_addresses(args: ConvArgs, addresses: Sequence[int]) -> None:
    args.a, args.b, args.c = addresses
