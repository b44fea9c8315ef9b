"""Which problems the kernels of caches compute: pages, splits, rotary embedding. Codes S609, S610 and S613."""

from __future__ import annotations

from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.resources import MAX_ACCESS_BYTES
from tilewright.ops.fmha.families import APPENDKV, BATCH_PREFILL, COMBINE, FORWARD, PAGEDKV, SCORING, SPLITKV
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.rule import Fault, rule


@rule(
    "S609",
    "other-pages",
    reads=("family", "block", "paged"),
    enforced_by="supports",
    good={},
    bad={"problem": {"page_size": 64}},
)
def other_pages(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Pages need a kernel that reads them, and a size that its tiles fit.

    Why: a kernel without a page table would take the pages for one long sequence. One with a table looks a page up
    once for each tile of keys, batch_prefill once for each token. appendkv writes a tile to two pages at most.

    Fix: a kernel with paged, or without; or one with another n0.
    """
    if config.family not in (*SCORING, APPENDKV):
        return None
    size = problem.page_size
    if config.paged != problem.paged:
        return Fault(f"page_size is {size}, the kernel has paged {config.paged}", "paged", problem.paged)
    if not config.paged:
        return None
    message = _page_fault(config.family, size, config.tile["n0"])
    return Fault(message, "block") if message else None


def _page_fault(family: str, size: int, n0: int) -> str:
    """What is wrong with the size of a page."""
    if family == BATCH_PREFILL:
        return f"a page has {size} tokens, the kernel is for pages of 1" if size != 1 else ""
    if family == APPENDKV:
        return f"a page has {size} tokens, fewer than a tile of {n0}" if size < n0 else ""
    return f"a page has {size} tokens, which are not whole tiles of {n0}" if size % n0 else ""


@rule(
    "S610",
    "other-splits",
    reads=("family", "mode", "uneven_splits", "log_max_splits"),
    enforced_by="supports",
    good={},
    bad={"problem": {"num_splits": 2}},
)
def other_splits(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Only splitkv and combine have parts, each as many as it was built for.

    Why: parts of a length that is known on the device only may end inside a tile, which a kernel without uneven_splits
    does not look for. combine keeps the LSE of all parts of a query in one tile.

    Fix: a kernel with uneven_splits, or with a larger log_max_splits; splitkv and combine for a forward problem.
    """
    count = problem.num_splits
    if config.family in (SPLITKV, COMBINE) and count < 1:
        return Fault(f"num_splits is {count}, at least 1 part is needed", "family")
    if config.family == SPLITKV and count > 1 and not (config.uneven_splits or config.mode == "group"):
        return Fault(f"{count} parts may end inside a tile, the kernel has no uneven_splits", "uneven_splits", True)
    if config.family == COMBINE and count > 2**config.log_max_splits:
        return Fault(f"{count} parts, the kernel joins at most {2**config.log_max_splits}", "log_max_splits")
    if config.family in (FORWARD, PAGEDKV, BATCH_PREFILL) and count:
        return Fault(f"num_splits is {count}, {config.family} computes all keys at once", "family", SPLITKV)
    return None


@rule(
    "S613",
    "rotary-size",
    reads=("family", "rotary", "dtype"),
    enforced_by="supports",
    good={},
    bad={
        **{"family": APPENDKV, "pipeline": "appendkv", "block": (64, 64, 128, 128), "rotary": "half"},
        "problem": {"family": APPENDKV, "rotary": "half", "rotary_dim": 24, "seqlen_new": 64},
    },
)
def rotary_size(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Whole vectors of a head are rotated, and appendkv has something to append.

    Why: a thread rotates all elements that it holds or none. Where halves are rotated into each other, a thread's
    elements are on one side of the middle.

    Fix: another rotary_dim.
    """
    if config.family != APPENDKV:
        return None
    if problem.seqlen_new < 1:
        return Fault("seqlen_new is 0: nothing is appended", "family")
    if config.rotary == "none":
        return None
    held = MAX_ACCESS_BYTES // dtype(DTYPES[config.dtype].qkv).storage_bytes
    step = 2 * held if config.rotary == "half" else held
    size = problem.rotary_size
    if size % step == 0 and size <= problem.hdim_q:
        return None
    return Fault(f"{size} elements are rotated, must be a multiple of {step} and at most {problem.hdim_q}", "rotary")
