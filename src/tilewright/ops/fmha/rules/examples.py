"""Example configs of rules, as changes of the op's example, a forward kernel with the pipeline qr."""

from __future__ import annotations

from typing import Any

MMA_16 = (16, 16, 16, 16, 16, 16)

ASYNC = dict[str, Any](pipeline="qr_async", pad_hdim_q=8, pad_hdim_v=8)
V3 = dict[str, Any](
    pipeline="v3", block=(256, 32, 128, 128, 32, 128), waves=(8, 1, 1, 8, 1, 1), mma=(32, 32, 16, 32, 32, 16)
)
TRLOAD = dict[str, Any](pipeline="qr_async_trload", block=(64, 64, 64, 64, 32, 64), mma=(16, 16, 32, 16, 16, 32))

SPLIT = dict[str, Any](family="splitkv", uneven_splits=True)
SPLIT_NWARP: dict[str, Any] = SPLIT | dict[str, Any](
    pipeline="qr_nwarp_sshuffle", block=(16, 64, 32, 128, 32, 128), waves=(1, 4, 1, 1, 4, 1), mma=MMA_16
)
COMBINED = dict[str, Any](
    family="combine", pipeline="combine", block=(32, 128), waves=(), mma=(), pad_k=False, log_max_splits=3
)
PAGED = dict[str, Any](family="pagedkv", pipeline="qr_pagedkv", paged=True)
PREFILL = dict[str, Any](family="batch_prefill", pipeline="qr_async", paged=True, pad_hdim_q=8, pad_hdim_v=8)
APPEND = dict[str, Any](family="appendkv", pipeline="appendkv", block=(64, 64, 128, 128), waves=(), mma=())

GRADIENT_TILE = dict[str, Any](
    family="dq_dk_dv",
    pipeline="kr_ktr_vr",
    block=(32, 128, 64, 32, 64, 32, 32, 64, 64),
    waves=(1, 4, 1, 4, 1, 1, 1, 4, 1),
    mma=(16, 16, 32, 16, 16, 16, 16, 16, 32),
)
GRADIENT: dict[str, Any] = GRADIENT_TILE | dict[str, Any](pad_q=False, pad_k=False, pad_hdim_q=8, pad_hdim_v=8)
GRADIENT_TRLOAD: dict[str, Any] = GRADIENT | {"pipeline": "trload_kr_ktr_vr"}
# One work-group with all queries of a head in one tile.
GRADIENT_DECODE: dict[str, Any] = GRADIENT | dict[str, Any](
    pipeline="trload_qr_qtr_dor", block=(32, 32, 64, 32, 64, 32, 32, 64, 64), max_seqlen_q=32, waves=(1,) * 9
)
DOT = dict[str, Any](family="dot_do_o", pipeline="dot_do_o", block=(64, 64), waves=(), mma=(), pad_k=False)
CONVERT: dict[str, Any] = DOT | dict[str, Any](family="convert_dq", pipeline="convert_dq", block=(64, 64, 64, 64))
