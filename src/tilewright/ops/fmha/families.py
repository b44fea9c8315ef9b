"""The families of attention kernels: their computation, the names of their tile numbers, and their pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# A problem of one of these families is computed by one kernel.
FORWARD, PAGEDKV, SPLITKV, COMBINE = "forward", "pagedkv", "splitkv", "combine"
APPENDKV, BATCH_PREFILL = "appendkv", "batch_prefill"
DOT_DO_O, DQ_DK_DV, CONVERT_DQ = "dot_do_o", "dq_dk_dv", "convert_dq"
# Three kernels compute it: dot_do_o, dq_dk_dv, convert_dq. A forward problem with splits takes two: splitkv, combine.
BACKWARD = "backward"
# Families that compute scores: products of queries and keys.
SCORING = (FORWARD, PAGEDKV, SPLITKV, BATCH_PREFILL, DQ_DK_DV)

_FORWARD_BLOCK = ("m0", "n0", "k0", "n1", "k1", "hdim_q")


@dataclass(frozen=True, slots=True)
class Family:
    """`block` names the numbers of a work-group's tile; `gemms` is the number of triples in waves and mma."""

    doc: str
    block: tuple[str, ...]
    gemms: int
    pipelines: tuple[str, ...]


FAMILIES: dict[str, Family] = {
    FORWARD: Family(
        "attention in one kernel",
        _FORWARD_BLOCK,
        2,
        ("qr", "qr_async", "qr_async_trload", "qr_whole_k", "qs", "v3"),
    ),
    PAGEDKV: Family("attention over a cache of pages", _FORWARD_BLOCK, 2, ("qr_pagedkv",)),
    SPLITKV: Family(
        "attention over parts of the keys; combine merges them", _FORWARD_BLOCK, 2, ("qr", "qr_nwarp_sshuffle")
    ),
    COMBINE: Family("merges the partial results of splitkv", ("n1", "hdim_v"), 0, ("combine",)),
    APPENDKV: Family(
        "writes new keys and values to a cache, rotated", ("m0", "n0", "hdim_q", "hdim_v"), 0, ("appendkv",)
    ),
    BATCH_PREFILL: Family(
        "attention over pages of one token, listed for each sequence", _FORWARD_BLOCK, 2, ("qr_async",)
    ),
    DOT_DO_O: Family(
        "backward, first stage: sums of the output times its gradient", ("threads", "hdim_v"), 0, ("dot_do_o",)
    ),
    DQ_DK_DV: Family(
        "backward, second stage: gradients of queries, keys and values",
        ("m0", "n0", "k0", "k1", "k2", "k3", "k4", "hdim_q", "hdim_v"),
        3,
        ("kr_ktr_vr", "kr_ktr_vr_iglp", "trload_kr_ktr_vr", "trload_qr_qtr_dor"),
    ),
    CONVERT_DQ: Family(
        "backward, third stage: conversion of the summed query gradient",
        ("threads", "m0", "n0", "hdim_q"),
        0,
        ("convert_dq",),
    ),
}
PIPELINES = tuple(dict.fromkeys(name for family in FAMILIES.values() for name in family.pipelines))


def get_tile(config: Any) -> dict[str, int]:
    """Return the numbers of a config's block by name; empty if their count is not the family's (rule T207)."""
    labels = FAMILIES[config.family].block
    return dict(zip(labels, config.block, strict=True)) if len(labels) == len(config.block) else {}
