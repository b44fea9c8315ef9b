"""Kernels of each op that other tests build as well, and small problems that they compute: enough for real sweeps.

A kernel's name ends in a digest of all its fields. When fields were added, take the names anew from the tests' store.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.ops import find_op, parse_kernel
from tilewright.ops.kernel import Kernel

ARCH = "gfx942"
GEMM = """
standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-9a6900b412ca
standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-persistent-99de00993a14
standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-splitk-cd9db5c462c7
standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv4-intrawave-cshuffle-2b170e908187
standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv6-intrawave-cshuffle-d6e71084e7c2
standard-fp16-fp16-fp32-fp16-rcr-b64x64x16-w2x2x1-i16x16x16-mem-intrawave-cshuffle-a7885ded90c5
standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w1x1x2-i32x32x16-compv5-intrawave-default-wg2-85e3bce170f7
standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-e5782f51db2c
standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-padm-padn-padk-f4197df1400e
standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i32x32x8-compv3-intrawave-default-7e04677b01df
preshuffle-fp16-fp16-fp32-fp16-rcr-b16x128x64-w1x2x1-i16x16x32-preshufflev2-default-default-d4de8c405caa
preshuffle-fp16-fp16-fp32-fp16-rcr-b128x128x64-w1x4x1-i16x16x32-preshufflev2-default-cshuffle-padk-7cb726f871ac
"""
FORWARD = "forward-nd2-fp16-fp16-fp32-fp16"
WEIGHT = "backward_weight-nd2-fp16-fp16-fp32-fp16"
CONVOLUTION = f"""
{FORWARD}-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-v4x8x8-99f5e55b37fe
{FORWARD}-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-v4x8x8-for_filter1x1_pad0-a7af2ccd63f4
{FORWARD}-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-v4x8x8-for_filter1x1_stride1_pad0-f2e46eebebe7
{FORWARD}-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-v4x8x8-splitimage-82375fbc2e00
{FORWARD}-b32x32x32-w2x2x1-i16x16x16-mem-interwave-cshuffle-v4x4x4-e1718de66c15
{FORWARD}-b32x32x32-w2x2x1-i16x16x16-mem-intrawave-cshuffle-v4x4x4-cc54951d0bad
{FORWARD}-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-v8x8x4-9df786c49073
{FORWARD}-b64x64x32-w2x2x1-i16x16x32-compv3-intrawave-cshuffle-v1x1x8-d8d77e72f411
{WEIGHT}-b128x128x32-w2x2x1-i32x32x16-compv6-intrawave-cshuffle-v8x8x8-splitk-5513f1df00ce
{WEIGHT}-b128x16x64-w1x1x1-i16x16x32-compv4-intrawave-default-v8x8x1-splitk-twostage-cb37cc35dd4f
{WEIGHT}-b32x32x32-w2x2x1-i16x16x16-mem-interwave-cshuffle-v4x4x4-30c52615aece
{WEIGHT}-b32x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-v4x8x8-splitk-6c56b6310e03
"""
SMALL = "b64x64x16x32x16x32-w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk"
ASYNC = "w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk-padhq8-padhv8"
ASYNC_32 = "b128x64x16x32x16x32-w4x1x1x4x1x1-mma32x32x16x32x32x16-padq-padk-padhq8-padhv8"
ATTENTION = f"""
forward-batch-fp16-qr-{SMALL}-mask_any-lse-bd99e9df4d58
forward-batch-fp16-qr_whole_k-{SMALL}-mask_any-lse-2c9f61d49bc5
forward-batch-fp16-qs-{SMALL}-mask_any-lse-f7c9ac656db3
forward-batch-fp16-qr_async-{ASYNC_32}-mask_any-lse-drop-3d2f6c313c9d
forward-batch-fp16-qr-{SMALL}-lse-drop-2cfc15b026f3
forward-batch-fp16-qr-{SMALL}-padhq1-padhv1-lse-9b912e6566f9
forward-batch-fp16-qr_whole_k-{SMALL}-lse-drop-2e47f1d2b992
forward-batch-fp16-qr_whole_k-{SMALL}-lse-f5e8948392a1
forward-batch-fp16-qr_async-{ASYNC_32}-drop-ba0e1f0a9362
forward-batch-fp16-qr_async-b128x64x16x32x32x32-{ASYNC}-645892ca637a
forward-batch-fp16-qr_async-b64x64x16x64x32x64-{ASYNC}-551f69d563f9
forward-batch-fp16-qr_whole_k-{SMALL}-drop-eacca8ad4f4b
"""
# Sizes of queries and keys: single ones, around a tile, odd ones.
LENGTHS = {
    1: (64, 129),
    17: (65,),
    33: (16,),
    63: (64,),
    64: (64, 128),
    65: (17,),
    81: (133,),
    100: (3,),
    128: (64, 96),
}
# Channels in and out, and an image: one filter of each size for each direction.
IMAGES = ((16, 48, "12x13"), (64, 128, "1x64"), (64, 128, "1x65"), (64, 64, "6x6"), (64, 128, "1x1"), (32, 128, "7x7"))


@dataclass(frozen=True)
class Swept:
    """Kernels of an op, and the problems on which they are swept: a dozen for each kind of kernel."""

    op: str
    names: str
    problems: Callable[[], Iterator[Any]]

    def kernels(self) -> list[Kernel]:
        return [parse_kernel(f"{self.op}-{ARCH}-{name}") for name in self.names.split()]


def _products() -> Iterator[Any]:
    for m, n, k in itertools.product((64, 128), (128, 256), (64, 128, 192)):
        yield find_op("gemm").problem_type(m=m, n=n, k=k, dtype="fp16", layout="rcr")


def _convolutions() -> Iterator[Any]:
    problem = find_op("grouped_conv").problem_type
    for (c, k, size), groups in itertools.product(IMAGES, (1, 2)):
        shared = {"n": 1, "g": groups, "c": c * groups, "k": k * groups, "input_size": size, "dtype": "fp16"}
        yield problem(direction="forward", filter_size="1x1", **shared)
        yield problem(direction="backward_weight", filter_size="3x3", left_pad="1x1", right_pad="1x1", **shared)


def _attentions() -> Iterator[Any]:
    problem = find_op("fmha").problem_type
    lengths = [(queries, keys) for queries, listed in LENGTHS.items() for keys in listed]
    for queries, keys in lengths:
        shared = {"family": "forward", "dtype": "fp16", "heads": 2, "seqlen_q": queries, "seqlen_k": keys, "hdim_q": 32}
        yield problem(**shared)
        yield problem(lse=True, **shared)
        yield problem(lse=True, mask="bottom_right", **shared)


SWEPT = (
    Swept("gemm", GEMM, _products),
    Swept("grouped_conv", CONVOLUTION, _convolutions),
    Swept("fmha", ATTENTION, _attentions),
)
