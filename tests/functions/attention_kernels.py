"""The attention kernels of these tests, from CI's list: one small kernel for each feature."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tilewright as tw
from built_kernels import built
from tilewright.ops.kernel import Kernel

_SMALL = "b64x64x16x32x16x32-w4x1x1x4x1x1-mma16x16x16x16x16x16"
_HEADS_OF_64 = "b64x64x32x64x32x64-w4x1x1x4x1x1-mma16x16x16x16x16x16"
_GRADIENTS = "b16x64x64x16x64x16x32x64x64-w1x4x1x4x1x1x1x4x1-mma16x16x32x16x16x16x16x16x32"
NAMES = {
    "masked": f"fmha-gfx942-forward-batch-fp16-qr-{_SMALL}-padq-padk-mask_any-lse-bd99e9df4d58",
    "plain": f"fmha-gfx942-forward-batch-fp16-qr-{_SMALL}-padq-padk-lse-fed4180a2494",
    "dropout": f"fmha-gfx942-forward-batch-fp16-qr-{_SMALL}-padq-padk-lse-drop-2cfc15b026f3",
    "bf16": f"fmha-gfx942-forward-batch-bf16-qr-{_SMALL}-padq-padk-5e8af53166bc",
    "packed": f"fmha-gfx942-forward-group-fp16-qr-{_HEADS_OF_64}-padq-padk-mask_any-lse-e1d7a3060ba6",
    "bias": "fmha-gfx90a-forward-batch-fp32-qr_async-b32x64x16x32x32x32-w2x1x1x2x1x1-mma16x16x16x16x16x16-padq-padhq8-"
    "padhv8-bias_elementwise-1dbc587a7763",
    "split": f"fmha-gfx942-splitkv-batch-fp16-qr-{_HEADS_OF_64}-padq-padk-mask_any-uneven-4d5e1c44045f",
    "paged": f"fmha-gfx942-splitkv-batch-fp16-qr-{_HEADS_OF_64}-padq-padk-paged-uneven-e6ae3547255d",
    "combine": "fmha-gfx942-combine-batch-fp16-combine-b32x64-padq-splits3-eceb5069a7cd",
    "combine_lse": "fmha-gfx942-combine-batch-fp16-combine-b32x64-padq-lse-splits3-7b13d595301b",
    "cache": f"fmha-gfx90a-pagedkv-batch-fp16-qr_pagedkv-{_SMALL}-mask_window-d850d783eea2",
    "append": "fmha-gfx942-appendkv-batch-fp16-appendkv-b64x64x64x64-padq-padk-rope_half-ba6f0e4abf37",
    "append_pages": "fmha-gfx942-appendkv-batch-fp16-appendkv-b64x64x64x64-padq-padk-paged-rope_half-1630b0d49330",
    "dot_do_o": "fmha-gfx942-dot_do_o-batch-fp16-dot_do_o-b64x128-padq-padhv1-997d5ff2e0af",
    "gradients": "fmha-gfx942-dq_dk_dv-batch-fp16-kr_ktr_vr_iglp-b16x64x64x16x64x16x32x64x64-w1x4x1x4x1x1x1x4x1-"
    "mma16x16x32x16x16x16x16x16x32-padhq8-padhv8-5e85686d0453",
    "masked_gradients": "fmha-gfx942-dq_dk_dv-batch-fp16-kr_ktr_vr_iglp-b16x64x64x16x64x16x32x64x64-w1x4x1x4x1x1x1x4x1-"
    "mma16x16x32x16x16x16x16x16x32-padhq8-padhv8-mask_causal-6443535c2635",
    "causal_gradients": "fmha-gfx942-dq_dk_dv-batch-fp16-kr_ktr_vr-b16x128x128x16x128x16x32x128x128-w1x4x1x4x1x1x1x4x1-"
    "mma16x16x32x16x16x16x16x16x32-mask_causal-3913b9c64d7e",
    "packed_plain": f"fmha-gfx942-forward-group-fp16-qr-{_HEADS_OF_64}-padq-padk-lse-44c8a71c20e1",
    "packed_dot_do_o": "fmha-gfx942-dot_do_o-group-fp16-dot_do_o-b64x128-padq-padhv1-708a526ca30e",
    "packed_gradients": f"fmha-gfx942-dq_dk_dv-group-fp16-kr_ktr_vr_iglp-{_GRADIENTS}-padhq8-padhv8-804906c30340",
    "packed_masked_gradients": f"fmha-gfx942-dq_dk_dv-group-fp16-kr_ktr_vr_iglp-{_GRADIENTS}-padhq8-padhv8-mask_any-"
    "65caa8681566",
    "packed_convert_dq": "fmha-gfx942-convert_dq-group-fp16-convert_dq-b128x32x64x128-padq-padhq1-dbd6de0922c3",
    "convert_dq": "fmha-gfx942-convert_dq-batch-fp16-convert_dq-b128x32x64x128-padq-padhq1-801a48e72cc2",
}


def get_kernels(*names: str) -> list[Kernel]:
    return [tw.parse_kernel(NAMES[name]) for name in names]


@contextmanager
def use_kernels(*names: str) -> Iterator[None]:
    """Functions select from these kernels, on an emulated device of their GPU. They are in the tests' store."""
    kernels = get_kernels(*names)
    built(kernels)
    with tw.options(device=f"emulated:{kernels[0].arch}", pool=kernels, build="never"):
        yield
